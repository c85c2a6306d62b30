"""Pure: whether the dependencies that a backlog declares can be kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mz_engine.errors import Diagnostic, Place
from mz_engine.graph import find_cycles
from mz_engine.shape import nearest

KNOWN_SHOWN_MAX = 20


def check_links(links: Mapping[str, Mapping[str, int]], name: str, complete: bool = True) -> Iterator[Diagnostic]:
    """What is wrong with dependencies: `links` maps id -> dependency -> line of the declaration. MZ4005 unknown (not
    said of an incomplete backlog), MZ4007 its own, MZ4008 a cycle (the first twenty; cycles that share no feature)."""
    for feature, dependencies in links.items():
        for dependency, line in dependencies.items():
            if dependency == feature:
                said = f"`{feature}` depends on itself"
                yield Diagnostic(code="MZ4007", message=said, hint="take it out", place=Place(name, line))
            elif dependency not in links and complete:
                said = f"`{feature}` depends on `{dependency[:80]}`, which is no feature of this backlog"
                yield Diagnostic(code="MZ4005", message=said, hint=_known(dependency, links), place=Place(name, line))
    for cycle in find_cycles(links):
        said = f"features wait for each other: {' -> '.join([*cycle, cycle[0]])}"
        line = links[cycle[0]][cycle[1]]
        hint = "take out one of these dependencies"
        yield Diagnostic(code="MZ4008", message=said, hint=hint, place=Place(name, line))


def _known(word: str, links: Mapping[str, object]) -> str:
    shown = list(links)[:KNOWN_SHOWN_MAX]
    more = f" and {len(links) - len(shown)} more" if len(links) > len(shown) else ""
    return "\n".join(part for part in (nearest(word, links), f"known here: {', '.join(shown)}{more}") if part)
