"""Adapter: layer 2: the conformance suite over every agent that mz knows, with all streams that there are of each."""

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
"""In all, for one adapter: some seconds."""
STREAMS_MAX = 400
STREAM_BYTES_MAX = 300_000


def check(project: Project) -> Iterator[Said]:
    """Of every adapter: its contract, its parser, and its calls through real processes."""
    yield from check_adapters(project, built_in())


def check_adapters(project: Project, adapters: Mapping[str, Adapter]) -> Iterator[Said]:
    for name, adapter in adapters.items():
        yield from conform(adapter)
        known = endings(name)
        if not known:
            yield broken(adapter, "fixtures", "has no stored streams, so nothing shows what it makes of them")
        recorded = tuple(islice(streams(project, name), STREAMS_MAX))
        yield from read_all(adapter, known, failures(), recorded, PARSES)
        stored = (Stream(name=one.name, result=one.result) for one in known)
        good = [one for one in (*stored, *recorded) if _ended_well(adapter, one)]
        shown = next((one for one in good if repeated(adapter, one)), good[0] if good else None)
        yield from rehearse(adapter, shown, project.environment)


def streams(project: Project, agent: str) -> Iterator[Stream]:
    """What the project's cassettes hold of the agent; a cassette that cannot be read is another layer's finding."""
    for path in project.cassettes:
        try:
            cassette = load(path)
        except CassetteUnusable:
            continue
        for recording, contents in cassette.taken:
            found = {file.kind: contents[file.name] for file in recording.files}
            stdout, stderr = found.get("stdout"), found.get("stderr", b"")
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
