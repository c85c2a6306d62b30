"""The command itself: what it imports, how it helps, and how it fails."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import click
import msgspec
import pytest
from mz_cli.app.command_table import COMMANDS
from mz_cli.app.failures import run_guarded, write_crash
from mz_cli.app.help import CommandPage
from mz_cli.main import mz as root_command
from syrupy.assertion import SnapshotAssertion

from tests.cli.drive import MZ, Mz, on_terminal, run, spawn
from tests.cli.stored_run import StoredRun

HEAVY = ("sqlalchemy", "rich", "jinja2", "mz_engine.pricing.data", "markdown_it", "msgspec", "yaml", "sqlite3")


@pytest.mark.parametrize("args", [("--version",), ("--help",), ("nonsense",)])
def test_nothing_heavy_is_imported_before_a_command_is_used(tmp_path: Path, args: tuple[str, ...]) -> None:
    script = (
        "import sys; from mz_cli.main import mz\n"
        "try: mz.main(sys.argv[1:], standalone_mode=False)\n"
        "except Exception: pass\n"
        f"print('loaded:', [name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([MZ[0], "-c", script, *args], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert done.stdout.endswith("loaded: []\n")


def test_version(mz: Mz) -> None:
    answer = mz("--version")
    assert (answer.exit, answer.err) == (0, "")
    assert answer.out.startswith("mz 0.")


def test_help_of_the_command(mz: Mz, snapshot: SnapshotAssertion) -> None:
    answer = mz("--help")
    assert answer.exit == 0
    assert answer.out == snapshot
    assert mz().out == answer.out


@pytest.mark.parametrize("name", list(COMMANDS))
def test_help_of_each_command(mz: Mz, snapshot: SnapshotAssertion, name: str) -> None:
    answer = mz(name, "--help")
    assert answer.exit == 0
    assert answer.out == snapshot
    assert answer.out.index("Examples:") < answer.out.index("Options:") < answer.out.index("Next:")


@pytest.mark.parametrize("name", list(COMMANDS))
def test_summaries_are_the_commands_own(name: str) -> None:
    """`mz --help` shows them without importing the commands, so they stand in two places."""
    page = root_command.get_command(click.Context(root_command), name)
    assert isinstance(page, CommandPage)
    assert (page.help or "").splitlines()[0] == COMMANDS[name]
    assert page.examples
    assert page.next_command


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("reviw",), "there is no command 'reviw'; did you mean `review`?"),
        (("zzz",), "there is no command 'zzz'\n"),
        (("status", "--jsn"), "no such option --jsn; did you mean --json?\nhint: see `mz status --help`\n"),
        (("cancel", "--featur"), "see `mz cancel --help`; its options: --message, --json"),
        (("log", "--xyz"), "its options: --all, --since, --type, -n, --follow, --at,"),
        (("status", "a", "b"), "unexpected extra argument"),
        (("--nonsense",), "no such option --nonsense"),
        (("show", "x", "--format", "tsv"), "no such option --format\nhint: see `mz show --help`; its options:"),
        (("completion",), "missing argument '{bash|zsh|fish}'. Choose from: bash, zsh, fish\n"),
        (("schema",), "Choose from: config, pipeline, events, tasks, commit_summary, verdict, block"),
        (("run", "-j", "0"), "0 is not in the range 1<=x<=64"),
        (("run", "-j", "99"), "99 is not in the range 1<=x<=64"),
    ],
)
def test_wrong_use(mz: Mz, args: tuple[str, ...], message: str) -> None:
    answer = mz(*args)
    assert (answer.exit, answer.out) == (2, "")
    assert answer.err.startswith("error[MZ1002] ")
    assert message in answer.err
    assert "hint: see `mz" in answer.err


def test_errors_are_objects_where_json_is_asked_for(home: Path, mz: Mz) -> None:
    answer = mz("status", "--json")
    summary = msgspec.json.decode(answer.err)
    assert (answer.exit, answer.out) == (2, "")
    assert (summary["schema"], summary["code"], summary["exit"]) == ("mz.error/1", "MZ5001", 2)


def test_outside_of_any_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                   mz: Mz) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    answer = mz("status")
    assert answer.exit == 15
    assert "is not in a git repository" in answer.err


def test_a_bug_is_reported_with_its_traceback_in_a_file(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def broken() -> None:
        raise ZeroDivisionError("by \x1b[31mzero")

    (home / ".mz").mkdir()
    assert run_guarded(broken, ["run", "--json"]) == 70
    summary = msgspec.json.decode(capsys.readouterr().err)
    assert summary["code"] == "MZ1001"
    assert "Traceback" not in summary["message"]
    (trace,) = (home / ".mz").glob("crash-*.txt")
    assert str(trace) in summary["hint"]
    assert "in broken" in trace.read_text()
    assert trace.stat().st_mode & 0o077 == 0


def test_a_traceback_that_can_be_written_nowhere(tmp_path: Path) -> None:
    assert write_crash("text", (tmp_path / "missing", tmp_path / "missing too")) is None


@pytest.mark.parametrize("raised", [KeyboardInterrupt(), click.Abort()])
def test_stopped_by_the_user(capsys: pytest.CaptureFixture[str], raised: BaseException) -> None:
    def stopped() -> None:
        raise raised

    assert run_guarded(stopped, []) == 20
    assert capsys.readouterr().err == "stopped\n"
    assert run_guarded(stopped, ["replay", "--bisect"]) == 125


def test_a_closed_stdout_is_no_failure_and_no_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    def closed() -> None:
        raise BrokenPipeError

    assert (run_guarded(closed, ["log"]), run_guarded(closed, ["replay", "--bisect"])) == (0, 125)


@pytest.mark.slow
def test_ctrl_c_ends_a_following_log(home: Path) -> None:
    log = StoredRun(home).begin("login")
    log.close()
    child = subprocess.Popen(
        [*MZ, "log", "--follow"], cwd=home, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert "run.started" in child.stdout.readline()
    time.sleep(0.3)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=30)
    assert (child.returncode, err) == (20, "stopped\n")


@pytest.mark.slow
def test_a_reader_that_has_gone_is_no_failure(stored_run: StoredRun) -> None:
    ends, theirs = os.pipe()
    os.close(ends)
    done = subprocess.run(
        [*MZ, "log", "--json"], cwd=stored_run.home, stdout=theirs, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(theirs)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("args", [("status",), ("status", "--json"), ("show", "login"), ("log",), ("--help",)])
@pytest.mark.slow
def test_an_answer_that_does_not_fit_is_a_failure(stored_run: StoredRun, args: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*MZ, *args], cwd=stored_run.home, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 11
    assert "the output cannot be written: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_text_that_the_encoding_lacks_is_escaped(home: Path) -> None:
    log = StoredRun(home).begin("login", title="Grüße 🎉")
    log.close()
    answer = spawn(home, "status", PYTHONIOENCODING="ascii")
    assert answer.exit == 0
    assert "Gr\\xfc\\xdfe \\U0001f389" in answer.out


@pytest.mark.parametrize("columns", [1, 20, 40])
def test_help_on_narrow_terminals(tmp_path: Path, columns: int) -> None:
    assert "mz init && mz run" in on_terminal(tmp_path, "--help", columns=columns)


def test_a_damaged_log_is_told_in_words(home: Path, mz: Mz) -> None:
    (home / ".mz").mkdir()
    (home / ".mz" / "mz.db").write_bytes(b"this is no database" * 100)
    answer = mz("status")
    assert answer.exit == 11
    assert answer.err.startswith("error[MZ1006] ")


def test_files_that_are_in_the_way_are_no_bug(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "file").touch()
    assert run_guarded((home / "file").mkdir, []) == 11
    assert f"{home / 'file'} cannot be used: File exists" in capsys.readouterr().err
    (home / ".mz").touch()
    assert run(capsys, "run").exit == 11


def test_all_commands_are_listed_by_the_topic_all(mz: Mz) -> None:
    first, everything = mz("--help").out, mz("help", "all").out
    assert all(f"  {name} " in everything for name in COMMANDS)
    assert sum(f"\n  {name} " in first for name in COMMANDS) == 12
