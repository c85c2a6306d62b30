"""Adapter: `--run`, `--judge` and `--bisect` of `mz replay`: a past run in place of cassettes, and exit codes for git.

`git bisect run` takes 0 for good, 125 for "cannot be told", other codes up to 127 for bad, and ends at any above. So
everything that is no verdict must be 125: settings or a pipeline that do not load, a crash of ours, a wrong command.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import click
from mz_engine.exits import Exit

VERDICTS = (Exit.OK, Exit.DRIFT, Exit.RECORDING)
SHARED = ("as_json", "reports")
"""Options that go with a past run too; all others are for cassettes."""


def past_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator, below `@report_options`: the three options. The function gets `bisect`; for a past run or a judgement
    it is not called."""

    @functools.wraps(function)
    def chosen(*args: Any, run: str | None, judge: bool, bisect: bool, **rest: Any) -> Any:
        def work() -> int:
            if run is None and not judge:
                return int(function(*args, bisect=bisect, **rest))
            return _past(run, judge, bisect, rest)

        return undecided_but_for_verdicts(work) if bisect else work()

    chosen = click.option("--bisect", is_flag=True, help="Exit codes for git bisect run: 125 for all but verdicts.")(
        chosen
    )
    chosen = click.option("--judge", is_flag=True, help="Past artifacts by today's rules; of all runs without --run.")(
        chosen
    )
    return click.option("--run", metavar="RUN", help="A past run of the log through today's code, by its own pins.")(
        chosen
    )


def _past(run: str | None, judge: bool, bisect: bool, rest: dict[str, Any]) -> int:
    from mz_cli.history import judge_past, replay_history
    from mz_cli.reports.options import check_reports

    flag = "--judge" if judge else "--run"
    if any(value for name, value in rest.items() if name not in SHARED):
        raise click.UsageError(f"{flag} is about runs of the log: no PATH, and no option for cassettes, goes with it")
    check_reports(rest["reports"], rest["as_json"])
    if judge:
        return judge_past(run, rest["as_json"], rest["reports"])
    assert run is not None
    return replay_history(run, bisect, rest["as_json"], rest["reports"])


def undecided_but_for_verdicts(work: Callable[[], int]) -> int:
    """The exit code for `git bisect run`. What stopped the work is told, and is no verdict, whatever its own code."""
    from mz_cli.failures import report

    context = click.get_current_context()
    try:
        return int(clamped(work()))
    except Exception as error:
        report(error, (context.command_path, "--bisect", *(["--json"] if context.params.get("as_json") else [])))
        return int(Exit.NOT_COMPARABLE)


def clamped(code: int) -> Exit:
    """Verdicts as they are, anything else as 125."""
    return Exit(code) if code in VERDICTS else Exit.NOT_COMPARABLE


def of_command(words: Sequence[str], code: int) -> int:
    """The code of the whole process: also a command line that is not understood, or code that does not load, must not
    be blamed on a commit."""
    return int(clamped(code)) if "--bisect" in words and "replay" in words else code
