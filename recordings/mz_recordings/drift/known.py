"""Noise entries and baselines of a library, and the defects in them."""

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
"""Rejections of entries that were valid once: findings; all others are errors of the file."""


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """Noise and baselines of a library, and the agents of its project."""

    library: Path
    noise: tuple[Noise, ...]
    baselines: Baselines
    today: date
    described: Mapping[str, AgentDescription]
    """The project's own agents."""


class Unsound(NamedTuple):
    """A file that cannot be used, or a rejected entry."""

    code: Literal["MZ6020", "MZ6021"]
    """MZ6020: noise; MZ6021: baselines."""
    what: str
    refusal: str = ""
    """Name of the rejection; empty: the file that `message` names cannot be read."""


def read_known(
    library: Path, described: Mapping[str, AgentDescription], today: date, wire: Path | None = None
) -> tuple[Known, tuple[Unsound, ...]]:
    """Read noise and baselines. One rejected entry disables all noise; one unreadable baseline all of the project's.

    `baseline_folder`: folder of the project's baselines, if it is not in the library.
    """
    known = Known(library=library, noise=(), baselines={}, today=today, described=described)
    wrong = list[Unsound]()
    try:
        noise = read_noise(library)
        refused = refused_entries(noise, today)
        known = replace(known, noise=() if refused else noise)
        for at, one in refused:
            wrong.append(Unsound("MZ6020", f"entry {at} ({one.what}) is rejected: {one.name}: {one.why}", one.name))
    except NoiseUnusable as error:
        wrong.append(Unsound("MZ6020", str(error)))
    try:
        known = replace(known, baselines=load_baselines((built_in_place(), wire or library / FOLDER)))
    except BaselineUnusable as error:
        wrong.append(Unsound("MZ6021", str(error)))
        known = replace(known, baselines=load_baselines((built_in_place(),)))
    return known, tuple(wrong)


def refused_entries(noise: Iterable[Noise], today: date) -> tuple[tuple[int, Refusal], ...]:
    """Return the entries that were never valid, each with its number from 1."""
    found = ((at, entry, refusal_of(entry, today)) for at, entry in enumerate(noise, start=1))
    return tuple((at, Refusal(name, f"{e.kind} {e.path}")) for at, e, name in found if name and name not in NOISE_AGED)
