"""Parse a Markdown backlog.

A feature begins with a heading of level 2, `## [STATUS] id: title`, and extends to the next one. Lines such as `-
priority: high`, `- labels: a, b` and `- depends on: x, y` are metadata, as is a suffix `[p:high]` of the title;
everything else is its body. Code fences are body regardless of their content; HTML comments are left out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches

import msgspec
from mz_events.names import BadName, FeatureId, parse_name

from mz_engine.backlog.heading import FORM, Heading, proposal, proposed_id, read_heading, was_meant
from mz_engine.backlog.item import Item, ItemStatus, Priority
from mz_engine.backlog.lines import Kind, Line, classify, without_controls
from mz_engine.backlog.links import check_links
from mz_engine.errors import Diagnostic, MzError, Place
from mz_engine.shape import nearest

STATUSES = {
    "FEAT": ItemStatus.BACKLOG,
    "WIP": ItemStatus.IN_PROGRESS,
    "DONE": ItemStatus.DONE,
    "BLOCKED": ItemStatus.BLOCKED,
}
"""Any other word in the brackets means backlog, unless it is similar to one of these."""
END_OF = {"code fence": "a line of the same marks", "comment": "`-->`"}

PRIORITIES = {each.name.lower(): each for each in Priority}

_META = re.compile(r" {0,3}(?:[-*+][ \t]+)?(labels|priority|depends?[ _-]on)[ \t]*:(.*)\Z", re.IGNORECASE | re.DOTALL)
_NOTHING = ("none", "-")
"""Values of `depends on:` that mean no dependencies."""


class _Draft(msgspec.Struct):
    """A feature while its lines are read."""

    id: str
    title: str
    status: ItemStatus
    line: int
    priority: Priority | None = None
    depends_on: dict[str, Place] = {}
    """Id -> location of the declaration, in the order of the text."""
    labels: list[str] = []
    body: list[str] = []


def parse_backlog(text: str, name: str) -> tuple[Item, ...]:
    """Return the items of a Markdown backlog in the order of the text; `name` is the file's name in messages and
    sources.

    Raises MzError with all errors: MZ4001 empty, MZ4002 malformed heading, MZ4003 illegal id, MZ4004 duplicate id,
    MZ4005 unknown, MZ4007 own and MZ4008 cyclic dependency, MZ4006 unknown priority, MZ4009 a fence or comment that
    swallows features."""
    reader = _Reader(name)
    for line in classify(text):
        reader.read(line)
    found = reader.found
    if not reader.drafts and not found:
        hint = f"a feature begins with a heading such as `{FORM}`"
        found = [Diagnostic(code="MZ4001", message="the backlog has no features", hint=hint, place=Place(name))]
    complete = not any(item.code in ("MZ4002", "MZ4003") for item in found)
    found += check_links({draft.id: draft.depends_on for draft in reader.drafts}, complete)
    if found:
        raise MzError.of(sorted(found, key=lambda item: (item.place.line, item.place.column) if item.place else (0, 0)))
    return tuple(_item(draft, order, name) for order, draft in enumerate(reader.drafts))


def _item(draft: _Draft, order: int, name: str) -> Item:
    return Item(
        id=FeatureId(draft.id),
        title=draft.title,
        body="\n".join(draft.body).strip("\n"),
        status=draft.status,
        priority=Priority.NONE if draft.priority is None else draft.priority,
        depends_on=tuple(FeatureId(each) for each in draft.depends_on),
        labels=tuple(draft.labels),
        order=order,
        source=f"{name}#{draft.id}",
        line=draft.line,
    )


class _Reader:
    """Collects drafts and errors, line by line. A feature with a wrong heading is left out with its lines."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.drafts: list[_Draft] = []
        self.current: _Draft | None = None
        self.found: list[Diagnostic] = []
        self.seen: dict[str, _Draft] = {}

    def read(self, line: Line) -> None:
        match line.kind:
            case Kind.UNCLOSED:
                said = f"the {line.text} that begins here is never closed and hides the features after it"
                self.wrong("MZ4009", said, line.number, 1, f"end it with {END_OF[line.text]}")
            case Kind.TEXT if heading := read_heading(line.text):
                self.current = self.heading(heading, line.number)
                self.drafts += [self.current] if self.current else []
            case Kind.TEXT if was_meant(line.text):
                self.current = None
                said = f"{without_controls(line.text).strip()[:80]!r} is not a feature heading"
                self.wrong("MZ4002", said, line.number, 1, proposal(line.text))
            case Kind.TEXT if self.current and (meta := _META.match(line.text)):
                self.meta(self.current, meta, line.number)
            case Kind.TEXT | Kind.CODE if self.current:
                self.current.body.append(without_controls(line.text).rstrip())

    def heading(self, heading: Heading, line: int) -> _Draft | None:
        status = STATUSES.get(heading.status.upper())
        if status is None and (near := get_close_matches(heading.status.upper(), STATUSES, n=1, cutoff=0.7)):
            said = f"unknown status [{heading.status}]"
            self.wrong("MZ4002", said, line, heading.status_column, f"did you mean [{near[0]}]?")
            return None
        if not heading.title:
            hint = f"write it after the colon: `{FORM}`"
            self.wrong("MZ4002", "the feature has no title", line, heading.title_column, hint)
        if not self.legal(heading, line):
            return None
        draft = _Draft(id=heading.id, title=heading.title, status=status or ItemStatus.BACKLOG, line=line)
        if heading.priority is not None:
            draft.priority = self.priority(heading.priority, line, heading.priority_column)
        return self.seen.setdefault(draft.id.lower(), draft)

    def legal(self, heading: Heading, line: int) -> bool:
        try:
            parse_name(heading.id)
        except BadName as error:
            said = str(error) if heading.id else "the feature has no id"
            slug = proposed_id(heading.id or heading.title)
            hint = f"for example `{slug}`" if slug else f"the form is `{FORM}`"
            self.wrong("MZ4003", said, line, heading.id_column, hint)
            return False
        first = self.seen.get(heading.id.lower())
        if first:
            case = "" if first.id == heading.id else f" as `{first.id}`, and ids must differ in more than case"
            said = f"duplicate id: line {first.line} has `{heading.id}` already{case}"
            self.wrong("MZ4004", said, line, heading.id_column, "change one of the two ids")
        return first is None

    def meta(self, draft: _Draft, found: re.Match[str], line: int) -> None:
        key, value, column = found[1].lower(), found[2], found.start(2) + 1
        if key == "labels":
            draft.labels = list(dict.fromkeys([*draft.labels, *(word for word, _ in _words(value))]))
        elif key == "priority":
            draft.priority = self.priority(value.strip(), line, column + len(value) - len(value.lstrip()))
        else:
            for word, at in _words(value):
                if word.lower() not in _NOTHING:
                    draft.depends_on.setdefault(word, Place(self.name, line, column + at))

    def priority(self, word: str, line: int, column: int) -> Priority | None:
        found = PRIORITIES.get(word.lower())
        if found is None:
            hint = nearest(word, PRIORITIES) or f"known here: {', '.join(PRIORITIES)}"
            self.wrong("MZ4006", f"unknown priority {word[:40]!r}", line, column, hint)
        return found

    def wrong(self, code: str, message: str, line: int, column: int, hint: str) -> None:
        self.found.append(Diagnostic(code=code, message=message, hint=hint, place=Place(self.name, line, column)))


def _words(value: str) -> Iterator[tuple[str, int]]:
    """Yield the values between commas, without blanks and code marks, and the offset of each."""
    at = 0
    for part in value.split(","):
        word = without_controls(part).strip(" \t`")
        if word:
            yield word, at + len(part) - len(part.lstrip(" \t`"))
        at += len(part) + 1
