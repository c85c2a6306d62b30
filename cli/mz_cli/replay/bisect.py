"""Exit codes of `mz replay --bisect`, for `git bisect run`.

Git takes 0 for good, 125 for "cannot be tested", other codes up to 127 for bad, and aborts at any above. So everything
that is no verdict must be 125: invalid settings or pipelines, a crash of mz, a wrong command line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import click
from mz_engine.errors.exits import Exit

from mz_cli.terminal.console import FORMAT_KEY

VERDICT_EXITS = (Exit.OK, Exit.DRIFT, Exit.RECORDING)


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
