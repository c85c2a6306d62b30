"""The pipeline `quick`, in the installed program: a small change in two calls."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.bench import TESTS, Bench

pytestmark = pytest.mark.slow

FEATURE = "group-thousands"
REPORT = "# T\\n\\n## Plan\\nGroup the digits.\\n\\n## Changes\\n- `tally/money.py`: groups.\\n\\n## Left out\\nNone\\n"
CODE = f"""answer()
(cwd / 'tasks' / '{FEATURE}' / 'change.md').write_text('{REPORT}')
"""


def test_a_small_change_takes_two_calls_and_what_it_taught_is_offered_to_other_projects(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.settings(f"pipeline: quick\nmemory: {{share: true}}\ncommands: {{test: {TESTS}}}\n")
    (bench.root / "memory.yaml").write_text("project_features: 1\n")
    bench.act(FEATURE, "code", CODE)
    planned = bench.json("run", "--dry-run", "--feature", FEATURE)
    assert planned["phases"] == ["code", "review"]
    assert float(planned["estimated_low_usd"]) < float(planned["estimated_usd"]) < float(planned["estimated_high_usd"])
    bench.mz("run", "--feature", FEATURE)
    names = bench.git("diff", "--name-only", "main", f"feat/{FEATURE}").split()
    assert {"tally/money.py", f"tasks/{FEATURE}/change.md", f"tasks/{FEATURE}/pr.md"} <= set(names)
    calls = sorted(tuple(key.split("/")[2::3][:2]) for key in bench.calls())
    assert calls == [("code", "1"), ("code", "2"), ("review", "1")], "the first attempt breaks a test"
    assert "for all projects, once another offers it" in bench.mz("log", "--imported").out
