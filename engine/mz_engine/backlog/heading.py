"""Pure: the heading that begins a feature, `## [FEAT] an-id: A title [p:high]`, and lines that were meant as one."""

from __future__ import annotations

import re
import unicodedata
from typing import NamedTuple

from mz_engine.backlog.lines import without_controls

FORM = "## [FEAT] an-id: A title"

_HEADING = re.compile(r" {0,3}##[ \t]+\[([A-Za-z][A-Za-z _-]{0,30})\]([^:]*):(.*)\Z", re.DOTALL)
_NEAR = re.compile(
    r" {0,3}(?:#{1,6}[ \t]*\[(?:feat|wip|done|blocked)\b"
    r"|##[ \t]*\[[a-z][a-z _-]{0,30}\](?![(\[:])"
    r"|#{2,6}[ \t]*(?:feat|wip|(?-i:DONE|BLOCKED))\b"
    r"|\[feat\][ \t]*[\w-]+[ \t]*:)",
    re.IGNORECASE,
)
_MEANT = re.compile(r"[#\s]*\[?(feat|wip|done|blocked)\b\]?:?(.*)\Z", re.IGNORECASE | re.DOTALL)


class Heading(NamedTuple):
    """The parts as they stand, trimmed; columns count from 1."""

    status: str
    status_column: int
    id: str
    id_column: int
    title: str
    title_column: int
    priority: str | None
    """Of the suffix `[p:...]`."""
    priority_column: int


def read_heading(line: str) -> Heading | None:
    """The parts of a line that begins a feature, whatever they hold; None for any other line."""
    found = _HEADING.match(line)
    if found is None:
        return None
    title = _without_closing(without_controls(found[3]).strip())
    at = title.lower().rfind("[p:")
    priority = title[at + 3 : -1].strip() if at >= 0 and title.find("]", at) == len(title) - 1 else None
    return Heading(
        status=found[1].strip(),
        status_column=found.start(1) + 1,
        id=found[2].strip(),
        id_column=found.end(2) - len(found[2].lstrip()) + 1,
        title=title if priority is None else title[:at].rstrip(),
        title_column=found.end(3) - len(found[3].lstrip()) + 1,
        priority=priority,
        priority_column=line.lower().rfind("[p:") + 1,
    )


def was_meant(line: str) -> bool:
    """A line that is no heading of a feature but looks as if a person took it for one."""
    return _NEAR.match(line) is not None


def proposal(line: str) -> str:
    """A hint for a line that was meant as a heading: how it would be one, or the form."""
    found = _MEANT.match(without_controls(line[:300]))
    if found:
        name, colon, rest = re.sub("[:：]", ":", found[2]).partition(":")
        title = _without_closing((rest if colon else name).strip())
        slug = proposed_id(name)
        if slug and title:
            return f"did you mean `## [{found[1].upper()}] {slug}: {title[:80]}`?"
    return f"a feature begins with a heading such as `{FORM}`"


def proposed_id(text: str) -> str:
    """An id made of a person's words; empty when there is nothing to make it of."""
    plain = unicodedata.normalize("NFKD", text[:200]).encode("ascii", "ignore").decode()
    return re.sub(r"[^A-Za-z0-9_]+", "-", plain).strip("-_")[:64].rstrip("-").lower()


def _without_closing(title: str) -> str:
    """Markdown allows `#` marks after a heading, set off by a blank."""
    bare = title.rstrip("#")
    return bare.rstrip() if not bare or bare[-1] in " \t" else title
