"""`mz recordings list` and `mz recordings lint`: what they print, for people and for programs, and their exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import replace
from mz_cli.recordings.library import CassetteLine, age_text, cassette_line, render_text, summary
from mz_cli.terminal.text import format_size, plain_text
from mz_recordings.cassette.files import digest, save
from mz_recordings.cassette.model import RecordedCall
from mz_recordings.findings.lint import LintNotice, LintResult
from mz_recordings.findings.model import Finding
from syrupy.assertion import SnapshotAssertion

from tests.cli.drive import MZ, Mz
from tests.support.big_library import big_library
from tests.support.gitrepo import GitRepo
from tests.support.tapes import cassette, recording

SECRET = Finding(
    kind="SECRET",
    message="the file contains the value of SHOP_TOKEN",
    detail=("  column 3",),
    file="lib/a b/f/prd.patch",
    line=7,
    fix="mz rerecord {cassette} --all",
)
STRAY = Finding(kind="UNUSED", message="x is not part of the cassette", file="lib/a b/x", fix="rm 'lib/a b/x'")
RESULTS = (
    LintResult(
        path="lib/a b", format=2, recordings=3, files=9, size_bytes=12_345, findings=(SECRET, STRAY),
        notices=(LintNotice(message="an e-mail address", file="f/prd.stderr", line=1, column=9),),
    ),
    LintResult(path="lib/c", format=2, recordings=1, files=4, size_bytes=2_000_000),
)  # fmt: skip
WORD = "a-word-that-nobody-knows"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one cassette in the library that its settings name."""
    GitRepo(tmp_path).commit({"mz.yaml": "recordings: tapes\n"})
    (tmp_path / "tapes").mkdir()
    save(cassette(recording("1" * 40)), tmp_path / "tapes" / "small")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_page(snapshot: SnapshotAssertion) -> None:
    assert "\n".join(plain_text(line) for line in render_text(RESULTS)) == snapshot


def test_numbers() -> None:
    assert summary(RESULTS[1:]) == "1 cassette, 1 recording, 4 files, 2.0 MB: no findings"
    assert (format_size(999), format_size(1_500), format_size(3_200_000_000)) == ("999 B", "1.5 kB", "3.2 GB")


@pytest.mark.parametrize(("days", "limit", "text"), [(None, None, "-"), (3, None, "3 d"), (3, 90, "3 of 90 d")])
def test_ages(days: int | None, limit: int | None, text: str) -> None:
    line = CassetteLine(
        path="a", name=None, pipeline=None, agent=None, provenance=None, recordings=0, features=(), recorded=None,
        age_days=days, max_age_days=limit, format=None, size_bytes=0, problem=None,
    )  # fmt: skip
    assert age_text(line) == text


def test_what_a_cassette_lacks_is_its_problem(project: Path) -> None:
    folder = project / "tapes" / "small"
    for name in ("f/prd.patch", "cassette.yaml"):
        (folder / name).unlink()
        assert name in (cassette_line(folder, datetime.now(UTC)).problem or "")


@pytest.mark.usefixtures("project")
def test_a_library_is_listed(mz: Mz) -> None:
    result = mz("recordings", "list")
    heads, row = (line.split("\t") for line in result.out.splitlines())
    assert heads[:5] == ["cassette", "pipeline", "agent", "provenance", "recordings"]
    assert row[:5] == ["tapes/small", "monozukuri", "claude-code", "scripted-model", "1"]
    document = json.loads(mz("recordings", "list", "tapes/small", "--json").out)
    assert (document["schema"], document["exit"], document["library"]) == ("mz.recordings-list/1", 0, ["tapes/small"])
    (item,) = document["cassettes"]
    assert (item["name"], item["recorded"]) == ("small", "2026-06-01T10:00:00Z")
    assert (item["format"], item["problem"]) == (3, None)


def test_a_damaged_one_is_listed_too(project: Path, mz: Mz) -> None:
    (project / "tapes" / "small" / "f" / "prd.patch").unlink()
    result = mz("recordings", "list")
    assert result.exit == 125
    assert result.out.splitlines()[1].endswith("f/prd.patch is missing")


def test_nothing_to_list_is_no_error_and_nothing_to_look_through_is_one(project: Path, mz: Mz) -> None:
    (project / "mz.yaml").write_text("recordings: elsewhere\n")
    assert mz("recordings", "list").exit == 0
    refused = mz("recordings", "lint")
    assert (refused.exit, "MZ6001" in refused.err) == (4, True)


@pytest.mark.slow
def test_a_secret_is_found_and_not_shown(project: Path, mz: Mz, monkeypatch: pytest.MonkeyPatch) -> None:
    assert mz("recordings", "lint").exit == 0
    (project / "tapes" / "small" / "notes.txt").write_text(f"\n{WORD}\n")
    stray = mz("recordings", "lint")
    assert (stray.exit, "UNUSED notes.txt is not part of the cassette" in stray.out) == (4, True)
    monkeypatch.setenv("SHOP_TOKEN", WORD)
    result = mz("recordings", "lint")
    assert result.exit == 5
    assert "tapes/small/notes.txt:2:1: SECRET the file contains the value of SHOP_TOKEN\n" in result.out
    document = json.loads(mz("recordings", "lint", "--json").out)
    assert (document["schema"], document["exit"]) == ("mz.recordings-lint/1", 5)
    secret = document["cassettes"][0]["findings"][0]
    assert (secret["kind"], secret["file"], secret["line"]) == ("SECRET", "tapes/small/notes.txt", 2)
    assert WORD not in result.out + json.dumps(document)


MEASURED = (
    "import resource, subprocess, sys\n"
    "subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)\n"
    "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
)
"""By a small process: a child begins with the peak of the one that forked it."""


@pytest.mark.slow
@pytest.mark.parametrize("value", ["list", "lint"])
def test_a_large_library_is_never_in_memory_as_a_whole(project: Path, value: str) -> None:
    """30 cassettes of 2 MB each."""
    made = large(recording("1" * 40))
    save(cassette(made), project / "one")
    big_library(project / "tapes", project / "one", 30)
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", MEASURED, *MZ, "recordings", value],
        cwd=project, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert int(done.stdout) < 80_000, "kilobytes"


def large(made: RecordedCall) -> RecordedCall:
    """The same with an answer of 2 MB."""
    file = made.recording.find("stdout")
    assert file is not None
    data = made.contents[file.name] * 4000
    new = replace(file, sha256=digest(data))
    files = tuple(new if item is file else item for item in made.recording.files)
    return RecordedCall(replace(made.recording, files=files), {**made.contents, file.name: data})
