"""Layer 8: what is missing, dangling or twice in specifications is found with its place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from mz_qa.layers.specs import check
from mz_recordings.findings.model import Finding

from tests.support.gates import checked, project_of
from tests.support.gitrepo import GitRepo
from tests.support.tree import ROOT

PAGE = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/specs.md").read_text(), re.DOTALL)
SETTINGS, RULES, ROADMAP = PAGE
SOUND = {
    "mz.yaml": SETTINGS,
    "pipelines/rules/roadmap.yaml": RULES,
    "docs/prd/prd001-core.md": "# Core\n\n### R1: It counts.\n\n### R2: It adds.\n",
    "docs/usecases/uc001.md": "# Count\n\nTouches prd001-core R1 and prd001-core R2.\n",
    "docs/suites/first.yaml": "covers: [uc001]\n",
    "docs/roadmap.yaml": ROADMAP,
    "docs/notes.md": "Not cited: uc999, prd001-core R9\n",
}


def findings_of(root: Path, changed: Mapping[str, str | bytes | None]) -> list[str]:
    GitRepo(root).write({name: text for name, text in {**SOUND, **changed}.items() if text is not None})
    output = list(check(project_of(root)))
    findings = [item for item in output if isinstance(item, Finding)]
    assert all(finding.file and finding.kind in ("SPEC", "PIPELINE") for finding in findings)
    return [finding.message for finding in findings]


def test_the_page_describes_documents_that_pass(tmp_path: Path) -> None:
    assert findings_of(tmp_path, {}) == []
    assert checked(list(check(project_of(tmp_path)))) == {"specifications": 4}


UC, PRD, SUITE, PLAN = (
    "docs/usecases/uc001.md",
    "docs/prd/prd001-core.md",
    "docs/suites/first.yaml",
    "docs/roadmap.yaml",
)
UNCITED = f"{UC}:1: usecase uc001 is cited by no suite"
SECOND_RELEASE = '- version: "02.0"\n  status: open\n  use_cases: [{id: uc001, status: open}]\n'
DEFECTS: tuple[tuple[str, str | bytes | None, list[str]], ...] = (
    (UC, "prd001-core R1\n", [f"{PRD}:5: prd prd001-core R2 is cited by no usecase"]),
    (UC, "prd001-core R1, prd001-core R2\nprd001-core R9, prd2 R1\n", [
        f"{UC}:2: it cites prd prd001-core R9, which no document defines",
        f"{UC}:2: it cites prd prd2 R1, which no document defines",
    ]),
    (PRD, "### R1: a\n### R2: b\n### R1: c\n", [f"{PRD}:3: prd prd001-core R1 is defined already in {PRD}:1"]),
    ("docs/usecases/uc002.md", "# Nothing\n", [
        "docs/usecases/uc002.md:1: usecase uc002 is cited by no suite",
        "docs/usecases/uc002.md:1: usecase uc002 is cited by no roadmap",
    ]),
    (PLAN, ROADMAP + SECOND_RELEASE, [f"{PLAN}:8: usecase uc001 is cited already in {PLAN}:5"]),
    (PLAN, ROADMAP.replace("uc001, status: done", "uc001, status: open"), [
        'the status of use case 1 must be one of done, not "open" [roadmap.done]',
    ]),
    (PLAN, "{", ["[roadmap.yaml]", f"{UC}:1: usecase uc001 is cited by no roadmap"]),
    (SUITE, None, ["specs.suite: no file matches its patterns", UNCITED]),
    (SUITE, b"uc001 \xff\n", [f"{SUITE}: byte 0xff is not UTF-8 text", UNCITED]),
    ("pipelines/rules/roadmap.yaml", None, ["specs.roadmap: there is no rule set roadmap in pipelines/rules"]),
    ("mz.yaml", "specs: {a: {files: [x], cited_by: [b]}}\n", ["`specs.a.cited_by[0]`: `specs.b.cites` has no `a`"]),
    ("mz.yaml", "specs: {a: {files: [x], ids: '('}}\n", ["`specs.a.ids`: '(' is not a valid RE2 regular expression"]),
    ("mz.yaml", "specs: {a: {files: [x], ids: 'x'}}\n", ["`specs.a.ids`: 'x' has 0 groups; it needs 1"]),
    ("mz.yaml", "specs: {a: {files: [x], cites: {b: (x)}}}\n", ["`specs.a.cites.b`: there is no kind `b` in `specs`"]),
    ("mz.yaml", "agent: claude-code\n", []),
)  # fmt: skip


@pytest.mark.parametrize(("file", "text", "messages"), DEFECTS)
def test_each_defect_is_found(tmp_path: Path, file: str, text: str | bytes | None, messages: list[str]) -> None:
    actual = findings_of(tmp_path, {file: text})
    assert len(actual) == len(messages), actual
    for shown, message in zip(actual, messages, strict=True):
        assert message in shown
