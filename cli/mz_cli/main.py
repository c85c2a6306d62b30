"""Adapter: the `mz` command. A command's module is imported when the command is used, and not before.

Whatever goes wrong ends here, in `main`: a message, a hint and an exit code, never a bare traceback.
"""

from __future__ import annotations

import keyword
import os
import sys
from collections.abc import Sequence
from importlib import import_module

import click
from click.shell_completion import CompletionItem
from mz_engine.version import VERSION

from mz_cli.closed import open_closed
from mz_cli.help import HELP_WIDTH, refuse_unknown, write_examples, write_following

COMMANDS: dict[str, str] = {
    "demo": "Watch a whole run, with recorded agents, for nothing.",
    "init": "Write mz.yaml and a starter backlog.",
    "doctor": "Check that everything is there that a run needs.",
    "run": "Deliver the backlog, feature by feature.",
    "resume": "Go on with a run, with an answer where it waits for one.",
    "fork": "Go on from an event of a past run, with something changed.",
    "status": "Show a run, what it took, and what waits for you.",
    "runs": "List the runs of this repository, the newest first.",
    "show": "Show one feature: its phases, attempts and results.",
    "log": "Print what happened, one line an event.",
    "diff": "Compare two runs.",
    "audit": "Say what a run did, on what evidence.",
    "cost": "Show what the agents cost: estimated, reported, computed.",
    "calibrate": "Fit estimates to what calls really took.",
    "transcript": "Say what is in a file that an agent wrote.",
    "import": "Take in what agents did without mz, from their own session files.",
    "record": "Make a cassette of a past run, from its log alone.",
    "replay": "Play recordings through today's pipeline, for nothing.",
    "drift": "Say what has drifted: recordings against today, or against newer ones.",
    "rerecord": "Have the real agent answer recorded calls again, as a review.",
    "recordings": "Look after the library of recordings.",
    "gate": "Prove what can be proven without an agent, for nothing.",
    "verify": "Check that the record is what was recorded.",
    "review": "See what is asked of people, and answer it.",
    "retry": "Have a feature that came to rest done once more.",
    "pause": "Have a run wait, without ending its process.",
    "cancel": "Give up features, or all that is left of a run.",
    "clean": "Remove what ended runs left: worktrees, captures, spools.",
    "gc": "Free space below .mz that nothing needs any more.",
    "completion": "Print what makes a shell complete the words of mz.",
    "config": "Show and check the settings.",
    "explain": "Explain an error code or an exit code.",
    "schema": "Print a JSON Schema, for editors and for programs.",
    "pipelines": "List, show, check and begin pipelines.",
    "bench": "Measure what mz costs by itself, against references of the same run.",
    "help": "Explain a topic or a command.",
}
"""Name and summary. The module is `mz_cli.commands.<name>`, its command too; see `RENAMED`."""

SECTIONS = {
    "Begin": ("demo", "init", "doctor"),
    "Work": ("run", "resume", "pause", "cancel", "retry", "review", "fork"),
    "Look": ("status", "runs", "show", "log", "cost", "diff", "transcript", "import"),
    "Prove": ("record", "replay", "drift", "rerecord", "recordings", "gate", "audit", "verify", "bench"),
    "Adjust": ("pipelines", "config", "calibrate", "schema"),
    "Tidy": ("clean", "gc"),
    "Learn": ("help", "explain", "completion"),
}
"""What the commands are for, as `mz --help` groups them."""
RENAMED = {"help": "help_", "import": "import_"}
"""Commands whose names Python has taken."""
COMPLETING = "_MZ_COMPLETE"
"""The variable with which a shell asks for suggestions."""

EXAMPLES = (
    ("mz demo", "see it work, with nothing installed and nothing to pay"),
    ("mz init && mz run", "deliver this repository's backlog"),
    ("mz status", "how far it is, and what waits for you"),
)

FOLLOWING = (
    "`mz demo` shows a whole run in a minute; `mz COMMAND --help` explains a command, `mz help TOPIC` what several "
    "share: exit-codes, environment, formatting."
)


class LazyGroup(click.Group):
    """Knows its commands by name; imports one when it is run or its help is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        name = RENAMED.get(cmd_name, cmd_name)
        module = name if keyword.iskeyword(cmd_name) else cmd_name
        found = getattr(import_module(f"mz_cli.commands.{module}"), name)
        assert isinstance(found, click.Command)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        refuse_unknown(ctx, args, COMMANDS)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        """Without importing the commands."""
        found = [CompletionItem(name, help=about) for name, about in COMMANDS.items() if name.startswith(incomplete)]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        write_examples(formatter, EXAMPLES)
        width = max(len(name) for name in COMMANDS)
        for title, names in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:<{width}}", COMMANDS[name]) for name in names if name in COMMANDS])
        click.Command.format_options(self, ctx, formatter)
        write_following(formatter, FOLLOWING)


WHEN = ("auto", "always", "never")


def choose_color(when: str | None) -> None:
    """A flag wins over the variables, so it takes their place."""
    if when is not None:
        for name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE"):
            os.environ.pop(name, None)
    if when in ("always", "never"):
        os.environ["FORCE_COLOR" if when == "always" else "NO_COLOR"] = "1"


def color_first(words: Sequence[str]) -> list[str]:
    """The same words with `--color WHEN` moved to the front, where it is declared."""
    rest, found = list(words), list[str]()
    end = rest.index("--") if "--" in rest else len(rest)
    for at in reversed(range(end)):
        if rest[at] == "--color" or rest[at].startswith("--color="):
            size = 2 if rest[at] == "--color" else 1
            found = rest[at : at + size]
            del rest[at : at + size]
    return [*found, *rest]


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": HELP_WIDTH},
    invoke_without_command=True,
)
@click.version_option(VERSION, prog_name="mz", message="%(prog)s %(version)s")
@click.option(
    "--color",
    type=click.Choice(WHEN),
    expose_value=False,
    callback=lambda _, __, when: choose_color(when),
    help="Whether escape sequences are written; may also stand after a command. [default: auto]",
)
@click.pass_context
def mz(ctx: click.Context) -> None:
    """Take a backlog, drive coding agents through a pipeline in isolated worktrees, check all they hand over.

    Everything that happens is an event; whatever you can see is folded from events.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point: runs the command and ends the process with its exit code."""
    open_closed()
    if instruction := os.environ.get(COMPLETING):
        from mz_cli.completing import complete

        sys.exit(complete(mz, instruction))
    from mz_cli.failures import guarded

    words = list(sys.argv[1:] if arguments is None else arguments)
    code = guarded(lambda: run(words), words)
    if "--bisect" in words:
        from mz_cli.past import of_command

        code = of_command(words, code)
    sys.exit(code)


def run(words: Sequence[str]) -> object:
    """Runs the command line; returns what the command returns. Everything that click and the command raise goes
    through: click's own `main` would end the process itself when the reader of stdout has gone."""
    with mz.make_context("mz", color_first(words)) as context:
        return mz.invoke(context)
