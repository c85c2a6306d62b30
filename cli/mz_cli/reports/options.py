"""Adapter: `--junit`, `--sarif`, `--html` and `--github` for every command that finds things.

    @command("drift", ...)
    @report_options
    def drift(..., reports: ReportOptions) -> int:
        check_reports(reports)                          # before any work
        ...
        with answering(reports, as_json) as stream:     # the work, and the page for people
            put_lines(stream, page(results))
        write_reports(reports, "mz drift", suites, exit, as_json)

The modules that make the reports are imported when one is wanted, and not before.
"""

from __future__ import annotations

import errno
import functools
import os
import secrets
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, TextIO

import click
from mz_engine.adapters.known_secrets import known_secrets
from mz_engine.errors import MzError
from mz_engine.exits import Exit
from mz_engine.version import VERSION
from mz_events.redact import Secrets

from mz_cli.context import find_home
from mz_cli.render.console import put
from mz_cli.reports.facts import Report, ReportOptions, Suite
from mz_cli.reports.plain import cleaned, without_places

STDOUT = "-"
SUMMARY = "GITHUB_STEP_SUMMARY"
"""The variable that names the file of a step's summary."""


def report_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator, below `@command`: the four options, which the function gets as one `reports: ReportOptions`."""

    @functools.wraps(function)
    def gathered(*args: Any, junit: str | None, sarif: str | None, html: str | None, github: bool, **rest: Any) -> Any:
        return function(*args, reports=ReportOptions(junit=junit, sarif=sarif, html=html, github=github), **rest)

    path = click.Path(dir_okay=False, allow_dash=True)
    gathered = click.option(
        "--github", is_flag=True, help="Annotations for GitHub Actions, and a summary of the step."
    )(gathered)
    for name, what in (
        ("html", "a page that needs no network"), ("sarif", "SARIF 2.1.0"), ("junit", "JUnit XML"),
    ):  # fmt: skip
        gathered = click.option(f"--{name}", metavar="FILE", type=path, help=f"Write a report: {what}; - is stdout.")(
            gathered
        )
    return gathered


def relative_to(home: Path) -> Callable[[str], str]:
    """Paths as reports have them: relative to the project where they lie in it, else by their name alone."""
    root = home.resolve()

    def relative(path: str) -> str:
        there = Path(os.path.realpath(path))
        return there.relative_to(root).as_posix() if there.is_relative_to(root) else there.name

    return relative


def check_reports(options: ReportOptions, as_json: bool = False) -> None:
    """Sees before any work that every report can be written. Raises UsageError where two want the same place, and
    MzError (MZ1007) for a place where no file can be."""
    files = [path for path in options.files.values() if path != STDOUT]
    places = [str(_resolved(Path(path))) for path in files]
    places += [STDOUT] * (list(options.files.values()).count(STDOUT) + (as_json and options.takes_stdout))
    if len(set(places)) < len(places):
        raise click.UsageError("two reports would be written to the same place; give each a file of its own")
    for path in [*files, *([os.environ[SUMMARY]] if options.github and os.environ.get(SUMMARY) else [])]:
        _probe(Path(path))


def _probe(path: Path) -> None:
    """Tries it out beside the file, which is left as it is."""
    place = _resolved(path)
    try:
        if place.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not _is_device(place):
            with tempfile.TemporaryFile(dir=place.parent):
                return
    except OSError as error:
        raise _unwritable(path, error) from error


def _resolved(path: Path) -> Path:
    """Where links lead. Raises MzError (MZ1007) where they lead in a circle."""
    try:
        return path.resolve()
    except (OSError, RuntimeError) as error:
        raise _unwritable(path, OSError(errno.ELOOP, os.strerror(errno.ELOOP))) from error


def _is_device(path: Path) -> bool:
    """Whether it is there and no plain file: it can only be written into."""
    return path.exists() and not path.is_file()


def _unwritable(path: Path, error: OSError) -> MzError:
    why = (error.strerror or type(error).__name__).lower()
    hint = "name a file in a directory that is there and that you may write to"
    return MzError("MZ1007", f"the report {path} cannot be written: {why}", hint=hint)


@contextmanager
def answering(options: ReportOptions, as_json: bool = False) -> Iterator[TextIO]:
    """Where the page for people goes: stdout, or stderr where a report or JSON takes stdout. With `--github` nothing
    that is written meanwhile, whereto ever, is taken for a command of the runner's."""
    stream = sys.stderr if options.takes_stdout or as_json else sys.stdout
    if not options.github:
        yield stream
        return
    from mz_cli.reports.github import command, silence

    token = secrets.token_hex(16)
    put(stream, f"{silence(token)}\n")
    try:
        yield stream
    finally:
        put(stream, f"{command(token, '')}\n")


def write_reports(
    options: ReportOptions, title: str, suites: Sequence[Suite], ended: Exit, as_json: bool = False
) -> None:
    """Writes all that is wanted; files are complete or not there. `title` is the command, `ended` its exit code; paths
    in the suites are relative to the project. Annotations go where the page went, to stderr beside JSON. Raises MzError
    (MZ1007)."""
    if not (options.files or options.github):
        return
    report = Report(title=title, suites=tuple(suites), exit=int(ended), version=VERSION)
    home = str(find_home(Path.cwd()).resolve())
    relieved = cleaned(
        report,
        Secrets(known_secrets(Path(home), os.environ)).redact,
        lambda text: without_places(text, home, str(Path.home()), tempfile.gettempdir()),
    )
    with answering(options, as_json) if options.takes_stdout else nullcontext():
        for form, path in options.files.items():
            _write(path, made(form, relieved))
    if options.github:
        _tell_github(relieved, sys.stderr if options.takes_stdout or as_json else sys.stdout)


def made(form: str, report: Report) -> str:
    """The text of a report that has been cleaned."""
    if form == "junit":
        from mz_cli.reports.junit import junit

        return junit(report)
    if form == "sarif":
        from mz_cli.reports.sarif import sarif

        return sarif(report)
    from mz_cli.reports.html import html

    return html(report)


def _write(path: str, text: str) -> None:
    if path == STDOUT:
        put(sys.stdout, text)
        return
    place = _resolved(Path(path))
    try:
        if _is_device(place):
            place.write_text(text, "utf-8")
        else:
            _replace(place, text)
    except OSError as error:
        raise _unwritable(Path(path), error) from error


def _replace(place: Path, text: str) -> None:
    """A reader meets the old file or the new one, whole."""
    handle, name = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        Path(name).chmod(0o666 & ~_umask())
        Path(name).replace(place)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _tell_github(report: Report, stream: TextIO) -> None:
    from mz_cli.reports.github import annotated
    from mz_cli.reports.summary import BYTES_MAX, summary

    put(stream, "".join(f"{line}\n" for line in annotated(report)))
    if name := os.environ.get(SUMMARY):
        place = Path(name)
        try:
            there = place.stat().st_size if place.exists() else 0
            with open(place, "a", encoding="utf-8") as file:
                file.write(summary(report, BYTES_MAX - there))
        except OSError as error:
            raise _unwritable(place, error) from error
