"""Pure: text that any report may hold: no secret, no place of this machine, nothing that acts on whoever shows it.

What cannot be shown is replaced by something that can be seen, never dropped: two names that differ in a control
character are two names in a report too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from msgspec.structs import replace
from mz_recordings.findings import Finding

from mz_cli.reports.facts import Report, Suite

CHARACTERS_MAX = 2_000
"""Of one line; a prompt may be one line of megabytes."""
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\u3164\ufeff"
    "\ufff9-\ufffb\ufffe\uffff\ud800-\udfff\U000e0000-\U000e007f]"
)
"""Controls, marks that turn the direction of writing, letters that nobody sees, and what XML cannot hold."""
_BETWEEN = "\0"
"""Stands between texts that are cleaned together; none of them holds it any more by then."""


def visible(text: str) -> str:
    """The same, with `⟨U+0000⟩` where a character cannot be shown; tabs and line ends stay."""
    return _HIDDEN.sub(_number, text.replace("\r\n", "\n"))


def _number(found: re.Match[str]) -> str:
    return f"\u27e8U+{ord(found[0]):04X}\u27e9"


def one_line(text: str) -> str:
    """On one line: every run of white space is one space."""
    return " ".join(text.split())


def bounded(text: str) -> str:
    """Every line of a sensible length; says what is left out."""
    return "\n".join(_bounded(line) for line in text.split("\n"))


def _bounded(line: str) -> str:
    more = len(line) - CHARACTERS_MAX
    return line if more <= 0 else f"{line[:CHARACTERS_MAX]}\u2026 ({more:,} characters more)"


def without_places(text: str, root: str, home: str, temporary: str) -> str:
    """Paths below the project's root as relative ones, those below the home directory with `~`, and the names of
    scratch directories left out: a report is the same on every machine."""
    text = re.sub(rf"{re.escape(temporary)}/mz-[\w-]+", "<SCRATCH>", text) if len(temporary) > 1 else text
    places = {root: ".", home: "~"}
    for path in sorted((path for path in places if len(path) > 1), key=len, reverse=True):
        begin = rf"(?:(?<![\w.\-/~])|(?<=://)){re.escape(path)}"
        if path == root:
            text = re.sub(rf"{begin}/(?=\w)", "", text)
        text = re.sub(rf"{begin}(?![\w-])", places[path], text)
    return text


def cleaned(report: Report, redact: Callable[[str], str], relative: Callable[[str], str]) -> Report:
    """The report that may be shown to anybody: see the module's first line. `redact` and `relative` get all texts at
    once, since finding a secret costs much for each text by itself."""
    texts = [bounded(visible(text)) for text in _texts(report)]
    together = relative(redact(_BETWEEN.join(texts))).split(_BETWEEN)
    if len(together) != len(texts):
        together = [relative(redact(text)) for text in texts]
    new = iter(together)
    return _mapped(report, lambda _: next(new))


def _texts(report: Report) -> Iterator[str]:
    """In the order in which `_mapped` asks for them."""
    found: list[str] = []

    def take(text: str) -> str:
        found.append(text)
        return text

    _mapped(report, take)
    yield from found


def _mapped(report: Report, change: Callable[[str], str]) -> Report:
    title = change(report.title)
    return replace(report, title=title, suites=tuple(_suite(suite, change) for suite in report.suites))


def _suite(suite: Suite, change: Callable[[str], str]) -> Suite:
    return replace(
        suite,
        name=change(suite.name),
        path=change(suite.path),
        findings=tuple(_finding(finding, change) for finding in suite.findings),
        facts=tuple((change(name), change(value)) for name, value in suite.facts),
        cases=tuple(change(case) for case in suite.cases),
    )


def _finding(finding: Finding, change: Callable[[str], str]) -> Finding:
    return replace(
        finding,
        what=change(finding.what),
        feature=change(finding.feature),
        call=change(finding.call),
        cause=change(finding.cause),
        detail=tuple(change(line) for line in finding.detail),
        mend=change(finding.mend),
        file=change(finding.file),
    )
