"""Effects on the CI checks of a pull request: poll them once, and start flaky ones again."""

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
"""Log lines of each failed CI check in the prompt of the phase that fixes it (as in Monozukuri's CI reprompt)."""


def look(scene: Scene) -> Effect:
    """Poll the CI checks once; the report holds the log ends of failed ones."""
    checks, report = yield from _seen(scene)
    states = [check.state for check in checks or ()]
    yield from emit(
        ChecksSeen(
            key=scene.key("await_checks"),
            commit=scene.work.book.head,
            known=checks is not None,
            green=states.count("green"),
            red=states.count("red"),
            pending=states.count("pending"),
            flaky=bool(report)
            and all(is_flaky(check, scene.pins.config.pull_requests.flaky) for check in red_of(checks)),
            report=report,
        )
    )


def _seen(scene: Scene) -> Steps[tuple[tuple[Check, ...] | None, Digest | None]]:
    """Return the CI checks and a report on the failed ones.

    The checks are None while the forge cannot be asked; the next poll asks again, within the same time limit.
    """
    number = scene.cell.pull
    try:
        checks = () if number is None else (yield from _checks(number, scene.work.book.head))
        return checks, ((yield from _report(red_of(checks))) if red_of(checks) else None)
    except RemoteRefused:
        return None, None


def red_of(checks: tuple[Check, ...] | None) -> tuple[Check, ...]:
    return tuple(check for check in checks or () if check.state == "red")


def _checks(number: int, head: Commit) -> Steps[tuple[Check, ...] | None]:
    return (yield from do("forge.checks", lambda ports: ports.forge.checks(number, head)))


def is_flaky(check: Check, patterns: Iterable[str]) -> bool:
    """Return True if the CI check is known to fail at random and the forge can run it again."""
    return check.run is not None and any(fnmatchcase(check.name, pattern) for pattern in patterns)


def _report(red: Iterable[Check]) -> Steps[Digest]:
    messages = []
    for check in red:
        log_end = excerpt((yield from _log(check)).encode(), lines_max=LOG_LINES_MAX)
        message = f"the check `{check.name}` of the pull request failed"
        messages.append(f"{message}; it printed:\n{log_end}" if log_end else message)
    return (yield from put_report(tuple(messages)))


def _log(check: Check) -> Steps[str]:
    return (yield from do("forge.failed_log", lambda ports: ports.forge.failed_log(check)))


def rerun(scene: Scene) -> Effect:
    """Start each CI run with failed checks once again. Errors of the forge show at the next poll."""
    number, started = scene.cell.pull, 0
    assert number is not None
    with suppress(RemoteRefused):
        checks = yield from _checks(number, scene.work.book.head)
        for run in dict.fromkeys(check.run for check in red_of(checks) if check.run):
            yield from _rerun(run)
            started += 1
    yield from emit(ChecksRerun(key=scene.key("rerun"), runs=started))


def _rerun(run: str) -> Effect:
    yield from do("forge.rerun", lambda ports: ports.forge.rerun(run))
