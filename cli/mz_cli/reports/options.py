"""The options `--junit`, `--sarif`, `--html` and `--github` of every command that reports findings.

    @command("drift", ...)
    @report_options
    def drift(..., reports: ReportOptions) -> int:
        check_reports(reports)                          # before any work
        ...
        with text_stream(reports, as_json) as stream:   # the work, and the text for people
            put_lines(stream, render_text(results))
        write_reports(reports, "mz drift", suites, exit, as_json)

The modules that render reports are imported only when a report is requested.
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
from mz_engine.errors.diagnostics import MzError
from mz_engine.errors.exits import Exit
from mz_engine.secrets import project_secrets
from mz_engine.version import VERSION
from mz_events.redaction.redactor import Secrets

from mz_cli.app.context import find_home
from mz_cli.reports.model import Report, ReportOptions, Suite
from mz_cli.reports.sanitise import sanitise, strip_local_paths
from mz_cli.terminal.console import write_text

STDOUT = "-"
SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"
"""Environment variable with the path of a step's summary file."""


def report_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the four options to a command, below `@command`; the function gets them as `reports: ReportOptions`."""

    @functools.wraps(function)
    def decorated(
        *args: Any, junit: str | None, sarif: str | None, html: str | None, github: bool, **options: Any
    ) -> Any:
        return function(*args, reports=ReportOptions(junit=junit, sarif=sarif, html=html, github=github), **options)

    path = click.Path(dir_okay=False, allow_dash=True)
    decorated = click.option(
        "--github", is_flag=True, help="Print annotations for GitHub Actions, and write a step summary."
    )(decorated)
    for name, description in (
        ("html", "self-contained HTML"), ("sarif", "SARIF 2.1.0"), ("junit", "JUnit XML"),
    ):  # fmt: skip
        decorated = click.option(
            f"--{name}", metavar="FILE", type=path, help=f"Write a report: {description}; - is stdout."
        )(decorated)
    return decorated


def project_relative(home: Path) -> Callable[[str], str]:
    """Return a function that maps a path to one relative to the project, or to its name if it is elsewhere."""
    root = home.resolve()

    def relative(path: str) -> str:
        real = Path(os.path.realpath(path))
        return real.relative_to(root).as_posix() if real.is_relative_to(root) else real.name

    return relative


def check_reports(options: ReportOptions, as_json: bool = False) -> None:
    """Check, before any work, that every report can be written.

    Raises UsageError if two reports have the same destination, and MzError (MZ1007) if a file cannot be written.
    """
    files = [path for path in options.files.values() if path != STDOUT]
    targets = [str(_resolved(Path(path))) for path in files]
    targets += [STDOUT] * (list(options.files.values()).count(STDOUT) + (as_json and options.takes_stdout))
    if len(set(targets)) < len(targets):
        raise click.UsageError("two reports have the same destination; give each its own file")
    for path in [
        *files,
        *([os.environ[SUMMARY_VARIABLE]] if options.github and os.environ.get(SUMMARY_VARIABLE) else []),
    ]:
        _probe(Path(path))


def _probe(path: Path) -> None:
    """Check that the file can be written, with a temporary file beside it."""
    target = _resolved(path)
    try:
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not _is_device(target):
            with tempfile.TemporaryFile(dir=target.parent):
                return
    except OSError as error:
        raise _unwritable(path, error) from error


def _resolved(path: Path) -> Path:
    """Return the path with links resolved. Raises MzError (MZ1007) for a circle of links."""
    try:
        return path.resolve()
    except (OSError, RuntimeError) as error:
        raise _unwritable(path, OSError(errno.ELOOP, os.strerror(errno.ELOOP))) from error


def _is_device(path: Path) -> bool:
    """Return True for an existing path that is no regular file: it can be written, but not replaced."""
    return path.exists() and not path.is_file()


def _unwritable(path: Path, error: OSError) -> MzError:
    reason = (error.strerror or type(error).__name__).lower()
    hint = "name a file in an existing, writable directory"
    return MzError("MZ1007", f"the report {path} cannot be written: {reason}", hint=hint)


@contextmanager
def text_stream(options: ReportOptions, as_json: bool = False) -> Iterator[TextIO]:
    """Yield the stream for people: stdout, or stderr if a report or JSON takes stdout.

    With `--github`, the runner obeys no commands in any output written meanwhile.
    """
    stream = sys.stderr if options.takes_stdout or as_json else sys.stdout
    if not options.github:
        yield stream
        return
    from mz_cli.reports.github import stop_commands, workflow_command

    token = secrets.token_hex(16)
    write_text(stream, f"{stop_commands(token)}\n")
    try:
        yield stream
    finally:
        write_text(stream, f"{workflow_command(token, '')}\n")


def write_reports(
    options: ReportOptions, title: str, suites: Sequence[Suite], exit_code: Exit, as_json: bool = False
) -> None:
    """Write all requested reports; files are written atomically.

    `title` is the command; paths in `suites` are relative to the project. Annotations go to the stream for people.
    Raises MzError (MZ1007).
    """
    if not (options.files or options.github):
        return
    report = Report(title=title, suites=tuple(suites), exit=int(exit_code), version=VERSION)
    home = str(find_home(Path.cwd()).resolve())
    sanitised = sanitise(
        report,
        Secrets(project_secrets(Path(home), os.environ)).redact,
        lambda text: strip_local_paths(text, home, str(Path.home()), tempfile.gettempdir()),
    )
    with text_stream(options, as_json) if options.takes_stdout else nullcontext():
        for form, path in options.files.items():
            _write(path, render_report(form, sanitised))
    if options.github:
        _write_github(sanitised, sys.stderr if options.takes_stdout or as_json else sys.stdout)


def render_report(form: str, report: Report) -> str:
    """Return the text of a sanitised report in a format."""
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
        write_text(sys.stdout, text)
        return
    target = _resolved(Path(path))
    try:
        if _is_device(target):
            target.write_text(text, "utf-8")
        else:
            _replace(target, text)
    except OSError as error:
        raise _unwritable(Path(path), error) from error


def _replace(target: Path, text: str) -> None:
    """Replace the file atomically."""
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        Path(name).chmod(0o666 & ~_umask())
        Path(name).replace(target)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _write_github(report: Report, stream: TextIO) -> None:
    from mz_cli.reports.github import BYTES_MAX, annotation_lines, summary

    write_text(stream, "".join(f"{line}\n" for line in annotation_lines(report)))
    if name := os.environ.get(SUMMARY_VARIABLE):
        target = Path(name)
        try:
            present_bytes = target.stat().st_size if target.exists() else 0
            with open(target, "a", encoding="utf-8") as file:
                file.write(summary(report, BYTES_MAX - present_bytes))
        except OSError as error:
            raise _unwritable(target, error) from error
