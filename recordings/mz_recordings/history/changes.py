"""Facts: intended changes of decision. What one of them explains in a history replay passes, and is listed as
explained.

Whoever changes what the core decides, produces or reads adds an entry here; without one, every run that was recorded
before is said to part from today's code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

Fields = Mapping[str, tuple[str | None, str | None]]
"""By path within the event: what was recorded and what is produced, as JSON; empty where events as a whole differ."""


class Change(NamedTuple):
    id: str
    """Such as `wait-for-overload`; never used twice."""
    since: str
    """The first version of `mz` that decides so."""
    why: str
    """In one sentence."""
    explains: Callable[[str, Fields], bool]
    """Whether a divergence at an event of this type, in these fields, follows from the change."""


CHANGES: tuple[Change, ...] = ()
"""None yet: no version of `mz` has been released that decided otherwise."""


def explanation(changes: Iterable[Change], event_type: str, fields: Fields) -> Change | None:
    """The first of these changes that explains the divergence."""
    return next((change for change in changes if change.explains(event_type, fields)), None)
