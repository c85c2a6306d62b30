"""Choose learnings for a call: what concerns it, in the order of importance, within a number of tokens. Pure.

A learning reaches the features that it comes from; from the project layer on, all features; in the global layer, other
projects. A failure that a call has to fix reaches it from anywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Literal

from msgspec.structs import replace
from mz_events.catalog.call import LearningLeftOut
from mz_events.names import Commit
from mz_events.store import BlobMissing
from mz_projections.memory.evidence import rule_signature
from mz_projections.memory.learnings import Learning, LoadText, learning_text, text_evidence

from mz_engine.backlog.injection_screen import screen_text
from mz_engine.ports import MemoryQuery, SelectedLearning, Selection
from mz_engine.prompts.ledger import CHARACTERS_PER_TOKEN

PATCH_LINES_MAX = 40
BINARY_PATCH = "GIT binary patch"
LAYERS = ("feature", "project", "global")
Patch = Callable[[Commit, Commit], str]
"""Returns the difference of two trees; empty if they are gone."""
Redact = Callable[[str], str]
Reason = Literal["budget", "holdout", "suppressed", "withheld"]


def select(
    learnings: Iterable[Learning], query: MemoryQuery, load_text: LoadText, redact: Redact, patch: Patch
) -> Selection:
    """Return the learnings for a call, and those that concern it but are left out. Archived and expired ones are
    neither."""
    chosen, left_out = list[SelectedLearning](), list[LearningLeftOut]()
    current = (learning for learning in learnings if learning.status not in ("archived", "expired"))
    concerning = [(order, learning) for learning in current if (order := _order(learning, query)) is not None]
    characters_left = query.tokens_max * CHARACTERS_PER_TOKEN
    for _, learning in sorted(concerning, key=lambda pair: pair[0]):
        is_repeated = is_about(learning, query.failure)
        text = redact(_text(learning, load_text, is_repeated))
        if not text:
            continue
        reason = _reason(learning, text, query, characters_left)
        if reason is None:
            with_patch = redact(_with_patch(learning, text, patch))
            reason = "withheld" if screened(learning, with_patch).status == "withheld" else None
            text = with_patch if len(with_patch) <= characters_left else text
        if reason is None:
            characters_left -= len(text)
            chosen.append(SelectedLearning(id=learning.id, kind=learning.kind, text=text, is_repeated=is_repeated))
        else:
            left_out.append(LearningLeftOut(id=learning.id, reason=reason))
    return Selection(tuple(chosen), tuple(left_out))


def _reason(learning: Learning, text: str, query: MemoryQuery, characters_left: int) -> Reason | None:
    """Return why a learning with this text is left out, if it is."""
    if screened(learning, text).status == "withheld":
        return "withheld"
    if learning.status == "suppressed":
        return "suppressed"
    if learning.id in query.without or is_held_out(learning.id, query.call, query.holdout):
        return "holdout"
    return "budget" if len(text) > characters_left else None


def is_about(learning: Learning, signature: str) -> bool:
    """Return True if the learning is about the failure, or the violated rule, with this signature."""
    match learning.kind:
        case "failure":
            return bool(signature) and learning.key.partition(" ")[2] == signature
        case "rule":
            return rule_signature(learning.key) == signature
    return False


def _order(learning: Learning, query: MemoryQuery) -> tuple[float | str, ...] | None:
    """Return the place of a learning among those for a call, as a sort key; None if it does not concern the call."""
    is_repeated = is_about(learning, query.failure)
    if not (is_repeated or query.feature in learning.features or learning.layer != "feature"):
        return None
    relations = (
        is_repeated,
        not {*learning.paths}.isdisjoint(query.paths),
        not {*learning.tags}.isdisjoint(query.tags),
        query.phase in learning.phases,
    )
    if not any(relations):
        return None
    nearness, confidence = LAYERS.index(learning.layer), 1.0 if learning.confidence is None else learning.confidence
    return relations.index(True), not learning.verified, nearness, -confidence, learning.id


def _text(learning: Learning, load_text: LoadText, is_repeated: bool) -> str:
    """Return what can be told without a patch; empty if a text is gone."""
    try:
        return learning_text(learning, load_text, is_repeated)
    except BlobMissing:
        return ""


def _with_patch(learning: Learning, text: str, patch: Patch) -> str:
    """Return the text followed by the patch that mended the failure, if there is one."""
    item = text_evidence(learning) if learning.evidence else None
    lines = patch(item.before, item.after).splitlines() if item and item.before and item.after else []
    lines = [line for line in lines if not line.startswith(("diff --git ", "index "))]
    if not lines or BINARY_PATCH in lines:
        return text
    cut = [f"[{len(lines) - PATCH_LINES_MAX} more lines]"] if len(lines) > PATCH_LINES_MAX else []
    return "\n".join([text, "", *lines[:PATCH_LINES_MAX], *cut])


def screened(learning: Learning, text: str) -> Learning:
    """Return the learning, withheld if its text looks like an injection; a person's promotion changes nothing then."""
    return replace(learning, status="withheld") if screen_text(text, "strict").quarantined else learning


def is_held_out(learning: str, call: str, share: float) -> bool:
    """Return True for this share of all pairs of learning and work on a unit, always the same ones: all attempts and
    roles of a unit's iteration are on one side."""
    cell = call.rsplit("/", 2)[0]
    digest = sha256(f"{learning}\0{cell}".encode()).digest()
    return int.from_bytes(digest[:8], "big") < share * 2**64
