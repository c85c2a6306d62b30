"""Resolve an event ref `STREAM@VERSION`, in full or abbreviated."""

from __future__ import annotations

import re

from mz_engine.errors import MzError
from mz_events.names import StreamId, feature_stream, run_stream

from mz_cli.context import Reading
from mz_cli.help import did_you_mean

FORMS = "RUN@4, FEATURE@12, RUN/FEATURE@12, or as `mz log` prints it"

VERSION = re.compile("[1-9][0-9]{0,17}")


def find_place(log: Reading, text: str, run: str | None) -> tuple[StreamId, int]:
    """Return stream and version. A name is that of a run (a unique prefix suffices) or of a feature: of `run`, else of
    the newest run that has it. Raises MzError (MZ5001, MZ5007)."""
    name, _, digits = text.rpartition("@")
    if not name or not VERSION.fullmatch(digits):
        raise MzError("MZ5007", f"{text[:80]!r} is not an event", hint=f"write {FORMS}; versions count from 1")
    stream, version = _stream(log, name, run), int(digits)
    known = dict(log.store.streams(stream)).get(stream, 0)
    if not known:
        raise MzError("MZ5007", f"{stream} has no events", hint="it has not started yet")
    if version > known:
        raise MzError("MZ5007", f"{stream} has no version {version}", hint=f"the newest is {stream}@{known}")
    return stream, version


def _stream(log: Reading, name: str, run: str | None) -> StreamId:
    first, *others = name.split("/")
    if first == "inbox":
        hint = "`mz log` shows their outcome, in the run's own stream"
        raise MzError("MZ5007", f"{name[:80]!r} is an inbox: it holds messages and has no state", hint=hint)
    if first == "run" and others:
        first, *others = others
    if not others and first not in log.runs() and (found := _with_feature(log, first, run)):
        return feature_stream(found, first)
    if not others:
        _check_either(log, first, run)
        return run_stream(log.find_run(first))
    chosen = log.find_run(first)
    log.check_feature(chosen, "/".join(others))
    return feature_stream(chosen, others[0])


def _with_feature(log: Reading, feature: str, run: str | None) -> str | None:
    """Return the run for a feature's name alone."""
    runs = log.runs() if run is None else (log.find_run(run),)
    return next((each for each in runs if feature in log.features(each)), None)


def _check_either(log: Reading, name: str, run: str | None) -> None:
    if not any(each.startswith(name) for each in log.runs()):
        newest = log.find_run(run)
        near = did_you_mean(name, (*log.runs(), *log.features(newest)))
        raise MzError("MZ5007", f"there is no run or feature {name[:80]!r}{near}", hint=f"write {FORMS}")
