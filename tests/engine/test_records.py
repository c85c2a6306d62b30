"""Records of what phases did: the unified diff of a file, the result of a command."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from mz_engine.decide.records import result_text
from mz_engine.effects.records import difference
from mz_events.names import FeatureId, Path, feature_stream
from mz_projections.feature.fold import fold
from mz_projections.feature.state import progress_of
from mz_qa.simulation import trial

from tests.engine.test_conversations import deliver, new_world, pins
from tests.support.steps import COMMAND

PATH = Path("src/a.py")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (b"1\n", b"1\n", ""),
        (b"1\n2\n", b"1\n3\n", "--- a/src/a.py\n+++ b/src/a.py\n@@ -1,2 +1,2 @@\n 1\n-2\n+3\n"),
        (None, b"1\n", "--- /dev/null\n+++ b/src/a.py\n@@ -0,0 +1 @@\n+1\n"),
        (b"1", None, "--- a/src/a.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-1\n\\ No newline at end of file\n"),
        (b"a\0b", b"a\0c", "binary file src/a.py differs\n"),
        (b"\xff\n", b"1\n", "--- a/src/a.py\n+++ b/src/a.py\n@@ -1 +1 @@\n-\ufffd\n+1\n"),
    ],
)
def test_the_difference_of_a_file(old: bytes | None, new: bytes | None, expected: str) -> None:
    assert "".join(difference(PATH, old, new)) == expected


def test_files_with_too_many_lines_are_only_named() -> None:
    old, new = (b"\n".join(b"%d" % (number % modulus) for number in range(20_000)) for modulus in (150, 149))
    assert "".join(difference(PATH, old, new)) == (
        "--- a/src/a.py\n+++ b/src/a.py\n[too many lines to compare: 20,000 before, 20,000 after]\n"
    )
    assert "".join(difference(PATH, b"a\x0cb\n", b"a\x0cc\n")).endswith("@@ -1 +1 @@\n-a\x0cb\n+a\x0cc\n")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"exit": 0}, "exit 0"),
        ({"exit": None}, "ran out of time"),
        ({"exit": 1, "passed": 3, "failed": 2}, "exit 1, 3 tests passed, 2 failed"),
        ({"exit": 1, "passed": 3, "failed": 2, "new_failures": 0},
         "exit 1, 3 tests passed, 2 failed, all of them known failures"),
    ],
)  # fmt: skip
def test_the_result_of_a_command(fields: dict[str, int | None], expected: str) -> None:
    assert result_text(replace(COMMAND, **fields)) == expected


def test_a_unit_that_starts_again_on_its_tree_keeps_its_first_changes() -> None:
    """A review sends the second unit of `a` back, which changes only its note then."""
    world = deliver(new_world(), pins())
    progress = progress_of(fold(world.store.read(feature_stream(trial.RUN, FeatureId("a")))))
    assert progress is not None
    changed = [
        sorted(path for path in after if after[path] != before.get(path))
        for before, after in (
            (world.objects[old].files, world.objects[new].files) for old, new in progress.unit_trees["build/u2"]
        )
    ]
    assert changed == [["a2.txt", "notes/a.u2.md"], ["notes/a.u2.md"]]
