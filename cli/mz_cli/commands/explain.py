"""Command `mz explain`."""

from __future__ import annotations

import re
import sys
import textwrap

import click
from mz_engine.errorcodes import CODES, ErrorCode
from mz_engine.exits import MEANINGS, NEXT, Exit

from mz_cli.help import HELP_WIDTH, command, did_you_mean
from mz_cli.render.console import answer, is_terminal, terminal_width
from mz_cli.render.document import show_document
from mz_cli.render.draw import show
from mz_cli.render.table import Table, columns
from mz_cli.shapes.project import ExplainAllShape, ExplainShape


@command(
    "explain",
    examples=(
        ("mz explain MZ2005", "the cause of the error, and how to fix it"),
        ("mz explain 21", "the meaning of an exit code"),
        ("mz explain", "all codes"),
    ),
    following="`mz doctor` checks what is missing.",
)
@click.argument("code", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one object: mz.explain/1, or mz.explain-all/1.")
def explain(code: str | None, as_json: bool) -> None:
    """Explain an error code or an exit code.

    CODE is MZ and four digits, or the number of an exit code. Without CODE, lists all codes.
    """
    if code is None:
        show_all(as_json)
        return
    shape = shape_of(code)
    if as_json:
        show_document("explain", shape)
        return
    answer(f"{shape.code}: {shape.title}" if shape.kind == "error" else f"exit code {shape.code}: {shape.title}")
    answer(f"\n{wrapped(shape.explanation)}")
    if shape.kind == "error":
        answer("\n" + wrapped(ends_with(shape)))
    elif shape.codes:
        answer("\n" + wrapped(f"Errors that lead to it: {', '.join(shape.codes)}"))


def ends_with(shape: ExplainShape) -> str:
    """Return the exit code of commands that fail with the error."""
    return "No exit code." if shape.exit is None else f"Exit code {shape.exit}: {MEANINGS[Exit(shape.exit)]}"


def wrapped(text: str) -> str:
    """Wrap the text for a terminal."""
    return textwrap.fill(text, min(terminal_width(sys.stdout), HELP_WIDTH)) if is_terminal(sys.stdout) else text


def show_all(as_json: bool) -> None:
    errors = tuple(map(of_error, CODES.values()))
    exits = tuple(map(of_exit, Exit))
    if as_json:
        show_document("explain-all", ExplainAllShape(errors=errors, exits=exits))
        return
    rows = [(shape.code, "-" if shape.exit is None else str(shape.exit), shape.title) for shape in errors]
    rows += [(f"exit {shape.code}", shape.code, shape.title) for shape in exits]
    show(Table(columns=columns("code", ">exit", "meaning"), rows=tuple(rows), empty=""))


def shape_of(word: str) -> ExplainShape:
    """Return the explanation of `MZ2005` (any case, with or without brackets), `2005` or an exit code.

    Raises UsageError for an unknown code.
    """
    plain = re.sub(r"[^A-Z0-9]", "", word.upper()).removeprefix("ERROR").removeprefix("EXIT")
    if plain.isascii() and plain.isdigit() and len(plain) < 4:
        if int(plain) in {each.value for each in Exit}:
            return of_exit(Exit(int(plain)))
        known = ", ".join(str(each.value) for each in Exit)
        raise click.UsageError(f"no exit code {int(plain)}; known: {known}", click.get_current_context())
    code = f"MZ{plain.removeprefix('MZ')}"
    if code not in CODES:
        problem = f"no error code {word[:40]!r}{did_you_mean(code, CODES)}"
        raise click.UsageError(problem, click.get_current_context())
    return of_error(CODES[code])


def of_error(code: ErrorCode) -> ExplainShape:
    return ExplainShape(
        kind="error", code=code.code, title=code.title, explanation=code.explanation,
        exit=None if code.warns else code.exit.value, codes=(),
    )  # fmt: skip


def of_exit(exit_code: Exit) -> ExplainShape:
    return ExplainShape(
        kind="exit",
        code=str(exit_code.value),
        title=MEANINGS[exit_code],
        explanation=NEXT.get(exit_code, MEANINGS[exit_code]),
        exit=exit_code.value,
        codes=tuple(each.code for each in CODES.values() if each.exit is exit_code and not each.warns),
    )
