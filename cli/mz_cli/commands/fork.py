"""Adapter: `mz fork`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click
from mz_engine.errors import MzError
from mz_engine.fork import CannotFork, Change, phase_start
from mz_engine.pipelines.material import check_template
from mz_engine.session import Session
from mz_engine.textfile import read_text
from mz_events.names import feature_stream

from mz_cli.context import Reading, find_home, reading
from mz_cli.driving import drive
from mz_cli.help import command
from mz_cli.render.console import note
from mz_cli.viewing import view_options


@command(
    "fork",
    examples=(
        ("mz fork r4f1/login --at 57 --model claude-opus-4-6", "go on from there with another model"),
        ("mz fork r4f1/login --at techspec --prompt try.md.j2", "the last start of a phase, with another prompt"),
    ),
    following="`mz diff RUN FORK` compares result, tokens and money; `mz log RUN` shows the versions.",
)
@click.argument("place", metavar="RUN/FEATURE")
@click.option("--at", metavar="VERSION", required=True, help="Of the feature's stream; or a phase: its last start.")
@click.option("--agent", metavar="NAME", help="Another agent from there on.")
@click.option("--model", metavar="NAME", help="Another model for every call from there on.")
@click.option(
    "--prompt", metavar="FILE", type=click.Path(path_type=Path), help="Another template for the phase that goes on."
)
@view_options
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.fork/1.")
@click.pass_context
def fork(
    context: click.Context, place: str, at: str, agent: str | None, model: str | None, prompt: Path | None,
    as_json: bool,
) -> int:  # fmt: skip
    """Go on from an event of a past run, with something changed.

    A new run takes over what had happened to the feature up to that version, and calls the agent from there on, for
    real money. Where a call was under way, it is made anew. The fork has branches of its own, opens no pull request,
    and counts for nothing that later runs do: it is there to be compared. `mz resume ID` goes on with it.
    """
    home = find_home(Path.cwd())
    with reading(home) as log:
        run, feature = place_of(log, place, context)
        version = version_of(log, run, feature, at)
    change = Change(agent=agent, model=model, prompt=template(prompt) if prompt else None)
    begun: list[str] = []

    def begin(session: Session, _: Callable[[str], None]) -> None:
        try:
            session.fork(run, feature, version, change)
        except CannotFork as error:
            hint = f"mz log {run} --feature {feature}"
            raise MzError("MZ5008", f"nothing can go on from {place} at {at}: {error}", hint=hint) from error
        assert session.coordinator is not None
        begun.append(session.coordinator.run)

    code = drive(home, begin, "fork", as_json)
    note(f"compare: mz diff {run} {begun[0]}")
    return code


def place_of(log: Reading, place: str, context: click.Context) -> tuple[str, str]:
    """Run and feature. Raises UsageError, and MzError (MZ5001, MZ4010)."""
    wanted, slash, feature = place.removeprefix("run/").partition("/")
    if not slash or not feature:
        raise click.UsageError(f"{place!r} is no RUN/FEATURE", context)
    run = log.find_run(wanted)
    log.check_feature(run, feature)
    return run, feature


def version_of(log: Reading, run: str, feature: str, at: str) -> int:
    """A number, `@number`, or the last start of a phase. Raises MzError (MZ5007)."""
    events = tuple(log.store.read(feature_stream(run, feature)))
    number = at.removeprefix("@")
    version = int(number) if number.isdecimal() and number.isascii() else phase_start(events, at)
    if version is None or not 1 <= version <= len(events):
        said = f"{at!r} is no version of {run}/{feature}, which has 1 to {len(events)}, and no phase that it came to"
        raise MzError("MZ5007", said, hint=f"mz log {run} --feature {feature}")
    return version


def template(file: Path) -> str:
    """The text of a prompt's template. Raises MzError (MZ3017) for one that cannot be rendered."""
    text = read_text(file, str(file))
    found = tuple(check_template(str(file), file.name, text, {file.name}))
    if found:
        raise MzError.of(found)
    return text
