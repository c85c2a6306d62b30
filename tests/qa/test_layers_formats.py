"""Layer 4: what is stored with mz is read as it was meant, so is a project's own log, and what is not is named."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from importlib.resources import as_file
from pathlib import Path

import msgspec
import pytest
from mz_events.store import StoreUnusable
from mz_qa.conformance.endings import fixtures
from mz_qa.layers.formats import (
    check,
    check_bundled,
    check_project_log,
    check_stored_log,
    differences,
    project_events,
    read_log,
)
from mz_recordings.cassette.files import save
from mz_recordings.cassette.model import FORMAT

from tests.cli.damage import tamper
from tests.cli.stored_run import RUN, StoredRun, tell
from tests.support.gates import checked, findings, project_of, remarks
from tests.support.old_log import write_log
from tests.support.tapes import cassette, recording
from tests.support.tree import ROOT

LOG = ROOT / "qa/mz_qa/fixtures/logs/notes"
Change = Callable[[Path], object]


def test_everything_that_is_stored_is_read(tmp_path: Path) -> None:
    bundled = list(check_bundled(project_of(tmp_path)))
    assert findings(bundled) == []
    counts = checked(bundled)
    assert counts["events of stored logs"] > 100
    assert remarks(list(check(project_of(tmp_path)))) == ["no runs here: .mz/mz.db does not exist"]


def test_the_fixtures_are_in_the_package() -> None:
    with as_file(fixtures()) as folder:
        assert {path.name for path in folder.iterdir()} == {"failures.yaml", "logs"}


# logs -----------------------------------------------------------------------------------------------------------------
def edit(name: str, old: str, new: str) -> Change:
    def change(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new, 1))

    return change


@pytest.mark.parametrize(
    ("change", "text", "detail"),
    [
        (edit("log.jsonl", '"gate.checked","schema":1', '"gate.checked","schema":7'), "cannot be read any more", ""),
        (edit("log.jsonl", '"passed":true', '"passed":"yes"'), "cannot be read any more", ""),
        (edit("log.jsonl", "{", ""), "cannot be read any more", ""),
        (edit("log.jsonl", '"iteration":2', '"iteration":3'), "has other projections than before", "+ .run/"),
        (edit("projections.json", '"status": "delivered"', '"status": "failed"'), "has other projections", '- .run/'),
        (edit("pins.json", '"pipeline":', '"pipelines":'), "cannot be decoded any more", ""),
    ],
)  # fmt: skip
def test_a_stored_log_that_means_something_else(tmp_path: Path, change: Change, text: str, detail: str) -> None:
    shutil.copytree(LOG, tmp_path / "notes")
    assert findings(check_stored_log(tmp_path / "notes")) == []
    change(tmp_path / "notes")
    result = findings(check_stored_log(tmp_path / "notes"))
    assert [entry.kind for entry in result] == ["FORMAT"] * len(result)
    assert any(text in finding.message for finding in result), result
    assert any(line.startswith(detail) for item in result for line in item.detail or ("",))


def test_a_log_is_written_down_and_read_back() -> None:
    events = read_log((LOG / "log.jsonl").read_bytes())
    assert read_log(write_log(events)) == events


def test_what_a_log_means_says_something_of_everybody() -> None:
    meaning = project_events(read_log((LOG / "log.jsonl").read_bytes()))
    (run,) = (name for name in meaning if name.count("/") == 1)
    assert {name.removeprefix(run) for name in meaning} == {"", "/alpha", "/beta"}
    assert [item["status"] for item in meaning[run]["view"]["features"]] == ["delivered", "delivered"]


def test_fields_that_came_later_say_nothing() -> None:
    assert list(differences({"a": [1, {"b": 2}]}, {"a": [1, {"b": 2, "c": 3}], "d": 4})) == []
    assert list(differences({"a": [1], "e": 0}, {"a": [1, 2]})) == ["- .a: [1]", "+ .a: [1,2]", "- .e"]


# cassettes ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("change", "text"),
    [
        (edit("f/prd.json", f'"format": {FORMAT}', f'"format": {FORMAT + 1}'), "use a newer mz"),
        (edit("f/prd.prompt.md", "", "x"), "has another digest"),
        (edit("cassette.yaml", "provenance: ", "provenances: "), "provenance"),
    ],
)
def test_a_cassette_of_the_project_that_cannot_be_read(tmp_path: Path, change: Change, text: str) -> None:
    path = tmp_path / "recordings" / "small"
    path.parent.mkdir()
    save(cassette(recording("1" * 40)), path)
    assert findings(check(project_of(tmp_path))) == []
    change(path)
    (finding,) = findings(check(project_of(tmp_path)))
    assert (finding.kind, finding.file) == ("UNREADABLE", "recordings/small")
    assert text in finding.message
    assert str(tmp_path) not in finding.message


# the project's own log ------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def stored_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    log = tell(tmp_path_factory.mktemp("told"))
    log.close()
    return log.home


@pytest.fixture
def home(stored_log: Path, tmp_path: Path) -> Path:
    """A project with a log in which a run has its pins."""
    shutil.copytree(stored_log / ".mz", tmp_path / ".mz")
    recorded_run = StoredRun(tmp_path)
    pins = recorded_run.blobs.put((LOG / "pins.json").read_bytes())
    recorded_run.close()
    tamper(tmp_path, f"UPDATE event SET payload = json_set(payload, '$.pins', '{pins}') WHERE type = 'run.started'")
    return tmp_path


def test_the_log_of_a_project(home: Path) -> None:
    project_log = list(check_project_log(project_of(home)))
    assert findings(project_log) == []
    assert checked(project_log)["runs"] == 1
    assert checked(project_log)["events of this project"] > 20
    assert checked(project_log)["pins"] == 1


@pytest.mark.parametrize(
    ("statement", "kind", "text"),
    [
        ("UPDATE event SET schema = 9 WHERE type = 'run.idle'", "UNREADABLE", "which this version of mz does not know"),
        ("UPDATE event SET payload = '[]' WHERE type = 'run.idle'", "FORMAT", "is damaged"),
        ("UPDATE event SET payload = json_set(payload, '$.pins', 'ffff') WHERE type = 'run.started'", "FORMAT", RUN),
    ],
)
def test_a_log_that_is_not_understood(home: Path, statement: str, kind: str, text: str) -> None:
    tamper(home, statement)
    (finding,) = findings(check_project_log(project_of(home)))
    assert finding.kind == kind
    assert text in finding.message


def test_pins_of_another_time(home: Path) -> None:
    log = StoredRun(home)
    other = log.blobs.put(b'{"pipeline": {}}')
    log.close()
    tamper(home, f"UPDATE event SET payload = json_set(payload, '$.pins', '{other}') WHERE type = 'run.started'")
    (finding,) = findings(check_project_log(project_of(home)))
    assert "cannot be decoded any more" in finding.message


def test_a_log_that_is_none(tmp_path: Path) -> None:
    (tmp_path / ".mz").mkdir()
    (tmp_path / ".mz" / "mz.db").write_bytes(b"no database" * 1000)
    (finding,) = findings(check_project_log(project_of(tmp_path)))
    assert (finding.kind, finding.fix) == ("FORMAT", "mz audit --verify")
    with pytest.raises((msgspec.DecodeError, StoreUnusable)):
        read_log(b"no log")
