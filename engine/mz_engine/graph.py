"""Cycles in a dependency graph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter

CYCLES_MAX = 20


def find_cycles(needs: Mapping[str, Iterable[str]]) -> Iterator[list[str]]:
    """Return at most twenty disjoint cycles, each from its first member in `needs` on; each member needs the next, and
    the last one the first. Needs that are no key, and needs of a member itself, are ignored."""
    position = {member: index for index, member in enumerate(needs)}
    graph = {
        member: [needed for needed in needs_of_member if needed in needs and needed != member]
        for member, needs_of_member in needs.items()
    }
    for _ in range(CYCLES_MAX):
        try:
            TopologicalSorter(graph).prepare()
            return
        except CycleError as error:
            cycle = list(reversed(error.args[1][1:]))
        first = cycle.index(min(cycle, key=position.__getitem__))
        yield cycle[first:] + cycle[:first]
        graph = {
            member: [needed for needed in needs_of_member if needed not in cycle]
            for member, needs_of_member in graph.items()
            if member not in cycle
        }
