"""The plan of a run, from settings, pipeline, rules, templates, backlog and earlier deliveries.

Writes nothing. `mz run --dry-run` shows the plan, and a run process starts with it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import msgspec
from mz_events.names import inbox_stream, run_stream
from mz_events.store import Log, Store
from mz_projections.delivered import DELIVERED, Delivery, newest
from mz_projections.run import RunState, fold_run, over
from mz_projections.runner import Views

from mz_engine.adapters.git_repository import branch_commit, current_branch
from mz_engine.adapters.pricefile import prices_of
from mz_engine.artifacts.check import RULES
from mz_engine.backlog.file import read_backlog
from mz_engine.backlog.item import Item
from mz_engine.config import Config
from mz_engine.configfile import Loaded, load_config
from mz_engine.errors import Diagnostic, MzError
from mz_engine.foresight import lacking_tools, unpriced_models
from mz_engine.home import HOME, VIEWS
from mz_engine.intake import Put, Taken, take
from mz_engine.pins import Pins
from mz_engine.pipelines.definition import Pipeline
from mz_engine.pipelines.lint import Known
from mz_engine.pipelines.load import load_pipeline
from mz_engine.pipelines.material import unfilled
from mz_engine.pipelines.own import Material, sound_material

NAMED_MAX = 20


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of `mz run`."""

    pins: Pins
    base: str
    items: tuple[Item, ...]
    """The whole backlog."""
    taken: Taken
    warnings: tuple[Diagnostic, ...]


def make_plan(
    root: Path,
    environment: Mapping[str, str],
    flags: Mapping[str, object],
    only: tuple[str, ...],
    store: Log | None,
    put: Put,
    keeps_views: bool = True,
) -> Plan:
    """Return the plan of a run.

    `only` holds ids of features, empty for all; `store` is None if nothing ever ran. Without `keeps_views` earlier
    deliveries are computed in memory, and no file is written. Raises MzError, and RepositoryUnusable if there is no
    commit to start from.
    """
    loaded = load_config(root, environment, flags)
    config, material = loaded.config, sound_material(root)
    base = config.base or current_branch(root, environment)
    branch_commit(root, base, environment)
    pipeline, warnings = load_named(loaded, root, material)
    items = read_backlog(root, config.backlog)
    check_asked_for(only, items)
    waiting = unfinished(store) if store else None
    taken = take(
        items,
        only,
        delivered(root if keeps_views else None, store) if store else {},
        waiting.tracks if waiting else (),
        config.sanitize,
        put,
    )
    return Plan(
        pins=Pins(pipeline=pipeline, rules=material.rules, templates=material.templates, config=config),
        base=base,
        items=items,
        taken=taken,
        warnings=(*loaded.warnings, *warnings, *foreseen(pipeline, config, environment)),
    )


def foreseen(pipeline: Pipeline, config: Config, environment: Mapping[str, str]) -> tuple[Diagnostic, ...]:
    """Return warnings about tools and prices that the agents lack. Raises MzError for invalid prices of the user."""

    def priced(model: str) -> bool:
        return prices_of(config, environment).estimate(model, 1, 1, time.time_ns() // 1_000) is not None

    return (*lacking_tools(pipeline, config), *unpriced_models(pipeline, config, priced))


def load_named(loaded: Loaded, root: Path, material: Material | None = None) -> tuple[Pipeline, tuple[Diagnostic, ...]]:
    """Load the pipeline that the settings name; the error for a missing one carries the location of its name.

    `material` is read again if it is not passed. Raises MzError.
    """
    try:
        names = known_names(loaded.config, material or sound_material(root))
        return load_pipeline(loaded.config.pipeline, root, names)
    except MzError as error:
        if error.code != "MZ3001":
            raise
        raise loaded.blamed("pipeline", error) from error


def known_names(config: Config, material: Material) -> Known:
    """Return the names that a pipeline of this repository may use."""
    return Known(
        rule_sets=frozenset(material.rules),
        rules=frozenset(RULES),
        templates=frozenset(material.templates),
        unfilled=unfilled(material.templates) if material.files else {},
        commands=frozenset(config.commands),
    )


def check_asked_for(only: tuple[str, ...], items: tuple[Item, ...]) -> None:
    """Check that the backlog has every requested id. Raises MzError (MZ4010)."""
    ids = [item.id for item in items]
    for name in only:
        if name not in ids:
            hint = f"it has: {', '.join(ids[:NAMED_MAX])}{', ...' if len(ids) > NAMED_MAX else ''}"
            raise MzError("MZ4010", f"the backlog has no feature {name!r}", hint=hint)


def unfinished(store: Store) -> RunState | None:
    """Return the newest unfinished run. Forks are left out: they are resumed by their id."""
    inbox_versions = dict(store.streams("inbox/"))
    runs: list[tuple[int, RunState]] = []
    for stream, _ in store.streams("run/"):
        if stream.count("/") == 1:
            events = tuple(store.read(stream))
            state = fold_run(events)
            inbox = inbox_stream(stream.removeprefix("run/"))
            if state.forked is None and not over(state, inbox_versions.get(inbox, 0)):
                runs.append((events[0].position, state))
    return max(runs, key=lambda entry: entry[0])[1] if runs else None


def find_run(store: Store, run: str) -> RunState | None:
    state = fold_run(store.read(run_stream(run)))
    return state if state.started else None


def delivered(root: Path | None, store: Log) -> dict[str, Delivery]:
    """Return the last delivery of each source over all runs. Without a root, no read model is stored."""
    with Views(root / HOME / VIEWS if root else None, store, (DELIVERED,)) as views:
        views.refresh()
        return newest(views.rows(DELIVERED))
