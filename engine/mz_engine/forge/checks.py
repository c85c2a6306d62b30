"""Checks and their logs as `gh` reports them, converted to the types of the port.

States: `CheckStatusState`, `CheckConclusionState` and `StatusState` of GitHub's GraphQL schema. Lines of a log: `gh run
view --log-failed` writes job, step, and `TIME TEXT`, separated by tabs; the API writes only `TIME TEXT`."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from mz_engine.artifacts.command_output import ESCAPE_SEQUENCE
from mz_engine.ports import CiCheck

PASSED_STATES = frozenset({"SUCCESS", "NEUTRAL", "SKIPPED"})
FAILED_STATES = frozenset({"FAILURE", "ERROR", "CANCELLED", "TIMED_OUT", "ACTION_REQUIRED", "STARTUP_FAILURE", "STALE"})
CHECK_FIELDS = "name,state,link,workflow"
"""For `gh pr checks --json`."""

RUN_ID = re.compile(r"/actions/runs/(\d+)")
JOB_ID = re.compile(r"/actions/runs/\d+/job/(\d+)")
"""In the link of a check that GitHub Actions ran."""

LOG_LINES_MAX = 200
LOG_BYTES_MAX = 32_000
LOG_COLUMNS = re.compile(r"^[^\t]*\t[^\t]*\t(?=\ufeff?\d{4}-\d\d-\d\dT)")
LOG_TIME = re.compile(r"^\ufeff?\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z ?")
CARET_ESCAPE = re.compile(r"\^\[\[[0-9;]*[A-Za-z]")
"""An escape sequence as newer versions of gh print it."""
ERROR_MARK = "##[error]"
"""Start of the line that ends a failed step."""


class ListedCheck(msgspec.Struct, frozen=True):
    """One check as `gh pr checks --json` prints it."""

    name: str
    state: str
    link: str = ""
    workflow: str = ""


def ci_check(listed: ListedCheck) -> CiCheck:
    run = RUN_ID.search(listed.link)
    name = f"{listed.workflow} / {listed.name}" if listed.workflow else listed.name
    return CiCheck(name=name, state=check_state(listed.state), url=listed.link, run=run[1] if run else None)


def check_state(state: str) -> Literal["pending", "green", "red"]:
    """Map a state of gh; unknown states are pending."""
    state = state.upper()
    return "green" if state in PASSED_STATES else "red" if state in FAILED_STATES else "pending"


def is_decisive(checks: tuple[CiCheck, ...]) -> bool:
    """Return True if more waiting changes nothing: a check is red, or none is pending."""
    states = {check.state for check in checks}
    return "red" in states or "pending" not in states


def find_job(check: CiCheck) -> str | None:
    match = JOB_ID.search(check.url)
    return match[1] if match else None


def failure_log(log: str) -> str:
    """Return the last lines up to the error that ended the failing step, without the clean-up after it."""
    lines = [plain_log_line(line) for line in log.split("\n")]
    last = max((number for number, line in enumerate(lines) if line.startswith(ERROR_MARK)), default=len(lines))
    text = "\n".join(lines[: last + 1][-LOG_LINES_MAX:]).strip("\n")
    return text.encode()[-LOG_BYTES_MAX:].decode("utf-8", "ignore")


def plain_log_line(line: str) -> str:
    """Return a line of a log without job, step, time, colours and text that a progress bar overwrote."""
    text = LOG_TIME.sub("", LOG_COLUMNS.sub("", line))
    return CARET_ESCAPE.sub("", ESCAPE_SEQUENCE.sub("", text)).rstrip("\r ").rpartition("\r")[2]
