"""`mz routing show`."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tests.cli.drive import Mz
from tests.cli.stored_run import StoredRun


def test_each_choice_has_its_origin(home: Path, mz: Mz) -> None:
    (home / "mz.yaml").write_text("routing: {code: {agent: codex, units: {type: {auth: {tier: premium}}}}}\n")
    (home / "routing.yaml").write_text("routing: {code: {tier: cheap}, prd: {agent: aider}}\n")
    lines = mz("routing", "show").out.splitlines()
    assert "code\t-\tcodex\tcheap\tmz.yaml\trouting.yaml" in lines
    assert "code\ttype=auth\tcodex\tpremium\tmz.yaml\tmz.yaml" in lines
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
