"""Make a cassette of a past run of this repository, for `mz record` and `mz run --record`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote

import msgspec
from mz_engine.decoding.quantity import encode_quantity
from mz_engine.errors.diagnostics import MzError
from mz_engine.pipelines.load import load_pipeline, load_valid_pipeline_files
from mz_engine.ports import RepositoryUnusable
from mz_engine.run.seals import take_seal
from mz_engine.run.settings import load_config
from mz_engine.secrets import project_secrets
from mz_events.catalog.run import RunForked, RunResumed, RunStarted
from mz_events.names import run_stream
from mz_events.redaction.redactor import Secrets
from mz_projections.run.fold import fold_run
from mz_recordings.cassette.files import CassetteExists, CassetteUnreadable, check_vacant, load, save
from mz_recordings.cassette.model import Cassette, Provenance
from mz_recordings.cassette.repository import FixtureUnavailable
from mz_recordings.findings.lint import cassette_secrets
from mz_recordings.findings.model import finding_kinds
from mz_recordings.record.obstacles import ExcludedFeature
from mz_recordings.record.recorder import NothingToRecord, RecordedRun, RecordSources, SecretInRecording, record_run
from mz_recordings.replay.replay import ReplayJob, replay_and_update, without_git_variables
from mz_recordings.rerecord.workspace import weakest_provenance

from mz_cli.app.context import ProjectLog, open_log
from mz_cli.terminal.console import print_note
from mz_cli.terminal.json import Shape, shape_of
from mz_cli.terminal.text import count_noun, single_line

SECRETS_SHOWN_MAX = 5


class RecordResult(Shape, frozen=True, kw_only=True):
    run: str
    cassette: str
    """Path, relative to the current directory where it is below it."""
    pipeline: str
    agent: str
    provenance: str
    """`live`, `scripted-model`, `unknown`, `documented` or `copied`."""
    features: tuple[str, ...]
    recordings: int
    left_out: tuple[ExcludedFeature, ...]
    commands: int
    """Number of results of commands that replays may use, from one replay with processes."""
    differences: tuple[str, ...]
    """Kinds of that replay's findings."""


def library_path(root: Path) -> Path:
    """Return the folder of the repository's cassettes, which may not exist. Raises MzError for the settings."""
    return root / load_config(root, os.environ, {}).config.recordings


def check_recordable(root: Path, flags: Mapping[str, object]) -> None:
    """Check before anything is paid that the run can be recorded. Raises MzError."""
    config = load_config(root, os.environ, flags).config
    pipeline = load_pipeline(config.pipeline, root)[0].pipeline
    cassette_path = root / config.recordings / f"{pipeline}-{config.agent}"
    check_cassette_path(cassette_path, False, "move it, or run without --record and then: mz record --replace")
    material = load_valid_pipeline_files(root)
    made_of = msgspec.json.encode((config, material.templates, material.rules), enc_hook=encode_quantity)
    if secrets := Secrets(project_secrets(root, os.environ)).names_in(made_of):
        message = f"settings, rules or templates contain a secret ({', '.join(secrets)}); the run cannot be recorded"
        raise MzError("MZ6004", message, hint="remove it; no agent was called")


def record_finished_run(run: str) -> None:
    """Record the run that has just stopped, and print the result on stderr. Raises MzError."""
    with open_log() as log:
        print_result(record(log, run, None, False, None, None), print_note)


def check_cassette_path(cassette_path: Path, replace: bool, hint: str) -> None:
    """Raise MzError: MZ6002 if a cassette exists that may not be replaced, MZ6005 if the path is in use otherwise."""
    try:
        check_vacant(cassette_path, replace)
    except CassetteExists as error:
        raise MzError("MZ6002", str(error), hint=hint) from error
    except CassetteUnreadable as error:
        raise MzError("MZ6005", str(error), hint="name another folder with --to") from error


def record(
    log: ProjectLog, run: str, to: Path | None, replace: bool, provenance: Provenance | None, max_age_days: int | None
) -> RecordResult:
    """Record the run, and return the content of the cassette; its default provenance is the run's. Raises MzError
    (MZ6002 to MZ6005)."""
    noted = run_provenance(log, run)
    if provenance == "live" and noted not in ("live", "unknown"):
        raise MzError("MZ1002", f"the run noted {noted}: it cannot be recorded as live", hint="omit --provenance")
    recorded_run = record_cassette(log, run, provenance or noted, max_age_days)
    cassette = recorded_run.cassette
    name = f"{cassette.manifest.pipeline}-{cassette.manifest.agent}"
    cassette_path = to or library_path(log.root) / name
    check_cassette_path(
        cassette_path, replace, f"replace it with --replace, or name another folder: mz record {run} --to DIR"
    )
    changes = {"name": cassette_path.resolve().name, "seal": take_seal(log.store, run).text}
    cassette = cassette._replace(manifest=msgspec.structs.replace(cassette.manifest, **changes))
    reject_secrets(cassette, log.root)
    cassette_path.parent.mkdir(parents=True, exist_ok=True)
    save(cassette, cassette_path, replace)
    if cassette_path.resolve().parent == library_path(log.root).resolve():
        attributes = cassette_path.parent / ".gitattributes"
        if not attributes.exists():
            attributes.write_text("# Every byte of a recording counts: no conversion of line ends.\n* -text\n")
    path, project, environment = str(cassette_path), str(log.root), without_git_variables(os.environ)
    # A replay with processes keeps the results of the commands for later replays.
    replayed = replay_and_update(
        ReplayJob(path=path, project=project, environment=environment, today=datetime.now(UTC), keep=True)
    )
    return shape_of(
        RecordResult,
        cassette.manifest,
        run=run,
        cassette=display_path(cassette_path),
        features=tuple(item.feature for item in cassette.manifest.fixture.items),
        recordings=len(cassette.calls),
        left_out=recorded_run.unrecordable,
        commands=len(load(cassette_path).commands or ()),
        differences=finding_kinds(replayed.findings),
    )


def run_provenance(log: ProjectLog, run: str) -> Provenance:
    """Return the weakest origin of the run's replies, also of those before a fork, as processes of the run noted it."""
    names: list[str] = []
    for recorded in log.store.read(run_stream(run)):
        match recorded.event:
            case RunStarted(provenance=name):
                names.append(name or "unknown")
            case RunResumed(provenance=name) if name:
                names.append(name)
            case RunForked(source=source):
                names.append(run_provenance(log, source))
    return weakest_provenance(*(msgspec.convert(name, Provenance) for name in names))


def reject_secrets(cassette: Cassette, root: Path) -> None:
    """Raise MzError MZ6004 if `mz recordings lint` would find a secret in the cassette."""
    secrets = Secrets(project_secrets(root, os.environ))
    try:
        leaks = tuple(dict.fromkeys(cassette_secrets(cassette, secrets, os.environ)))
    except (OSError, RepositoryUnusable) as error:
        message = "the recorded repository cannot be searched for secrets, so nothing was recorded"
        raise MzError("MZ6004", message, hint=single_line(str(error))) from error
    if leaks:
        places = [f"{file}:{leak.line} contains {leak.description}" for file, leak in leaks[:SECRETS_SHOWN_MAX]]
        if len(leaks) > SECRETS_SHOWN_MAX:
            places.append(f"{len(leaks) - SECRETS_SHOWN_MAX} more")
        hint = "remove it from the project and record another run; treat it as leaked: rotate it; nothing was recorded"
        raise MzError("MZ6004", single_line("; ".join(places)), hint=hint)


@contextmanager
def reject_unusable(path: Path) -> Iterator[None]:
    """Turn errors of an unreadable cassette into MzError MZ6005."""
    try:
        yield
    except (CassetteUnreadable, FixtureUnavailable) as error:
        hint = f"git restore {quote(display_path(path))}, or record it again"
        raise MzError("MZ6005", str(error), hint=hint) from error


def record_cassette(log: ProjectLog, run: str, provenance: Provenance, max_age_days: int | None) -> RecordedRun:
    """Return the run as a cassette without its final name. Raises MzError (MZ6003, MZ6004)."""
    sources = RecordSources(log.root, os.environ, log.store, log.blobs)
    try:
        return record_run(sources, run, name=run, provenance=provenance, max_age_days=max_age_days)
    except NothingToRecord as error:
        raise MzError("MZ6003", str(error), hint="see `mz status`") from error
    except SecretInRecording as error:
        hint = "remove it from the project and run again; nothing was recorded"
        raise MzError("MZ6004", str(error), hint=hint) from error


def newest_run(log: ProjectLog) -> str | None:
    """Return the newest run that is not a fork; None if there is none."""
    return next((run for run in log.runs() if fold_run(log.store.read(run_stream(run))).fork is None), None)


def display_path(path: Path) -> str:
    """Return the path relative to the current directory if it is below it."""
    here, there = Path(os.path.realpath(Path.cwd())), Path(os.path.realpath(path))
    return str(there.relative_to(here)) if there.is_relative_to(here) else str(there)


def print_result(result: RecordResult, print_text: Callable[[str], None]) -> None:
    """Print path and content of the cassette, and features left out."""
    features = count_noun(len(result.features), "feature")
    print_text(f"{result.cassette}: {result.recordings} recordings of {features}, {result.provenance}")
    if result.differences:
        kinds = ", ".join(result.differences)
        print_note(f"its replay differs from the run ({kinds}): mz replay {quote(result.cassette)}")
    print_note(*(f"left out: {item.feature}: {item.reason}" for item in result.left_out))
