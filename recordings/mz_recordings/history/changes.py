"""Intended changes of decisions. A past-run replay lists the divergences that they explain separately, and passes.

Add an entry for each change of what the code decides, produces or parses; without it, all earlier runs diverge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

Fields = Mapping[str, tuple[str | None, str | None]]
"""By path within the event: recorded and produced value, as JSON; empty if the events as a whole differ."""


class IntendedChange(NamedTuple):
    id: str
    """Such as `wait-for-overload`; never reused."""
    since: str
    """The first version of `mz` with the change."""
    reason: str
    """Reason, in one sentence."""
    explains: Callable[[str, Fields], bool]
    """Returns True if a divergence in these fields of an event of this type follows from the change."""


INTENDED_CHANGES: tuple[IntendedChange, ...] = ()
"""Empty: no version of `mz` that decides differently has been released."""


def explanation(changes: Iterable[IntendedChange], event_type: str, fields: Fields) -> IntendedChange | None:
    """Return the first change that explains the divergence."""
    return next((change for change in changes if change.explains(event_type, fields)), None)
