"""Complete replies in spools of an interrupted attempt, for which the log has no event.

Pending calls are reconciled as by the engine after a crash (`mz_engine.effects.call.settle_call`): the content of a
spool is a reply if it ends with a terminal event, and its tree is the worktree.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

import msgspec
from msgspec.structs import replace
from mz_engine.adapters.git import GitWorkspace
from mz_engine.agents.contract import Adapter
from mz_engine.agents.process import AgentProcesses
from mz_engine.agents.registry import adapters
from mz_engine.pins import Pins
from mz_engine.ports import CallResult, Capture, Place, RepositoryUnusable
from mz_events.catalog.call import AgentReplied, AgentRequested, Offence
from mz_events.catalog.feature import FeatureStarted
from mz_events.names import feature_stream
from mz_events.store import BlobMissing

from mz_recordings.recording.record import Call, Outcome, Sources

REFS = msgspec.json.Decoder(dict[str, str])
NO_TERMINAL = "no-terminal"


def salvage(
    root: Path, outside: Mapping[str, str], sources: Sources, run: str, pins: Pins, features: Iterable[str],
    asked: Collection[str],
) -> tuple[tuple[Call, ...], bool]:  # fmt: skip
    """Return the calls with these keys that have a complete reply and no outcome, with their outcome; and True if there
    is another one whose tree cannot be read. Ends their processes. Raises OSError."""
    processes = AgentProcesses(root, outside, sources.secrets)
    known = adapters(pins.config.agents)
    found: list[Call] = []
    unreadable = False
    for feature in features:
        for branch, request, at_us in _unsettled(sources, run, feature):
            held = processes.salvage(request.ref.key) if request.ref.key in asked else None
            if held is None or not _whole(known[request.agent], held):
                continue
            place = Place(run=run, feature=feature, branch=branch)
            try:
                capture = _capture(GitWorkspace(root, pins.config.workspace, outside), place, request, sources)
            except (RepositoryUnusable, BlobMissing):
                unreadable = True
                continue
            reply = _reply(request, held, capture, sources, known[request.agent])
            found.append(Call(feature, branch, request, at_us, reply, None))
    return tuple(found), unreadable


def _unsettled(sources: Sources, run: str, feature: str) -> Iterator[tuple[str, AgentRequested, int]]:
    """Yield branch, request and its time of every call without an outcome."""
    events = list(sources.log.read(feature_stream(run, feature)))
    branch = next((one.event.branch for one in events if isinstance(one.event, FeatureStarted)), "")
    settled = {one.event.ref.key for one in events if isinstance(one.event, Outcome)}
    for one in events:
        if isinstance(one.event, AgentRequested) and one.event.ref.key not in settled:
            yield branch, one.event, one.observed_at_us


def _whole(adapter: Adapter, held: CallResult) -> bool:
    return held.problem is None and adapter.parse_output(held).terminal != NO_TERMINAL


def _capture(workspace: GitWorkspace, place: Place, request: AgentRequested, sources: Sources) -> Capture:
    """Capture the tree; a commit by the agent is a forbidden change."""
    capture = workspace.capture(place, request.tree)
    branch, before = f"refs/heads/{place.branch}", REFS.decode(sources.blobs.get(request.refs))
    if before.get(branch) == workspace.snapshot().get(branch):
        return capture
    return replace(capture, offences=(*capture.offences, Offence(kind="commit", path=place.branch)))


def _reply(
    request: AgentRequested, held: CallResult, capture: Capture, sources: Sources, adapter: Adapter
) -> AgentReplied:
    return AgentReplied(
        ref=request.ref,
        stdout=sources.blobs.put(held.stdout),
        stderr=sources.blobs.put(held.stderr),
        exit=held.exit,
        duration_ms=held.duration_ms,
        tree=capture.tree,
        offences=capture.offences,
        salvaged=True,
        version=adapter.parse_output(held).version,
    )
