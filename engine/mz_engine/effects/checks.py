"""Effects on the CI checks of a pull request: poll them once, and start flaky ones again."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from fnmatch import fnmatchcase

from mz_events.catalog.delivery import ChecksPolled, ChecksRerun
from mz_events.names import Commit, Digest

from mz_engine.artifacts.output import excerpt
from mz_engine.effects.steps import Effect, StepContext, Steps, call_port, emit, put_report
from mz_engine.ports import CiCheck, RemoteError

LOG_LINES_MAX = 50
"""Log lines of each failed CI check in the prompt of the phase that fixes it (as in Monozukuri's CI reprompt)."""


def poll_checks(context: StepContext) -> Effect:
    """Poll the CI checks once; the report holds the log ends of failed ones."""
    checks, report = yield from _checks_and_report(context)
    states = [check.state for check in checks or ()]
    yield from emit(
        ChecksPolled(
            key=context.key("await_checks"),
            commit=context.phase_state.progress.head,
            commit_known=checks is not None,
            passed=states.count("green"),
            failed=states.count("red"),
            pending=states.count("pending"),
            flaky=bool(report)
            and all(is_flaky(check, context.pins.config.pull_requests.flaky) for check in failed_checks(checks)),
            report=report,
        )
    )


def _checks_and_report(context: StepContext) -> Steps[tuple[tuple[CiCheck, ...] | None, Digest | None]]:
    """Return the CI checks and a report on the failed ones.

    The checks are None while the forge cannot be asked; the next poll asks again, within the same time limit.
    """
    number = context.unit_run.pull_request_number
    try:
        checks = () if number is None else (yield from _required_checks(number, context.phase_state.progress.head))
        return checks, ((yield from _put_check_report(failed_checks(checks))) if failed_checks(checks) else None)
    except RemoteError:
        return None, None


def failed_checks(checks: tuple[CiCheck, ...] | None) -> tuple[CiCheck, ...]:
    return tuple(check for check in checks or () if check.state == "red")


def _required_checks(number: int, head: Commit) -> Steps[tuple[CiCheck, ...] | None]:
    return (yield from call_port("forge.checks", lambda ports: ports.forge.checks(number, head)))


def is_flaky(check: CiCheck, patterns: Iterable[str]) -> bool:
    """Return True if the CI check is known to fail at random and the forge can run it again."""
    return check.run is not None and any(fnmatchcase(check.name, pattern) for pattern in patterns)


def _put_check_report(failed: Iterable[CiCheck]) -> Steps[Digest]:
    messages = []
    for check in failed:
        log_end = excerpt((yield from _failed_log(check)).encode(), lines_max=LOG_LINES_MAX)
        message = f"the check `{check.name}` of the pull request failed"
        messages.append(f"{message}; it printed:\n{log_end}" if log_end else message)
    return (yield from put_report(tuple(messages)))


def _failed_log(check: CiCheck) -> Steps[str]:
    return (yield from call_port("forge.failed_log", lambda ports: ports.forge.failed_log(check)))


def rerun_checks(context: StepContext) -> Effect:
    """Start each CI run with failed checks once again. Errors of the forge show at the next poll."""
    number, started = context.unit_run.pull_request_number, 0
    assert number is not None
    with suppress(RemoteError):
        checks = yield from _required_checks(number, context.phase_state.progress.head)
        for run in dict.fromkeys(check.run for check in failed_checks(checks) if check.run):
            yield from _start_rerun(run)
            started += 1
    yield from emit(ChecksRerun(key=context.key("rerun"), runs=started))


def _start_rerun(run: str) -> Effect:
    yield from call_port("forge.rerun", lambda ports: ports.forge.rerun(run))
