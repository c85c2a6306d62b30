"""`mz compare`: two versions of a program, run on the same cases."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import msgspec
import pytest
from mz_cli.inspect.compare import first_difference

from tests.cli.drive import MZ, Mz, decoded
from tests.support.gitrepo import GitRepo

PROGRAM = "import os, sys\nfor line in sys.stdin:\n    print({}, os.environ.get('UNIT', ''))\n"
SETTINGS = "agent: claude-code\ncommands:\n  build: cp program.py built.py\n"
CASES = """\
cases:
- {name: empty, run: python3 built.py}
- {name: words, run: "python3 built.py; exit 3", stdin: "one\\ntwo\\n", env: {UNIT: "it's"}}
- {name: errors, run: "echo out; echo problem >&2"}
- {name: slow, run: sleep 60, timeout: 1s}
- {name: bytes, run: "printf '\\\\377\\\\000'"}
- {name: killed, run: "sleep 60 & kill -9 $$"}
- {name: folder, run: "pwd; cat nothing"}
- {name: variables, run: 'echo "$errors $PATH"', env: {errors: mine, PATH: nowhere}}
"""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GitRepo:
    repository = GitRepo(tmp_path / "project")
    repository.commit({"mz.yaml": SETTINGS, "program.py": PROGRAM.format("line.strip()"), ".gitignore": "built.py\n"})
    repository.git("branch", "-q", "old")
    repository.commit({"program.py": PROGRAM.format("line.strip().upper()")})
    (repository.root / "cases.yaml").write_text(CASES)
    monkeypatch.chdir(repository.root)
    return repository


@pytest.mark.slow
def test_what_two_versions_do_is_compared_byte_by_byte(repository: GitRepo, mz: Mz) -> None:
    done = mz("compare", "old", "HEAD", "--cases", "cases.yaml", "--json")
    assert done.exit == 1, done
    document = msgspec.json.decode(done.out)
    assert (document["equal"], document["different"]) == (7, 1)
    cases = {case.pop("name"): case for case in document["cases"]}
    assert cases["words"] == {
        "differences": ["stdout"],
        "left": {"exit": 3, "stdout": "one it's\ntwo it's\n", "stderr": ""},
        "right": {"exit": 3, "stdout": "ONE it's\nTWO it's\n", "stderr": ""},
    }
    assert cases["empty"]["left"] == {"exit": 0, "stdout": "", "stderr": ""}
    assert cases["errors"]["left"] == {"exit": 0, "stdout": "out\n", "stderr": "problem\n"}
    assert cases["slow"]["right"]["exit"] is None
    assert cases["folder"]["left"]["stdout"] == "<worktree>\n", "the two checkouts have different paths"
    assert cases["variables"]["left"] == {"exit": 0, "stdout": "mine nowhere\n", "stderr": ""}
    assert cases["bytes"]["left"]["stdout"] == "\ufffd\x00"
    assert cases["killed"]["left"] == {"exit": 137, "stdout": "", "stderr": ""}
    table = mz("compare", "old", "HEAD", "--cases", "cases.yaml")
    assert "words\tdiffers: stdout\t1: one it's\t1: ONE it's\n" in table.out
    assert repository.git("status", "--porcelain") == "?? cases.yaml"
    assert not list((repository.root / ".mz").rglob("built.py")), "checkouts are removed"
    assert decoded(mz("compare", "old", "old", "--cases", "cases.yaml", "--json"))["different"] == 0


@pytest.mark.slow
def test_nothing_is_left_of_a_comparison_that_is_ended_or_was_killed(repository: GitRepo, mz: Mz) -> None:
    (repository.root / "cases.yaml").write_text("cases:\n- {name: slow, run: sleep 60, timeout: 2m}\n")
    worktrees = repository.root / ".mz" / "worktrees"
    command = (*MZ, "compare", "old", "HEAD", "--cases", "cases.yaml")
    for number, exit_code, left in ((signal.SIGTERM, 20, 0), (signal.SIGKILL, -signal.SIGKILL, 1)):
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
            assert running.stderr is not None
            next(line for line in running.stderr if line == "running slow\n")
            running.send_signal(number)
        assert (running.returncode, len(list(worktrees.iterdir()))) == (exit_code, left)
    (repository.root / "cases.yaml").write_text("cases:\n- {name: fast, run: echo}\n")
    assert mz("compare", "old", "HEAD", "--cases", "cases.yaml").exit == 0
    assert list(worktrees.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("run", "message"),
    [
        ("kill -9 $PPID", "error[MZ1008] the case `odd` cannot be run, or ended the shell"),
        (
            "pwd; head -c 1000001 /dev/zero; cat program.py",
            "error[MZ2008] the case `odd` prints 1,000,000 bytes or more",
        ),
    ],
)
def test_what_was_not_compared_is_not_equal(repository: GitRepo, mz: Mz, run: str, message: str) -> None:
    (repository.root / "cases.yaml").write_text(f"cases:\n- {{name: odd, run: '{run}'}}\n")
    assert message in mz("compare", "old", "HEAD", "--cases", "cases.yaml").err


@pytest.mark.slow
def test_a_version_that_cannot_be_built_is_told(repository: GitRepo, mz: Mz) -> None:
    repository.git("rm", "-q", "program.py")
    repository.commit({})
    done = mz("compare", "old", "HEAD", "--cases", "cases.yaml")
    assert done.exit == 11
    assert "error[MZ1008] `commands.build` failed on HEAD" in done.err
    assert "program.py" in done.err


@pytest.mark.parametrize(
    ("cases", "right", "message"),
    [
        ("cases: []\n", "HEAD", "error[MZ2006] cases.yaml:1:8"),
        ("cases:\n- {name: a, run: x}\n- {name: a, run: y}\n", "HEAD", "error[MZ2004] cases.yaml:3:10 two cases have"),
        ("cases:\n- {name: a, run: x, input: y}\n", "HEAD", "error[MZ2005] cases.yaml:2:21 unknown key `input`"),
        ("cases:\n- {name: a, run: ' '}\n", "HEAD", "error[MZ2013] cases.yaml:2:18 `cases[0].run`: it is empty"),
        ("cases:\n- {name: a, run: x, env: {'A;B': y}}\n", "HEAD", "'A;B' is not the name of an environment variable"),
        ("cases:\n- {name: a, run: x, env: {A: \"\\0\"}}\n", "HEAD", "is not a text without NUL"),
        ("cases:\n- {name: a, run: x, stdin: \"\\0\"}\n", "HEAD", "is not a text without NUL"),
        (f"cases:\n- {{name: a, run: x, stdin: '{'é' * 66_000}'}}\n", "HEAD", "error[MZ2006] cases.yaml:2:3 the case "),
        ("cases:\n- {name: a, run: x}\n", "HEAD~99", "error[MZ1002] 'HEAD~99' is no branch or commit"),
        ("cases:\n- {name: a, run: x}\n", "nowhere", "error[MZ1002] 'nowhere' is no branch or commit"),
    ],
)  # fmt: skip
def test_wrong_use(repository: GitRepo, mz: Mz, cases: str, right: str, message: str) -> None:
    (repository.root / "cases.yaml").write_text(cases)
    assert message in mz("compare", "old", right, "--cases", "cases.yaml").err


def test_without_git_the_message_is_about_git(
    repository: GitRepo, mz: Mz, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    message = mz("compare", "old", "HEAD", "--cases", "cases.yaml").err
    assert "git" in message
    assert "no branch or commit" not in message


@pytest.mark.parametrize(
    ("left", "right", "lines"),
    [
        (b"a\nb\n", b"a\nc\n", ("2: b", "2: c")),
        (b"a\n", b"a\nb\n", ("-", "2: b")),
        (b"a\n", b"a", ("only line ends differ", "-")),
    ],
)
def test_the_first_line_that_differs(left: bytes, right: bytes, lines: tuple[str, str]) -> None:
    assert first_difference(left, right) == lines
