"""Pure: which file and line of a project a finding is about, so that a report can point at it.

A drift is caused by today's files: the template whose words changed, the rule that stands in a prompt, the setting that
became an argument. Where none of them can be named, the finding is about the file of the cassette that it differs from.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from mz_recordings.cassette import EVENTS, MANIFEST
from mz_recordings.findings import Finding

SETTINGS = "mz.yaml"
TEMPLATES = "pipelines/templates/"
LETTERS_MIN = 3
"""A line of a template says less than that by itself: it could be any line."""
_HOLES = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}|\{[\w.]+\}")
"""What is filled in: jinja's and, in rules, `{min}`."""
_REQUIREMENT = re.compile(r"""\brequirement:\s*(?:"([^"]*)"|'([^']*)'|(.*?)(?:, \w+:.*)?$)""")
"""The words of a rule that stand in a prompt."""
_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? ")
_KEYS = {"STALE": "max_age_days", "SEEDED": "provenance"}


def located(found: Iterable[Finding], texts: Mapping[str, str], cassette: str) -> tuple[Finding, ...]:
    """The findings with their places; one that has a file keeps it. `texts`: the project's own settings, templates,
    rule sets and pipelines, and the cassette's manifest, by path relative to the project. `cassette`: its path, also
    relative; empty where it lies elsewhere, and then its own files are not named."""
    return tuple(_located(one, texts, cassette) for one in found)


def _located(finding: Finding, texts: Mapping[str, str], cassette: str) -> Finding:
    if finding.file:
        return finding
    file, line = next(_places(finding, texts, cassette), ("", None))
    return replace(finding, file=file, line=line)


def _places(finding: Finding, texts: Mapping[str, str], cassette: str) -> Iterator[tuple[str, int | None]]:
    """The best first."""
    if finding.kind == "PROMPT":
        yield from _templates(finding, texts)
    if finding.kind == "CONFIG":
        yield from _settings(finding, texts)
    if finding.kind == "NETWORK":
        name = finding.cause.rpartition(".")[2]
        yield from _matching(texts, (SETTINGS,), re.compile(rf"\s*{re.escape(name)}\s*:"))
    if cassette:
        yield _recorded(finding, texts, cassette)


def _recorded(finding: Finding, texts: Mapping[str, str], cassette: str) -> tuple[str, int | None]:
    """The file of the cassette that today differs from."""
    if finding.feature and (finding.kind == "EVENT" or finding.line is not None):
        return f"{cassette}/{finding.feature}/{EVENTS}", finding.line
    if finding.call and finding.feature and finding.kind not in ("MISSING", "NETWORK"):
        call = f"{cassette}/{finding.feature}/{finding.call}"
        return (f"{call}.prompt.md", _recorded_line(finding)) if finding.kind == "PROMPT" else (f"{call}.json", None)
    manifest = f"{cassette}/{MANIFEST}"
    key = _KEYS.get(finding.kind)
    return next(_matching(texts, (manifest,), re.compile(rf"{key}:")), (manifest, finding.line))


# prompts --------------------------------------------------------------------------------------------------------------
def _templates(finding: Finding, texts: Mapping[str, str]) -> Iterator[tuple[str, int | None]]:
    """The template's own line, else a line of another file that goes into prompts, else the template as a whole."""
    template = TEMPLATES + finding.cause
    files = [template, *(file for file in texts if file != template and file != SETTINGS and not _is_manifest(file))]
    for wanted in _changed(finding.detail):
        fitting = [(letters, file, line) for file in files for letters, line in _lines_of(texts.get(file, ""), wanted)]
        if fitting:
            _, file, line = max(fitting, key=lambda one: one[0])
            yield file, line
    if template in texts:
        yield template, None


def _is_manifest(file: str) -> bool:
    return file.endswith(f"/{MANIFEST}")


def _changed(detail: tuple[str, ...]) -> Iterator[str]:
    """What is new in today's prompt; where lines only went, what is around them."""
    yield from (line[1:] for line in detail if line.startswith("+"))
    yield from (line[1:] for line in detail if line.startswith(" "))


def _lines_of(text: str, wanted: str) -> Iterator[tuple[int, int]]:
    """The lines that the wanted one may be made of, with anything in the place of their holes: how many letters and
    digits each writes out, and its number."""
    for number, line in enumerate(text.splitlines(), 1):
        rule = _REQUIREMENT.search(line)
        said = next(filter(None, rule.groups()), "") if rule else line.strip()
        words = [word.strip() for word in _HOLES.split(said)]
        letters = sum(character.isalnum() for word in words for character in word)
        if letters >= LETTERS_MIN and _stand_in(["", *words, ""] if rule else words, wanted.strip()):
            yield letters, number


def _stand_in(words: list[str], text: str) -> bool:
    """All of them, one after the other, the first one at the beginning and the last one at the end."""
    if len(words) == 1:
        return words[0] == text
    if not (text.startswith(words[0]) and text.endswith(words[-1])):
        return False
    at = len(words[0])
    for word in words[1:]:
        at = text.find(word, at)
        if at < 0:
            return False
        at += len(word)
    return True


def _recorded_line(finding: Finding) -> int | None:
    """Of the recorded prompt, the first line that is another one."""
    number = None
    for line in finding.detail:
        if found := _HUNK.match(line):
            number = max(int(found[1]), 1)
        elif line[:1] in "+-":
            return number
        elif number is not None:
            number += 1
    return None


# settings -------------------------------------------------------------------------------------------------------------
def _settings(finding: Finding, texts: Mapping[str, str]) -> Iterator[tuple[str, int | None]]:
    """The line that holds what is new among the arguments, or the variable's name."""
    files = (SETTINGS, *(file for file in texts if re.fullmatch(r"pipelines/[^/]+\.yaml", file)))
    for line in finding.detail:
        value = line[1:].strip()
        if line.startswith("+") and len(value) >= LETTERS_MIN and not value.startswith("-"):
            word = re.compile(rf"[^#]*(?<![\w.-]){re.escape(value)}(?![\w-])")
            yield from _matching(texts, files, word)


def _matching(texts: Mapping[str, str], files: Iterable[str], wanted: re.Pattern[str]) -> Iterator[tuple[str, int]]:
    for file in files:
        for number, line in enumerate(texts.get(file, "").splitlines(), 1):
            if wanted.match(line):
                yield file, number
