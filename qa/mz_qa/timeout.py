"""Calls a function in a separate process with a time limit."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class TimeLimitExceeded(Exception):
    """The function did not end in time."""


class ProcessDied(Exception):
    """The process ended without a result."""


def call_with_timeout(seconds: float, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function in another process; function, arguments and result must be picklable. Raises TimeLimitExceeded,
    ProcessDied and what the function raises."""
    context = get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send_result, args=(sender, function, args, kwargs), daemon=True)
    process.start()
    sender.close()
    try:
        if not receiver.poll(seconds):
            raise TimeLimitExceeded
        result: T | Exception = receiver.recv()
    except EOFError:
        process.join()
        raise ProcessDied(f"the process ended with exit {process.exitcode}") from None
    finally:
        process.kill()
        process.join()
        receiver.close()
    if isinstance(result, Exception):
        raise result
    return result


def _send_result(
    sender: Connection, function: Callable[..., T], args: tuple[object, ...], kwargs: dict[str, object]
) -> None:
    try:
        sender.send(function(*args, **kwargs))
    except Exception as error:
        sender.send(error)
