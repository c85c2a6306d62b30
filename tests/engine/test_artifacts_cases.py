"""Artifacts as data: for each case the rules that it breaks, in which line, and what is extracted from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from mz_engine.artifacts.load import load_rules
from mz_engine.artifacts.parse import parse_artifact
from mz_engine.artifacts.validate import validate
from mz_engine.decoding.yaml import load_yaml
from mz_engine.model.config import Limits
from mz_engine.model.rules import ParsedArtifact

CASES = Path(__file__).parents[1] / "cases" / "artifacts"
KINDS = sorted(path.stem for path in CASES.glob("*.yaml") if path.stem in load_rules())
"""The others: test_agentswe_rules.py."""


class Case(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    name: str
    text: str | None
    breaks: tuple[str, ...]
    parsed: dict[str, Any] | None = None
    others: dict[str, str] = {}
    limits: dict[str, int] = {}
    word_count: int = 0
    """So many words take the place of `{words}`."""
    cut: int | None = None

    @property
    def content(self) -> str | None:
        if self.text is None:
            return None
        text = self.text.replace("{words}", " ".join(["w"] * self.word_count)) if self.word_count else self.text
        return text[: self.cut]


def cases() -> list[tuple[str, Case]]:
    return [
        (kind, case)
        for kind in KINDS
        for case in msgspec.convert(load_yaml((CASES / f"{kind}.yaml").read_text("utf-8")), list[Case])
    ]


def ids(value: object) -> str | None:
    return value if isinstance(value, str) else value.name if isinstance(value, Case) else None


@pytest.mark.parametrize(("kind", "case"), cases(), ids=ids)
def test_rules_and_lines(kind: str, case: Case) -> None:
    findings = validate(load_rules()[kind], case.content, "where", replace(Limits(), **case.limits), case.others)
    wanted = [(name, int(line) if line else None) for name, _, line in (text.partition(":") for text in case.breaks)]
    assert [
        (f.violation.rule, f.violation.line if line else None) for f, (_, line) in zip(findings, wanted, strict=True)
    ] == wanted


@pytest.mark.parametrize(("kind", "case"), [item for item in cases() if item[1].parsed is not None], ids=ids)
def test_extraction(kind: str, case: Case) -> None:
    assert parse_artifact(load_rules()[kind], case.content or "") == msgspec.convert(case.parsed, ParsedArtifact)


@pytest.mark.slow
def test_what_the_reports_claim_decides_nothing() -> None:
    for kind in ("code", "tests", "pr", "commit_summary"):
        for case_kind, case in cases():
            if kind == case_kind:
                assert parse_artifact(load_rules()[kind], case.content or "") == ParsedArtifact()
