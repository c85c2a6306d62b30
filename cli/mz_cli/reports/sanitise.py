"""Sanitising of report texts: no secrets, no local paths, no control characters.

Invisible characters are replaced by a visible form and never dropped, so that two names that differ only in a control
character still differ in a report.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from msgspec.structs import replace
from mz_recordings.findings.model import Finding

from mz_cli.reports.model import Report, Suite

CHARACTERS_MAX = 2_000
"""Maximum line length; a prompt may be one line of megabytes."""
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\u3164\ufeff"
    "\ufff9-\ufffb\ufffe\uffff\ud800-\udfff\U000e0000-\U000e007f]"
)
"""Control characters, direction marks, invisible letters, and characters that XML cannot contain."""
_SEPARATOR = "\0"
"""Separator of texts that are sanitised together; `visible` has already replaced it in the texts."""


def replace_invisible(text: str) -> str:
    """Return the text with invisible characters as `⟨U+0000⟩`; tabs and newlines stay."""
    return _HIDDEN.sub(_code_point, text.replace("\r\n", "\n"))


def _code_point(match: re.Match[str]) -> str:
    return f"\u27e8U+{ord(match[0]):04X}\u27e9"


def single_line(text: str) -> str:
    """Return the text on one line, with single spaces."""
    return " ".join(text.split())


def limit_lines(text: str) -> str:
    """Return the text with long lines cut; each cut line tells how many characters are missing."""
    return "\n".join(_limit_line(line) for line in text.split("\n"))


def _limit_line(line: str) -> str:
    excess = len(line) - CHARACTERS_MAX
    return line if excess <= 0 else f"{line[:CHARACTERS_MAX]}\u2026 ({excess:,} characters more)"


def strip_local_paths(text: str, root: str, home: str, temporary: str) -> str:
    """Return the text with machine-independent paths: relative to the project's root, or to `~`, with the names of
    scratch directories replaced."""
    text = re.sub(rf"{re.escape(temporary)}/mz-[\w-]+", "<SCRATCH>", text) if len(temporary) > 1 else text
    replacements = {root: ".", home: "~"}
    for path in sorted((path for path in replacements if len(path) > 1), key=len, reverse=True):
        prefix = rf"(?:(?<![\w.\-/~])|(?<=://)){re.escape(path)}"
        if path == root:
            text = re.sub(rf"{prefix}/(?=\w)", "", text)
        text = re.sub(rf"{prefix}(?![\w-])", replacements[path], text)
    return text


def sanitise(report: Report, redact: Callable[[str], str], relative: Callable[[str], str]) -> Report:
    """Return the report with all texts sanitised. `redact` and `relative` get all texts at once, because scanning for
    secrets is expensive per call."""
    texts = [limit_lines(replace_invisible(text)) for text in _texts(report)]
    sanitised_texts = relative(redact(_SEPARATOR.join(texts))).split(_SEPARATOR)
    if len(sanitised_texts) != len(texts):
        sanitised_texts = [relative(redact(text)) for text in texts]
    sanitised = iter(sanitised_texts)
    return _map_texts(report, lambda _: next(sanitised))


def _texts(report: Report) -> Iterator[str]:
    """Yield all texts in the order of `_map_texts`."""
    texts: list[str] = []

    def collect(text: str) -> str:
        texts.append(text)
        return text

    _map_texts(report, collect)
    yield from texts


def _map_texts(report: Report, change: Callable[[str], str]) -> Report:
    title = change(report.title)
    return replace(report, title=title, suites=tuple(_suite(suite, change) for suite in report.suites))


def _suite(suite: Suite, change: Callable[[str], str]) -> Suite:
    return replace(
        suite,
        name=change(suite.name),
        path=change(suite.path),
        findings=tuple(_finding(finding, change) for finding in suite.findings),
        properties=tuple((change(name), change(value)) for name, value in suite.properties),
        cases=tuple(change(case) for case in suite.cases),
    )


def _finding(finding: Finding, change: Callable[[str], str]) -> Finding:
    return replace(
        finding,
        message=change(finding.message),
        feature=change(finding.feature),
        call=change(finding.call),
        cause=change(finding.cause),
        detail=tuple(change(line) for line in finding.detail),
        fix=change(finding.fix),
        file=change(finding.file),
    )
