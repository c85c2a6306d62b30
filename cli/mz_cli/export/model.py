"""Facts of a run that exports are made of."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from mz_engine.git.sources import SourceReader
from mz_engine.model.pins import Pins
from mz_events.catalog.base import Event
from mz_events.catalog.feature import Blocked, PhaseCompleted, RolledBack
from mz_events.catalog.run import ItemAdded
from mz_events.catalog.validation import ArtifactParsed, Unit
from mz_events.names import Commit, Digest, feature_stream
from mz_events.store import Recorded
from mz_projections.feature.fold import fold
from mz_projections.feature.state import progress_of
from mz_projections.views.model import ArtifactView, CallView, FeatureView, PhaseView, RunView
from mz_projections.views.run import run_view

from mz_cli.app.context import TextLoader

ExportedFile = tuple[str, str]
"""Path below the folder of the export, and content."""


class Rollback(NamedTuple):
    """A block that sent work back, or that waits for a person (`to` is empty)."""

    block: Blocked
    to: str
    recorded: Recorded[Event]
    """The rollback; the block itself if there was none."""


class ExportedFeature(NamedTuple):
    view: FeatureView
    item: ItemAdded | None
    """None: of a fork, which takes it from another run."""
    events: tuple[Recorded[Event], ...]
    """Of its stream."""

    @property
    def phases(self) -> tuple[PhaseView, ...]:
        """The newest iteration of each phase, in the order of their first start."""
        newest = {phase.phase: phase for phase in self.view.phases}
        return tuple(newest.values())

    @property
    def rollbacks(self) -> tuple[Rollback, ...]:
        """All blocks with what became of them."""
        blocks, rollbacks = list[Rollback](), list[Rollback]()
        for recorded in self.events:
            event = recorded.event
            if isinstance(event, Blocked):
                blocks.append(Rollback(event, "", recorded))
            elif isinstance(event, RolledBack) and blocks and blocks[-1].block.phase == event.source:
                rollbacks.append(blocks.pop()._replace(to=event.to, recorded=recorded))
        return tuple(sorted((*rollbacks, *blocks), key=lambda rollback: rollback.recorded.position))

    def open_block(self, phase: str) -> Rollback | None:
        """Return the last block of a phase, unless the phase was completed later."""
        completed = [item.position for item in self.events if item.event == PhaseCompleted(phase=phase)]
        blocks = [rollback for rollback in self.rollbacks if rollback.block.phase == phase]
        return blocks[-1] if blocks and blocks[-1].recorded.position > max(completed, default=0) else None

    def units(self, phase: str | None = None) -> tuple[Unit, ...]:
        """Return the units of the newest artifact, of a phase if one is named, that lists some."""
        parsed = (item.event for item in self.events if isinstance(item.event, ArtifactParsed))
        listed = [event.units for event in parsed if phase in (None, event.phase)]
        return next((units for units in reversed(listed) if units), ())

    def calls(self, phase: PhaseView) -> tuple[CallView, ...]:
        """Return the calls of one iteration of a phase."""
        calls = (call for call in self.view.calls if call.phase == phase.phase)
        return tuple(call for call in calls if call.iteration == phase.iteration)

    @property
    def unit_trees(self) -> Mapping[str, tuple[tuple[Commit, Commit], ...]]:
        """Return the trees before and after each turn of each `PHASE/UNIT` whose work counts."""
        progress = progress_of(fold(self.events))
        return progress.unit_trees if progress else {}


class ExportedRun(NamedTuple):
    view: RunView
    pins: Pins | None
    """None: missing, or unreadable for this version."""
    features: tuple[ExportedFeature, ...]
    load_text: TextLoader
    patch: Callable[[Commit, Commit], str]
    """Changes between two captures, without papers; empty if there are none, or the captures are gone."""
    sources: SourceReader | None = None
    """None: the repository is not there."""

    def artifacts(self, feature: ExportedFeature) -> Iterator[tuple[ArtifactView, str, str]]:
        """Yield the present artifacts of a feature with name and text of their files: of a reply, of an artifact of
        several files, and where two files of a phase have the same name, under the artifact's own name."""
        names = set[tuple[str, str, str]]()
        for artifact in feature.view.artifacts:
            text = self.load_text(artifact.digest)
            suffix = ".json" if text.lstrip().startswith(("{", "[")) else ".md"
            path = PurePosixPath(artifact.path or "*")
            name = f"{artifact.artifact}{suffix}" if "*" in str(path) else path.name
            if (artifact.phase, artifact.unit, name) in names:
                name = f"{artifact.artifact}{path.suffix}"
            names.add((artifact.phase, artifact.unit, name))
            yield artifact, name, text


def exported_run(
    run: str,
    events: Sequence[Recorded[Event]],
    load_pins: Callable[[Digest | None], Pins | None],
    load_text: TextLoader,
    patch: Callable[[Commit, Commit], str],
    sources: SourceReader | None = None,
) -> ExportedRun:
    """Return a run by its events, in the order of the log."""
    view = run_view(run, events)
    items = {str(item.event.feature): item.event for item in events if isinstance(item.event, ItemAdded)}
    features = tuple(
        ExportedFeature(row, items.get(row.feature), tuple(item for item in events if item.stream == stream))
        for row in view.features
        for stream in (feature_stream(run, row.feature),)
    )
    return ExportedRun(view, load_pins(view.pins), features, load_text, patch, sources)


def to_json(document: object) -> str:
    return f"{json.dumps(document, indent=2, ensure_ascii=False)}\n"


def table(heads: tuple[str, ...], rows: Iterator[tuple[object, ...]]) -> str:
    """Return a table of Markdown; a cell has one line."""
    lines = [heads, ("---",) * len(heads), *rows]
    cells = ([" ".join(str(cell).split()).replace("|", "\\|") for cell in line] for line in lines)
    return "".join(f"| {' | '.join(line)} |\n" for line in cells)
