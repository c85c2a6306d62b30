"""Make a cassette of a past run of this repository, for `mz record` and `mz run --record`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
from mz_engine.adapters.known_secrets import known_secrets
from mz_engine.config import Config
from mz_engine.configfile import load_config
from mz_engine.errors import MzError
from mz_engine.pipelines.load import find_pipeline
from mz_engine.pipelines.own import sound_material
from mz_events.names import run_stream
from mz_events.redact import Secrets
from mz_projections.run import fold_run
from mz_recordings.cassette import Cassette, Provenance
from mz_recordings.files.library import CassetteExists, CassetteUnusable, check_vacant, save
from mz_recordings.files.lint import packed
from mz_recordings.recording.record import NothingToRecord, RecordedRun, SecretInRecording, record_run
from mz_recordings.recording.sources import sources_of

from mz_cli.context import Reading, reading
from mz_cli.render.console import note
from mz_cli.render.text import counted, line
from mz_cli.shapes.replay import CommittedSecret, LeftOutShape, RecordResult


def library_of(home: Path) -> Path:
    """Return the folder of the repository's cassettes, which may not exist. Raises MzError for the settings."""
    return home / load_config(home, os.environ, {}).config.recordings


def default_place(home: Path, config: Config) -> Path:
    """Return the cassette path for a run with these settings. Raises MzError for the pipeline."""
    pipeline = find_pipeline(config.pipeline, home).pipeline.pipeline
    return home / config.recordings / f"{pipeline}-{config.agent}"


def refuse_before(home: Path, flags: Mapping[str, object]) -> None:
    """Check before anything is paid that the run can be recorded. Raises MzError."""
    config = load_config(home, os.environ, flags).config
    place = default_place(home, config)
    refuse_taken(place, False, "move it, or run without --record and then: mz record --replace")
    material = sound_material(home)
    made_of = msgspec.json.encode((config, material.templates, material.rules))
    if found := Secrets(known_secrets(home, os.environ)).scan(made_of):
        message = f"settings, rules or templates contain a secret ({', '.join(found)}); the run cannot be recorded"
        raise MzError("MZ6004", message, hint="remove it; no agent was called")


def record_after(run: str) -> None:
    """Record the run that has just stopped, and print the result on stderr. Raises MzError."""
    with reading() as log:
        tell(record(log, run, None, False, "live", None), note, note)


def refuse_taken(place: Path, replace: bool, instead: str) -> None:
    """Raise MzError: MZ6002 if a cassette exists that may not be replaced, MZ6005 if the path is in use otherwise."""
    try:
        check_vacant(place, replace)
    except CassetteExists as error:
        raise MzError("MZ6002", str(error), hint=instead) from error
    except CassetteUnusable as error:
        raise MzError("MZ6005", str(error), hint="name another folder with --to") from error


def record(
    log: Reading, run: str, to: Path | None, replace: bool, provenance: Provenance, max_age_days: int | None
) -> RecordResult:
    """Record the run, and return the content of the cassette. Raises MzError (MZ6002 to MZ6005)."""
    made = made_of(log, run, provenance, max_age_days)
    cassette = made.cassette
    name = f"{cassette.manifest.pipeline}-{cassette.manifest.agent}"
    place = to or library_of(log.home) / name
    refuse_taken(place, replace, f"replace it with --replace, or name another folder: mz record {run} --to DIR")
    cassette = named(cassette, place.resolve().name)
    place.parent.mkdir(parents=True, exist_ok=True)
    save(cassette, place, replace)
    if place.resolve().parent == library_of(log.home).resolve():
        keep_bytes(place.parent)
    return RecordResult(
        run=run,
        cassette=shown(place),
        pipeline=cassette.manifest.pipeline,
        agent=cassette.manifest.agent,
        provenance=cassette.manifest.provenance,
        features=tuple(item.feature for item in cassette.manifest.world.items),
        recordings=len(cassette.taken),
        left_out=tuple(LeftOutShape(feature=out.feature, why=out.why) for out in made.left_out),
        committed=committed_in(cassette, log.home) if cassette.bundle else (),
    )


def committed_in(cassette: Cassette, home: Path) -> tuple[CommittedSecret, ...]:
    """Return secrets in the content of the repository, each once per file."""
    secrets = Secrets(known_secrets(home, os.environ))
    found: dict[tuple[str, str], CommittedSecret] = {}
    for file, leak in packed(cassette.bundle, secrets, os.environ):
        if leak.certain:
            found.setdefault((file, leak.what), CommittedSecret(file=file, line=leak.line, what=leak.what))
    return tuple(found[key] for key in sorted(found))


def keep_bytes(library: Path) -> None:
    """Turn off git's line-end conversion for a library, unless it has a `.gitattributes`."""
    file = library / ".gitattributes"
    if not file.exists():
        file.write_text("# Every byte of a recording counts: no conversion of line ends.\n* -text\n")


def made_of(log: Reading, run: str, provenance: Provenance, max_age_days: int | None) -> RecordedRun:
    """Return the run as a cassette without its final name. Raises MzError (MZ6003, MZ6004)."""
    sources = sources_of(log.home, os.environ, log.store, log.blobs)
    try:
        return record_run(sources, run, name=run, provenance=provenance, max_age_days=max_age_days)
    except NothingToRecord as error:
        raise MzError("MZ6003", str(error), hint="see `mz status`") from error
    except SecretInRecording as error:
        hint = "remove it from the project and run again; nothing was recorded"
        raise MzError("MZ6004", str(error), hint=hint) from error


def newest(log: Reading) -> str | None:
    """Return the newest run that is not a fork; None if there is none."""
    return next((run for run in log.runs() if fold_run(log.store.read(run_stream(run))).forked is None), None)


def named(cassette: Cassette, name: str) -> Cassette:
    return cassette._replace(manifest=msgspec.structs.replace(cassette.manifest, name=name))


def shown(path: Path) -> str:
    """Return the path relative to the current directory if it is below it."""
    here, there = Path(os.path.realpath(Path.cwd())), Path(os.path.realpath(path))
    return str(there.relative_to(here)) if there.is_relative_to(here) else str(there)


def tell(result: RecordResult, say: Callable[[str], None], aside: Callable[[str], None]) -> None:
    """Print path and content of the cassette, features left out, and committed secrets."""
    features = counted(len(result.features), "feature")
    say(f"{result.cassette}: {result.recordings} recordings of {features}, {result.provenance}")
    for out in result.left_out:
        aside(f"left out: {out.feature}: {out.why}")
    for one in result.committed:
        aside(line(f"{one.file}:{one.line}: {one.what} is committed, and world.bundle contains it; remove it and "
                   "record another run: `mz recordings lint` rejects this one"))  # fmt: skip
