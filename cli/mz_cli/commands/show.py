"""Adapter: `mz show`."""

from __future__ import annotations

import sys

import click

from mz_cli.context import reading
from mz_cli.detail import Wanted, feature_detail, page
from mz_cli.help import command, did_you_mean
from mz_cli.render.console import answer, is_terminal
from mz_cli.render.document import show_document

MESSAGE_MAX = 300
"""Characters of a message on a terminal."""


@command(
    "show",
    examples=(
        ("mz show login", "what was tried, phase by phase, and what came of it"),
        ("mz show login --phase code --attempt 2 --prompt", "one attempt, with the prompt that went in"),
        ("mz show login --json | jq '.calls[].refusals'", "why replies were refused"),
    ),
    following="`mz log --feature FEATURE` lists its events; `mz status` shows the whole run.",
)
@click.argument("feature")
@click.option("--run", metavar="RUN", help="The run to look in; without it, the newest that has the feature.")
@click.option("--phase", metavar="PHASE", help="Only this phase.")
@click.option("--attempt", metavar="N", type=click.IntRange(min=1), help="Only this attempt of each phase.")
@click.option("--prompt", is_flag=True, help="Print the prompts too.")
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.show/1.")
def show(feature: str, run: str | None, phase: str | None, attempt: int | None, prompt: bool, as_json: bool) -> None:
    """Show one feature: its phases, attempts and results.

    For each attempt: the agent, what it took, what was refused and why; then test results, artifacts, commits.
    """
    with reading() as log:
        view, found = log.find_feature(run, feature)
        phases = [each.phase for each in found.phases]
        if phase is not None and phase not in phases:
            problem = f"{feature} has no phase {phase!r}{did_you_mean(phase, phases)}"
            raise click.UsageError(problem, click.get_current_context())
        detail = feature_detail(view, found, Wanted(phase=phase, attempt=attempt, prompts=prompt), log.words)
    if as_json:
        show_document("show", detail)
    else:
        answer("\n".join(page(detail, MESSAGE_MAX if is_terminal(sys.stdout) else None)))
