"""The adapter against the real CLI and a scripted model endpoint on loopback, alone and under our supervisor."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path

import pytest
from mz_engine.agents.process import AgentProcesses
from mz_engine.agents.registry import AgentRegistry, built_in_adapters
from mz_engine.ports import CallResult, CallSpec, ParsedReply
from mz_engine.pricing.table import GenaiPrices
from mz_events.redaction.redactor import Secrets

from tests.support.claude_cli import plain_spawn
from tests.support.endpoint import Answer, Endpoint, Reply, Request, Unexpected, Use
from tests.support.gemini_cases import GEMINI
from tests.support.gemini_cli import environment, spec
from tests.support.make_gemini_transcripts import INSTALLED
from tests.support.processes import WORKTREE, fresh_key, left, repository

pytestmark = [pytest.mark.cli, pytest.mark.slow]

ADAPTER = built_in_adapters()["gemini"]
JUNE_2026_US = 1_780_300_800_000_000
COMMAND = "touch begun; (setsid sleep 600 >/dev/null 2>&1 &); trap '' TERM; sleep 600"
ODD = "Look at @note, @README.md and\n@dataclass; write to ada@example.org.\n"


@pytest.mark.parametrize("name", ["429", "unfinished", "no-session"])
def test_ways_to_fail(name: str, tmp_path: Path) -> None:
    GEMINI.check(name, tmp_path)


def talks(request: Request) -> Answer:
    """Writes, edits, runs and reads; in the second call it must know of the first."""
    prompts = [text for text in request.user_texts() if text.startswith("Prompt")]
    if request.prompt.startswith("Prompt two"):
        if len(prompts) != 2:
            raise Unexpected("the earlier conversation is missing")
        return Reply("I remember.", thoughts=7)
    steps = (
        request.write("note.md", "# Hi\n"),
        request.edit("note.md", "Hi", "Hello"),
        request.run("cat note.md > copy.md && cat copy.md"),
        request.read("copy.md"),
    )
    results = request.results()
    if any(tool_result.failed for tool_result in results) or (len(results) > 2 and "# Hello" not in results[2].text):
        raise Unexpected(f"a tool failed: {results}")
    if len(results) < len(steps):
        return Reply("On it.", (steps[len(results)],), thoughts=11)
    return Reply("All is written.")


def test_it_works_in_its_directory_goes_on_and_counts_exactly(tmp_path: Path) -> None:
    session, outside = str(uuid.uuid4()), agent_environment(tmp_path)
    with Endpoint(talks) as endpoint:
        there = {**outside, "GOOGLE_GEMINI_BASE_URL": endpoint.url}
        first = _call(tmp_path, there, spec("Prompt one", session))
        made = len(endpoint.requests)
        second = _call(tmp_path, there, spec("Prompt two", session, resumes=True))
    assert endpoint.complaints == []
    assert (tmp_path / "work" / "copy.md").read_text() == "# Hello\n"
    assert {path.name for path in (tmp_path / "work").iterdir()} == {"note.md", "copy.md"}
    assert (first.text, second.text, made) == ("All is written.", "I remember.", 5)
    assert first.session == second.session == session
    assert [usage.reasoning for usage in (*first.usage, *second.usage)] == [44, 7]
    assert first.usage[0].input > second.usage[0].input > second.usage[0].cache_read > 0
    priced = GenaiPrices().price(first.usage, JUNE_2026_US)
    assert priced.unpriced == ()
    assert priced.nanousd


@pytest.mark.parametrize(
    ("tools", "offered"),
    [((), set()), (("read", "write"), {"glob", "grep_search", "list_directory", "read_file", "replace", "write_file"})],
)
def test_it_has_the_tools_that_were_asked_for(tmp_path: Path, tools: tuple[str, ...], offered: set[str]) -> None:
    def reaches(request: Request) -> Answer:
        if request.results():
            return Reply(" ".join(str(result.failed) for result in request.results()))
        beyond = Use("write_file", {"file_path": str(tmp_path / "beyond.md"), "content": "x"})
        return Reply("", (beyond, request.run("touch ran.md")))

    outside = agent_environment(tmp_path)
    (tmp_path / "work" / "README.md").write_text("of the project")
    with Endpoint(reaches) as endpoint:
        there = {**outside, "GOOGLE_GEMINI_BASE_URL": endpoint.url}
        reply = _call(tmp_path, there, spec(ADAPTER.format_prompt(ODD), None, tools=tools))
    assert endpoint.requests[0].tools == offered
    assert reply.text == "True True"
    assert not list(tmp_path.rglob("beyond.md")) + list(tmp_path.rglob("ran.md"))
    assert endpoint.requests[0].prompt == ODD
    assert not any("of the project" in text for text in endpoint.requests[0].user_texts())


def test_a_hung_tool_ends_with_the_call(tmp_path: Path) -> None:
    path = repository(tmp_path)
    key = fresh_key()

    def hangs(request: Request) -> Answer:
        return Reply("Writing.", (request.write("note.md", "# Hi\n"), request.run(COMMAND)))

    with Endpoint(hangs) as endpoint:
        outside = {**agent_environment(tmp_path, endpoint.url), "TMPDIR": str(tmp_path / "temporary")}
        (tmp_path / "temporary").mkdir()
        processes = AgentProcesses(tmp_path, outside, Secrets({"KEY": outside["GEMINI_API_KEY"]}))
        agents = AgentRegistry(processes, outside)
        call = spec("Work.", None, key=key, worktree=WORKTREE, total_seconds=60, idle_seconds=12)
        reading = agents.adapter("gemini").parse_output(agents.call(call))
    assert not left(key, 0)
    assert (path / "note.md").read_text() == "# Hi\n"
    assert (path / "begun").exists()
    assert not list((tmp_path / "temporary").iterdir())
    assert reading.problem is not None
    assert (reading.ending, reading.problem.code) == ("no-terminal", "idle")


def test_the_version_is_the_one_that_the_transcripts_are_of(tmp_path: Path) -> None:
    """Else `agent_cases gemini` and `make_gemini_transcripts` write the stored files anew."""
    assert ADAPTER.check_auth(agent_environment(tmp_path)).version == INSTALLED


def agent_environment(tmp_path: Path, url: str = "") -> dict[str, str]:
    (tmp_path / "home").mkdir()
    (tmp_path / "work").mkdir()
    return environment(tmp_path / "home", url)


def _call(tmp_path: Path, outside: Mapping[str, str], call: CallSpec) -> ParsedReply:
    result: CallResult = ADAPTER.run_call(call, outside, plain_spawn(tmp_path / "work", outside))
    return ADAPTER.parse_output(result)
