"""Delivery through a real push and a `gh` that keeps state, in the installed program."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.bench import LOADS, TESTS, Bench
from tests.support.remote import SETTINGS, Forge

pytestmark = pytest.mark.slow


def test_stacked_features_become_stacked_draft_pull_requests(tmp_path: Path) -> None:
    """Of which none is opened a second time because a reply got lost."""
    forge = Forge(tmp_path, fault="lost-reply")
    forge.bench.mz("run", "--feature", "month-filter", "--feature", "month-compare")
    pulls = {pull["headRefName"]: pull for pull in forge.gh.pulls}
    assert len(pulls) == len(forge.gh.pulls) == 2
    assert set(forge.bench.calls().values()) == {1}, "no agent is paid again for a delivery"
    assert pulls["feat/month-filter"]["baseRefName"] == "main"
    assert pulls["feat/month-compare"]["baseRefName"] == "feat/month-filter"
    assert all(pull["isDraft"] for pull in pulls.values())
    assert pulls["feat/month-filter"]["title"] == "Show one month only"
    for branch in pulls:
        assert forge.remote_head(branch) == forge.bench.git("rev-parse", branch).strip()


def test_a_pull_request_holds_the_work_and_what_a_reviewer_wants(tmp_path: Path) -> None:
    """One squashed commit without papers, which are found elsewhere."""
    forge = Forge(tmp_path, settings=f"{SETTINGS.replace(LOADS, TESTS)}commits: squash\n")
    bench = forge.bench
    bench.mz("run", "--feature", "group-thousands")
    names = bench.git("diff", "--name-only", "main", "feat/group-thousands").split()
    assert names
    assert not [name for name in names if name.startswith("tasks/")]
    [subject] = bench.git("log", "--format=%s", "main..feat/group-thousands").splitlines()
    [pull] = forge.gh.pulls
    assert subject == pull["title"]
    visible = re.sub(r"<!--.*?-->", "", pull["body"], flags=re.DOTALL)
    assert "Mz-Key" not in visible
    assert re.search(r"\| `test` \| 12 passed, 0 failed \| 14 passed, 0 failed \|", visible)
    assert "## Request\n\n> **" in visible
    [command] = re.findall(r"`mz (show group-thousands --artifact prd)`", visible)
    assert "# " in bench.mz(*command.split()).out
    [root] = re.findall(r"\n\nMz-Seal: ([0-9a-f]{64})\n\Z", pull["body"])
    (tmp_path / "body.md").write_text(pull["body"])
    for source in (root, str(tmp_path / "body.md"), "feat/group-thousands"):
        assert f"{root[:12]} of " in bench.mz("verify", "--against", source).err
    assert bench.git("notes", "--ref=refs/notes/mz-seal", "show", "feat/group-thousands").count("mz-seal 1") == 2
    assert "\tseal\t" in (audit := bench.mz("audit").out)
    assert "none in git notes" not in audit


def test_delivery_that_cannot_work_is_said_before_anything_is_paid(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.settings(SETTINGS)
    refused = bench.mz("run", code=15)
    assert "error[MZ1003]" in refused.err
    assert "origin" in refused.err
    assert bench.calls() == {}
