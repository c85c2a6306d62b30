"""Adapter: the program `mz-anthropic`: one call of a model with tools, told as JSON Lines on standard output.

It is what the agent `anthropic` runs. The prompt comes on standard input. Exits 0 after a success, 1 after a failure,
2 when called wrongly, 143 when it was asked to end; whatever happens, the last line says what became of the call.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import signal
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from types import FrameType
from typing import NamedTuple, get_args

from mz_engine.agents.anthropic_loop.facts import Failure, Options, Stopped
from mz_engine.agents.anthropic_loop.login import login
from mz_engine.agents.anthropic_loop.sessions import Sessions, directory
from mz_engine.agents.anthropic_loop.voice import ENDING, Voice
from mz_engine.pipelines.definition import Tool

PACKAGE = "anthropic"
ABOUT = "One call of a model with tools; the prompt on standard input, JSON Lines on standard output."
TURNS_MAX = 200
TERMINATED = 143
BUG = "loop_failed"


def main() -> None:
    """The console script."""
    sys.exit(run(sys.argv[1:]))


class Around(NamedTuple):
    """What the program finds: on standard input, in its environment, and where it stands."""

    prompt: Callable[[], bytes]
    environment: Mapping[str, str]
    cwd: Path
    state: Callable[[], Path]
    """Where conversations are kept."""
    sleep: Callable[[float], None] = time.sleep


def run(arguments: Sequence[str]) -> int:
    """Everything, from arguments to exit code."""
    options = parse(arguments)
    for number in ENDING:
        signal.signal(number, _stop)
    try:
        return carry_out(options, Around(sys.stdin.buffer.read, os.environ, Path.cwd(), directory), Voice(_write))
    except BrokenPipeError:
        # Nobody listens any more. Python would complain once more when it closes standard output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1


def carry_out(options: Options, around: Around, voice: Voice) -> int:
    """The call; whatever it comes to, the last line is said. Returns the exit code. Raises what the voice raises."""
    told: dict[str, object] = {"text": "", "requests": 0, "stop_reason": None}
    try:
        _work(options, around, voice, told)
    except BrokenPipeError:
        raise
    except Failure as failure:
        voice.say("end", status="error", **told, error=failure.told())
        return 1
    except Stopped:
        for number in ENDING:
            signal.signal(number, signal.SIG_IGN)
        voice.say("end", status="error", **told, error={"kind": "terminated", "message": "asked to end by a signal"})
        return TERMINATED
    except Exception as error:
        words = f"{type(error).__name__}: {error}"
        voice.say("end", status="error", **told, error={"kind": BUG, "message": words})
        return 1
    voice.say("end", status="success", **told, error=None)
    return 0


def _work(options: Options, around: Around, voice: Voice, told: dict[str, object]) -> None:
    """The call itself; `told` holds what the last line says of it, also where this raises."""
    voice.say(
        "start",
        version=importlib.metadata.version(PACKAGE),
        model=options.model,
        session=options.session,
        resumed=options.resumes,
        tools=list(options.tools),
    )
    login(around.environment)  # Before the prompt: on a terminal nobody should type one for nothing.
    prompt = around.prompt().decode("utf-8", "replace")
    if not prompt.strip():
        raise Failure("invalid_request_error", "there is no prompt on standard input")
    # Loaded only now: the package takes a second, and the first line should not wait for it.
    from mz_engine.agents.anthropic_loop.api import Api
    from mz_engine.agents.anthropic_loop.loop import Loop
    from mz_engine.agents.anthropic_loop.place import Place
    from mz_engine.agents.anthropic_loop.toolbox import Toolbox

    place, sessions = Place(around.cwd), Sessions(around.state())
    if not options.resumes and not options.counts:
        sessions.forget_old()
        sessions.begin(options.session)
    toolbox = Toolbox(place, options.tools, around.environment, voice.alive)
    with closing(Api(around.environment)) as api:
        loop = Loop(options, api, toolbox, sessions, voice, str(place.root), around.sleep)
        if options.counts:
            voice.say("count", input_tokens=loop.count(prompt))
            return
        try:
            told["text"], told["stop_reason"] = loop.run(prompt)
        finally:
            told["requests"] = loop.requests


def parse(arguments: Sequence[str]) -> Options:
    """Exits with 2 and a word on standard error where they make no sense; with 0 after `--version`."""
    parser = argparse.ArgumentParser(prog="mz-anthropic", description=ABOUT)
    parser.add_argument("--version", action="version", version=_version())
    parser.add_argument("--model", required=True, help="name of the model")
    parser.add_argument("--tools", default="", help=f"what it may use, of {','.join(get_args(Tool))}")
    parser.add_argument("--max-turns", type=int, default=TURNS_MAX, help="requests after which to give up")
    parser.add_argument("--count", action="store_true", help="only say how many tokens the first request would take")
    session = parser.add_mutually_exclusive_group()
    session.add_argument("--session", help="id of the session to begin")
    session.add_argument("--resume", help="id of the session to continue")
    given = parser.parse_args(arguments)
    named = tuple(filter(None, given.tools.split(",")))
    if unknown := sorted(set(named) - set(get_args(Tool))):
        parser.error(f"there is no tool {', '.join(unknown)}; there are {', '.join(get_args(Tool))}")
    return Options(
        model=given.model,
        tools=tuple(tool for tool in get_args(Tool) if tool in named),
        turns_max=given.max_turns,
        session=given.resume or given.session or str(uuid.uuid4()),
        resumes=given.resume is not None,
        counts=given.count,
    )


def _version() -> str:
    return f"{importlib.metadata.version(PACKAGE)} (anthropic)"


def _stop(number: int, frame: FrameType | None) -> None:
    """What is torn in the middle may complain when it is dropped; those words are no news of the call."""
    sys.unraisablehook = lambda _: None
    raise Stopped


def _write(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]
