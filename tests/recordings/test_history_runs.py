"""Real runs through today's core: real git, a real agent process, a real parser; and the rules of today over them."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace
from mz_engine.agents.registry import built_in_adapters
from mz_engine.git.workspace import GitWorkspace
from mz_engine.model.config import Limits, WorkspaceSettings
from mz_engine.model.rules import ByteSize, RuleSet
from mz_engine.pipelines.load import load_valid_pipeline_files
from mz_engine.pricing.table import GenaiPrices
from mz_events.adapters.blobs import FileBlobs
from mz_events.adapters.memory import MemoryBlobs
from mz_events.adapters.sqlite_log import SqliteStore
from mz_events.names import Commit
from mz_events.names import Path as TreePath
from mz_events.store import Store
from mz_recordings.past_runs.model import RunReplay
from mz_recordings.past_runs.ports import ReplayInputs
from mz_recordings.past_runs.recheck import NO_RULES, TEXTS_ERASED, Recheck, RecheckRules, recheck_run
from mz_recordings.past_runs.replay import load_pins, replay_run, run_started
from mz_recordings.past_runs.workspace import RecordedDataMissing, RecordedStream, RecordedWorkspace
from mz_recordings.record.learnings import known_hint

from tests.cli.drive import MZ
from tests.support.tapes import git
from tests.support.workshop import SCRIPT, Copy, Workshop

pytestmark = pytest.mark.slow


@contextmanager
def log_of(root: Path) -> Iterator[tuple[Store, FileBlobs]]:
    with SqliteStore(root / ".mz" / "mz.db", read_only=True) as store:
        yield store, FileBlobs(root / ".mz" / "blobs")


def run_in(store: Store) -> str:
    return next(name for name, _ in store.streams("run/") if name.count("/") == 1).removeprefix("run/")


def replayed(root: Path) -> RunReplay:
    with log_of(root) as (store, blobs):
        means = ReplayInputs(
            blobs=blobs,
            trees=GitWorkspace(root, WorkspaceSettings()),
            adapters=built_in_adapters(),
            prices=GenaiPrices(),
            hints=partial(known_hint, store, blobs),
        )
        return replay_run(store, run_in(store), means)


def left(history: RunReplay) -> dict[str, int]:
    return {what: number for stream in history.streams for what, number in stream.not_recomputed.items()}


def state_of(folder: Path) -> dict[str, str]:
    """Every file below, but for what SQLite keeps beside a database that is read."""
    return {
        str(file): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and not file.name.endswith(("-shm", "-wal"))
    }


# through today's core -------------------------------------------------------------------------------------------------
def test_a_rework_a_failed_call_and_a_rollback_by_a_person_are_as_recorded(recorded: Path) -> None:
    before = state_of(recorded)
    history = replayed(recorded)
    assert history.divergences == ()
    assert left(history) == {}
    assert [stream.not_compared for stream in history.streams] == [0, 0, 0]
    assert state_of(recorded) == before


def test_without_the_captured_trees_its_streams_are_not_comparable(recorded: Path, tmp_path: Path) -> None:
    root = tmp_path / "project"
    shutil.copytree(recorded, root, symlinks=True)
    for ref in git(root, "for-each-ref", "--format=%(refname)", "refs/mz").splitlines():
        git(root, "update-ref", "-d", ref)
    git(root, "worktree", "prune")
    git(root, "reflog", "expire", "--expire=now", "--all")
    git(root, "gc", "--quiet", "--prune=now")
    history = replayed(root)
    assert history.divergences == ()
    assert [stream.missing_data is None for stream in history.streams] == [True, False, False]
    assert "captured trees that git no longer has, from run/" in (history.streams[1].missing_data or "")


def test_what_trees_hold_is_read_as_it_was_captured(recorded: Path) -> None:
    head, nowhere = Commit(git(recorded, "rev-parse", "HEAD").strip()), Commit("0" * 40)
    workspace = GitWorkspace(recorded, WorkspaceSettings())
    trees = RecordedWorkspace(RecordedStream(()), workspace, MemoryBlobs())
    assert "features.md" in trees.paths(head)
    assert (trees.read(head, TreePath("mz.yaml")) or b"").startswith(b"pipeline: notes")
    assert trees.read(head, TreePath("nothing.txt")) is None
    assert trees.read(head, TreePath("pipelines")) is None
    assert trees.changes(head, head) == ()
    with pytest.raises(RecordedDataMissing):
        trees.read(nowhere, TreePath("x"))
    with pytest.raises(RecordedDataMissing):
        trees.paths(nowhere)
    with pytest.raises(RecordedDataMissing):
        trees.changes(head, nowhere)


def test_a_run_that_was_killed_and_resumed_is_as_recorded(tmp_path: Path) -> None:
    """A call that ends at its limit, one that is lost with its process, and what the memory said of a failure. A replay
    answers the first two without a process."""
    broken = {"write": {"notes/beta.md": "# Beta\nit is broken here\n"}}
    document = {**SCRIPT, "alpha.write.1.1": {"run": "sleep 1000", "write": {"notes/alpha.md": "half"}}}
    document["alpha.sign.1.1"] = {"run": "touch mark; sleep 1000"}
    document["alpha.sign.1.2"] = SCRIPT["alpha.sign.1.1"]
    document["beta.write.1.2"], document["beta.write.1.3"] = broken, SCRIPT["beta.write.1.2"]
    workshop = Workshop(tmp_path, document, limit="3s")
    process = subprocess.Popen([*MZ, "run"], cwd=workshop.root, env={**os.environ, **workshop.environment})
    while not any(workshop.root.glob(".mz/worktrees/*/alpha/mark")) and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    made = workshop.record(workshop.run())
    history = replayed(workshop.root)
    assert history.divergences == ()
    assert left(history) == {}
    outcomes = {call.recording.identity.path: call.recording.outcome for call in made.cassette.calls}
    assert (outcomes["alpha/write"], outcomes["alpha/sign"]) == ("failed", "lost")
    workshop.keep(made.cassette)
    assert Copy(workshop.root).settle().findings == ()  # Else this test would run out of time.


# by today's rules -----------------------------------------------------------------------------------------------------
def judged(root: Path, rules: RecheckRules) -> Recheck:
    with log_of(root) as (store, blobs):
        return recheck_run(store, blobs, run_in(store), rules)


def with_bytes(root: Path, least: int) -> RecheckRules:
    rules = load_valid_pipeline_files(root).rules["note"]
    changed = tuple(
        replace(maximum_field, min=least) if isinstance(maximum_field, ByteSize) else maximum_field
        for maximum_field in rules.rules
    )
    return RecheckRules(rule_sets={"note": replace(rules, rules=changed)}, limits=Limits())


def test_by_the_rules_of_then_every_verdict_is_the_same(recorded: Path) -> None:
    recheck = judged(recorded, with_bytes(recorded, 10))
    assert (recheck.artifacts, recheck.rule_changes, recheck.not_recomputed) == (7, [], {})


def test_stricter_rules_fail_what_was_valid_with_rule_and_place(recorded: Path) -> None:
    recheck = judged(recorded, with_bytes(recorded, 40))
    assert {(rule_change.artifact, rule_change.now_fails) for rule_change in recheck.rule_changes} == {
        ("letter", True),
        ("note", True),
    }
    first = recheck.rule_changes[0]
    assert first.event_ref.startswith(f"run/{recheck.run}/alpha@")
    assert (first.phase, first.rule_set, first.violations[0].violation.rule) == ("write", "note", "note.bytes")
    assert "at least 40 are needed [note.bytes]" in first.violations[0].message


def test_milder_rules_pass_what_was_refused(recorded: Path) -> None:
    recheck = judged(recorded, with_bytes(recorded, 1))
    assert [
        (rule_change.path, rule_change.now_fails, rule_change.violations[0].violation.rule)
        for rule_change in recheck.rule_changes
    ] == [("notes/alpha.md", False, "note.bytes")]


def test_what_cannot_be_judged_is_counted(recorded: Path, tmp_path: Path) -> None:
    nothing: dict[str, RuleSet] = {}
    recheck = judged(recorded, RecheckRules(rule_sets=nothing, limits=Limits()))
    assert (recheck.artifacts, recheck.not_recomputed) == (0, {NO_RULES: 7})
    root = tmp_path / "project"
    shutil.copytree(recorded / ".mz", root / ".mz", ignore=shutil.ignore_patterns("worktrees"))
    with log_of(root) as (store, blobs):
        kept = run_started(store, run_in(store)).pins
        load_pins(blobs, run_started(store, run_in(store)))
        for shard in blobs.root.iterdir():
            for blob in shard.iterdir():
                if shard.name + blob.name != kept:
                    blob.unlink()
    recheck = judged(root, with_bytes(recorded, 10))
    assert (recheck.artifacts, recheck.not_recomputed) == (0, {TEXTS_ERASED: 7})
