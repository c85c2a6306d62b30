"""Command `mz show`."""

from __future__ import annotations

import sys
from functools import partial

import click
from mz_projections.views import ArtifactView, FeatureView, RunView

from mz_cli.context import Reading, reading
from mz_cli.detail import Wanted, attempts_made, feature_detail
from mz_cli.help import command, did_you_mean
from mz_cli.inbox import left
from mz_cli.page import Limits, page
from mz_cli.render.console import is_terminal, put_lines, put_whole
from mz_cli.render.document import show_document
from mz_cli.shapes.run import ArtifactText
from mz_cli.worktrees import around

LIMITS = Limits(message_characters=300, excerpt_lines=12)
"""Limits on a terminal; a pipe gets everything."""


@command(
    "show",
    examples=(
        ("mz show login", "attempts and results, phase by phase"),
        ("mz show login --phase code --attempt 2 --prompt --diff", "one attempt: its prompt and its changes"),
        ("mz show login --artifact techspec > techspec.md", "one artifact in full"),
        ("mz show login --json | jq '.calls[].refusals'", "the reasons for rejected replies"),
    ),
    following="`mz log --feature FEATURE` lists its events; `mz status` shows the run.",
)
@click.argument("feature")
@click.option("--run", metavar="RUN", help="The run. [default: the newest with the feature]")
@click.option("--phase", metavar="PHASE", help="Only this phase.")
@click.option("--attempt", metavar="N", type=click.IntRange(min=1), help="Only this attempt of each phase.")
@click.option("--prompt", is_flag=True, help="Also print the prompts.")
@click.option("--output", is_flag=True, help="Print the full output of commands, gates and failed calls.")
@click.option("--diff", is_flag=True, help="Print the changes of each phase; with --attempt, of that attempt.")
@click.option("--artifact", metavar="NAME", help="Print only this artifact, in full; NAME/UNIT for one unit.")
@click.option("--json", "as_json", is_flag=True, help="Print one object: mz.show/1, or mz.artifact/1 of an artifact.")
def show(
    feature: str, run: str | None, phase: str | None, attempt: int | None, prompt: bool, output: bool, diff: bool,
    artifact: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Show one feature: its phases, attempts and results.

    For each attempt: agent, cost, rejections with rule and location, results of commands and gates; then artifacts,
    commits and changed files. Changed files are those that differed at the end of the attempt.
    """
    with reading() as log:
        view, found = log.find_feature(run, feature)
        check_phase(found, phase)
        patch = differ(log) if diff else None
        wanted = Wanted(phase=phase, attempt=attempt, prompts=prompt, outputs=output, patch=patch)
        check_attempt(found, wanted)
        if artifact is not None:
            show_artifact(log, view, found, chosen(found, wanted, artifact), as_json)
            return
        detail = feature_detail(view, found, wanted, log.words, around(log.home, left(log, view.run)))
    if as_json:
        show_document("show", detail)
    else:
        put_lines(sys.stdout, page(detail, LIMITS if is_terminal(sys.stdout) else Limits()))


def differ(log: Reading) -> partial[str]:
    """Return a function that makes patches; git is called only when it is used."""
    from mz_cli.changes import patch

    return partial(patch, log.home, without=frozenset())


def check_phase(found: FeatureView, phase: str | None) -> None:
    """Raise UsageError for a phase that the feature has not started."""
    phases = list(dict.fromkeys(each.phase for each in found.phases))
    if phase is not None and phase not in phases:
        known = f"; it has: {', '.join(phases)}" if phases else "; it has started none"
        raise refused(f"{found.feature} has no phase {phase!r}{did_you_mean(phase, phases) or known}")


def check_attempt(found: FeatureView, wanted: Wanted) -> None:
    """Raise UsageError, with the number of attempts, for an attempt that was never made."""
    if wanted.attempt is None or wanted.calls(found):
        return
    made = attempts_made(found, wanted.phase)
    counted = ", ".join(f"{number} in {phase}" for phase, number in made.items())
    raise refused(f"{found.feature} has no attempt {wanted.attempt}: it made {counted or 'none'}")


def chosen(found: FeatureView, wanted: Wanted, name: str) -> ArtifactView:
    """Return the last artifact of a name or NAME/UNIT. Raises UsageError if there is none or one per unit."""
    artifacts = wanted.artifacts(found)
    known = {f"{each.artifact}/{each.unit}" if each.unit else each.artifact: each for each in artifacts}
    named = [key for key, each in known.items() if name in (key, each.artifact)]
    if not named:
        listed = f"; it has: {', '.join(known)}" if known else "; it has none"
        raise refused(f"{found.feature} has no artifact {name!r}{did_you_mean(name, known) or listed}")
    if len(named) > 1:
        raise refused(f"{name!r} exists per unit: name one of {', '.join(named)}")
    return known[named[0]]


def refused(message: str) -> click.UsageError:
    return click.UsageError(message, click.get_current_context())


def show_artifact(log: Reading, view: RunView, found: FeatureView, artifact: ArtifactView, as_json: bool) -> None:
    """Print an artifact: unchanged to a pipe, without escapes to a terminal. Raises BlobMissing if it was erased."""
    data = log.blobs.get(artifact.digest)
    if not as_json:
        put_whole(sys.stdout, data)
        return
    shape = ArtifactText(
        run=view.run, feature=found.feature, artifact=artifact.artifact, phase=artifact.phase,
        unit=artifact.unit or None, path=artifact.path, digest=artifact.digest, text=data.decode("utf-8", "replace"),
    )  # fmt: skip
    show_document("artifact", shape)
