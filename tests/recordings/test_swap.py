"""A cassette is replaced at once or not at all, whatever ends the writer: nothing that was there is ever lost."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from mz_recordings.cassette.files import CassetteExists, is_cassette, list_cassettes, load, overwrite, save
from mz_recordings.cassette.safe_files import replace_by_renames, work_folder

from tests.support.gitrepo import GitRepo
from tests.support.tapes import cassette, recording
from tests.support.tree import ROOT

TREE = "1" * 40
MADE = cassette(recording(TREE))
LEFT = ".small.ab12_xyz.partial"
FOREVER = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from mz_recordings.cassette.safe_files import work_folder
with work_folder(Path(sys.argv[1])) as partial:
    (partial / "new" / "half").write_text("written")
    print("ready", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    save(MADE, tmp_path / "small")
    return tmp_path / "small"


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def killed_between(small: Path) -> None:
    """What is there when a writer that renames twice is killed in between."""
    partial = small.with_name(LEFT)
    partial.mkdir()
    shutil.copytree(small, partial / "new")
    small.rename(partial / "old")


@pytest.mark.parametrize("looks", ["load", "list", "ask", "save"])
def test_what_was_set_aside_comes_back(small: Path, looks: str) -> None:
    killed_between(small)
    if looks == "load":
        assert load(small) == MADE
    elif looks == "list":
        assert list_cassettes(small.parent) == (small,)
    elif looks == "ask":
        assert is_cassette(small)
    else:
        with pytest.raises(CassetteExists):
            save(MADE, small)
    assert load(small) == MADE
    overwrite(MADE, small)
    assert names(small.parent) == ["small"]


def test_what_stands_there_is_not_replaced_by_what_was_set_aside(small: Path) -> None:
    save(cassette(), small.parent / "other")
    killed_between(small)
    (small.parent / "other").rename(small)
    assert load(small) == cassette()


def test_where_the_second_rename_fails_the_first_is_undone(small: Path) -> None:
    with work_folder(small) as partial:
        (partial / "new").rmdir()
        with pytest.raises(FileNotFoundError):
            replace_by_renames(partial, small)
    assert load(small) == MADE
    assert names(small.parent) == ["small"]


def test_two_renames_do_the_same_as_an_exchange(small: Path, tmp_path: Path) -> None:
    save(cassette(), tmp_path / "other")
    with work_folder(small) as partial:
        (partial / "new").rmdir()
        (tmp_path / "other").rename(partial / "new")
        replace_by_renames(partial, small)
    assert load(small) == cassette()
    assert names(tmp_path) == ["small"]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere two folders cannot be exchanged")
def test_nobody_ever_sees_that_it_is_gone(small: Path) -> None:
    done = threading.Event()

    def write() -> None:
        for _ in range(10):
            overwrite(MADE, small)
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    missed = 0
    while not done.is_set():
        missed += not small.exists()
    writer.join()
    assert missed == 0


@pytest.mark.slow
def test_what_a_killed_writer_left_is_ignored_and_swept_and_that_of_a_living_one_stays(tmp_path: Path) -> None:
    repository = GitRepo(tmp_path / "shop")
    repository.commit({"README": "x"})
    path = repository.root / "small"
    writer = subprocess.Popen([sys.executable, "-c", FOREVER, str(path), str(ROOT)], stdout=subprocess.PIPE, text=True)
    try:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        save(MADE, path)
        (left,) = path.parent.glob(".*.partial")
        assert (left / "new" / "half").read_text() == "written"
        assert repository.git("status", "--porcelain", "--", left.name) == ""
    finally:
        writer.send_signal(signal.SIGKILL)
        writer.communicate()
    overwrite(MADE, path)
    assert not left.exists()
    assert load(path) == MADE
