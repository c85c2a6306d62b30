"""The plan of a run, from settings, pipeline, rules, templates, backlog and earlier deliveries.

Writes nothing. `mz run --dry-run` shows the plan, and a run process starts with it.

Intake of a backlog: the events that start a run or add to one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec
from mz_events.catalog.run import ItemAdded, ItemSkipped
from mz_events.names import Commit, Digest, inbox_stream, run_stream
from mz_events.store import Log, Store
from mz_projections.read_models.store import ReadModelStore
from mz_projections.run.delivered import DELIVERED, Delivery, latest_deliveries, text_digest
from mz_projections.run.fold import RunState, fold_run, is_over

from mz_engine.artifacts.feature_rules import FEATURE_RULES
from mz_engine.backlog.injection_screen import ScreenMode, ScreenResult, screen_item
from mz_engine.backlog.item import BacklogItem, LeftOutItem, plan_backlog
from mz_engine.backlog.load import read_backlog
from mz_engine.errors.diagnostics import Diagnostic, MzError
from mz_engine.git.repository import branch_commit, current_branch
from mz_engine.model.config import Config
from mz_engine.model.pins import Pins
from mz_engine.model.pipeline import Pipeline
from mz_engine.paths import MZ_FOLDER, READ_MODELS_FILE
from mz_engine.pipelines.lint import KnownNames
from mz_engine.pipelines.load import PipelineFiles, load_pipeline, load_valid_pipeline_files
from mz_engine.pipelines.material import missing_blocks
from mz_engine.pricing.table import price_table
from mz_engine.run.preflight import missing_tools, unpriced_models
from mz_engine.run.settings import LoadedConfig, load_config

PutText = Callable[[str], Digest]


class BacklogIntake(msgspec.Struct, frozen=True, kw_only=True):
    """Items of a backlog that a run adds, skips or leaves out."""

    added: tuple[ItemAdded, ...]
    skipped: tuple[ItemSkipped, ...]
    left_out: tuple[LeftOutItem, ...]
    screened: dict[str, ScreenResult]
    """Result of the injection screen, by feature."""


def take_items(
    items: Iterable[BacklogItem],
    only: Iterable[str],
    delivered: Mapping[str, Delivery],
    in_run: Iterable[str],
    mode: ScreenMode,
    put: PutText,
) -> BacklogIntake:
    """Return what a run takes from the backlog.

    `delivered` is by source, over all runs; `in_run` holds features that the run already has; `put` stores a text as a
    blob and returns its digest.
    """
    source, existing = tuple(items), frozenset(in_run)
    before = frozenset(item.id for item in source if item.source in delivered) - existing
    planned = plan_backlog(source, only, before)
    declared = {item.id: item.depends_on for item in source}
    added: list[ItemAdded] = []
    screened: dict[str, ScreenResult] = {}
    for item in planned.items:
        clean, screened[item.id] = screen_item(item, mode)
        if item.id in existing:
            continue
        added.append(
            ItemAdded(
                feature=item.id,
                source=item.source,
                priority=int(item.priority),
                order=item.order,
                depends_on=tuple(other for other in declared[item.id] if other in before or other in item.depends_on),
                title=put(clean.title),
                body=put(clean.body),
                score=screened[item.id].score,
                quarantined=screened[item.id].quarantined,
            )
        )
    skipped = []
    for item in (out.item for out in planned.left_out if out.reason == "delivered"):
        clean, delivery = screen_item(item, mode)[0], delivered[item.source]
        # A changed text is noted, but does not deliver the item again.
        changed = text_digest(put(clean.title), put(clean.body)) != delivery.text_sha256
        head = Commit(delivery.head) if delivery.head else None
        skipped.append(ItemSkipped(feature=item.id, delivered_by=delivery.delivered_by, changed=changed, head=head))
    return BacklogIntake(added=tuple(added), skipped=tuple(skipped), left_out=planned.left_out, screened=screened)


NAMED_MAX = 20


class RunPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of `mz run`."""

    pins: Pins
    base: str
    items: tuple[BacklogItem, ...]
    """The whole backlog."""
    intake: BacklogIntake
    unfinished: RunState | None
    """The run that these items are added to; None: a new run."""
    warnings: tuple[Diagnostic, ...]


def make_plan(
    root: Path,
    environment: Mapping[str, str],
    flags: Mapping[str, object],
    only: tuple[str, ...],
    store: Log | None,
    put: PutText,
    keeps_views: bool = True,
) -> RunPlan:
    """Return the plan of a run.

    `only` holds ids of features, empty for all; `store` is None if nothing ever ran. Without `keeps_views` earlier
    deliveries are computed in memory, and no file is written. Raises MzError, and RepositoryUnusable if there is no
    commit to start from.
    """
    loaded = load_config(root, environment, flags)
    config, material = loaded.config, load_valid_pipeline_files(root)
    base = config.base or current_branch(root, environment)
    branch_commit(root, base, environment)
    pipeline, warnings = load_configured_pipeline(loaded, root, material)
    items = read_backlog(root, config.backlog)
    check_requested_ids(only, items)
    unfinished = find_unfinished_run(store) if store else None
    intake = take_items(
        items,
        only,
        _delivered_items(root if keeps_views else None, store) if store else {},
        unfinished.tracks if unfinished else (),
        config.injection_screen,
        put,
    )
    return RunPlan(
        pins=Pins(pipeline=pipeline, rules=material.rules, templates=material.templates, config=config),
        base=base,
        items=items,
        intake=intake,
        unfinished=unfinished,
        warnings=(*loaded.warnings, *warnings, *foreseen_warnings(pipeline, config, environment)),
    )


def foreseen_warnings(pipeline: Pipeline, config: Config, environment: Mapping[str, str]) -> tuple[Diagnostic, ...]:
    """Return warnings about tools and prices that the agents lack. Raises MzError for invalid prices of the user."""

    def has_price(model: str) -> bool:
        return price_table(config, environment).estimate(model, 1, 1, time.time_ns() // 1_000) is not None

    return (*missing_tools(pipeline, config), *unpriced_models(pipeline, config, has_price))


def load_configured_pipeline(
    loaded: LoadedConfig, root: Path, material: PipelineFiles | None = None
) -> tuple[Pipeline, tuple[Diagnostic, ...]]:
    """Load the pipeline that the settings name; the error for a missing one carries the location of its name.

    `material` is read again if it is not passed. Raises MzError.
    """
    try:
        names = known_names(loaded.config, material or load_valid_pipeline_files(root))
        return load_pipeline(loaded.config.pipeline, root, names)
    except MzError as error:
        if error.code != "MZ3001":
            raise
        raise loaded.with_location("pipeline", error) from error


def known_names(config: Config, material: PipelineFiles) -> KnownNames:
    """Return the names that a pipeline of this repository may use."""
    return KnownNames(
        rule_sets=frozenset(material.rules),
        rules=frozenset(FEATURE_RULES),
        templates=frozenset(material.templates),
        missing_blocks=missing_blocks(material.templates) if material.files else {},
        commands=frozenset(config.commands),
    )


def check_requested_ids(only: tuple[str, ...], items: tuple[BacklogItem, ...]) -> None:
    """Check that the backlog has every requested id. Raises MzError (MZ4010)."""
    ids = [item.id for item in items]
    for name in only:
        if name not in ids:
            hint = f"it has: {', '.join(ids[:NAMED_MAX])}{', ...' if len(ids) > NAMED_MAX else ''}"
            raise MzError("MZ4010", f"the backlog has no feature {name!r}", hint=hint)


def find_unfinished_run(store: Store, run: str | None = None) -> RunState | None:
    """Return this run, or the newest one, if it is unfinished. A fork has to be named."""
    inbox_versions = dict(store.streams("inbox/"))
    streams = [stream for stream, _ in store.streams("run/") if stream.count("/") == 1]
    runs: list[tuple[int, RunState]] = []
    for stream in streams if run is None else [run_stream(run)]:
        events = tuple(store.read(stream))
        state = fold_run(events)
        if state.started is None or (run is None and state.fork is not None):
            continue
        if not is_over(state, inbox_versions.get(inbox_stream(state.started.run), 0)):
            runs.append((events[0].position, state))
    return max(runs, key=lambda entry: entry[0])[1] if runs else None


def _delivered_items(root: Path | None, store: Log) -> dict[str, Delivery]:
    """Return the last delivery of each source over all runs. Without a root, no read model is stored."""
    with ReadModelStore(root / MZ_FOLDER / READ_MODELS_FILE if root else None, store, (DELIVERED,)) as views:
        views.refresh()
        return latest_deliveries(views.rows(DELIVERED))
