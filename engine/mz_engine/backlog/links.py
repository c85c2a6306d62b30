"""Check the dependencies that a backlog declares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mz_engine.errors import Diagnostic, SourceLocation
from mz_engine.graph import find_cycles
from mz_engine.shape import similar_name_hint

SHOWN_FEATURES_MAX = 20
PROPOSALS_MAX = 10
"""Finding similar names is slow, so only the first unknown dependencies get proposals."""


def check_dependencies(links: Mapping[str, Mapping[str, SourceLocation]], complete: bool = True) -> Iterator[Diagnostic]:
    """Yield errors: `links` maps id -> dependency -> location of the declaration. MZ4005 unknown (not for an incomplete
    backlog), MZ4007 its own, MZ4008 a cycle (the first twenty; cycles that share no feature)."""
    proposals = 0
    for feature, dependencies in links.items():
        for dependency, location in dependencies.items():
            if dependency == feature:
                hint = "remove it from its `depends on`"
                yield Diagnostic(code="MZ4007", message=f"`{feature}` depends on itself", hint=hint, location=location)
            elif dependency not in links and complete:
                proposals += 1
                message = f"`{feature}` depends on `{dependency[:80]}`, which is not in this backlog"
                hint = _features_hint(dependency, links) if proposals <= PROPOSALS_MAX else "remove it, or add the feature"
                yield Diagnostic(code="MZ4005", message=message, hint=hint, location=location)
    for cycle in find_cycles(links):
        message = f"dependency cycle: {' -> '.join([*cycle, cycle[0]])}"
        hint = "remove one of these dependencies"
        yield Diagnostic(code="MZ4008", message=message, hint=hint, location=links[cycle[0]][cycle[1]])


def _features_hint(word: str, links: Mapping[str, object]) -> str:
    shown = list(links)[:SHOWN_FEATURES_MAX]
    more = f" and {len(links) - len(shown)} more" if len(links) > len(shown) else ""
    return "\n".join(part for part in (similar_name_hint(word, links), f"known here: {', '.join(shown)}{more}") if part)
