"""The agent loop: send the messages, run the tools that the model calls, send their results, until it has finished; and
the store of its sessions."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypedDict

import msgspec

from mz_engine.agents.anthropic_api.client import ApiClient
from mz_engine.agents.anthropic_api.model import (
    Block,
    Failure,
    ModelReply,
    Options,
    OutputWriter,
    block_signals,
    shorten,
)
from mz_engine.agents.anthropic_api.tools import Toolbox

SYSTEM = """\
You work on a software project by yourself; nobody is there to answer questions. Working directory: {cwd}
Do what the message asks, with the tools that you have, then say in a few words what you did.
Paths are relative to the working directory, and nothing outside it is open to you. A tool that fails says why: mend
what was wrong, or go another way. Read a file before you change it. Say that you are blocked only where a person must
decide something."""

CACHE_MARK: Mapping[str, Any] = {"cache_control": {"type": "ephemeral"}}
"""The API keeps the cached part for five minutes after its last use."""
RETRIES = 2
WAIT_SECONDS_MAX = 60
"""For longer waits the engine waits instead, and frees the slot."""
WAITS_SECONDS = (0.5, 2.0)
"""Waits before each retry if the API names none."""
FINISHED = ("end_turn", "stop_sequence")
UNFINISHED = {
    "max_tokens": "the answer exceeded the output token maximum",
    "model_context_window_exceeded": "the conversation exceeded the model's context window",
    "refusal": "the model refuses to go on with this",
}


SESSION_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z_.-]{0,127}")
RETENTION_SECONDS = 30 * 24 * 3600
"""Sessions not continued for this long are deleted."""


class StoredMessage(TypedDict):
    role: Literal["user", "assistant"]
    content: list[Any]


class StoredSession(msgspec.Struct, frozen=True, kw_only=True):
    format: Literal[1]
    cwd: str
    messages: list[StoredMessage]


class SessionStore:
    """The sessions of one user as files, so that a later call can continue them: `<folder>/<id>.json`, readable by its
    owner only, with the messages sent to the API. The default folder is `<state>/mz/anthropic`."""

    def __init__(self, folder: Path | None = None) -> None:
        import platformdirs

        self._folder = folder or Path(platformdirs.user_state_dir("mz", appauthor=False)) / "anthropic"

    def check_unused(self, session: str) -> None:
        """Check that a new session may use the id. Raises Failure if it is invalid or in use."""
        if os.path.lexists(self._path(session)):
            raise Failure("session_taken", f"session id {session} is already in use")

    def load(self, session: str, cwd: str) -> list[Block]:
        """Load the messages so far. Raises Failure if there are none, or they belong to another directory."""
        missing = f"no conversation found with the session id {session}"
        try:
            stored = msgspec.json.decode(self._path(session).read_bytes(), type=StoredSession)
        except FileNotFoundError:
            raise Failure("session_missing", missing) from None
        except (OSError, ValueError, RecursionError) as error:
            raise Failure("session_missing", f"{missing} that can be read: {error}") from None
        if stored.cwd != cwd:
            raise Failure("session_missing", f"{missing} for {cwd}: it belongs to {stored.cwd}")
        return [{"role": message["role"], "content": message["content"]} for message in stored.messages]

    def save(self, session: str, cwd: str, messages: list[Block]) -> None:
        """Store all messages, atomically. Raises OSError."""
        path = self._path(session)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        data = json.dumps({"format": 1, "cwd": cwd, "messages": messages}).encode()
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        with block_signals():
            file = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(file, "wb") as stream:
                stream.write(data)
            partial.replace(path)

    def delete_old(self) -> None:
        """Delete sessions not continued for a month. Best effort."""
        try:
            for path in self._folder.iterdir():
                if time.time() - path.lstat().st_mtime > RETENTION_SECONDS:
                    path.unlink()
        except OSError:
            return

    def _path(self, session: str) -> Path:
        if not SESSION_ID.fullmatch(session):
            raise Failure("session_missing", f"no conversation found: {session[:80]!r} is no session id")
        return self._folder / f"{session}.json"


class Loop(msgspec.Struct, kw_only=True):
    """One call."""

    options: Options
    api: ApiClient
    toolbox: Toolbox
    sessions: SessionStore
    writer: OutputWriter
    cwd: str
    sleep: Callable[[float], None]
    requests: int = 0
    """Number of the API's replies."""
    can_save: bool = True

    def run(self, prompt: str) -> tuple[str, str]:
        """Run the loop; return the final text and the stop reason. Raises Failure."""
        messages = self._first_messages(prompt)
        for _ in range(self.options.turns_max):
            reply = self._send(messages)
            content = [block for block in reply.content if block.get("type") != "text" or block.get("text")]
            if content:
                messages.append({"role": "assistant", "content": content})
            uses = [block for block in content if block.get("type") == "tool_use"]
            stop, malformed = reply.stop_reason, "empty or malformed response: "
            if stop in UNFINISHED:
                raise Failure(str(stop), UNFINISHED[str(stop)])
            if stop == "tool_use" and not uses:
                raise Failure("malformed_response", f"{malformed}tools are asked for, and none is named")
            if stop not in ("tool_use", "pause_turn", *FINISHED):
                raise Failure("malformed_response", f"{malformed}the model stopped for {stop!r}")
            if uses:
                messages.append({"role": "user", "content": [self._run_tool(use) for use in uses]})
            try:
                if self.can_save:
                    self.sessions.save(self.options.session, self.cwd, messages)
            except OSError as error:  # The call continues, but the session cannot be continued later.
                self.can_save = False
                self.writer.write_event("note", text=f"the conversation is not kept: {error}")
            if not uses and stop in FINISHED:
                texts = (str(block.get("text", "")) for block in content if block.get("type") == "text")
                return "\n".join(texts), str(stop)
        raise Failure("max_turns", f"the model had not finished after {self.options.turns_max} requests")

    def count(self, prompt: str) -> int:
        """Count the tokens of the call's first request. Raises Failure."""
        return self.api.count(self._request(self._first_messages(prompt)))

    def _first_messages(self, prompt: str) -> list[Block]:
        options = self.options
        earlier = self.sessions.load(options.session, self.cwd) if options.resumes else []
        return [*earlier, {"role": "user", "content": [{"type": "text", "text": prompt}]}]

    def _request(self, messages: list[Block]) -> Block:
        """Return a request with cache marks. Of the user's last two messages, the part before the first is cached
        already, the part before the second is cached for the next request."""
        marked = list(messages)
        for position in [at for at, message in enumerate(messages) if message["role"] == "user"][-2:]:
            *before, last_block = messages[position]["content"]
            marked[position] = {**messages[position], "content": [*before, {**last_block, **CACHE_MARK}]}
        request: Block = {
            "model": self.options.model,
            "system": [{"type": "text", "text": SYSTEM.format(cwd=self.cwd), **CACHE_MARK}],
            "messages": marked,
        }
        *tools, last = self.toolbox.definitions() or [{}]
        return {**request, "tools": [*tools, {**last, **CACHE_MARK}]} if last else request

    # one request ------------------------------------------------------------------------------------------------------
    def _send(self, messages: list[Block]) -> ModelReply:
        """Make one request, with retries where they may help. Raises Failure."""
        request = self._request(messages)
        for attempt in range(1, RETRIES + 2):
            try:
                reply = self.api.send(
                    request, lambda text: self.writer.write_event("text", text=text), self.writer.heartbeat
                )
            except Failure as failure:
                if failure.partial_reply is not None:
                    self._report_request(failure.partial_reply)
                requested = failure.wait_seconds
                if not failure.retryable or attempt > RETRIES or (requested or 0) > WAIT_SECONDS_MAX:
                    raise
                wait_seconds = WAITS_SECONDS[attempt - 1] if requested is None else requested
                self.writer.write_event(
                    "retry", attempt=attempt, wait_seconds=wait_seconds, error=failure.output_fields()
                )
                self.sleep(wait_seconds)
            else:
                self._report_request(reply)
                return reply
        raise AssertionError("the last attempt either answers or fails")

    def _report_request(self, reply: ModelReply) -> None:
        self.requests += 1
        fields = msgspec.structs.asdict(reply)
        del fields["content"]
        self.writer.write_event("request", **fields)

    # the reply --------------------------------------------------------------------------------------------------------
    def _run_tool(self, use: Block) -> Block:
        """Run one tool call; return the result block for the model."""
        name, tool_input = str(use.get("name", "")), use.get("input")
        self.writer.write_event("tool", id=use.get("id"), name=name, input=shorten(tool_input))
        text, failed = self.toolbox.use(name, tool_input)
        self.writer.write_event(
            "tool_result", id=use.get("id"), failed=failed, characters=len(text), text=shorten(text)
        )
        block: Block = {"type": "tool_result", "tool_use_id": use.get("id"), "content": text or "[nothing]"}
        return {**block, "is_error": True} if failed else block
