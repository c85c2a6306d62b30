"""Replays in memory: whatever changed, they find what a replay with processes finds."""

from __future__ import annotations

import json
import shutil
import socket
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace
from mz_cli.replay.command import summary
from mz_engine.agents.claude_code.adapter import ClaudeCode
from mz_engine.ports import ParsedReply
from mz_engine.processes.supervise import can_run_offline
from mz_events.catalog.run import Verdict
from mz_events.names import FeatureId
from mz_recordings.cassette.files import digest, save
from mz_recordings.cassette.model import Cassette, Fixture, Kind, RecordedCall
from mz_recordings.findings.model import ReplayResult
from mz_recordings.replay import driver
from mz_recordings.replay.replay import bundled_library, sampled

from tests.cli.drive import spawn
from tests.support.workshop import BACKLOG, SCRIPT, Copy, Workshop, clone

pytestmark = pytest.mark.slow

ASKS = "autonomy: [supervised, checkpoint, full_auto]}]"
CONNECT = f"{sys.executable} -IS -c 'import socket; socket.create_connection((\"192.0.2.1\", 80), 2)' 2>/dev/null; true"


def rewrite(copy: Copy, change: Callable[[Cassette], Cassette]) -> None:
    save(change(copy.cassette()), copy.folder, replace=True)


def edit(path: str, old: str, new: str) -> Callable[[Copy], None]:
    return lambda copy: copy.edit(path, old, new)


def both(*changes: Callable[[Copy], None]) -> Callable[[Copy], None]:
    """Change several things, whose findings are compared at once."""

    def change(copy: Copy) -> None:
        for single in changes:
            single(copy)

    return change


def settings(lines: str) -> Callable[[Copy], None]:
    def change(copy: Copy) -> None:
        file = copy.root / "mz.yaml"
        file.write_text(f"{file.read_text()}{lines}\n")

    return change


def manifest(**changes: object) -> Callable[[Copy], None]:
    """Change the manifest of the cassette."""
    return lambda copy: rewrite(copy, lambda old: old._replace(manifest=replace(old.manifest, **changes)))


def fixture(change: Callable[[Fixture], Fixture]) -> Callable[[Copy], None]:
    return lambda copy: manifest(fixture=change(copy.cassette().manifest.fixture))(copy)


def gate(command: str, timeout: str = "1m") -> Callable[[Copy], None]:
    """Change the command of the gate where a replay takes it from: the cassette."""
    commands = {"check": {"run": command, "timeout": timeout}}
    return fixture(lambda fixture: replace(fixture, config={**fixture.config, "commands": commands}))


def calls(change: Callable[[RecordedCall], RecordedCall | None]) -> Callable[[Copy], None]:
    def all_calls(cassette: Cassette) -> Cassette:
        return cassette._replace(calls=tuple(new for call in cassette.calls if (new := change(call))))

    return lambda copy: rewrite(copy, all_calls)


def content(kind: Kind, old: bytes, new: bytes) -> Callable[[Copy], None]:
    """Change a file of every call."""

    def change(call: RecordedCall) -> RecordedCall:
        file = call.recording.find(kind)
        if file is None:
            return call
        data = call.contents[file.name].replace(old, new)
        files = tuple(replace(item, sha256=digest(data)) if item is file else item for item in call.recording.files)
        return RecordedCall(replace(call.recording, files=files), {**call.contents, file.name: data})

    return calls(change)


def without_patch(call: RecordedCall) -> RecordedCall:
    if call.identity.path != "beta/write.a2":
        return call
    files = tuple(file for file in call.recording.files if file.kind != "patch")
    return RecordedCall(replace(call.recording, files=files), {file.name: call.contents[file.name] for file in files})


@dataclass(frozen=True)
class Case:
    change: Callable[[Copy], None]
    kinds: set[str]
    executed: int = 0
    """Commands that memory executes; all others are answered."""
    in_memory: bool = True
    parse: Callable[[ParsedReply], ParsedReply] | None = None


CASES = {
    "compared": Case(
        both(
            edit("pipelines/templates/write.md.j2", "Keep it short.", "Be brief."),
            edit("pipelines/rules/note.yaml", "are needed", "are required"),
            edit("pipelines/notes.yaml", "cause: text", "cause: words"),
            edit("pipelines/notes.yaml", "tier: mid, tools: [read, write]", "tier: premium, tools: [read]"),
            settings("models: {mid: claude-haiku-4-5}\nparallel_max: 2"),
        ),
        {"PROMPT", "DECISION", "CONFIG"},
    ),
    "template-invalid": Case(edit("pipelines/templates/sign.md.j2", "{{ title }}", "{{ titel }}"), {"PIPELINE"}),
    "pipeline-invalid": Case(edit("pipelines/notes.yaml", "phase: sign", "phase: write"), {"PIPELINE"}),
    "gate-red": Case(gate("! grep -rh enough notes"), {"MISSING"}, executed=1),
    "gate-network": Case(gate(CONNECT), {"NETWORK"}, executed=3),
    "gate-added-and-variables": Case(
        both(
            edit("pipelines/notes.yaml", ASKS, f"{ASKS}\n  gates: [{{run: check}}]"),
            settings("pass_environment: [LANG_OF_TESTS]"),
        ),
        {"DECISION"}, executed=6,
    ),
    "person-missing": Case(
        both(
            fixture(lambda fixture: replace(fixture, decisions=())), manifest(max_age_days=1, provenance="copied")
        ),
        {"UNUSED", "COPIED"},
    ),
    "patch-changed": Case(content("patch", b"long enough", b"LONG ENOUGH"), {"FILES", "PROMPT"}, in_memory=False),
    "patch-removed": Case(calls(without_patch), {"MISSING"}),
    "reply-cut": Case(content("stdout", b'"type": "result"', b'"type": "rest"'), {"FILES", "PROMPT"}),
    "byte-changed": Case(edit("recordings/notes/beta/sign.md", "beta", "other"), {"UNREADABLE"}),
    "bundle-gone": Case(lambda copy: (copy.folder / "repository.bundle").unlink(), {"UNREADABLE"}),
    "parser": Case(lambda copy: None, {"COST"}, parse=lambda reply: replace(reply, usage=())),
}  # fmt: skip


def comparable(result: ReplayResult) -> ReplayResult:
    return replace(result, duration_ms=0, in_memory=False, reason="", commands_answered=0, commands_executed=0)


@pytest.mark.parametrize("name", CASES)
def test_memory_finds_what_processes_find(copy: Copy, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[name]
    case.change(copy)
    if case.parse is not None:
        original, parse = ClaudeCode.parse_output, case.parse
        monkeypatch.setattr(
            ClaudeCode, "parse_output", lambda self, result, watch=None: parse(original(self, result, watch))
        )
    memory, real = copy.settle(), copy.settle(real=True)
    assert comparable(memory) == comparable(real)
    assert {finding.kind for finding in memory.findings} >= case.kinds
    if not {"UNREADABLE", "PIPELINE"} & case.kinds:
        assert memory.in_memory == case.in_memory, memory.reason
        assert not case.in_memory or memory.commands_executed == case.executed
        assert real.commands_executed == memory.commands_answered + memory.commands_executed


def without_file(path: str, file: bytes) -> Callable[[Copy], None]:
    """Take a file out of the patch of a call."""

    def change(call: RecordedCall) -> RecordedCall:
        if call.identity.path != path:
            return call
        first, *parts = call.content("patch").split(b"diff --git ")
        kept = b"diff --git ".join((first, *(part for part in parts if not part.startswith(b"a/" + file))))
        patches = {entry.name: kept for entry in call.recording.files if entry.kind == "patch"}
        files = tuple(
            replace(entry, sha256=digest(kept)) if entry.name in patches else entry for entry in call.recording.files
        )
        return RecordedCall(replace(call.recording, files=files), {**call.contents, **patches})

    return calls(change)


def without_call(path: str) -> Callable[[Copy], None]:
    return calls(lambda call: None if call.identity.path == path else call)


MERGES = {
    "no-conflict": Case(without_file("t1/implement", b"README.md"), {"PROMPT", "UNUSED"}, executed=5),
    "conflict-for-a-person": Case(
        edit("pipelines/generation.yaml", "to: implement, scope: tree, max_times: 1}", "to: person}"), {"TRACE"},
        executed=1,  # The last item writes another end of that task.
    ),
    "lost-call-gone": Case(without_call("t3/implement.i2"), {"MISSING"}, executed=1),
}  # fmt: skip


@pytest.fixture
def generation(tmp_path: Path) -> Copy:
    """A project with a pipeline whose features merge, and the cassette in which they are in conflict."""
    copy = Copy(tmp_path / "project")
    shutil.copytree(bundled_library() / "generation-claude-code", copy.folder)
    (copy.root / "mz.yaml").write_text("pipeline: generation\ncommands: {test: python3 -m unittest}\n")
    assert spawn(copy.root, "pipelines", "copy", "generation").exit == 0
    return copy


@pytest.mark.parametrize("name", MERGES)
def test_memory_merges_as_processes_do(generation: Copy, name: str) -> None:
    case = MERGES[name]
    case.change(generation)
    memory, real = generation.settle(), generation.settle(real=True)
    assert comparable(memory) == comparable(real)
    assert {finding.kind for finding in memory.findings} >= case.kinds
    assert (memory.in_memory, memory.reason) == (True, "")
    assert memory.commands_executed == case.executed
    assert bool(case.kinds) == bool(memory.findings)


def test_merges_and_stops_use_up_the_recorded_order(generation: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    orders = list[list[str]]()

    def next_in_order(features: Iterable[FeatureId], order: list[str]) -> FeatureId:
        orders.append(order)
        return driver_next(features, order)

    driver_next = driver.next_in_order
    monkeypatch.setattr(driver, "next_in_order", next_in_order)
    assert generation.settle().findings == ()
    assert orders[-1] == []


def test_merges_do_not_depend_on_the_order_in_which_features_are_replayed(generation: Copy) -> None:
    for real, seed in ((False, 3), (False, 7), (True, 5)):
        assert generation.settle(real=real, seed=seed, features_parallel=2).findings == ()


BRANCHES = """\
# Backlog

## [FEAT] alpha: The first

Please.

## [FEAT] beta: The second

Please, too.

## [FEAT] gamma: The third

- depends on: alpha, beta

Please, at last.
"""


def test_a_feature_that_builds_upon_two_others_is_replayed_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    features, folders = ("alpha", "beta", "gamma"), {"write": "notes", "sign": "letters"}
    monkeypatch.setattr("tests.support.workshop.ANSWERS", {feature: [(Verdict.APPROVE, None)] for feature in features})
    script = {
        f"{feature}.{phase}.1.1": {"write": {f"{folder}/{feature}.md": f"# {feature}\nThis is long enough.\n"}}
        for feature in features
        for phase, folder in folders.items()
    }
    workshop = Workshop(tmp_path, script)
    workshop.repository.commit({"features.md": BRANCHES})
    recorded = workshop.record(workshop.run())
    assert recorded.unrecordable == ()
    workshop.keep(recorded.cassette)
    copy = Copy(workshop.root)
    assert copy.settle(keep=True).findings == ()
    memory = copy.settle()
    assert (memory.findings, memory.in_memory, memory.commands_executed) == ((), True, 0)


def lie(copy: Copy) -> None:
    """Edit a kept result and seal the cassette again."""

    def change(cassette: Cassette) -> Cassette:
        assert cassette.commands
        first, *others = cassette.commands
        return cassette._replace(commands=(replace(first, exit=1, text="it is broken"), *others))

    rewrite(copy, change)


def test_a_kept_result_that_does_not_hold_is_found_by_a_real_replay(copy: Copy) -> None:
    lie(copy)
    assert "COMMAND" not in {finding.kind for finding in copy.settle().findings}
    (finding,) = copy.settle(real=True).findings
    assert (finding.kind, finding.fix) == ("COMMAND", "mz replay {cassette} --keep")
    assert finding.message.endswith("was kept with exit 1, and now ends with exit 0")
    assert copy.settle(keep=True).findings == ()


def test_a_sample_is_another_one_for_each_commit_and_reaches_all() -> None:
    paths = tuple(Path(f"c{number}") for number in range(9))
    samples = [sampled(paths, 2, f"commit {number}") for number in range(40)]
    assert {len(sample) for sample in samples} == {2}
    assert set().union(*samples) == set(paths)
    assert sampled(paths, 2, "commit 0") == samples[0]
    assert sampled(paths, 100, "") == set(paths)
    assert sampled(paths, 0, "") == set()


def test_nothing_that_ran_into_a_limit_or_the_network_is_kept(copy: Copy) -> None:
    gate(CONNECT)(copy)
    copy.settle(keep=True)
    assert copy.cassette().commands == ()
    gate("sleep 5", timeout="1s")(copy)
    copy.settle(keep=True)
    assert copy.cassette().commands == ()


def test_an_output_is_kept_byte_by_byte_and_a_gate_that_looks_at_the_history_is_executed_when_that_differs(
    copy: Copy,
) -> None:
    gate("printf '\\377\\001 %s' $PWD; git log -1 --format=%s | grep -qv wip")(copy)
    copy.settle(keep=True)
    (first, *_) = copy.cassette().commands or ()
    assert first.output.startswith(b"\xff\x01 <WORKTREE>")
    result = copy.settle()
    assert (result.in_memory, result.commands_executed) == (True, 0)
    copy.edit("pipelines/notes.yaml", "- phase: sign\n", "  commit: 'wip: {title}'\n- phase: sign\n")
    memory, real = copy.settle(), copy.settle(real=True)
    assert comparable(memory) == comparable(real)
    assert memory.commands_executed > 0


def test_a_command_that_leaves_files_for_later_ones_is_never_answered(copy: Copy) -> None:
    gate("mkdir -p node_modules && touch node_modules/x")(copy)
    kept = {"workspace": {"keep_ignored": ["node_mod**"]}}
    fixture(lambda fixture: replace(fixture, config={**fixture.config, **kept}))(copy)
    copy.settle(keep=True)
    result = copy.settle()
    assert copy.cassette().commands is None
    assert (result.in_memory, result.reason.startswith("it has no results of commands")) == (False, True)


def test_a_damaged_patch_is_left_to_git(copy: Copy) -> None:
    for old, new in ((b"@@ -0,0 +1,2 @@", b"@@ -" + b"9" * 5000 + b" @@"), (b"--- /dev/null", b"GIT binary patch")):
        content("patch", old, new)(copy)
        memory = copy.settle()
        assert not memory.in_memory
        assert [finding.kind for finding in memory.findings][:1] == ["FILES"]


SHORT = {name: act for name, act in SCRIPT.items() if name.startswith("alpha") and name != "alpha.write.1.2"}


@pytest.mark.skipif(not can_run_offline(), reason="no network namespaces here")
def test_set_up_commands_are_answered_and_have_a_network_in_replays_if_settings_say_so(tmp_path: Path) -> None:
    """What the set-up left is in no tree: a command that was never executed there needs a real worktree."""
    trace = SHORT | {"alpha.write.1.1": SCRIPT["alpha.write.1.2"]}
    with socket.create_server(("127.0.0.1", 0)) as server:
        line = f"python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", {server.getsockname()[1]}), 5)'"
        lines = json.dumps([f"{line} && mkdir -p cache && echo x > cache/x"])
        workshop = Workshop(tmp_path, trace, settings=f"workspace: {{setup: {lines}}}\n")
        workshop.repository.commit(
            {".gitignore": "cache/\n.mz/\n", "features.md": BACKLOG.partition("## [FEAT] beta")[0]}
        )
        workshop.keep(workshop.record(workshop.run()).cassette)
        copy = Copy(workshop.root)
        assert copy.settle(real=True).findings != ()
        copy.edit("mz.yaml", "sandbox: {", "sandbox: {online_in_replays: [setup], ")
        kept = copy.settle(keep=True)
        assert (kept.findings, kept.online) == ((), ("setup",))
        assert "network cut off except from setup" in summary([kept])
        other = clone(workshop.root, tmp_path / "other")
        gate("test -f cache/x")(other)
        new = other.settle()
        assert (new.in_memory, new.reason) == (False, "it has set-up commands, and no result of a command")
        assert "COMMAND" not in {finding.kind for finding in new.findings}
    result = copy.settle()
    assert (result.findings, result.in_memory, result.commands_executed) == ((), True, 0), "without the server"
    assert "except" not in summary([result])
    (finding,) = [finding for finding in copy.settle(real=True).findings if finding.kind == "COMMAND"]
    assert "failed here" in finding.message
