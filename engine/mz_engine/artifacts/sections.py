"""Map parts of a Markdown text to section rules, and find the files that a section lists.

A heading belongs to the rule with the longest alias that it begins with, so `Implementation files` never matches
`Implementation`."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec
from mz_events.names import BadName, Path, parse_path

from mz_engine.artifacts.document import Document, Entry, Heading, plain
from mz_engine.artifacts.rule import Files, RuleSet, Section

SPAN = re.compile(r"(?<!`)(`+)(?!`)\s*(.+?)\s*(?<!`)\1(?!`)")
LINK = re.compile(r"\[([^\]]+)\]\([^)]*\)")
BETWEEN = re.compile(r"\s*(?:,|and|&|\+)?\s*\Z")
TOKEN = re.compile(r"[^\s()=<>\"'`|;:]+\Z")
EXTENSION = re.compile(r"\.[A-Za-z0-9_]{1,12}\Z")
BARE = re.compile(r"(?i)(?:[A-Z]+file|LICENSE|NOTICE|README|CHANGELOG|CODEOWNERS)\Z")
COLUMNS = ("file", "path")


class Part(msgspec.Struct, frozen=True):
    """Lines `first` to before `end`, below a heading or a key line in line `line`."""

    at: int
    first: int
    end: int


class Listed(msgspec.Struct, frozen=True):
    """A file named by a section; `path` is None if it is no file inside the repository."""

    line: int
    text: str
    path: Path | None


def parts_of(rules: RuleSet, rule: Section, document: Document) -> tuple[Part, ...]:
    """Return the parts of the text that belong to the rule, in order."""
    sections = [other for other in rules.rules if isinstance(other, Section)]
    headed = [
        Part(heading.line, heading.below, heading.end)
        for heading in document.headings
        if heading.level in (2, 3) and owner(sections, heading) is rule
    ]
    return tuple(sorted((*headed, *keyed(rule, document)), key=lambda part: part.at))


def owner(sections: list[Section], heading: Heading) -> Section | None:
    text = plain(heading.text)
    matches = [
        (len(alias), section) for section in sections for alias in section.aliases if text.startswith(plain(alias))
    ]
    return max(matches, key=lambda match: match[0])[1] if matches else None


def keyed(rule: Section, document: Document) -> Iterator[Part]:
    for number, line in enumerate(document.lines):
        if any(line.casefold().startswith(f"{key.casefold()}:") for key in rule.keys):
            end = next((h.line for h in document.headings if h.line > number), len(document.lines))
            yield Part(number, number + 1, end)


def is_empty(part: Part, document: Document) -> bool:
    """Return True if the part has only blank lines, comments and further headings."""
    titles = {line for heading in document.headings for line in range(heading.line, heading.below)}
    return not any(document.lines[line].strip() for line in range(part.first, part.end) if line not in titles)


def files_in(rules: RuleSet, rule: Files, document: Document) -> tuple[Listed, ...]:
    """Return the files that the rule's section lists, each once, in the order of the text."""
    section = section_rule(rules, rule.section)
    found: dict[str, Listed] = {}
    for part in parts_of(rules, section, document):
        skipped = tuple(ignored_parts(rule, part, document))
        for entry in document.entries_of(part.first, part.end):
            if is_ignored(rule, entry) or any(entry.line in lines for lines in skipped):
                continue
            for text in paths_in(entry):
                found.setdefault(text, Listed(entry.line, text, legal(text)))
    return tuple(found.values())


def section_rule(rules: RuleSet, name: str) -> Section:
    """Return a section rule. Raises KeyError for an unknown id."""
    for rule in rules.rules:
        if isinstance(rule, Section) and rule.id == name:
            return rule
    raise KeyError(name)


def files_rule(rules: RuleSet, name: str) -> Files:
    """Return a files rule. Raises KeyError for an unknown id."""
    for rule in rules.rules:
        if isinstance(rule, Files) and rule.id == name:
            return rule
    raise KeyError(name)


def ignored_parts(rule: Files, part: Part, document: Document) -> Iterator[range]:
    for heading in document.headings:
        if part.first <= heading.line < part.end and plain(heading.text).startswith(rule.ignored):
            yield range(heading.line, heading.end)


def is_ignored(rule: Files, entry: Entry) -> bool:
    if entry.header:
        return any(plain(cell).startswith(rule.ignored) for cell in entry.cells)
    text = SPAN.sub("", entry.cells[0]).casefold()
    return any(re.search(rf"[(\[:–—-]\s*{re.escape(word)}\b", text) for word in rule.ignored)


def paths_in(entry: Entry) -> tuple[str, ...]:
    """Return the leading file names of a list item or table row as written, code spans before plain words."""
    cells = entry.cells
    for column, title in enumerate(entry.header):
        if plain(title).startswith(COLUMNS) and column < len(cells):
            cells = (cells[column],)
            break
    for cell in cells:
        if paths := paths_of(LINK.sub(r"\1", cell)):
            return paths
    return ()


def paths_of(cell: str) -> tuple[str, ...]:
    run: list[str] = []
    last = 0
    for span in SPAN.finditer(cell):
        if run and not BETWEEN.match(cell[last : span.start()]):
            break
        if looks_like_path(span[2]):
            run.append(span[2])
            last = span.end()
    if run or "`" in cell:
        return tuple(run)
    words = re.sub(r"[*_]{2}", "", cell).split()
    first = words[0].rstrip(":,;.") if words else ""
    return (first,) if looks_like_path(first) else ()


def looks_like_path(text: str) -> bool:
    if not TOKEN.match(text) or text.startswith("-"):
        return False
    return "/" in text or "\\" in text or bool(EXTENSION.search(text)) or text.startswith(".") or bool(BARE.match(text))


def legal(text: str) -> Path | None:
    """Return the path of one file inside the repository; None for directories, patterns and paths outside the tree."""
    if text.endswith("/") or "*" in text or "\\" in text or "://" in text or "{" in text:
        return None
    try:
        return parse_path(text)
    except BadName:
        return None
