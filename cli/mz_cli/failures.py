"""Adapter: what a person sees when a command ends otherwise than it should, and the exit code that says so."""

from __future__ import annotations

import io
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import click

OK, USAGE, PREREQUISITE, STOPPED, BUG = 0, 2, 11, 20, 70


def guarded(work: Callable[[], object], words: Sequence[str]) -> int:
    """Runs the command; returns its exit code: the integer that it returned, 0, or what its exception means."""
    survive_odd_text(sys.stdout, sys.stderr)
    try:
        answer = work()
        sys.stdout.flush()
    except BrokenPipeError:
        silence(sys.stdout)
        return OK
    except Exception as error:
        return report(error, words)
    except KeyboardInterrupt:
        return report(click.Abort(), words)
    return answer if isinstance(answer, int) else OK


def survive_odd_text(*streams: object) -> None:
    """A title that the terminal's encoding cannot show is printed escaped; it never ends a command."""
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def report(error: Exception, words: Sequence[str]) -> int:
    """Says on stderr what happened, why and what to do; returns the exit code."""
    with suppress(OSError):
        return explain(error, words)
    return BUG


def explain(error: Exception, words: Sequence[str]) -> int:
    from mz_engine.errors import MzError, format_error, format_error_json

    match error:
        case click.exceptions.Exit():
            return error.exit_code
        case MzError():
            say(format_error_json(error) if "--json" in words else format_error(error))
            return int(error.exit_code)
        case click.UsageError():
            say(f"error: {error.format_message()}")
            say(f"hint: `{usage_path(error)} --help` shows what it takes")
            return USAGE
        case click.ClickException():
            say(f"error: {error.format_message()}")
            return error.exit_code
        case click.Abort():
            say("stopped")
            return STOPPED
        case OSError() if error.errno is not None and error.filename is None:
            silence(sys.stdout)
            say(f"error: the answer could not be written: {error.strerror}")
            return PREREQUISITE
    say(crash_message(error, words))
    return BUG


def usage_path(error: click.UsageError) -> str:
    return error.ctx.command_path if error.ctx is not None else "mz"


def crash_message(error: Exception, words: Sequence[str]) -> str:
    trace = "".join(traceback.format_exception(error))
    place = write_crash(f"mz {' '.join(words)}\n\n{trace}", crash_folders(Path.cwd()))
    where = f"the traceback is in {place}" if place is not None else "the traceback could not be written:\n" + trace
    return (
        f"error: this is a bug in mz: {type(error).__name__}: {str(error)[:300]}\n"
        f"hint: nothing that was recorded is lost; {where}"
    )


def crash_folders(start: Path) -> tuple[Path, ...]:
    """Where the traceback may go, best first: the repository's `.mz`, the system's temporary directory."""
    homes = [folder / ".mz" for folder in (start, *start.parents) if (folder / ".mz").is_dir()]
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
    print(text, file=sys.stderr, flush=True)


def silence(stream: object) -> None:
    """Keeps the interpreter's last flush from complaining about a reader that has gone."""
    with suppress(OSError, ValueError):
        if isinstance(stream, io.TextIOWrapper):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
