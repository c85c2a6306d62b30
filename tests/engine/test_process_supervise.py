"""One command under its guard: what goes in, what comes out, its limits, and its end."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from unittest import mock

import pytest
from mz_engine.processes import guard
from mz_engine.processes.supervise import (
    SERVER,
    EndReason,
    Launch,
    Mount,
    ProcessEnd,
    ProcessLimits,
    best_level,
    can_hide,
    kill_by_key,
    supervise,
)

from tests.support.mounts import in_small_filesystem
from tests.support.processes import (
    BOMB,
    DAEMON,
    STUBBORN,
    ReceivedOutput,
    fresh_key,
    left,
    levels,
    python,
    wait_for,
    wait_until_marked,
)
from tests.support.programs import finished
from tests.support.tree import ROOT

pytestmark = pytest.mark.slow

MINUTE = ProcessLimits(total_seconds=60)


def launch(argv: tuple[str, ...], cwd: Path, key: str, **more: object) -> Launch:
    fields: dict[str, object] = {"argv": argv, "cwd": cwd, "env": {"PATH": os.environ["PATH"], "MZ_KEY": key}}
    return Launch(**{**fields, **more})  # type: ignore[arg-type]


def read_only(*paths: Path) -> tuple[Mount, ...]:
    return tuple(Mount(path, "read") for path in paths)


def run(script: str, cwd: Path, bounds: ProcessLimits = MINUTE, **more: object) -> tuple[ProcessEnd, ReceivedOutput]:
    sink = ReceivedOutput()
    ended = supervise(launch(("sh", "-c", script), cwd, fresh_key(), **more), bounds, sink)
    return ended, sink


@pytest.mark.parametrize("level", levels())
def test_output_and_exit_come_through(tmp_path: Path, level: str) -> None:
    sink = ReceivedOutput()
    script = "echo out; echo err >&2; pwd; exit 3"
    ended = supervise(launch(("sh", "-c", script), tmp_path, fresh_key()), MINUTE, sink, level=level)
    assert (ended.reason, ended.exit) == (EndReason.EXITED, 3)
    assert bytes(sink.stdout) == f"out\n{tmp_path}\n".encode()
    assert bytes(sink.stderr) == b"err\n"


def test_programs_in_relative_folders_of_path_are_those_of_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("here", "there"):
        (tmp_path / name / "tools").mkdir(parents=True)
        (tmp_path / name / "tools/tool").write_text(f"#!/bin/sh\necho {name}\n")
        (tmp_path / name / "tools/tool").chmod(0o755)
    (tmp_path / "here/tools/other").symlink_to("tool")
    monkeypatch.chdir(tmp_path / "here")
    variables, sink = {"PATH": "tools", "MZ_KEY": fresh_key()}, ReceivedOutput()
    tool, other = (launch((name,), tmp_path / "there", fresh_key(), env=variables) for name in ("tool", "other"))
    assert supervise(tool, MINUTE, sink).exit == 0
    assert sink.stdout == b"there\n"
    assert supervise(other, MINUTE, ReceivedOutput()).reason is EndReason.MISSING


def test_a_signal_is_a_negative_exit(tmp_path: Path) -> None:
    ended, _ = run("kill -9 $$", tmp_path)
    assert (ended.reason, ended.exit) == (EndReason.EXITED, -9)


def test_a_large_prompt_goes_in_whole_and_ends(tmp_path: Path) -> None:
    prompt = os.urandom(4_000_000)
    ended, sink = run("cat", tmp_path, stdin=prompt)
    assert ended.exit == 0
    assert bytes(sink.stdout) == prompt


def test_a_prompt_that_nobody_reads_harms_nothing(tmp_path: Path) -> None:
    ended, sink = run("exec 0<&-; sleep 0.2; echo done", tmp_path, stdin=b"x" * 1_000_000)
    assert ended.exit == 0
    assert bytes(sink.stdout) == b"done\n"


def test_without_a_prompt_standard_input_is_empty(tmp_path: Path) -> None:
    ended, sink = run("cat; echo end", tmp_path)
    assert bytes(sink.stdout) == b"end\n"
    assert ended.exit == 0


@pytest.mark.parametrize("level", levels())
def test_the_environment_is_exactly_the_given_one(tmp_path: Path, level: str) -> None:
    sink = ReceivedOutput()
    what = Launch(argv=("/usr/bin/env",), env={"MZ_KEY": "k", "ONLY": "this"}, cwd=tmp_path)
    supervise(what, MINUTE, sink, level=level)
    assert sorted(bytes(sink.stdout).split()) == [b"MZ_KEY=k", b"ONLY=this"]


@pytest.mark.parametrize("level", levels())
def test_no_pipe_of_ours_goes_in(tmp_path: Path, level: str) -> None:
    sink = ReceivedOutput()
    program = "import os; print([fd for fd in range(256) if os.path.exists(f'/proc/self/fd/{fd}')])"
    supervise(launch(python(program), tmp_path, fresh_key()), MINUTE, sink, level=level)
    assert bytes(sink.stdout) == b"[0, 1, 2]\n"


@pytest.mark.parametrize(("then", "output"), [("exit 0", b"begin"), ("sleep 0.3; echo end", b"begin end")])
def test_time_in_which_mz_itself_was_stopped_counts_for_no_limit(tmp_path: Path, then: str, output: bytes) -> None:
    """As after Ctrl-Z in a shell: an answer that came meanwhile is read, and a command that still works goes on."""
    stopped = [0.0]
    clock = mock.Mock(wraps=time, monotonic=lambda: time.monotonic() + stopped[0])

    class Sink(ReceivedOutput):
        def out(self, data: bytes) -> None:
            super().out(data)
            stopped[0] += 1000 * (b"begin" in data)

    sink, limits = Sink(), ProcessLimits(total_seconds=60, idle_seconds=30)
    with mock.patch("mz_engine.processes.supervise.time", clock):
        ended = supervise(launch(("sh", "-c", f"echo begin; {then}"), tmp_path, fresh_key()), limits, sink)
    assert (ended.reason, ended.exit) == (EndReason.EXITED, 0)
    assert bytes(sink.stdout).split() == output.split()
    assert ended.duration_ms < 60_000


def test_a_key_at_the_terminal_reaches_us_alone(tmp_path: Path) -> None:
    sink = ReceivedOutput()
    what = launch(python("import os; print(os.getsid(0))"), tmp_path, fresh_key())
    supervise(what, MINUTE, sink, level=guard.SUBREAPER)
    assert int(sink.stdout) != os.getsid(0)


def test_a_slow_listener_still_hears_everything(tmp_path: Path) -> None:
    """The command is long gone when the last of a wide pipe is read."""

    class Slow(ReceivedOutput):
        def out(self, data: bytes) -> None:
            time.sleep(0.1)
            super().out(data)

    widen = 1031  # F_SETPIPE_SZ, which Python 3.11 names on some systems only
    program = f"import fcntl, sys; fcntl.fcntl(1, {widen}, 1 << 20); sys.stdout.write('x' * 900_000)"
    slow = Slow()
    ended = supervise(launch(python(program), tmp_path, fresh_key()), MINUTE, slow)
    assert (ended.exit, len(slow.stdout)) == (0, 900_000)


def test_pipelines_meet_the_usual_signals(tmp_path: Path) -> None:
    """Python ignores SIGPIPE, and an ignored signal would be inherited."""
    ended, sink = run("yes | head -n 1; trap", tmp_path, ProcessLimits(total_seconds=10))
    assert ended.reason is EndReason.EXITED
    assert bytes(sink.stdout) == b"y\n"
    assert not sink.stderr


def test_merged_output_keeps_its_order(tmp_path: Path) -> None:
    _, sink = run("for i in 1 2 3; do echo o$i; echo e$i >&2; done", tmp_path, merge_stderr=True)
    assert bytes(sink.stdout).split() == [b"o1", b"e1", b"o2", b"e2", b"o3", b"e3"]


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    ended = supervise(launch(("no-such-agent",), tmp_path, fresh_key()), MINUTE, ReceivedOutput())
    assert ended.reason is EndReason.MISSING
    assert "no-such-agent" in ended.detail


def test_a_program_that_cannot_be_executed(tmp_path: Path) -> None:
    (tmp_path / "tool").write_text("no interpreter line")
    (tmp_path / "tool").chmod(0o755)
    (tmp_path / "orphan").write_text("#!/no/such/interpreter\n")
    (tmp_path / "orphan").chmod(0o755)
    for name in ("tool", "orphan", "absent"):
        ended = supervise(launch((f"./{name}",), tmp_path, fresh_key()), MINUTE, ReceivedOutput())
        assert (ended.reason, ended.exit) == (EndReason.MISSING, None)


def test_what_could_not_be_started_harms_nobody_with_the_same_key(tmp_path: Path) -> None:
    (tmp_path / "tool").touch(0o755)
    key, ends = fresh_key(), list[ProcessEnd]()
    waiting = launch(("sh", "-c", "until test -e done; do sleep 0.05; done"), tmp_path, key)
    other = threading.Thread(target=lambda: ends.append(supervise(waiting, MINUTE, ReceivedOutput())))
    other.start()
    wait_until_marked(key, 2)
    assert supervise(launch(("./tool",), tmp_path, key), MINUTE, ReceivedOutput()).reason is EndReason.MISSING
    (tmp_path / "done").touch()
    other.join()
    assert [(ended.reason, ended.exit) for ended in ends] == [(EndReason.EXITED, 0)]


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    ended, _ = run("true", tmp_path / "gone")
    assert ended.reason is EndReason.UNSTARTABLE


def test_arguments_too_long_for_the_system(tmp_path: Path) -> None:
    ended = supervise(launch(("true", "x" * 1_000_000), tmp_path, fresh_key()), MINUTE, ReceivedOutput())
    assert ended.reason is EndReason.UNSTARTABLE


def test_the_total_limit_holds_while_output_flows(tmp_path: Path) -> None:
    ended, sink = run(
        "while :; do echo x; sleep 0.05; done", tmp_path, ProcessLimits(total_seconds=0.6, idle_seconds=5)
    )
    assert (ended.reason, ended.exit) == (EndReason.TIMEOUT, -15)
    assert sink.stdout


@pytest.mark.slow
def test_the_idle_limit_counts_from_the_last_byte(tmp_path: Path) -> None:
    script = "for i in 1 2 3 4 5; do echo x; sleep 0.2; done; sleep 60"
    ended, sink = run(script, tmp_path, ProcessLimits(total_seconds=30, idle_seconds=0.6))
    assert ended.reason is EndReason.IDLE
    assert bytes(sink.stdout) == b"x\n" * 5


def test_ending_in_peace_after_our_signal_is_still_our_doing(tmp_path: Path) -> None:
    """Agents answer SIGTERM with success."""
    script = "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done"
    ended, sink = run(script, tmp_path, ProcessLimits(total_seconds=0.6))
    assert (ended.reason, ended.exit) == (EndReason.TIMEOUT, 0)
    assert bytes(sink.stdout) == b"up\nbye\n"


@pytest.mark.slow
@pytest.mark.parametrize("level", levels())
def test_whoever_ignores_the_signal_is_killed_after_the_grace(tmp_path: Path, level: str) -> None:
    key, sink = fresh_key(), ReceivedOutput()
    bounds = ProcessLimits(total_seconds=0.5, grace_seconds=0.3)
    ended = supervise(launch(python(STUBBORN), tmp_path, key), bounds, sink, level=level)
    assert (ended.reason, ended.exit) == (EndReason.TIMEOUT, -9)
    assert not left(key, 0)


@pytest.mark.slow
@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("program", [DAEMON, BOMB, STUBBORN], ids=["daemon", "bomb", "stubborn"])
def test_nothing_outlives_the_command(tmp_path: Path, level: str, program: str) -> None:
    """What it started in the background is gone when `supervise` returns."""
    key = fresh_key()
    script = '"$@" & "$@" & sleep 0.4; echo over'
    sink = ReceivedOutput()
    argv = ("sh", "-c", script, "sh", *python(program))
    ended = supervise(launch(argv, tmp_path, key), MINUTE, sink, level=level)
    assert (ended.reason, ended.exit) == (EndReason.EXITED, 0)
    assert sink.stdout.endswith(b"over\n")
    assert not left(key, 0)


@pytest.mark.slow
@pytest.mark.parametrize("level", [level for level in levels() if level != guard.MARKER])
def test_not_even_without_the_mark(tmp_path: Path, level: str) -> None:
    """A daemon that empties its environment is held by the tree alone."""
    beat = tmp_path / "beat"
    script = f"(setsid env -i sh -c 'while :; do date +%N > {beat}; sleep 0.05; done' &) ; sleep 0.5"
    ended = supervise(launch(("sh", "-c", script), tmp_path, fresh_key()), MINUTE, ReceivedOutput(), level=level)
    assert ended.exit == 0
    last = beat.read_bytes()
    time.sleep(0.3)
    assert beat.read_bytes() == last


def test_without_the_mark_its_group_is_held_by_the_group(tmp_path: Path) -> None:
    beat = tmp_path / "beat"
    script = f"env -i sh -c 'while :; do date +%N > {beat}; sleep 0.05; done' & sleep 0.5"
    supervise(launch(("sh", "-c", script), tmp_path, fresh_key()), MINUTE, ReceivedOutput(), level=guard.MARKER)
    last = beat.read_bytes()
    time.sleep(0.3)
    assert beat.read_bytes() == last


@pytest.mark.parametrize("level", levels())
def test_too_much_output_ends_it(tmp_path: Path, level: str) -> None:
    sink = ReceivedOutput()
    bounds = ProcessLimits(total_seconds=60, output_bytes=1_000_000)
    ended = supervise(launch(("yes",), tmp_path, fresh_key()), bounds, sink, level=level)
    assert ended.reason is EndReason.OUTPUT_LIMIT
    assert len(sink.stdout) <= 1_000_000


def test_another_thread_can_end_it(tmp_path: Path) -> None:
    stop, sink = threading.Event(), ReceivedOutput()
    threading.Timer(0.5, stop.set).start()
    ended = supervise(launch(("sleep", "60"), tmp_path, fresh_key()), MINUTE, sink, stop=stop.is_set)
    assert (ended.reason, ended.exit) == (EndReason.STOPPED, -15)


@pytest.mark.parametrize("level", levels())
def test_a_sink_that_fails_takes_the_tree_with_it(tmp_path: Path, level: str) -> None:
    class Full(ReceivedOutput):
        def out(self, data: bytes) -> None:
            raise OSError(28, "No space left on device")

    key = fresh_key()
    with pytest.raises(OSError, match="No space"):
        supervise(launch(("sh", "-c", "echo x; sleep 600"), tmp_path, key), MINUTE, Full(), level=level)
    assert not left(key, 0)


@pytest.mark.parametrize("level", levels())
def test_a_guard_that_is_killed_takes_its_tree_along(tmp_path: Path, level: str) -> None:
    key, ended = fresh_key(), list[ProcessEnd]()
    what = launch(("sh", "-c", "sleep 600 & exec sleep 600"), tmp_path, key)
    thread = threading.Thread(target=lambda: ended.append(supervise(what, MINUTE, ReceivedOutput(), level=level)))
    thread.start()
    os.kill(min(wait_until_marked(key, 3)), 9)
    thread.join(15)
    assert [process_end.reason for process_end in ended] == [EndReason.LOST]
    assert not left(key, 0)


@pytest.mark.slow
def test_killing_by_the_mark_spares_everybody_else(tmp_path: Path) -> None:
    """Without /proc the same is asked of ps."""
    keys = fresh_key(), fresh_key()
    threads = []
    for key in keys:
        what = launch(("sleep", "600"), tmp_path, key)
        threads.append(
            threading.Thread(target=supervise, args=(what, MINUTE, ReceivedOutput()), kwargs={"level": guard.MARKER})
        )
        threads[-1].start()
    for key in keys:
        wait_until_marked(key, 2)
    assert set(guard.pids_from_ps(keys[0])) == set(guard.pids_from_proc(keys[0]))
    kill_by_key(keys[0])
    threads[0].join(15)
    assert not guard.pids_with_key(keys[0])
    assert len(guard.pids_with_key(keys[1])) >= 2
    kill_by_key(keys[1])
    threads[1].join(15)


@pytest.mark.parametrize("level", levels())
def test_the_repository_is_fenced_where_there_is_a_namespace(tmp_path: Path, level: str) -> None:
    config, hooks = tmp_path / "config", tmp_path / "hooks"
    config.write_text("as it was")
    hooks.mkdir()
    script = "touch free hooks/pre-commit; mv free config"
    what = launch(("sh", "-c", script), tmp_path, fresh_key(), mounts=read_only(config, hooks, tmp_path / "absent"))
    supervise(what, MINUTE, ReceivedOutput(), level=level)
    has_namespace = level in (guard.NAMESPACE, guard.USER_NAMESPACE)
    assert (config.read_text() == "as it was") is has_namespace
    assert (not list(hooks.iterdir())) is has_namespace
    assert (tmp_path / "free").exists() is has_namespace


@pytest.mark.parametrize("level", levels())
def test_only_the_worktree_is_open_in_the_users_checkout(tmp_path: Path, level: str) -> None:
    checkout, worktree = tmp_path / "checkout", tmp_path / "checkout" / ".mz" / "worktree"
    worktree.mkdir(parents=True)
    script = f"touch mine; touch ../../by-relative; touch {checkout}/by-name; mkdir {checkout}/.mz/other"
    what = launch(("sh", "-c", script), worktree, fresh_key(), mounts=(*read_only(checkout), Mount(worktree, "write")))
    supervise(what, MINUTE, ReceivedOutput(), level=level)
    has_namespace = level in (guard.NAMESPACE, guard.USER_NAMESPACE)
    assert (worktree / "mine").exists()
    assert (not (checkout / "by-relative").exists()) is has_namespace
    assert (not (checkout / "by-name").exists()) is has_namespace
    assert (not (checkout / ".mz" / "other").exists()) is has_namespace


@pytest.mark.skipif(not can_hide(), reason="no mount namespaces here")
def test_of_an_empty_place_only_what_is_named_is_seen(tmp_path: Path) -> None:
    """At its own place or at another, and nothing can be made beside it."""
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    for file in (project / "src/secret", project / "lib/known", project / "work/own", elsewhere / "other"):
        file.parent.mkdir(parents=True)
        file.write_text("x")
    mounts = (
        Mount(project, "empty"),
        Mount(project / "lib", "read"),
        Mount(project / "work", "write"),
        Mount(project / "work/deeper/inner", "write", elsewhere),
    )
    script = "cd ..; find . -type f | sort; touch work/mine work/deeper/inner/new; touch beside lib/beside"
    what = launch(("sh", "-c", script), project / "work", fresh_key(), mounts=mounts)
    sink = ReceivedOutput()
    assert supervise(what, MINUTE, sink).exit == 1
    assert sink.stdout.decode().split() == ["./lib/known", "./work/deeper/inner/other", "./work/own"]
    assert (project / "work/mine").exists()
    assert (elsewhere / "new").exists()
    assert not (project / "beside").exists()
    assert not (project / "lib/beside").exists()
    assert (project / "src/secret").exists()


WHERE_NAMESPACES_RUN_OUT = """
import pathlib, sys
from tests.engine.test_process_supervise import MINUTE, ReceivedOutput, fresh_key, launch, supervise
from mz_engine.processes import supervise as module
had = module.best_level()
pathlib.Path("/proc/sys/user/max_pid_namespaces").write_text("0")
ended = supervise(launch(("sh", "-c", "exit 3"), pathlib.Path("/"), fresh_key()), MINUTE, ReceivedOutput())
module.best_level.cache_clear()
print(had, ended.reason.value, ended.exit, module.best_level())
"""


@pytest.mark.slow
def test_a_lower_level_is_not_taken_silently(tmp_path: Path) -> None:
    inside = ["unshare", "--user", "--map-root-user", sys.executable, "-c", WHERE_NAMESPACES_RUN_OUT]
    done = subprocess.run(inside, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lower = guard.LANDLOCK if guard.LANDLOCK in levels() else guard.SUBREAPER
    assert done.stdout == f"namespace broken None {lower}\n"


ON_A_CAREFUL_MOUNT = """
import pathlib, subprocess, sys
from tests.engine.test_process_supervise import MINUTE, ReceivedOutput, fresh_key, launch, levels, read_only, supervise
where = pathlib.Path(sys.argv[1])
subprocess.run(["mount", "-o", "remount,nosuid,nodev,noexec", str(where)], check=True)
(where / "config").write_text("as it was")
for level in [level for level in levels() if "namespace" in level]:
    what = launch(("sh", "-c", "echo x > config"), where, fresh_key(), mounts=read_only(where / "config"))
    supervise(what, MINUTE, ReceivedOutput(), level=level)
    print((where / "config").read_text())
"""


def test_a_careful_mount_can_be_fenced_too(tmp_path: Path) -> None:
    """A user namespace may not drop a mount's `nosuid`, `nodev`, `noexec`."""
    done = in_small_filesystem(tmp_path / "disk", "1m", [sys.executable, "-c", ON_A_CAREFUL_MOUNT])
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.splitlines()) <= {"as it was"}


@pytest.mark.parametrize("level", levels())
def test_process_ids_inside_are_those_of_proc(tmp_path: Path, level: str) -> None:
    sink = ReceivedOutput()
    script = 'read -r pid rest < /proc/self/stat; [ "$$" = "$pid" ] && echo same'
    supervise(launch(("sh", "-c", script), tmp_path, fresh_key()), MINUTE, sink, level=level)
    assert bytes(sink.stdout) == b"same\n"


def test_one_interpreter_start_serves_many_commands(tmp_path: Path) -> None:
    SERVER.stop()
    with mock.patch.object(subprocess, "Popen", wraps=subprocess.Popen) as starts:
        assert [run(f"exit {code}", tmp_path)[0].exit for code in range(20)] == [*range(20)]
    assert starts.call_count == 1


def test_calls_survive_the_death_of_the_server(tmp_path: Path) -> None:
    ended = list[ProcessEnd]()
    what = launch(("sh", "-c", "touch begun; sleep 1; exit 3"), tmp_path, fresh_key())
    thread = threading.Thread(target=lambda: ended.append(supervise(what, MINUTE, ReceivedOutput())))
    thread.start()
    wait_for(tmp_path / "begun")
    process = SERVER._process
    assert process is not None
    process.kill()
    process.wait()
    assert run("exit 4", tmp_path)[0].exit == 4
    thread.join(15)
    assert [process_end.exit for process_end in ended] == [3]


def test_a_guard_shows_no_environment_but_that_of_its_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    SERVER.stop()
    monkeypatch.setenv("NOT_FOR_COMMANDS", "hunter2hunter2")
    assert run("exit 0", tmp_path)[0].exit == 0
    sink = ReceivedOutput()
    supervise(launch(("sh", "-c", "cat /proc/1/environ"), tmp_path, fresh_key()), MINUTE, sink)
    if best_level() in (guard.NAMESPACE, guard.USER_NAMESPACE):
        assert b"hunter2" not in sink.stdout


@pytest.mark.slow
def test_a_copy_of_this_process_has_a_server_of_its_own() -> None:
    """What two processes send through one socket, and what is answered, would be mixed up."""
    program = (
        "import os\nfrom mz_engine.processes.supervise import SERVER, best_level\nbest_level()\n"
        "assert SERVER._socket\nif not os.fork():\n    os._exit(SERVER._socket is not None)\n"
        "assert os.wait()[1] == 0 and SERVER._socket"
    )
    assert finished(sys.executable, "-c", program, cwd=ROOT).stderr == ""


@pytest.mark.parametrize("level", [level for level in levels() if "namespace" in level])
def test_disks_and_terminals_of_the_machine_are_not_there(tmp_path: Path, level: str) -> None:
    """Root could write to a disk without any capability, and a user to the terminals where the user works."""
    ours, theirs = os.openpty()
    terminal = "python3 -c 'import os; print(os.ttyname(os.openpty()[1]))'"
    script = (
        f"echo evil > {os.ttyname(theirs)}; find /dev -type b; ls /dev; head -c 1 /dev/zero | wc -c; {terminal}; "
        "echo x > /dev/null && touch /dev/shm/$PPID && rm /dev/shm/$PPID"
    )
    what = launch(("sh", "-c", script), tmp_path, fresh_key(), read_only=True, mounts=(Mount(tmp_path, "write"),))
    sink = ReceivedOutput()
    assert supervise(what, MINUTE, sink, level=level).exit == 0
    names = "fd full null ptmx pts random shm stderr stdin stdout tty urandom zero"
    assert sink.stdout.decode().split() == [*names.split(), "1", "/dev/pts/0"]
    os.set_blocking(ours, False)
    with pytest.raises(BlockingIOError):
        os.read(ours, 10)
    for number in (ours, theirs):
        os.close(number)


@pytest.mark.skipif(guard.LANDLOCK not in levels(), reason="no Landlock here")
def test_without_mounts_the_same_files_are_there_and_a_folder_for_temporary_ones(on_disk: Path) -> None:
    names = "hidden/kept hidden/secret other private tmp scratch wide/hidden wide/open work"
    for name in names.split():
        (on_disk / name).mkdir(parents=True)
        (on_disk / name / "file").write_text("x")
    mounts = (
        Mount(on_disk / "hidden", "empty"), Mount(on_disk / "tmp", "own"), Mount(on_disk / "hidden/kept", "read"),
        Mount(on_disk / "work", "write"), Mount(on_disk / "work/.git", "write", on_disk / "private"),
        Mount(on_disk / "wide", "write"), Mount(on_disk / "wide/hidden", "empty"),
    )  # fmt: skip
    (on_disk / "link").symlink_to("hidden/secret")
    ours, theirs = os.openpty()
    script = (
        f"for name in link {names}; do "
        "cat $name/file > /dev/null && echo read $name; echo y > $name/file && echo wrote $name; done; "
        "ls / > /dev/null && echo listed; echo evil > $TERMINAL && echo wrote terminal; kill -0 $PID"
    )
    variables = {"PATH": os.environ["PATH"], "PID": str(os.getpid()), "TERMINAL": os.ttyname(theirs)}
    for read_only in (True, False):
        what = launch(
            ("sh", "-c", script), on_disk, fresh_key(), mounts=mounts, scratch=on_disk / "scratch", env=variables,
            read_only=read_only,
        )  # fmt: skip
        sink = ReceivedOutput()
        ended = supervise(what, MINUTE, sink, level=guard.LANDLOCK)
        done = set(sink.stdout.decode().splitlines())
        if read_only:
            assert done == {
                "listed", "read hidden/kept", "read other",
                *(f"read {name}" for name in ("private", "scratch", "wide/open", "work")),
                *(f"wrote {name}" for name in ("private", "scratch", "wide/open", "work")),
            }  # fmt: skip
        else:
            assert {"wrote hidden/secret", "wrote other", "wrote terminal"} <= done, "a command of mz's own"
        assert ended.exit, "no process outside can be signalled"
    for number in (ours, theirs):
        os.close(number)


def by_ordinary_user(program: str) -> subprocess.CompletedProcess[str]:
    """Run the program, at the level user-namespace; the user may read, so that Python can be in root's home."""
    can_read = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")
    as_user = ("setpriv", "--reuid=12345", "--regid=12345", "--clear-groups", *can_read) if os.geteuid() == 0 else ()
    text = (
        "import os, pathlib, sys; from mz_engine.processes.supervise import *; sink = CapturedOutput();"
        f"what = Launch(env={{'PATH': os.environ['PATH']}}, cwd=pathlib.Path('/'), read_only=True, {program});"
        "supervise(what, ProcessLimits(total_seconds=20), sink, level='user-namespace');"
        "print((sink.stdout + sink.stderr).decode())"
    )
    return subprocess.run([*as_user, sys.executable, "-c", text], cwd="/", capture_output=True, text=True, check=False)


@pytest.mark.skipif(guard.USER_NAMESPACE not in levels(), reason="no user namespaces here")
def test_an_ordinary_user_can_discard_output() -> None:
    """In a folder like `/tmp` the kernel refuses to open what another made, if it would be made otherwise."""
    done = by_ordinary_user("argv=('sh', '-c', 'echo x > /dev/null && echo done')")
    assert (done.stdout.split(), done.stderr) == (["done"], "")


@pytest.mark.skipif(guard.USER_NAMESPACE not in levels(), reason="no user namespaces here")
def test_an_ordinary_user_can_delete_folders_in_an_overlay(on_disk: Path) -> None:
    """In a user namespace an overlay needs an option to remember that."""
    for name in ("lower/folder", "scratch"):
        (on_disk / name).mkdir(parents=True)
    (on_disk / "lower/folder/file").touch()
    for path in (on_disk, *on_disk.rglob("*")) if os.geteuid() == 0 else ():
        os.chown(path, 12345, 12345)
    script = f"cd {on_disk}/lower && rm -r folder && mkdir folder && ls folder && echo done"
    mounts = f"mounts=(Mount(pathlib.Path('{on_disk}/lower'), 'overlay'),), scratch=pathlib.Path('{on_disk}/scratch')"
    done = by_ordinary_user(f"argv=('sh', '-c', '{script}'), {mounts}")
    assert (done.stdout.split(), done.stderr) == (["done"], "")
    assert (on_disk / "lower/folder/file").exists()
