"""Adapter: calls a function in a process of its own, which is killed when it takes too long."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class TookTooLong(Exception):
    """It had not ended in time."""


class Died(Exception):
    """The process ended without an answer; says with which exit code."""


def within(seconds: float, function: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
    """What the function returns, or raises. Function, arguments and answer cross to another process. Raises TookTooLong
    and Died."""
    context = get_context("spawn")
    mine, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(theirs, function, args, named), daemon=True)
    process.start()
    theirs.close()
    try:
        if not mine.poll(seconds):
            raise TookTooLong
        found: T | Exception = mine.recv()
    except EOFError:
        process.join()
        raise Died(f"it ended with exit {process.exitcode}") from None
    finally:
        process.kill()
        process.join()
        mine.close()
    if isinstance(found, Exception):
        raise found
    return found


def _answer(theirs: Connection, function: Callable[..., T], args: tuple[object, ...], named: dict[str, object]) -> None:
    try:
        theirs.send(function(*args, **named))
    except Exception as error:
        theirs.send(error)
