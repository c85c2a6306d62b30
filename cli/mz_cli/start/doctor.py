"""Command `mz doctor`."""

from __future__ import annotations

import os
import sys
import textwrap
import time
from pathlib import Path

import click
from mz_engine.errors.diagnostics import MzError
from mz_engine.errors.exits import Exit
from mz_engine.setup.checks import CheckStatus, DoctorCheck
from mz_engine.setup.doctor import DoctorOptions, overall_status, run_checks

from mz_cli.app.context import find_home
from mz_cli.app.help import command, format_options
from mz_cli.common.recording_age import recordings_check
from mz_cli.project.json import DoctorShape
from mz_cli.terminal.console import may_escape, print_line, terminal_width, write_text
from mz_cli.terminal.json import print_document
from mz_cli.terminal.table import Table, columns, print_table, prints_tsv
from mz_cli.terminal.text import strip_escapes
from mz_cli.terminal.width import Line, Span, ansi_text, display_width, plain_text, sanitised

STATUS_STYLES = {CheckStatus.OK: "green", CheckStatus.WARN: "yellow", CheckStatus.FAIL: "bold red"}
WRAP_WIDTH_MIN = 30
VERDICTS = {
    CheckStatus.OK: "Everything is installed.",
    CheckStatus.WARN: "Runs will work; see the warnings.",
    CheckStatus.FAIL: "Fix the failed checks before you start a run.",
}


@command(
    "doctor",
    examples=(
        ("mz doctor", "is everything installed that a run needs?"),
        ("mz doctor --online", "also query the remote and the forge"),
        ("mz doctor --self-test", "test mz itself instead: adapters, bundled rules, formats"),
        ("mz doctor --json | jq '.checks[] | select(.status != \"ok\")'", "warnings and failures, for programs"),
    ),
    next_command="`mz init` creates the first files; `mz run --dry-run` shows the plan.",
)
@click.option("--online", is_flag=True, help="Use the network: check the remote and the login of gh.")
@click.option("--self-test", is_flag=True, help="Test mz itself instead; takes up to two minutes.")
@format_options("Print one object with the schema mz.doctor/1, or mz.self-test/1.")
def doctor(online: bool, self_test: bool, as_json: bool) -> int:
    """Check that everything a run needs is installed.

    Checks this machine, the agents and their logins, and the project in the current directory. Writes nothing, calls no
    model, prints no keys, and uses no network without --online. Exits with 11 if something required is missing.

    With --self-test, checks mz itself, offline and free: bundled pipelines, rules and templates, each agent's adapter
    with all stored outputs of the agent, stored data of older versions, and every ending of recorded calls. Exits with
    1 if something fails.
    """
    if self_test:
        from mz_cli.check.gate import run_self_test

        return run_self_test(home() or Path.cwd(), as_json)
    now = time.time()
    examined = run_checks(
        DoctorOptions(directory=Path.cwd(), root=home(), environment=os.environ, online=online, now_seconds=now)
    )
    checks = examined.checks
    if examined.root is not None:
        checks = (*checks, DoctorCheck("recordings", *recordings_check(examined.root, now)))
    status = overall_status(checks)
    code = Exit.PREREQUISITE if status is CheckStatus.FAIL else Exit.OK
    if as_json:
        root = str(examined.root) if examined.root else None
        print_document(
            "doctor", DoctorShape(repository=root, online=online, status=status.value, exit=code, checks=checks)
        )
    elif not prints_tsv(sys.stdout):
        print_checks(checks)
        print_line(f"\n{VERDICTS[status]}")
    else:
        rows = tuple((check.name, check.status.value, check.summary, check.hint or "-") for check in checks)
        print_table(Table(columns=columns("check", "status", "result", "hint"), rows=rows, empty=""))
    return int(code)


def home() -> Path | None:
    try:
        return find_home(Path.cwd())
    except MzError:
        return None


def print_checks(checks: tuple[DoctorCheck, ...]) -> None:
    """Print each check with its result, and hints below warnings and failures."""
    indent = max(display_width(check.name) for check in checks) + len("fail    ")
    render = ansi_text if may_escape(sys.stdout, os.environ) else plain_text
    for check in checks:
        first, *continuation = wrap_right_of(check.summary, indent)
        name = Span(f"  {check.name}".ljust(indent - len("fail")))
        lines: list[Line] = [(Span(f"{check.status.value:<4}", STATUS_STYLES[check.status]), name, Span(first))]
        lines += [(Span(f"{'':{indent}}{line}"),) for line in continuation]
        if check.status is not CheckStatus.OK and check.hint:
            lines += [(Span(f"{'':{indent}}{line}", "dim"),) for line in wrap_right_of(f"hint: {check.hint}", indent)]
        write_text(sys.stdout, "".join(f"{render(sanitised(line))}\n" for line in lines))


def wrap_right_of(text: str, indent: int) -> list[str]:
    """Wrap the text to the columns right of `indent`; on a very narrow terminal, return it unwrapped."""
    wrap_width = terminal_width(sys.stdout) - indent
    return (
        textwrap.wrap(strip_escapes(text), wrap_width, break_long_words=False, break_on_hyphens=False)
        if wrap_width >= WRAP_WIDTH_MIN
        else [text]
    )
