"""What holds for every test: how much property tests try (a few examples in `make quick`), signals, that what
was compiled is kept, where temporary files are, and a small project that was run and recorded once for all."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.assertion import rewrite
from _pytest.runner import runtestprotocol
from filelock import FileLock
from hypothesis import settings

settings.register_profile("quick", max_examples=10, deadline=None)
settings.register_profile("full", deadline=None)
settings.load_profile("full")

# A shell starts what it puts into the background with SIGINT ignored, and children would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# To compile all tests and what they start, again and again, costs each worker more than half of its start.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


IN_MEMORY = Path("/dev/shm")
IN_MEMORY_BYTES_MIN = 4 << 30


def pytest_configure(config: pytest.Config) -> None:
    """Keep temporary directories in memory where there is room: what mz writes is flushed to the disk, file by file."""
    gc.disable()  # What is collected stays to the end.
    if not config.option.basetemp and "PYTEST_DEBUG_TEMPROOT" not in os.environ and _has_room():
        os.environ["PYTEST_DEBUG_TEMPROOT"] = str(IN_MEMORY)
    if [Path(argument).name for argument in config.args] == ["tests"]:
        _compile_share(config)


def _compile_share(config: pytest.Config) -> None:
    """Compile what falls to this worker of the tests that nobody has compiled yet: each would compile all of them."""
    number, workers = (os.environ.get(f"PYTEST_XDIST_WORKER{part}", "") for part in ("", "_COUNT"))
    if number:
        state = config.stash[rewrite.assertstate_key]
        for path in sorted(Path(__file__).parent.rglob("test_*.py"))[int(number[2:]) :: int(workers)]:
            pyc = path.parent / "__pycache__" / f"{path.stem}{rewrite.PYC_TAIL}"
            if rewrite._read_pyc(path, pyc) is None:
                pyc.parent.mkdir(exist_ok=True)
                stat, code = rewrite._rewrite_test(path, config)
                rewrite._write_pyc(state, code, stat, pyc)


def _has_room() -> bool:
    """Say whether programs can be run there too, and whether it can hold what the tests leave while they run."""
    try:
        memory = os.statvfs(IN_MEMORY)
    except OSError:
        return False
    writable = os.access(IN_MEMORY, os.W_OK) and not memory.f_flag & (os.ST_NOEXEC | os.ST_RDONLY)
    return writable and memory.f_bavail * memory.f_frsize >= IN_MEMORY_BYTES_MIN


def pytest_collection_finish() -> None:
    """Spare the garbage collector what all tests are made of."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)  # Trees of syntax and of data are many objects and no garbage.
    gc.enable()


@pytest.hookimpl
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Send from a worker what tells something: the result of each call, and a setup or teardown only if it did not pass
    or `--durations` asks for it. Six messages for each test cost more than most tests."""
    if "PYTEST_XDIST_WORKER" not in os.environ or item.config.option.durations is not None:
        return None
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed:
            item.ihook.pytest_runtest_logreport(report=report)
    return True


@pytest.fixture(scope="session", autouse=True)
def _user_data(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep what runs record for all repositories out of the data folder of whoever runs the tests."""
    os.environ["XDG_DATA_HOME"] = str(tmp_path_factory.getbasetemp() / "user-data")


@pytest.fixture
def on_disk() -> Iterator[Path]:
    """A new directory outside of `/dev/shm`, which any process may change where nothing can be mounted."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project of the workshop with a run in its log and a cassette of it in its library; only to be read. Whichever
    worker comes first makes it, and each has a copy: not even a reader of another worker is seen in it."""
    from tests.support.workshop import recorded_in  # It loads most of `mz`, and most tests do without.

    own = tmp_path_factory.getbasetemp()
    made = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "recorded"
    with FileLock(made.with_suffix(".lock")):
        if not (made / "done").exists():
            shutil.rmtree(made, ignore_errors=True)
            made.mkdir()
            recorded_in(made)
            (made / "done").touch()
        copy = tmp_path_factory.mktemp("workshop") / "project"
        return Path(shutil.copytree(made / "project", copy, symlinks=True))
