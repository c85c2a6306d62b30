"""Rules for artifacts in text or Markdown form."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from mz_engine.artifacts.markdown import (
    comparable_heading,
    find_rule,
    is_empty,
    listed_files,
    section_parts,
    total_words,
)
from mz_engine.artifacts.subject import ArtifactSubject, RuleViolation, defined_ids, is_mentioned
from mz_engine.model.rules import (
    ByteSize,
    CoversIds,
    FileList,
    FilePaths,
    NoPlaceholders,
    Rule,
    SectionRule,
    TitleRule,
    UniqueIds,
    WordCount,
)


def rule_violations(rule: Rule, subject: ArtifactSubject) -> Iterator[RuleViolation]:
    """Yield the violations of a rule; rules for JSON artifacts never fail."""
    match rule:
        case ByteSize():
            return byte_size(rule, subject)
        case WordCount():
            return word_count(rule, subject)
        case NoPlaceholders():
            return placeholders(rule, subject.document.prose)
        case TitleRule():
            return title_form(rule, subject)
        case SectionRule():
            return section_content(rule, subject)
        case FileList():
            return file_count(rule, subject)
        case FilePaths():
            return file_paths(rule, subject)
        case UniqueIds():
            return unique_ids(rule, subject)
        case CoversIds():
            return covered_ids(rule, subject)
    return iter(())


def byte_size(rule: ByteSize, subject: ArtifactSubject) -> Iterator[RuleViolation]:
    count = len(subject.text.encode("utf-8", "surrogatepass"))
    if not subject.limit(rule.min) <= count <= subject.limit(rule.max):
        yield RuleViolation(actual=str(count))


def word_count(rule: WordCount, subject: ArtifactSubject) -> Iterator[RuleViolation]:
    count = total_words(subject.document)
    if count > subject.limit(rule.max):
        yield RuleViolation(actual=str(count))


def placeholders(rule: NoPlaceholders, lines: tuple[str, ...]) -> Iterator[RuleViolation]:
    """Yield one violation for each line with a placeholder."""
    patterns = [re.compile(pattern) for pattern in rule.patterns]
    for number, line in enumerate(lines, 1):
        if match := next(filter(None, (pattern.search(line) for pattern in patterns)), None):
            yield RuleViolation(line=number, actual=match[0])


def title_form(rule: TitleRule, subject: ArtifactSubject) -> Iterator[RuleViolation]:
    first = next(iter(subject.document.headings), None)
    if first is None:
        yield RuleViolation(actual="there is no heading")
    elif first.level != 1:
        yield RuleViolation(line=first.line + 1, actual=f"the first heading is of level {first.level}")
    elif not first.text.strip():
        yield RuleViolation(line=first.line + 1, actual="the first heading is empty")
    elif len(first.text) > subject.limit(rule.max):
        yield RuleViolation(line=first.line + 1, actual=f"it has {len(first.text)} characters")


def section_content(rule: SectionRule, subject: ArtifactSubject) -> Iterator[RuleViolation]:
    parts = section_parts(subject.rules, rule, subject.document)
    if parts and all(is_empty(part, subject.document) for part in parts):
        yield RuleViolation(line=parts[0].line + 1, actual="nothing stands below the heading")
    elif not parts:
        misplaced_line = find_misplaced_heading(rule, subject)
        yield RuleViolation(
            line=misplaced_line, actual="the heading is not of level 2 or 3" if misplaced_line else "no such heading"
        )


def find_misplaced_heading(rule: SectionRule, subject: ArtifactSubject) -> int | None:
    """Return the line of a heading with a matching text and the wrong level."""
    aliases = tuple(comparable_heading(alias) for alias in rule.aliases)
    headings = (
        h for h in subject.document.headings if h.level not in (2, 3) and comparable_heading(h.text).startswith(aliases)
    )
    return next((heading.line + 1 for heading in headings), None)


def file_count(rule: FileList, subject: ArtifactSubject) -> Iterator[RuleViolation]:
    """Check the number of listed files; an absent or empty section is left to its own rule."""
    parts = section_parts(subject.rules, find_rule(subject.rules, rule.section, SectionRule), subject.document)
    filled_parts = [part for part in parts if not is_empty(part, subject.document)]
    count = len(listed_files(subject.rules, rule, subject.document))
    if filled_parts and not subject.limit(rule.min) <= count <= subject.limit(rule.max):
        yield RuleViolation(line=filled_parts[0].line + 1, actual=str(count) if count else "no")


def file_paths(rule: FilePaths, subject: ArtifactSubject) -> Iterator[RuleViolation]:
    for listed in listed_files(subject.rules, find_rule(subject.rules, rule.files, FileList), subject.document):
        if listed.path is None:
            yield RuleViolation(line=listed.line + 1, actual=listed.text)


def unique_ids(rule: UniqueIds, subject: ArtifactSubject) -> Iterator[RuleViolation]:
    names = sorted(defined_ids(rule.pattern or r"(?!)()", subject.document))
    for name in sorted({first for first, second in pairwise(names) if first == second}):
        yield RuleViolation(actual=name)


def covered_ids(rule: CoversIds, subject: ArtifactSubject) -> Iterator[RuleViolation]:
    """Search the whole text, for JSON and Markdown alike."""
    for name in subject.ids_of(rule.artifact, rule.field, rule.pattern):
        if not is_mentioned(subject.text, name):
            yield RuleViolation(actual=name)
