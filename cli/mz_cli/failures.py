"""Adapter: what a person sees when a command ends otherwise than it should, and the exit code that says so."""

from __future__ import annotations

import errno
import io
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click
from mz_engine.home import HOME

from mz_cli.render.console import put

if TYPE_CHECKING:
    from mz_engine.errors import MzError

OK, STOPPED, BUG = 0, 20, 70
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""What writing to stdout fails with; the log and its blobs have errors of their own for these."""
MACHINE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENOTDIR, errno.EEXIST)
"""What files fail with that are not as `mz` needs them, through no fault of its own."""
NO_GIT = ("git-missing", "git-too-old")
MESSAGE_MAX = 300
"""Characters of a foreign exception's text that are shown; the traceback has all of it."""


def guarded(work: Callable[[], object], words: Sequence[str]) -> int:
    """Runs the command; returns its exit code: the integer that it returned, 0, or what its exception means.

    A reader of stdout that has gone (`mz log | head`) has what it wanted: quiet, and no failure.
    """
    survive_odd_text(sys.stdout, sys.stderr)
    try:
        answer = work()
        put(sys.stdout, "")
    except BrokenPipeError:
        silence(sys.stdout)
        return OK
    except Exception as error:
        return report(error, words)
    except KeyboardInterrupt as error:
        return report(error, words)
    return answer if isinstance(answer, int) else OK


def survive_odd_text(*streams: object) -> None:
    """A title that the terminal's encoding cannot show is printed escaped; it never ends a command."""
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def report(error: BaseException, words: Sequence[str]) -> int:
    """Says on stderr what happened, why and what to do; returns the exit code."""
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, (click.Abort, KeyboardInterrupt)):
        say("stopped")
        return STOPPED
    try:
        told = translated(error, words)
        say(as_json(told) if "--json" in words else str(told))
        return int(told.exit_code)
    except Exception as second:
        say(f"error: {error!r}; and it could not be explained: {second!r}")
        return BUG


def translated(error: BaseException, words: Sequence[str]) -> MzError:
    """The error in the project's own words; what nobody foresaw is a bug, with its traceback in a file."""
    from mz_engine.errors import MzError
    from mz_engine.ports import RepositoryUnusable
    from mz_events.store import BlobMissing, StoreUnusable, UnknownEvent, WrongVersion

    match error:
        case MzError():
            return error
        case click.UsageError():
            path = error.ctx.command_path if error.ctx is not None else "mz"
            return MzError("MZ1002", sentence(error.format_message()), hint=f"`{path} --help` shows what it takes")
        case click.ClickException():
            return MzError("MZ1002", sentence(error.format_message()))
        case StoreUnusable() | UnknownEvent():
            return MzError("MZ1006", sentence(str(error)), hint="`mz explain MZ1006` says what can be the matter")
        case BlobMissing():
            return MzError("MZ1006", sentence(str(error)), hint="it was erased, or `.mz/blobs` is not complete")
        case WrongVersion():
            return MzError("MZ5002", sentence(str(error)), hint="`mz status` shows the run")
        case RepositoryUnusable():
            said, _, hint = str(error).partition("; ")
            return MzError("MZ1004" if error.code in NO_GIT else "MZ1003", sentence(said), hint=hint)
        case OSError() if error.errno in FULL and error.filename is None:
            silence(sys.stdout)
            return MzError(
                "MZ1006", f"the answer could not be written: {error.strerror}", hint="make room, or write it elsewhere"
            )
        case OSError() if error.errno in MACHINE and error.filename is not None:
            return MzError("MZ1006", f"{error.filename} cannot be used: {error.strerror}")
    return bug(error, words)


def bug(error: BaseException, words: Sequence[str]) -> MzError:
    from mz_engine.errors import MzError

    trace = "".join(traceback.format_exception(error))
    place = write_crash(f"mz {' '.join(words)}\n\n{trace}", crash_folders(Path.cwd()))
    kept = f"the traceback is in {place}" if place else "the traceback could not be written anywhere"
    message = f"a bug in mz: {type(error).__name__}: {str(error)[:MESSAGE_MAX]}"
    return MzError("MZ1001", message, hint=f"nothing that was recorded is lost; {kept}")


def sentence(text: str) -> str:
    """As messages are written: no final full stop, no capital where it is an ordinary word."""
    text = text.strip().removesuffix(".")
    return text[:1].lower() + text[1:] if text[1:2].islower() else text


def as_json(error: MzError) -> str:
    from mz_engine.errors import format_error_json

    from mz_cli.render.document import harmless

    return harmless(format_error_json(error))


def crash_folders(start: Path) -> tuple[Path, ...]:
    """Where the traceback may go, best first: the repository's `.mz`, the system's temporary directory."""
    homes = [folder / HOME for folder in (start, *start.parents) if (folder / HOME).is_dir()]
    return (*homes[:1], Path(tempfile.gettempdir()))


def write_crash(text: str, folders: Sequence[Path]) -> Path | None:
    """The file that was written, readable by its owner alone; None: nowhere could it be."""
    name = f"crash-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.getpid()}.txt"
    for folder in folders:
        with suppress(OSError):
            handle = os.open(folder / name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            with open(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)
            return folder / name
    return None


def say(text: str) -> None:
    """To stderr, harmless; a stderr that is gone is no reason to end otherwise."""
    from mz_cli.render.text import clean

    with suppress(OSError, ValueError):
        print(clean(text), file=sys.stderr, flush=True)


def silence(stream: object) -> None:
    """Keeps the interpreter's last flush from complaining about a reader that has gone or a disk that is full."""
    with suppress(OSError, ValueError):
        if isinstance(stream, io.TextIOWrapper):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
