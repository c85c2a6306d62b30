"""Names of branches and tags, made from templates with placeholders: `{item}`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime

from mz_events.names import InvalidName

_NOT_A_REF = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|//|@\{|^[-/@]|(?:^|/)\.|\.lock(?:/|\Z)|[./]\Z|^\Z")
"""Names that git rejects as refs, and names with a leading `-` or `@`."""
PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
DATE, INTEGRATION = "date", "integration"
TAG_PLACEHOLDERS = frozenset({"item", "title", "run", DATE, "time"})
"""Those in names of tags; with an integration branch also `integration`."""
_NOT_IN_NAMES = re.compile(r"[^\w-]+")
TITLE_CHARS_MAX = 50
"""Of a title in a name, whose parts are files of at most 255 bytes."""


def parse_ref_name(text: str) -> str:
    """Return the name if it can be that of a branch, tag or remote, else raise InvalidName."""
    if _NOT_A_REF.search(text):
        raise InvalidName(f"{text[:80]!r} is not usable as a branch, tag or remote name")
    return text


def name_values(run: str, item: str, title: str, integration: str, now_us: int) -> dict[str, str]:
    """Return the values of the placeholders in names of tags."""
    now = datetime.fromtimestamp(now_us / 1_000_000, UTC)
    slug = _NOT_IN_NAMES.sub("-", title.lower())[:TITLE_CHARS_MAX].strip("-")
    return {
        "item": item,
        "title": slug or item,
        "run": run,
        INTEGRATION: integration,
        DATE: f"{now:%Y-%m-%d}",
        "time": f"{now:%Y-%m-%d-%H-%M-%S}",
    }


def fill(template: str, values: Mapping[str, str]) -> str:
    """Replace the placeholders by their values; unknown ones stay."""
    return PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), template)
