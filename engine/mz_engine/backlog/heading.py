"""The heading that begins a feature, `## [FEAT] an-id: A title [p:high]`, and malformed variants of it."""

from __future__ import annotations

import re
import unicodedata
from typing import NamedTuple

from mz_engine.backlog.lines import strip_controls

HEADING_FORM = "## [FEAT] an-id: A title"

_HEADING = re.compile(r" {0,3}##[ \t]+\[([A-Za-z][A-Za-z _-]{0,30})\]([^:]*):(.*)\Z", re.DOTALL)
_SIMILAR = re.compile(
    r" {0,3}(?:#{1,6}[ \t]*\[(?:feat|wip|done|blocked)\b"
    r"|##[ \t]*\[[a-z][a-z _-]{0,30}\](?![(\[:])"
    r"|#{2,6}[ \t]*(?:feat|wip|(?-i:DONE|BLOCKED))\b"
    r"|\[feat\][ \t]*[\w-]+[ \t]*:)",
    re.IGNORECASE,
)
_SIMILAR_PARTS = re.compile(r"[#\s]*\[?(feat|wip|done|blocked)\b\]?:?(.*)\Z", re.IGNORECASE | re.DOTALL)


class FeatureHeading(NamedTuple):
    """The trimmed parts; columns count from 1."""

    status: str
    status_column: int
    id: str
    id_column: int
    title: str
    title_column: int
    priority: str | None
    """From the suffix `[p:...]`."""
    priority_column: int


def read_heading(line: str) -> FeatureHeading | None:
    """Return the parts of a line that begins a feature, valid or not; None for any other line."""
    match = _HEADING.match(line)
    if match is None:
        return None
    title = _strip_closing_marks(strip_controls(match[3]).strip())
    at = title.lower().rfind("[p:")
    priority = title[at + 3 : -1].strip() if at >= 0 and title.find("]", at) == len(title) - 1 else None
    return FeatureHeading(
        status=match[1].strip(),
        status_column=match.start(1) + 1,
        id=match[2].strip(),
        id_column=match.end(2) - len(match[2].lstrip()) + 1,
        title=title if priority is None else title[:at].rstrip(),
        title_column=match.end(3) - len(match[3].lstrip()) + 1,
        priority=priority,
        priority_column=line.lower().rfind("[p:") + 1,
    )


def looks_like_heading(line: str) -> bool:
    """Return True for a line that looks like a malformed heading of a feature."""
    return _SIMILAR.match(line) is not None


def heading_hint(line: str) -> str:
    """Return a hint for a malformed heading: a corrected heading, or the form."""
    match = _SIMILAR_PARTS.match(strip_controls(line[:300]))
    if match:
        name, colon, title_text = re.sub("[:：]", ":", match[2]).partition(":")
        title = _strip_closing_marks((title_text if colon else name).strip())
        slug = proposed_id(name)
        if slug and title:
            return f"did you mean `## [{match[1].upper()}] {slug}: {title[:80]}`?"
    return f"a feature begins with a heading such as `{HEADING_FORM}`"


def proposed_id(text: str) -> str:
    """Make an id from a text; empty if that is impossible."""
    plain = unicodedata.normalize("NFKD", text[:200]).encode("ascii", "ignore").decode()
    return re.sub(r"[^A-Za-z0-9_]+", "-", plain).strip("-_")[:64].rstrip("-").lower()


def _strip_closing_marks(title: str) -> str:
    """Remove the closing `#` marks that Markdown allows after a heading."""
    bare = title.rstrip("#")
    return bare.rstrip() if not bare or bare[-1] in " \t" else title
