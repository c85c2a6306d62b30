"""Command `mz compare`."""

from __future__ import annotations

import os
import signal
from itertools import zip_longest
from pathlib import Path

import click
import msgspec
from mz_engine.errors.diagnostics import Exit, MzError
from mz_engine.git.repository import branch_commit
from mz_engine.paths import LOG_FILE, MZ_FOLDER
from mz_engine.ports import RepositoryUnusable
from mz_engine.run.comparison import ComparedCase, Ended, compare_versions, read_cases
from mz_engine.run.settings import load_config
from mz_events.names import Commit

from mz_cli.app.context import find_root, open_log
from mz_cli.app.help import command, format_options
from mz_cli.app.selectors import select
from mz_cli.terminal.console import print_note
from mz_cli.terminal.table import Table, columns, print_output
from mz_cli.terminal.text import count_noun, shorten, single_line

SHOWN_CHARS = 60


class Version(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    """As on the command line."""
    commit: str


class EndedShape(msgspec.Struct, frozen=True, kw_only=True):
    exit: int | None
    """null: it ran out of time."""
    stdout: str
    """What is not UTF-8 is shown as U+FFFD; compared are bytes."""
    stderr: str


class ComparedCaseShape(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    differences: tuple[str, ...]
    """Of `exit`, `stdout` and `stderr`; empty: all are equal."""
    left: EndedShape
    right: EndedShape


class ComparisonReport(msgspec.Struct, frozen=True, kw_only=True):
    """`mz compare --json`."""

    left: Version
    right: Version
    equal: int
    different: int
    cases: tuple[ComparedCaseShape, ...]


@command(
    "compare",
    examples=(
        ("mz compare main feat/login --cases cases.yaml", "what a branch changes in what the program does"),
        ("mz compare r4f1/login r77a/login --cases cases.yaml", "the work of two runs, such as of two models"),
    ),
    next_command="`mz diff` compares two runs: effort, cost and artifacts.",
)
@click.argument("left")
@click.argument("right")
@click.option(
    "--cases", "file", metavar="FILE", required=True, type=click.Path(path_type=Path, dir_okay=False),
    help="YAML file with the cases: command lines and their input.",
)  # fmt: skip
@format_options("Print one object with the schema mz.compare/1.")
def compare(left: str, right: str, file: Path, as_json: bool) -> int:
    """Run two versions of the code on the same cases, and compare what they do.

    Each version is set up and built (`workspace.setup` and `commands.build` in mz.yaml) in a clean checkout. Each case
    then runs in both, in the sandbox; standard output, standard error and exit code are compared byte by byte, with
    `<worktree>` for the checkout's path. LEFT and RIGHT are branches, commits, or [RUN/]FEATURE. The exit code is 1 if
    a case differs.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)  # The checkouts are removed, as after Ctrl-C.
    cases, root = read_cases(file), find_root(Path.cwd())
    config = load_config(root, os.environ, {}).config
    commits = (left, version_commit(root, left)), (right, version_commit(root, right))
    compared = tuple(compare_versions(root, config, commits, cases, os.environ, print_note))
    different = sum(bool(case.differences) for case in compared)
    sides = [Version(name=name, commit=commit) for name, commit in commits]
    shapes, equal = tuple(_shape(case) for case in compared), len(compared) - different
    report = ComparisonReport(left=sides[0], right=sides[1], equal=equal, different=different, cases=shapes)
    rows = tuple((case.name, *_cells(case)) for case in compared)
    table = Table(columns=columns("case", "result", "left", "right"), rows=rows)
    print_output(as_json, "compare", report, table, [f"{different} different of {count_noun(len(compared), 'case')}"])
    return int(Exit.VERDICT if different else Exit.OK)


def version_commit(root: Path, name: str) -> Commit:
    """Return the commit of a revision, else of a feature. Raises MzError (MZ1002, MZ4010, MZ5001, MZ5007), also for a
    feature without a commit."""
    try:
        return branch_commit(root, name)
    except RepositoryUnusable as unknown:
        if unknown.code != "no-base":
            raise
        if not (root / MZ_FOLDER / LOG_FILE).exists():
            raise MzError("MZ1002", f"{name!r} is no branch or commit", hint="see `git branch --all`") from unknown
    with open_log(root) as log:
        selector = select(log, name)
        if not selector.feature:
            raise MzError("MZ1002", f"{name!r} is a run", hint="name one of its features: RUN/FEATURE")
        view = log.find_feature(selector.run, selector.feature)
    if not view.commits:
        raise MzError("MZ1002", f"{name!r} has no commit", hint="name a branch, a commit, or a feature with work")
    return Commit(view.commits[-1].commit)


def _shape(case: ComparedCase) -> ComparedCaseShape:
    def side(ended: Ended) -> EndedShape:
        return EndedShape(exit=ended.exit, stdout=_text(ended.stdout), stderr=_text(ended.stderr))

    return ComparedCaseShape(name=case.name, differences=case.differences, left=side(case.left), right=side(case.right))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _cells(case: ComparedCase) -> tuple[str, str, str]:
    """Return the result, and of the first part that differs the first differing line of each side."""
    if not case.differences:
        return "equal", "-", "-"
    part = case.differences[0]
    if part == "exit":
        left, right = ("out of time" if side.exit is None else f"exit {side.exit}" for side in (case.left, case.right))
    else:
        left, right = first_difference(getattr(case.left, part), getattr(case.right, part))
    return f"differs: {', '.join(case.differences)}", left, right


def first_difference(left: bytes, right: bytes) -> tuple[str, str]:
    """Return the first line that differs on each side, with its number; `-` where one has ended."""
    for number, lines in enumerate(zip_longest(left.splitlines(), right.splitlines()), 1):
        if lines[0] != lines[1]:
            shown = (
                "-" if line is None else f"{number}: {shorten(single_line(_text(line)), SHOWN_CHARS)}" for line in lines
            )
            return next(shown), next(shown)
    return "only line ends differ", "-"
