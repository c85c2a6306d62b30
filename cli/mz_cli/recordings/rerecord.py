"""Command `mz rerecord`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click
from mz_engine.decoding.quantity import parse_usd
from mz_recordings.rerecord.plan import CallSelection

from mz_cli.app.context import find_home
from mz_cli.app.help import command, format_options
from mz_cli.recordings.json import RerecordedCassette, RerecordResult
from mz_cli.recordings.rerecord_query import ALL, RerecordOptions, accept_waiting, rerecord_cassettes, rerecord_exit
from mz_cli.recordings.rerecord_text import result_lines
from mz_cli.replay.command import require_cassettes
from mz_cli.terminal.console import print_line, print_note
from mz_cli.terminal.json import print_document
from mz_cli.terminal.text import exact_usd

CLASSES = (
    "PROMPT",
    "CONFIG",
    "STREAM",
    "TRACE",
    "ARTIFACT",
    "FILES",
    "COST",
    "DECISION",
    "MISSING",
    "UNUSED",
    "EXPIRED",
    "COPIED",
    ALL,
)


class Dollars(click.ParamType[int]):
    """Amount in USD such as `5` or `2.50`, converted to nano-dollars."""

    name = "usd"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return parse_usd(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


@command(
    "rerecord",
    examples=(
        ("mz rerecord", "changed, expired and missing recordings of the library"),
        ("mz rerecord recordings/rollback --feature login --budget 2.50", "every call of one feature, within a budget"),
        ("mz rerecord --expired --yes --accept ARTIFACT --accept COST", "without questions"),
        ("mz rerecord recordings/rollback --accept-pending --accept ALL", "accept a pending cassette"),
    ),
    next_command="`mz replay` replays the recordings; then commit them.",
)
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path(path_type=Path))
@click.option("--agent", metavar="NAME", help="Agent to call instead of the cassette's own.")
@click.option("--feature", "features", metavar="ID", multiple=True, help="Only calls of this feature; repeatable.")
@click.option("--phase", "phases", metavar="NAME", multiple=True, help="Only calls of this phase; repeatable.")
@click.option("--changed", is_flag=True, help="Calls whose prompt, arguments, tree or stream have changed.")
@click.option("--expired", is_flag=True, help="Calls whose replies have expired or come from another agent.")
@click.option("--new", is_flag=True, help="Calls that were never recorded.")
@click.option("--all", "everything", is_flag=True, help="Every call.")
@click.option("--prune", is_flag=True, help="Remove unused recordings.")
@click.option(
    "--budget",
    metavar="USD",
    type=Dollars(),
    help="Maximum cost; calls that exceed it or have no price are not started.",
)
@click.option(
    "--accept",
    metavar="CLASS",
    type=click.Choice(CLASSES),
    multiple=True,
    help="Accept differences of this class: a class of drift, MISSING, UNUSED or ALL; repeatable.",
)
@click.option(
    "--accept-pending", "take", is_flag=True,
    help="Accept pending new cassettes; no agent is called.",
)  # fmt: skip
@click.option(
    "--provenance",
    type=click.Choice(["live", "scripted-model"]),
    default="live",
    show_default=True,
    help="Origin of the new replies: a real model or a scripted one.",
)
@click.option("--yes", is_flag=True, help="Do not ask whether to call the agent.")
@click.option("--in-ci", is_flag=True, help="Allow agent calls on a CI server; needs --budget.")
@format_options("Print one object with the schema mz.rerecord/1.")
@click.pass_context
def rerecord(
    context: click.Context,
    paths: tuple[Path, ...],
    agent: str | None,
    features: tuple[str, ...],
    phases: tuple[str, ...],
    changed: bool,
    expired: bool,
    new: bool,
    everything: bool,
    prune: bool,
    budget: int | None,
    accept: tuple[str, ...],
    take: bool,
    provenance: Literal["live", "scripted-model"],
    yes: bool,
    in_ci: bool,
    as_json: bool,
) -> int:
    """Re-record calls with the real agent and review the differences.

    Lists the calls with reason and estimated cost, and asks for confirmation. Then the fixture is run through the
    current pipeline: unchanged calls are served from the recording, the others by the agent. A feature that ends with
    another outcome keeps its old recordings. Differences are shown by class, and written when every class is accepted;
    otherwise the new cassette waits. Paid replies are never lost: the same command continues a stopped attempt, and
    replies of a feature that was not accepted because of another one are reused. Without --changed, --expired, --new or
    --all, the first three apply, or all calls of the named features and phases. PATH is a cassette or a folder of
    cassettes (default: the library).
    """
    selection = CallSelection(
        features=features, phases=phases, changed=changed, expired=expired, new=new, everything=everything
    )
    if take and (selection != CallSelection() or agent or prune or budget is not None):
        raise click.UsageError("--accept-pending can be combined only with PATH, --accept and --json", context)
    options = RerecordOptions(selection, agent or "", provenance, prune, budget, frozenset(accept), yes, in_ci)
    home = find_home(Path.cwd())
    cassettes = require_cassettes(home, paths)
    results = (accept_waiting if take else rerecord_cassettes)(home, cassettes, options)
    if as_json:
        document = RerecordResult(exit=int(rerecord_exit(results)), budget_usd=exact_usd(budget), cassettes=results)
        print_document("rerecord", document)
    else:
        print_result(results)
    return int(rerecord_exit(results))


def print_result(results: tuple[RerecordedCassette, ...]) -> None:
    """Print the results and the next commands."""
    for cassette in results:
        for text in result_lines(cassette):
            print_line(text)
        if cassette.helps:
            print_note(f"next: {cassette.helps}")
