"""Checks and their logs as `gh` reports them, converted to the types of the port.

States: `CheckStatusState`, `CheckConclusionState` and `StatusState` of GitHub's GraphQL schema. Lines of a log: `gh run
view --log-failed` writes job, step, and `TIME TEXT`, separated by tabs; the API writes only `TIME TEXT`."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from mz_engine.artifacts.output import ESCAPE
from mz_engine.ports import Check

GREEN = frozenset({"SUCCESS", "NEUTRAL", "SKIPPED"})
RED = frozenset({"FAILURE", "ERROR", "CANCELLED", "TIMED_OUT", "ACTION_REQUIRED", "STARTUP_FAILURE", "STALE"})
FIELDS = "name,state,link,workflow"
"""For `gh pr checks --json`."""

RUN = re.compile(r"/actions/runs/(\d+)")
JOB = re.compile(r"/actions/runs/\d+/job/(\d+)")
"""In the link of a check that GitHub Actions ran."""

LOG_LINES_MAX = 200
LOG_BYTES_MAX = 32_000
COLUMNS = re.compile(r"^[^\t]*\t[^\t]*\t(?=\ufeff?\d{4}-\d\d-\d\dT)")
TIME = re.compile(r"^\ufeff?\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z ?")
CARETS = re.compile(r"\^\[\[[0-9;]*[A-Za-z]")
"""An escape sequence as newer versions of gh print it."""
ERROR = "##[error]"
"""Start of the line that ends a failed step."""


class Listed(msgspec.Struct, frozen=True):
    """One check as `gh pr checks --json` prints it."""

    name: str
    state: str
    link: str = ""
    workflow: str = ""


def check_of(listed: Listed) -> Check:
    run = RUN.search(listed.link)
    name = f"{listed.workflow} / {listed.name}" if listed.workflow else listed.name
    return Check(name=name, state=state_of(listed.state), url=listed.link, run=run[1] if run else None)


def state_of(state: str) -> Literal["pending", "green", "red"]:
    """Map a state of gh; unknown states are pending."""
    state = state.upper()
    return "green" if state in GREEN else "red" if state in RED else "pending"


def decisive(checks: tuple[Check, ...]) -> bool:
    """Return True if more waiting changes nothing: a check is red, or none is pending."""
    states = {check.state for check in checks}
    return "red" in states or "pending" not in states


def job_of(check: Check) -> str | None:
    found = JOB.search(check.url)
    return found[1] if found else None


def ending(log: str) -> str:
    """Return the last lines up to the error that ended the failing step, without the clean-up after it."""
    lines = [plain(line) for line in log.split("\n")]
    last = max((number for number, line in enumerate(lines) if line.startswith(ERROR)), default=len(lines))
    text = "\n".join(lines[: last + 1][-LOG_LINES_MAX:]).strip("\n")
    return text.encode()[-LOG_BYTES_MAX:].decode("utf-8", "ignore")


def plain(line: str) -> str:
    """Return a line of a log without job, step, time, colours and text that a progress bar overwrote."""
    text = TIME.sub("", COLUMNS.sub("", line))
    return CARETS.sub("", ESCAPE.sub("", text)).rstrip("\r ").rpartition("\r")[2]
