"""Agent calls as processes: what crosses the boundary, the spool, and what is found after a crash of ours."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from mz_engine.agents.contract import Invocation, OwnPaths
from mz_engine.agents.process import AgentProcesses, Spool, SpoolMeta, load_spool, spool_directory, take_login
from mz_engine.agents.registry import AgentRegistry
from mz_engine.model.config import SandboxSettings
from mz_engine.paths import spending_folder
from mz_engine.ports import CallResult, CallSpec
from mz_engine.processes.supervise import can_hide
from mz_engine.run.spending_record import SpendingRecord
from mz_events.catalog.call import ProblemClass
from mz_events.redaction.redactor import Secrets
from mz_projections.run.spending import Amount, total

from tests.support.mounts import in_small_filesystem
from tests.support.processes import (
    WORKTREE,
    call,
    eventually,
    fresh_key,
    left,
    levels,
    repository,
    shell,
    wait_for,
    wait_until_marked,
)
from tests.support.tree import ROOT

ENVIRONMENT = {"PATH": os.environ["PATH"], "HOME": "/nowhere", "LC_ALL": "C.UTF-8", "TOKEN": "hunter2-hunter2"}


def processes(root: Path, **more: object) -> AgentProcesses:
    return AgentProcesses(root, ENVIRONMENT, Secrets({"TOKEN": ENVIRONMENT["TOKEN"]}), **more)  # type: ignore[arg-type]


def spawn(root: Path, script: str, stdin: bytes = b"", total_seconds: int = 20) -> CallResult:
    if not (root / ".git").exists():
        repository(root)
    return processes(root).spawn(call(fresh_key(), total_seconds), shell(script, stdin))


def test_a_call_runs_in_its_worktree_with_its_prompt(tmp_path: Path) -> None:
    path = repository(tmp_path)
    result = spawn(tmp_path, "pwd; cat; echo oops >&2; exit 4", stdin=b"do it\n")
    assert result.stdout == f"{path}\ndo it\n".encode()
    assert result.stderr == b"oops\n"
    assert (result.exit, result.problem) == (4, None)
    assert 0 < result.duration_ms < 20_000


def test_a_call_sees_what_is_allowed_and_its_key(tmp_path: Path) -> None:
    repository(tmp_path)
    key = fresh_key()
    invocation = Invocation(argv=("env",), stdin=b"", env={"AGENT_SETTING": "1", "HOME": "/own"})
    result = processes(tmp_path, passed=("EXTRA",)).spawn(call(key), invocation)
    texts = dict(line.partition("=")[::2] for line in result.stdout.decode().splitlines())
    assert texts == {
        "PATH": ENVIRONMENT["PATH"],
        "HOME": "/own",
        "LC_ALL": "C.UTF-8",
        "AGENT_SETTING": "1",
        "MZ_KEY": key,
    }


def test_further_variables_pass_by_name(tmp_path: Path) -> None:
    repository(tmp_path)
    result = processes(tmp_path, passed=("TOKEN",)).spawn(call(fresh_key()), shell("echo ${#TOKEN}"))
    assert result.stdout == b"15\n"


def test_secrets_are_taken_out_before_anything_is_written(tmp_path: Path) -> None:
    repository(tmp_path)
    key = fresh_key()
    secret = ENVIRONMENT["TOKEN"]
    script = f"printf hunter2; sleep 0.2; echo -hunter2; echo {secret} >&2"
    result = processes(tmp_path).spawn(call(key), shell(script))
    folder = spool_directory(tmp_path / ".mz" / "spool", key)
    for text in (result.stdout, result.stderr, *(path.read_bytes() for path in folder.iterdir())):
        assert secret.encode() not in text
    assert result.stdout.startswith(b"<")


def test_the_repository_itself_is_out_of_reach_where_there_is_a_namespace(tmp_path: Path) -> None:
    result = spawn(tmp_path, "git config user.name Mallory && touch ../../../../.git/hooks/pre-commit")
    assert (result.exit == 0) is ("namespace" not in levels()[0])
    assert ("Mallory" in (tmp_path / ".git" / "config").read_text()) is ("namespace" not in levels()[0])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "code", "kind"),
    [
        ("sleep 60", "idle", ProblemClass.TRANSIENT),
        ("while :; do echo x; sleep 0.1; done", "timeout", ProblemClass.TRANSIENT),
        ("yes", "output-limit", ProblemClass.PHASE),
    ],
)
def test_limits_are_named(tmp_path: Path, script: str, code: str, kind: ProblemClass) -> None:
    repository(tmp_path)
    door = processes(tmp_path, sandbox=SandboxSettings(output_mb=1))
    result = door.spawn(call(fresh_key(), total_seconds=2, idle_seconds=1), shell(script))
    assert result.problem is not None
    assert (result.problem.code, result.problem.kind) == (code, kind)
    assert result.exit is not None
    assert result.exit < 0


def test_a_missing_tool_is_fatal_and_said_in_words(tmp_path: Path) -> None:
    repository(tmp_path)
    result = processes(tmp_path).spawn(call(fresh_key()), Invocation(argv=("no-such-agent",), stdin=b"", env={}))
    assert result.problem is not None
    assert (result.problem.code, result.problem.kind) == ("tool-missing", ProblemClass.FATAL)
    assert result.exit is None
    assert b"no-such-agent" in result.stderr


def test_a_vanished_worktree_can_be_tried_again(tmp_path: Path) -> None:
    repository(tmp_path).rmdir()
    result = processes(tmp_path).spawn(call(fresh_key()), shell("true"))
    assert result.problem is not None
    assert (result.problem.code, result.problem.kind) == ("unstartable", ProblemClass.TRANSIENT)


def test_the_stop_token_ends_every_call(tmp_path: Path) -> None:
    repository(tmp_path)
    stop = threading.Event()
    door, results = processes(tmp_path, stop=stop), list[CallResult]()
    threads = [
        threading.Thread(target=lambda: results.append(door.spawn(call(fresh_key()), shell("echo up; sleep 60"))))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    threading.Timer(0.5, stop.set).start()
    for thread in threads:
        thread.join(20)
    assert [(result.problem and result.problem.code, result.stdout) for result in results] == [("stopped", b"up\n")] * 3


ON_A_SMALL_DISK = """
import pathlib, sys
from tests.engine.test_process_calls import call, fresh_key, processes, repository, shell
root = pathlib.Path(sys.argv[1])
repository(root)
result = processes(root).spawn(call(fresh_key()), shell("echo first; sleep 0.3; yes"))
print(result.problem.kind.value, result.problem.code, result.stdout[:8])
"""


@pytest.mark.slow
def test_a_full_disk_is_fatal_and_keeps_what_there_was(tmp_path: Path) -> None:
    done = in_small_filesystem(tmp_path / "disk", "1m", [sys.executable, "-c", ON_A_SMALL_DISK])
    assert done.returncode == 0, done.stderr
    assert done.stdout == "fatal disk-full b'first\\ny\\n'\n"


@pytest.mark.slow
def test_a_finished_call_can_be_salvaged_as_it_was(tmp_path: Path) -> None:
    """We may die between the end of a call and the event that says so."""
    repository(tmp_path)
    key = fresh_key()
    door = processes(tmp_path)
    result = door.spawn(call(key, total_seconds=1), shell("echo out; echo err >&2; sleep 60"))
    assert door.salvage(key) == result
    assert result.problem is not None


def test_what_is_salvaged_tells_the_version_that_was_known_when_it_began(tmp_path: Path) -> None:
    repository(tmp_path)
    key = fresh_key()
    door = processes(tmp_path)
    door.spawn(replace(call(key), version="0.169.0"), shell("echo out"))
    salvaged = door.salvage(key)
    assert salvaged is not None
    assert salvaged.version == "0.169.0"


def test_a_call_that_never_began_leaves_nothing_to_salvage(tmp_path: Path) -> None:
    repository(tmp_path)
    assert processes(tmp_path).salvage(fresh_key()) is None


def test_a_spool_cut_short_at_any_byte_is_no_spool_or_a_short_one(tmp_path: Path) -> None:
    repository(tmp_path)
    key = fresh_key()
    processes(tmp_path).spawn(call(key), shell("echo out"))
    path = spool_directory(tmp_path / ".mz" / "spool", key)
    for name in ("exit.json", "meta.json"):
        data = (path / name).read_bytes()
        for size in range(len(data)):
            (path / name).write_bytes(data[:size])
            held = load_spool(path)
            assert held is None or (held.stdout == b"out\n" and held.exit is None)


def test_a_new_call_under_an_old_key_has_not_ended(tmp_path: Path) -> None:
    repository(tmp_path)
    key = fresh_key()
    processes(tmp_path).spawn(call(key), shell("echo out"))
    path = spool_directory(tmp_path / ".mz" / "spool", key)
    meta = SpoolMeta(key=key, agent="a", model="m", argv=(), environment=(), started_us=1)
    Spool(path, meta, Secrets({})).close()
    held = load_spool(path)
    assert held is not None
    assert (held.exit, held.stdout) == (None, b"")


def test_different_keys_have_different_spools() -> None:
    keys = ["a/b", "a+b", "a_b", "a b", "x" * 300 + "/1", "x" * 300 + "/2", "r/f/p/-/1/1/agent.builder"]
    names = {spool_directory(Path(), key).name for key in keys}
    assert len(names) == len(keys)
    assert all(len(name) < 255 for name in names)


HOLDER = """
import os, pathlib, sys
from mz_engine.processes import supervise
from tests.engine.test_process_calls import call, processes, shell
root, key, level, script = sys.argv[1:]
supervise.best_level.cache_clear()
supervise.guard.LEVELS = (level,)
print("holding", flush=True)
processes(pathlib.Path(root)).spawn(call(key, 600, 600), shell(script))
"""
"""A process that calls an agent, and is about to be killed."""

HARD = """
echo '{"n":1}'; echo '{"n":2}'
(setsid sh -c 'trap "" TERM HUP INT; while :; do sleep 1; done' >/dev/null 2>&1 &)
(setsid sleep 600 &)
sh -c 'trap "" TERM; while :; do sleep 1; done'
"""


@pytest.mark.slow
@pytest.mark.parametrize("level", levels())
def test_when_we_are_killed_nothing_is_left_but_the_output(tmp_path: Path, level: str) -> None:
    repository(tmp_path)
    key = fresh_key()
    path = os.pathsep.join([str(ROOT), *sys.path])
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path), key, level, HARD],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.DEVNULL,
    )
    folder = spool_directory(tmp_path / ".mz" / "spool", key)
    wait_for(folder / "stdout", '"n":2')
    wait_until_marked(key, 4)
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert not left(key, within_seconds=2)
    result = processes(tmp_path).salvage(key)
    assert result is not None
    assert (result.stdout, result.exit, result.problem) == (b'{"n":1}\n{"n":2}\n', None, None)
    assert result.duration_ms < 60_000


@pytest.mark.slow
def test_salvage_kills_what_still_runs(tmp_path: Path) -> None:
    """As where only the mark holds a tree together, and its guard was killed too."""
    repository(tmp_path)
    key = fresh_key()
    orphan = subprocess.Popen(["sleep", "600"], env={"PATH": os.environ["PATH"], "MZ_KEY": key}, start_new_session=True)
    wait_until_marked(key, 1)  # A process that begins has no environment for an instant.
    assert processes(tmp_path).salvage(key) is None
    assert orphan.wait(5) == -signal.SIGKILL


def test_the_spool_says_what_was_started_and_no_value(tmp_path: Path) -> None:
    repository(tmp_path)
    key = fresh_key()
    processes(tmp_path).spawn(call(key), shell(f"true {ENVIRONMENT['TOKEN']}", AGENT_SETTING="a value"))
    meta = (spool_directory(tmp_path / ".mz" / "spool", key) / "meta.json").read_bytes()
    result = msgspec.json.decode(meta)
    assert result["key"] == key
    assert result["environment"] == ["AGENT_SETTING", "HOME", "LC_ALL", "MZ_KEY", "PATH"]
    assert ENVIRONMENT["TOKEN"].encode() not in meta
    assert b"a value" not in meta


SPENDS = """
cat > /dev/null
say() { echo '{"type":"assistant","session_id":"s","message":{"id":"msg_'$1'","model":"m","content":[],'\
'"usage":{"input_tokens":60,"output_tokens":5,"cache_read_input_tokens":'$2',"cache_creation_input_tokens":0}}}'; }
echo '{"type":"system","subtype":"init","session_id":"s","model":"claude-sonnet-4-6","mcp_servers":[]}'
say 1 0
say 2 $1
exec sleep 60
"""
"""A call that reports 65 tokens, then more, and never ends by itself."""


@pytest.mark.parametrize(
    ("limits", "price"),
    [({"tokens_max": 129}, 0), ({"nanousd_max": 9}, 10), ({"tokens_max": 10**6, "nanousd_max": 9}, 10)],
)
def test_a_call_that_reports_more_than_its_budget_is_ended(tmp_path: Path, limits: dict[str, int], price: int) -> None:
    repository(tmp_path)
    program = tmp_path / "bin" / "claude"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n[ $1 = --version ] && echo 1.0.0 && exit\nset -- 0\n{SPENDS}")
    program.chmod(0o755)
    environment = {**ENVIRONMENT, "PATH": f"{program.parent}:{ENVIRONMENT['PATH']}", "HOME": str(tmp_path)}
    registry = AgentRegistry(AgentProcesses(tmp_path, environment, Secrets({})), environment)
    registry.price = lambda usage: price * len(usage)
    spec = replace(call(fresh_key(), 50), agent="claude-code", **limits)
    result = registry.call(spec)
    assert result.problem is not None
    assert result.problem.code == "call-budget"
    assert registry.adapter("claude-code").parse_output(result).ending == "no-terminal"
    assert registry.salvage(spec.key) is not None
    assert not left(spec.key)


ENDED = b'{"type":"result","subtype":"success","is_error":false,"session_id":"s","num_turns":1,"usage":{}}\n'


def test_a_call_within_its_budget_or_at_its_end_goes_on() -> None:
    spawns = Spawns()
    registry, checks = AgentRegistry(spawns, {}), []
    for tokens_max, ending in ((130, b""), (129, ENDED)):
        registry.call(replace(call(fresh_key()), agent="claude-code", tokens_max=tokens_max))
        lines = [LINE % (number, 60, 5) for number in (1, 2)]
        check = spawns.invocations[-1].is_over_budget
        assert check is not None
        checks.append(check(CallResult(stdout=b"".join(lines) + ending, stderr=b"", exit=None, duration_ms=0)))
    assert checks == [False, False]
    registry.call(replace(call(fresh_key()), agent="claude-code"))
    assert spawns.invocations[-1].is_over_budget is None, "without a budget nothing is read"


LINE = (
    b'{"type":"assistant","session_id":"s","message":{"id":"msg_%d","model":"m","content":[],'
    b'"usage":{"input_tokens":%d,"output_tokens":%d}}}\n'
)


class Spawns:
    """Processes that start none."""

    def __init__(self) -> None:
        self.invocations: list[Invocation] = []

    def spawn(self, spec: CallSpec, invocation: Invocation) -> CallResult:
        self.invocations.append(invocation)
        return CallResult(stdout=b"", stderr=b"", exit=0, duration_ms=0)

    query = spawn

    def salvage(self, key: str) -> CallResult | None:
        return None


@pytest.mark.skipif(not can_hide(), reason="needs mount namespaces")
@pytest.mark.parametrize(
    ("folder", "name", "is_around"),
    [
        ("data", "project", False),
        ("data", "data/project", True),
        ("project", "project", True),
        ("project/.mz", "project", True),
        ("home/.local/share/mz", "project", False),
    ],
)
def test_no_call_sees_or_deletes_what_was_spent(tmp_path: Path, folder: str, name: str, is_around: bool) -> None:
    """Nor the user's log, unless the worktrees are in the same folder. In HOME the folder is hidden anyway."""
    data, project = tmp_path / folder, tmp_path / name
    repository(project)
    data.mkdir(exist_ok=True, parents=True)
    (data / "mz.db").write_text("log")
    environment = {**ENVIRONMENT, "MZ_DATA": str(data), "HOME": str(tmp_path / "home")}
    record = SpendingRecord(spending_folder(environment), "/elsewhere")
    with record.lock():
        record.add("k", Amount(nanousd=5), 10**15, charged=True)
    spent = f"{data}/spending"
    attack = f"ls {spent}; rm -rf {spent}; echo {{}} > {spent}/2001-09-09.jsonl; umount {spent}; ls {spent}"
    attack += "" if is_around else f"; cat {data}/mz.db; rm {data}/mz.db; umount {data}; ls {data}"
    write = (str(data), str(tmp_path)) if folder == "data" else ()
    agents = AgentProcesses(project, environment, Secrets({}), sandbox=SandboxSettings(write=write))
    result = agents.spawn(call(fresh_key()), shell(f"{attack}; echo done"))
    assert result.stdout == b"done\n"
    assert total(record.day(10**15)) == Amount(nanousd=5)
    assert (data / "mz.db").read_text() == "log"


@pytest.mark.skipif(not can_hide(), reason="no mount namespaces here")
def test_a_link_that_is_writable_leads_there_also_to_and_from_temporary_folders(tmp_path: Path) -> None:
    home, root = tmp_path / "home", tmp_path / "repo"
    home.mkdir()
    repository(root)
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        temporary, data = Path(name), tmp_path / "data"
        data.mkdir()
        links = {home / "to": temporary / "real", temporary / "from": data, home / "beside": data}
        (temporary / "real").mkdir()
        for number, (link, folder) in enumerate(links.items()):
            link.symlink_to(folder)
            sandbox = SandboxSettings(write=(str(link),))
            agents = AgentProcesses(root, {**ENVIRONMENT, "HOME": str(home)}, Secrets({}), sandbox=sandbox)
            assert agents.spawn(call(fresh_key()), shell(f"echo made > {link}/{number}")).exit == 0
            assert (folder / str(number)).read_text() == "made\n"


@pytest.mark.skipif(not can_hide(), reason="no mount namespaces here")
def test_what_an_agent_changes_in_its_folders_is_seen_by_its_feature_alone_but_for_the_login(tmp_path: Path) -> None:
    home, root = tmp_path / "home", tmp_path / "repo"
    path = repository(root)
    (home / ".agent/sessions").mkdir(parents=True)
    files = [".agent/login.json", ".agent/settings.json", ".agent/history", ".agent/sessions/others"]
    for name in (*files, ".agent/shared", ".other-login", ".secret"):
        (home / name).write_text('{"token":"old"}\n')

    def run(script: str, feature: str) -> list[str]:
        (path.parent / feature).mkdir(exist_ok=True)
        worktree = replace(call("").worktree, feature=feature)
        invocation = Invocation(
            argv=("sh", "-c", f"cd $HOME && {script}"), stdin=b"", env={"HOME": str(home)},
            own=OwnPaths(
                folders=(home / ".agent",), new_folders=(home / ".agent/sessions",),
                empty_files=(home / ".agent/history",),
                logins=(home / ".agent/login.json", home / ".other-login", home / ".agent/missing"),
                shared_logins=(home / ".agent/shared", home / ".agent/none"),
            ),
        )  # fmt: skip
        result = processes(root).spawn(replace(call(fresh_key()), worktree=worktree), invocation)
        assert not result.stderr, result
        return result.stdout.decode().split()

    renamed = """echo '{"token":"new","more":1}' > .agent/partial; mv .agent/partial .agent/login.json"""
    change = f"{renamed}; echo new | tee .agent/settings.json .agent/history > .agent/sessions/1"
    read = "cat .agent/*.json .agent/history .other-login .secret; ls .agent/sessions"
    old, new = '{"token":"old"}', '{"token":"new","more":1}'
    assert run(change, "f") == []
    assert (home / ".agent/login.json").read_text().strip() == new
    assert run(read, "f") == [new, "new", old, "1"]
    assert run(read, "g") == [new, old, old]
    assert run("(echo x > .other-login) 2>/dev/null || echo refused; rm .agent/login.json", "g") == ["refused"]
    assert run("cat .agent/login.json", "g") == [new], "a login that its program deleted is there again"
    assert [(home / name).read_text().strip() for name in files] == [new, old, old, old]
    assert run("echo again > new; mv new .agent/shared 2>/dev/null || cp new .agent/shared", "g") == []
    assert (home / ".agent/shared").read_text() == "again\n"
    files.append(".agent/shared")
    assert sorted(str(path.relative_to(home)) for path in (home / ".agent").rglob("*") if path.is_file()) == sorted(
        name for name in files if "/" in name
    )


@pytest.mark.skipif(not can_hide(), reason="no mount namespaces here")
def test_a_refreshed_login_is_seen_at_once_by_other_calls_and_each_refresh_is_taken(tmp_path: Path) -> None:
    root, login = tmp_path / "repo", tmp_path / "home/.agent/login.json"
    folder = repository(root)
    login.parent.mkdir(parents=True)
    login.write_text('{"token": 0}')
    own = OwnPaths(folders=(login.parent,), logins=(login,))
    # Each waits for the login before its own, and is there to the end, as agents are that work at the same time.
    script = """cd ~/.agent; cat login.json; until grep -q $OLD login.json; do sleep 0.01; done
        echo "{\\"token\\": $NEW}" > new; mv new login.json
        until grep -q 3 $LAST; do sleep 0.01; done"""
    last = tmp_path / "home/.cache/last"
    last.parent.mkdir()
    last.touch()

    def run(number: int) -> None:
        (folder.parent / f"f{number}").mkdir()
        env = {"HOME": str(tmp_path / "home"), "OLD": str(number), "NEW": str(number + 1), "LAST": str(last)}
        spec = replace(call(fresh_key()), worktree=replace(WORKTREE, feature=f"f{number}"))
        invocation = Invocation(argv=("sh", "-c", script), stdin=b"", env=env, own=own)
        results.append(processes(root).spawn(spec, invocation))

    results = list[CallResult]()
    threads = [threading.Thread(target=run, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    eventually(lambda: login.read_text().strip() == '{"token": 3}')
    last.write_text("3")
    for thread in threads:
        thread.join()
    assert [result.exit for result in results] == [0, 0, 0]
    assert login.read_text().strip() == '{"token": 3}'
    assert [path.name for path in login.parent.iterdir()] == ["login.json"]


@pytest.mark.skipif(not can_hide(), reason="no mount namespaces here")
def test_of_a_file_of_all_projects_a_call_sees_the_account_and_what_its_feature_wrote(tmp_path: Path) -> None:
    root, file = tmp_path / "repo", tmp_path / "home/.agent.json"
    folder = repository(root)
    file.parent.mkdir()
    before = json.dumps({"account": 1, "projects": {"/other": {"history": ["x"]}}})
    file.write_text(before)
    own = OwnPaths(files={file: ("account",)})

    def run(script: str, feature: str = WORKTREE.feature) -> str:
        (folder.parent / feature).mkdir(exist_ok=True)
        spec = replace(call(fresh_key()), worktree=replace(WORKTREE, feature=feature))
        invocation = Invocation(argv=("sh", "-c", script), stdin=b"", env={"HOME": str(file.parent)}, own=own)
        return processes(root).spawn(spec, invocation).stdout.decode()

    changed = json.dumps({"account": 2, "projects": {"/mine": 3}})
    assert json.loads(run(f"cat ~/.agent.json; echo '{changed}' > ~/.agent.json")) == {"account": 1}
    assert json.loads(run("cat ~/.agent.json")) == {"account": 1, "projects": {"/mine": 3}}
    assert json.loads(run("cat ~/.agent.json", "other")) == {"account": 1}
    run("head -c 2000000 /dev/zero > ~/.agent.json")
    assert json.loads(run("cat ~/.agent.json")) == {"account": 1}, "too large to be read"
    assert file.read_text() == before


@pytest.mark.parametrize(
    ("content", "is_taken", "stays"),
    [
        ('{"token": "new", "expires": 2}', True, False),
        ('{"other": "new"}', False, True),
        ('{"token": ""}', False, False),
        ("[]", False, True),
        ("[" * 400_000, False, True),
        ("", False, False),
        ('{"token": "%s"}' % ("x" * 1_000_000), False, False),
    ],
    ids=["refreshed", "other names", "made empty", "no object", "nested", "empty", "large"],
)
def test_a_login_is_taken_from_an_agents_folder_if_it_may_be_one(
    tmp_path: Path, content: str, is_taken: bool, stays: bool
) -> None:
    folder, login = tmp_path / "upper", tmp_path / "home/login.json"
    for path in (folder, login.parent):
        path.mkdir()
    before = '{"token": "old"}'
    login.write_text(before)
    (folder / "login.json").write_text(content)
    os.utime(login, (1, 1))
    take_login(folder, Path("login.json"), login, before.encode())
    assert login.read_text() == (content if is_taken else before)
    assert [path.name for path in folder.iterdir()] == (["login.json"] if stays else [])


def test_a_login_that_another_one_changed_meanwhile_stays(tmp_path: Path) -> None:
    folder, login = tmp_path / "upper", tmp_path / "login.json"
    folder.mkdir()
    login.write_text('{"token": "of another call"}')
    os.utime(login, (1, 1))
    (folder / "login.json").write_text('{"token": "too late"}')
    take_login(folder, Path("login.json"), login, b'{"token": "old"}')
    assert login.read_text() == '{"token": "of another call"}'
    assert list(folder.iterdir()) == []


def test_no_old_login_is_taken_and_none_that_a_link_leads_to(tmp_path: Path) -> None:
    folder, login, other = tmp_path / "upper", tmp_path / "home/a/login.json", tmp_path / "other/login.json"
    for path in (login, other, folder / "login.json", folder / "b/login.json"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'{{"token": "{path}"}}')
    os.utime(folder / "login.json", (1, 1))
    (folder / "a").symlink_to(other.parent)
    before = login.read_text()
    for name in ("login.json", "a/login.json"):
        take_login(folder, Path(name), login, None)
    (folder / "a").unlink()
    (folder / "a").mkdir()
    (folder / "a/login.json").symlink_to(other)
    take_login(folder, Path("a/login.json"), login, None)
    (folder / "login.json").symlink_to(other)
    take_login(folder, Path("login.json"), login, None)
    assert (login.read_text(), other.is_file()) == (before, True)
    with pytest.raises(OSError, match="No such file"):
        take_login(folder, Path("b/login.json"), tmp_path / "home/none.json", None)
