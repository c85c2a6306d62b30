"""Adapter: `mz explain`."""

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
        ("mz explain MZ2005", "why that is an error, and how to mend it"),
        ("mz explain 21", "what an exit code says"),
        ("mz explain", "all of them"),
    ),
    following="`mz doctor` looks for what is missing.",
)
@click.argument("code", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one object: mz.explain/1, or mz.explain-all/1.")
def explain(code: str | None, as_json: bool) -> None:
    """Explain an error code or an exit code.

    CODE is MZ and four digits, or the number of an exit code. Without it, all are listed.
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
    """What a command that met the error ends with."""
    return "No exit code." if shape.exit is None else f"Exit code {shape.exit}: {MEANINGS[Exit(shape.exit)]}"


def wrapped(text: str) -> str:
    """A terminal gets lines that it need not break."""
    return textwrap.fill(text, min(terminal_width(sys.stdout), HELP_WIDTH)) if is_terminal(sys.stdout) else text


def show_all(as_json: bool) -> None:
    errors = tuple(of_error(each) for each in CODES.values())
    exits = tuple(of_exit(each) for each in Exit)
    if as_json:
        show_document("explain-all", ExplainAllShape(errors=errors, exits=exits))
        return
    rows = [(each.code, "-" if each.exit is None else str(each.exit), each.title) for each in errors]
    rows += [(f"exit {each.code}", each.code, each.title) for each in exits]
    show(Table(columns=columns("code", ">exit", "meaning"), rows=tuple(rows), empty=""))


def shape_of(word: str) -> ExplainShape:
    """Of `MZ2005`, in any case, with brackets or without; of `2005`; or of an exit code. Raises UsageError."""
    plain = re.sub(r"[^A-Z0-9]", "", word.upper()).removeprefix("ERROR").removeprefix("EXIT")
    if plain.isascii() and plain.isdigit() and len(plain) < 4:
        if int(plain) in {each.value for each in Exit}:
            return of_exit(Exit(int(plain)))
        known = ", ".join(str(each.value) for each in Exit)
        raise click.UsageError(f"there is no exit code {int(plain)}; known: {known}", click.get_current_context())
    code = f"MZ{plain.removeprefix('MZ')}"
    if code not in CODES:
        problem = f"there is no error code {word[:40]!r}{did_you_mean(code, CODES)}"
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
