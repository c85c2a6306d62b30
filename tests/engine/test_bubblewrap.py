"""How a plan of mounts is given to bubblewrap."""

from __future__ import annotations

from pathlib import Path

import pytest
from mz_engine.processes import bubblewrap, guard
from mz_engine.processes.bubblewrap import in_bubblewrap
from mz_engine.processes.home import confine
from mz_engine.processes.supervise import CapturedOutput, EndReason, Launch, Mount, ProcessEnd, ProcessLimits, supervise

from tests.support.processes import levels


def options_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_overlays: bool) -> list[str]:
    """Those after the fixed ones, with `tmp_path` as `/t`."""
    for name in ("checkout", "home/agent", "work", "scratch", "temporary", "kept", "home/hidden"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "home/secret").touch()
    monkeypatch.setattr(bubblewrap, "find_bubblewrap", lambda: ("/usr/bin/bwrap", has_overlays))
    mounts = (
        Mount(tmp_path / "checkout", "empty"), Mount(tmp_path / "checkout/file", "empty"),
        Mount(tmp_path / "home", "overlay"),
        Mount(tmp_path / "work", "write"), Mount(tmp_path / "work/.git", "write", tmp_path / "private"),
        Mount(tmp_path / "tools", "read"), Mount(tmp_path / "home/agent", "kept", tmp_path / "kept"),
        Mount(tmp_path / "home/agent.json", "write", tmp_path / "copy"), Mount(tmp_path / "temporary", "own"),
    )  # fmt: skip
    launch = Launch(
        argv=("sh", "-c", "x"), env={}, cwd=tmp_path / "work", mounts=mounts, read_only=True, offline=True,
        hidden=(tmp_path / "home/secret", tmp_path / "home/hidden"), scratch=tmp_path / "scratch",
    )  # fmt: skip
    wrapped = in_bubblewrap(launch, "/bin/sh")
    assert (wrapped.mounts, wrapped.hidden, wrapped.read_only, wrapped.offline) == ((), (), False, False)
    assert wrapped.argv[:8] == ("/usr/bin/bwrap", *bubblewrap.ALWAYS)
    assert wrapped.argv[-6:] == ("--chdir", str(tmp_path / "work"), "--", "/bin/sh", "-c", "x")
    text = " ".join(wrapped.argv).replace(str(tmp_path), "/t").partition("/proc/bus /proc/bus ")[2]
    return text.partition(" --chdir")[0].split(" --")


COVERED = ["tmpfs /t/home/hidden", "remount-ro /t/checkout", "remount-ro /t/home/hidden"]
HIDDEN = ["ro-bind-try /t/scratch/empty /t/home/secret", *COVERED]
WORK = ["bind-try /t/work /t/work", "ro-bind-try /t/tools /t/tools", "bind /t/scratch/0 /t/temporary"]
GIT = "bind-try /t/private /t/work/.git"


def test_old_ones_mount_no_overlay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert options_of(tmp_path, monkeypatch, has_overlays=False) == [
        "--tmpfs /t/checkout", "ro-bind-try /t/home /t/home", *WORK, GIT, "bind-try /t/home/agent /t/home/agent",
        "bind-try /t/copy /t/home/agent.json", *HIDDEN,
    ]  # fmt: skip


def test_new_ones_keep_changes_of_home_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert options_of(tmp_path, monkeypatch, has_overlays=True) == [
        "--tmpfs /t/checkout", "overlay-src /t/home", "tmp-overlay /t/home", *WORK, GIT, "overlay-src /t/home/agent",
        "overlay /t/kept/upper /t/kept/work /t/home/agent", "bind-try /t/copy /t/home/agent.json", *HIDDEN,
    ]  # fmt: skip
    assert (tmp_path / "kept/upper").is_dir()


@pytest.mark.parametrize(
    ("printed", "expected"), [("bubblewrap 0.8.0", False), ("bubblewrap 0.11.0", True), ("", False)]
)
def test_which_ones_can_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: str, expected: bool) -> None:
    program = tmp_path / "bwrap"
    program.write_text(f"#!/bin/sh\necho {printed}\n")
    program.chmod(0o755)
    monkeypatch.setattr(bubblewrap, "FOLDERS", str(tmp_path))
    assert bubblewrap.find_bubblewrap.__wrapped__() == (str(program), expected)


def test_without_one_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bubblewrap, "FOLDERS", str(tmp_path))
    assert bubblewrap.find_bubblewrap.__wrapped__() == ("", False)


# processes ------------------------------------------------------------------------------------------------------------
def run(launch: Launch) -> tuple[ProcessEnd, str, str]:
    output = CapturedOutput()
    end = supervise(launch, ProcessLimits(total_seconds=60), output, level=guard.BUBBLEWRAP)
    return end, output.stdout.decode(), output.stderr.decode()


def in_home(tmp_path: Path, script: str, *mounts: Mount) -> Launch:
    """A command that sees a HOME, in which `own` is its own."""
    home, work = tmp_path / "home", tmp_path / "work"
    for path in (home / "own", home / ".cache", home / "target", work, tmp_path / "scratch"):
        path.mkdir(parents=True)
    (home / "link").symlink_to("target")
    launch = Launch(
        argv=("sh", "-c", script), env={"PATH": "/usr/bin:/bin", "HOME": str(home)}, cwd=work, read_only=True,
        mounts=(Mount(home, "overlay"), Mount(work, "write"), *mounts), scratch=tmp_path / "scratch",
    )  # fmt: skip
    return confine(launch, (), [Mount(home / "own", "write")])


needs_bubblewrap = pytest.mark.skipif(guard.BUBBLEWRAP not in levels(), reason="no bubblewrap here")


@needs_bubblewrap
def test_of_a_home_with_many_entries_what_is_visible_is_mounted(tmp_path: Path) -> None:
    for number in range(3000):
        (tmp_path / f"home/secret{number}").mkdir(parents=True)
    end, out, err = run(in_home(tmp_path, "cd; ls -A; readlink link; echo x > own/file; echo x > .cache/file"))
    assert (end.reason, out.split()) == (EndReason.EXITED, [".cache", "link", "own", "target"]), err
    assert sorted(path.name for path in tmp_path.glob("home/[.o]*/*")) == ["file"]


@needs_bubblewrap
def test_a_failed_mount_is_not_taken_for_the_commands_own_exit(tmp_path: Path) -> None:
    end, _, err = run(in_home(tmp_path, "exit 1", Mount(Path("/proc/none"), "own")))
    assert (end.reason, end.exit) == (EndReason.BROKEN, None)
    assert "bwrap: " in err


@needs_bubblewrap
@pytest.mark.parametrize("code", [0, 1, 3])
def test_the_commands_own_exit_is_its_end(tmp_path: Path, code: int) -> None:
    end, out, _ = run(in_home(tmp_path, f"ls /proc/self/fd; exit {code}"))
    assert (end.reason, end.exit) == (EndReason.EXITED, code)
    assert out.split() == ["0", "1", "2", "3"], "no way to write to mz"
