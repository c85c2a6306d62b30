"""What crashes leave of a simulated run: copies of its world, made on the way instead of running it again for each."""

from __future__ import annotations

import sys
from copy import copy

from mz_events.adapters.memory import MemoryBlobs
from mz_qa.simulation.world import SimulatedStore, World


class CrashingWorld(World):
    """Keeps a copy of itself as a crash after some steps leaves it. Of steps that leave the same, such as the end of
    one side effect and the beginning of the next, the first counts for all: only the clock tells them apart."""

    cuts: range = range(0)
    left: tuple[World, ...] = ()
    previous: tuple[object, ...] = ()
    states = 0

    def crash_at(self, first: int = 1, every: int = 1) -> None:
        """Keep copies from now on: of the state `first`, and then of each so many."""
        self.cuts = range(first, sys.maxsize, every)

    def tick(self, name: str) -> None:
        super().tick(name)
        if self.cuts and parts(self) != self.previous:
            left = self.copy()
            self.previous, self.states = parts(left), self.states + 1
            self.left += (left,) if self.states in self.cuts else ()

    def copy(self) -> World:
        """Return a separate world in the same state."""
        world = World({}, self.script, self.commands)
        separate = {name: copy(value) for name, value in vars(self).items() if isinstance(value, (dict, list, set))}
        vars(world).update(vars(self), **separate, store=SimulatedStore(world.tick), blobs=MemoryBlobs())
        world.worktrees = {feature: dict(files) for feature, files in self.worktrees.items()}
        world.session_prompts = {session: list(prompts) for session, prompts in self.session_prompts.items()}
        world.blobs.data_by_digest = dict(self.blobs.data_by_digest)
        self.store.copy_to(world.store, len(self.store.log))
        return world


def parts(world: World) -> tuple[object, ...]:
    """What a process that is started again finds, but for texts that no event cites."""
    return len(world.store.log), *(value for value in vars(world).values() if isinstance(value, (dict, list, set)))
