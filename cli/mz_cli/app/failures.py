"""Report errors of commands on stderr, and map them to exit codes."""

from __future__ import annotations

import errno
import gc
import io
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import click
from mz_engine.paths import MZ_FOLDER

from mz_cli.terminal.console import print_note, write_text

if TYPE_CHECKING:
    from mz_engine.errors.diagnostics import MzError

OK, STOPPED, BUG, NOT_COMPARABLE = 0, 20, 70, 125
OUTPUT_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Errors of writing to stdout; the log and its blobs raise errors of their own for these."""
FILE_ERRORS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENOTDIR, errno.EEXIST)
"""Errors of files that `mz` cannot use, and that are no bug of mz."""
NO_GIT = ("git-missing", "git-too-old")
OBJECTS_UNTIL_COLLECTION = 50_000
"""Events, states and tables are many objects and hardly ever garbage in cycles; by default, every 700 new objects are
searched for some, which took two fifths of a fold's time."""
MESSAGE_MAX = 300
"""Characters of an unexpected exception's text that are shown; the traceback has all of it."""


def run_guarded(work: Callable[[], object], arguments: Sequence[str]) -> int:
    """Run the command and return its exit code: its own integer, 0, or that of its exception; for an exception of
    `mz replay --bisect` 125, since it is no verdict on a commit.

    A closed stdout (`mz log | head`) is no failure.
    """
    gc.set_threshold(OBJECTS_UNTIL_COLLECTION, 20, 20)
    bisects = {"replay", "--bisect"} <= {*arguments}
    for stream in (sys.stdout, sys.stderr):  # Characters that the terminal's encoding lacks never end a command.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        result = work()
        write_text(sys.stdout, "")
    except BrokenPipeError:
        silence(sys.stdout)
        return NOT_COMPARABLE if bisects else OK
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except (Exception, KeyboardInterrupt) as error:
        code = report_error(error, arguments)
        return NOT_COMPARABLE if bisects else code
    return result if isinstance(result, int) else OK


def report_error(error: BaseException, arguments: Sequence[str]) -> int:
    """Print the error with its hint on stderr, and return the exit code."""
    if isinstance(error, (click.Abort, KeyboardInterrupt)):
        print_error("stopped")
        return STOPPED
    try:
        mz_error = translate_error(error, arguments)
        print_error(error_json(mz_error) if requests_json(arguments) else str(mz_error))
        return int(mz_error.exit_code)
    except Exception as second:
        print_error(f"error: {error!r}; and it could not be explained: {second!r}")
        return BUG


def requests_json(arguments: Sequence[str]) -> bool:
    """Return True for `--json` and `--format json`."""
    pairs = pairwise(arguments)
    return "--json" in arguments or "--format=json" in arguments or ("--format", "json") in pairs


def translate_error(error: BaseException, arguments: Sequence[str]) -> MzError:
    """Return the error as MzError; an unexpected one is a bug, with its traceback in a file."""
    from mz_engine.errors.diagnostics import MzError
    from mz_engine.ports import RepositoryUnusable, StorageFailed
    from mz_events.store import BlobMissing, StoreUnusable, UnknownEvent, VersionConflict

    match error:
        case MzError():
            return error
        case click.NoSuchOption():
            from mz_cli.app.help import did_you_mean, option_names

            path, options = ("mz", []) if error.ctx is None else (error.ctx.command_path, option_names(error.ctx))
            similar = did_you_mean(error.option_name.lstrip("-"), (option.lstrip("-") for option in options))
            suggestion = similar.replace(" `", " --").replace("`", "")
            return MzError(
                "MZ1002", f"no such option {error.option_name}{suggestion}",
                hint=f"see `{path} --help`" + ("" if suggestion else f"; its options: {', '.join(options)}"),
            )  # fmt: skip
        case click.UsageError():
            path = error.ctx.command_path if error.ctx is not None else "mz"
            message = sentence(" ".join(error.format_message().split()))
            return MzError("MZ1002", message, hint=f"see `{path} --help`")
        case click.ClickException():
            return MzError("MZ1002", sentence(error.format_message()))
        case StoreUnusable() | UnknownEvent() | StorageFailed():
            return MzError("MZ1006", sentence(str(error)), hint="`mz help MZ1006` lists possible causes")
        case BlobMissing():
            return MzError("MZ1006", sentence(str(error)), hint="it was erased, or `.mz/blobs` is incomplete")
        case VersionConflict():
            return MzError("MZ5002", sentence(str(error)), hint="`mz status` shows the run")
        case RepositoryUnusable():
            problem, _, hint = str(error).partition("; ")
            return MzError("MZ1004" if error.code in NO_GIT else "MZ1003", sentence(problem), hint=hint)
        case OSError() if error.errno in OUTPUT_ERRORS and error.filename is None:
            silence(sys.stdout)
            return MzError(
                "MZ1006", f"the output cannot be written: {error.strerror}", hint="free disk space, or write elsewhere"
            )
        case OSError() if error.errno in FILE_ERRORS and error.filename is not None:
            return MzError("MZ1006", f"{error.filename} cannot be used: {error.strerror}")
    return bug_error(error, arguments)


def bug_error(error: BaseException, arguments: Sequence[str]) -> MzError:
    import tempfile
    import traceback

    from mz_engine.errors.diagnostics import MzError

    trace, here = "".join(traceback.format_exception(error)), Path.cwd()
    homes = [folder / MZ_FOLDER for folder in (here, *here.parents) if (folder / MZ_FOLDER).is_dir()]
    folders = (*homes[:1], Path(tempfile.gettempdir()))
    path = write_crash(f"mz {' '.join(arguments)}\n\n{trace}", folders)
    traceback_note = f"the traceback is in {path}" if path else "the traceback could not be written anywhere"
    message = f"a bug in mz: {type(error).__name__}: {str(error)[:MESSAGE_MAX]}"
    return MzError("MZ1001", message, hint=f"the log is intact; {traceback_note}")


def sentence(text: str) -> str:
    """Return the text in the style of messages: no final full stop, no capital of an ordinary first word."""
    text = text.strip().removesuffix(".")
    return text[:1].lower() + text[1:] if text[1:2].islower() else text


def error_json(error: MzError) -> str:
    """Return one line of JSON: the fields of the first diagnostic, and all diagnostics under `errors`."""
    from mz_cli.terminal.json import json_line, plain_value

    errors = plain_value(error.diagnostics)
    return json_line({"schema": "mz.error/1", "exit": int(error.exit_code), **errors[0], "errors": errors})


def write_crash(text: str, folders: Sequence[Path]) -> Path | None:
    """Write the text, readable only by its owner, to the first possible directory, and return the file; None if all
    fail."""
    name = f"crash-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.getpid()}.txt"
    for folder in folders:
        with suppress(OSError):
            handle = os.open(folder / name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            with open(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)
            return folder / name
    return None


def print_error(text: str) -> None:
    """Print to stderr without escapes; ignore a closed stderr."""
    with suppress(OSError, ValueError):
        print_note(text)


def silence(stream: object) -> None:
    """Redirect the stream to /dev/null, so that the interpreter's last flush cannot fail."""
    with suppress(OSError, ValueError):
        if isinstance(stream, io.TextIOWrapper):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
