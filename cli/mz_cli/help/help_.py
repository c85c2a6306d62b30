"""Commands `mz help` and `mz completion`."""

from __future__ import annotations

import re
import sys
import textwrap
from typing import Literal

import click
from mz_engine.errors.codes import CODES, MEANINGS, NEXT_STEPS, PROBLEMS, ErrorCode
from mz_engine.errors.diagnostics import Exit

from mz_cli.app.command_table import COMMANDS
from mz_cli.app.completion import SHELLS, completion_script
from mz_cli.app.help import HELP_WIDTH, command, did_you_mean, format_options
from mz_cli.app.topics import TOPICS
from mz_cli.main import mz
from mz_cli.terminal.console import is_terminal, print_line, terminal_width, write_text
from mz_cli.terminal.json import Shape
from mz_cli.terminal.table import Table, columns, print_output

CODE = re.compile(r"\W*(?:error|exit)?\W*(?:MZ)?[0-9]+\W*", re.IGNORECASE)
"""Error code or exit code, as messages print it."""


class ExplainShape(Shape, frozen=True, kw_only=True):
    """`mz help CODE --json`."""

    kind: Literal["error", "exit", "problem"]
    code: str
    """`MZ2003`, the number of an exit code, or a problem such as `no-terminal`."""
    title: str
    explanation: str
    exit: int | None
    """Null: the code is only used for warnings."""
    codes: tuple[str, ...]
    """For an exit code: the errors that lead to it."""


class ExplainAllShape(Shape, frozen=True, kw_only=True):
    """`mz help codes --json`."""

    errors: tuple[ExplainShape, ...]
    exits: tuple[ExplainShape, ...]
    problems: tuple[ExplainShape, ...]


@command(
    "help",
    examples=(
        ("mz help all", "all commands"),
        ("mz help exit-codes", "a topic about several commands"),
        ("mz help MZ2005", "the cause of an error, and how to fix it"),
        ("mz help 21", "the meaning of an exit code"),
        ("mz help no-terminal", "the meaning of a problem in `mz status` or `mz review show`"),
        ("mz help codes", "all codes"),
        ("mz help pipelines new", "the same as `mz pipelines new --help`"),
    ),
    next_command="`mz doctor` checks what is missing.",
)
@click.argument("topic", nargs=-1)
@format_options("For codes, print one object: mz.help-code/1, or mz.help-codes/1.")
@click.pass_context
def help_(context: click.Context, topic: tuple[str, ...], as_json: bool) -> None:
    """Explain a topic, a command, an error code, an exit code or a problem.

    Topics: all (commands), codes, exit-codes, environment, selectors, formatting. A code is MZ and four digits,
    the number of an exit code, or a problem's code in `mz status` and `mz review show`, such as no-terminal.
    """
    first, *others = topic or ("",)
    if topic == ("codes",):
        print_all(as_json)
        return
    is_code = CODE.fullmatch(first) or (first in PROBLEMS and first not in COMMANDS)
    if (first == "codes" and len(others) == 1) or (is_code and not others):
        explain(topic[-1], as_json)
        return
    if as_json:
        raise click.UsageError("only codes have JSON: `mz help CODE --json`, or `mz help codes --json`")
    if len(topic) == 1 and topic[0] in TOPICS:
        print_line(TOPICS[topic[0]][1]())
        return
    command_page: click.Command = mz
    parent = context.find_root()
    for word in topic:
        subcommand = command_page.get_command(parent, word) if isinstance(command_page, click.Group) else None
        if subcommand is None:
            own = getattr(command_page, "commands", ())
            names = (*TOPICS, "codes", *COMMANDS, *PROBLEMS) if command_page is mz else own
            raise click.UsageError(f"no topic, command or code {word[:80]!r}{did_you_mean(word, names)}")
        command_page, parent = subcommand, click.Context(subcommand, info_name=word, parent=parent)
    print_line(command_page.get_help(parent))


def explain(code: str, as_json: bool) -> None:
    """Explain an error code or an exit code. Raises UsageError for an unknown code."""
    shape = find_explanation(code)
    heading = f"{'exit code ' if shape.kind == 'exit' else ''}{shape.code}: {shape.title}"
    texts = [shape.explanation]
    if shape.kind == "error":
        texts += ["No exit code." if shape.exit is None else f"Exit code {shape.exit}: {MEANINGS[Exit(shape.exit)]}"]
    elif shape.codes:
        texts += [f"Errors that lead to it: {', '.join(shape.codes)}"]
    width = min(terminal_width(sys.stdout), HELP_WIDTH) if is_terminal(sys.stdout) else sys.maxsize
    lines = (heading, *(f"\n{textwrap.fill(text, width)}" for text in texts))
    print_output(as_json, "help-code", shape, lines)


def print_all(as_json: bool) -> None:
    errors, exits = tuple(map(error_shape, CODES.values())), tuple(map(exit_shape, sorted(Exit)))
    problems = tuple(map(problem_shape, PROBLEMS))
    rows = [(shape.code, "-" if shape.exit is None else str(shape.exit), shape.title) for shape in errors]
    rows += [(f"exit {shape.code}", shape.code, shape.title) for shape in exits]
    rows += [(shape.code, "-", shape.title) for shape in problems]
    shape = ExplainAllShape(errors=errors, exits=exits, problems=problems)
    print_output(as_json, "help-codes", shape, Table(columns=columns("code", ">exit", "~meaning"), rows=rows))


def find_explanation(word: str) -> ExplainShape:
    """Return the explanation of `MZ2005` (any case, with or without brackets), `2005`, an exit code or a problem.

    Raises UsageError for an unknown code.
    """
    problem = re.sub(r"exit-\d+\Z", "exit-N", word)
    if problem in PROBLEMS:
        return problem_shape(problem)
    normalised = re.sub(r"[^A-Z0-9]", "", word.upper()).removeprefix("ERROR").removeprefix("EXIT")
    if normalised.isascii() and normalised.isdigit() and len(normalised) < 4:
        if int(normalised) in {exit_code.value for exit_code in Exit}:
            return exit_shape(Exit(int(normalised)))
        exit_codes = ", ".join(str(exit_code.value) for exit_code in sorted(Exit))
        raise click.UsageError(f"no exit code {int(normalised)}; known: {exit_codes}")
    code = f"MZ{normalised.removeprefix('MZ')}"
    if code not in CODES:
        raise click.UsageError(f"no error code {word[:40]!r}{did_you_mean(code, CODES)}")
    return error_shape(CODES[code])


def error_shape(code: ErrorCode) -> ExplainShape:
    return ExplainShape(
        kind="error", code=code.code, title=code.title, explanation=code.explanation,
        exit=None if code.is_warning else code.exit.value, codes=(),
    )  # fmt: skip


def problem_shape(code: str) -> ExplainShape:
    meaning, next_step = PROBLEMS[code]
    return ExplainShape(kind="problem", code=code, title=meaning, explanation=next_step, exit=None, codes=())


def exit_shape(exit_code: Exit) -> ExplainShape:
    return ExplainShape(
        kind="exit",
        code=str(exit_code.value),
        title=MEANINGS[exit_code],
        explanation=NEXT_STEPS.get(exit_code, MEANINGS[exit_code]),
        exit=exit_code.value,
        codes=tuple(code.code for code in CODES.values() if code.exit is exit_code and not code.is_warning),
    )


@command(
    "completion",
    examples=(
        ("mz completion bash >> ~/.bashrc", "for every new bash"),
        ('eval "$(mz completion zsh)"', "for this zsh, or as a line of ~/.zshrc after compinit"),
        ("mz completion fish > ~/.config/fish/completions/mz.fish", "for every new fish"),
    ),
    next_command="`mz show <TAB>` suggests the features of the newest run.",
)
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print a shell completion script.

    Completes commands, options, runs, features, pipelines and error codes. Completion never writes anything, and
    suggests nothing after an error. bash needs version 4.4 or newer.
    """
    write_text(sys.stdout, completion_script(shell))
