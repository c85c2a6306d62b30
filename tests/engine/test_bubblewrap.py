"""How a plan of mounts is given to bubblewrap."""

from __future__ import annotations

from pathlib import Path

import pytest
from mz_engine.processes import bubblewrap
from mz_engine.processes.bubblewrap import in_bubblewrap
from mz_engine.processes.supervise import Launch, Mount


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
    assert wrapped.argv[:6] == ("/usr/bin/bwrap", *bubblewrap.ALWAYS)
    assert wrapped.argv[-6:] == ("--chdir", str(tmp_path / "work"), "--", "/bin/sh", "-c", "x")
    text = " ".join(wrapped.argv).replace(str(tmp_path), "/t").partition("/proc/bus /proc/bus ")[2]
    return text.partition(" --chdir")[0].split(" --")


COVERED = ["tmpfs /t/home/hidden", "remount-ro /t/checkout", "remount-ro /t/home/hidden"]
HIDDEN = ["ro-bind-try /dev/null /t/home/secret", *COVERED]
WORK = ["bind-try /t/work /t/work", "bind-try /t/private /t/work/.git", "ro-bind-try /t/tools /t/tools"]
OWN = "bind /t/scratch/0 /t/temporary"


def test_old_ones_mount_no_overlay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert options_of(tmp_path, monkeypatch, has_overlays=False) == [
        "--tmpfs /t/checkout", "ro-bind-try /t/home /t/home", *WORK, "bind-try /t/home/agent /t/home/agent",
        "bind-try /t/copy /t/home/agent.json", OWN, *HIDDEN,
    ]  # fmt: skip


def test_new_ones_keep_changes_of_home_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert options_of(tmp_path, monkeypatch, has_overlays=True) == [
        "--tmpfs /t/checkout", "overlay-src /t/home", "tmp-overlay /t/home", *WORK, "overlay-src /t/home/agent",
        "overlay /t/kept/upper /t/kept/work /t/home/agent", "bind-try /t/copy /t/home/agent.json", OWN, *HIDDEN,
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
