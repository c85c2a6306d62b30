"""`mz routing show`, `suggest` and `apply`."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import yaml
from mz_events.adapters.blobs import FileBlobs
from mz_events.adapters.sqlite_log import SqliteStore
from mz_events.catalog.memory import RoutingApplied
from mz_events.names import PROJECT_STREAM
from mz_projections.rewards.routing import CandidateScore, Suggestion

from tests.cli.drive import Mz
from tests.cli.stored_run import StoredRun


def test_each_choice_has_its_origin(home: Path, mz: Mz) -> None:
    (home / "mz.yaml").write_text("routing: {code: {agent: codex, units: {type: {auth: {tier: premium}}}}}\n")
    (home / "routing.yaml").write_text("routing: {code: {tier: cheap}, prd: {agent: aider}}\n")
    lines = mz("routing", "show").out.splitlines()
    assert "code\tbuilder\t-\tcodex\tcheap\tmz.yaml\trouting.yaml" in lines
    assert "code\tbuilder\ttype=auth\tcodex\tpremium\tmz.yaml\tmz.yaml" in lines
    assert next(line for line in lines if line.startswith("prd")).endswith("\trouting.yaml\tpipeline")
    route = msgspec.json.decode(mz("routing", "show", "--json").out)["routes"][0]
    assert (route["phase"], route["unit"], route["agent"]) == ("prd", None, "aider")
    (home / "routing.yaml").write_text("routing: {cod: {tier: cheap}}\n")
    result = mz("routing", "show")
    assert result.exit == 10
    assert "routing.yaml:1:11" in result.err


def test_what_was_tried_is_compared(stored_run: StoredRun, mz: Mz) -> None:
    stored_run.close()
    lines = mz("routing", "suggest").out.splitlines()
    assert lines[1].startswith("prd\t-\tclaude-code\t")
    suggestion = msgspec.json.decode(mz("routing", "suggest", "--json").out)["suggestions"][0]
    assert (suggestion["phase"], suggestion["unit"], suggestion["propose"]) == ("prd", None, None)
    assert (suggestion["candidates"][0]["cells"], suggestion["candidates"][0]["score"]) == (2, None)


def test_what_is_proposed_is_applied_with_a_reason(
    stored_run: StoredRun, mz: Mz, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored_run.close()
    result = mz("routing", "apply", "-m", "why not")
    assert (result.exit, "MZ5017" in result.err, Path("routing.yaml").exists()) == (2, True, False)
    best = CandidateScore(agent="codex", tier="cheap", cells=60, accepted=60, mean_nanousd=1, score=0.9)
    proposals = (
        Suggestion(phase="prd", candidates=(best,), propose=best),
        Suggestion(phase="code", unit="type=auth", candidates=(best,), propose=best),
        Suggestion(phase="pr", candidates=(best,)),
    )
    monkeypatch.setattr("mz_cli.assess.routing.suggestions", lambda features, routed, agents: proposals)
    Path("mz.yaml").write_text("routing: {code: {tier: mid}}\n")
    Path("routing.yaml").write_text("routing: {prd: {tier: premium}, tests: {tier: mid}}  # ours\n")
    assert "MZ5017" in mz("routing", "apply", "pr", "-m", "why not").err
    result = mz("routing", "apply", "-m", "fewer attempts")
    assert (result.exit, result.out) == (0, "routing.yaml: prd, code type=auth\n")
    assert "mz.yaml comes before it for: code" in result.err
    assert yaml.safe_load(Path("routing.yaml").read_text())["routing"] == {
        "prd": {"agent": "codex", "tier": "cheap"},
        "tests": {"tier": "mid"},
        "code": {"units": {"type": {"auth": {"agent": "codex", "tier": "cheap"}}}},
    }
    with SqliteStore(Path(".mz/mz.db"), read_only=True) as store:
        (event,) = (recorded.event for recorded in store.read(PROJECT_STREAM))
    assert isinstance(event, RoutingApplied)
    texts = [FileBlobs(Path(".mz/blobs")).get(digest).decode() for digest in (event.reason, event.routing)]
    assert texts == ["fewer attempts", Path("routing.yaml").read_text()]
    assert "prd\tbuilder\t-\tcodex\tcheap\trouting.yaml\trouting.yaml" in mz("routing", "show").out.splitlines()
