"""Command `mz fork`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click
from mz_engine.decoding.text_file import read_text
from mz_engine.errors.diagnostics import MzError
from mz_engine.pipelines.material import check_template
from mz_engine.run.fork import CannotFork, ForkChange, phase_start
from mz_engine.run.process import RunProcess

from mz_cli.app.context import find_home, open_log
from mz_cli.app.help import command, format_options, view_options
from mz_cli.app.selectors import select
from mz_cli.live.driver import drive_run
from mz_cli.terminal.console import print_note


@command(
    "fork",
    examples=(
        ("mz fork r4f1/login@57 --model claude-opus-4-6", "continue from event 57 with another model"),
        ("mz fork r4f1/login/techspec --prompt try.md.j2", "repeat a phase with another prompt"),
    ),
    next_command="`mz diff RUN FORK` compares results, tokens and cost; `mz log RUN` shows the versions.",
)
@click.argument("source", metavar="RUN/FEATURE[/PHASE|@VERSION]")
@click.option("--agent", metavar="NAME", help="Agent to use from there.")
@click.option("--model", metavar="NAME", help="Model to use for every call from there.")
@click.option(
    "--prompt", metavar="FILE", type=click.Path(path_type=Path), help="Template to use for the phase that continues."
)
@view_options
@format_options("Print one object with the schema mz.fork/1.", default="table")
@click.pass_context
def fork(
    context: click.Context, source: str, agent: str | None, model: str | None, prompt: Path | None,
    as_json: bool,
) -> int:  # fmt: skip
    """Start a new run from an event of a past run, with another agent, model or prompt.

    PHASE stands for its last start, VERSION for an event of the feature's stream, as `mz log` prints it. The new run
    copies the feature's events up to there and calls the agent from there, for real money. An
    unfinished call is repeated. The fork has its own branches, opens no pull request, and is ignored by later runs: it
    serves for comparison. `mz resume ID` continues it.
    """
    home = find_home(Path.cwd())
    with open_log(home) as log:
        selector = select(log, source, feature_only=True)
        run, feature = selector.run, str(selector.feature)
        version = selector.version
        if selector.phase is not None:
            version = phase_start(tuple(log.store.read(selector.stream)), selector.phase)
            if version is None:
                raise MzError("MZ5007", f"{feature} has not started {selector.phase}", hint=f"mz log {run}/{feature}")
        if version is None:
            raise click.UsageError(f"name a phase or an event to start from: {run}/{feature}/PHASE", context)
    change = ForkChange(agent=agent, model=model, prompt=read_template(prompt) if prompt else None)
    started_runs: list[str] = []

    def begin(session: RunProcess, _: Callable[[str], None]) -> None:
        try:
            session.fork(run, feature, version, change)
        except CannotFork as error:
            hint = f"mz log {run}/{feature}"
            raise MzError("MZ5008", f"cannot fork {source}: {error}", hint=hint) from error
        assert session.coordinator is not None
        started_runs.append(session.coordinator.run)

    code = drive_run(home, begin, "fork", as_json)
    print_note(f"compare: mz diff {run} {started_runs[0]}")
    return code


def read_template(file: Path) -> str:
    """Return the text of a prompt template. Raises MzError (MZ3017) if it cannot be rendered."""
    text = read_text(file, str(file))
    errors = tuple(check_template(str(file), file.name, text, {file.name}))
    if errors:
        raise MzError.from_diagnostics(errors)
    return text
