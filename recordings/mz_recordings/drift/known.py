"""Adapter: what a library knows besides its cassettes, its noise and its baselines, and what of that is unsound."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace
from mz_engine.agents.generic_form import AgentDescription

from mz_recordings.drift.noise import Noise, Refusal, refusal_of
from mz_recordings.drift.noisefile import NoiseUnusable, read_noise
from mz_recordings.wire.check import Baselines
from mz_recordings.wire.files import FOLDER, BaselineUnusable, built_in_place, load_baselines

NOISE_AGED = ("EXPIRED", "UNUSED_ENTRY")
"""Refusals of entries that were sound once: findings, where the others are errors of the file."""


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What a library knows besides its cassettes, and its project of agents."""

    library: Path
    noise: tuple[Noise, ...]
    baselines: Baselines
    today: date
    described: Mapping[str, AgentDescription]
    """The project's own agents."""


class Unsound(NamedTuple):
    """Something that cannot be used, or an entry that is refused."""

    code: Literal["MZ6020", "MZ6021"]
    """Of noise, of baselines."""
    what: str
    refusal: str = ""
    """The name of the refusal; empty: the file cannot be read, and `what` names it."""


def read_known(
    library: Path, described: Mapping[str, AgentDescription], today: date, wire: Path | None = None
) -> tuple[Known, tuple[Unsound, ...]]:
    """What is unsound counts for nothing: of noise with a refused entry all of it, of baselines those of the project.
    `wire`: where the project's lie, if not in the library."""
    known = Known(library=library, noise=(), baselines={}, today=today, described=described)
    wrong = list[Unsound]()
    try:
        noise = read_noise(library)
        refused = refused_entries(noise, today)
        known = replace(known, noise=() if refused else noise)
        for at, one in refused:
            wrong.append(Unsound("MZ6020", f"entry {at} ({one.what}) is refused: {one.name}: {one.why}", one.name))
    except NoiseUnusable as error:
        wrong.append(Unsound("MZ6020", str(error)))
    try:
        known = replace(known, baselines=load_baselines((built_in_place(), wire or library / FOLDER)))
    except BaselineUnusable as error:
        wrong.append(Unsound("MZ6021", str(error)))
        known = replace(known, baselines=load_baselines((built_in_place(),)))
    return known, tuple(wrong)


def refused_entries(noise: Iterable[Noise], today: date) -> tuple[tuple[int, Refusal], ...]:
    """Entries that never were sound, each with its number from 1."""
    found = ((at, entry, refusal_of(entry, today)) for at, entry in enumerate(noise, start=1))
    return tuple((at, Refusal(name, f"{e.kind} {e.path}")) for at, e, name in found if name and name not in NOISE_AGED)
