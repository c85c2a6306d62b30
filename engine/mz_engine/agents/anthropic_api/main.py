"""The program `mz-anthropic`, which the agent `anthropic` runs: one call of a model with tools.

Reads the prompt from standard input and writes JSON Lines to standard output. Exits 0 after success, 1 after failure, 2
for wrong arguments, 143 when terminated. The last line always reports the outcome."""

from __future__ import annotations

import argparse
import gc
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

from mz_engine.agents.anthropic_api.model import (
    TERMINATING_SIGNALS,
    TURNS_MAX,
    Block,
    Failure,
    Options,
    OutputWriter,
    Terminated,
    api_credentials,
)
from mz_engine.model.pipeline import Tool

PACKAGE = "anthropic"
ABOUT = "One call of a model with tools; the prompt on standard input, JSON Lines on standard output."
TERMINATED = 143
INTERNAL_ERROR = "loop_failed"


def main() -> None:
    """Run the console script."""
    gc.set_threshold(100_000)  # The package loads many objects and no garbage.
    exit_code = run(sys.argv[1:])
    gc.freeze()
    sys.exit(exit_code)


class Environment(NamedTuple):
    """Input of the program: standard input, environment variables, working directory."""

    read_prompt: Callable[[], bytes]
    variables: Mapping[str, str]
    cwd: Path
    sessions: Path | None = None
    """Folder of the saved sessions; None: that of the user."""
    sleep: Callable[[float], None] = time.sleep


def run(arguments: Sequence[str]) -> int:
    """Parse the arguments, make the call, return the exit code."""
    options = parse(arguments)
    for number in TERMINATING_SIGNALS:
        signal.signal(number, _stop)
    try:
        return execute(options, Environment(sys.stdin.buffer.read, os.environ, Path.cwd()), OutputWriter(_write))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python would fail again when it closes standard output.
        return 1


def execute(options: Options, environment: Environment, writer: OutputWriter) -> int:
    """Make the call and write the last line, whatever happens; return the exit code. Raises what the writer raises."""
    end_fields: dict[str, object] = {"text": "", "requests": 0, "stop_reason": None}
    error: Block | None = None
    exit_code = 1
    try:
        _make_call(options, environment, writer, end_fields)
        exit_code = 0
    except BrokenPipeError:
        raise
    except Failure as failure:
        error = failure.output_fields()
    except Terminated:
        for number in TERMINATING_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        error, exit_code = {"kind": "terminated", "message": "asked to end by a signal"}, TERMINATED
    except Exception as exception:
        error = {"kind": INTERNAL_ERROR, "message": f"{type(exception).__name__}: {exception}"}
    writer.write_event("end", status="error" if error else "success", **end_fields, error=error)
    return exit_code


def _make_call(options: Options, environment: Environment, writer: OutputWriter, end_fields: dict[str, object]) -> None:
    """Make the call; fills `end_fields` for the last line, also if it raises."""
    version, tools = importlib.metadata.version(PACKAGE), list(options.tools)
    writer.write_event(
        "start", version=version, model=options.model, session=options.session, resumed=options.resumes, tools=tools
    )
    api_credentials(environment.variables)  # Before the prompt is read, so that nobody types one in vain.
    prompt = environment.read_prompt().decode("utf-8", "replace")
    if not prompt.strip():
        raise Failure("invalid_request_error", "there is no prompt on standard input")
    from mz_engine.agents.anthropic_api.client import ApiClient  # Takes a second, after the first line is written.
    from mz_engine.agents.anthropic_api.loop import Loop, SessionStore
    from mz_engine.agents.anthropic_api.tools import Sandbox, Toolbox

    sandbox, sessions = Sandbox(environment.cwd), SessionStore(environment.sessions)
    if not options.resumes and not options.count_only:
        sessions.delete_old()
        sessions.check_unused(options.session)
    toolbox = Toolbox(sandbox, options.tools, environment.variables, writer.heartbeat)
    with closing(ApiClient(environment.variables)) as api:
        loop = Loop(
            options=options,
            api=api,
            toolbox=toolbox,
            sessions=sessions,
            writer=writer,
            cwd=str(sandbox.root),
            sleep=environment.sleep,
        )
        if options.count_only:
            writer.write_event("count", input_tokens=loop.count(prompt))
            return
        try:
            end_fields["text"], end_fields["stop_reason"] = loop.run(prompt)
        finally:
            end_fields["requests"] = loop.requests


def parse(arguments: Sequence[str]) -> Options:
    """Parse the arguments. Exits with 2 and a message if they are invalid; with 0 after `--version`."""
    parser = argparse.ArgumentParser(prog="mz-anthropic", description=ABOUT)
    parser.add_argument("--version", action="version", version=f"{importlib.metadata.version(PACKAGE)} (anthropic)")
    parser.add_argument("--model", required=True, help="name of the model")
    parser.add_argument("--tools", default="", help=f"allowed tools, of {','.join(get_args(Tool))}")
    parser.add_argument("--max-turns", type=int, default=TURNS_MAX, help="maximum number of requests")
    parser.add_argument("--count", action="store_true", help="only count the tokens of the first request")
    session = parser.add_mutually_exclusive_group()
    session.add_argument("--session", help="id of the session to begin")
    session.add_argument("--resume", help="id of the session to continue")
    parsed = parser.parse_args(arguments)
    tools = tuple(filter(None, parsed.tools.split(",")))
    if unknown := sorted(set(tools) - set(get_args(Tool))):
        parser.error(f"unknown tool {', '.join(unknown)}; known tools: {', '.join(get_args(Tool))}")
    return Options(
        model=parsed.model,
        tools=tuple(tool for tool in get_args(Tool) if tool in tools),
        turns_max=parsed.max_turns,
        session=parsed.resume or parsed.session or str(uuid.uuid4()),
        resumes=parsed.resume is not None,
        count_only=parsed.count,
    )


def _stop(number: int, frame: FrameType | None) -> None:
    """Stop the call; silences errors of interrupted objects that are garbage-collected."""
    sys.unraisablehook = lambda _: None
    raise Terminated


def _write(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]
