"""The user's own commands: what they see, what comes back, and what is left of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from mz_engine.agents.process import make_missing
from mz_engine.agents.registry import built_in_adapters
from mz_engine.artifacts.command_output import read_cases
from mz_engine.decoding.quantity import Duration
from mz_engine.model.config import SandboxSettings
from mz_engine.ports import SETUP_KEY, CommandResult, FeatureWorktree, Interrupted
from mz_engine.processes import commands
from mz_engine.processes.commands import OUTPUT_BYTES_MAX, ProcessExecutor
from mz_engine.processes.environment import existing_programs, git_directory, sandbox_mounts
from mz_engine.processes.supervise import can_hide, can_run_offline
from mz_events.redaction.redactor import Secrets

from tests.support.processes import DAEMON, WORKTREE, fresh_key, left, python, repository

ENVIRONMENT = {"PATH": os.environ["PATH"], "HOME": "/nowhere", "TOKEN": "hunter2-hunter2", "DATABASE": "local"}


def executor(root: Path, **more: object) -> ProcessExecutor:
    return ProcessExecutor(root, ENVIRONMENT, Secrets({"TOKEN": ENVIRONMENT["TOKEN"]}), **more)  # type: ignore[arg-type]


def run(
    root: Path, command: str, timeout_seconds: int = 30, kept_bytes: int = OUTPUT_BYTES_MAX, **more: object
) -> CommandResult:
    if not (root / ".git").exists():
        repository(root)
    commands = executor(root, **more)
    commands.kept_bytes = kept_bytes
    return commands.run(WORKTREE, command, timeout_seconds, fresh_key())


def test_a_command_line_runs_in_the_worktree(tmp_path: Path) -> None:
    path = repository(tmp_path)
    result = run(tmp_path, "pwd && echo problem >&2; echo end; exit 5")
    assert result.output == f"{path}\nproblem\nend\n".encode()
    assert result.exit == 5
    assert result.duration_ms < 30_000


def test_standard_input_is_empty(tmp_path: Path) -> None:
    assert run(tmp_path, "cat; echo end").output == b"end\n"


def test_secrets_never_come_back(tmp_path: Path) -> None:
    result = run(tmp_path, "echo $TOKEN $DATABASE", passed=("TOKEN", "DATABASE"))
    assert ENVIRONMENT["TOKEN"].encode() not in result.output
    assert result.output.endswith(b" local\n")


def test_other_variables_do_not_go_in(tmp_path: Path) -> None:
    assert run(tmp_path, "echo [$TOKEN$DATABASE]").output == b"[]\n"


def test_tools_do_not_look_for_newer_versions_of_themselves(tmp_path: Path) -> None:
    """What they note in HOME is lost, so they would ask at each command, and a replay would report it."""
    names = "$npm_config_update_notifier $PIP_DISABLE_PIP_VERSION_CHECK"
    assert run(tmp_path, f"echo {names}").output == b"false 1\n"


@pytest.mark.slow
def test_a_command_over_its_time_has_no_exit(tmp_path: Path) -> None:
    result = run(tmp_path, "echo begun; sleep 60", timeout_seconds=1)
    assert result.exit is None
    assert result.output == b"begun\n"


def test_a_signal_is_a_negative_exit(tmp_path: Path) -> None:
    assert run(tmp_path, "kill -SEGV $$").exit == -11


def test_servers_in_the_background_end_with_the_command(tmp_path: Path) -> None:
    repository(tmp_path)
    key = fresh_key()
    command = f"{' '.join(python('')[:4])} '{DAEMON}'; sleep 600 & echo done"
    result = executor(tmp_path).run(WORKTREE, command, 30, key)
    assert (result.exit, result.output) == (0, b"done\n")
    assert not left(key, 0)


@pytest.mark.slow
def test_endless_output_keeps_both_ends(tmp_path: Path) -> None:
    command = "echo first; yes | head -c 3000000; echo; echo last"
    result = run(tmp_path, command, kept_bytes=1000)
    assert result.output.startswith(b"first\ny\n")
    assert result.output.endswith(b"y\n\nlast\n")
    assert b"[mz: 2999012 bytes left out]" in result.output
    assert len(result.output) < 1100


@pytest.mark.parametrize("size", [0, 1, 999, 1000, 1001, 1500, 2000, 2001])
def test_what_is_left_out_is_counted(tmp_path: Path, size: int) -> None:
    data = bytes(65 + index % 26 for index in range(size))
    (repository(tmp_path) / "data").write_bytes(data)
    output = run(tmp_path, "cat data", kept_bytes=1000).output
    missing = max(0, size - 1000)
    gap = f"\n[mz: {missing} bytes left out]\n".encode() if missing else b""
    assert output == data[:500] + gap + data[500:][max(0, len(data[500:]) - 500) :]


def test_a_missing_worktree_is_a_failure_with_words(tmp_path: Path) -> None:
    repository(tmp_path).rmdir()
    result = run(tmp_path, "true")
    assert result.exit == 127
    assert b"not a directory" in result.output


def test_stopping_raises(tmp_path: Path) -> None:
    stop = threading.Event()
    threading.Timer(0.5, stop.set).start()
    with pytest.raises(Interrupted):
        run(tmp_path, "sleep 60", stop=stop)


def test_linked_worktrees_share_one_fence(tmp_path: Path) -> None:
    """`.git` may be a file that leads, in two steps, to the directory that all worktrees share."""
    main, linked = tmp_path / "main", tmp_path / "linked"
    repository(main)
    private = main / ".git" / "worktrees" / "linked"
    private.mkdir(parents=True)
    (private / "commondir").write_text("../..\n")
    linked.mkdir()
    (linked / ".git").write_text(f"gitdir: {private}\n")
    assert git_directory(linked) == git_directory(main) == main / ".git"
    worktree = FeatureWorktree(run="r", feature="f", branch="b")
    hidden = [mount.target for mount in sandbox_mounts(linked, worktree, {}) if mount.kind == "empty"]
    assert sorted(hidden) == [linked, main / ".git"]


def test_objects_that_the_repository_borrows_are_seen(tmp_path: Path) -> None:
    far, near = tmp_path / "far", tmp_path / "near"
    repository(far)
    subprocess.run(["git", "clone", "--quiet", "--shared", str(far), str(near)], check=True)
    worktree = FeatureWorktree(run="r", feature="f", branch="b")
    targets = [mount.target for mount in sandbox_mounts(near, worktree, {}) if mount.kind == "read"]
    assert sorted(targets) == [far / ".git/objects", near / ".git/objects"]


def test_outside_a_repository_there_is_nothing_to_hide(tmp_path: Path) -> None:
    assert sandbox_mounts(tmp_path, FeatureWorktree(run="r", feature="f", branch="b"), {}) == ()


REPORT = """<?xml version="1.0"?><testsuites><testsuite>
<testcase classname="tests.test_a" name="test_{name}"><failure message="no">text</failure></testcase>
<testcase classname="tests.test_a" name="test_ok"/>
</testsuite></testsuites>"""


def test_tests_are_counted_and_failed_ones_named_from_new_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository(tmp_path)
    folder = tmp_path / ".mz" / "worktrees" / WORKTREE.run / WORKTREE.feature
    (folder / "build").mkdir(parents=True)
    (folder / "node_modules").mkdir()
    (folder / "tracked.xml").write_text(REPORT.format(name="tracked"))
    os.utime(folder / "tracked.xml", (2**31, 2**31))  # A checkout, too, has just written it.
    script = f"cat > build/report.xml <<'E'\n{REPORT.format(name='new')}\nE\n"
    script += "cp build/report.xml node_modules/report.xml; echo '<project/>' > build/pom.xml; "
    result = run(tmp_path, f"{script} false")
    assert (result.passed_tests, result.failed_tests) == (("tests.test_a::test_ok",), ("tests.test_a::test_new",))
    result = run(tmp_path, "rm -r build; echo '<testsuite><testcase/><testcase/></testsuite>' > report.xml")
    assert (result.passed_tests, result.failed_tests) == (("", ""), ())
    result = run(tmp_path, "cat report.xml > tracked.xml")
    assert (result.passed_tests, result.failed_tests) == (("", ""), ()), "the command wrote it again"
    monkeypatch.setattr(commands, "REPORTS_BYTES_MAX", 100)
    result = run(tmp_path, "rm *.xml; for n in a b c; do echo '<testsuite><testcase/></testsuite>' > $n.xml; done")
    assert result.passed_tests == ("", ""), "a command cannot keep mz busy with reports for ever"
    result = run(tmp_path, "rm *.xml; echo '<testsuite tests=\"9\"/>' > report.xml")
    assert (result.passed_tests, result.failed_tests, result.coverage) == ((), (), ())
    report = '{"totals": {"covered_lines": 3, "num_statements": 4}}'
    written = f"echo '{report}' > coverage.json; printf 'LF:4\\nLH:2\\n' > lcov.info"
    assert run(tmp_path, written).coverage == (5, 8)


@pytest.mark.parametrize(
    ("data", "cases"),
    [
        (b"<testsuite><testcase name='a'><error/><failure/></testcase></testsuite>", ([], ["a"])),
        (b"<testsuite><testcase name='a'><skipped/></testcase></testsuite>", ([], [])),
        (b"<testsuite><testcase name='a'><skipped/><failure/></testcase></testsuite>", ([], ["a"])),
        (b"<testsuite><testcase name='a'/><error>of the suite</error></testsuite>", (["a"], [])),
        (
            b"<testsuites tests='9' failures='7'><testsuite tests='-1'><testsuite><testcase name='a'/>"
            b"</testsuite><testcase name='b'><system-out/></testcase></testsuite></testsuites>",
            (["a", "b"], []),
        ),
        (b"<testsuite><testcase name='a'><testcase name='b'/></testcase></testsuite>", (["b"], [])),
        (b"<testsuite>" * 100_000 + b"<testcase/>" + b"</testsuite>" * 100_000, ([""], [])),
        (b"<project><testcase name='a'><error/></testcase></project>", ([], [])),
        (b"<!DOCTYPE a [<!ENTITY b 'c'>]><testsuite/>", ([], [])),
        (b"<testsuite>", ([], [])),
        (b"", ([], [])),
    ],
)
def test_reports(data: bytes, cases: tuple[list[str], list[str]]) -> None:
    assert read_cases(data) == cases


@pytest.mark.slow
@pytest.mark.skipif(not can_hide(), reason="no mount namespaces here")
def test_only_what_settings_name_is_changed_in_the_home(tmp_path: Path) -> None:
    root, home = tmp_path / "repo", tmp_path / "home"
    repository(root)
    (home / "cache").mkdir(parents=True)
    environment = {"PATH": os.environ["PATH"], "HOME": str(home)}
    executor = ProcessExecutor(root, environment, Secrets({}), sandbox=SandboxSettings(write=(str(home / "cache"),)))
    result = executor.run(WORKTREE, "touch ~/lost ~/cache/kept && ls ~", 60, fresh_key())
    assert result.output.decode().split() == ["cache", "lost"], "the command sees its own changes"
    assert sorted(path.name for path in home.rglob("*")) == ["cache", "kept"]


def test_programs_are_there_also_in_folders_of_which_a_call_has_its_own(tmp_path: Path, on_disk: Path) -> None:
    folders = [path / "bin" for path in (tmp_path, on_disk)]
    repository(on_disk / "project")
    for number, folder in enumerate(folders):
        folder.mkdir()
        (folder / f"tool{number}").write_text(f"#!/bin/sh\necho {number}\n")
        (folder / f"tool{number}").chmod(0o755)
    path = os.pathsep.join((*map(str, folders), os.environ["PATH"]))
    executor = ProcessExecutor(on_disk / "project", {"PATH": path, "HOME": "/nowhere"}, Secrets({}))
    assert executor.run(WORKTREE, "tool0; tool1", 60, fresh_key()).output == b"0\n1\n"


def test_a_folder_of_path_that_cannot_be_looked_at_is_left_out(tmp_path: Path) -> None:
    path = f"{tmp_path}:{tmp_path}/{'x' * 300}:bin:{tmp_path}/none"
    assert existing_programs({"PATH": path})["PATH"] == f"{tmp_path}:bin"


@pytest.mark.parametrize(("path", "target"), [("~/a", "/h\\1/a"), ("~", "/h\\1"), ("/b~/a", "/b~/a"), ("/a~", "/a~")])
def test_only_a_tilde_in_front_is_the_home(tmp_path: Path, path: str, target: str) -> None:
    repository(tmp_path)
    environment = {"PATH": os.environ["PATH"], "HOME": "/h\\1"}
    executor = ProcessExecutor(tmp_path, environment, Secrets({}), sandbox=SandboxSettings(write=(path,)))
    mounts = {mount.target: mount.kind for mount in executor.launch(("true",), WORKTREE, fresh_key()).mounts}
    assert mounts.get(Path(target)) == "write"


def test_an_agents_own_paths(tmp_path: Path) -> None:
    claude, codex = built_in_adapters()["claude-code"], built_in_adapters()["codex"]
    own = claude.own_paths({"HOME": "/h"})
    assert (own.folders, list(own.files)) == ((Path("/h/.claude"),), [Path("/h/.claude.json")])
    assert {"oauthAccount", "mcpServers"} < {*own.files[Path("/h/.claude.json")]}
    assert (own.logins, own.shared_logins) == ((), (Path("/h/.claude/.credentials.json"),))
    assert Path("/h/.claude/projects") in own.new_folders
    assert own.empty_files == (Path("/h/.claude/history.jsonl"),)
    assert [*claude.own_paths({"HOME": "/h", "CLAUDE_CONFIG_DIR": "/c"}).files][1:] == [Path("/c/.claude.json")]
    own = codex.own_paths({"HOME": "/h", "CODEX_HOME": "c"})
    assert own.folders == (Path("/h/.codex"), Path("/h/c"))
    assert own.logins == (Path("/h/.codex/auth.json"), Path("/h/c/auth.json"))
    assert {Path("/h/c/sessions"), Path("/h/.codex/mz-databases")} < {*own.new_folders}
    make_missing(claude.own_paths({"HOME": str(tmp_path)}))
    (tmp_path / ".claude.json").write_text("kept")
    make_missing(claude.own_paths({"HOME": str(tmp_path)}))
    assert (tmp_path / ".claude.json").read_text() == "kept"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sandbox", "command", "message"),
    [
        (
            SandboxSettings(memory_mb=200),
            f"{sys.executable} -c 'import time; x = bytearray(400_000_000); time.sleep(20)'",
            "200 MB of memory (`sandbox.memory_mb`)",
        ),
        (
            SandboxSettings(processes=20),
            "for i in $(seq 40); do sleep 20 & done; wait",
            "20 processes and threads (`sandbox.processes`)",
        ),
        (
            SandboxSettings(memory_mb=200),
            "head -c 300000000 /dev/zero > /dev/shm/file; sleep 20",
            "200 MB of memory (`sandbox.memory_mb`)",
        ),
    ],
    ids=["memory", "processes", "shared memory"],
)
def test_a_command_that_uses_too_much_is_ended(
    tmp_path: Path, sandbox: SandboxSettings, command: str, message: str
) -> None:
    result = run(tmp_path, command, sandbox=sandbox)
    assert result.exit == -signal.SIGKILL
    assert f"mz: ended, since it used more than {message}" in result.output.decode()


@pytest.mark.slow
def test_memory_that_processes_share_counts_once(tmp_path: Path) -> None:
    share = "import os, time; x = bytearray(150_000_000); [os.fork() for _ in range(2)]; time.sleep(2)"
    assert run(tmp_path, f"{sys.executable} -c '{share}'", sandbox=SandboxSettings(memory_mb=400)).exit == 0


@pytest.mark.slow
def test_files_and_cpu_time_are_limited(tmp_path: Path) -> None:
    sandbox = SandboxSettings(file_size_mb=1, cpu=Duration(1))
    assert run(tmp_path, "ulimit -c", sandbox=sandbox).output == b"0\n"
    assert run(tmp_path, "exec head -c 2000000 /dev/zero > large", sandbox=sandbox).exit == -signal.SIGXFSZ
    spin = run(tmp_path, f"exec {sys.executable} -c 'while True: pass'", sandbox=sandbox)
    assert spin.exit in (-signal.SIGXCPU, -signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.skipif(not can_run_offline(), reason="no network namespaces here")
def test_commands_have_no_network_where_settings_say_so(tmp_path: Path) -> None:
    repository(tmp_path)
    commands = executor(tmp_path, sandbox=SandboxSettings(offline=("commands",)))
    namespace = "readlink /proc/self/ns/net"
    gate, setup = (commands.run(WORKTREE, namespace, 60, key) for key in ("r1/f1/x", "r1/f1/setup/x"))
    here = os.readlink("/proc/self/ns/net").encode()  # noqa: PTH115
    assert setup.output.strip() == here
    assert gate.output.strip() not in (b"", here)
    connect = f"{sys.executable} -c 'import socket; socket.create_connection((\"192.0.2.1\", 9), 1)'"
    refused = commands.run(WORKTREE, connect, 60, "r1/f1/x")
    assert refused.exit == 1
    assert "1 attempts to reach a network failed: `sandbox.offline` in mz.yaml" in refused.output.decode()


@pytest.mark.parametrize(
    ("key", "is_setup"),
    [
        ("r1/login/setup/npm ci", True),
        ("r1/_base/setup/sh tools/setup/install.sh", True),
        ("r1/setup/code/-/1/0/gate.test", False),
        ("r1/login/setup/-/1/0/gate.test", False),
        ("r1/login/code/setup/1/0/gate.test", False),
        ("r1/login/code/-/1/0/gate.setup", False),
    ],
)
def test_only_the_set_up_is_taken_for_the_set_up(key: str, is_setup: bool) -> None:
    assert bool(SETUP_KEY.match(key)) == is_setup
