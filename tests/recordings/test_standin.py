"""The stand-in for an agent's CLI: what it checks, what it serves, and what it leaves behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from mz_engine.agents.registry import built_in_adapters
from mz_engine.ports import CallResult
from mz_engine.processes.environment import INHERITED_VARIABLES
from mz_recordings.cassette.files import CassetteUnreadable, save
from mz_recordings.cassette.model import Failure, Identity
from mz_recordings.replay.ports import recorded_programs
from mz_recordings.replay.stand_in import DRIFT, MISSING, _committed_paths, install, tree_id

from tests.support.tapes import NOTE, OTHER_SESSION, PROMPT, Stage, cassette, git, recording, repository


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def args(result: CallResult) -> str:
    return result.stderr.decode()


@pytest.mark.slow
def test_a_recorded_call(stage: Stage) -> None:
    result = stage.call()
    assert args(result) == ""
    assert result.exit == 0
    assert (stage.worktree / "note.md").read_text() == NOTE
    parsed_reply = stage.door().adapter("claude-code").parse_output(result)
    assert parsed_reply.text == f"wrote {stage.worktree}/note.md"
    assert parsed_reply.session == OTHER_SESSION
    assert parsed_reply.reported_nanousd == 500_000_000


@pytest.mark.slow
def test_it_leaves_no_trace_of_its_looking(stage: Stage) -> None:
    before = sorted((stage.root / ".git").rglob("objects/**/*"))
    stage.call()
    assert sorted((stage.root / ".git").rglob("objects/**/*")) == before
    assert git(stage.worktree, "status", "--porcelain") == "?? note.md"


@pytest.mark.slow
def test_its_version_is_the_recorded_one(stage: Stage) -> None:
    assert stage.door().check_auth("claude-code").version == "2.1.197"


@pytest.mark.slow
def test_each_program_has_the_version_that_was_recorded_of_it(stage: Stage) -> None:
    other = recording(
        stage.tree, identity=Identity(pipeline="monozukuri", feature="a", phase="prd"), agent="codex",
        version="0.169.0", argv=("codex", "exec", "-"),
    )  # fmt: skip
    library = stage.library.with_name("two")
    save(cassette(other, recording(stage.tree)), library)
    path = stage.library.parents[1] / "both"
    install(path, library, ("claude", "codex", "gemini"), INHERITED_VARIABLES.pattern)
    processes = {
        name: subprocess.run([str(path / name), "--version"], check=False, capture_output=True, text=True)
        for name in ("claude", "codex", "gemini")
    }
    assert [process.stdout for process in processes.values()] == ["2.1.197 (recorded)\n", "0.169.0 (recorded)\n", ""]
    assert (processes["gemini"].returncode, "the version of gemini" in processes["gemini"].stderr) == (MISSING, True)


@pytest.mark.slow
def test_it_loads_little(stage: Stage) -> None:
    """It starts as often as an agent does: a few modules of Python's own library, and two of ours."""
    stand_in = stage.library.parents[1] / "bin" / "claude"
    argv = (sys.executable, "-X", "importtime", "-I", "-S", str(stand_in), "--version")
    report = subprocess.run(argv, check=True, capture_output=True, text=True).stderr
    modules = {line.rpartition("|")[2].strip() for line in report.splitlines() if line.startswith("import time:")}
    assert {name for name in modules if name.startswith("mz_")} == {
        "mz_recordings", "mz_recordings.cassette", "mz_recordings.cassette.placeholders", "mz_recordings.replay",
        "mz_recordings.replay.stand_in",
    }  # fmt: skip
    tops = {name.partition(".")[0] for name in modules} - {"imported package", "mz_recordings"}
    assert tops <= sys.stdlib_module_names
    assert not tops & {"asyncio", "dataclasses", "email", "http", "inspect", "socket", "ssl", "tempfile"}


@pytest.mark.slow
def test_another_prompt_is_drift_with_a_difference(stage: Stage) -> None:
    result = stage.call(prompt=PROMPT.replace("good", "plain"))
    assert result.exit == DRIFT
    assert "-In good English." in args(result)
    assert "+In plain English." in args(result)
    assert not (stage.worktree / "note.md").exists()


@pytest.mark.slow
def test_a_long_difference_is_cut(stage: Stage) -> None:
    result = stage.call(prompt="other\n" * 1000)
    assert "more lines" in args(result)
    assert len(args(result).splitlines()) < 50


@pytest.mark.parametrize("more", [{"model": "claude-opus-4-8"}, {"tools": ("read",)}, {"resumes": True}])
@pytest.mark.slow
def test_other_arguments_are_drift(stage: Stage, more: dict[str, object]) -> None:
    result = stage.call(**more)
    assert result.exit == DRIFT
    assert "called with other arguments" in args(result)


@pytest.mark.slow
def test_a_variable_that_no_agent_may_see_is_drift(stage: Stage) -> None:
    stage.outside["GITHUB_TOKEN"] = "tell-nobody"
    result = stage.call("GITHUB_TOKEN")
    assert result.exit == DRIFT
    assert "GITHUB_TOKEN" in args(result)
    assert "tell-nobody" not in args(result)


@pytest.mark.parametrize("change", ["a file", "a mode", "a link", "a deletion"])
@pytest.mark.slow
def test_another_tree_is_drift(stage: Stage, change: str) -> None:
    match change:
        case "a file":
            (stage.worktree / "README.md").write_text("# Another\n")
        case "a mode":
            (stage.worktree / "tool.sh").chmod(0o644)
        case "a link":
            (stage.worktree / "docs" / "link").unlink()
            (stage.worktree / "docs" / "link").symlink_to("elsewhere")
        case _:
            (stage.worktree / "README.md").unlink()
    result = stage.call()
    assert result.exit == DRIFT
    assert stage.tree in args(result)


@pytest.mark.slow
def test_ignored_files_do_not_count(stage: Stage) -> None:
    (stage.worktree / "debug.log").write_text("x")
    assert stage.call().exit == 0


@pytest.mark.slow
def test_there_is_no_such_recording(stage: Stage) -> None:
    result = stage.call(key="r/f/prd/-/1/2/agent.builder")
    assert result.exit == MISSING
    assert "no recording f/prd.a2" in args(result)


@pytest.mark.parametrize("key", ["", "r/f/prd", "r/../../etc/-/1/1/agent.builder/x"])
@pytest.mark.slow
def test_a_key_that_names_no_call(stage: Stage, key: str) -> None:
    result = stage.call(key=key)
    assert result.exit == MISSING
    assert "not the key of an agent call" in args(result)


@pytest.mark.slow
def test_a_changed_file_is_refused(stage: Stage) -> None:
    (stage.library / "f" / "prd.stream-json").write_text("{}")
    result = stage.call()
    assert result.exit == DRIFT
    assert "was changed since it was recorded" in args(result)


@pytest.mark.slow
def test_a_newer_format_is_refused(stage: Stage) -> None:
    path = stage.library / "f" / "prd.json"
    path.write_text(path.read_text().replace('"format": 3', '"format": 99'))
    assert stage.call().exit == MISSING


@pytest.mark.parametrize("code", [1, 143, -15, -9])
@pytest.mark.slow
def test_it_exits_as_the_agent_did(tmp_path: Path, code: int) -> None:
    assert Stage(tmp_path, exit=code).call().exit == code


@pytest.mark.slow
def test_a_call_that_a_limit_ended_hangs_until_the_limit(tmp_path: Path) -> None:
    stage = Stage(tmp_path, outcome="failed", exit=None, failure=Failure(kind="transient", code="timeout"))
    result = stage.call(total_seconds=1)
    assert result.problem is not None
    assert result.problem.code == "timeout"
    assert b'"result"' in result.stdout


@pytest.mark.slow
def test_a_key_with_everything_in_it(tmp_path: Path) -> None:
    identity = Identity(pipeline="p", feature="f", phase="code", unit="i2", iteration=3, attempt=2, role="reviewer")
    stage = Stage(tmp_path, identity=identity)
    assert (stage.library / "f" / "code.unit=i2.i3.a2.reviewer.json").exists()
    assert stage.call(key="r/f/code/i2/3/2/agent.reviewer").exit == 0


@pytest.mark.slow
def test_a_git_beside_it_is_not_git(stage: Stage) -> None:
    """Were that a stand-in too, each would start the next, without end."""
    other = stage.library.parents[1] / "bin" / "git"
    other.write_text("#!/bin/sh\nexit 9\n")
    other.chmod(0o755)
    result = stage.call()
    assert (result.exit, args(result)) == (0, "")


def test_only_agents_have_stand_ins() -> None:
    assert recorded_programs(cassette(recording("1" * 40)), built_in_adapters()) == ("claude",)
    for name in ("git", "/bin/claude", ".."):
        with pytest.raises(
            CassetteUnreadable, match=r"^f/prd\.json: calls .*, which is not an agent's command \(.*claude"
        ):
            recorded_programs(cassette(recording("1" * 40, argv=(name, "-p"))), built_in_adapters())


@pytest.mark.slow
def test_a_breakdown_is_not_the_agents(stage: Stage) -> None:
    path = stage.library / "f" / "prd.json"
    path.write_text(path.read_text().replace('"exit"', '"way_out"'))
    result = stage.call()
    assert result.exit == DRIFT
    assert args(result) == "stand-in: internal error: KeyError: 'exit'\n"


# what became something else ------------------------------------------------------------------------------------------
def git_tree(root: Path) -> str:
    """As git would commit it."""
    git(root, "add", "-A")
    return git(root, "write-tree")


@pytest.mark.parametrize(
    "change", ["nothing", "a directory", "a link", "a link inside", "nothing left", "a file", "odd"]
)
def test_the_tree_is_gits_also_with_submodules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    root = tmp_path / "repository"
    repository(root)
    commit = git(root, "rev-parse", "HEAD")
    (root / "lib.d").mkdir()
    (root / "lib.d" / "x").write_text("x")
    (root / "lib-a").write_text("a")
    git(root, "add", "-A")
    git(root, "update-index", "--add", "--cacheinfo", f"160000,{commit},lib")
    git(root, "commit", "-q", "-m", "submodule")
    (root / "lib").mkdir()
    match change:
        case "a directory":
            (root / "README.md").unlink()
            (root / "README.md").mkdir()
            (root / "README.md" / "x").write_text("x")
        case "a link" | "a link inside":
            (root / "lib.d").rename(root / "other")
            (root / "lib.d").symlink_to("other" if change == "a link" else "lib.d")
        case "nothing left":
            (root / "lib").rmdir()
        case "a file":
            (root / "lib").rmdir()
            (root / "lib").write_text("lib")
        case "odd":
            (root / f"H 160000 {commit} 0\todd").mkdir()
            (root / f"H 160000 {commit} 0\todd" / "x").write_text("x")
            (root / f"160000 {commit} 0\todd").write_text("x")
    monkeypatch.chdir(root)
    paths, modules = _committed_paths()
    assert tree_id(paths, "sha1", modules) == git_tree(root)
