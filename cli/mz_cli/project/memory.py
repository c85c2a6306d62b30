"""Commands `mz memory list`, `show`, `why`, `promote`, `share`, `archive`, `effect` and `rules`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import get_args

import click
from mz_engine.backlog.injection_screen import injections
from mz_engine.errors.diagnostics import MzError
from mz_engine.paths import LOG_FILE, MZ_FOLDER, user_data_directory
from mz_engine.run.settings import MEMORY_FILE, read_memory_rules
from mz_events.adapters.sqlite_log import SqliteStore
from mz_events.catalog.base import Event
from mz_events.catalog.memory import LearningArchived, LearningPromoted, LearningShared
from mz_events.codec import type_of
from mz_events.names import PROJECT_STREAM, USER_STREAM
from mz_events.store import Append
from mz_projections.memory.effect import Effect, Side, effects
from mz_projections.memory.evidence import Kind
from mz_projections.memory.learnings import Layer, Learning, MemoryRules, Status, learnings

from mz_cli.app.context import ProjectLog, find_root
from mz_cli.app.help import command_family, format_options, message_option
from mz_cli.common.memory import ProjectMemory, for_others, open_memory, takes_shared
from mz_cli.people.inbox import store_text, store_user_name
from mz_cli.terminal.json import Shape, shape_of
from mz_cli.terminal.table import Table, columns, print_output
from mz_cli.terminal.text import single_line

RESULTS = {True: "helped", False: "did not help", None: "open"}


class MemoryList(Shape, frozen=True, kw_only=True):
    """`mz memory list --json`."""

    learnings: tuple[Learning, ...]


class MemoryWhy(Shape, frozen=True, kw_only=True):
    """`mz memory why ID --json`, `mz memory show ID --json`."""

    learning: Learning
    rules: MemoryRules
    decided_by: str | None
    """Who promoted or archived it last."""
    reason: str | None
    shared: SharedLearning | None
    """Null: it is not in the global layer."""


class SharedLearning(Shape, frozen=True, kw_only=True):
    """How a learning came to all projects."""

    project: str
    """That shared it last."""
    person: str | None
    """Null: several projects offer it."""
    reason: str | None
    event_ref: str
    """In the user's log."""


class MemoryDecision(Shape, frozen=True, kw_only=True):
    """`mz memory promote ID --json`, `mz memory share ID --json`, `mz memory archive ID --json`."""

    id: str
    key: str
    action: str
    """promoted, shared or archived."""
    event_ref: str
    """Of a shared one, and of one that the global layer loses: in the user's log."""
    withheld: tuple[str, ...]
    """What looks like an injection in its text, so that no agent is told of it, whoever promotes it."""


class MemoryEffect(Shape, frozen=True, kw_only=True):
    """`mz memory effect --json`."""

    effects: tuple[Effect, ...]


class MovedLearning(Shape, frozen=True, kw_only=True):
    """A learning that other rules would treat differently."""

    id: str
    key: str
    before: str = ""
    """Layer and status, as in `project, active`; null: it would be new."""
    after: str = ""
    """Null: it would be no learning any more."""
    evidence: tuple[str, ...]
    """Event refs."""


class MemoryRulesShape(Shape, frozen=True, kw_only=True):
    """`mz memory rules --json`."""

    rules: MemoryRules
    moved: tuple[MovedLearning, ...]
    """With `--try`."""


def share_text(learning: Learning) -> str:
    return "-" if learning.confidence is None else f"{learning.confidence:.2f} ({learning.helped} of {learning.uses})"


def status_text(learning: Learning) -> str:
    return learning.status + ", verified" * learning.verified


@command_family(
    "memory",
    examples=(("mz memory list", "what the log teaches"), ("mz memory why L-3f9ac01b2e", "where that comes from")),
    next_command="`mz memory effect` shows whether it helps.",
)
def memory() -> None:
    """Show what earlier work taught, and decide about it.

    Learnings are computed from the log by the rules of memory.yaml; prompts show those that concern a call. A learning
    reaches its feature, from the project layer on all features, and in the global layer other projects.
    """


@memory.command(
    "list",
    examples=(("mz memory list --kind failure", "failures, and what fixed them"),),
    next_command="`mz memory show ID` prints what an agent is told.",
)
@click.option("--kind", type=click.Choice(get_args(Kind)), help="Only this kind.")
@click.option("--layer", type=click.Choice(get_args(Layer)), help="Only this layer; global is always read.")
@click.option("--status", type=click.Choice(get_args(Status)), help="Only this status.")
@format_options("Print one object with the schema mz.memory-list/1.")
def list_(kind: str | None, layer: str | None, status: str | None, as_json: bool) -> None:
    """List all learnings with layer, confidence and status.

    Shared ones are listed if `memory.shared` in mz.yaml lets prompts show them, or with `--layer global`.
    """
    with open_memory(with_shared=True if layer == "global" else None) as opened:
        shown = tuple(
            learning
            for learning in opened.learnings
            if kind in (None, learning.kind) and layer in (None, learning.layer) and status in (None, learning.status)
        )
    rows = tuple(
        (item.id, item.kind, item.layer, share_text(item), status_text(item), str(len(item.features)),
         single_line(item.text) or item.key)
        for item in shown
    )  # fmt: skip
    heads = columns("id", "kind", "layer", "confidence", "status", ">features", "~text")
    table = Table(columns=heads, rows=rows, empty="Nothing was learned yet.")
    print_output(as_json, "memory-list", MemoryList(learnings=shown), table)


def explain(prefix: str) -> MemoryWhy:
    """Return the learning with this id or unique prefix, and what is needed to explain it. Raises MzError."""
    with open_memory(with_shared=True) as opened:
        learning = opened.find(prefix)
        decision, load_text = learning.decision, opened.load_text
        shared = (
            SharedLearning(
                project=load_text(item.project),
                person=load_text(item.actor) if item.actor else None,
                reason=load_text(item.note) if item.note else None,
                event_ref=item.event_ref,
            )
            for item in learning.evidence
            if item.project
        )
        return MemoryWhy(
            learning=learning,
            rules=opened.rules,
            decided_by=load_text(decision.actor) if decision else None,
            reason=load_text(decision.reason) if decision else None,
            shared=next(shared, None),
        )


@memory.command(
    "show",
    examples=(("mz memory show L-3f9ac01b2e", "its text"),),
    next_command="`mz memory why ID` shows the evidence.",
)
@click.argument("learning")
@format_options("Print one object with the schema mz.memory-why/1.")
def show(learning: str, as_json: bool) -> None:
    """Print what an agent is told, without the patch. LEARNING is an id or its beginning."""
    shape = explain(learning)
    print_output(as_json, "memory-why", shape, (summary_line(shape.learning), *shape.learning.text.splitlines()))


def summary_line(learning: Learning) -> str:
    details = f"{learning.layer} layer, confidence {share_text(learning)}, {status_text(learning)}"
    return single_line(f"{learning.id} {learning.kind} {learning.key} {details}")


@memory.command(
    "why",
    examples=(("mz memory why L-3f9ac01b2e", "evidence, uses and rules"),),
    next_command="`mz log EVENT_REF` shows an event.",
)
@click.argument("learning")
@format_options("Print one object with the schema mz.memory-why/1.")
def why(learning: str, as_json: bool) -> None:
    """Explain a learning: its evidence, its uses, and the rules. LEARNING is an id or its beginning."""
    shape = explain(learning)
    rules, chosen = shape.rules, shape.learning
    limit = "" if chosen.confidence is None else f", confidence {chosen.confidence:.2f} of {rules.project_confidence}"
    lines = [f"rules {len(chosen.features)} of {rules.features_min(chosen.kind)} features{limit}"]
    if shape.shared:
        source = shape.shared
        who = f"shared from {source.project} by {source.person}: {source.reason}"
        lines.append(f"{who if source.person else 'offered by several projects'} ({source.event_ref})")
        lines += ["not shown here: `memory.shared` is off"] * (not takes_shared(find_root(Path.cwd())))
    for item in (item for item in chosen.evidence if item.project is None):
        end = f", fixed {item.mended}: {', '.join(item.paths)}" if item.mended else ""
        lines.append(f"evidence {item.event_ref}{end}{', all attempts used up' * item.exhausted}")
    for use in chosen.results:
        action = f"left out ({use.left_out})" if use.left_out else "shown"
        lines.append(f"{action} {use.event_ref}: {RESULTS[use.helped]}")
    if chosen.decision is not None:
        action = "promoted" if chosen.decision.is_promoted else "archived"
        lines.append(f"{action} by {shape.decided_by}: {shape.reason} ({chosen.decision.event_ref})")
    texts = (summary_line(chosen), *(f"  {single_line(line)}" for line in lines))
    print_output(as_json, "memory-why", shape, texts)


def _decide(
    opened: ProjectMemory,
    chosen: Learning,
    make: Callable[..., Event],
    reason: str,
    as_json: bool,
    of_user: bool = False,
) -> None:
    """Record a decision in the project's log, or in the user's, and print it. `make` takes actor and reason."""
    folder = user_data_directory(os.environ) if of_user else opened.log.root / MZ_FOLDER
    with SqliteStore(folder / LOG_FILE) as store:
        log = ProjectLog(opened.log.root, store, folder)
        event = make(actor=store_user_name(log), reason=store_text(log, reason))
        (recorded,) = store.append([Append(USER_STREAM if of_user else PROJECT_STREAM, None, (event,))], opened.now_us)
    action, withheld = type_of(event).removeprefix("learning."), injections(chosen.text)
    values = {"action": action, "event_ref": recorded.event_ref, "withheld": withheld}
    why = f"; it stays withheld, since its text looks like an injection: {'; '.join(withheld)}" if withheld else ""
    text = single_line(f"{action} {chosen.id} {chosen.key}{why}")
    print_output(as_json, "memory-decision", shape_of(MemoryDecision, chosen, **values), (text,))


@memory.command(
    "promote",
    examples=(('mz memory promote L-3f9ac01b2e -m "holds for all services"', "give it to all features"),),
    next_command="`mz memory list` shows it.",
)
@click.argument("learning")
@message_option("reason", "Why; the log keeps it.", required=True)
@format_options("Print one object with the schema mz.memory-decision/1.")
def promote(learning: str, reason: str, as_json: bool) -> None:
    """Give a learning to all features, whatever its confidence. LEARNING is an id or its beginning.

    One that looks like an injection stays withheld, and the answer says why.
    """
    with open_memory() as opened:
        chosen = opened.find(learning)
        _decide(opened, chosen, partial(LearningPromoted, id=chosen.id), reason, as_json)


@memory.command(
    "share",
    examples=(('mz memory share L-3f9ac01b2e -m "all our services need it"', "give it to your other projects"),),
    next_command="`memory: {shared: true}` in mz.yaml of another project lets its prompts show it.",
)
@click.argument("learning")
@message_option("reason", "Why; your log keeps it.", required=True)
@format_options("Print one object with the schema mz.memory-decision/1.")
def share(learning: str, reason: str, as_json: bool) -> None:
    """Give a learning to all your projects that take shared ones. LEARNING is an id or its beginning.

    Your log, which belongs to no repository, gets its text as `mz memory show` prints it, without secrets and paths of
    this machine, and the name of this project's folder. Sharing it again replaces the text.
    """
    with open_memory(with_shared=False) as opened:
        chosen = opened.find(learning)
        if chosen.status in ("withheld", "archived") or not chosen.text:
            problem = f"is {chosen.status}" if chosen.text else "has no text"
            reasons = "; ".join(injections(chosen.text)) or "`mz memory why ID` explains it"
            raise MzError("MZ5018", f"{chosen.id} {problem}, so it cannot be shared", hint=reasons)
        item, project = for_others(opened, chosen)
        make = partial(LearningShared, learning=item, project=project)
        _decide(opened, chosen, make, reason, as_json, of_user=True)


@memory.command(
    "archive",
    examples=(('mz memory archive L-3f9ac01b2e -m "the service is gone"', "tell it to nobody any more"),),
    next_command="`mz memory promote ID -m TEXT` takes it back.",
)
@click.argument("learning")
@message_option("reason", "Why; the log keeps it.", required=True)
@format_options("Print one object with the schema mz.memory-decision/1.")
@click.option(
    "--layer",
    type=click.Choice(["project", "global"]),
    default="project",
    help="Where: in this project, or in all that it was shared with.",
)
def archive(learning: str, reason: str, as_json: bool, layer: str) -> None:
    """Withdraw a learning. LEARNING is an id or its beginning.

    With `--layer global`, what was learned in a project stays its own.
    """
    of_user = layer == "global"
    with open_memory(with_shared=True if of_user else None) as opened:
        chosen = opened.find(learning)
        if of_user and chosen.layer != "global":
            raise MzError(
                "MZ5016", f"{chosen.id} is not in the global layer", hint="`mz memory list --layer global` lists it"
            )
        _decide(opened, chosen, partial(LearningArchived, id=chosen.id), reason, as_json, of_user)


def side_text(side: Side) -> str:
    return f"{side.clean} of {side.cells}" if side.cells else "-"


@memory.command(
    "effect",
    examples=(("mz memory effect", "whether work with a learning fails less often than without it"),),
    next_command="`memory: {holdout: 0.2}` in mz.yaml leaves learnings out at random, for a fair comparison.",
)
@format_options("Print one object with the schema mz.memory-effect/1.")
def effect(as_json: bool) -> None:
    """Compare the work that was given each learning with the work that was not.

    Counts the units of work in which the problem did not occur: given the learning, left out (for the budget or by
    `memory.holdout`), and before it existed, which is weak evidence. The difference has an interval of 90 %; with fewer
    than 8 on a side the effect is unknown.
    """
    with open_memory() as opened:
        measured = tuple(effects(opened.rows, opened.learnings))
    rows = tuple(
        (item.id, side_text(item.shown), side_text(item.left_out), side_text(item.before),
         "-" if item.difference is None else f"{item.difference:+.2f} ({item.low:+.2f} to {item.high:+.2f})",
         item.verdict, item.key)
        for item in measured
    )  # fmt: skip
    heads = columns("id", "shown", "left out", "before", "difference", "effect", "~key")
    table = Table(columns=heads, rows=rows, empty="Nothing was learned yet.")
    print_output(as_json, "memory-effect", MemoryEffect(effects=measured), table)


@memory.command(
    "rules",
    examples=(
        ("mz memory rules", "the rules that hold now"),
        ("mz memory rules --try new.yaml", "what others would change, over all history"),
    ),
    next_command="write them to memory.yaml; every new run pins them.",
)
@click.option("--try", "file", metavar="FILE", type=click.Path(path_type=Path), help="Rules to compare with.")
@format_options("Print one object with the schema mz.memory-rules/1.")
def rules(file: Path | None, as_json: bool) -> None:
    """Show the rules of the memory, or what other rules would move."""
    if file is not None and not file.is_file():
        raise MzError("MZ2001", f"{file} is not a file", hint="name a file with rules, such as memory.yaml")
    moved: tuple[MovedLearning, ...] = ()
    if file is None:
        current = read_memory_rules(find_root(Path.cwd()) / MEMORY_FILE)
    else:
        current = read_memory_rules(file, str(file))
        with open_memory() as opened:
            moved = tuple(moved_learnings(opened, current))
    rows = tuple((item.id, item.before or "-", item.after or "-", ", ".join(item.evidence), item.key) for item in moved)
    heads = columns("id", "now", "then", ",evidence", "~key")
    table = Table(columns=heads, rows=rows, empty="These rules move nothing.")
    lines = [f"{name}: {getattr(current, name)}" for name in MemoryRules.__struct_fields__]
    body = MemoryRulesShape(rules=current, moved=moved)
    print_output(as_json, "memory-rules", body, lines if file is None else table)


def moved_learnings(opened: ProjectMemory, other: MemoryRules) -> Iterator[MovedLearning]:
    """Yield the learnings that other rules would treat differently."""
    sides = [
        {learning.id: learning for learning in learnings(opened.rows, rules, opened.now_us)}
        for rules in (opened.rules, other)
    ]
    for name, learning in sorted((sides[0] | sides[1]).items()):
        states = (side.get(name) for side in sides)
        before, after = (f"{state.layer}, {status_text(state)}" if state else "" for state in states)
        if before != after:
            refs = tuple(item.event_ref for item in learning.evidence)
            yield MovedLearning(id=name, key=learning.key, before=before, after=after, evidence=refs)
