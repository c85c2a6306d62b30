"""Structure of a Markdown text: headings, sections, list items, table rows, code.

Total: any text has a structure. Lines are counted from 0 here; findings count from 1.

Map parts of a Markdown text to section rules, and find the files that a section lists.

A heading belongs to the rule with the longest alias that it begins with, so `Implementation files` never matches
`Implementation`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING, TypeVar

import msgspec
from mz_events.names import InvalidName, Path, parse_path

from mz_engine.model.rules import FileList, RuleBase, RuleSet, SectionRule

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

R = TypeVar("R", bound=RuleBase)

TEXT_CHARS_MAX = 262_144
"""Characters parsed; the rule sets' limits are far lower."""

FRONT_MATTER = re.compile(r"\A---[ \t]*\n(?:.*\n)*?(?:---|\.\.\.)[ \t]*(?:\n|\Z)")
LINE_CHARS_MAX = 10_000
"""Longer lines are not searched for code spans: that search can take quadratic time."""
CODE_SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)")
NUMBERING = re.compile(r"\A(?:(?:\d+(?:\.\d+)*[.):]?|[IVX]+\.|[A-Z][.)])\s+)")


class Heading(msgspec.Struct, frozen=True):
    level: int
    text: str
    line: int
    body_start: int
    """First line after the heading."""
    body_end: int
    """First line of the next heading of the same or a higher level, or the end of the text."""


class ListEntry(msgspec.Struct, frozen=True):
    """A list item (one cell) or a table row."""

    line: int
    cells: tuple[str, ...]
    header: tuple[str, ...] = ()
    """Header of the table; empty for list items."""


class MarkdownDocument(msgspec.Struct, frozen=True):
    """`prose` are the lines with code, comments and front matter blanked, so that line numbers stay valid."""

    lines: tuple[str, ...]
    prose: tuple[str, ...]
    headings: tuple[Heading, ...]
    entries: tuple[ListEntry, ...]
    blocks: tuple[str, ...]
    """Contents of the fenced code blocks, each after as many empty lines as there are lines before it."""

    @property
    def title_lines(self) -> set[int]:
        return {line for heading in self.headings for line in range(heading.line, heading.body_start)}

    def entries_between(self, first: int, end: int) -> Iterator[ListEntry]:
        return (entry for entry in self.entries if first <= entry.line < end)


def normalise_newlines(text: str) -> str:
    """Return the text with `\\n` between lines, without a byte order mark, cut at TEXT_MAX characters."""
    return text[:TEXT_CHARS_MAX].removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def read_markdown(text: str) -> MarkdownDocument:
    """Parse any text."""
    return _parse_structure(normalise_newlines(text))


@lru_cache(maxsize=16)
def _parse_structure(text: str) -> MarkdownDocument:
    """Parse a text. Cached, since an artifact is extracted, checked and shown to later phases within moments."""
    text = FRONT_MATTER.sub(lambda match: "\n" * match[0].count("\n"), text)
    tokens = markdown_parser().parse(text)
    lines = text.split("\n")
    code = {line for token in tokens if token.type in ("fence", "code_block") for line in range(*(token.map or (0, 0)))}
    without_code = ("" if number in code else blank_spans(line) for number, line in enumerate(lines))
    return MarkdownDocument(
        lines=tuple(lines),
        prose=tuple(blank_comments("\n".join(without_code)).split("\n")),
        headings=tuple(headings(tokens, len(lines))),
        entries=tuple(entries(tokens)),
        blocks=tuple("\n" * (1 + (token.map or [0])[0]) + token.content for token in tokens if token.type == "fence"),
    )


@cache
def markdown_parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    # Only block structure is read; inline parsing would cost most of the time, quadratic for some texts.
    return MarkdownIt("commonmark").enable("table").disable(["inline", "text_join"])


def blank_spans(line: str) -> str:
    """Return a line with its code spans blanked."""
    return line if len(line) > LINE_CHARS_MAX else CODE_SPAN.sub(lambda match: " " * len(match[0]), line)


def blank_comments(text: str) -> str:
    """Replace HTML comments by empty lines; an unclosed one reaches to the end, as in Markdown."""
    parts, at = [], 0
    while (start := text.find("<!--", at)) >= 0:
        end = text.find("-->", start)
        end = len(text) if end < 0 else end + 3
        parts += [text[at:start], "\n" * text.count("\n", start, end)]
        at = end
    return "".join((*parts, text[at:]))


def headings(tokens: list[Token], end: int) -> Iterator[Heading]:
    openings = [
        (int(token.tag[1]), inline.content, token.map)
        for token, inline in pairwise(tokens)
        if token.type == "heading_open" and token.map and token.level == 0
    ]
    for index, (level, text, (first, body_start)) in enumerate(openings):
        later = (lines[0] for other_level, _, lines in openings[index + 1 :] if other_level <= level)
        yield Heading(level, text, first, body_start, next(later, end))


def entries(tokens: list[Token]) -> Iterator[ListEntry]:
    header: tuple[str, ...] = ()
    for index, token in enumerate(tokens):
        if token.type == "list_item_open" and token.map:
            inline = tokens[index + 2] if index + 2 < len(tokens) else token
            yield ListEntry(token.map[0], (inline.content if inline.type == "inline" else "",))
        elif token.type == "tr_open" and token.map:
            row = takewhile(lambda token: token.type != "tr_close", tokens[index:])
            cells = tuple(cell.content for cell in row if cell.type == "inline")
            if tokens[index + 1].type == "th_open":
                header = cells
            else:
                yield ListEntry(token.map[0], cells, header)


@lru_cache(maxsize=1024)
def comparable_heading(heading: str) -> str:
    """Normalise a heading: casefolded, without numbering, emphasis, leading symbols and spaces around slashes."""
    text = re.sub(r"[*_`]", "", heading).strip()
    text = NUMBERING.sub("", text)
    text = re.sub(r"\A[^\w]+", "", text)
    return re.sub(r"\s*/\s*", "/", re.sub(r"\s+", " ", text)).casefold().rstrip(": ")


def total_words(document: MarkdownDocument) -> int:
    """Count words below the first level 2 or 3 heading, including code, without headings."""
    first_line = next((heading.line for heading in document.headings if heading.level in (2, 3)), 0)
    titles = document.title_lines
    lines = blank_comments("\n".join(document.lines)).split("\n")
    body = (line for number, line in enumerate(lines) if number >= first_line and number not in titles)
    return sum(any(sign.isalnum() for sign in word) for line in body for word in line.split())


LINK = re.compile(r"\[([^\]]+)\]\([^)]*\)")
SPAN_SEPARATOR = re.compile(r"\s*(?:,|and|&|\+)?\s*\Z")
PATH_TOKEN = re.compile(r"[^\s()=<>\"'`|;:]+\Z")
FILE_NAME = re.compile(
    r"(?i)[/\\]|\.[A-Z0-9_]{1,12}\Z|\A\.|\A(?:[A-Z]+file|LICENSE|NOTICE|README|CHANGELOG|CODEOWNERS)\Z"
)
"""A separator, an extension, a leading dot, or the name of a well-known file."""
PATH_COLUMNS = ("file", "path")


class SectionPart(msgspec.Struct, frozen=True):
    """Lines `first` to before `end`, below a heading or a key line in line `line`."""

    line: int
    first: int
    end: int


class ListedFile(msgspec.Struct, frozen=True):
    """A file named by a section; `path` is None if it is no file inside the repository."""

    line: int
    text: str
    path: Path | None


def section_parts(rules: RuleSet, rule: SectionRule, document: MarkdownDocument) -> tuple[SectionPart, ...]:
    """Return the parts of the text that belong to the rule, in order."""
    sections = [candidate for candidate in rules.rules if isinstance(candidate, SectionRule)]
    parts = [
        SectionPart(heading.line, heading.body_start, heading.body_end)
        for heading in document.headings
        if heading.level in (2, 3) and find_owning_section(sections, heading) is rule
    ]
    for number, line in enumerate(document.lines):
        if any(line.casefold().startswith(f"{key.casefold()}:") for key in rule.keys):
            end = next((h.line for h in document.headings if h.line > number), len(document.lines))
            parts.append(SectionPart(number, number + 1, end))
    return tuple(sorted(parts, key=lambda part: part.line))


def find_owning_section(sections: list[SectionRule], heading: Heading) -> SectionRule | None:
    text = comparable_heading(heading.text)
    matches = [
        (len(alias), section)
        for section in sections
        for alias in section.aliases
        if text.startswith(comparable_heading(alias))
    ]
    return max(matches, key=lambda match: match[0])[1] if matches else None


def defined_ids(pattern: str, document: MarkdownDocument) -> Iterator[str]:
    """Yield the first group of every match in a line of prose."""
    compiled = re.compile(pattern)
    return (match[1] for line in document.prose for match in compiled.finditer(line))


def is_empty(part: SectionPart, document: MarkdownDocument) -> bool:
    """Return True if the part has only blank lines, comments and further headings."""
    titles = document.title_lines
    return not any(document.lines[line].strip() for line in range(part.first, part.end) if line not in titles)


def listed_files(rules: RuleSet, rule: FileList, document: MarkdownDocument) -> tuple[ListedFile, ...]:
    """Return the files that the rule's section lists, each once, in the order of the text."""
    section = find_rule(rules, rule.section, SectionRule)
    files_by_name: dict[str, ListedFile] = {}
    for part in section_parts(rules, section, document):
        inner = (heading for heading in document.headings if part.first <= heading.line < part.end)
        ignored = [heading for heading in inner if comparable_heading(heading.text).startswith(rule.ignored)]
        for entry in document.entries_between(part.first, part.end):
            if is_ignored(rule, entry) or any(h.line <= entry.line < h.body_end for h in ignored):
                continue
            for text in entry_paths(entry):
                files_by_name.setdefault(text, ListedFile(entry.line, text, repository_path(text)))
    return tuple(files_by_name.values())


def find_rule(rules: RuleSet, name: str, kind: type[R]) -> R:
    """Return a rule of this kind. Raises KeyError for an unknown id."""
    for rule in rules.rules:
        if isinstance(rule, kind) and rule.id == name:
            return rule
    raise KeyError(name)


def is_ignored(rule: FileList, entry: ListEntry) -> bool:
    if entry.header:
        return any(comparable_heading(cell).startswith(rule.ignored) for cell in entry.cells)
    text = CODE_SPAN.sub("", entry.cells[0]).casefold()
    return any(re.search(rf"[(\[:–—-]\s*{re.escape(word)}\b", text) for word in rule.ignored)


def entry_paths(entry: ListEntry) -> tuple[str, ...]:
    """Return the leading file names of a list item or table row as written, code spans before plain words."""
    cells = entry.cells
    for column, title in enumerate(entry.header):
        if comparable_heading(title).startswith(PATH_COLUMNS) and column < len(cells):
            cells = (cells[column],)
            break
    for cell in cells:
        if paths := cell_paths(LINK.sub(r"\1", cell)):
            return paths
    return ()


def cell_paths(cell: str) -> tuple[str, ...]:
    paths: list[str] = []
    last = 0
    for span in CODE_SPAN.finditer(cell):
        if paths and not SPAN_SEPARATOR.match(cell[last : span.start()]):
            break
        if looks_like_path(path := span[2].strip()):
            paths.append(path)
            last = span.end()
    if paths or "`" in cell:
        return tuple(paths)
    tokens = re.sub(r"[*_]{2}", "", cell).split()
    first_word = tokens[0].rstrip(":,;.") if tokens else ""
    return (first_word,) if looks_like_path(first_word) else ()


def looks_like_path(text: str) -> bool:
    return bool(PATH_TOKEN.match(text) and not text.startswith("-") and FILE_NAME.search(text))


def repository_path(text: str) -> Path | None:
    """Return the path of one file inside the repository; None for directories, patterns and paths outside the tree."""
    if text.endswith("/") or "*" in text or "\\" in text or "://" in text or "{" in text:
        return None
    try:
        return parse_path(text)
    except InvalidName:
        return None
