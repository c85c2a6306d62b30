"""Sanitising of report texts: no secrets, no local paths, no control characters.

Invisible characters are replaced by a visible form and never dropped, so that two names that differ only in a control
character still differ in a report.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from mz_cli.reports.model import Report

CHARACTERS_MAX = 2_000
"""Maximum line length; a prompt may be one line of megabytes."""
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\u3164\ufeff"
    "\ufff9-\ufffb\ufffe\uffff\ud800-\udfff\U000e0000-\U000e007f]"
)
"""Control characters, direction marks, invisible letters, and characters that XML cannot contain."""
CONSTANT_FIELDS = ("kind", "risk", "version")
"""Fields with names that `mz` has given."""
_SEPARATOR = "\0"
"""Separator of texts that are sanitised together; `replace_invisible` has already replaced it in the texts."""


def replace_invisible(text: str) -> str:
    """Return the text with invisible characters as `⟨U+0000⟩`; tabs and newlines stay."""
    return _HIDDEN.sub(lambda match: f"\u27e8U+{ord(match[0]):04X}\u27e9", text.replace("\r\n", "\n"))


def limit_lines(text: str) -> str:
    """Return the text with long lines cut; each cut line tells how many characters are missing."""
    return "\n".join(
        line if len(line) <= CHARACTERS_MAX
        else f"{line[:CHARACTERS_MAX]}\u2026 ({len(line) - CHARACTERS_MAX:,} characters more)"
        for line in text.split("\n")
    )  # fmt: skip


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
    texts: list[str] = []

    def collect(text: str) -> str:
        texts.append(limit_lines(replace_invisible(text)))
        return text

    _map_texts(report, collect)
    sanitised_texts = relative(redact(_SEPARATOR.join(texts))).split(_SEPARATOR)
    if len(sanitised_texts) != len(texts):
        sanitised_texts = [relative(redact(text)) for text in texts]
    sanitised = iter(sanitised_texts)
    result: Report = _map_texts(report, lambda _: next(sanitised))
    return result


def _map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return the value with every text changed, except `CONSTANT_FIELDS`."""
    match value:
        case str():
            return change(value)
        case tuple():
            return tuple(_map_texts(element, change) for element in value)
        case msgspec.Struct():
            names = [name for name in value.__struct_fields__ if name not in CONSTANT_FIELDS]
            return replace(value, **{name: _map_texts(getattr(value, name), change) for name in names})
    return value
