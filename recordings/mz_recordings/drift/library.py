"""Noise entries and baselines of a library, and the defects in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace
from mz_engine.model.agent_description import AgentDescription

from mz_recordings.drift.noise import NoiseEntry, NoiseFileInvalid, NoiseRejection, read_noise, rejection_of
from mz_recordings.drift.stream_baselines import FOLDER, BaselineInvalid, built_in_folder, load_baselines
from mz_recordings.drift.stream_check import Baselines

OUTDATED_REJECTIONS = ("EXPIRED", "UNUSED_ENTRY")
"""Rejections of entries that were valid once: findings; all others are errors of the file."""


class LibraryKnowledge(msgspec.Struct, frozen=True, kw_only=True):
    """Noise and baselines of a library, and the agents of its project."""

    library: Path
    noise: tuple[NoiseEntry, ...]
    baselines: Baselines
    today: date
    agent_descriptions: Mapping[str, AgentDescription]
    """The project's own agents."""


class LibraryDefect(NamedTuple):
    """A file that cannot be used, or a rejected entry."""

    code: Literal["MZ6020", "MZ6021"]
    """MZ6020: noise; MZ6021: baselines."""
    message: str
    rejection: str = ""
    """Name of the rejection; empty: the file that `message` names cannot be read."""


def read_library(
    library: Path, agent_descriptions: Mapping[str, AgentDescription], today: date, baseline_folder: Path | None = None
) -> tuple[LibraryKnowledge, tuple[LibraryDefect, ...]]:
    """Read noise and baselines. One rejected entry disables all noise; one unreadable baseline all of the project's.

    `baseline_folder`: folder of the project's baselines, if it is not in the library.
    """
    knowledge = LibraryKnowledge(
        library=library, noise=(), baselines={}, today=today, agent_descriptions=agent_descriptions
    )
    defects = list[LibraryDefect]()
    try:
        noise = read_noise(library)
        rejections = rejected_entries(noise, today)
        knowledge = replace(knowledge, noise=() if rejections else noise)
        for number, rejection in rejections:
            message = f"entry {number} ({rejection.subject}) is rejected: {rejection.name}: {rejection.reason}"
            defects.append(LibraryDefect("MZ6020", message, rejection.name))
    except NoiseFileInvalid as error:
        defects.append(LibraryDefect("MZ6020", str(error)))
    try:
        baselines = load_baselines((built_in_folder(), baseline_folder or library / FOLDER))
    except BaselineInvalid as error:
        defects.append(LibraryDefect("MZ6021", str(error)))
        baselines = load_baselines((built_in_folder(),))
    return replace(knowledge, baselines=baselines), tuple(defects)


def rejected_entries(noise: Iterable[NoiseEntry], today: date) -> tuple[tuple[int, NoiseRejection], ...]:
    """Return the entries that were never valid, each with its number from 1."""
    return tuple(
        (number, NoiseRejection(name, f"{entry.kind} {entry.path}"))
        for number, entry in enumerate(noise, start=1)
        if (name := rejection_of(entry, today)) and name not in OUTDATED_REJECTIONS
    )
