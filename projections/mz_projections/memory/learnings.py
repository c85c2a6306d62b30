"""Learnings, computed from evidence, uses and people's decisions by rules and a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from mz_events.names import Digest, Path

from mz_projections.memory.evidence import LESSON_KINDS, Cell, Decision, Evidence, FeatureMemory, Kind, Use

Layer = Literal["feature", "project", "global"]
Status = Literal["active", "suppressed", "expired", "archived", "withheld"]
DAY_US = 24 * 3600 * 1_000_000
TEXT_CHARS_MAX = 2000
HEADLINE_LINES = 3
HEADLINE_CHARS_MAX = 240
Count = Annotated[int, Meta(ge=1)]
Share = Annotated[float, Meta(ge=0, le=1)]
LoadText = Callable[[Digest], str]


class MemoryRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Rules of the memory, version 1: the content of `memory.yaml`."""

    version: Literal[1] = 1
    project_features: Count = 3
    """Features with evidence that lift a learning to all features,"""
    project_confidence: Share = 0.8
    """unless its confidence is known and lower."""
    answer_features: Count = 2
    """Features in which people gave the same answer to the same question, for an answer instead, if that is less."""
    global_projects: Count = 2
    """Projects that offer a learning before it reaches others."""
    suppress_below: Share = 0.5
    """Confidence below which a learning is no longer given,"""
    suppress_uses: Count = 3
    """from so many uses on, the fix included."""
    expire_days: Count = 90
    """Days without evidence after which it is no longer given."""
    rule_replies: Count = 2
    """Replies of a feature that break a rule before that is evidence."""
    pattern_features: Count = 3
    """Delivered features, none failed, that verify a pattern, if tests ran in one of them."""
    anti_pattern_failures: Count = 2
    """Features with failed gates that verify an anti-pattern."""

    def features_min(self, kind: Kind) -> int:
        """Return how many features lift a learning to the project layer."""
        return min(self.answer_features, self.project_features) if kind == "answer" else self.project_features


DEFAULT_RULES = MemoryRules()
"""One object: a Struct leaves a default out only if it is this very one."""


class UseResult(msgspec.Struct, frozen=True):
    """What became of a call that was given a learning, or from whose prompt it was left out."""

    key: str
    event_ref: str
    left_out: str = ""
    """Why; null: it was given."""
    helped: bool | None = None


class Learning(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that the log teaches."""

    id: str
    kind: Kind
    key: str
    text: str = ""
    """What an agent is told, without a patch."""
    tags: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()
    paths: tuple[Path, ...] = ()
    layer: Layer = "feature"
    confidence: float | None = None
    """Helped / uses; None before the first. A fix counts as one use that helped."""
    status: Status = "active"
    verified: bool = False
    helped: int = 0
    uses: int = 0
    features: tuple[str, ...] = ()
    """Of this project, with evidence."""
    last_us: int = 0
    """Time of the last evidence."""
    decision: Decision | None = None
    evidence: tuple[Evidence, ...] = ()
    """The oldest first."""
    results: tuple[UseResult, ...] = ()
    """Of the first use in each unit of work."""


def learnings(rows: Iterable[FeatureMemory], rules: MemoryRules, now_us: int) -> tuple[Learning, ...]:
    """Return all learnings in the order of their ids, without texts."""
    rows, by_id = tuple(rows), dict[str, list[tuple[FeatureMemory, Evidence]]]()
    decisions = {decision.id: decision for row in rows for decision in row.decisions}
    for row in rows:
        for learning, evidence in row.evidence.items():
            if counts(evidence, rules):
                by_id.setdefault(learning, []).append((row, evidence))
    uses = dict[str, list[tuple[FeatureMemory, Use]]]()
    for row in rows:
        for use in first_uses(row):
            uses.setdefault(use.id, []).append((row, use))
    return tuple(
        _learning(name, sources, uses.get(name, []), decisions.get(name), rules, now_us)
        for name, sources in sorted(by_id.items())
    )


def counts(evidence: Evidence, rules: MemoryRules) -> bool:
    """Return True if this is evidence: a failure that was mended or not mended by all attempts, a rule that was broken
    again, a question that was answered, a lesson, what a person shared or several projects offer."""
    if evidence.is_copy or evidence.project is not None:
        is_shared = evidence.actor is not None or len(evidence.offered_by) >= rules.global_projects
        return is_shared and not evidence.is_copy
    match evidence.kind:
        case "failure":
            return evidence.exhausted or bool(evidence.paths)
        case "rule":
            return evidence.exhausted or evidence.times >= rules.rule_replies
        case "answer":
            return evidence.note is not None
    return True


def _learning(
    name: str,
    sources: list[tuple[FeatureMemory, Evidence]],
    uses: list[tuple[FeatureMemory, Use]],
    decision: Decision | None,
    rules: MemoryRules,
    now_us: int,
) -> Learning:
    sources = sorted(sources, key=lambda source: source[1].at_us)
    evidence = tuple(item for _, item in sources)
    kind, key, last_us = evidence[-1].kind, evidence[-1].key, evidence[-1].at_us
    results = tuple(UseResult(use.key, use.event_ref, use.left_out, use_helped(row, use, kind)) for row, use in uses)
    counted = [result.helped for result in results if not result.left_out and result.helped is not None]
    counted += [True] * any(item.mended and item.paths for item in evidence)
    helped, used = counted.count(True), len(counted)
    confidence = helped / used if used else None
    own = [(row.feature, item.note) for row, item in sources if item.project is None]
    features = tuple(dict.fromkeys(feature for feature, _ in own))
    is_low = confidence is not None and confidence < rules.project_confidence
    agreeing = {feature for feature, note in own if kind != "answer" or note == own[-1][1]}
    is_project = len(agreeing) >= rules.features_min(kind) and not is_low
    is_project = is_project or (decision is not None and decision.is_promoted)
    is_shared = any(item.project is not None for item in evidence)
    status: Status = "active"
    if decision is not None:
        status = "active" if decision.is_promoted else "archived"
    elif confidence is not None and confidence < rules.suppress_below and used >= rules.suppress_uses:
        status = "suppressed"
    elif now_us - last_us > rules.expire_days * DAY_US and not is_shared:
        status = "expired"
    return Learning(
        id=name,
        kind=kind,
        key=key,
        tags=tuple(dict.fromkeys(tag for item in evidence for tag in item.tags)),
        phases=tuple(dict.fromkeys(phase for item in evidence for phase in item.phases or (item.phase,) if phase)),
        paths=tuple(dict.fromkeys(path for item in evidence for path in item.paths)),
        layer="global" if is_shared else "project" if is_project else "feature",
        confidence=confidence,
        status=status,
        verified=_is_verified(kind, [row for row, _ in sources], rules),
        helped=helped,
        uses=used,
        features=features,
        last_us=last_us,
        decision=decision,
        evidence=evidence,
        results=results,
    )


def _is_verified(kind: Kind, rows: list[FeatureMemory], rules: MemoryRules) -> bool:
    """Return True for a pattern that only delivered features state, one of them with tests that passed, and for an
    anti-pattern of features in which gates failed."""
    if kind == "pattern":
        delivered = {row.feature for row in rows if row.ending == "delivered"}
        is_clean = all(row.ending in ("", "delivered") for row in rows)
        return len(delivered) >= rules.pattern_features and is_clean and any(row.has_green_tests for row in rows)
    failed = {row.feature for row in rows if any(item.kind == "failure" for item in row.evidence.values())}
    return kind == "anti_pattern" and len(failed) >= rules.anti_pattern_failures


# uses -----------------------------------------------------------------------------------------------------------------
def cell_of(row: FeatureMemory, phase: str, unit: str, version: int) -> Cell | None:
    """Return the work on a unit during which an event occurred."""
    cells = (c for c in reversed(row.cells) if (c.phase, c.unit) == (phase, unit) and c.version < version)
    return next(cells, None)


def first_uses(row: FeatureMemory) -> Iterator[Use]:
    """Yield the first use of each learning in each cell: later calls of the cell are given it again."""
    counted = set[tuple[str, str, str, int, bool]]()
    for use in row.uses:
        cell = cell_of(row, use.phase, use.unit, use.version)
        name = use.id, use.phase, use.unit, cell.version if cell else 0, bool(use.left_out)
        if name not in counted:
            counted.add(name)
            yield use


def use_helped(row: FeatureMemory, use: Use, kind: Kind) -> bool | None:
    """Return whether the problem did not occur again in the cell after the use; None: open, or not known.

    A call that had to fix the problem knew it from its report, so that it does not count. A lesson helped if
    the feature was delivered without a later rollback to the phase."""
    if use.is_repeated:
        return None
    cell = cell_of(row, use.phase, use.unit, use.version) or Cell(use.phase, use.unit, 0, 0)
    return stayed_clean(row, cell, use.id, kind, use.version)


def stayed_clean(row: FeatureMemory, cell: Cell, learning: str, kind: Kind, version: int) -> bool | None:
    """Return whether the problem did not occur in a cell after a version; None: open."""
    if kind in LESSON_KINDS:
        if any(rollback.version > version and rollback.phase == cell.phase for rollback in row.rollbacks):
            return False
        return {"delivered": True, "failed": False}.get(row.ending)
    for problem in row.problems:
        is_of_cell = (problem.phase, problem.unit) == (cell.phase, cell.unit)
        is_later = problem.version > version and (not cell.end or problem.version <= cell.end)
        if problem.id == learning and is_of_cell and is_later:
            return False
    return True if cell.end else None


# texts ----------------------------------------------------------------------------------------------------------------
def learning_text(learning: Learning, load_text: LoadText, is_repeated: bool = False) -> str:
    """Return what an agent is told; `is_repeated`: its last reply had this very failure. Empty: nothing that helps.
    `load_text` may raise what it likes for a text that is gone."""
    text = "\n".join(line.rstrip() for line in _text(learning, load_text, is_repeated).strip().splitlines())
    return text if len(text) <= TEXT_CHARS_MAX else f"{text[:TEXT_CHARS_MAX]}..."


def _text(learning: Learning, load_text: LoadText, is_repeated: bool) -> str:
    item = text_evidence(learning)
    if item.project is not None:
        return load_text(item.text) if item.text else ""
    answer = f" A person then answered: {load_text(item.note).strip()}" if item.note else ""
    match learning.kind:
        case "failure":
            remedy = f"it was mended by changing {', '.join(item.paths)}." if item.paths else ""
            if is_repeated:
                failed = f"All attempts at this failed before.{answer}"
                return f"This failure was seen before; {remedy}" if remedy else failed
            before = f"`{learning.key.split()[0]}` failed before: {_headline(item, load_text)}"
            return f"{before}; {remedy}" if remedy else f"{before}; all attempts at it failed.{answer}"
        case "rule":
            if is_repeated:
                return f"All attempts at this failed before.{answer}" if item.exhausted else ""
            return f"Earlier replies broke the rule `{learning.key}`: {_message(item, load_text)}{answer}"
        case "answer":
            question = load_text(item.text).strip() if item.text else learning.key
            return (
                f"A person decided earlier. The question: {question}\nThe answer: {load_text(item.note or Digest(''))}"
            )
    prefix = {"anti_pattern": "Avoid: ", "convention": "Convention: "}.get(learning.kind, "")
    return prefix + (load_text(item.text) if item.text else "")


def text_evidence(learning: Learning) -> Evidence:
    """Return the evidence that a text quotes, of this project if there is any: the newest with a remedy, else with an
    answer, else the newest."""
    return max(
        learning.evidence, key=lambda item: (item.project is None, bool(item.paths), item.note is not None, item.at_us)
    )


def _message(item: Evidence, load_text: LoadText) -> str:
    messages = msgspec.json.decode(load_text(item.report), type=list[str]) if item.report else []
    return messages[item.index].strip() if item.index < len(messages) else ""


def _headline(item: Evidence, load_text: LoadText) -> str:
    """Return the first lines of a command's output, which follow its name in the message."""
    first, *lines = _message(item, load_text).splitlines() or [""]
    shown = [line.strip() for line in lines if line.strip()][:HEADLINE_LINES] or [first]
    return " | ".join(shown)[:HEADLINE_CHARS_MAX]
