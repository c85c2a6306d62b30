"""The benchmarks of replays, at the smallest size: both sides make every call of the cassette. Nothing is timed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tools.bench.answers import PHASES
from tools.bench.replays import Replays, served

MZ = Path(sys.executable).with_name("mz")


@pytest.mark.slow
def test_both_sides_make_every_call(tmp_path: Path) -> None:
    replays = Replays(tmp_path, MZ, 1, None)
    spawns = replays.prepare()
    assert [spawn.environment["MZ_KEY"].split("/")[2] for spawn in spawns] == list(PHASES)
    for spawn in spawns:
        assert served(spawn) > 0
    library = replays.library(len(PHASES) + 1)
    assert sorted(path.name for path in library.iterdir()) == ["copy-0000", "copy-0001"]
    assert replays.replay(library, 2) > 0
    with pytest.raises(RuntimeError, match="the worktree is the tree"):
        served(spawns[0])  # Its changes are there already: what is not served is no reference.
    (tmp_path / "cassette" / "SHA256SUMS").write_text("")
    with pytest.raises(RuntimeError, match="ended with 125"):
        replays.replay(replays.path, 1)
