"""Layer 2: the conformance suite for every built-in adapter, with all its stored and recorded streams."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from msgspec.structs import replace
from mz_engine.agents.contract import Adapter
from mz_engine.agents.registry import built_in_adapters
from mz_recordings.cassette.files import CassetteUnreadable, load

from mz_qa.conformance.contract import adapter_finding, check_contract
from mz_qa.conformance.endings import REQUESTED_MODEL, Stream, stored_endings, stored_failures
from mz_qa.conformance.live_process import longest_quote, run_adapter
from mz_qa.conformance.parsing import check_parser, try_parse
from mz_qa.results import LayerOutput, Project

PARSES_MAX = 3_000
"""Limit per adapter; takes some seconds."""
STREAMS_MAX = 400
STREAM_BYTES_MAX = 300_000


def check(project: Project) -> Iterator[LayerOutput]:
    """Check every adapter: contract, parser, and calls through real processes."""
    yield from check_adapters(project, built_in_adapters())


def check_adapters(project: Project, adapters: Mapping[str, Adapter]) -> Iterator[LayerOutput]:
    for name, adapter in adapters.items():
        yield from check_contract(adapter)
        agent_endings = stored_endings(name)
        if not agent_endings:
            yield adapter_finding(adapter, "fixtures", "has no stored streams, so its parser is untested")
        recorded_of_agent = tuple(islice(recorded_streams(project, name), STREAMS_MAX))
        yield from check_parser(adapter, agent_endings, stored_failures(), recorded_of_agent, PARSES_MAX)
        successful = [stream for stream in (*agent_endings, *recorded_of_agent) if _is_success(adapter, stream)]
        example = next(
            (stream for stream in successful if longest_quote(adapter, stream)), successful[0] if successful else None
        )
        yield from run_adapter(adapter, example, project.environment)


def recorded_streams(project: Project, agent: str) -> Iterator[Stream]:
    """Yield the agent's streams from the project's cassettes; layer 7 reports unreadable cassettes."""
    for path in project.cassettes:
        try:
            cassette = load(path)
        except CassetteUnreadable:
            continue
        for call in cassette.calls:
            result = replace(call.result(), problem=None, model=REQUESTED_MODEL)
            is_small = len(result.stdout) + len(result.stderr) <= STREAM_BYTES_MAX
            if call.recording.agent == agent and call.recording.find("stdout") is not None and is_small:
                yield Stream(name=f"{project.display_path(path)}/{call.identity.path}", result=result)


def _is_success(adapter: Adapter, stream: Stream) -> bool:
    reading = try_parse(adapter, stream.result)
    return not isinstance(reading, str) and reading.ending == "success" and reading.problem is None
