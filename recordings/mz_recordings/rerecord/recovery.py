"""Complete replies in spools of an interrupted attempt, for which the log has no event.

Pending calls are reconciled as by the engine after a crash (`mz_engine.effects.call.settle_call`): the content of a
spool is a reply if it ends with a terminal event, and its tree is the worktree.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

import msgspec
from msgspec.structs import replace
from mz_engine.agents.contract import Adapter
from mz_engine.agents.process import AgentProcesses
from mz_engine.agents.registry import all_adapters
from mz_engine.git.workspace import GitWorkspace
from mz_engine.model.pins import Pins
from mz_engine.ports import CallResult, Capture, FeatureWorktree, RepositoryUnusable
from mz_events.catalog.call import AgentReplied, AgentRequested, ForbiddenChange
from mz_events.catalog.feature import FeatureStarted
from mz_events.names import feature_stream
from mz_events.store import BlobMissing

from mz_recordings.record.recorder import LoggedCall, Outcome, RecordSources

REFS = msgspec.json.Decoder(dict[str, str])
NO_TERMINAL_EVENT = "no-terminal"


def salvage_calls(
    root: Path, environment: Mapping[str, str], sources: RecordSources, run: str, pins: Pins, features: Iterable[str],
    live_keys: Collection[str],
) -> tuple[tuple[LoggedCall, ...], bool]:  # fmt: skip
    """Return the calls with these keys that have a complete reply and no outcome, with their outcome; and True if there
    is another one whose tree cannot be read. Ends their processes. Raises OSError."""
    processes = AgentProcesses(root, environment, sources.secrets)
    adapters_by_name = all_adapters(pins.config.agents)
    calls: list[LoggedCall] = []
    has_unreadable = False
    for feature in features:
        for branch, request, at_us in _pending_requests(sources, run, feature):
            result = processes.salvage(request.ref.key) if request.ref.key in live_keys else None
            if result is None or not _is_complete(adapters_by_name[request.agent], result):
                continue
            worktree = FeatureWorktree(run=run, feature=feature, branch=branch)
            try:
                capture = _capture(GitWorkspace(root, pins.config.workspace, environment), worktree, request, sources)
            except (RepositoryUnusable, BlobMissing):
                has_unreadable = True
                continue
            reply = _reply(request, result, capture, sources, adapters_by_name[request.agent])
            calls.append(LoggedCall(feature, branch, request, at_us, reply, None))
    return tuple(calls), has_unreadable


def _pending_requests(sources: RecordSources, run: str, feature: str) -> Iterator[tuple[str, AgentRequested, int]]:
    """Yield branch, request and its time of every call without an outcome."""
    events = list(sources.log.read(feature_stream(run, feature)))
    branch = next((recorded.event.branch for recorded in events if isinstance(recorded.event, FeatureStarted)), "")
    settled = {recorded.event.ref.key for recorded in events if isinstance(recorded.event, Outcome)}
    for recorded in events:
        if isinstance(recorded.event, AgentRequested) and recorded.event.ref.key not in settled:
            yield branch, recorded.event, recorded.observed_at_us


def _is_complete(adapter: Adapter, result: CallResult) -> bool:
    return result.problem is None and adapter.parse_output(result).ending != NO_TERMINAL_EVENT


def _capture(
    workspace: GitWorkspace, worktree: FeatureWorktree, request: AgentRequested, sources: RecordSources
) -> Capture:
    """Capture the tree; a commit by the agent is a forbidden change."""
    capture = workspace.capture(worktree, request.tree)
    branch, before = f"refs/heads/{worktree.branch}", REFS.decode(sources.blobs.get(request.refs))
    if before.get(branch) == workspace.snapshot().get(branch):
        return capture
    return replace(
        capture, forbidden_changes=(*capture.forbidden_changes, ForbiddenChange(kind="commit", path=worktree.branch))
    )


def _reply(
    request: AgentRequested, result: CallResult, capture: Capture, sources: RecordSources, adapter: Adapter
) -> AgentReplied:
    return AgentReplied(
        ref=request.ref,
        stdout=sources.blobs.put(result.stdout),
        stderr=sources.blobs.put(result.stderr),
        exit=result.exit,
        duration_ms=result.duration_ms,
        tree=capture.tree,
        forbidden_changes=capture.forbidden_changes,
        salvaged=True,
        version=adapter.parse_output(result).version,
    )
