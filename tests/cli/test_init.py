"""`mz init`: proposes, never overwrites."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from pathlib import Path

import pytest
from mz_cli.commands.init import Step, write
from mz_engine.backlog.markdown import parse_backlog
from mz_engine.configfile import load_config
from mz_engine.errors import MzError
from syrupy.assertion import SnapshotAssertion

from tests.cli.drive import run, spawn


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    subprocess.run(["git", "init", "--quiet", "--initial-branch=trunk", str(tmp_path)], check=True)
    (tmp_path / "package.json").write_text('{"scripts": {"test": "node --test"}}')
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_first_files(repository: Path, capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion) -> None:
    answer = run(capsys, "init")
    assert (answer.exit, answer.err) == (0, "")
    assert answer.out == snapshot
    loaded = load_config(repository, {}, {})
    assert loaded.config.commands["test"].run == "npm test"
    assert loaded.config.base == "trunk"
    assert len(parse_backlog((repository / "features.md").read_text(), "features.md")) == 1
    assert (repository / ".gitignore").read_text() == ".mz/\n"
    assert json.loads((repository / ".mz/schema/mz.yaml.json").read_text())["title"] == "mz.yaml"
    status = subprocess.run(["git", "status", "--porcelain"], capture_output=True, text=True, check=True).stdout
    assert ".mz" not in status


def test_nothing_is_written_in_a_dry_run(
    repository: Path, capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion
) -> None:
    answer = run(capsys, "init", "--dry-run")
    assert answer.exit == 0
    assert answer.out == snapshot
    assert sorted(path.name for path in repository.iterdir()) == [".git", "package.json"]


def test_what_is_there_stays(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (repository / "mz.yaml").write_text("agent: claude-code\n")
    (repository / "features.md").symlink_to("nowhere.md")
    (repository / ".gitignore").write_bytes(b"target\r\n/.mz/\r\n")
    before = {name: os.lstat(repository / name) for name in ("mz.yaml", "features.md", ".gitignore")}
    answer = run(capsys, "init")
    assert answer.exit == 0
    assert answer.out.count("kept ") == 3
    assert {name: os.lstat(repository / name) for name in before} == before
    assert run(capsys, "init").out.count("kept ") == 4


@pytest.mark.parametrize(
    ("before", "after"),
    [(b"a", b"a\n.mz/\n"), (b"a\n", b"a\n.mz/\n"), (b"a\r\nb", b"a\r\nb\r\n.mz/\r\n"), (b"\xff\n", b"\xff\n.mz/\n"),
     (b"#.mz\n.mz.yaml\n", b"#.mz\n.mz.yaml\n.mz/\n")],
)  # fmt: skip
def test_gitignore_is_completed(
    repository: Path, capsys: pytest.CaptureFixture[str], before: bytes, after: bytes
) -> None:
    (repository / ".gitignore").write_bytes(before)
    run(capsys, "init")
    assert (repository / ".gitignore").read_bytes() == after


def test_an_old_schema_is_renewed(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "init")
    schema = repository / ".mz/schema/mz.yaml.json"
    new = schema.read_bytes()
    schema.write_bytes(b"{}")
    assert "renewed .mz/schema/mz.yaml.json" in run(capsys, "init").out
    assert schema.read_bytes() == new


def test_a_repository_without_tests(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (repository / "package.json").unlink()
    answer = run(capsys, "init")
    assert answer.exit == 0
    assert answer.err.startswith("hint: how this repository is tested was not recognised")


def test_from_a_folder_inside(repository: Path, capsys: pytest.CaptureFixture[str],
                              monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    (repository / "src" / "deep").mkdir(parents=True)
    monkeypatch.chdir(repository / "src" / "deep")
    assert run(capsys, "init").exit == 0
    assert (repository / "mz.yaml").is_file()


def test_a_place_that_cannot_be_written(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (repository / ".mz").write_text("a file where a directory should be")
    answer = run(capsys, "init")
    assert answer.exit == 15
    assert answer.err.startswith("error[MZ1003] ")
    assert stat.S_ISREG((repository / ".mz").stat().st_mode)


def test_outside_of_any_repository(tmp_path: Path) -> None:
    answer = spawn(tmp_path, "init")
    assert answer.exit == 15
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_appears_meanwhile_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "mz.yaml").write_text("mine")
    with pytest.raises(MzError, match="File exists"):
        write(tmp_path, Step("make", "mz.yaml", "", b"theirs"))
    assert (tmp_path / "mz.yaml").read_text() == "mine"
