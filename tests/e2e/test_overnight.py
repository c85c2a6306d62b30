"""A run that nobody watches: forty features with rate limits, overload, a base that is red and moves, a planted bug, a
question and two kills end with the right exit code, everything else delivered, and nothing paid twice."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tests.cli.drive import fork
from tests.support import preloaded
from tests.support.workshop import Workshop

pytestmark = pytest.mark.slow

FEATURES = tuple(f"f{number:02}" for number in range(1, 41))
PIPELINE = """\
pipeline: notes
version: 1
phases:
- phase: write
  agent: {tier: mid, tools: [read, write]}
  prompt: write.md.j2
  outputs: [{artifact: note, path: "notes/{feature}.md", rules: note}]
  writable: ["**"]
  gates: [{run: test}]
  on_block: [{cause: base, to: write, scope: tree, max_times: 1}]
  deliver: [merge_base, push, open_pr]
"""
SETTINGS = """\
pipeline: notes
parallel_max: 4
commands: {test: {run: sh test.sh}}
"""
TESTS = """\
broken=$(grep -c BROKEN prices.py)
echo '=========================== short test summary info ============================'
echo 'FAILED tests/test_old.py::test_words - AssertionError'
[ "$broken" = 0 ] || echo 'FAILED tests/test_total.py::test_total - AssertionError'
echo "$((broken + 1)) failed, $((1 - broken)) passed in 0.02s"
exit 1
"""
TEMPLATE = """\
Work on {{ title }}.
{% for note in notes %}NOTE {{ note }}
{% endfor %}{% if rework %}MEND {{ rework.messages | join('; ') }}
{% endif %}"""
LIMIT, OVERLOAD = "API Error: 429 rate limit, retry-after: 1", "API Error: 529 overloaded, retry-after: 1"


def good(feature: str) -> dict[str, object]:
    return {"write": {f"notes/{feature}.md": f"# {feature}\nThis is long enough.\n", f"{feature}.py": "X = 1\n"}}


def mended(feature: str) -> dict[str, object]:
    """With the note, which is missing if a kill lost the first attempt."""
    return {"write": {f"notes/{feature}.md": "# Note\nThis is long enough.\n", "prices.py": "OK = 1\n"}}


def broken(feature: str) -> dict[str, object]:
    return {"write": {f"notes/{feature}.md": "# Note\nThis is long enough.\n", "prices.py": "BROKEN = 1\n"}}


SCRIPT: dict[str, dict[str, object]] = {
    f"{feature}.write.1.{attempt}": good(feature) for feature in FEATURES for attempt in range(1, 6)
} | {
    "f03.write.1.1": {"fail": LIMIT},
    "f09.write.1.1": {"fail": OVERLOAD},
    "f09.write.1.2": {"fail": OVERLOAD},
    "f14.write.1.1": broken("f14"),
    **{f"f14.write.1.{attempt}": mended("f14") for attempt in range(2, 6)},
    "f21.write.1.1": {"say": "Blocker - need: which currency do the totals have?"},
}


class Night:
    def __init__(self, folder: Path) -> None:
        workshop = Workshop(folder, SCRIPT)
        self.root = workshop.root
        self.environment = {**workshop.environment, **preloaded.read_at_start(os.environ), "NO_COLOR": "1"}
        self.repository = workshop.repository
        self.repository.write(
            {
                "mz.yaml": SETTINGS,
                "features.md": "# Backlog\n\n"
                + "".join(f"## [FEAT] {name}: Number {name}\n\nPlease.\n\n" for name in FEATURES),
                "pipelines/notes.yaml": PIPELINE,
                "pipelines/templates/write.md.j2": TEMPLATE,
                "prices.py": "OK = 0\n",
                "test.sh": TESTS,
            }
        )
        self.repository.commit()

    def mz(self, *arguments: str, code: int = 0) -> str:
        done = fork(self.root, arguments, self.environment, seconds=300)
        assert done.exit == code, f"{arguments} gave {done.exit}\n{done.out}\n{done.err}"
        return done.out

    def delivered(self) -> int:
        """Return how many features the log has as delivered; 0 before there is a log."""
        log = self.root / ".mz" / "mz.db"
        with (
            suppress(sqlite3.OperationalError),
            closing(sqlite3.connect(f"{log.as_uri()}?mode=ro", uri=True)) as reader,
        ):
            query = "SELECT count(*) FROM event WHERE type = 'feature.delivered'"
            return int(reader.execute(query).fetchone()[0])
        return 0

    def kill_after(self, deliveries: int, command: str, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Kill the process when so many features are delivered; at half of them, something happens `meanwhile`."""
        with open(os.devnull, "r+") as nothing:
            process = preloaded.start((command,), self.root, self.environment, (nothing.fileno(),) * 3)
        for number, event in ((deliveries // 2, meanwhile), (deliveries, process.kill)):
            while self.delivered() < number:
                assert Path(f"/proc/{process.pid}").exists(), "it ended before"
                time.sleep(0.05)
            event()
        assert process.wait() == -signal.SIGKILL


def test_a_night_ends_with_one_question(tmp_path: Path) -> None:
    night = Night(tmp_path)
    night.kill_after(12, "run", meanwhile=lambda: night.repository.commit({"CHANGES.md": "a person's work\n"}))
    night.kill_after(24, "resume")

    night.mz("resume", code=21)
    features = json.loads(night.mz("status", "--json"))["features"]
    statuses = {feature["id"]: feature["status"] for feature in features}
    assert Counter(statuses.values()) == {"delivered": 39, "waiting": 1}, night.mz("review", "list")
    assert "which currency" in night.mz("review", "list")
    night.mz("review", "answer", "f21", "EUR")
    night.mz("resume")
    assert night.delivered() == len(FEATURES), "each once"

    full = night.mz("audit", "--full")
    claims = [cell for line in full.splitlines() for cell in line.split("\t")[2:3]]
    assert any("40 of 40 features delivered, " in claim and "fault" not in claim for claim in claims), claims
    assert any("blobs verified" in claim for claim in claims), claims
    assert "test failed on the base: 1 tests passed, 1 failed; gates are compared with these" in claims
    failed = {claim.partition(":")[0] for claim in claims if claim.endswith((" call failed", " calls failed"))}
    assert {"f03", "f09"} <= failed, "one of a feature's calls may be lost in a kill instead"
    assert "1 passed, 1 failed, none of them new" in full
    assert "retry on blocker (agent-blocker) in write" in full
