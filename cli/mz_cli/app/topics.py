"""Help topics that concern several commands, printed by `mz help TOPIC`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from textwrap import wrap
from typing import TYPE_CHECKING

import click

from mz_cli.app.help import write_commands

if TYPE_CHECKING:
    from mz_engine.agents.contract import Adapter

WIDTH = 88

VARIABLES = {
    "NO_COLOR": "Set to anything: no escape sequence is written, on any stream.",
    "FORCE_COLOR, CLICOLOR_FORCE": "Anything but 0: colours into pipes too. NO_COLOR wins over them.",
    "TERM": "dumb: no escape sequence, and no live view of a run.",
    "COLUMNS": "Width of help texts; tables use the width of the terminal.",
    "MZ_NO_PROGRESS": "Set to anything: a run prints one line per change instead of a live view.",
    "MZ_USER": "Your name in answers and cancellations; default: git's user, else your login.",
    "VISUAL, EDITOR": "Editor that is opened to write a text.",
    "MZ_DATA": "Directory of imported sessions and of the day's spending; default: the platform's data directory.",
    "CI": "Set to anything: mz asks no questions, and a run prints one line per change.",
    "GIT_SSH, GIT_SSH_COMMAND": "SSH program of git for remotes; mz adds `-o BatchMode=yes` to an OpenSSH command.",
    "MZ_KEY": "Set by mz for agents and commands: the key of the call, by which mz finds processes. Do not change it.",
}

ENVIRONMENT = (
    "Variables that mz reads. A flag overrides a variable, a variable overrides mz.yaml, and that the default; "
    "`mz config show --show-origin` shows the origin of each value. An empty variable counts as unset."
)

VISIBLE_VARIABLES = "Agents and commands see only these variables, and those listed in `pass_environment` in mz.yaml:"

FORMATTING = {
    "Streams": "Results go to stdout; progress, warnings, questions and hints go to stderr.",
    "Terminals": "Tables are fitted to the terminal: texts wrap between words, columns without room move below, and "
    "tables that do not fit have one line per cell. No value is cut. Escape sequences of agents and of files are "
    "removed.",
    "Pipes": "One line per row, cells separated by tabs, column names first; nothing is cut, sizes are in bytes, "
    "times in UTC. A tab in a cell is \\t, a line end \\n, a backslash \\\\. Columns may be added at the end.",
    "Formats": "--format table|tsv|json, after a command that prints tables or events, chooses their format; the "
    "default is table on a terminal, and tsv in a pipe, except for run, demo, resume and fork. --json is short for "
    "--format json.",
    "JSON": "--json prints one object, indented, that begins with its schema, such as mz.status/1. `mz log --json` "
    "prints JSON Lines, the first of which names the schema. Unknown is null, never 0. Money is a decimal string of "
    "US dollars, times are ISO 8601 in UTC, commits are printed in full.",
    "Errors": "With --json an error is one object on stderr, schema mz.error/1: code, message, hint, where, exit.",
    "Colours": "--color auto|always|never overrides NO_COLOR, that FORCE_COLOR, and that the abilities of the "
    "terminal. No information is given by colour alone.",
    "Questions": "Asked only if stdin and stderr are terminals; otherwise the command names the option to use.",
}

SELECTORS = {
    "RUN": "A run: its id or the beginning of it.",
    "FEATURE": "A feature, in the newest run that did not skip it; RUN/FEATURE in another run.",
    "FEATURE/PHASE": "A phase; FEATURE/PHASE/UNIT: one unit of it.",
    "FEATURE/PHASE#2": "The second attempt, of every iteration and unit; #3.2: that of the third iteration; "
    "#2:security: of the role security. After UNIT too, and with RUN/ before all of them.",
    "KEY": "One call, as pipes print it: RUN/FEATURE/PHASE/UNIT/ITERATION/ATTEMPT/agent.ROLE; UNIT may be -.",
    "STREAM@VERSION": "One event, as `mz log` prints it; STREAM is run/RUN or run/RUN/FEATURE, with or without run/, "
    "or FEATURE.",
}


def exit_codes() -> str:
    from mz_engine.errors.codes import MEANINGS
    from mz_engine.errors.diagnostics import Exit

    order = ", ".join(str(code.value) for code in Exit if code)
    rows = {str(code.value): meaning for code, meaning in MEANINGS.items()}
    return "\n\n".join((
        paragraph("Exit codes of mz. They are stable: scripts may rely on them."),
        table(rows),
        paragraph(f"If several apply, the first of these wins: {order}."),
        paragraph("`mz help 21` explains an exit code, `mz help MZ2005` an error."),
    ))  # fmt: skip


def environment() -> str:
    from mz_engine.agents.catalog import AGENTS
    from mz_engine.agents.registry import built_in_adapters
    from mz_engine.config.schema import list_settings
    from mz_engine.processes.environment import INHERITED_NAMES

    names = {setting.variable: f"The setting `{setting.name}`." for setting in list_settings() if setting.scalar}
    directories = {
        ", ".join(agent.session_folders.variables): (
            f"Directory of {agent.title}'s login and sessions; read for import, and passed on."
            if agent.adapter
            else f"Directory of {agent.title}'s sessions; read for import."
        )
        for agent in AGENTS.values()
        if agent.session_folders is not None
    }
    adapters = sorted(built_in_adapters().items())
    by_agent = {name: _visible_variables(agent) for name, agent in adapters}
    return "\n\n".join((
        paragraph(ENVIRONMENT),
        table({**VARIABLES, **directories, **names}),
        paragraph(VISIBLE_VARIABLES),
        table({"all": f"{INHERITED_NAMES}; and MZ_KEY, which mz sets.", **by_agent}),
    ))  # fmt: skip


def _visible_variables(program: Adapter) -> str:
    set_by_mz = f"; and {' '.join(program.set_variables)}, which mz sets" if program.set_variables else ""
    return f"{' '.join(program.passed_variables)}{set_by_mz}."


def all_commands() -> str:
    formatter = click.HelpFormatter(width=WIDTH)
    write_commands(formatter)
    return formatter.getvalue().strip()


def paragraph(text: str) -> str:
    return "\n".join(wrap(text, WIDTH, break_on_hyphens=False, break_long_words=False))


def table(rows: Mapping[str, str]) -> str:
    """Return names with their meanings beside them; long names have a line of their own."""
    formatter = click.HelpFormatter(width=WIDTH)
    with formatter.indentation():
        formatter.write_dl(list(rows.items()), col_max=32)
    return formatter.getvalue().rstrip()


TOPICS: Mapping[str, tuple[str, Callable[[], str]]] = {
    "all": ("All commands.", all_commands),
    "exit-codes": ("Meaning of exit codes.", exit_codes),
    "environment": ("Variables that mz reads, and that agents see.", environment),
    "selectors": ("Names of runs, features, phases, attempts and events.", partial(table, SELECTORS)),
    "formatting": ("Output on stdout and stderr, and its formats.", partial(table, FORMATTING)),
}
"""Name, summary, text."""
