"""Completion: what real shells and the protocol behind them suggest; looking leaves no trace."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from mz_cli.app.command_table import COMMANDS
from mz_cli.app.completion import SHELLS, SOURCES, suggestions
from mz_cli.app.help import SUGGESTION_KINDS

from tests.cli.drive import MZ, Mz
from tests.cli.stored_run import RUN, StoredRun
from tests.support.programs import finished

SHELL_WORDS = {"bash": "complete -o nosort -F _mz_completion mz", "zsh": "#compdef mz", "fish": "complete --no-files"}


def completed(home: Path, line: str, shell: str = "zsh") -> list[str]:
    """What `mz` answers a shell that completes the last word of the line."""
    args = line.split(" ")
    environment = {
        **os.environ, "_MZ_COMPLETE": f"{shell}_complete", "COMP_WORDS": line,
        "COMP_CWORD": args[-1] if shell == "fish" else str(len(args) - 1),
    }  # fmt: skip
    done = subprocess.run(MZ, cwd=home, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    return lines[1::3] if shell == "zsh" else [value.partition(",")[2] for value in lines]


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_of_each_shell(shell: str, mz: Mz) -> None:
    answer = mz("completion", shell)
    assert (answer.exit, answer.err) == (0, "")
    assert SHELL_WORDS[shell] in answer.out
    assert f"_MZ_COMPLETE={shell}_complete" in answer.out


def test_an_unknown_shell(mz: Mz) -> None:
    assert mz("completion", "tcsh").exit == 2


@pytest.mark.parametrize("shell", [name for name in SHELLS if shutil.which(name)])
def test_real_shells_accept_the_script(shell: str, tmp_path: Path, mz: Mz) -> None:
    script = tmp_path / "completion"
    script.write_text(mz("completion", shell).out)
    done = subprocess.run([shell, "-n", str(script)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


LINES = {
    "mz stat": {"stats", "status"},
    "mz pipelines sh": {"show"},
    "mz show ": {"login", "audit", "export", "later"},
    "mz log --feature lo": {"login"},
    "mz status 2026": {RUN},
    "mz run --auto": {"--autonomy"},
    "mz run --autonomy f": {"full_auto"},
    "mz pipelines show mo": {"monozukuri"},
}


@pytest.mark.slow
def test_a_real_bash_completes(stored_run: StoredRun) -> None:
    """The script is evaluated by bash, and its function called as bash would call it."""
    bin_ = stored_run.home / "bin"
    bin_.mkdir()
    (bin_ / "mz").write_text(f"#!/bin/sh\nexec {MZ[0]} -c '{MZ[2]}' \"$@\"\n")
    (bin_ / "mz").chmod(0o755)
    commands = 'eval "$(mz completion bash)"\n'
    for line in LINES:
        args = line.split(" ")
        commands += f"COMP_WORDS=({shlex.join(args)})\nCOMP_CWORD={len(args) - 1}\nCOMPREPLY=()\n"
        commands += '_mz_completion mz\nprintf "%s " "${COMPREPLY[@]}"\necho\n'
    environment = {**os.environ, "PATH": f"{bin_}:{os.environ['PATH']}"}
    done = finished("bash", "--norc", "-c", commands, cwd=stored_run.home, environment=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert [set(line.split()) for line in done.stdout.splitlines()] == [*LINES.values()]


def test_words_of_each_kind(stored_run: StoredRun, mz: Mz) -> None:
    assert suggestions("runs", "", {}) == [RUN]
    assert suggestions("features", "l", {}) == ["login", "later"]
    assert suggestions("features", "", {"features": ("login", "audit")}) == ["export", "later"]
    assert suggestions("features", "", {"run": "nope"}) == []
    assert suggestions("phases", "", {"feature": "login"}) == ["prd", "code"]
    assert suggestions("phases", "c", {}) == ["code"]
    assert suggestions("phases", "", {"feature": "export"}) == []
    assert suggestions("codes", "MZ2005", {}) == ["MZ2005"]
    assert "monozukuri" in suggestions("pipelines", "", {})
    assert "claude-code" in suggestions("agents", "", {})
    assert suggestions("topics", "exit", {}) == ["exit-codes"]
    assert set(SUGGESTION_KINDS.values()) <= set(SOURCES)


def test_looking_leaves_no_trace(stored_run: StoredRun, tmp_path: Path) -> None:
    stored_run.close()
    before = {path: path.stat().st_mtime_ns for path in stored_run.home.rglob("*")}
    assert suggestions("features", "", {}) == ["login", "audit", "export", "later"]
    assert {path: path.stat().st_mtime_ns for path in stored_run.home.rglob("*")} == before


@pytest.mark.parametrize("content", [None, b"", b"this is no database" * 100])
def test_nothing_is_said_where_nothing_can_be_known(home: Path, content: bytes | None) -> None:
    if content is not None:
        (home / ".mz").mkdir()
        (home / ".mz" / "mz.db").write_bytes(content)
    before = sorted(home.rglob("*"))
    assert suggestions("runs", "", {}) == suggestions("features", "", {}) == []
    assert sorted(home.rglob("*")) == before


@pytest.mark.slow
def test_the_protocol_is_silent_whatever_it_is_asked(stored_run: StoredRun) -> None:
    assert completed(stored_run.home, "mz show lo") == ["login"]
    assert completed(stored_run.home, "mz rerecord lo") == ["lo", "login"], "the first one is a path to complete"
    assert completed(stored_run.home, "mz no-such-command ") == []
    assert completed(stored_run.home, "mz log --no-such-option 20") == [RUN]
    assert completed(stored_run.home, "mz status", shell="csh") == []
    assert completed(stored_run.home, "mz statu", shell="fish") == [f"status\t{COMMANDS['status']}"]
