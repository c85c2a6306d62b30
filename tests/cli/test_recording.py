"""What is told when a cassette is made, and that no cassette is written over what another process made of it."""

from __future__ import annotations

import io
import os
import sys
from base64 import b64encode
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from msgspec.structs import replace
from mz_cli.app.context import ProjectLog
from mz_cli.common.recording import record, reject_secrets, run_provenance
from mz_cli.recordings.rerecord import ALL, CHANGED_MEANWHILE, RerecordOptions, write_or_hold
from mz_cli.recordings.rerecord_text import RerecordedCassette
from mz_engine.errors.diagnostics import MzError
from mz_events.adapters.memory import MemoryStore
from mz_events.catalog.run import RunForked, RunResumed, RunStarted
from mz_events.names import Commit, Digest, FeatureId, RunId, run_stream
from mz_events.store import Append
from mz_recordings.cassette.files import load, overwrite, save
from mz_recordings.cassette.model import Cassette
from mz_recordings.cassette.repository import create_bundle
from mz_recordings.rerecord.workspace import pending_path

from tests.support.gitrepo import GitRepo
from tests.support.tapes import cassette, recording

KEY = "ghp_" + "aB3dE6gH9j" * 4
OLD = cassette(recording("1" * 40))
NEW = cassette(recording("1" * 40, duration_ms=700, exit=1))
STARTED = RunStarted(
    run=RunId("r1"), pipeline="p", base="main", base_commit=Commit("b" * 40), pins=Digest("a" * 64), mz_version="1"
)
ACCEPTED = RerecordOptions(accept=(ALL,))


# provenance -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("notes", "provenance"),
    [
        (("",), "unknown"),
        (("live",), "live"),
        (("live", "", "live"), "live"),
        (("live", "unknown"), "unknown"),
        (("scripted-model", "live"), "scripted-model"),
    ],
)
def test_the_provenance_is_the_weakest_that_a_process_noted(notes: tuple[str, ...], provenance: str) -> None:
    store = MemoryStore()
    started = replace(STARTED, provenance=notes[0])
    resumed = (RunResumed(mz_version="1", provenance=note) for note in notes[1:])
    store.append([Append(run_stream("r1"), 0, (started, *resumed))], 1)
    forked = RunForked(source=RunId("r1"), feature=FeatureId("a"), version=1)
    store.append([Append(run_stream("r2"), 0, (replace(STARTED, provenance="live"), forked))], 2)
    log = cast(ProjectLog, SimpleNamespace(store=store))
    assert run_provenance(log, "r1") == run_provenance(log, "r2") == provenance


def test_what_a_substitute_answered_is_never_recorded_as_live() -> None:
    store = MemoryStore()
    store.append([Append(run_stream("r1"), 0, (replace(STARTED, provenance="scripted-model"),))], 1)
    log = cast(ProjectLog, SimpleNamespace(store=store))
    with pytest.raises(MzError, match="the run noted scripted-model: it cannot be recorded as live") as caught:
        record(log, "r1", None, False, "live", None)
    assert caught.value.code == "MZ1002"


# what lint would find -------------------------------------------------------------------------------------------------
def test_a_committed_key_stops_the_recording_and_is_not_shown(tmp_path: Path) -> None:
    repository = GitRepo(tmp_path / "shop")
    repository.commit({"settings.py": f"A = 1\nKEY = {KEY!r}\nAGAIN = {KEY!r}\n", "authors": "ann@shop.de"})
    repository.commit({"caf\udce9.py": f"KEY = {KEY!r}\n#\n"})
    head = Commit(repository.git("rev-parse", "HEAD"))
    made = cassette()._replace(bundle=create_bundle(repository.root, os.environ, head, {}))
    with pytest.raises(MzError) as caught:
        reject_secrets(made, repository.root)
    assert caught.value.code == "MZ6004"
    assert "repository.bundle:caf\\xe9.py:1 contains what looks like a secret (github-token)" in str(caught.value)
    assert "repository.bundle:settings.py:2 contains" in str(caught.value)
    assert KEY not in repr(caught.value)


def test_a_secret_in_any_file_of_the_cassette_stops_the_recording(tmp_path: Path) -> None:
    made = cassette(recording("1" * 40))
    (call, *_) = made.calls
    leaky = {name: data + b64encode(f"it is {KEY}, they say".encode()) for name, data in call.contents.items()}
    reject_secrets(made, tmp_path)
    with pytest.raises(MzError, match="in base64"):
        reject_secrets(made._replace(calls=(call._replace(contents=leaky),)), tmp_path)


def test_what_cannot_be_searched_is_not_recorded(tmp_path: Path) -> None:
    with pytest.raises(MzError, match="cannot be searched"):
        reject_secrets(cassette()._replace(bundle=b"no bundle"), tmp_path)


# meanwhile ------------------------------------------------------------------------------------------------------------
class Meddler(io.StringIO):
    """Somebody else writes the cassette while the differences are shown."""

    def __init__(self, folder: Path, other: Cassette) -> None:
        super().__init__()
        self._place, self._other = folder, other

    def write(self, text: str) -> int:
        if load(self._place) != self._other:
            overwrite(self._other, self._place)
        return super().write(text)


def test_what_was_changed_while_it_was_reviewed_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "small"
    save(OLD, path)
    other = OLD._replace(manifest=replace(OLD.manifest, max_age_days=9))
    stderr = Meddler(path, other)
    monkeypatch.setattr(sys, "stderr", stderr)
    done = write_or_hold(path, OLD, NEW, {}, ACCEPTED, RerecordedCassette(path="small"))
    assert stderr.getvalue(), "something differs"
    assert (done.rejected, done.written) == ((CHANGED_MEANWHILE,), False)
    assert load(path) == other
    assert load(pending_path(path)) == NEW


def test_what_nobody_changed_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "small"
    save(OLD, path)
    done = write_or_hold(path, OLD, NEW, {}, ACCEPTED, RerecordedCassette(path="small"))
    assert (done.rejected, done.written) == ((), True)
    assert load(path) == NEW
