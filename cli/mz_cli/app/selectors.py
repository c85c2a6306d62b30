"""Selectors of runs, features, phases, attempts and events: `[RUN/]FEATURE[/PHASE[/UNIT][#ATTEMPT]]`, `STREAM@VERSION`.

An attempt is `#1`, `#2.1` in the second iteration, `#1:security` of a role other than the builder. Keys of calls are
selectors too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec
from mz_engine.errors.diagnostics import MzError
from mz_events.catalog.base import Event
from mz_events.names import StreamId, feature_stream, run_stream
from mz_events.store import Recorded

from mz_cli.app.context import ProjectLog, RunNames
from mz_cli.app.help import did_you_mean

PART = "[RUN/]FEATURE[/PHASE[/UNIT][#ATTEMPT]]"
FORMS = f"RUN, {PART} or STREAM@VERSION, as `mz log` prints it"
VERSION = re.compile("[1-9][0-9]{0,17}")
ATTEMPT = re.compile("(?:([1-9][0-9]{0,8})[.])?([1-9][0-9]{0,8})(?::([a-z][a-z0-9_-]*))?")
"""Iteration, attempt, role."""
CALL_KEY = re.compile("(?:run/)?([^/]+/[^/]+/[^/]+)/([^/]+)/([0-9]+)/([0-9]+)/agent[.]([^/]+)")
USUAL = {"role": "builder"}
"""Role of the events that name none."""
DIGEST = re.compile("[0-9a-f]{8,64}")
"""Beginning of a blob's digest."""


class Selector(msgspec.Struct, frozen=True, kw_only=True):
    """What a selector names, resolved against the log."""

    run: str
    names_run: bool
    """False: the run is the newest one with the feature."""
    feature: str | None = None
    phase: str | None = None
    unit: str | None = None
    iteration: int | None = None
    attempt: int | None = None
    role: str | None = None
    version: int | None = None

    @property
    def stream(self) -> StreamId:
        return run_stream(self.run) if self.feature is None else feature_stream(self.run, self.feature)

    def includes(self, recorded: Recorded[Event]) -> bool:
        """Return True for the named event, or one of what is named; those of a feature are in its own stream and in the
        run's."""
        if self.version is not None:
            return (recorded.stream, recorded.version) == (self.stream, self.version)
        subject = getattr(recorded.event, "feature", None)
        if self.feature is not None and recorded.stream != self.stream and subject != self.feature:
            return False
        call = getattr(recorded.event, "ref", recorded.event)
        return all(getattr(call, name, USUAL.get(name)) == value for name, value in self.part.items())

    @property
    def part(self) -> dict[str, str | int]:
        """The fields that name a part of a feature."""
        values = {name: getattr(self, name) for name in ("phase", "unit", "iteration", "attempt", "role")}
        return {name: value for name, value in values.items() if value is not None}

    def __str__(self) -> str:
        stream = self.stream.removeprefix("run/")
        return stream + part_text(self.phase, self.unit, self.iteration, self.attempt, self.role)


def part_text(phase: str | None, unit: str | None, iteration: int | None, attempt: int | None, role: str | None) -> str:
    """Return `/code/unit#2.1:security`, without what is usual: the first iteration and the builder."""
    names = "".join(f"/{name}" for name in (phase, unit) if name)
    again = f"{iteration}." if iteration is not None and iteration > 1 else ""
    return names + (f"#{again}{attempt}" if attempt else "") + (f":{role}" if role and role != "builder" else "")


def select(log: ProjectLog, text: str, run: str | None = None, feature_only: bool = False) -> Selector:
    """Resolve a selector against the log, as `resolve` does. Raises MzError (MZ1002, MZ4010, MZ5001, MZ5007)."""
    selector = resolve(log, text, run, feature_only)
    if selector.version is not None:
        _check_version(log, selector.stream, selector.version)
    return selector


def resolve(log: RunNames, text: str, run: str | None = None, feature_only: bool = False) -> Selector:
    """Resolve a selector, whose event may not exist. A single name is a feature of `run` (default: of the newest run
    that has it and did not skip it), else a run, of which a unique prefix or the integration branch suffices.
    `feature_only`: a run is no answer. Raises MzError (MZ1002, MZ4010, MZ5001, MZ5007)."""
    name, call, version = _split(text)
    parts = name.removeprefix("run/").split("/")
    if parts[0] == "inbox" and len(parts) > 1:
        hint = "`mz log` shows their outcome, in the run's own stream"
        raise MzError("MZ5007", f"{name[:80]!r} is an inbox: it holds messages and has no state", hint=hint)
    run_of_feature = None if name.startswith("run/") else _run_with_feature(log, parts, run)
    if run_of_feature is None:
        code = "MZ5001" if name.startswith("run/") else "MZ4010"
        _check_name(log, parts[0], run, code, feature_only and len(parts) == 1)
    run_id = run_of_feature or log.find_run(parts.pop(0))
    feature, phase, unit, *excess = (*parts, None, None, None)[: max(len(parts), 3)]
    if feature is not None:
        log.check_feature(run_id, feature)
    if excess or (call and phase is None) or (version and phase is not None):
        raise MzError("MZ1002", f"{text[:80]!r} is not a selector", hint=f"write {FORMS}")
    names_run = run_of_feature is None or run is not None
    selector = Selector(
        run=run_id, names_run=names_run, feature=feature, phase=phase, unit=unit, version=version, **call
    )
    if feature_only and feature is None:
        raise MzError("MZ1002", f"{run_id} is a run", hint=f"name a feature of it: {_listed(run_id, log)}")
    return selector


def select_or_newest(log: ProjectLog, text: str | None) -> Selector:
    """Resolve a selector; None is the newest run."""
    return Selector(run=log.find_run(None), names_run=False) if text is None else select(log, text)


def select_part(log: ProjectLog, text: str | None, *, phases: bool = False) -> Selector:
    """Resolve the selector of a run or a feature, with `phases` also of a phase or an attempt; None is the newest run.

    Raises MzError as `select` does, and MZ1002 for what is smaller.
    """
    selector = select_or_newest(log, text)
    if selector.version is not None or (selector.phase is not None and not phases):
        noun = "an event" if selector.version is not None else "a part of a feature"
        forms = f"RUN or {PART if phases else '[RUN/]FEATURE'}"
        raise MzError("MZ1002", f"{str(text)[:80]!r} is {noun}", hint=f"name {forms}; `mz show` and `mz log` take any")
    return selector


def check_phase(selector: Selector, text: str) -> None:
    """Raise MzError (MZ1002) if the selector names a part of a phase."""
    if not {"phase"}.issuperset(selector.part):
        raise MzError("MZ1002", f"{text[:80]!r} is a part of a phase", hint="name [RUN/]FEATURE/PHASE")


def select_one_run(selectors: Iterable[Selector]) -> str:
    """Return the run of all selectors. Raises MzError (MZ1002) if they name several."""
    runs = list(dict.fromkeys(selector.run for selector in selectors))
    if len(runs) > 1:
        raise MzError("MZ1002", f"the selectors name several runs: {', '.join(runs)}", hint="name one run at a time")
    return runs[0]


def not_an_event(text: str) -> MzError:
    hint = "write RUN@4, FEATURE@12, RUN/FEATURE@12, or as `mz log` prints it; versions count from 1"
    return MzError("MZ5007", f"{text[:80]!r} is not an event", hint=hint)


def _split(text: str) -> tuple[str, dict[str, Any], int | None]:
    """Return the name, iteration, attempt and role, and the version. Raises MzError (MZ1002, MZ5007)."""
    if key := CALL_KEY.fullmatch(text):
        phase, unit, iteration, attempt, role = key.groups()
        name = f"run/{phase}" if unit == "-" else f"run/{phase}/{unit}"
        return name, {"iteration": int(iteration), "attempt": int(attempt), "role": role}, None
    name, at, digits = text.rpartition("@")
    if at:
        if not name or not VERSION.fullmatch(digits):
            raise not_an_event(text)
        return name, {}, int(digits)
    name, number_sign, digits = text.partition("#")
    match = ATTEMPT.fullmatch(digits)
    if not all(name.removeprefix("run/").split("/")) or (number_sign and not match):
        raise MzError("MZ1002", f"{text[:80]!r} is not a selector", hint=f"write {FORMS}; attempts count from 1")
    if match is None:
        return name, {}, None
    iteration, attempt, role = match.groups()
    return name, {"iteration": int(iteration) if iteration else None, "attempt": int(attempt), "role": role}, None


def _run_with_feature(log: RunNames, parts: list[str], run: str | None) -> str | None:
    """Return the run if the first part is a feature's name; None if it names a run."""
    head, runs = parts[0], log.runs()
    if head in runs:
        return None
    runs_by_prefix = [candidate for candidate in runs if candidate.startswith(head)]
    if len(parts) > 1 and len(runs_by_prefix) == 1 and parts[1] in log.features(runs_by_prefix[0]):
        return None
    candidates = runs if run is None else (log.find_run(run),)
    passes = ((candidate, log.features(candidate, skipped)) for skipped in (False, True) for candidate in candidates)
    return next((candidate for candidate, features in passes if head in features), None)


def _check_name(log: RunNames, name: str, run: str | None, code: str, feature_only: bool) -> None:
    """Raise MzError if the name is no feature, and no run's id, beginning of it, or integration branch."""
    if any(candidate.startswith(name) for candidate in log.runs()) or log.run_of_branch(name) is not None:
        return
    newest = log.find_run(run)
    if feature_only:
        log.check_feature(newest, name)
    suggestion = did_you_mean(name, (*log.runs(), *log.features(newest)))
    hint = f"features of {newest}: {_listed(newest, log)}; {log.listing}"
    raise MzError(code, f"there is no run or feature {name[:80]!r}{suggestion}", hint=hint)


def _listed(run: str, log: RunNames) -> str:
    return ", ".join(log.features(run)[:20]) or "none"


def _check_version(log: ProjectLog, stream: StreamId, version: int) -> None:
    newest_version = dict(log.store.streams(stream)).get(stream, 0)
    if not newest_version:
        raise MzError("MZ5007", f"{stream} has no events", hint="it has not started yet")
    if version > newest_version:
        raise MzError("MZ5007", f"{stream} has no version {version}", hint=f"the newest is {stream}@{newest_version}")
