"""Rules for artifacts in text or Markdown form."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from mz_engine.artifacts.document import count_words, plain
from mz_engine.artifacts.rule import Bytes, Covers, Files, Paths, Placeholders, Rule, Section, Title, Unique, Words
from mz_engine.artifacts.sections import files_in, files_rule, is_empty, parts_of, section_rule
from mz_engine.artifacts.subject import Breach, Subject, defined, mentioned


def judge(rule: Rule, subject: Subject) -> Iterator[Breach]:
    """Yield the violations of a rule; rules for JSON artifacts never fail."""
    match rule:
        case Bytes():
            return size(rule, subject)
        case Words():
            return words(rule, subject)
        case Placeholders():
            return placeholders(rule, subject.document.prose)
        case Title():
            return title(rule, subject)
        case Section():
            return section(rule, subject)
        case Files():
            return files(rule, subject)
        case Paths():
            return paths(rule, subject)
        case Unique():
            return unique(rule, subject)
        case Covers():
            return covers(rule, subject)
    return iter(())


def size(rule: Bytes, subject: Subject) -> Iterator[Breach]:
    count = len(subject.text.encode("utf-8", "surrogatepass"))
    if not subject.limit(rule.min) <= count <= subject.limit(rule.max):
        yield Breach(found=str(count))


def words(rule: Words, subject: Subject) -> Iterator[Breach]:
    count = count_words(subject.document)
    if count > subject.limit(rule.max):
        yield Breach(found=str(count))


def placeholders(rule: Placeholders, lines: tuple[str, ...]) -> Iterator[Breach]:
    """Yield one violation for each line with a placeholder."""
    patterns = [re.compile(pattern) for pattern in rule.patterns]
    for number, line in enumerate(lines, 1):
        if match := next(filter(None, (pattern.search(line) for pattern in patterns)), None):
            yield Breach(line=number, found=match[0])


def title(rule: Title, subject: Subject) -> Iterator[Breach]:
    first = next(iter(subject.document.headings), None)
    if first is None:
        yield Breach(found="there is no heading")
    elif first.level != 1:
        yield Breach(line=first.line + 1, found=f"the first heading is of level {first.level}")
    elif not first.text.strip():
        yield Breach(line=first.line + 1, found="the first heading is empty")
    elif len(first.text) > subject.limit(rule.max):
        yield Breach(line=first.line + 1, found=f"it has {len(first.text)} characters")


def section(rule: Section, subject: Subject) -> Iterator[Breach]:
    parts = parts_of(subject.rules, rule, subject.document)
    if parts and all(is_empty(part, subject.document) for part in parts):
        yield Breach(line=parts[0].at + 1, found="nothing stands below the heading")
    elif not parts:
        wrong = near_miss(rule, subject)
        yield Breach(line=wrong, found="the heading is not of level 2 or 3" if wrong else "no such heading")


def near_miss(rule: Section, subject: Subject) -> int | None:
    """Return the line of a heading with a matching text and the wrong level."""
    aliases = tuple(plain(alias) for alias in rule.aliases)
    headings = (h for h in subject.document.headings if h.level not in (2, 3) and plain(h.text).startswith(aliases))
    return next((heading.line + 1 for heading in headings), None)


def files(rule: Files, subject: Subject) -> Iterator[Breach]:
    """Check the number of listed files; an absent or empty section is left to its own rule."""
    parts = parts_of(subject.rules, section_rule(subject.rules, rule.section), subject.document)
    at = [part for part in parts if not is_empty(part, subject.document)]
    count = len(files_in(subject.rules, rule, subject.document))
    if at and not subject.limit(rule.min) <= count <= subject.limit(rule.max):
        yield Breach(line=at[0].at + 1, found=str(count) if count else "no")


def paths(rule: Paths, subject: Subject) -> Iterator[Breach]:
    for listed in files_in(subject.rules, files_rule(subject.rules, rule.files), subject.document):
        if listed.path is None:
            yield Breach(line=listed.line + 1, found=listed.text)


def unique(rule: Unique, subject: Subject) -> Iterator[Breach]:
    names = sorted(defined(rule.pattern or r"(?!)()", subject.document))
    for name in sorted({first for first, second in pairwise(names) if first == second}):
        yield Breach(found=name)


def covers(rule: Covers, subject: Subject) -> Iterator[Breach]:
    """Search the whole text, for JSON and Markdown alike."""
    for name in subject.ids_of(rule.artifact, rule.field, rule.pattern):
        if not mentioned(subject.text, name):
            yield Breach(found=name)
