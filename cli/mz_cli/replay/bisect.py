"""Options `--run`, `--recheck-rules` and `--bisect` of `mz replay`: past runs instead of cassettes, exit codes for git.

`git bisect run` takes 0 for good, 125 for "cannot be tested", other codes up to 127 for bad, and aborts at any above.
So everything that is no verdict must be 125: invalid settings or pipelines, a crash of mz, a wrong command line.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import click
from mz_engine.errors.exits import Exit

from mz_cli.terminal.console import FORMAT_KEY

VERDICT_EXITS = (Exit.OK, Exit.DRIFT, Exit.RECORDING)
SHARED_OPTIONS = ("as_json", "reports")
"""Options that past runs accept too; all others are for cassettes."""


def past_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator, below `@report_options`: add the three options. The function gets `bisect`; with `--run` or
    `--recheck-rules` it is not called."""

    @functools.wraps(function)
    def with_past_modes(*args: Any, run: str | None, recheck_rules: bool, bisect: bool, **options: Any) -> Any:
        def work() -> int:
            if run is None and not recheck_rules:
                return int(function(*args, bisect=bisect, **options))
            return _run_past_mode(run, recheck_rules, bisect, options)

        return bisect_exit(work) if bisect else work()

    add_options = (
        click.option("--bisect", is_flag=True, help="Use exit codes for git bisect run: 125 for all but verdicts."),
        click.option(
            "--recheck-rules",
            is_flag=True,
            help="Recheck artifacts of RUN, or of all runs, with current rules.",
        ),
        click.option("--run", metavar="RUN", help="Replay a past run of the log through the current code."),
    )
    decorated: Callable[..., Any] = with_past_modes
    for add_option in add_options:
        decorated = add_option(decorated)
    return decorated


def _run_past_mode(run: str | None, recheck_rules: bool, bisect: bool, options: dict[str, Any]) -> int:
    from mz_cli.replay.past_runs import recheck_past_runs, replay_history
    from mz_cli.reports.options import check_reports

    flag = "--recheck-rules" if recheck_rules else "--run"
    if any(value for name, value in options.items() if name not in SHARED_OPTIONS):
        raise click.UsageError(f"{flag} replays runs of the log: it accepts no PATH and no option for cassettes")
    check_reports(options["reports"], options["as_json"])
    if recheck_rules:
        return recheck_past_runs(run, options["as_json"], options["reports"])
    assert run is not None
    return replay_history(run, bisect, options["as_json"], options["reports"])


def bisect_exit(work: Callable[[], int]) -> int:
    """Return the exit code for `git bisect run`. An error is reported, and is no verdict, whatever its own code."""
    from mz_cli.app.failures import report_error

    context = click.get_current_context()
    as_json = context.params.get("as_json") or context.meta.get(FORMAT_KEY) == "json"
    try:
        return int(clamp_exit(work()))
    except Exception as error:
        report_error(error, (context.command_path, "--bisect", *(["--json"] if as_json else [])))
        return int(Exit.NOT_COMPARABLE)


def clamp_exit(code: int) -> Exit:
    """Return verdicts unchanged, anything else as 125."""
    return Exit(code) if code in VERDICT_EXITS else Exit.NOT_COMPARABLE


def command_exit(arguments: Sequence[str], code: int) -> int:
    """Return the exit code of the process: an invalid command line or a failed import must not count as a bad
    commit."""
    return int(clamp_exit(code)) if "--bisect" in arguments and "replay" in arguments else code
