"""Agents that misbehave, as real processes: each ends in a named state, and nothing that was recorded is lost."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from mz_engine.processes.supervise import can_hide
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


def test_too_many_megabytes_are_cut_off(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.env["MZ_SANDBOX_OUTPUT_MB"] = "20"
    bench.act(FEATURE, "prd", "import os\nwhile True: os.write(1, b'x' * 65535 + b'\\n')")
    with RunProcess(bench.root, bench.env, lambda recorded: None) as session:
        session.start({}, (FEATURE,))
        session.drive()
    assert delivered(bench)
    assert problems(bench) == ["output-limit"]


def test_what_it_does_to_its_worktree_and_repository_stays_there(tmp_path: Path) -> None:
    """What it may not change is put back, a deleted worktree is built again, commits of its own are no work."""
    bench = Bench(tmp_path)
    outside = "answer()\n(cwd / 'tally' / 'money.py').write_text('gone')\n(cwd / '.env').write_text('A=1')"
    removes = "import shutil\nanswer()\nshutil.rmtree(cwd, ignore_errors=True)\n(cwd / '.git').unlink(True)"
    commit = "git add -A; git commit -qm own; git tag mine; git update-ref refs/heads/main HEAD; git stash"
    log = "git log --format=%s -1 > README.md; git merge-base HEAD main >> README.md"
    bench.act(FEATURE, "prd", outside)
    bench.act(FEATURE, "techspec", removes)
    bench.act(FEATURE, "code", f"import subprocess as s\nanswer()\ns.run({commit!r}, shell=True)")
    run(bench, "tests", f"import subprocess as s\ns.run({log!r}, shell=True)\nanswer()", 0)
    assert delivered(bench)
    assert ("outside", "tally/money.py") in offences(bench)
    assert len(bench.keys_of(BRANCH)) == 6
    assert bench.git("for-each-ref", "--format=%(refname:short)", "refs/heads", "refs/tags").split() == [BRANCH, "main"]
    assert "own" not in bench.git("log", "--all", "--format=%s").split()


@pytest.mark.skipif(not can_hide(), reason="no mount namespaces here")
def test_the_repository_and_the_checkout_are_out_of_reach_and_no_process_is_left(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    before = repository_state(bench)
    act = (
        "git = root / '.git'\nfor name in ('config', 'hooks/pre-commit', 'commondir', 'index', 'HEAD', 'refs/stash'):\n"
        "    try: (git / name).write_text('x')\n    except OSError: pass\n"
        "import os\nassert sorted(os.listdir(root)) == ['.git', '.mz'], os.listdir(root)\n"
        "assert os.listdir(git) == ['objects']\nassert not (root / '.mz/mz.db').exists()\nanswer()"
    )
    bench.act(FEATURE, "prd", act)
    bench.act(FEATURE, "techspec", "try: (root / 'README.md').write_text('mine')\nexcept OSError: pass\nanswer()")
    stubborn = "setsid sleep 300 & (trap : TERM; sleep 300) &"
    run(bench, "pr", f"import subprocess as s\ns.Popen('{stubborn}', shell=True)\nanswer()", 0)
    assert bench.processes() == []
    assert delivered(bench)
    assert problems(bench) == []
    assert repository_state(bench) == before
    assert bench.git("status", "--porcelain") == ""


def repository_state(bench: Bench) -> dict[str, bytes]:
    """Content of everything in `.git` but objects, what mz adds, and what it locks."""
    files = (path for path in (bench.root / ".git").rglob("*") if path.is_file())
    names = {str(path.relative_to(bench.root / ".git")): path.read_bytes() for path in files}
    added = "objects/|(logs/)?refs/(mz|heads/feat|notes/mz-seal)(/|$)"
    return {name: data for name, data in names.items() if not re.match(added, name)}


def test_what_the_user_does_meanwhile_stops_nothing(tmp_path: Path) -> None:
    """Of which the agent, which waits for it, sees nothing."""
    bench, go = Bench(tmp_path), tmp_path / "go"
    commands = (
        ("commit", "--quiet", "--allow-empty", "-m", "x"),
        ("commit", "--quiet", "--amend", "--allow-empty", "-m", "x"),
        ("update-ref", "refs/remotes/origin/main", "HEAD"),
        ("branch", "-m", "main", "trunk"),
    )
    waits = f"import pathlib, time\nwhile not pathlib.Path({str(go)!r}).exists(): time.sleep(0.02)\nanswer()"
    bench.act(FEATURE, "prd", waits)
    with bench.start("run", "--feature", FEATURE) as process:
        while not bench.calls() and process.poll() is None:
            time.sleep(0.02)
        try:
            for command in commands:
                bench.git("-c", "user.name=A", "-c", "user.email=a@b", *command)
        finally:
            go.touch()
        assert process.wait(120) == 0, process.communicate()
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
