"""What the calls of a past run were given of the memory, from the log alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mz_engine.memory.select import is_about
from mz_engine.model.pipeline import FirstCheck, Pipeline
from mz_events.catalog.call import AgentRequested, ContextComposed
from mz_events.catalog.validation import ArtifactParsed
from mz_events.names import feature_stream
from mz_events.store import Blobs, Store
from mz_projections.feature.fold import evolve
from mz_projections.feature.state import InPhase, NotStarted, State
from mz_projections.feature.unit import failure_of
from mz_projections.memory.evidence import fold_memory
from mz_projections.memory.learnings import MemoryRules, learning_text, learnings

from mz_recordings.cassette.model import RecordedLearning


def logged_learnings(log: Store, blobs: Blobs, run: str, feature: str) -> Iterator[RecordedLearning]:
    """Yield the learnings that a feature's calls were given; of calls without `context.composed`, as in older logs,
    those about the failure to fix."""
    state: State = NotStarted()
    composed: ContextComposed | None = None
    for recorded in log.read(feature_stream(run, feature)):
        if isinstance(recorded.event, ContextComposed):
            composed = recorded.event
        if isinstance(recorded.event, AgentRequested) and composed and composed.key == recorded.event.ref.key:
            for item in composed.learnings:
                call, text = composed.key.split("/", 2)[2], blobs.get(item.text).decode("utf-8", "replace")
                yield RecordedLearning(
                    feature=feature, call=call, id=item.id, kind=item.kind, is_repeated=item.is_repeated, text=text
                )
        elif isinstance(recorded.event, AgentRequested):
            unit_run = state.unit_run if isinstance(state, InPhase) else None
            if unit_run is not None and unit_run.reports and (signature := failure_of(unit_run)):
                hint = known_hint(log, blobs, signature, recorded.position)
                yield RecordedLearning(feature=feature, signature=signature, text=hint or "")
        state = evolve(state, recorded)


def logged_ids(log: Store, run: str, features: Iterable[str], pipeline: Pipeline) -> dict[str, tuple[str, ...]]:
    """Return the ids that delivered features had, by `feature/artifact`, where a check asks for new ones."""
    artifacts = {check.artifact for check in pipeline.checks.values() if isinstance(check, FirstCheck)}
    ids = dict[str, tuple[str, ...]]()
    for feature in features:
        for recorded in log.read(feature_stream(run, feature)):
            parsed = recorded.event
            if isinstance(parsed, ArtifactParsed) and parsed.artifact in artifacts:
                key = f"{feature}/{parsed.artifact}"
                earlier = (*ids.get(key, ()), *(id_ for id_ in parsed.ids if id_ not in parsed.new_ids))
                ids[key] = tuple(dict.fromkeys(earlier))
    return {key: delivered for key, delivered in ids.items() if delivered}


def known_hint(log: Store, blobs: Blobs, signature: str, position: int) -> str | None:
    """Return what the log taught about a failure when the event at a position was appended; for logs that do not tell
    what a prompt held."""
    rows = fold_memory(log.read_all(0, position - 1))
    about = [learning for learning in learnings(rows, MemoryRules(), 0) if is_about(learning, signature)]
    texts = (learning_text(learning, lambda digest: blobs.get(digest).decode(), is_repeated=True) for learning in about)
    return next(filter(None, texts), None)
