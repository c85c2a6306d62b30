"""Choose cards for a task by their headers, with the reason: pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

import msgspec

from mz_engine.model.card import CardFile
from mz_engine.model.pipeline import Phase, Pipeline

TOKEN_OF_NAME = re.compile(r"[a-z0-9]+")


class RouteCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """A card that fits a task, and why."""

    name: str
    score: int
    """Number of matching terms."""
    needs: tuple[str, ...]
    terms: tuple[str, ...]
    """Terms of the card's domain and capabilities that the task names, in the order of the task."""
    tokens: int


def terms_of(text: str) -> tuple[str, ...]:
    """Return the different terms of a text, in lower case and without a plural s."""
    return tuple(dict.fromkeys(map(_singular, TOKEN_OF_NAME.findall(text.lower()))))


def _singular(term: str) -> str:
    return term[:-1] if len(term) > 3 and term.endswith("s") and not term.endswith(("ss", "is", "us")) else term


def route(text: str, needs: Collection[str], cards: Iterable[CardFile]) -> tuple[RouteCandidate, ...]:
    """Return the cards that have all of `needs` and, without any, share a term with the text; the best first: more
    terms, then a shorter card, then by name."""
    candidates, task = list[RouteCandidate](), terms_of(text)
    for file in cards:
        if file.card is None or not {*needs} <= {*file.card.capabilities}:
            continue
        own = {*terms_of(" ".join((file.card.domain, *file.card.capabilities)))}
        terms = tuple(term for term in task if term in own)
        if terms or needs:
            candidates.append(
                RouteCandidate(name=file.name, score=len(terms), needs=tuple(needs), terms=terms, tokens=file.tokens)
            )
    return tuple(sorted(candidates, key=lambda candidate: (-candidate.score, candidate.tokens, candidate.name)))


def card_of_phase(phase: Phase, pipeline: Pipeline, cards: Mapping[str, CardFile]) -> str:
    """Return the card of a phase's builder: the one that `role` names, or the best that has all of `needs` and is not
    that of the phase which `not_as` names; empty if it has none."""
    use = phase.agent
    if use is None or not use.needs:
        return use.role or "" if use else ""
    checked = next((other for other in pipeline.phases if other.phase == use.not_as and other is not phase), None)
    other_card = card_of_phase(checked, pipeline, cards) if checked else ""
    others = [file for name, file in cards.items() if name != other_card]
    return next((candidate.name for candidate in route(phase.phase, use.needs, others)), "")
