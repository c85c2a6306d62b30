"""The adapter in the guide to adding an agent keeps to the conformance suite, as the guide says."""

from __future__ import annotations

import os
import re
from typing import Any

import msgspec
import pytest
from mz_engine.agents.contract import Adapter
from mz_engine.agents.registry import load_patterns
from mz_engine.decoding.yaml import load_yaml
from mz_engine.ports import CallResult
from mz_qa.conformance.contract import check_contract
from mz_qa.conformance.endings import REQUESTED_MODEL, STREAM_FILE_NAME, ExpectedParse, StoredEnding, stored_failures
from mz_qa.conformance.live_process import run_adapter
from mz_qa.conformance.parsing import check_parser

from tests.support.gates import checked, findings
from tests.support.tree import ROOT

PAGE = (ROOT / "docs" / "new-agent.md").read_text()


def block(language: str) -> str:
    match = re.search(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert match is not None
    return match[1]


def adapter() -> Adapter:
    module: dict[str, Any] = {"__name__": "scribe"}
    exec(compile(block("python"), "docs/new-agent.md", "exec"), module)
    made: Adapter = module["Scribe"](load_patterns())
    return made


def endings() -> tuple[StoredEnding, ...]:
    expected = msgspec.convert(load_yaml(block("yaml")), dict[str, ExpectedParse])
    stored = re.findall(r"^\| `(\S+\.exit\S+)` \| `(\{.*\})` \|$", PAGE, re.MULTILINE)
    made = []
    for file, line in stored:
        match = STREAM_FILE_NAME.fullmatch(file)
        assert match is not None
        result = CallResult(
            stdout=f"{line}\n".encode(), stderr=b"", exit=int(match[2]), duration_ms=1, model=REQUESTED_MODEL
        )
        made.append(StoredEnding(name=match[1], result=result, expected=expected[match[1]]))
    assert {ending.name for ending in made} == set(expected)
    return tuple(made)


def test_the_adapter_of_the_guide_conforms() -> None:
    remarks = [*check_contract(adapter()), *check_parser(adapter(), endings(), stored_failures(), (), 1000)]
    assert findings(remarks) == []
    assert checked(remarks)["streams"] == len(endings())


@pytest.mark.slow
def test_the_adapter_of_the_guide_conforms_through_real_processes() -> None:
    (works,) = [ending for ending in endings() if ending.name == "works"]
    assert findings(run_adapter(adapter(), works, os.environ)) == []
