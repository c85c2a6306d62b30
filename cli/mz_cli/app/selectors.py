"""Resolve an event ref `STREAM@VERSION`, in full or abbreviated."""

from __future__ import annotations

import re

from mz_engine.errors.diagnostics import MzError
from mz_events.names import StreamId, feature_stream, run_stream

from mz_cli.app.context import ProjectLog
from mz_cli.app.help import did_you_mean

ACCEPTED_FORMS = "RUN@4, FEATURE@12, RUN/FEATURE@12, or as `mz log` prints it"

VERSION = re.compile("[1-9][0-9]{0,17}")


def find_event_ref(log: ProjectLog, text: str, run: str | None) -> tuple[StreamId, int]:
    """Return stream and version. A name is that of a run (a unique prefix suffices) or of a feature: of `run`, else of
    the newest run that has it. Raises MzError (MZ5001, MZ5007)."""
    name, _, digits = text.rpartition("@")
    if not name or not VERSION.fullmatch(digits):
        raise MzError("MZ5007", f"{text[:80]!r} is not an event", hint=f"write {ACCEPTED_FORMS}; versions count from 1")
    stream, version = _find_stream(log, name, run), int(digits)
    newest_version = dict(log.store.streams(stream)).get(stream, 0)
    if not newest_version:
        raise MzError("MZ5007", f"{stream} has no events", hint="it has not started yet")
    if version > newest_version:
        raise MzError("MZ5007", f"{stream} has no version {version}", hint=f"the newest is {stream}@{newest_version}")
    return stream, version


def _find_stream(log: ProjectLog, name: str, run: str | None) -> StreamId:
    head, *remaining_parts = name.split("/")
    if head == "inbox":
        hint = "`mz log` shows their outcome, in the run's own stream"
        raise MzError("MZ5007", f"{name[:80]!r} is an inbox: it holds messages and has no state", hint=hint)
    if head == "run" and remaining_parts:
        head, *remaining_parts = remaining_parts
    if not remaining_parts and head not in log.runs() and (run_with_feature := _run_with_feature(log, head, run)):
        return feature_stream(run_with_feature, head)
    if not remaining_parts:
        _check_run_or_feature(log, head, run)
        return run_stream(log.find_run(head))
    chosen = log.find_run(head)
    log.check_feature(chosen, "/".join(remaining_parts))
    return feature_stream(chosen, remaining_parts[0])


def _run_with_feature(log: ProjectLog, feature: str, run: str | None) -> str | None:
    """Return the run for a feature's name alone."""
    runs = log.runs() if run is None else (log.find_run(run),)
    return next((candidate for candidate in runs if feature in log.features(candidate)), None)


def _check_run_or_feature(log: ProjectLog, name: str, run: str | None) -> None:
    if not any(candidate.startswith(name) for candidate in log.runs()):
        newest = log.find_run(run)
        suggestion = did_you_mean(name, (*log.runs(), *log.features(newest)))
        raise MzError("MZ5007", f"there is no run or feature {name[:80]!r}{suggestion}", hint=f"write {ACCEPTED_FORMS}")
