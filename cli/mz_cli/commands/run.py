"""Adapter: `mz run`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click
from mz_engine.errors import format_diagnostic
from mz_engine.exits import Exit
from mz_engine.session import Session

from mz_cli import recording
from mz_cli.context import find_home
from mz_cli.driving import NothingToDo, drive
from mz_cli.help import command
from mz_cli.plan import show_plan
from mz_cli.render.text import counted
from mz_cli.viewing import view_options

LEFT_OUT = "MZ3009"
"""A step of the pipeline whose command is not configured: shown in the plan, not at every run."""


@command(
    "run",
    examples=(
        ("mz run --dry-run", "what would be done, in which order, for how much; writes nothing"),
        ("mz run", "deliver the backlog"),
        ("mz run --feature login --feature audit --autonomy full_auto", "two features, and never ask"),
    ),
    following="`mz status` shows where it stands; `mz resume` goes on after a stop or a question.",
)
@click.option("--feature", "features", metavar="ID", multiple=True, help="Only this feature; repeatable.")
@click.option("--agent", metavar="NAME", help="The agent that is called, instead of the one in mz.yaml.")
@click.option("--max-parallel", metavar="N", type=click.IntRange(min=1), help="How many features at the same time.")
@click.option(
    "--autonomy",
    type=click.Choice(["supervised", "checkpoint", "full_auto"]),
    help="How often a person is asked: after planning too, at gates, or never.",
)
@click.option("--dry-run", is_flag=True, help="Print the plan and stop; write nothing.")
@click.option("--exit-code", is_flag=True, help="With --dry-run: exit 1 when there is something to do.")
@click.option("--record", is_flag=True, help="Make a cassette of the run afterwards, as `mz record` does.")
@view_options
@click.option("--json", "as_json", is_flag=True, help="Print one object: mz.run/1, or mz.plan/1 in a dry run.")
def run(
    features: tuple[str, ...], agent: str | None, max_parallel: int | None, autonomy: str | None, dry_run: bool,
    exit_code: bool, record: bool, as_json: bool,
) -> int:  # fmt: skip
    """Deliver the backlog, feature by feature.

    Reads mz.yaml and the backlog, and takes each feature through the pipeline in a worktree of its own. An unfinished
    run goes on, with what is new in the backlog. Ctrl-C comes to rest; a second one ends the agents at once.
    """
    if exit_code and not dry_run:
        raise click.UsageError("--exit-code goes with --dry-run", click.get_current_context())
    if record and dry_run:
        raise click.UsageError("--record needs a run, and --dry-run makes none", click.get_current_context())
    home = find_home(Path.cwd())
    flags = {"agent": agent, "parallel_max": max_parallel, "autonomy": autonomy}
    if dry_run:
        something = show_plan(home, flags, features, as_json)
        return int(Exit.VERDICT if exit_code and something else Exit.OK)

    begun: list[str] = []

    def begin(session: Session, say: Callable[[str], None]) -> None:
        if record:
            recording.refuse_before(home, flags)
        plan = session.begin(flags, features)
        for warning in plan.warnings:
            if warning.code != LEFT_OUT:
                say(format_diagnostic(warning))
        if session.coordinator is None:
            raise NothingToDo(nothing(len(plan.taken.skipped)))
        begun.append(session.coordinator.run)

    code = drive(home, begin, "run", as_json)
    if record and begun:
        recording.record_after(begun[0])
    return code


def nothing(delivered: int) -> str:
    if not delivered:
        return "nothing to do: the backlog has no feature with the status FEAT"
    return f"nothing to do: {counted(delivered, 'feature')} of the backlog delivered before; `mz runs` lists the runs"
