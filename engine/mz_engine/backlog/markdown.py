"""Parse a Markdown backlog.

A feature begins with a heading of level 2, `## [STATUS] id: title`, and extends to the next one. Lines such as `-
priority: high`, `- labels: a, b` and `- depends on: x, y` are metadata, as is a suffix `[p:high]` of the title;
everything else is its body. Code fences are body regardless of their content; HTML comments are left out.

The heading that begins a feature, `## [FEAT] an-id: A title [p:high]`, and malformed variants of it.

Lines of a Markdown text, classified as far as a backlog needs: text, code, comment.

Check the dependencies that a backlog declares.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from enum import Enum
from typing import NamedTuple

import msgspec
from mz_events.names import FeatureId, InvalidName, parse_name

from mz_engine.backlog.item import BacklogItem, ItemStatus, Priority
from mz_engine.decoding.structs import similar_name_hint
from mz_engine.errors.diagnostics import Diagnostic, MzError, SourceLocation
from mz_engine.graph import find_cycles

_FENCE = re.compile(r"[ \t]*(`{3,}(?=[^`]*\Z)|~{3,})")
_FEATURE = re.compile(r" {0,3}##[ \t]+\[")
_ESCAPES = re.compile(
    "\x1b\\[[0-?]*[ -/]*[@-~]"  # control sequences
    "|\x1b\\][^\x07\x1b]*(?:\x07|\x1b\\\\)?"  # operating system commands, such as window titles and links
    "|\x1b[@-Z\\\\-_]?"
    "|[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]"
)


class LineKind(Enum):
    TEXT = "text"
    CODE = "code"
    """A fence or a line between two."""
    COMMENT = "comment"
    UNCLOSED = "unclosed"
    """Not a line: `text` names a block that begins at `number`, never ends, and contains features."""


class Line(NamedTuple):
    number: int
    """From 1."""
    kind: LineKind
    text: str
    """Unchanged, without the line end."""


def classify_lines(text: str) -> Iterator[Line]:
    """Yield all lines with their kinds; after the last one, at most one of kind UNCLOSED."""
    fence, block_start, in_comment, hides_features = "", 0, False, False
    for number, line in enumerate(split_lines(text), 1):
        hides_features = hides_features or bool((fence or in_comment) and _FEATURE.match(line))
        fence_match = _FENCE.match(line)
        if in_comment:
            in_comment, hides_features = "-->" not in line, hides_features and "-->" not in line
            yield Line(number, LineKind.COMMENT, line)
        elif fence:
            closes = fence_match and fence_match[1].startswith(fence) and not line[fence_match.end() :].strip()
            fence, hides_features = ("", False) if closes else (fence, hides_features)
            yield Line(number, LineKind.CODE, line)
        elif fence_match:
            fence, block_start = fence_match[1], number
            yield Line(number, LineKind.CODE, line)
        elif line.lstrip(" \t").startswith("<!--"):
            in_comment, block_start = "-->" not in line, number
            yield Line(number, LineKind.COMMENT, line)
        else:
            yield Line(number, LineKind.TEXT, line)
    if hides_features:
        yield Line(block_start, LineKind.UNCLOSED, "code fence" if fence else "comment")


def split_lines(text: str) -> list[str]:
    """Split lines as editors do: only CR LF, LF and CR end one."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def strip_controls(text: str) -> str:
    """Remove terminal escapes and control characters, line ends included; tabs stay."""
    return _ESCAPES.sub("", text).replace("\n", "") if not text.isprintable() else text


HEADING_FORM = "## [FEAT] an-id: A title"

_HEADING = re.compile(r" {0,3}##[ \t]+\[([A-Za-z][A-Za-z _-]{0,30})\]([^:]*):(.*)\Z", re.DOTALL)
_SIMILAR = re.compile(
    r" {0,3}(?:#{1,6}[ \t]*\[(?:feat|wip|done|blocked)\b"
    r"|##[ \t]*\[[a-z][a-z _-]{0,30}\](?![(\[:])"
    r"|#{2,6}[ \t]*(?:feat|wip|(?-i:DONE|BLOCKED))\b"
    r"|\[feat\][ \t]*[\w-]+[ \t]*:)",
    re.IGNORECASE,
)
_SIMILAR_PARTS = re.compile(r"[#\s]*\[?(feat|wip|done|blocked)\b\]?:?(.*)\Z", re.IGNORECASE | re.DOTALL)


class FeatureHeading(NamedTuple):
    """The trimmed parts; columns count from 1."""

    status: str
    status_column: int
    id: str
    id_column: int
    title: str
    title_column: int
    priority: str | None
    """From the suffix `[p:...]`."""
    priority_column: int


def read_heading(line: str) -> FeatureHeading | None:
    """Return the parts of a line that begins a feature, valid or not; None for any other line."""
    match = _HEADING.match(line)
    if match is None:
        return None
    title = _strip_closing_marks(strip_controls(match[3]).strip())
    at = title.lower().rfind("[p:")
    priority = title[at + 3 : -1].strip() if at >= 0 and title.find("]", at) == len(title) - 1 else None
    return FeatureHeading(
        status=match[1].strip(),
        status_column=match.start(1) + 1,
        id=match[2].strip(),
        id_column=match.end(2) - len(match[2].lstrip()) + 1,
        title=title if priority is None else title[:at].rstrip(),
        title_column=match.end(3) - len(match[3].lstrip()) + 1,
        priority=priority,
        priority_column=line.lower().rfind("[p:") + 1,
    )


def looks_like_heading(line: str) -> bool:
    """Return True for a line that looks like a malformed heading of a feature."""
    return _SIMILAR.match(line) is not None


def heading_hint(line: str) -> str:
    """Return a hint for a malformed heading: a corrected heading, or the form."""
    match = _SIMILAR_PARTS.match(strip_controls(line[:300]))
    if match:
        name, colon, title_text = re.sub("[:：]", ":", match[2]).partition(":")
        title = _strip_closing_marks((title_text if colon else name).strip())
        slug = proposed_id(name)
        if slug and title:
            return f"did you mean `## [{match[1].upper()}] {slug}: {title[:80]}`?"
    return f"a feature begins with a heading such as `{HEADING_FORM}`"


def proposed_id(text: str) -> str:
    """Make an id from a text; empty if that is impossible."""
    plain = unicodedata.normalize("NFKD", text[:200]).encode("ascii", "ignore").decode()
    return re.sub(r"[^A-Za-z0-9_]+", "-", plain).strip("-_")[:64].rstrip("-").lower()


def _strip_closing_marks(title: str) -> str:
    """Remove the closing `#` marks that Markdown allows after a heading."""
    bare = title.rstrip("#")
    return bare.rstrip() if not bare or bare[-1] in " \t" else title


SHOWN_FEATURES_MAX = 20
PROPOSALS_MAX = 10
"""Finding similar names is slow, so only the first unknown dependencies get proposals."""


def check_dependencies(
    links: Mapping[str, Mapping[str, SourceLocation]], complete: bool = True
) -> Iterator[Diagnostic]:
    """Yield errors: `links` maps id -> dependency -> location of the declaration. MZ4005 unknown (not for an incomplete
    backlog), MZ4007 its own, MZ4008 a cycle (the first twenty; cycles that share no feature)."""
    proposals = 0
    for feature, dependencies in links.items():
        for dependency, location in dependencies.items():
            if dependency == feature:
                hint = "remove it from its `depends on`"
                yield Diagnostic(code="MZ4007", message=f"`{feature}` depends on itself", hint=hint, location=location)
            elif dependency not in links and complete:
                proposals += 1
                message = f"`{feature}` depends on `{dependency[:80]}`, which is not in this backlog"
                hint = (
                    _features_hint(dependency, links) if proposals <= PROPOSALS_MAX else "remove it, or add the feature"
                )
                yield Diagnostic(code="MZ4005", message=message, hint=hint, location=location)
    for cycle in find_cycles(links):
        message = f"dependency cycle: {' -> '.join([*cycle, cycle[0]])}"
        hint = "remove one of these dependencies"
        yield Diagnostic(code="MZ4008", message=message, hint=hint, location=links[cycle[0]][cycle[1]])


def _features_hint(word: str, links: Mapping[str, object]) -> str:
    shown = list(links)[:SHOWN_FEATURES_MAX]
    more = f" and {len(links) - len(shown)} more" if len(links) > len(shown) else ""
    return "\n".join(part for part in (similar_name_hint(word, links), f"known here: {', '.join(shown)}{more}") if part)


STATUSES = {
    "FEAT": ItemStatus.BACKLOG,
    "WIP": ItemStatus.IN_PROGRESS,
    "DONE": ItemStatus.DONE,
    "BLOCKED": ItemStatus.BLOCKED,
}
"""Any other word in the brackets means backlog, unless it is similar to one of these."""
CLOSING_MARKS = {"code fence": "a line of the same marks", "comment": "`-->`"}

PRIORITY_NAMES = {priority.name.lower(): priority for priority in Priority}

_META_LINE = re.compile(
    r" {0,3}(?:[-*+][ \t]+)?(labels|priority|depends?[ _-]on)[ \t]*:(.*)\Z", re.IGNORECASE | re.DOTALL
)
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
        diagnostics = [
            Diagnostic(code="MZ4001", message="the backlog has no features", hint=hint, location=SourceLocation(name))
        ]
    complete = not any(item.code in ("MZ4002", "MZ4003") for item in diagnostics)
    diagnostics += check_dependencies({draft.id: draft.depends_on for draft in reader.drafts}, complete)
    if diagnostics:
        raise MzError.from_diagnostics(
            sorted(
                diagnostics, key=lambda item: (item.location.line, item.location.column) if item.location else (0, 0)
            )
        )
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
        self.diagnostics.append(
            Diagnostic(code=code, message=message, hint=hint, location=SourceLocation(self.name, line, column))
        )


def _split_commas(value: str) -> Iterator[tuple[str, int]]:
    """Yield the values between commas, without blanks and code marks, and the offset of each."""
    at = 0
    for part in value.split(","):
        word = strip_controls(part).strip(" \t`")
        if word:
            yield word, at + len(part) - len(part.lstrip(" \t`"))
        at += len(part) + 1
