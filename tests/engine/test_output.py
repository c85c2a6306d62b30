"""Process output as prompts show it, its signature, and the numbers of tests in it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mz_engine.artifacts import command_output
from mz_engine.artifacts.command_output import (
    CUT_MARK,
    LINE_CHARS_MAX,
    OMITTED_LINES,
    READ_BYTES_MAX,
    can_start,
    count_runs,
    excerpt,
    failed_tests,
    failure_signature,
    output_patterns,
    without_lines,
)
from mz_engine.decoding.yaml import load_yaml

CASES = Path(__file__).parents[1] / "cases" / "artifacts"


def count_tests(raw: bytes) -> tuple[int, int] | None:
    """Passed and failed tests of all runs; None if no runner reported."""
    runs = count_runs(raw)
    return (sum(passed for passed, _ in runs), sum(failed for _, failed in runs)) if runs else None


class Shown(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    raw: str
    shown: str


class Counted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    raw: str
    counts: tuple[int, int] | None


class Failed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    raw: str
    failures: tuple[str, ...] = ()


SHOWN = msgspec.convert(load_yaml((CASES / "output.yaml").read_text("utf-8")), list[Shown])
COUNTED = msgspec.convert(load_yaml((CASES / "counts.yaml").read_text("utf-8")), list[Counted])
FAILED = msgspec.convert(load_yaml((CASES / "failures.yaml").read_text("utf-8")), list[Failed])


@pytest.mark.parametrize("case", SHOWN, ids=lambda case: case.name)
def test_normalisation(case: Shown) -> None:
    assert excerpt(case.raw.encode(), ("/data/repo", "/data")[:1]) == case.shown


@pytest.mark.parametrize("case", SHOWN, ids=lambda case: case.name)
def test_what_is_normalised_stays_so(case: Shown) -> None:
    assert excerpt(case.shown.encode()) == case.shown


@pytest.mark.parametrize("case", COUNTED, ids=lambda case: case.name)
def test_counts(case: Counted) -> None:
    assert count_tests(case.raw.encode("latin-1" if "\x80" in case.raw else "utf-8")) == case.counts


@pytest.mark.parametrize("case", COUNTED, ids=lambda case: case.name)
def test_no_text_is_counted_for_two_runners(case: Counted) -> None:
    runners = [runner for runner in output_patterns().runners if runner.block and not runner.fallback]
    spans = [match.span() for patterns in runners for match in re.finditer(patterns.block, case.raw, re.MULTILINE)]
    assert all(first == second or first[1] <= second[0] or second[1] <= first[0] for first in spans for second in spans)
    assert len(set(spans)) == len(spans)


@pytest.mark.parametrize("case", FAILED, ids=lambda case: case.name)
def test_ids_of_failed_tests(case: Failed) -> None:
    assert failed_tests(case.raw.encode()) == case.failures


@pytest.mark.parametrize(
    ("exit_code", "output", "starts"),
    [
        (127, "sh: 1: nox: not found", False),
        (126, "sh: ./test.sh: Permission denied", False),
        (1, "/usr/bin/python3: No module named pytest", False),
        (1, 'npm ERR! Missing script: "test"', False),
        (4, "ERROR: usage: pytest [options]\npytest: error: unrecognized arguments: --cov", False),
        (4, "no tests ran in 0.1s\nERROR: file or directory not found: nowhere", False),
        (4, "no tests ran in 0.1s\nERROR: not found: tests/test_a.py::test_b\n(no match)", False),
        (2, "python3 -m unittest: error: unrecognized arguments: --cov", False),
        (1, "ImportError: Start directory is not importable: 'nowhere'", False),
        (1, "● Unrecognized CLI Parameter:\n\n  Unrecognized option", False),
        (1, "CACError: Unknown option `--nothing`", False),
        (9, "node: bad option: --nothing", False),
        (1, "error: unexpected argument '--nothing' found", False),
        (1, "ImportError: Error importing plugin \"nope\": No module named 'nope'", False),
        (4, "ERROR: Directory '/nope' not found. Check your '--rootdir' option.", False),
        (2, "/usr/bin/python3: can't open file '/x/t.py': [Errno 2] No such file or directory", False),
        (1, "node:internal:1\n  throw err;\n\nError: Cannot find module '/x/t.js'\n{\n  requireStack: []\n}", False),
        (1, "Error: Cannot find module './a'\n{\n  requireStack: [ '/x/t.js' ]\n}", True),
        (1, "npm error No workspaces found:\nnpm error   --workspace=nope", False),
        (1, 'Usage Error: Couldn\'t find a script named "tset".', False),
        (2, "error: Failed to spawn: `pytest`\n  Caused by: No such file or directory", False),
        (1, "Command not found: pytest", False),
        (1, "* What went wrong:\nTask 'tset' not found in root project 'x'.\n\n* Try:", False),
        (1, '[INFO] BUILD FAILURE\n[ERROR] Unknown lifecycle phase "tset". You must\n[ERROR] [Help 1]', False),
        (1, "rake aborted!\nDon't know how to build task 'tset' (See the list)", False),
        (2, "make[1]: *** No rule to make target 'tset'.  Stop.\nmake: *** [Makefile:2: all] Error 2", False),
        (2, "make: *** No rule to make target `tset'.  Stop.", False),
        (1, "no packages to test", False),
        (2, "/bin/sh: 1: cd: can't cd to backend", False),
        (1, "sh: line 1: cd: backend: No such file or directory", False),
        (2, "sh: 1: .: cannot open venv/bin/activate: No such file", False),
        (1, "ERROR: not found: item 7 in the price list", True),
        (1, "checking\n/usr/bin/python3: No module named foo (expected)\nFAIL: totals wrong", True),
        (2, "make: *** No rule to make target x", True),
        (1, "a\n" * 20 + "/usr/bin/python3: No module named foo\n" + "b\n" * 20, True),
        (5, "no tests ran in 0.1s", True),
        (1, "No tests found, exiting with code 1", True),
        (1, "ERROR: usage: printed by a test\n1 failed in 0.1s", True),
        (4, "ImportError while loading conftest 'tests/conftest.py'.", True),
        (1, "ModuleNotFoundError: No module named 'thing'\n1 error in 0.1s", True),
        (1, "src/a.py:1:1: F401 unused", True),
        (0, "", True),
        (None, "", True),
    ],
)
def test_a_command_that_cannot_start(exit_code: int | None, output: str, starts: bool) -> None:
    assert can_start(exit_code, output.encode()) is starts


@given(st.binary(max_size=300))
def test_any_bytes_give_text(raw: bytes) -> None:
    text = excerpt(raw)
    assert "\x1b" not in text
    assert "\0" not in text
    assert text == "" or text.endswith("\n")
    failure_signature(text)
    count_runs(raw)
    failed_tests(raw)


def test_long_output_keeps_its_beginning_and_more_of_its_end() -> None:
    raw = "".join(f"line {number}\n" for number in range(1000)).encode()
    lines = excerpt(raw, lines_max=10).splitlines()
    assert lines == [*(f"line {n}" for n in range(3)), OMITTED_LINES, *(f"line {n}" for n in range(994, 1000))]
    assert len(excerpt(raw).splitlines()) == 60
    assert len(excerpt(raw, lines_max=1000).splitlines()) == 1000


def test_long_lines_are_cut() -> None:
    assert excerpt(b"x" * (LINE_CHARS_MAX + 1)) == "x" * LINE_CHARS_MAX + CUT_MARK + "\n"


def test_the_middle_of_too_many_bytes_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_output, "READ_BYTES_MAX", 12)
    assert excerpt(b"begin\nend!!\n") == "begin\nend!!\n"
    assert excerpt(b"begin\nmiddle\nend!!\n") == f"begin\n\n{OMITTED_LINES}\nend!!\n"


@pytest.mark.slow
def test_huge_outputs_are_cut() -> None:
    huge = b"first\n" + b"x\n" * READ_BYTES_MAX + b"1 failed, 4 passed in 0.01s\n"
    assert count_tests(huge) == (4, 1)
    assert excerpt(huge).startswith("first\n")


FAILURE = """\
Fs.
======================================================================
FAIL: test_bad (test_a.T.test_bad)
----------------------------------------------------------------------
Traceback (most recent call last):
  File "/tmp/{folder}/test_a.py", line {line}, in test_bad
AssertionError: 1 != {value}
Ran 3 tests in {time}s

FAILED (failures=1)
"""


def failure(folder: str = "tmp1", line: int = 5, value: int = 2, time: str = "0.001") -> str:
    return failure_signature(excerpt(FAILURE.format(folder=folder, line=line, value=value, time=time).encode()))


def test_the_same_failure_has_the_same_signature() -> None:
    assert len(failure()) == 64
    assert failure() == failure(folder="tmp2", time="12.5")
    assert failure() != failure(value=3)


def test_lines_that_say_nothing_are_not_part_of_a_signature() -> None:
    noise = "=====\n...F..\nTAP version 13\nok 1 - one\ntest_a (x) ... ok\n  ✓ fine\n=== RUN   TestA\n"
    noise += "Traceback (most recent call last):\n"
    assert failure_signature(noise) == ""
    assert failure_signature(noise + "boom\n") == failure_signature("boom\n") != ""
    assert failure_signature("a\nb\nc\nd\ne\nf\n") == failure_signature("a\nb\nc\nd\ne\ng\n")


def test_lines_of_known_failures_are_left_out_and_no_others() -> None:
    text = "FAILED t.py::test_a - x\nFAILED t.py::test_ab - x\nFAILED TestSum\n1 failed: test_c\n"
    left = without_lines(text, ("t.py::test_a", "other.py::test_c", "TestAbsent"))
    assert left == "FAILED t.py::test_ab - x\nFAILED TestSum\n"
    assert without_lines(text, ()) == text


@pytest.mark.slow
def test_two_runs_of_a_real_failing_suite_show_the_same(tmp_path: Path) -> None:
    observed = set()
    for number in range(2):
        folder = tmp_path / f"run{number}"
        folder.mkdir()
        (folder / "test_a.py").write_text(
            "import time, unittest\n"
            "class T(unittest.TestCase):\n"
            f"    def test_bad(self): time.sleep(0.0{number + 1}); self.fail(object())\n"
            "    def test_good(self): pass\n"
        )
        ran = subprocess.run([sys.executable, "-m", "unittest"], cwd=folder, capture_output=True, check=False)
        assert count_tests(ran.stderr) == (1, 1)
        text = excerpt(ran.stderr, (str(folder),)).replace(f"0.0{number + 1}", "0.0N")
        observed.add((text, failure_signature(text)))
    [(text, _)] = observed
    assert 'File "<worktree>/test_a.py"' in text
    assert str(tmp_path) not in text
