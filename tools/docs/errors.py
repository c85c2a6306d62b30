"""Documentation page of error codes and exit codes. `python -m tools.docs.errors FILE` writes it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import fill

from mz_engine.errors.codes import CODES, MEANINGS, NEXT_STEPS, PROBLEMS, ErrorCode
from mz_engine.errors.diagnostics import Exit, MzError, SourceLocation

WIDTH = 120

AREAS = {
    "1": "Command and machine",
    "2": "Files and settings",
    "3": "Pipelines",
    "4": "Backlog",
    "5": "Runs",
    "6": "Recordings and transcripts",
}
"""Heading of each area, by the first digit of its codes."""

EXAMPLE = MzError(
    "MZ2005",
    "unknown key `timout` in `commands.lint`",
    hint="did you mean `timeout`?",
    location=SourceLocation("mz.yaml", 14, 3),
)

HEAD = """# Errors and exit codes

`python -m tools.docs.errors docs/errors.md` writes this page from the code; `mz help MZ2005` prints the explanation
of an error, `mz help 10` that of an exit code, `mz help no-terminal` that of a problem, `mz help codes` lists all.

## Error messages

An error on stderr is a line with its code, its location and the message, followed by a hint. All errors of a file are
reported at once, in the order of the file.

"""

JSON_AND_STABILITY = """
The location is `file:line:column`, counted from 1; unknown parts are omitted. A `warning[...]` stops nothing and has no
exit code. With `--json` an error is one object on stderr: [mz.error/1](json.md#mzerror1).

Error codes and exit codes are stable, and a code is never reused. The wording of messages may change.

## Exit codes

"""


def markdown_page() -> str:
    """Return the page as Markdown."""
    return "".join((HEAD, _code_block(str(EXAMPLE)), JSON_AND_STABILITY, _exit_table(), *_areas(), _problem_table()))


def _exit_table() -> str:
    rows = [f"| {code.value} | {MEANINGS[code]} | {NEXT_STEPS.get(code, '')} |" for code in sorted(Exit)]
    order = ", ".join(str(code.value) for code in Exit if code)
    precedence = (
        f"If several apply, the first of these wins: {order}. With `--bisect`, 125 wins over 3 and 4, so that "
        "`git bisect run` skips a commit that cannot be compared."
    )
    return "\n".join(["| exit | meaning | next step |", "|--:|---|---|", *rows, "", _wrapped(precedence), ""])


def _problem_table() -> str:
    text = "Codes in `mz status`, `mz review show` and the log, of calls, worktrees and deliveries."
    head = f"\n## Problems\n\n{text} An agent of your own may have others.\n\n"
    rows = [f"| `{code}` | {meaning} | {next_step} |\n" for code, (meaning, next_step) in PROBLEMS.items()]
    return "".join((head, "| problem | meaning | next step |\n|---|---|---|\n", *rows))


def _areas() -> Iterator[str]:
    for digit, title in AREAS.items():
        yield f"\n## {title}\n"
        yield from (_entry(code) for code in CODES.values() if code.code[2] == digit)


def _entry(code: ErrorCode) -> str:
    exit_text = "Warning: no exit code." if code.is_warning else f"Exit code {code.exit.value}."
    return f"\n### {code.code}: {code.title}\n\n{_wrapped(f'{code.explanation} {exit_text}')}\n"


def _wrapped(text: str) -> str:
    return fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def _code_block(text: str) -> str:
    return f"```text\n{text}\n```\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(markdown_page(), encoding="utf-8")
