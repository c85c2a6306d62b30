"""Library access of `mz drift`: noise entries, stream baselines and cassettes."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import replace
from mz_engine.errors.diagnostics import MzError
from mz_engine.run.settings import load_config
from mz_recordings.cassette.files import CassetteUnreadable, load
from mz_recordings.drift.library import LibraryKnowledge, read_library
from mz_recordings.drift.noise import FILE_NAME
from mz_recordings.drift.run import LibraryDrift, check_current
from mz_recordings.drift.stream_baselines import write_baseline
from mz_recordings.drift.stream_check import CLI_PROVENANCES, Baselines, extend_baseline, observe_cassette
from mz_recordings.drift.stream_shape import count_fields_by_use

from mz_cli.check.json import BaselineShape
from mz_cli.common.recording import display_path, library_path
from mz_cli.replay.command import print_progress, replay_jobs, require_cassettes
from mz_cli.terminal.console import print_note
from mz_cli.terminal.text import single_line

HINTS = {
    "MZ6020": "`mz help MZ6020` shows the format of an entry",
    "MZ6021": "restore it from git, or remove it and write it again",
}
"""By error code of a file that cannot be read."""


def load_drift_library(home: Path, baseline_folder: Path | None = None) -> LibraryKnowledge:
    """Load noise and baselines of the library. Raises MzError (MZ6020, MZ6021)."""
    library, described = library_path(home), load_config(home, os.environ, {}).config.agents
    drift_library, problems = read_library(library, described, datetime.now(UTC).date(), baseline_folder)
    if problems:
        first = problems[0]
        if first.rejection:
            number = sum(bool(problem.rejection) for problem in problems)
            hint = f"{number} entries are invalid; fix or remove them"
            raise MzError(first.code, f"{display_path(library / FILE_NAME)}: {first.message}", hint=hint)
        raise MzError(first.code, first.message, hint=HINTS[first.code])
    return replace(drift_library, library=Path(display_path(library)))


def check_library(
    home: Path, paths: tuple[Path, ...], drift_library: LibraryKnowledge, static: bool, workers: int | None, reason: str
) -> LibraryDrift:
    """Compare the cassettes at these paths, else the library, with the current code. Raises MzError (MZ6001)."""
    number = workers or os.cpu_count() or 1
    jobs = replay_jobs(home, require_cassettes(home, paths), number, None, (), "", False)
    return check_current(
        jobs,
        drift_library,
        static=static,
        is_whole_library=not paths,
        workers=number,
        report=lambda played: print_progress(played, len(jobs)),
        reason=reason,
    )


def write_baselines(
    cassette_paths: tuple[Path, ...], drift_library: LibraryKnowledge, folder: Path, reason: str
) -> tuple[BaselineShape, ...]:
    """Extend and write the stream baselines of all agents and versions in these cassettes. Raises MzError (MZ6005)."""
    baselines: Baselines = drift_library.baselines
    grown_keys: dict[tuple[str, str], None] = {}
    for path in cassette_paths:
        try:
            cassette = load(path)
        except CassetteUnreadable as error:
            raise MzError("MZ6005", str(error), hint=f"git restore {display_path(path)}") from error
        if cassette.manifest.provenance not in CLI_PROVENANCES:
            print_note(
                f"{single_line(display_path(path))}: left out, because its streams are {cassette.manifest.provenance}"
            )
            continue
        for observed in observe_cassette(cassette, drift_library.agent_descriptions):
            key = observed.shape.agent, observed.shape.version
            if observed.shape.version:
                baselines = {**baselines, key: extend_baseline(baselines.get(key), observed.shape)}
                grown_keys[key] = None
    written = [(write_baseline(baselines[key], reason, folder), baselines[key]) for key in grown_keys]
    return tuple(
        BaselineShape(path=display_path(path), agent=shape.agent, version=shape.version, **count_fields_by_use(shape))
        for path, shape in written
    )
