"""Effects on the checks of a pull request: look at them once, and start flaky ones again."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from fnmatch import fnmatchcase

from mz_events.catalog.delivery import ChecksRerun, ChecksSeen
from mz_events.names import Commit, Digest

from mz_engine.artifacts.output import excerpt
from mz_engine.effects.steps import Effect, Scene, Steps, do, emit, put_report
from mz_engine.ports import Check, RemoteRefused

LOG_LINES_MAX = 50
"""Of each red check, in the prompt of the phase that is to mend it (reference: Monozukuri's CI reprompt)."""


def look(scene: Scene) -> Effect:
    """One look; what is red is told with the end of its log."""
    found, report = yield from _seen(scene)
    states = [check.state for check in found or ()]
    yield from emit(
        ChecksSeen(
            key=scene.key("await_checks"),
            commit=scene.work.book.head,
            known=found is not None,
            green=states.count("green"),
            red=states.count("red"),
            pending=states.count("pending"),
            flaky=bool(report)
            and all(is_flaky(check, scene.pins.config.pull_requests.flaky) for check in red_of(found)),
            report=report,
        )
    )


def _seen(scene: Scene) -> Steps[tuple[tuple[Check, ...] | None, Digest | None]]:
    """The checks, and the report on what is red. A forge that cannot be asked now knows nothing; it is asked again, and
    the time limit of the wait holds for that too."""
    number = scene.cell.pull
    try:
        found = () if number is None else (yield from _checks(number, scene.work.book.head))
        return found, ((yield from _report(red_of(found))) if red_of(found) else None)
    except RemoteRefused:
        return None, None


def red_of(found: tuple[Check, ...] | None) -> tuple[Check, ...]:
    return tuple(check for check in found or () if check.state == "red")


def _checks(number: int, head: Commit) -> Steps[tuple[Check, ...] | None]:
    return (yield from do("forge.checks", lambda ports: ports.forge.checks(number, head)))


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
    """Each run once, however many red checks it has. What the forge refuses shows at the next look."""
    number, started = scene.cell.pull, 0
    assert number is not None
    with suppress(RemoteRefused):
        found = yield from _checks(number, scene.work.book.head)
        for run in dict.fromkeys(check.run for check in red_of(found) if check.run):
            yield from _rerun(run)
            started += 1
    yield from emit(ChecksRerun(key=scene.key("rerun"), runs=started))


def _rerun(run: str) -> Effect:
    yield from do("forge.rerun", lambda ports: ports.forge.rerun(run))
