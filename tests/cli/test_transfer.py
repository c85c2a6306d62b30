"""`mz log --export` and `--import`: a run arrives at another log as it was sealed, or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from filelock import FileLock
from mz_events.adapters.blobs import FileBlobs
from mz_events.adapters.sqlite_log import SqliteStore
from mz_events.seal import Seal, parse_seals

from tests.cli.damage import blob_path, make_anew
from tests.cli.drive import Mz
from tests.cli.stored_run import RUN, StoredRun
from tests.support.examples import first_of_each

OTHER = "20260302-080000-ffff"
LOGIN = f"run/{RUN}/login"
Lines = list[dict[str, Any]]


@pytest.fixture
def exported(stored_run: StoredRun, mz: Mz) -> Path:
    """A run, written to a file; another run is in the log too."""
    StoredRun(stored_run.home, run=OTHER).begin("login").close()
    stored_run.to_run(stored_run.recorded[-1].event)
    stored_run.close()
    assert mz("log", RUN, "--export", "run.jsonl").exit == 0
    return stored_run.home / "run.jsonl"


@pytest.fixture
def clone(exported: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Another repository, with a log of its own; commands run in it."""
    home = tmp_path_factory.mktemp("clone")
    (home / ".git").mkdir()
    (home / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    StoredRun(home, run="20260303-090000-aaaa").begin("login").close()
    monkeypatch.chdir(home)
    return home


def seal_of(home: Path, mz: Mz) -> Seal:
    return parse_seals(mz("seal", RUN).out)[0][0]


def rewritten(file: Path, change: Callable[[Lines], Lines]) -> str:
    lines = change([msgspec.json.decode(line) for line in file.read_bytes().splitlines()])
    changed = file.with_name("changed.jsonl")
    changed.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    return str(changed)


def test_a_run_arrives_as_it_was(exported: Path, clone: Path, mz: Mz) -> None:
    answer = mz("log", "--import", str(exported))
    assert (answer.exit, answer.out) == (0, f"{RUN} imported\n")
    assert mz("verify").exit == 0
    (sealed,), _ = parse_seals(msgspec.json.decode(exported.read_bytes().partition(b"\n")[0])["seal"])
    assert seal_of(clone, mz).heads == sealed.heads
    (clone / "seal.txt").write_text(sealed.text)
    assert mz("verify", "--against", "seal.txt").exit == 0
    assert mz("audit", RUN).exit == 1
    assert "Let people log in" in mz("show", f"{RUN}/login").out
    assert mz("log", RUN, "--export", "-").out.splitlines()[1:] == exported.read_text().splitlines()[1:]


def test_the_same_run_again_changes_nothing(exported: Path, clone: Path, mz: Mz) -> None:
    mz("log", "--import", str(exported))
    before = (clone / ".mz" / "mz.db").read_bytes()
    assert mz("log", "--import", str(exported)).out == f"{RUN} is here already\n"
    assert (clone / ".mz" / "mz.db").read_bytes() == before
    make_anew(clone, lambda rows: rows[:-1])
    answer = mz("log", "--import", str(exported))
    assert (answer.exit, "is here already, with other events" in answer.err) == (1, True)


def first(lines: Lines, kind: str) -> dict[str, Any]:
    return next(line[kind] for line in lines if kind in line)


def change_event(**values: object) -> Callable[[Lines], Lines]:
    def change(lines: Lines) -> Lines:
        first(lines, "event").update(values)
        return lines

    return change


CHANGES: dict[str, Callable[[Lines], Lines]] = {
    "nothing": lambda lines: [],
    "no seal": lambda lines: lines[1:],
    "a cut end": lambda lines: lines[:-1],
    "an event left out": lambda lines: [line for line in lines if line != lines[20]],
    "an event twice": lambda lines: [*lines, lines[-1]],
    "two events swapped": lambda lines: [*lines[:-2], lines[-1], lines[-2]],
    "a changed time": change_event(recorded_at_us=1),
    "a huge position": change_event(position=2**70),
    "a huge version": change_event(version=2**63),
    "a position that is too high": change_event(position=2**62),
    "a changed chain": change_event(chain="00" * 32),
    "no chain": change_event(chain="zz"),
    "a changed payload": change_event(payload={"type": "run.idle"}),
    "a foreign stream": change_event(stream=f"run/{OTHER}"),
    "a path": change_event(stream=f"run/{RUN}/../../x"),
    "an unknown type": change_event(type="phase.dreamt"),
    "a text left out": lambda lines: [line for line in lines if line.get("blob") != first(lines[::-1], "blob")],
    "a changed text": lambda lines: [{"blob": "AAAA"} if "blob" in line else line for line in lines],
    "an edited seal": lambda lines: [{"seal": lines[0]["seal"].replace(" 43 ", " 42 ")}, *lines[1:]],
    "an unknown field": lambda lines: [*lines, {"program": "rm"}],
    "a number": lambda lines: [*lines, 7],  # type: ignore[list-item]
}


@pytest.mark.parametrize("name", first_of_each(CHANGES, lambda _: None))
def test_what_is_not_as_it_was_sealed_is_not_imported(exported: Path, clone: Path, mz: Mz, name: str) -> None:
    before = mz("runs").out
    answer = mz("log", "--import", rewritten(exported, CHANGES[name]))
    assert (answer.exit in (1, 11), "error[MZ" in answer.err, "MZ1001" in answer.err) == (True, True, False), answer
    assert mz("runs").out == before
    assert mz("verify").exit == 0
    assert {path.name for path in clone.iterdir()} == {".git", ".mz"}
    assert mz("log", "--import", str(exported)).exit == 0


def test_a_killed_import_leaves_nothing(exported: Path, clone: Path, mz: Mz, monkeypatch: pytest.MonkeyPatch) -> None:
    put, calls = FileBlobs.put, list[bytes]()

    def killed(blobs: FileBlobs, data: bytes) -> Any:
        calls.append(data)
        if len(calls) == 10:
            raise KeyboardInterrupt
        return put(blobs, data)

    with monkeypatch.context() as patch:
        patch.setattr(FileBlobs, "put", killed)
        assert mz("log", "--import", str(exported)).exit == 20
    with SqliteStore(clone / ".mz" / "mz.db", read_only=True) as store:
        assert [name for name, _ in store.streams(f"run/{RUN}")] == []
    assert mz("log", "--import", str(exported)).out == f"{RUN} imported\n"


def test_an_erased_text_arrives_as_erased(stored_run: StoredRun, mz: Mz, tmp_path: Path) -> None:
    stored_run.close()
    digest = stored_run.blob("# text")
    assert mz("erase", digest, "--reason", "a name").exit == 0
    assert mz("log", RUN, "--export", str(tmp_path / "run.jsonl")).exit == 0
    shutil.rmtree(tmp_path / ".mz")
    assert mz("log", "--import", str(tmp_path / "run.jsonl")).exit == 0
    assert mz("verify").exit == 0
    assert "was erased: a name" in mz("show", "login", "--artifact", "prd").err


def test_what_was_erased_here_stays_erased(exported: Path, clone: Path, mz: Mz) -> None:
    """Also by a file that is rejected, and although the run in it knows of no erasure."""
    own = StoredRun(clone, run=OTHER).begin("login", title="# text")
    digest = own.blob("# text")
    own.close()
    assert mz("erase", digest, "--reason", "a name").exit == 0
    for file, code in ((rewritten(exported, CHANGES["a cut end"]), 1), (str(exported), 0)):
        assert mz("log", "--import", file).exit == code
        assert not blob_path(clone, digest).exists()
        assert mz("verify", *([RUN] if code == 0 else [])).exit == 0


def test_a_file_that_is_rejected_erases_nothing(stored_run: StoredRun, mz: Mz, tmp_path: Path) -> None:
    stored_run.close()
    assert mz("erase", stored_run.blob("# text"), "--reason", "a name").exit == 0
    assert mz("log", RUN, "--export", str(tmp_path / "run.jsonl")).exit == 0
    shutil.rmtree(tmp_path / ".mz")
    cut = rewritten(tmp_path / "run.jsonl", CHANGES["a changed chain"])
    assert mz("log", "--import", cut).exit == 1
    assert list((tmp_path / ".mz" / "blobs").rglob("*.erased")) == []


def test_a_run_in_progress_is_not_disturbed(exported: Path, clone: Path, mz: Mz) -> None:
    with FileLock(clone / ".mz" / "run.lock"):
        assert mz("log", "--import", str(exported)).exit == 16


@pytest.mark.parametrize("before", [None, "a good file"])
def test_an_export_that_fails_leaves_the_file_as_it_was(stored_run: StoredRun, mz: Mz, before: str | None) -> None:
    blob_path(stored_run.home, stored_run.blob("# text")).unlink()
    stored_run.close()
    file = stored_run.home / "run.jsonl"
    if before is not None:
        file.write_text(before)
    names = {path.name for path in stored_run.home.iterdir()}
    assert mz("log", RUN, "--export", "run.jsonl").exit == 11
    assert {path.name for path in stored_run.home.iterdir()} == names
    assert before is None or file.read_text() == before
    answer = mz("log", RUN, "--export", "no-such-folder/run.jsonl")
    assert (answer.exit, "MZ1007" in answer.err) == (11, True), answer
