"""The adapter against the real CLI and a scripted model endpoint on loopback."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest
from mz_engine.agents.claude_code.adapter import ClaudeCode
from mz_engine.agents.registry import built_in_adapters, load_patterns
from mz_engine.ports import CallResult, CallSpec
from mz_engine.pricing.table import GenaiPrices

from tests.support.claude_cases import CLAUDE
from tests.support.claude_cli import environment, plain_spawn, spec
from tests.support.endpoint import Answer, Endpoint, Reply, Request, Unexpected

invocation = ClaudeCode(load_patterns()).invocation

pytestmark = [pytest.mark.cli, pytest.mark.slow]

ADAPTER = built_in_adapters()["claude-code"]
JUNE_2026_US = 1_780_300_800_000_000
ENDINGS = ("denied", "429", "cut", "unreachable", "interrupted")
"""The others differ from these, or from what works below, by words alone, which are stored; conversations that go on
or are gone are those of `tests/e2e/test_sessions_cli.py`."""


@pytest.mark.parametrize("name", ENDINGS)
def test_ways_to_end(name: str, tmp_path: Path) -> None:
    CLAUDE.check(name, tmp_path)


def test_it_works_in_its_directory_and_counts_exactly(tmp_path: Path) -> None:
    result, endpoint = CLAUDE.drive("works", tmp_path)
    assert (tmp_path / "work" / "note.md").read_text() == "# Hi\n"
    reply = ADAPTER.parse_output(result)
    assert (reply.ending, reply.problem, endpoint.complaints) == ("success", None, [])
    assert sum(usage.requests or 0 for usage in reply.usage) == len(endpoint.requests) == 3
    priced = GenaiPrices().price(reply.usage, JUNE_2026_US)
    assert priced.nanousd == reply.reported_nanousd


def test_a_long_prompt_arrives_whole_with_the_tools_that_were_asked_for(tmp_path: Path) -> None:
    prompt = "word " * 80_000 + "end"
    outside, call = _call(tmp_path, prompt, tools=("read",))
    with Endpoint(lambda _: Reply("ok")) as endpoint:
        _run(tmp_path, {**outside, "ANTHROPIC_BASE_URL": endpoint.url}, call)
    assert endpoint.requests[0].prompt.rstrip() == prompt
    assert endpoint.requests[0].cwd == str(tmp_path / "work")
    assert endpoint.requests[0].tools == {"Read", "Glob", "Grep"}


def test_a_script_that_is_surprised_is_heard(tmp_path: Path) -> None:
    def lost(request: Request) -> Answer:
        raise Unexpected(f"no answer to {request.prompt!r}")

    outside, call = _call(tmp_path, "surprise")
    with Endpoint(lost) as endpoint:
        reply = ADAPTER.parse_output(_run(tmp_path, {**outside, "ANTHROPIC_BASE_URL": endpoint.url}, call))
    assert reply.ending == "error"
    assert "no answer to 'surprise" in reply.problem_detail
    assert len(endpoint.complaints) == 1


def _call(tmp_path: Path, prompt: str, session: str | None = None, **more: object) -> tuple[dict[str, str], CallSpec]:
    (tmp_path / "home").mkdir()
    (tmp_path / "work").mkdir()
    return environment(tmp_path / "home", ""), spec(prompt, session or str(uuid.uuid4()), **more)


def _run(tmp_path: Path, outside: dict[str, str], call: CallSpec) -> CallResult:
    return plain_spawn(tmp_path / "work", outside)(call, invocation(call, outside))


def test_the_stored_streams_are_of_the_installed_version(tmp_path: Path) -> None:
    """Else `python -m tests.support.agent_cases claude-code` writes them anew."""
    installed_version = ADAPTER.check_auth(environment(tmp_path, "http://127.0.0.1:1")).version
    stored = CLAUDE.folder / "works.exit0.jsonl"
    assert json.loads(stored.read_bytes().splitlines()[0])["claude_code_version"] == installed_version
