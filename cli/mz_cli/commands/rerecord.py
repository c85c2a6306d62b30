"""Adapter: `mz rerecord`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click
from mz_engine.quantity import parse_usd
from mz_recordings.rerecord.plan import Wish

from mz_cli.context import find_home
from mz_cli.help import command
from mz_cli.render.console import answer, note
from mz_cli.render.document import show_document
from mz_cli.render.text import usd
from mz_cli.rerecording import ALL, Asked, cassettes_at, exit_of, record_again, take_waiting
from mz_cli.rerecordpage import result
from mz_cli.shapes.rerecord import RerecordedCassette, RerecordResult

CLASSES = (
    "PROMPT", "CONFIG", "WIRE", "EVENT", "ARTIFACT", "EFFECT", "COST", "POLICY", "MISSING", "UNUSED", "STALE", "SEEDED",
    ALL,
)  # fmt: skip


class Dollars(click.ParamType[int]):
    """An amount such as `5` or `2.50`; nano-dollars."""

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
        ("mz rerecord", "what has changed, is too old or was never recorded, in the whole library"),
        ("mz rerecord recordings/rollback --feature login --budget 2.50", "every call of one feature, for so much"),
        ("mz rerecord --expired --yes --accept ARTIFACT --accept COST", "where nobody is asked"),
        ("mz rerecord recordings/rollback --take --accept ALL", "take a new cassette that waits"),
    ),
    following="`mz replay` plays what was recorded; then commit it.",
)
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path(path_type=Path))
@click.option("--agent", metavar="NAME", help="The agent that answers, instead of the cassette's own.")
@click.option("--feature", "features", metavar="ID", multiple=True, help="Only calls of this feature; repeatable.")
@click.option("--phase", "phases", metavar="NAME", multiple=True, help="Only calls of this phase; repeatable.")
@click.option("--changed", is_flag=True, help="Calls whose prompt, arguments, tree or stream are other ones today.")
@click.option("--expired", is_flag=True, help="Calls whose answers are too old, or another agent's.")
@click.option("--new", is_flag=True, help="Calls that were never recorded.")
@click.option("--all", "everything", is_flag=True, help="Every call.")
@click.option("--prune", is_flag=True, help="Drop recordings that nothing asks for.")
@click.option(
    "--budget",
    metavar="USD",
    type=Dollars(),
    help="What may be paid; no call is begun that exceeds it or has no price.",
)
@click.option(
    "--accept",
    metavar="CLASS",
    type=click.Choice(CLASSES),
    multiple=True,
    help="Take differences of this class: a class of drift, MISSING, UNUSED or ALL; repeatable.",
)
@click.option("--take", is_flag=True, help="Take new cassettes that wait to be accepted; nothing is called.")
@click.option(
    "--provenance",
    type=click.Choice(["live", "scripted-model"]),
    default="live",
    show_default=True,
    help="What the new answers are worth: whether a real model gave them.",
)
@click.option("--yes", is_flag=True, help="Do not ask whether to call the agent.")
@click.option("--in-ci", is_flag=True, help="On a build server, with --budget: call the agent there.")
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.rerecord/1.")
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
    """Have the real agent answer recorded calls again, as a review.

    First says which calls, why, and what they will probably cost, and asks. Then the recorded world is driven through
    today's pipeline: what is asked as it was is answered from the recording, the rest by the agent. A feature that does
    not come to the rest that it had keeps its old recordings. What differs is shown class by class, and written when
    every class is accepted; else the new cassette waits. What was paid is never lost: an attempt that was stopped goes
    on with the same command, and the answers of a feature that is not taken because of another are used again. Without
    --changed, --expired, --new or --all it is the first three, or all calls of the features and phases that are named.
    A PATH is a cassette or a folder of them; without one, the library is meant.
    """
    wish = Wish(features=features, phases=phases, changed=changed, expired=expired, new=new, everything=everything)
    if take and (wish != Wish() or agent or prune or budget is not None):
        raise click.UsageError("--take calls nothing: it goes with PATH, --accept and --json alone", context)
    asked = Asked(wish, agent or "", provenance, prune, budget, frozenset(accept), yes, in_ci)
    home = find_home(Path.cwd())
    found = cassettes_at(home, paths)
    done = (take_waiting if take else record_again)(home, found, asked)
    if as_json:
        document = RerecordResult(exit=int(exit_of(done)), budget_usd=usd(budget), cassettes=done)
        show_document("rerecord", document)
    else:
        tell(done)
    return int(exit_of(done))


def tell(done: tuple[RerecordedCassette, ...]) -> None:
    """The result in words, with what goes on from there."""
    for one in done:
        for words in result(one):
            answer(words)
        if one.backup:
            note(f"a copy of what it was lies in {one.backup}")
        if one.helps:
            note(f"then: {one.helps}")
