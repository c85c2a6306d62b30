"""Adapter: what `mz drift` asks of a library: its noise, its baselines, its cassettes."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from mz_engine.errors import MzError
from mz_recordings.drift.noisefile import NAME, NoiseUnusable, read_noise
from mz_recordings.drift.run import Drifted, Known, check_today, refused_entries
from mz_recordings.files.library import CassetteUnusable, load
from mz_recordings.wire.check import TRUSTED, Baselines, grown, observed_in
from mz_recordings.wire.files import FOLDER, BaselineUnusable, built_in_place, load_baselines, write_baseline
from mz_recordings.wire.wire import counted

from mz_cli.commands.replay import cassettes_at, jobs_of, tell
from mz_cli.recording import library_of, shown
from mz_cli.render.console import note
from mz_cli.shapes.drift import BaselineShape


def known_of(home: Path, wire: Path | None = None) -> Known:
    """What the library knows. Raises MzError (MZ6020, MZ6021)."""
    library, today = library_of(home), datetime.now(UTC).date()
    try:
        noise = read_noise(library)
        baselines = load_baselines((built_in_place(), wire or library / FOLDER))
    except NoiseUnusable as error:
        raise MzError("MZ6020", str(error), hint="`mz explain MZ6020` shows what an entry looks like") from error
    except BaselineUnusable as error:
        raise MzError("MZ6021", str(error), hint="restore it from git, or remove it and write it anew") from error
    if refused := refused_entries(noise, today):
        at, first = refused[0]
        message = f"{shown(library / NAME)}: entry {at} ({first.what}) is refused: {first.name}: {first.why}"
        raise MzError("MZ6020", message, hint=f"{len(refused)} entries are refused; mend them or take them out")
    return Known(library=Path(shown(library)), noise=noise, baselines=baselines, today=today)


def check_library(
    home: Path, paths: tuple[Path, ...], known: Known, static: bool, workers: int | None, reason: str
) -> Drifted:
    """The cassettes at these places, else the library, against today. Raises MzError (MZ6001)."""
    number = workers or os.cpu_count() or 1
    jobs = jobs_of(home, cassettes_at(home, paths), number, None, (), "", False)
    return check_today(
        jobs,
        known,
        static=static,
        whole=not paths,
        workers=number,
        tell=lambda played: tell(played, len(jobs)),
        reason=reason,
    )


def write_wires(found: tuple[Path, ...], known: Known, folder: Path, reason: str) -> tuple[BaselineShape, ...]:
    """Writes the baselines of all agents and versions in these cassettes, grown by what is in them. Raises MzError
    (MZ6005)."""
    baselines: Baselines = known.baselines
    grew: dict[tuple[str, str], None] = {}
    for path in found:
        try:
            cassette = load(path)
        except CassetteUnusable as error:
            raise MzError("MZ6005", str(error), hint=f"git restore {shown(path)}") from error
        if cassette.manifest.provenance not in TRUSTED:
            note(f"{shown(path)}: left out, its streams are {cassette.manifest.provenance}")
            continue
        for seen in observed_in(cassette):
            key = seen.wire.agent, seen.wire.version
            if seen.wire.version:
                baselines = {**baselines, key: grown(baselines.get(key), seen.wire)}
                grew[key] = None
    written = [(write_baseline(baselines[key], reason, folder), baselines[key]) for key in grew]
    return tuple(
        BaselineShape(path=shown(path), agent=wire.agent, version=wire.version, **counted(wire))
        for path, wire in written
    )
