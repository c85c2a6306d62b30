"""Pure: cycles among things that need each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter

CYCLES_MAX = 20


def find_cycles(needs: Mapping[str, Iterable[str]]) -> Iterator[list[str]]:
    """Cycles that share no member, at most twenty: each member needs the next and the last one the first. Each begins
    with the member that stands first in `needs`. What is needed but is no key of `needs`, and what needs itself, is
    left out."""
    position = {member: at for at, member in enumerate(needs)}
    graph = {member: [each for each in wanted if each in needs and each != member] for member, wanted in needs.items()}
    for _ in range(CYCLES_MAX):
        try:
            TopologicalSorter(graph).prepare()
            return
        except CycleError as error:
            cycle = list(reversed(error.args[1][1:]))
        first = cycle.index(min(cycle, key=position.__getitem__))
        yield cycle[first:] + cycle[:first]
        graph = {
            member: [each for each in wanted if each not in cycle]
            for member, wanted in graph.items()
            if member not in cycle
        }
