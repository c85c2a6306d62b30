"""Layer 2: the conformance suite for every built-in adapter, with all its stored and recorded streams."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from mz_engine.agents.contract import Adapter
from mz_engine.agents.registry import built_in
from mz_engine.ports import CallResult
from mz_recordings.files.library import CassetteUnusable, load

from mz_qa.conformance.contract import broken, conform
from mz_qa.conformance.endings import ASKED, endings, failures
from mz_qa.conformance.readings import Stream, attempt, read_all
from mz_qa.conformance.rehearsal import rehearse, repeated
from mz_qa.layers.facts import Project, Said

PARSES = 3_000
"""Limit per adapter; takes some seconds."""
STREAMS_MAX = 400
STREAM_BYTES_MAX = 300_000


def check(project: Project) -> Iterator[Said]:
    """Check every adapter: contract, parser, and calls through real processes."""
    yield from check_adapters(project, built_in())


def check_adapters(project: Project, adapters: Mapping[str, Adapter]) -> Iterator[Said]:
    for name, adapter in adapters.items():
        yield from conform(adapter)
        agent_endings = endings(name)
        if not agent_endings:
            yield broken(adapter, "fixtures", "has no stored streams, so its parser is untested")
        recorded = tuple(islice(streams(project, name), STREAMS_MAX))
        yield from read_all(adapter, agent_endings, failures(), recorded, PARSES)
        stored = (Stream(name=stream.name, result=stream.result) for stream in agent_endings)
        successful = [stream for stream in (*stored, *recorded) if _ended_well(adapter, stream)]
        example = next(
            (stream for stream in successful if repeated(adapter, stream)), successful[0] if successful else None
        )
        yield from rehearse(adapter, example, project.environment)


def streams(project: Project, agent: str) -> Iterator[Stream]:
    """Yield the agent's streams from the project's cassettes; layer 7 reports unreadable cassettes."""
    for path in project.cassettes:
        try:
            cassette = load(path)
        except CassetteUnusable:
            continue
        for recording, contents in cassette.taken:
            files = {file.kind: contents[file.name] for file in recording.files}
            stdout, stderr = files.get("stdout"), files.get("stderr", b"")
            if recording.agent != agent or stdout is None or len(stdout) + len(stderr) > STREAM_BYTES_MAX:
                continue
            result = CallResult(
                stdout=stdout, stderr=stderr, exit=recording.exit, duration_ms=1, version=recording.version,
                model=ASKED, earlier=recording.earlier,
            )  # fmt: skip
            yield Stream(name=f"{project.shown(path)}/{recording.identity.path}", result=result)


def _ended_well(adapter: Adapter, stream: Stream) -> bool:
    reading = attempt(adapter, stream.result)
    return not isinstance(reading, str) and reading.terminal == "success" and reading.problem is None
