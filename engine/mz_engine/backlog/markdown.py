"""Parse a Markdown backlog.

A feature begins with a heading of level 2, `## [STATUS] id: title`, and extends to the next one. Lines such as `-
priority: high`, `- labels: a, b` and `- depends on: x, y` are metadata, as is a suffix `[p:high]` of the title;
everything else is its body. Code fences are body regardless of their content; HTML comments are left out.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace
from mz_events.names import FeatureId, InvalidName, parse_name

from mz_engine.backlog.item import BacklogItem, ItemStatus, Priority
from mz_engine.decoding.structs import similar_name_hint
from mz_engine.errors.diagnostics import Diagnostic, MzError, SourceLocation
from mz_engine.graph import find_cycles

HEADING_FORM = "## [FEAT] an-id: A title"
STATUSES = {
    "FEAT": ItemStatus.BACKLOG,
    "WIP": ItemStatus.IN_PROGRESS,
    "DONE": ItemStatus.DONE,
    "BLOCKED": ItemStatus.BLOCKED,
}
"""Any other word in the brackets means backlog, unless it is similar to one of these."""
PRIORITY_NAMES = {priority.name.lower(): priority for priority in Priority}
NO_DEPENDENCIES = ("none", "-")
"""Values of `depends on:` that mean no dependencies."""
SHOWN_FEATURES_MAX = 20
PROPOSALS_MAX = 10
"""Finding similar names is slow, so only the first unknown dependencies get proposals."""

FENCE = re.compile(r"[ \t]*(`{3,}(?=[^`]*\Z)|~{3,})")
FEATURE = re.compile(r" {0,3}##[ \t]+\[")
HEADING = re.compile(r" {0,3}##[ \t]+\[([A-Za-z][A-Za-z _-]{0,30})\]([^:]*):(.*)\Z", re.DOTALL)
SIMILAR_HEADING = re.compile(
    r" {0,3}(?:#{1,6}[ \t]*\[(?:feat|wip|done|blocked)\b"
    r"|##[ \t]*\[[a-z][a-z _-]{0,30}\](?![(\[:])"
    r"|#{2,6}[ \t]*(?:feat|wip|(?-i:DONE|BLOCKED))\b"
    r"|\[feat\][ \t]*[\w-]+[ \t]*:)",
    re.IGNORECASE,
)
"""A malformed heading of a feature."""
SIMILAR_PARTS = re.compile(r"[#\s]*\[?(feat|wip|done|blocked)\b\]?:?(.*)\Z", re.IGNORECASE | re.DOTALL)
META_LINE = re.compile(
    r" {0,3}(?:[-*+][ \t]+)?(labels|priority|depends?[ _-]on)[ \t]*:(.*)\Z", re.IGNORECASE | re.DOTALL
)
OTHER_LINE = re.compile(r" {0,3}(?:[-*+][ \t]+)?([A-Za-z][A-Za-z _-]{2,20}?)[ \t]*:(.*)\Z", re.DOTALL)
SIMILAR_KEYS = {
    "priority": "priority",
    "labels": "labels",
    "depends on": "depends on",
    "depends": "depends on",
    "dependencies": "depends on",
    "status": "",
}
"""Known key by the word that a misspelt one is similar to; empty: the status, which is part of the heading."""
KEY_SIMILARITY = 0.8
ESCAPES = re.compile(
    "\x1b\\[[0-?]*[ -/]*[@-~]"  # control sequences
    "|\x1b\\][^\x07\x1b]*(?:\x07|\x1b\\\\)?"  # operating system commands, such as window titles and links
    "|\x1b[@-Z\\\\-_]?"
    "|[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]"
)


def parse_backlog(text: str, name: str) -> tuple[BacklogItem, ...]:
    """Return the items of a Markdown backlog in the order of the text; `name` is the file's name in messages and
    sources.

    Raises MzError with all errors: MZ4001 empty, MZ4002 malformed heading, MZ4003 illegal id, MZ4004 duplicate id,
    MZ4005 unknown, MZ4007 own and MZ4008 cyclic dependency, MZ4006 unknown priority, MZ4009 a fence or comment that
    swallows features, MZ4011 a misspelt key."""
    reader = _BacklogReader(name)
    for line in classify_lines(text):
        reader.read_line(line)
    features, diagnostics = tuple(reader.features.values()), reader.diagnostics
    if not features and not diagnostics:
        hint = f"a feature begins with a heading such as `{HEADING_FORM}`"
        raise MzError("MZ4001", "the backlog has no features", hint=hint, location=SourceLocation(name))
    complete = not any(item.code in ("MZ4002", "MZ4003") for item in diagnostics)
    diagnostics += check_dependencies({feature.item.id: feature.links for feature in features}, complete)
    if diagnostics:
        diagnostics.sort(key=lambda item: item.location.position if item.location else (0, 0))
        raise MzError.from_diagnostics(diagnostics)
    return tuple(feature.complete_item() for feature in features)


def check_dependencies(links: Mapping[str, Mapping[str, SourceLocation]], complete: bool) -> Iterator[Diagnostic]:
    """Yield errors: `links` maps id -> dependency -> location of the declaration. MZ4005 unknown (not for an incomplete
    backlog), MZ4007 its own, MZ4008 a cycle (the first twenty; cycles that share no feature)."""
    shown = list(links)[:SHOWN_FEATURES_MAX]
    more = f" and {len(links) - len(shown)} more" if len(links) > len(shown) else ""
    proposals = 0
    for feature, dependencies in links.items():
        for dependency, location in dependencies.items():
            if dependency == feature:
                hint = "remove it from its `depends on`"
                yield Diagnostic(code="MZ4007", message=f"`{feature}` depends on itself", hint=hint, location=location)
            elif dependency not in links and complete:
                proposals += 1
                similar = similar_name_hint(dependency, links) if proposals <= PROPOSALS_MAX else ""
                hint = f"{similar}\nknown here: {', '.join(shown)}{more}".lstrip()
                message = f"`{feature}` depends on `{dependency[:80]}`, which is not in this backlog"
                yield Diagnostic(code="MZ4005", message=message, hint=hint, location=location)
    for cycle in find_cycles(links):
        message = f"dependency cycle: {' -> '.join([*cycle, cycle[0]])}"
        hint = "remove one of these dependencies"
        yield Diagnostic(code="MZ4008", message=message, hint=hint, location=links[cycle[0]][cycle[1]])


class _Feature(msgspec.Struct):
    item: BacklogItem
    """Without body and dependencies."""
    body: list[tuple[int, str]] = []
    """Line numbers and lines."""
    links: dict[str, SourceLocation] = {}
    """Dependency -> location of its declaration, in the order of the text."""

    def complete_item(self) -> BacklogItem:
        filled = [index for index, (_, text) in enumerate(self.body) if text]
        body = self.body[filled[0] : filled[-1] + 1] if filled else []
        return replace(
            self.item,
            body="\n".join(line for _, line in body),
            body_lines=tuple(number for number, _ in body),
            depends_on=tuple(map(FeatureId, self.links)),
        )


class _BacklogReader:
    """Collects features and errors, line by line. A feature with a wrong heading is left out with its lines."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.features: dict[str, _Feature] = {}
        """By id in lower case."""
        self.diagnostics: list[Diagnostic] = []
        self.current: _Feature | None = None

    def read_line(self, line: Line) -> None:
        if line.kind == "unclosed":
            message = f"the {line.text} that begins here is never closed and hides the features after it"
            end = "`-->`" if line.text == "comment" else "a line of the same marks"
            self.report("MZ4009", message, line.number, 1, f"end it with {end}")
        elif line.kind == "text" and (heading := HEADING.match(line.text)):
            self.current = self.start_feature(heading, line.number)
        elif line.kind == "text" and SIMILAR_HEADING.match(line.text):
            self.current = None
            message = f"{strip_controls(line.text).strip()[:80]!r} is not a feature heading"
            self.report("MZ4002", message, line.number, 1, heading_hint(line.text))
        elif self.current and line.kind == "text" and (meta := META_LINE.match(line.text)):
            self.read_meta_line(self.current, meta, line.number)
        elif self.current and line.kind == "text" and self.report_similar_key(self.current, line):
            pass
        elif self.current and line.kind != "comment":
            self.current.body.append((line.number, strip_controls(line.text).rstrip()))

    def start_feature(self, heading: re.Match[str], line: int) -> _Feature | None:
        word, item_id = heading[1].strip(), heading[2].strip()
        status = STATUSES.get(word.upper())
        if status is None and (similar := get_close_matches(word.upper(), STATUSES, n=1, cutoff=0.7)):
            hint = f"did you mean [{similar[0]}]?"
            self.report("MZ4002", f"unknown status [{word}]", line, heading.start(1) + 1, hint)
            return None
        title = _strip_closing_marks(strip_controls(heading[3]).strip())
        at = title.lower().rfind("[p:")
        priority = title[at + 3 : -1].strip() if at >= 0 and title.find("]", at) == len(title) - 1 else None
        title = title if priority is None else title[:at].rstrip()
        if not title:
            hint = f"write it after the colon: `{HEADING_FORM}`"
            self.report("MZ4002", "the feature has no title", line, _start_column(heading, 3), hint)
        if not self.check_id(item_id, title, line, _start_column(heading, 2)):
            return None
        feature_id, source, order = FeatureId(item_id), f"{self.name}#{item_id}", len(self.features)
        item = BacklogItem(id=feature_id, title=title, body="", order=order, source=source, line=line)
        feature = _Feature(replace(item, status=status or ItemStatus.BACKLOG))
        if priority is not None:
            self.set_priority(feature, priority, line, heading.string.lower().rfind("[p:") + 1)
        self.features[item_id.lower()] = feature
        return feature

    def check_id(self, item_id: str, title: str, line: int, column: int) -> bool:
        try:
            parse_name(item_id)
        except InvalidName as error:
            slug = proposed_id(item_id or title)
            hint = f"for example `{slug}`" if slug else f"the form is `{HEADING_FORM}`"
            self.report("MZ4003", str(error) if item_id else "the feature has no id", line, column, hint)
            return False
        if first := self.features.get(item_id.lower()):
            same = first.item.id == item_id
            case = "" if same else f" as `{first.item.id}`, and ids must differ in more than case"
            message = f"duplicate id: line {first.item.line} has `{item_id}` already{case}"
            self.report("MZ4004", message, line, column, "change one of the two ids")
        return first is None

    def read_meta_line(self, feature: _Feature, match: re.Match[str], line: int) -> None:
        key, value, at = match[1].lower(), match[2], match.start(2)
        if key == "priority":
            self.set_priority(feature, value.strip(), line, _start_column(match, 2))
        elif key != "labels":
            for part in value.split(","):
                column = at + len(part) - len(part.lstrip(" \t`")) + 1
                word = strip_controls(part).strip(" \t`")
                if word and word.lower() not in NO_DEPENDENCIES:
                    feature.links.setdefault(word, SourceLocation(self.name, line, column))
                at += len(part) + 1

    def report_similar_key(self, feature: _Feature, line: Line) -> bool:
        """Report a line above the body whose key is similar to a known one; any other line is text."""
        match = None if any(text for _, text in feature.body) else OTHER_LINE.match(line.text)
        key = re.sub(r"[ _-]+", " ", match[1].lower()) if match else ""
        similar = get_close_matches(key, SIMILAR_KEYS, n=1, cutoff=KEY_SIMILARITY)
        if match is None or not similar:
            return False
        intended_key = SIMILAR_KEYS[similar[0]]
        if not intended_key and len(match[2].split()) != 1:
            return False
        hint = (
            f"did you mean `{intended_key}:`?"
            if intended_key
            else "write it in the heading, such as `## [DONE] an-id: A title`"
        )
        self.report("MZ4011", f"unknown key `{match[1]}`", line.number, match.start(1) + 1, hint)
        return True

    def set_priority(self, feature: _Feature, word: str, line: int, column: int) -> None:
        if word.lower() in PRIORITY_NAMES:
            feature.item = replace(feature.item, priority=PRIORITY_NAMES[word.lower()])
            return
        hint = similar_name_hint(word, PRIORITY_NAMES) or f"known here: {', '.join(PRIORITY_NAMES)}"
        self.report("MZ4006", f"unknown priority {word[:40]!r}", line, column, hint)

    def report(self, code: str, message: str, line: int, column: int, hint: str) -> None:
        location = SourceLocation(self.name, line, column)
        self.diagnostics.append(Diagnostic(code=code, message=message, hint=hint, location=location))


# lines ----------------------------------------------------------------------------------------------------------------
class Line(NamedTuple):
    number: int
    """From 1."""
    kind: Literal["text", "code", "comment", "unclosed"]
    """`unclosed` is no line: `text` names a block that begins at `number`, never ends, and contains features."""
    text: str
    """Unchanged, without the line end."""


def classify_lines(text: str) -> Iterator[Line]:
    """Yield all lines with their kinds; after the last one, at most one of kind `unclosed`."""
    fence, block_start, in_comment, hides_features = "", 0, False, False
    for number, line in enumerate(split_lines(text), 1):
        hides_features = hides_features or bool((fence or in_comment) and FEATURE.match(line))
        fence_match = FENCE.match(line)
        if in_comment:
            in_comment, hides_features = "-->" not in line, hides_features and "-->" not in line
            yield Line(number, "comment", line)
        elif fence:
            closes = fence_match and fence_match[1].startswith(fence) and not line[fence_match.end() :].strip()
            fence, hides_features = ("", False) if closes else (fence, hides_features)
            yield Line(number, "code", line)
        elif fence_match:
            fence, block_start = fence_match[1], number
            yield Line(number, "code", line)
        elif line.lstrip(" \t").startswith("<!--"):
            in_comment, block_start = "-->" not in line, number
            yield Line(number, "comment", line)
        else:
            yield Line(number, "text", line)
    if hides_features:
        yield Line(block_start, "unclosed", "code fence" if fence else "comment")


def split_lines(text: str) -> list[str]:
    """Split lines as editors do: only CR LF, LF and CR end one."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def strip_controls(text: str) -> str:
    """Remove terminal escapes, control characters and halves of characters, line ends included; tabs stay."""
    return ESCAPES.sub("", text).replace("\n", "") if not text.isprintable() else text


def heading_hint(line: str) -> str:
    """Return a hint for a malformed heading: a corrected heading, or the form."""
    match = SIMILAR_PARTS.match(strip_controls(line[:300]))
    if match:
        name, colon, title_text = match[2].replace("：", ":").partition(":")
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


def _start_column(match: re.Match[str], group: int) -> int:
    """Return the column, from 1, where the trimmed text of a group begins; its end if there is none."""
    return match.end(group) - len(match[group].lstrip()) + 1
