"""Effects on the checks of a pull request: look at them once, and start flaky ones again."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from mz_events.catalog.delivery import ChecksRerun, ChecksSeen, DeliveryFailed
from mz_events.names import Commit, Digest
from mz_projections.state import Cell, Held, State, Working

from mz_engine.artifacts.output import excerpt
from mz_engine.effects.steps import Effect, Scene, Steps, do, emit, put, put_report
from mz_engine.ports import Check, Forge, RemoteRefused

LOG_LINES_MAX = 50
"""Of each red check, in the prompt of the phase that is to mend it (reference: Monozukuri's CI reprompt)."""


def look(scene: Scene) -> Effect:
    """One look; what is red is told with the end of its log."""
    number = scene.cell.pull
    try:
        found = () if number is None else (yield from _checks(number, scene.work.book.head))
        red = [check for check in found or () if check.state == "red"]
        report = (yield from _report(red)) if red else None
    except RemoteRefused as error:
        yield from _failed(scene.key("await_checks"), error)
        return
    states = [check.state for check in found or ()]
    yield from emit(
        ChecksSeen(
            key=scene.key("await_checks"),
            commit=scene.work.book.head,
            known=found is not None,
            green=states.count("green"),
            red=len(red),
            pending=states.count("pending"),
            flaky=bool(red) and all(is_flaky(check, scene.pins.config.pull_requests.flaky) for check in red),
            report=report,
        )
    )


def _checks(number: int, head: Commit) -> Steps[tuple[Check, ...] | None]:
    return (yield from do("forge.checks", lambda ports: ports.forge.checks(number, head)))


def _failed(key: str, error: RemoteRefused) -> Effect:
    yield from emit(DeliveryFailed(key=key, code="checks-unreachable", detail=(yield from put(str(error)))))


def is_flaky(check: Check, patterns: Iterable[str]) -> bool:
    """Known to fail for nothing, and the forge can run it again."""
    return check.run is not None and any(fnmatchcase(check.name, pattern) for pattern in patterns)


def _report(red: Iterable[Check]) -> Steps[Digest]:
    messages = []
    for check in red:
        words = excerpt((yield from _log(check)).encode(), lines_max=LOG_LINES_MAX)
        said = f"the check `{check.name}` of the pull request failed"
        messages.append(f"{said}; it printed:\n{words}" if words else said)
    return (yield from put_report(tuple(messages)))


def _log(check: Check) -> Steps[str]:
    return (yield from do("forge.failed_log", lambda ports: ports.forge.failed_log(check)))


def rerun(scene: Scene) -> Effect:
    """Each run once, however many red checks it has."""
    number = scene.cell.pull
    assert number is not None
    try:
        found = yield from _checks(number, scene.work.book.head)
        runs = tuple(dict.fromkeys(check.run for check in found or () if check.state == "red" and check.run))
        for run in runs:
            yield from _rerun(run)
    except RemoteRefused as error:
        yield from _failed(scene.key("rerun"), error)
        return
    yield from emit(ChecksRerun(key=scene.key("rerun"), runs=len(runs)))


def _rerun(run: str) -> Effect:
    yield from do("forge.rerun", lambda ports: ports.forge.rerun(run))


def changed(state: State, forge: Forge) -> bool:
    """For drivers: whether the checks that a feature is held for have an answer, so that it should look for itself. A
    forge that cannot be asked is no answer; the time limit of the hold is."""
    match state:
        case Held(then=Working(book=book, cell=Cell(pull=int(number)))):
            try:
                found = forge.checks(number, book.head)
            except RemoteRefused:
                return False
            return bool(found) and all(check.state != "pending" for check in found or ())
    return False
