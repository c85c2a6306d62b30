"""Every case file is a pipeline; the comments at its end are what the lint says of it, all of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from mz_engine.artifacts.load import assemble_rules, load_rules
from mz_engine.errors.diagnostics import MzError
from mz_engine.model.config import Command, Config
from mz_engine.pipelines.lint import lint_pipeline
from mz_engine.pipelines.lint_phase import PipelineFiles
from mz_engine.pipelines.load import PipelineSource, built_in_rewards

CASES = sorted((Path(__file__).parents[1] / "cases" / "pipelines" / "lint").glob("*.yaml"))
JUDGED = assemble_rules({
    "name": "judged", "version": 1, "form": "markdown",
    "rules": [{"kind": "prose", "id": "judged.clear", "requirement": "It is clear."}],
}, {})  # fmt: skip
LOOSE = assemble_rules({
    "name": "loose", "version": 1, "form": "yaml", "extract": {"ids": "id"},
    "rules": [{"kind": "yaml", "id": "loose.yaml", "root": "list", "requirement": "A list.", "message": "{found}"}],
}, {})  # fmt: skip
FILES = PipelineFiles(
    rules={name: load_rules()[name] for name in ("prd", "code", "criteria", "verdict")}
    | {"judged": JUDGED, "loose": LOOSE},
    templates=dict.fromkeys(("prd.md.j2", "code.md.j2", "review.md.j2"), ""),
    rewards=built_in_rewards(),
    files=(),
)
CONFIG = Config(commands={"test": Command(run="true"), "lint": Command(run="true")}, independence="session")


def said_of(text: str) -> list[str]:
    try:
        pipeline, document = PipelineSource(name="p.yaml", text=text).parse()
        result = lint_pipeline(pipeline, FILES, CONFIG, document)
    except MzError as error:
        result = error.diagnostics
    return [
        f"{diagnostic.location.line}:{diagnostic.location.column} {diagnostic.code} {diagnostic.message}"
        + (f" ({diagnostic.hint})" if diagnostic.hint else "")
        for diagnostic in result
        if diagnostic.location
    ]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_everything_that_is_wrong_is_said_with_its_place(case: Path) -> None:
    text = case.read_text()
    expected = [line.removeprefix("# ") for line in text.splitlines() if line.startswith("# ")]
    assert said_of(text) == expected


def test_the_cases_cover_every_code_of_the_lint() -> None:
    codes = {code for case in CASES for code in case.read_text().split() if code.startswith("MZ3")}
    assert codes == {f"MZ30{number:02}" for number in (*range(2, 17), 20, 21, 23, 24, 25, 26, 30, 31)}
