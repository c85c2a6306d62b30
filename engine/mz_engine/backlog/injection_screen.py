"""Screen backlog texts for prompt injections and attempts to read secrets.

This is the first of several layers and only matches text: templates fence the text as untrusted, and denied paths and
checks on every change apply regardless. The patterns are in `screen.yaml` beside this module."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.resources import files
from itertools import islice, pairwise
from typing import Literal

import msgspec
from msgspec.structs import replace
from mz_events.catalog.run import ItemAdded
from mz_events.names import Digest, FeatureId

from mz_engine.backlog.item import BacklogItem
from mz_engine.backlog.markdown import split_lines
from mz_engine.decoding.yaml import decode_yaml

ScreenMode = Literal["strict", "relaxed", "off"]

SEARCH_CHARS_MAX = 4000
"""Characters of one line that patterns search at once; longer lines are searched in overlapping pieces."""


class ScreenPatterns(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Content of `screen.yaml`."""

    threshold: int
    weights: dict[Literal["order", "hint", "secret", "trick"], int]
    order: dict[str, str]
    hint: dict[str, str]
    secret: dict[str, str]
    tricks: tuple[tuple[int, int], ...]
    """First and last code point."""
    lookalikes: dict[str, str]


class ScreenMatch(msgspec.Struct, frozen=True):
    """Name of a pattern and the matching line, from 1; 0 for the text as a whole."""

    rule: str
    line: int
    weight: int = 0
    """Its part of the score."""


class ScreenResult(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    """Text for the agent: without tricks; unchanged if it is quarantined."""
    score: int
    quarantined: bool
    """No agent may get the text before a person approves it."""
    reasons: tuple[ScreenMatch, ...]


def screen_text(text: str, mode: ScreenMode) -> ScreenResult:
    """Return the text for the agent. `strict` quarantines it from the threshold on and gives reasons for nothing but
    tricks below it, `relaxed` gives reasons only, `off` does nothing. Nothing but tricks is ever removed."""
    screen, lines = load_screen(), split_lines(text)
    reasons = () if mode == "off" else tuple(screen.find_matches(lines))
    score = sum(reason.weight for reason in reasons)
    quarantined = mode == "strict" and score >= screen.patterns.threshold
    if mode != "off" and not quarantined:
        reasons = tuple(reason for reason in reasons if mode == "relaxed" or reason.line == 0)
        text = "\n".join(screen.tricks.sub("", line) for line in lines)
    return ScreenResult(text=text, score=score, quarantined=quarantined, reasons=reasons)


def injections(text: str) -> tuple[str, ...]:
    """Return what makes a text look like an injection, with its lines; nothing if it does not."""
    result = screen_text(text, "strict")
    return tuple(f"{reason.rule} (line {reason.line})" for reason in result.reasons) if result.quarantined else ()


def screen_item(item: BacklogItem, mode: ScreenMode) -> tuple[BacklogItem, ScreenResult]:
    """Return the item with screened title and body, and the result. Both are scored together: line 1 is the title, the
    body begins in line 2. A title of tricks becomes the id; a quarantined item stays as it is."""
    result = screen_text(f"{item.title}\n{item.body}", mode)
    if mode != "off" and not result.quarantined:
        title, _, body = result.text.partition("\n")
        item = replace(item, title=title.strip() or str(item.id), body=body.strip("\n"))
    return item, result


def quote_matches(item: BacklogItem, result: ScreenResult) -> tuple[tuple[int, str], ...]:
    """Return the suspicious lines of an item: the line in the backlog, and its text with the patterns that match it.
    Control characters are escaped."""
    texts = (item.title, *split_lines(item.body))
    tricks = (number for number, text in enumerate(texts, 1) if load_screen().tricks.search(text))
    rules: dict[int, dict[str, None]] = {}
    for match in result.reasons:
        for number in tricks if match.line == 0 else (match.line,):
            rules.setdefault(number, {})[match.rule] = None
    numbers = (item.line, *item.body_lines)
    return tuple(
        (numbers[number - 1], f"{texts[number - 1]!r} ({', '.join(rules[number])})") for number in sorted(rules)
    )


def stored_texts(item: BacklogItem, clean: BacklogItem, result: ScreenResult) -> tuple[str, ...]:
    """Return title and body of a screened item and, if it has any, its suspicious lines with their locations."""
    lines = "\n".join(f"{item.file}:{line}: {quote}" for line, quote in quote_matches(item, result))
    return (clean.title, clean.body, *([lines] if result.reasons else []))


def added_item(
    item: BacklogItem, result: ScreenResult, kind: str, depends_on: tuple[FeatureId, ...], texts: Iterable[Digest]
) -> ItemAdded:
    """Return the event for a screened item whose `stored_texts` have these digests."""
    title, body, *suspicions = texts
    return ItemAdded(
        feature=item.id,
        source=item.source,
        priority=int(item.priority),
        order=item.order,
        depends_on=depends_on,
        title=title,
        body=body,
        score=result.score,
        quarantined=result.quarantined,
        suspicions=suspicions[0] if suspicions else None,
        kind=kind,
    )


class Screen:
    """The compiled patterns of `screen.yaml`."""

    def __init__(self, patterns: ScreenPatterns) -> None:
        self.patterns, self.weights = patterns, patterns.weights
        orders = ((patterns.order, self.weights["order"]), (patterns.hint, self.weights["hint"]))
        self.orders = [(rule, re.compile(text), weight) for rules, weight in orders for rule, text in rules.items()]
        self.secrets = {rule: re.compile(pattern) for rule, pattern in patterns.secret.items()}
        ranges = "".join(f"{re.escape(chr(first))}-{re.escape(chr(last))}" for first, last in patterns.tricks)
        self.tricks = re.compile(f"[{ranges}]")
        removed = {code: "" for first, last in patterns.tricks for code in range(first, last + 1)}
        self.translation = removed | {ord(char): plain for char, plain in patterns.lookalikes.items()}
        """For `str.translate`: tricks are removed, look-alikes replaced by what they look like."""

    def find_matches(self, lines: list[str]) -> list[ScreenMatch]:
        has_trick = any(self.tricks.search(line) for line in lines)
        matches = [ScreenMatch("unicode-trick", 0, self.weights["trick"])] if has_trick else []
        plain_lines = dict(enumerate(map(self.normalise_line, lines), 1))
        for number, line in plain_lines.items():
            matches += self.find_order(number, line)
            secrets = (rule for rule, pattern in self.secrets.items() if _matches(pattern, line))
            matches += (ScreenMatch(rule, number, self.weights["secret"]) for rule in secrets)
        suspicious = {match.line for match in matches}
        split: list[ScreenMatch] = []
        others = (line for line in plain_lines.items() if line[0] not in suspicious)
        for (first_number, first), (second_number, second) in pairwise(others):  # An order may go over a line's end.
            joined = f"{first[-200:]} {second[:200]}"
            if first and second and (not split or split[-1].line != first_number):
                for match in self.find_order(first_number, joined):
                    split += match, ScreenMatch(match.rule, second_number)
        return matches + split

    def find_order(self, number: int, text: str) -> Iterator[ScreenMatch]:
        return islice((ScreenMatch(rule, number, w) for rule, order, w in self.orders if _matches(order, text)), 1)

    def normalise_line(self, line: str) -> str:
        """Return a line as a reader sees it: no tricks, look-alikes or combining styles, lower case, single blanks."""
        if not line.isascii():
            line = unicodedata.normalize("NFKC", line.translate(self.translation)).translate(self.translation)
        return " ".join(line.lower().split())


@cache
def load_screen() -> Screen:
    name = "screen.yaml"
    return Screen(decode_yaml((files("mz_engine.backlog") / name).read_text("utf-8"), name, ScreenPatterns))


def _matches(pattern: re.Pattern[str], line: str) -> bool:
    step = SEARCH_CHARS_MAX // 2
    return any(pattern.search(line, at, at + SEARCH_CHARS_MAX) for at in range(0, max(len(line) - step, 1), step))
