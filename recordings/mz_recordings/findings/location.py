"""Location of findings: the file and line of a project that a report can point at.

Current files cause drift: the template that changed, the rule that a prompt quotes or a reply breaks, the setting that
became an argument. If none of them can be identified, the finding points at the file of the cassette that differs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from mz_recordings.cassette.model import EVENTS, MANIFEST
from mz_recordings.findings.model import Finding

SETTINGS = "mz.yaml"
TEMPLATES = "pipelines/templates/"
LETTERS_MIN = 3
"""A shorter line of a template could match anywhere."""
_PLACEHOLDERS = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}|\{[\w.]+\}")
"""Placeholders: jinja's and, in rules, `{min}`."""
_REQUIREMENT = re.compile(r"""\brequirement:\s*(?:"([^"]*)"|'([^']*)'|(.*?)(?:, \w+:.*)?$)""")
"""The text of a rule that prompts quote."""
_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? ")
_MANIFEST_KEYS = {"EXPIRED": "max_age_days", "COPIED": "provenance"}


def add_locations(findings: Iterable[Finding], texts: Mapping[str, str], cassette: str) -> tuple[Finding, ...]:
    """Return the findings with their locations; a finding that has a file keeps it.

    `texts`: settings, templates, rule sets and pipelines of the project, and the cassette's manifest, by path relative
    to the project. `cassette`: its relative path; empty if it is outside the project, then its files are not named.
    """
    located = ((finding, next(_locations(finding, texts, cassette), ("", None))) for finding in findings)
    return tuple(finding if finding.file else replace(finding, file=at[0], line=at[1]) for finding, at in located)


def _locations(finding: Finding, texts: Mapping[str, str], cassette: str) -> Iterator[tuple[str, int | None]]:
    """Yield candidates, the best first."""
    if finding.kind == "PROMPT":
        yield from _template_locations(finding, texts)
    if finding.kind == "CONFIG":
        # The line with the new argument's value or the variable's name.
        files = (SETTINGS, *(file for file in texts if re.fullmatch(r"pipelines/[^/]+\.yaml", file)))
        for line in finding.detail:
            value = line[1:].strip()
            if line.startswith("+") and len(value) >= LETTERS_MIN and not value.startswith("-"):
                pattern = re.compile(rf"[^#]*(?<![\w.-]){re.escape(value)}(?![\w-])")
                yield from _matching_lines(texts, files, pattern)
    if finding.kind == "NETWORK":
        name = finding.cause.rpartition(".")[2]
        yield from _matching_lines(texts, (SETTINGS,), re.compile(rf"\s*{re.escape(name)}\s*:"))
    for rule in (line.split()[2] for line in finding.detail if line.startswith("  caused by: ")):
        yield from _matching_lines(texts, texts, re.compile(rf".*\bid: {re.escape(rule)}(?![\w.-])"))
    if cassette:
        yield _cassette_location(finding, texts, cassette)


def _cassette_location(finding: Finding, texts: Mapping[str, str], cassette: str) -> tuple[str, int | None]:
    """Return the file of the cassette that the current state differs from."""
    if finding.feature and (finding.kind == "TRACE" or finding.line is not None):
        return f"{cassette}/{finding.feature}/{EVENTS}", finding.line
    if finding.call and finding.feature and finding.kind not in ("MISSING", "NETWORK"):
        call = f"{cassette}/{finding.feature}/{finding.call}"
        return (f"{call}.prompt.md", _prompt_line(finding)) if finding.kind == "PROMPT" else (f"{call}.json", None)
    manifest = f"{cassette}/{MANIFEST}"
    key = _MANIFEST_KEYS.get(finding.kind)
    return next(_matching_lines(texts, (manifest,), re.compile(rf"{key}:")), (manifest, finding.line))


# prompts --------------------------------------------------------------------------------------------------------------
def _template_locations(finding: Finding, texts: Mapping[str, str]) -> Iterator[tuple[str, int | None]]:
    """Yield the matching line of the template, else of another file that goes into prompts, else the whole template."""
    first_cause = finding.cause.partition(" and ")[0]
    template = f"pipelines/{first_cause}" if first_cause.startswith("rules/") else TEMPLATES + first_cause
    others = (file for file in texts if file not in (template, SETTINGS) and not file.endswith(f"/{MANIFEST}"))
    files = [template, *others]
    # The added lines of the prompt, then the context lines, which remain if lines were only removed.
    for wanted in (line[1:] for sign in "+ " for line in finding.detail if line.startswith(sign)):
        fitting = [
            (letters, file, line) for file in files for letters, line in _rendering_lines(texts.get(file, ""), wanted)
        ]
        if fitting:
            _, file, line = max(fitting, key=lambda candidate: candidate[0])
            yield file, line
    if template in texts:
        yield template, None


def _rendering_lines(text: str, wanted: str) -> Iterator[tuple[int, int]]:
    """Yield the lines of a template that `wanted` may be rendered from: number of literal letters and digits, line
    number."""
    for number, line in enumerate(text.splitlines(), 1):
        rule = _REQUIREMENT.search(line)
        literal = next(filter(None, rule.groups()), "") if rule else line.strip()
        fragments = [fragment.strip() for fragment in _PLACEHOLDERS.split(literal)]
        letters = sum(character.isalnum() for fragment in fragments for character in fragment)
        if letters >= LETTERS_MIN and _holds_in_order(["", *fragments, ""] if rule else fragments, wanted.strip()):
            yield letters, number


def _holds_in_order(fragments: list[str], text: str) -> bool:
    """Return True if the text holds all fragments in order, the first at its start and the last at its end."""
    if len(fragments) == 1:
        return fragments[0] == text
    if not (text.startswith(fragments[0]) and text.endswith(fragments[-1])):
        return False
    at = len(fragments[0])
    for fragment in fragments[1:]:
        at = text.find(fragment, at)
        if at < 0:
            return False
        at += len(fragment)
    return True


def _prompt_line(finding: Finding) -> int | None:
    """Return the first differing line of the recorded prompt."""
    number = None
    for line in finding.detail:
        if hunk := _HUNK.match(line):
            number = max(int(hunk[1]), 1)
        elif line[:1] in "+-":
            return number
        elif number is not None:
            number += 1
    return None


def _matching_lines(
    texts: Mapping[str, str], files: Iterable[str], wanted: re.Pattern[str]
) -> Iterator[tuple[str, int]]:
    for file in files:
        for number, line in enumerate(texts.get(file, "").splitlines(), 1):
            if wanted.match(line):
                yield file, number
