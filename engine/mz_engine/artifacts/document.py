"""Structure of a Markdown text: headings, sections, list items, table rows, code.

Total: any text has a structure. Lines are counted from 0 here; findings count from 1."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

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
    """Contents of the fenced code blocks."""

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
    return MarkdownDocument(
        lines=tuple(lines),
        prose=tuple(blank_comments("\n".join(blank_code(lines, tokens))).split("\n")),
        headings=tuple(headings(tokens, len(lines))),
        entries=tuple(entries(tokens)),
        blocks=tuple(token.content for token in tokens if token.type == "fence"),
    )


@cache
def markdown_parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    # Only block structure is read; inline parsing would cost most of the time, quadratic for some texts.
    return MarkdownIt("commonmark").enable("table").disable(["inline", "text_join"])


def blank_code(lines: list[str], tokens: list[Token]) -> Iterator[str]:
    code = {line for token in tokens if token.type in ("fence", "code_block") for line in range(*(token.map or (0, 0)))}
    for number, line in enumerate(lines):
        yield "" if number in code else blank_spans(line)


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
            cells = tuple(row_cells(tokens, index))
            if tokens[index + 1].type == "th_open":
                header = cells
            else:
                yield ListEntry(token.map[0], cells, header)


def row_cells(tokens: list[Token], start: int) -> Iterator[str]:
    for token in tokens[start:]:
        if token.type == "tr_close":
            return
        if token.type == "inline":
            yield token.content


@lru_cache(maxsize=1024)
def comparable_heading(heading: str) -> str:
    """Normalise a heading for comparison: casefolded, without numbering, emphasis, leading symbols and spaces around
    slashes. Cached, since each heading is compared with the aliases of all rules."""
    text = re.sub(r"[*_`]", "", heading).strip()
    text = NUMBERING.sub("", text)
    text = re.sub(r"\A[^\w]+", "", text)
    return re.sub(r"\s*/\s*", "/", re.sub(r"\s+", " ", text)).casefold().rstrip(": ")


def total_words(document: MarkdownDocument) -> int:
    """Count words below the first level 2 or 3 heading, including code, without headings."""
    first_line = next((heading.line for heading in document.headings if heading.level in (2, 3)), 0)
    titles = {line for heading in document.headings for line in range(heading.line, heading.body_start)}
    lines = blank_comments("\n".join(document.lines)).split("\n")
    body = (line for number, line in enumerate(lines) if number >= first_line and number not in titles)
    return sum(any(sign.isalnum() for sign in word) for line in body for word in line.split())
