"""Map parts of a Markdown text to section rules, and find the files that a section lists.

A heading belongs to the rule with the longest alias that it begins with, so `Implementation files` never matches
`Implementation`."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec
from mz_events.names import InvalidName, Path, parse_path

from mz_engine.artifacts.document import Heading, ListEntry, MarkdownDocument, comparable_heading
from mz_engine.artifacts.rule import FileList, RuleSet, SectionRule

CODE_SPAN_PATH = re.compile(r"(?<!`)(`+)(?!`)\s*(.+?)\s*(?<!`)\1(?!`)")
LINK = re.compile(r"\[([^\]]+)\]\([^)]*\)")
SPAN_SEPARATOR = re.compile(r"\s*(?:,|and|&|\+)?\s*\Z")
PATH_TOKEN = re.compile(r"[^\s()=<>\"'`|;:]+\Z")
EXTENSION = re.compile(r"\.[A-Za-z0-9_]{1,12}\Z")
BARE_FILE_NAME = re.compile(r"(?i)(?:[A-Z]+file|LICENSE|NOTICE|README|CHANGELOG|CODEOWNERS)\Z")
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
    heading_parts = [
        SectionPart(heading.line, heading.body_start, heading.body_end)
        for heading in document.headings
        if heading.level in (2, 3) and find_owning_section(sections, heading) is rule
    ]
    return tuple(sorted((*heading_parts, *keyed_parts(rule, document)), key=lambda part: part.line))


def find_owning_section(sections: list[SectionRule], heading: Heading) -> SectionRule | None:
    text = comparable_heading(heading.text)
    matches = [
        (len(alias), section) for section in sections for alias in section.aliases if text.startswith(comparable_heading(alias))
    ]
    return max(matches, key=lambda match: match[0])[1] if matches else None


def keyed_parts(rule: SectionRule, document: MarkdownDocument) -> Iterator[SectionPart]:
    for number, line in enumerate(document.lines):
        if any(line.casefold().startswith(f"{key.casefold()}:") for key in rule.keys):
            end = next((h.line for h in document.headings if h.line > number), len(document.lines))
            yield SectionPart(number, number + 1, end)


def is_empty(part: SectionPart, document: MarkdownDocument) -> bool:
    """Return True if the part has only blank lines, comments and further headings."""
    titles = {line for heading in document.headings for line in range(heading.line, heading.body_start)}
    return not any(document.lines[line].strip() for line in range(part.first, part.end) if line not in titles)


def listed_files(rules: RuleSet, rule: FileList, document: MarkdownDocument) -> tuple[ListedFile, ...]:
    """Return the files that the rule's section lists, each once, in the order of the text."""
    section = find_section_rule(rules, rule.section)
    files_by_name: dict[str, ListedFile] = {}
    for part in section_parts(rules, section, document):
        ranges_to_skip = tuple(ignored_ranges(rule, part, document))
        for entry in document.entries_between(part.first, part.end):
            if is_ignored(rule, entry) or any(entry.line in lines for lines in ranges_to_skip):
                continue
            for text in entry_paths(entry):
                files_by_name.setdefault(text, ListedFile(entry.line, text, repository_path(text)))
    return tuple(files_by_name.values())


def find_section_rule(rules: RuleSet, name: str) -> SectionRule:
    """Return a section rule. Raises KeyError for an unknown id."""
    for rule in rules.rules:
        if isinstance(rule, SectionRule) and rule.id == name:
            return rule
    raise KeyError(name)


def find_files_rule(rules: RuleSet, name: str) -> FileList:
    """Return a files rule. Raises KeyError for an unknown id."""
    for rule in rules.rules:
        if isinstance(rule, FileList) and rule.id == name:
            return rule
    raise KeyError(name)


def ignored_ranges(rule: FileList, part: SectionPart, document: MarkdownDocument) -> Iterator[range]:
    for heading in document.headings:
        if part.first <= heading.line < part.end and comparable_heading(heading.text).startswith(rule.ignored):
            yield range(heading.line, heading.body_end)


def is_ignored(rule: FileList, entry: ListEntry) -> bool:
    if entry.header:
        return any(comparable_heading(cell).startswith(rule.ignored) for cell in entry.cells)
    text = CODE_SPAN_PATH.sub("", entry.cells[0]).casefold()
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
    for span in CODE_SPAN_PATH.finditer(cell):
        if paths and not SPAN_SEPARATOR.match(cell[last : span.start()]):
            break
        if looks_like_path(span[2]):
            paths.append(span[2])
            last = span.end()
    if paths or "`" in cell:
        return tuple(paths)
    tokens = re.sub(r"[*_]{2}", "", cell).split()
    first_word = tokens[0].rstrip(":,;.") if tokens else ""
    return (first_word,) if looks_like_path(first_word) else ()


def looks_like_path(text: str) -> bool:
    if not PATH_TOKEN.match(text) or text.startswith("-"):
        return False
    return "/" in text or "\\" in text or bool(EXTENSION.search(text)) or text.startswith(".") or bool(BARE_FILE_NAME.match(text))


def repository_path(text: str) -> Path | None:
    """Return the path of one file inside the repository; None for directories, patterns and paths outside the tree."""
    if text.endswith("/") or "*" in text or "\\" in text or "://" in text or "{" in text:
        return None
    try:
        return parse_path(text)
    except InvalidName:
        return None
