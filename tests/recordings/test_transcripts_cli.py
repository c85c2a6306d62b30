"""What the installed Claude Code writes now is read to the last token of its own bill."""

from __future__ import annotations

from pathlib import Path

import pytest
from mz_engine.transcripts.summary import usage_totals

from tests.recordings.test_transcripts import shown, summarised
from tests.support.claude_cli import CLIS
from tests.support.make_transcripts import MODELS, SCENES, drive

pytestmark = [pytest.mark.cli, pytest.mark.slow]


@pytest.mark.parametrize("name", ["works", "sub-agent"])
def test_a_call_and_its_session_say_the_same(name: str, tmp_path: Path) -> None:
    written = drive(SCENES[name], CLIS / "claude", tmp_path, MODELS["2"])
    stream = summarised(written["stream"])
    plain = shown(stream)
    assert plain["status"] == "success"
    assert plain["reported_usd"] == plain["computed_usd"]
    logs = [summarised(data) for kind, data in written.items() if kind != "stream"]
    together = {
        field: sum(usage_totals(log)[field] or 0 for log in logs) for field in ("input", "output", "cache_read")
    }
    assert together == {field: usage_totals(stream)[field] for field in together}
    assert sum(log.requests for log in logs) >= stream.requests
