"""Command `mz doctor`."""

from __future__ import annotations

import os
import sys
import textwrap
import time
from pathlib import Path

import click
from mz_engine.check import Check, Status
from mz_engine.doctor import Asked, examine, worst
from mz_engine.errors import MzError
from mz_engine.exits import Exit

from mz_cli.context import find_home
from mz_cli.help import command
from mz_cli.recorded import recordings_check
from mz_cli.render.cells import width
from mz_cli.render.console import answer, is_terminal, may_escape, put, terminal_width
from mz_cli.render.document import show_document
from mz_cli.render.draw import show
from mz_cli.render.styled import Line, Span, escaped, harmless, plain
from mz_cli.render.table import Table, columns
from mz_cli.render.text import clean
from mz_cli.shapes.project import CheckShape, DoctorShape

LOOKS = {Status.OK: "green", Status.WARN: "yellow", Status.FAIL: "bold red"}
ROOM_MIN = 30
VERDICTS = {
    Status.OK: "Everything is installed.",
    Status.WARN: "Runs will work; see the warnings.",
    Status.FAIL: "Fix the failed checks before you start a run.",
}


@command(
    "doctor",
    examples=(
        ("mz doctor", "is everything installed that a run needs?"),
        ("mz doctor --online", "also query the remote and the forge"),
        ("mz doctor --json | jq '.checks[] | select(.status != \"ok\")'", "warnings and failures, for programs"),
    ),
    following="`mz init` creates the first files; `mz run --dry-run` shows the plan.",
)
@click.option("--online", is_flag=True, help="Use the network: check the remote and the login of gh.")
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.doctor/1.")
def doctor(online: bool, as_json: bool) -> int:
    """Check that everything a run needs is installed.

    Checks this machine, the agents and their logins, and the project in the current directory. Writes nothing, calls no
    model, prints no keys, and uses no network without --online. Exits with 11 if something required is missing.
    """
    now = time.time()
    examined = examine(Asked(place=Path.cwd(), home=home(), environment=os.environ, online=online, now=now))
    checks = examined.checks
    if examined.root is not None:
        checks = (*checks, recordings_check(examined.root, now))
    status = worst(checks)
    code = Exit.PREREQUISITE if status is Status.FAIL else Exit.OK
    if as_json:
        root = str(examined.root) if examined.root else None
        shapes = tuple(check_shape(each) for each in checks)
        show_document(
            "doctor", DoctorShape(repository=root, online=online, status=status.value, exit=code, checks=shapes)
        )
    elif is_terminal(sys.stdout):
        page(checks)
        answer(f"\n{VERDICTS[status]}")
    else:
        rows = tuple((each.name, each.status.value, each.summary, each.hint or "-") for each in checks)
        show(Table(columns=columns("check", "status", "result", "hint"), rows=rows, empty=""))
    return int(code)


def home() -> Path | None:
    try:
        return find_home(Path.cwd())
    except MzError:
        return None


def check_shape(check: Check) -> CheckShape:
    return CheckShape(name=check.name, status=check.status.value, summary=check.summary, hint=check.hint or None)


def page(checks: tuple[Check, ...]) -> None:
    """Print each check with its result, and hints below warnings and failures."""
    indent = max(width(check.name) for check in checks) + len("fail    ")
    written = escaped if may_escape(sys.stdout, os.environ) else plain
    for check in checks:
        first, *more = beside(check.summary, indent)
        name = Span(f"  {check.name}".ljust(indent - len("fail")))
        lines: list[Line] = [(Span(f"{check.status.value:<4}", LOOKS[check.status]), name, Span(first))]
        lines += [(Span(f"{'':{indent}}{line}"),) for line in more]
        if check.status is not Status.OK and check.hint:
            lines += [(Span(f"{'':{indent}}{line}", "dim"),) for line in beside(f"hint: {check.hint}", indent)]
        put(sys.stdout, "".join(f"{written(harmless(line))}\n" for line in lines))


def beside(text: str, indent: int) -> list[str]:
    """Wrap the text to the columns right of `indent`; on a very narrow terminal, return it unwrapped."""
    room = terminal_width(sys.stdout) - indent
    return (
        textwrap.wrap(clean(text), room, break_long_words=False, break_on_hyphens=False) if room >= ROOM_MIN else [text]
    )
