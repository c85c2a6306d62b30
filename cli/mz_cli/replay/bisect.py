"""Exit codes of `mz replay --bisect`, for `git bisect run`.

Git takes 0 for good, 125 for "cannot be tested", other codes up to 127 for bad, and aborts at any above. So everything
that is no verdict must be 125: invalid settings or pipelines here, errors in `mz_cli.app.failures.run_guarded`.
"""

from __future__ import annotations

from mz_engine.errors.exits import Exit

VERDICT_EXITS = (Exit.OK, Exit.DRIFT, Exit.RECORDING)


def clamp_exit(code: int) -> Exit:
    """Return verdicts unchanged, anything else as 125."""
    return Exit(code) if code in VERDICT_EXITS else Exit.NOT_COMPARABLE
