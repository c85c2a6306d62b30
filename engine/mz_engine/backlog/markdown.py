"""Parse a Markdown backlog.

A feature begins with a heading of level 2, `## [STATUS] id: title`, and extends to the next one. Lines such as `-
priority: high`, `- labels: a, b` and `- depends on: x, y` are metadata, as is a suffix `[p:high]` of the title;
everything else is its body. Code fences are body regardless of their content; HTML comments are left out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches

import msgspec
from mz_events.names import FeatureId, InvalidName, parse_name

from mz_engine.backlog.heading import (
    HEADING_FORM,
    FeatureHeading,
    heading_hint,
    looks_like_heading,
    proposed_id,
    read_heading,
)
from mz_engine.backlog.item import BacklogItem, ItemStatus, Priority
from mz_engine.backlog.lines import Line, LineKind, classify_lines, strip_controls
from mz_engine.backlog.links import check_dependencies
from mz_engine.errors import Diagnostic, MzError, SourceLocation
from mz_engine.shape import similar_name_hint

STATUSES = {
    "FEAT": ItemStatus.BACKLOG,
    "WIP": ItemStatus.IN_PROGRESS,
    "DONE": ItemStatus.DONE,
    "BLOCKED": ItemStatus.BLOCKED,
}
"""Any other word in the brackets means backlog, unless it is similar to one of these."""
CLOSING_MARKS = {"code fence": "a line of the same marks", "comment": "`-->`"}

PRIORITY_NAMES = {each.name.lower(): each for each in Priority}

_META_LINE = re.compile(r" {0,3}(?:[-*+][ \t]+)?(labels|priority|depends?[ _-]on)[ \t]*:(.*)\Z", re.IGNORECASE | re.DOTALL)
_NO_DEPENDENCIES = ("none", "-")
"""Values of `depends on:` that mean no dependencies."""


class _Draft(msgspec.Struct):
    """A feature while its lines are read."""

    id: str
    title: str
    status: ItemStatus
    line: int
    priority: Priority | None = None
    depends_on: dict[str, SourceLocation] = {}
    """Id -> location of the declaration, in the order of the text."""
    labels: list[str] = []
    body: list[str] = []


def parse_backlog(text: str, name: str) -> tuple[BacklogItem, ...]:
    """Return the items of a Markdown backlog in the order of the text; `name` is the file's name in messages and
    sources.

    Raises MzError with all errors: MZ4001 empty, MZ4002 malformed heading, MZ4003 illegal id, MZ4004 duplicate id,
    MZ4005 unknown, MZ4007 own and MZ4008 cyclic dependency, MZ4006 unknown priority, MZ4009 a fence or comment that
    swallows features."""
    reader = _BacklogReader(name)
    for line in classify_lines(text):
        reader.read_line(line)
    diagnostics = reader.diagnostics
    if not reader.drafts and not diagnostics:
        hint = f"a feature begins with a heading such as `{HEADING_FORM}`"
        diagnostics = [Diagnostic(code="MZ4001", message="the backlog has no features", hint=hint, location=SourceLocation(name))]
    complete = not any(item.code in ("MZ4002", "MZ4003") for item in diagnostics)
    diagnostics += check_dependencies({draft.id: draft.depends_on for draft in reader.drafts}, complete)
    if diagnostics:
        raise MzError.from_diagnostics(sorted(diagnostics, key=lambda item: (item.location.line, item.location.column) if item.location else (0, 0)))
    return tuple(_to_item(draft, order, name) for order, draft in enumerate(reader.drafts))


def _to_item(draft: _Draft, order: int, name: str) -> BacklogItem:
    return BacklogItem(
        id=FeatureId(draft.id),
        title=draft.title,
        body="\n".join(draft.body).strip("\n"),
        status=draft.status,
        priority=Priority.NONE if draft.priority is None else draft.priority,
        depends_on=tuple(FeatureId(dependency) for dependency in draft.depends_on),
        labels=tuple(draft.labels),
        order=order,
        source=f"{name}#{draft.id}",
        line=draft.line,
    )


class _BacklogReader:
    """Collects drafts and errors, line by line. A feature with a wrong heading is left out with its lines."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.drafts: list[_Draft] = []
        self.current: _Draft | None = None
        self.diagnostics: list[Diagnostic] = []
        self.drafts_by_id: dict[str, _Draft] = {}

    def read_line(self, line: Line) -> None:
        match line.kind:
            case LineKind.UNCLOSED:
                message = f"the {line.text} that begins here is never closed and hides the features after it"
                self.report("MZ4009", message, line.number, 1, f"end it with {CLOSING_MARKS[line.text]}")
            case LineKind.TEXT if heading := read_heading(line.text):
                self.current = self.start_feature(heading, line.number)
                self.drafts += [self.current] if self.current else []
            case LineKind.TEXT if looks_like_heading(line.text):
                self.current = None
                message = f"{strip_controls(line.text).strip()[:80]!r} is not a feature heading"
                self.report("MZ4002", message, line.number, 1, heading_hint(line.text))
            case LineKind.TEXT if self.current and (meta := _META_LINE.match(line.text)):
                self.read_meta_line(self.current, meta, line.number)
            case LineKind.TEXT | LineKind.CODE if self.current:
                self.current.body.append(strip_controls(line.text).rstrip())

    def start_feature(self, heading: FeatureHeading, line: int) -> _Draft | None:
        status = STATUSES.get(heading.status.upper())
        if status is None and (similar := get_close_matches(heading.status.upper(), STATUSES, n=1, cutoff=0.7)):
            message = f"unknown status [{heading.status}]"
            self.report("MZ4002", message, line, heading.status_column, f"did you mean [{similar[0]}]?")
            return None
        if not heading.title:
            hint = f"write it after the colon: `{HEADING_FORM}`"
            self.report("MZ4002", "the feature has no title", line, heading.title_column, hint)
        if not self.check_id(heading, line):
            return None
        draft = _Draft(id=heading.id, title=heading.title, status=status or ItemStatus.BACKLOG, line=line)
        if heading.priority is not None:
            draft.priority = self.parse_priority(heading.priority, line, heading.priority_column)
        return self.drafts_by_id.setdefault(draft.id.lower(), draft)

    def check_id(self, heading: FeatureHeading, line: int) -> bool:
        try:
            parse_name(heading.id)
        except InvalidName as error:
            message = str(error) if heading.id else "the feature has no id"
            slug = proposed_id(heading.id or heading.title)
            hint = f"for example `{slug}`" if slug else f"the form is `{HEADING_FORM}`"
            self.report("MZ4003", message, line, heading.id_column, hint)
            return False
        first = self.drafts_by_id.get(heading.id.lower())
        if first:
            case = "" if first.id == heading.id else f" as `{first.id}`, and ids must differ in more than case"
            message = f"duplicate id: line {first.line} has `{heading.id}` already{case}"
            self.report("MZ4004", message, line, heading.id_column, "change one of the two ids")
        return first is None

    def read_meta_line(self, draft: _Draft, match: re.Match[str], line: int) -> None:
        key, value, column = match[1].lower(), match[2], match.start(2) + 1
        if key == "labels":
            draft.labels = list(dict.fromkeys([*draft.labels, *(word for word, _ in _split_commas(value))]))
        elif key == "priority":
            draft.priority = self.parse_priority(value.strip(), line, column + len(value) - len(value.lstrip()))
        else:
            for word, at in _split_commas(value):
                if word.lower() not in _NO_DEPENDENCIES:
                    draft.depends_on.setdefault(word, SourceLocation(self.name, line, column + at))

    def parse_priority(self, word: str, line: int, column: int) -> Priority | None:
        priority = PRIORITY_NAMES.get(word.lower())
        if priority is None:
            hint = similar_name_hint(word, PRIORITY_NAMES) or f"known here: {', '.join(PRIORITY_NAMES)}"
            self.report("MZ4006", f"unknown priority {word[:40]!r}", line, column, hint)
        return priority

    def report(self, code: str, message: str, line: int, column: int, hint: str) -> None:
        self.diagnostics.append(Diagnostic(code=code, message=message, hint=hint, location=SourceLocation(self.name, line, column)))


def _split_commas(value: str) -> Iterator[tuple[str, int]]:
    """Yield the values between commas, without blanks and code marks, and the offset of each."""
    at = 0
    for part in value.split(","):
        word = strip_controls(part).strip(" \t`")
        if word:
            yield word, at + len(part) - len(part.lstrip(" \t`"))
        at += len(part) + 1
