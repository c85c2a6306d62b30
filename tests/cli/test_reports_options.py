"""`--junit`, `--sarif`, `--html`, `--github`: where reports go, what refuses them, and what is in none of them."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from xml.etree import ElementTree as Xml

import click
import pytest
from msgspec.structs import replace
from mz_cli.reports.findings import Suite, replay_suites
from mz_cli.reports.options import ReportOptions
from mz_engine.errors.diagnostics import Exit, MzError
from mz_recordings.findings.model import Finding, ReplayResult

from tests.cli.drive import Mz
from tests.support.reports import FAILED

ALL = ReportOptions(files={"junit": "junit.xml", "sarif": "mz.sarif", "html": "mz.html"}, github=True)


@pytest.fixture
def summary(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a step's summary, with something in it; the current directory is a repository."""
    path = home / "summary.md"
    path.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(path))
    return path


# before any work ------------------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("path", ["absent/junit.xml", "README/junit.xml", "/proc/junit.xml", "round/junit.xml", ""])
def test_a_place_where_no_file_can_be_is_refused_before_anything_is_played(path: str, mz: Mz) -> None:
    Path("README").write_text("a file")
    Path("round").symlink_to("round")
    result = mz("replay", "--junit", path)
    assert (result.exit, result.out) == (11, "")
    assert result.err.startswith(f"error[MZ1007] {Path(path)} cannot be written: ")
    assert "hint: name a file in an existing, writable directory" in result.err


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    "args",
    [
        ("--junit", "same", "--html", "./same"), ("--junit", "link/a", "--html", "a"),
        ("--junit", "-", "--sarif", "-"), ("--json", "--sarif", "-"),
    ],
)  # fmt: skip
def test_two_answers_in_one_place_are_refused(args: tuple[str, ...], mz: Mz) -> None:
    Path("link").symlink_to(".")
    result = mz("replay", *args)
    assert result.exit == 2
    assert "two reports have the same destination" in result.err


@pytest.mark.usefixtures("home")
def test_seeing_whether_a_file_can_be_written_leaves_none() -> None:
    ALL.check()
    ReportOptions(files={"html": "-"}).check()
    ReportOptions(files={"html": "/dev/null"}).check()
    assert [path.name for path in Path().iterdir()] == [".git"]
    with pytest.raises(click.UsageError):
        ReportOptions(files={"html": "-"}, as_json=True).check()


@pytest.mark.usefixtures("home")
def test_a_summary_that_cannot_be_written_is_seen_too(monkeypatch: pytest.MonkeyPatch, mz: Mz) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "absent/summary.md")
    assert "MZ1007" in mz("replay", "--github").err
    assert "MZ6001" in mz("replay").err


# writing --------------------------------------------------------------------------------------------------------------
def test_reports_are_written_whole(summary: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("kept.xml").write_text("old")
    Path("junit.xml").symlink_to("kept.xml")
    ALL.write(FAILED.title, FAILED.suites, Exit.DRIFT)
    assert Xml.fromstring(Path("kept.xml").read_text()).get("failures") == "3"
    assert Path("junit.xml").is_symlink()
    assert len(json.loads(Path("mz.sarif").read_text())["runs"][0]["results"]) == 4
    assert Path("mz.html").read_text().startswith("<!doctype html>")
    mask = os.umask(0o022)
    os.umask(mask)
    assert stat.S_IMODE(Path("mz.html").stat().st_mode) == 0o666 & ~mask
    assert summary.read_text().startswith("before\n## ")
    assert capsys.readouterr().out.count("\n::error") + 1 == 4
    here = {path.name for path in Path().iterdir()}
    assert here == {".git", "summary.md", "kept.xml", "junit.xml", "mz.sarif", "mz.html"}


@pytest.mark.usefixtures("home")
def test_a_full_disk_is_said_and_nothing_is_left_behind() -> None:
    with pytest.raises(MzError) as refused:
        ReportOptions(files={"html": "/dev/full"}).write("mz replay", FAILED.suites, Exit.DRIFT)
    assert (refused.value.code, refused.value.exit_code) == ("MZ1007", Exit.PREREQUISITE)
    assert "no space left" in str(refused.value)


@pytest.mark.usefixtures("home")
def test_nothing_is_written_that_nobody_wants(capsys: pytest.CaptureFixture[str]) -> None:
    ReportOptions().write("mz replay", FAILED.suites, Exit.DRIFT)
    assert [path.name for path in Path().iterdir()] == [".git"]
    ReportOptions(files={"junit": "-"}).write("mz replay", FAILED.suites, Exit.DRIFT)
    assert Xml.fromstring(capsys.readouterr().out).tag == "testsuites"


def test_no_report_holds_a_secret_or_a_place_of_this_machine(
    summary: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = summary.parent
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setenv("DEPLOY_TOKEN", "correct-horse-battery")
    key = "sk-ant-api03-" + "Ab1_" * 24
    finding = Finding(
        kind="PROMPT",
        message=f"{home}/recordings/a cannot be read",
        cause="correct-horse-battery",
        feature="f",
        call="c",
        detail=(f"+ see /home/somebody/notes, key {key}", f"- {home}"),
        fix=f"cd {home} && mz replay",
        file=f"{home}/mz.yaml",
    )
    suite = Suite(
        name="a", path="recordings/a", findings=(finding,), properties=(("where", str(home)),), cases=(str(home),)
    )
    ALL.write("mz replay", (suite,), Exit.DRIFT)
    texts = [capsys.readouterr().out, summary.read_text()]
    texts += [Path(name).read_text() for name in ("junit.xml", "mz.sarif", "mz.html")]
    for text in texts:
        assert "f/c" in text.replace("&#47;", "/")
        for secret in (str(home), "/home/somebody", "correct-horse-battery", key):
            assert secret not in text
            assert secret not in text.replace("&#47;", "/").replace("&#45;", "-")
    assert '"uri": "mz.yaml"' in Path("mz.sarif").read_text()


def test_cassettes_elsewhere_are_known_by_their_name(home: Path) -> None:
    played = ReplayResult(
        path="recordings/a", name="a", calls=("f/code",), trace_digests={"f": "0" * 64}, changes=("x",)
    )
    (suite,) = replay_suites((played,), home)
    paths = ("recordings/a", f"{home}/recordings/a", "/elsewhere/b")
    suites = replay_suites((replace(played, path=path) for path in paths), home)
    assert [suite.path for suite in suites] == ["recordings/a", "recordings/a", "b"]
    assert suite.cases == ("f/code", "f")
    assert dict(suite.properties)["updated"] == "x"


# the page for people --------------------------------------------------------------------------------------------------
def test_nothing_on_the_page_is_a_command_of_the_runner(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        with ReportOptions(github=True).text_stream() as stream:
            stream.write("::error::not mine\n")
    lines = capsys.readouterr().out.splitlines()
    token = lines[0].removeprefix("::stop-commands::")
    assert len(token) == 32
    assert lines[1:3] == ["::error::not mine", f"::{token}::"]
    assert lines[3] != lines[0]


def test_nothing_beside_json_or_in_a_report_on_stdout_is_a_command_of_the_runner(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ReportOptions(github=True, as_json=True).text_stream():
        print("{}")
    reported = capsys.readouterr()
    assert reported.out == "{}\n"
    begun, ended = reported.err.splitlines()
    assert ended == f"::{begun.removeprefix('::stop-commands::')}::"

    options = ReportOptions(files={"junit": "-"}, github=True)
    options.write("mz replay", FAILED.suites, Exit.DRIFT)
    reported = capsys.readouterr()
    assert Xml.fromstring(reported.out).tag == "testsuites"
    begun, ended, *annotations = reported.err.splitlines()
    assert ended == f"::{begun.removeprefix('::stop-commands::')}::"
    assert len([line for line in annotations if line.startswith("::")]) == 4


def test_the_page_makes_room_for_a_report(capsys: pytest.CaptureFixture[str]) -> None:
    with ReportOptions(files={"sarif": "-"}).text_stream() as stream:
        stream.write("page\n")
    with ReportOptions(files={"sarif": "file"}).text_stream() as stream:
        stream.write("other page\n")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("other page\n", "page\n")
