"""Library access of `mz drift`: noise entries, stream baselines and cassettes."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import replace
from mz_engine.configfile import load_config
from mz_engine.errors import MzError
from mz_recordings.drift.known import Known, read_known
from mz_recordings.drift.noisefile import NAME
from mz_recordings.drift.run import Drifted, check_today
from mz_recordings.files.library import CassetteUnusable, load
from mz_recordings.wire.check import TRUSTED, Baselines, grown, observed_in
from mz_recordings.wire.files import write_baseline
from mz_recordings.wire.wire import counted

from mz_cli.commands.replay import cassettes_at, jobs_of, tell
from mz_cli.recording import library_of, shown
from mz_cli.render.console import note
from mz_cli.render.text import line
from mz_cli.shapes.drift import BaselineShape

HINTS = {
    "MZ6020": "`mz explain MZ6020` shows the format of an entry",
    "MZ6021": "restore it from git, or remove it and write it again",
}
"""By error code of a file that cannot be read."""


def known_of(home: Path, wire: Path | None = None) -> Known:
    """Load noise and baselines of the library. Raises MzError (MZ6020, MZ6021)."""
    library, described = library_of(home), load_config(home, os.environ, {}).config.agents
    known, wrong = read_known(library, described, datetime.now(UTC).date(), wire)
    if wrong:
        first = wrong[0]
        if first.refusal:
            number = sum(bool(one.refusal) for one in wrong)
            hint = f"{number} entries are invalid; fix or remove them"
            raise MzError(first.code, f"{shown(library / NAME)}: {first.what}", hint=hint)
        raise MzError(first.code, first.what, hint=HINTS[first.code])
    return replace(known, library=Path(shown(library)))


def check_library(
    home: Path, paths: tuple[Path, ...], known: Known, static: bool, workers: int | None, reason: str
) -> Drifted:
    """Compare the cassettes at these paths, else the library, with the current code. Raises MzError (MZ6001)."""
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
    """Extend and write the stream baselines of all agents and versions in these cassettes. Raises MzError (MZ6005)."""
    baselines: Baselines = known.baselines
    grew: dict[tuple[str, str], None] = {}
    for path in found:
        try:
            cassette = load(path)
        except CassetteUnusable as error:
            raise MzError("MZ6005", str(error), hint=f"git restore {shown(path)}") from error
        if cassette.manifest.provenance not in TRUSTED:
            note(f"{line(shown(path))}: left out, because its streams are {cassette.manifest.provenance}")
            continue
        for seen in observed_in(cassette, known.described):
            key = seen.wire.agent, seen.wire.version
            if seen.wire.version:
                baselines = {**baselines, key: grown(baselines.get(key), seen.wire)}
                grew[key] = None
    written = [(write_baseline(baselines[key], reason, folder), baselines[key]) for key in grew]
    return tuple(
        BaselineShape(path=shown(path), agent=wire.agent, version=wire.version, **counted(wire))
        for path, wire in written
    )
