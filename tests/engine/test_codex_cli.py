"""The adapter against the real CLI and a scripted model endpoint on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from msgspec.structs import replace
from mz_engine.agents.codex.adapter import Codex
from mz_engine.agents.process import AgentProcesses
from mz_engine.agents.registry import AgentRegistry, built_in_adapters, load_patterns
from mz_engine.ports import CallResult, CallSpec
from mz_engine.pricing.table import GenaiPrices
from mz_events.redaction.redactor import Secrets

from tests.support import codex_cli
from tests.support.agent_cases import remembers
from tests.support.claude_cli import plain_spawn
from tests.support.codex_cases import CODEX
from tests.support.endpoint import Answer, Endpoint, Hang, Reply, Request, Unexpected
from tests.support.processes import WORKTREE, fresh_key, left, repository, wait_for

invocation = Codex(load_patterns()).invocation

pytestmark = [pytest.mark.cli, pytest.mark.slow]

ADAPTER = built_in_adapters()["codex"]
JUNE_2026_US = 1_780_300_800_000_000
OLDER = "gpt-5.5"
"""A model that is offered plain tools, in place of one that runs scripts."""
ENDINGS = ("continued", "401", "429", "cut", "refused", "no-session", "terminated")
"""The others differ from these by words alone, which are stored."""


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """On the disk, wherever other tests have theirs: the CLI's sandbox has a `/dev` of its own, with its own memory."""
    with TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.mark.parametrize("name", ENDINGS)
def test_ways_to_end(name: str, tmp_path: Path) -> None:
    result, reply = CODEX.check(name, tmp_path)
    if name == "continued":
        assert reply.session == ADAPTER.parse_output(replace(result, session_usage_before=())).session
        assert [(usage.input, usage.output) for usage in reply.usage] == [CODEX.expected[name].tokens]


@pytest.mark.parametrize("model", [codex_cli.MODEL, OLDER])
def test_it_works_where_agents_work(model: str, tmp_path: Path) -> None:
    """In a process tree of ours, behind our fences, in a sandbox of its own; the key is in no argument or output."""
    path = repository(tmp_path)
    with Endpoint(_touches) as endpoint:
        agents, call = _door(tmp_path, endpoint.url), _spec(model=model)
        result = agents.call(call)
    assert endpoint.complaints == []
    reply = agents.adapter("codex").parse_output(result)
    assert (reply.ending, reply.text, result.exit, result.problem) == ("success", "Done.", 0, None)
    assert result.version == "0.169.0"
    assert (path / "note.md").read_text() == "# Hi\n"
    assert not (tmp_path / "outside").exists()
    (usage,) = reply.usage
    assert usage.model == model
    assert GenaiPrices().price(reply.usage, JUNE_2026_US).nanousd
    assert not left(call.key, 0)


@pytest.mark.parametrize("ends", ["by itself", "killed"])
def test_nothing_is_left_in_the_temporary_directory(ends: str, tmp_path: Path) -> None:
    """Nor is anything there while a command runs, which has one of its own: Codex makes a `.git` in it."""
    path, before = repository(tmp_path), _hidden()
    seconds, idle = (2, 30) if ends == "by itself" else (600, 5)
    command = f"mktemp; mktemp -d -p $TMPDIR; ls -a $TMPDIR > begun; sleep {seconds}"
    with Endpoint(lambda request: Reply("Done.") if request.results() else _runs(request, command)) as endpoint:
        agents = _door(tmp_path, endpoint.url)
        call = _spec(idle_seconds=idle)
        with ThreadPoolExecutor() as pool:
            result = pool.submit(agents.call, call)
            assert wait_for(path / "begun", "tmp.", 20).count("tmp.") == 2
            meanwhile = _hidden()
    assert meanwhile == _hidden() == before
    assert (result.result().problem is None) == (ends == "by itself")


def test_a_reader_cannot_write(tmp_path: Path) -> None:
    path = repository(tmp_path)
    with Endpoint(_tries) as endpoint:
        agents = _door(tmp_path, endpoint.url)
        reply = agents.adapter("codex").parse_output(agents.call(_spec(tools=("read",))))
    assert (reply.ending, reply.text) == ("success", "It failed.")
    assert not (path / "note.md").exists()


def test_a_call_that_hangs_is_ended_whole(tmp_path: Path) -> None:
    repository(tmp_path)
    with Endpoint(lambda _: Hang()) as endpoint:
        agents, call = _door(tmp_path, endpoint.url), _spec(idle_seconds=4)
        result = agents.call(call)
    assert result.problem is not None
    assert result.problem.code == "idle"
    assert not left(call.key, 0)


def test_a_long_prompt_arrives_whole(tmp_path: Path) -> None:
    prompt = "word " * 80_000 + "end"
    (tmp_path / "home").mkdir()
    (tmp_path / "work").mkdir()
    with Endpoint(lambda _: Reply("ok")) as endpoint:
        outside = codex_cli.environment(tmp_path / "home", endpoint.url)
        call = codex_cli.spec(prompt, None)
        plain_spawn(tmp_path / "work", outside)(call, invocation(call, outside))
    assert endpoint.requests[0].prompt == prompt
    assert endpoint.requests[0].cwd == str(tmp_path / "work")


def test_a_conversation_is_continued(tmp_path: Path) -> None:
    """From another directory too."""
    for name in ("home", "work", "elsewhere"):
        (tmp_path / name).mkdir()
    with Endpoint(remembers) as endpoint:
        outside = codex_cli.environment(tmp_path / "home", endpoint.url)
        first = _plain(tmp_path / "work", outside, codex_cli.spec("Remember seven.", None))
        session = ADAPTER.parse_output(first).session
        again = codex_cli.spec("Which number?", session, resumes=True)
        reply = ADAPTER.parse_output(_plain(tmp_path / "elsewhere", outside, again))
    assert endpoint.complaints == []
    assert (reply.text, reply.session) == ("seven", session)


def test_the_stored_streams_are_of_the_installed_version(tmp_path: Path) -> None:
    """Else `python -m tests.support.agent_cases codex` writes them anew."""
    check = ADAPTER.check_auth(codex_cli.environment(tmp_path, "http://127.0.0.1:1"))
    assert (check.code, check.version) == ("", ADAPTER.capabilities().reported_fields[-1].since)


def _touches(request: Request) -> Answer:
    """Tries to leave its directory, and does its work."""
    match len(request.results()):
        case 0:
            return Reply("", (request.run("touch ../../../../outside"),))
        case 1 if request.results()[0].failed:
            return Reply("", (request.write("note.md", "# Hi\n"), request.run("cat note.md")))
        case 3 if "# Hi" in request.results()[2].text:
            return Reply("Done.")
        case _:
            raise Unexpected(f"not what a sandbox answers: {request.results()}")


def _runs(request: Request, command: str) -> Answer:
    return Reply("", (request.run(command),))


def _hidden() -> list[str]:
    """What programs take for marks of a project, where all of them put their files."""
    return sorted(name for name in (".agents", ".aws", ".codex", ".git") if Path("/tmp", name).exists())


def _tries(request: Request) -> Answer:
    if not request.results():
        return Reply("", (request.write("note.md", "# Hi\n"),))
    return Reply("It failed." if "note.md" not in "".join(_shown(request)) else "It worked.")


def _shown(request: Request) -> list[str]:
    return [result.text for result in request.results() if not result.failed]


def _door(root: Path, url: str) -> AgentRegistry:
    (root / "home").mkdir(exist_ok=True)
    environment = codex_cli.environment(root / "home", url)
    secrets = Secrets({"KEY": environment["CODEX_API_KEY"]})
    return AgentRegistry(AgentProcesses(root, environment, secrets, enclosing_repository=root), environment)


def _spec(**more: object) -> CallSpec:
    return codex_cli.spec("Write a note.", None, **{"key": fresh_key(), "worktree": WORKTREE, **more})


def _plain(directory: Path, outside: dict[str, str], call: CallSpec) -> CallResult:
    return plain_spawn(directory, outside)(call, invocation(call, outside))
