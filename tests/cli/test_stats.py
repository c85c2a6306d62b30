"""`mz stats`: what is there, and what a run changed."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from mz_cli.inspect.stats import own_work
from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentReplied
from mz_events.catalog.delivery import BaseMerged, Committed
from mz_events.catalog.feature import WorkspaceReady
from mz_events.catalog.run import FeatureOutcome, FeatureStopped, RunStarted
from mz_events.names import Commit, FeatureId, RunId

from tests.cli.drive import Mz, decoded
from tests.cli.stored_run import RUN, StoredRun
from tests.support.gitrepo import GitRepo
from tests.support.steps import recorded

OLD, NEW, BASE, MERGED = (Commit(letter * 40) for letter in "abcd")
READY = WorkspaceReady(head=OLD, tree=OLD)
WORK = Committed(key="k", commit=NEW, files=1, insertions=1, deletions=0)
EMPTY = Committed(key="k", commit=NEW, files=0, insertions=0, deletions=0)
MERGE = BaseMerged(key="k", base=BASE, head=MERGED, tree=MERGED, changed=True)


@pytest.mark.parametrize(
    ("events", "commits"),
    [
        ((), None),
        ((READY,), None),
        ((READY, EMPTY), None),
        ((READY, WORK, READY), (OLD, NEW)),
        ((READY, WORK, MERGE), (BASE, MERGED)),
        ((READY, MERGE), None),
        ((WORK,), None),
    ],
)
def test_own_work_follows_the_base_that_was_merged(events: tuple[Event, ...], commits: object) -> None:
    assert own_work(recorded(*events)) == commits


def test_a_commit_is_counted_where_nothing_has_run(empty: Path, mz: Mz) -> None:
    repository = GitRepo(empty)
    repository.commit({"app.go": "package app\n\nvar x = 1\n", "app_test.go": "package app\n"})
    assert mz("stats").out == (
        "kind\tname\tnumber\tunit\ncode\tGo\t2\tlines\ntests\tGo\t1\tlines\nprose\tdocs\t1\twords\n"
    )
    (empty / "mz.yaml").write_text('sources: {code: ["*.go"], tests: [none], prose: {notes: ["*.md"]}}\n')
    document = decoded(mz("stats", "main", "--json"))
    commit = repository.head()
    assert document["after"] == {"commit": commit, "code": {"Go": 3}, "tests": {}, "prose": {"notes": 1}}
    assert (document["run"], document["before"], document["items"], document["calls"]) == (None, None, [], [])
    refused = mz("stats", "nothing-like-it")
    assert (refused.exit, "no branch or commit" in refused.err) == (2, True)


@pytest.mark.parametrize(
    ("text", "line"),
    [("sources:\n  prose: {docs: ['']}\n", 2), ("sources:\n  tests: tests/\n", 2), ("sources: {test: [a]}\n", 1)],
)
def test_wrong_sources_are_refused_with_their_line(empty: Path, mz: Mz, text: str, line: int) -> None:
    (empty / "mz.yaml").write_text(text)
    refused = mz("stats")
    assert refused.exit == 10
    assert f"mz.yaml:{line}:" in refused.err


def test_a_run_is_counted_before_and_after(empty: Path, mz: Mz) -> None:
    repository = GitRepo(empty)
    base = repository.commit({"app.py": "1\n2\n"})
    work = {}
    for feature in ("login", "audit"):
        repository.git("checkout", "-q", "-b", f"feat/{feature}", "main")
        work[feature] = repository.commit({"app.py": f"1\n{feature}\n\n3\n", "tests/test_app.py": "1\n"})
    log = StoredRun(empty)
    pins = log.blob("{}")
    integrated = "generation-a"
    started = RunStarted(
        run=RunId(RUN),
        pipeline="trial",
        base="main",
        base_commit=base,
        pins=pins,
        mz_version="1",
        integration=integrated,
    )
    log.to_run(started)
    for feature, status in (("login", FeatureOutcome.DELIVERED), ("audit", FeatureOutcome.FAILED)):
        log.admit(feature)
        ref = log.ref(feature, "code")
        log.to_feature(feature, WorkspaceReady(head=base, tree=base))
        log.ask(feature, ref, base)
        stored = log.blob("{}")
        log.to_feature(
            feature,
            AgentReplied(ref=ref, stdout=stored, stderr=stored, exit=0, duration_ms=1, tree=work[feature]),
            Committed(key="k", commit=work[feature], files=2, insertions=5, deletions=1),
        )
        log.to_run(FeatureStopped(feature=FeatureId(feature), version=5, status=status, head=work[feature]))
    log.close()
    document = decoded(mz("stats", "--json"))
    assert (document["before"]["code"], document["before"]["tests"]) == ({"Python": 2}, {})
    assert (document["after"]["code"], document["after"]["tests"]) == ({"Python": 3}, {"Python": 1})
    change = {
        "code": {"added": 2, "removed": 1}, "tests": {"added": 1, "removed": 0},
        "files": 2, "insertions": 4, "deletions": 1,
    }  # fmt: skip
    items = [(item["status"], item["change"]) for item in document["items"]]
    assert items == [("delivered", change), ("failed", change)]
    call = document["calls"][0]
    assert (call["phase"], call["role"], call["duration_ms"], call["input_tokens"]) == ("code", "builder", 1000, None)
    assert call["change"] == change
    for name in (RUN[:12], integrated):
        assert "login  delivered  +2 -1  +1 -0" in mz("stats", name, "--format", "table").out
    assert mz("export", "--as", "mage", "--to", "out").exit == 0
    first, _ = (empty / "out/.beads/issues.jsonl").read_text().splitlines()
    record = msgspec.json.decode(msgspec.json.decode(first)["comments"][0]["text"])
    assert (record["loc_before"], record["loc_after"]) == ({"production": 2, "test": 0}, {"production": 3, "test": 1})
    assert record["diff"] == {"files": 2, "insertions": 4, "deletions": 1}
    assert decoded(mz("stats", "feat/login", "--json"))["after"]["commit"] == work["login"]


def test_what_git_no_longer_has_is_unknown(stored_run: StoredRun, home: Path, mz: Mz) -> None:
    stored_run.close()
    document = decoded(mz("stats", "--json"))
    assert (document["before"], document["after"]) == (None, None)
    assert {item["change"] for item in document["items"]} == {None}
    assert {call["change"]["files"] for call in document["calls"]} == {0}, "from a capture to the same one"
    assert "git does not have the commits" in mz("stats").err
