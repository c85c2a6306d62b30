"""Command `mz run`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click
from mz_engine.errors.diagnostics import format_diagnostic
from mz_engine.errors.exits import Exit
from mz_engine.run.process import RunProcess

from mz_cli.app.context import find_home
from mz_cli.app.help import command, format_options, jobs_option, view_options
from mz_cli.live.driver import NothingToDo, drive_run
from mz_cli.terminal.text import count_noun

SKIPPED_STEP = "MZ3009"
"""Code for a pipeline step whose command is not configured: shown in the plan, not at every run."""


@command(
    "run",
    examples=(
        ("mz run --dry-run", "the plan: features, order, estimated cost; writes nothing"),
        ("mz run", "deliver the backlog"),
        ("mz run --feature login --feature audit --autonomy full_auto", "two features, without asking"),
    ),
    next_command="`mz status` shows the progress; `mz resume` continues after a stop or a question.",
)
@click.option("--feature", "features", metavar="ID", multiple=True, help="Only this feature; repeatable.")
@click.option("--agent", metavar="NAME", help="Agent to use instead of the one in mz.yaml.")
@jobs_option("Number of parallel features.")
@click.option(
    "--autonomy",
    type=click.Choice(["supervised", "checkpoint", "full_auto"]),
    help="When to ask a person: also after planning, only at gates, or never.",
)
@click.option("--dry-run", is_flag=True, help="Print the plan; write nothing.")
@click.option("--exit-code", is_flag=True, help="With --dry-run: exit with 1 if there is something to do.")
@click.option("--record", is_flag=True, help="Make a cassette of the run afterwards, as `mz record` does.")
@view_options
@format_options("Print one object: mz.run/1, or mz.plan/1 in a dry run.", default="table")
def run(
    features: tuple[str, ...], agent: str | None, jobs: int | None, autonomy: str | None, dry_run: bool,
    exit_code: bool, record: bool, as_json: bool,
) -> int:  # fmt: skip
    """Deliver the backlog, feature by feature.

    Reads mz.yaml and the backlog, and takes each feature through the pipeline in its own worktree. An unfinished run is
    continued, with new items of the backlog. Ctrl-C finishes current calls, then stops; a second Ctrl-C stops now.
    """
    if exit_code and not dry_run:
        raise click.UsageError("--exit-code requires --dry-run", click.get_current_context())
    if record and dry_run:
        raise click.UsageError("--record cannot be combined with --dry-run", click.get_current_context())
    home = find_home(Path.cwd())
    flags = {"agent": agent, "parallel_max": jobs, "autonomy": autonomy}
    if dry_run:
        from mz_cli.deliver.plan import print_plan

        has_work = print_plan(home, flags, features, as_json)
        return int(Exit.VERDICT if exit_code and has_work else Exit.OK)

    started_runs: list[str] = []

    def begin(session: RunProcess, say: Callable[[str], None]) -> None:
        if record:
            from mz_cli.common.recording import check_recordable

            check_recordable(home, flags)
        plan = session.start(flags, features)
        for warning in plan.warnings:
            if warning.code != SKIPPED_STEP:
                say(format_diagnostic(warning))
        if session.coordinator is None:
            raise NothingToDo(nothing_to_do_text(len(plan.intake.skipped)))
        started_runs.append(session.coordinator.run)

    code = drive_run(home, begin, "run", as_json)
    if record and started_runs:
        from mz_cli.common.recording import record_finished_run

        record_finished_run(started_runs[0])
    return code


def nothing_to_do_text(delivered: int) -> str:
    if not delivered:
        return "nothing to do: the backlog has no feature with the status FEAT"
    features = count_noun(delivered, "feature")
    return f"nothing to do: {features} of the backlog already delivered; `mz runs` lists the runs"
