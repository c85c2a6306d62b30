"""Agents that misbehave, as real processes: each ends in a named state, and nothing that was recorded is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from mz_engine.agents.process import AgentProcesses
from mz_engine.run.process import RunProcess

from tests.support.bench import Bench

pytestmark = pytest.mark.slow

FEATURE = "group-thousands"
BRANCH = f"feat/{FEATURE}"


def run(bench: Bench, phase: str, code: str, exit_code: int) -> None:
    bench.act(FEATURE, phase, code)
    bench.mz("run", "--feature", FEATURE, code=exit_code)


def offences(bench: Bench) -> list[tuple[str, str]]:
    result = [offence for event in bench.of_type("changes.checked") for offence in event["forbidden_changes"]]
    return [(offence["kind"], offence["path"]) for offence in result]


def problems(bench: Bench) -> list[str]:
    return [event["problem"]["code"] for event in bench.of_type("reply.parsed") if event["problem"]]


def delivered(bench: Bench) -> bool:
    return bench.statuses() == {FEATURE: "delivered"}


def test_a_reply_without_an_end_is_called_again(tmp_path: Path) -> None:
    """Garbage, nothing, no end, killed; and invalid UTF-8 on the way does no harm."""
    bench = Bench(tmp_path)
    bench.act(FEATURE, "prd", "say('no JSON at all')")
    bench.act(FEATURE, "techspec", "raise SystemExit(0)")
    bench.act(FEATURE, "tasks", "say({'type': 'system', 'subtype': 'init', 'session_id': 's'})")
    bench.act(FEATURE, "code", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    invalid = r"import sys; sys.stdout.buffer.write(b'\xff\xfe{\x00\n'); sys.stdout.flush(); answer()"
    run(bench, "tests", invalid, 0)
    assert delivered(bench)
    parsed = [
        (event["ref"]["phase"], event["problem"] and event["problem"]["code"])
        for event in bench.of_type("reply.parsed")
    ]
    cut_off = [(phase, "no-terminal") for phase in ("prd", "techspec", "tasks", "code")]
    assert parsed == [*(call for cut in cut_off for call in (cut, (cut[0], None))), ("tests", None), ("pr", None)]
    assert [event["bad_lines"] for event in bench.of_type("reply.parsed")][-2:] == [1, 0]


def test_too_many_megabytes_are_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert AgentProcesses.output_bytes_max == 200_000_000
    monkeypatch.setattr(AgentProcesses, "output_bytes_max", 20_000_000)
    bench = Bench(tmp_path)
    bench.act(FEATURE, "prd", "import os\nwhile True: os.write(1, b'x' * 65535 + b'\\n')")
    with RunProcess(bench.root, bench.env, lambda recorded: None) as session:
        session.start({}, (FEATURE,))
        session.drive()
    assert delivered(bench)
    assert problems(bench) == ["output-limit"]


def test_commits_of_its_own_are_recorded_and_taken_back(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    commit = "git add -A; git -c user.name=A -c user.email=a@b commit -qm own"
    act = f"import subprocess as s\nanswer()\ns.run('{commit}', shell=True)"
    run(bench, "code", act, 0)
    assert delivered(bench)
    assert ("commit", BRANCH) in offences(bench)
    assert len(bench.keys_of(BRANCH)) == 6
    assert "own" not in bench.git("log", "--format=%s", f"main..{BRANCH}").split()


def test_another_branch_that_moved_is_shown_to_a_person(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    before = bench.git("rev-parse", "main").strip()
    commit = "git -c user.name=A -c user.email=a@b commit-tree -p main -m x HEAD^{tree}"
    act = f"import subprocess as s\ns.run('git update-ref refs/heads/main $({commit})', shell=True)\nanswer()"
    run(bench, "prd", act, 21)
    (moved,) = bench.of_type("ref.moved")
    assert (moved["name"], moved["old"]) == ("refs/heads/main", before)
    assert before in bench.git("for-each-ref", "refs/mz/*/rescue/**"), "the old value is kept"
    assert bench.git("rev-parse", "main").strip() == moved["new"], "no other ref is ever moved by us"
    bench.mz("resume", "--feature", FEATURE, "--answer", "approve")
    assert delivered(bench)


@pytest.mark.parametrize(("person", "code"), [("user", 0), ("agent", 21)])
def test_a_commit_in_the_checkout_is_the_users_unless_the_agent_made_it(tmp_path: Path, person: str, code: int) -> None:
    bench = Bench(tmp_path)
    commit = f"git -C {bench.root} -c user.name=A -c user.email=a@b commit -q --allow-empty -m x"
    environment = "env=None" if person == "agent" else "env={'PATH': os.environ['PATH']}"
    act = f"import os, subprocess as s\ns.run({commit!r}, shell=True, check=True, {environment})\nanswer()"
    run(bench, "prd", act, code)
    assert [event["name"] for event in bench.of_type("ref.moved")] == (["refs/heads/main"] if code else [])
    assert bench.git("log", "-1", "--format=%s", "main").strip() == "x"


def test_configuration_hooks_and_the_main_checkout_are_out_of_reach_and_no_process_is_left(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    config = (bench.root / ".git" / "config").read_text()
    act = (
        "git = root / '.git'\nfor name, text in (('config', '[core]\\n'), ('hooks/pre-commit', 'exit 1\\n')):\n"
        "    try: (git / name).write_text(text)\n    except OSError: pass\nanswer()"
    )
    bench.act(FEATURE, "prd", act)
    bench.act(FEATURE, "techspec", "try: (root / 'README.md').write_text('mine')\nexcept OSError: pass\nanswer()")
    stubborn = "setsid sleep 300 & (trap : TERM; sleep 300) &"
    run(bench, "pr", f"import subprocess as s\ns.Popen('{stubborn}', shell=True)\nanswer()", 0)
    assert bench.processes() == []
    assert delivered(bench)
    assert (bench.root / ".git" / "config").read_text() == config
    assert not (bench.root / ".git" / "hooks" / "pre-commit").exists()
    assert bench.git("status", "--porcelain") == ""


def test_a_deleted_worktree_is_built_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    run(
        bench,
        "techspec",
        "import shutil\nanswer()\nshutil.rmtree(cwd, ignore_errors=True)\n(cwd / '.git').unlink(True)",
        0,
    )
    assert delivered(bench)


def test_what_no_tree_can_hold_is_refused_with_its_name(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    act = "import os\nanswer()\nos.mkfifo('pipe')\nos.system('git init -q nested && touch nested/x')"
    bench.act(FEATURE, "code", act)
    bench.mz("run", "--feature", FEATURE, code=None)
    kinds = {kind for kind, _ in offences(bench)}
    assert {"special", "nested-git"} <= kinds
    refused = [violation["rule"] for event in bench.of_type("artifact.validated") for violation in event["violations"]]
    assert {"tree.special", "tree.nested-git"} <= set(refused)


def test_changes_outside_the_contract_are_put_back(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    act = "answer()\n(cwd / 'tally' / 'money.py').write_text('gone')\n(cwd / '.env').write_text('A=1')"
    run(bench, "prd", act, 0)
    assert delivered(bench)
    assert ("outside", "tally/money.py") in offences(bench)


def test_a_secret_never_reaches_log_blobs_or_commits(tmp_path: Path) -> None:
    canary = "canary-4f9a1c7be2d84"
    bench = Bench(tmp_path)
    bench.env["DEPLOY_TOKEN"] = canary
    (bench.root / "features.md").write_text(
        (bench.root / "features.md").read_text().replace("Large totals", f"With {canary}, large totals")
    )
    output = f"import sys\nsay('{canary}')\nsys.stderr.write('{canary}')"
    act = f"{output}\nanswer()\n(cwd / 'leak.md').write_text('{canary}')"
    bench.act(FEATURE, "prd", act)
    bench.mz("run", "--feature", FEATURE, code=None)
    import zstandard

    for path in (bench.root / ".mz").rglob("*"):
        if path.is_file() and "worktrees" not in path.parts:
            data = path.read_bytes()
            if "blobs" in path.parts and data[:4] == b"\x28\xb5\x2f\xfd":
                data = zstandard.ZstdDecompressor().decompress(data, max_output_size=1 << 24)
            assert canary.encode() not in data, path
    assert canary not in bench.git("log", "-p", BRANCH)
