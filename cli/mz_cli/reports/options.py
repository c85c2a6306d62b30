"""The options `--junit`, `--sarif`, `--html` and `--github` of every command that reports findings.

    @command("drift", ...)
    @report_options
    def drift(..., as_json: bool, reports: ReportOptions) -> int:
        reports.check()                           # before any work
        with reports.text_stream() as stream:     # the work, and the text for people
            write_lines(stream, render_text(results))
        reports.write("mz drift", suites, exit)

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
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, Any, TextIO

import click
import msgspec
from mz_engine.errors.diagnostics import Exit, MzError
from mz_engine.secrets import project_secrets
from mz_engine.version import VERSION
from mz_events.redaction.redactor import Secrets

from mz_cli.app.context import find_root
from mz_cli.reports.findings import Report, Suite, sanitise, strip_local_paths
from mz_cli.terminal.console import write_text

FORMS = {"html": "self-contained HTML", "sarif": "SARIF 2.1.0", "junit": "JUnit XML"}
STDOUT = "-"
SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"
"""Environment variable with the path of a step's summary file."""


class ReportOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Destinations of the reports: paths as on the command line, `-` for stdout."""

    files: dict[str, str] = {}
    """Path by format."""
    github: bool = False
    as_json: bool = False
    """The command prints JSON to stdout."""

    @property
    def takes_stdout(self) -> bool:
        """Return True if a report is written to stdout instead of the text for people."""
        return STDOUT in self.files.values()

    @property
    def stream(self) -> TextIO:
        """Return the stream for people: stdout, or stderr if a report or JSON takes stdout."""
        return sys.stderr if self.takes_stdout or self.as_json else sys.stdout

    def check(self) -> None:
        """Check, before any work, that every report can be written.

        Raises UsageError if two reports have the same destination, and MzError (MZ1007) if a file cannot be written.
        """
        destinations = [*self.files.values(), *([STDOUT] if self.as_json else [])]
        targets = [path if path == STDOUT else os.path.realpath(path) for path in destinations]
        if len(set(targets)) < len(targets):
            raise click.UsageError("two reports have the same destination; give each its own file")
        paths = [path for path in self.files.values() if path != STDOUT]
        if self.github and (summary_path := os.environ.get(SUMMARY_VARIABLE)):
            paths.append(summary_path)
        for path in paths:
            with _write_errors(path) as target:
                if target.is_dir():
                    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
                if not _is_device(target):
                    tempfile.TemporaryFile(dir=target.parent).close()

    @contextmanager
    def text_stream(self) -> Iterator[TextIO]:
        """Yield the stream for people. With `--github`, the runner obeys no commands in any output written meanwhile:
        prompts and agent output may contain such commands, and their authors cannot know the token."""
        if not self.github:
            yield self.stream
            return
        from mz_cli.reports.github import workflow_command

        token = secrets.token_hex(16)
        write_text(self.stream, f"{workflow_command('stop-commands', token)}\n")
        try:
            yield self.stream
        finally:
            write_text(self.stream, f"{workflow_command(token, '')}\n")

    def write(self, title: str, suites: Sequence[Suite], exit_code: Exit) -> None:
        """Write all requested reports; files are written atomically.

        `title` is the command; paths in `suites` are relative to the project. Annotations go to the stream for people.
        Raises MzError (MZ1007).
        """
        if not (self.files or self.github):
            return
        root = str(find_root(Path.cwd()).resolve())
        report = sanitise(
            Report(title=title, suites=tuple(suites), exit=int(exit_code), version=VERSION),
            Secrets(project_secrets(Path(root), os.environ)).redact,
            lambda text: strip_local_paths(text, root, str(Path.home()), tempfile.gettempdir()),
        )
        with self.text_stream() if self.takes_stdout else nullcontext():
            for form, path in self.files.items():
                from mz_cli.reports.formats import FORMATS

                with open_output(path) as file:
                    file.write(FORMATS[form](report).encode())
        if self.github:
            from mz_cli.reports.github import BYTES_MAX, annotation_lines, summary

            write_text(self.stream, "".join(f"{line}\n" for line in annotation_lines(report)))
            if name := os.environ.get(SUMMARY_VARIABLE):
                with _write_errors(name) as target, open(target, "a", encoding="utf-8") as file:
                    file.write(summary(report, BYTES_MAX - os.fstat(file.fileno()).st_size))


def report_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the four options to a command with `--json`; the function gets them as `reports: ReportOptions`."""

    @functools.wraps(function)
    def decorated(*, github: bool, as_json: bool, **options: Any) -> Any:
        paths = {form: options.pop(form) for form in FORMS}
        files = {form: path for form, path in paths.items() if path is not None}
        return function(as_json=as_json, reports=ReportOptions(files=files, github=github, as_json=as_json), **options)

    path = click.Path(dir_okay=False, allow_dash=True)
    github_help = "Print annotations for GitHub Actions, and write a step summary."
    decorated = click.option("--github", is_flag=True, help=github_help)(decorated)
    for form, description in FORMS.items():
        text = f"Write a report: {description}; - is stdout."
        decorated = click.option(f"--{form}", metavar="FILE", type=path, help=text)(decorated)
    return decorated


@contextmanager
def _write_errors(path: str) -> Iterator[Path]:
    """Yield the path with links resolved. Raises MzError (MZ1007) for an OSError."""
    try:
        target = Path(os.path.realpath(path))
        if target.is_symlink():  # Of a circle; it would be replaced.
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        yield target
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        hint = "name a file in an existing, writable directory"
        raise MzError("MZ1007", f"{Path(path)} cannot be written: {reason}", hint=hint) from error


def _is_device(path: Path) -> bool:
    """Return True for an existing path that is no regular file: it can be written, but not replaced."""
    return path.exists() and not path.is_file()


@contextmanager
def open_output(path: str) -> Iterator[IO[bytes]]:
    """Open stdout for `-`, or a file that takes the place of `path` at the end, never if there is an error. Raises
    MzError (MZ1007)."""
    if path == STDOUT:
        with click.open_file(path, "wb") as file:
            yield file
            file.flush()
        return
    with _write_errors(path) as target:
        if _is_device(target):
            with target.open("wb") as file:
                yield file
            return
        temporary = target.with_name(f".mz-{secrets.token_hex(8)}")
        try:
            with temporary.open("xb") as file:
                yield file
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
