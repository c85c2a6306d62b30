"""The agent loop: send the messages, run the tools that the model calls, send their results, until it has finished."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mz_engine.agents.anthropic_api.client import ApiClient, ModelReply, ReplyInterrupted
from mz_engine.agents.anthropic_api.model import Block, Failure, Options, OutputWriter, shorten
from mz_engine.agents.anthropic_api.sessions import SessionStore
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


class Loop:
    """One call. `requests` counts the API's replies."""

    def __init__(
        self,
        options: Options,
        api: ApiClient,
        toolbox: Toolbox,
        sessions: SessionStore,
        writer: OutputWriter,
        cwd: str,
        sleep: Callable[[float], None],
    ) -> None:
        self._options, self._api, self._toolbox, self._sessions = options, api, toolbox, sessions
        self._writer, self._cwd, self._sleep = writer, cwd, sleep
        self.requests = 0
        self._can_save = True

    def run(self, prompt: str) -> tuple[str, str]:
        """Run the loop; return the final text and the stop reason. Raises Failure."""
        messages = self._first_messages(prompt)
        for _ in range(self._options.turns_max):
            reply = self._send(messages)
            content = [block for block in reply.content if block.get("type") != "text" or block.get("text")]
            if content:
                messages.append({"role": "assistant", "content": content})
            uses = [block for block in content if block.get("type") == "tool_use"]
            self._check_stop_reason(reply.stop_reason, uses)
            if uses:
                messages.append({"role": "user", "content": [self._run_tool(use) for use in uses]})
            self._save(messages)
            if not uses and reply.stop_reason in FINISHED:
                return _text(content), str(reply.stop_reason)
        raise Failure("max_turns", f"the model had not finished after {self._options.turns_max} requests")

    def count(self, prompt: str) -> int:
        """Count the tokens of the call's first request. Raises Failure."""
        return self._api.count(self._request(self._first_messages(prompt)))

    def _first_messages(self, prompt: str) -> list[Block]:
        options = self._options
        earlier = self._sessions.load(options.session, self._cwd) if options.resumes else []
        return [*earlier, {"role": "user", "content": [{"type": "text", "text": prompt}]}]

    def _request(self, messages: list[Block]) -> Block:
        request: Block = {
            "model": self._options.model,
            "system": [{"type": "text", "text": SYSTEM.format(cwd=self._cwd), **CACHE_MARK}],
            "messages": add_cache_marks(messages),
        }
        *tools, last = self._toolbox.definitions() or [{}]
        return {**request, "tools": [*tools, {**last, **CACHE_MARK}]} if last else request

    # one request ------------------------------------------------------------------------------------------------------
    def _send(self, messages: list[Block]) -> ModelReply:
        """Make one request, with retries where they may help. Raises Failure."""
        request = self._request(messages)
        for attempt in range(1, RETRIES + 2):
            try:
                reply = self._api.send(
                    request, lambda text: self._writer.write_event("text", text=text), self._writer.heartbeat
                )
            except ReplyInterrupted as interruption:
                self._report_request(interruption.partial_reply)
                failure = interruption.failure
            except Failure as error:
                failure = error
            else:
                self._report_request(reply)
                return reply
            self._wait(failure, attempt)
        raise AssertionError("the last attempt either answers or fails")

    def _wait(self, failure: Failure, attempt: int) -> None:
        """Wait before a retry. Raises the failure if no retry is due here."""
        requested = failure.wait_seconds
        if not failure.retryable or attempt > RETRIES or (requested or 0) > WAIT_SECONDS_MAX:
            raise failure
        wait_seconds = WAITS_SECONDS[attempt - 1] if requested is None else requested
        self._writer.write_event("retry", attempt=attempt, wait_seconds=wait_seconds, error=failure.output_fields())
        self._sleep(wait_seconds)

    def _report_request(self, reply: ModelReply) -> None:
        self.requests += 1
        self._writer.write_event(
            "request",
            id=reply.id,
            model=reply.model,
            request_id=reply.request_id,
            stop_reason=reply.stop_reason,
            usage=reply.usage,
        )

    # the reply --------------------------------------------------------------------------------------------------------
    def _check_stop_reason(self, stop: str | None, uses: list[Block]) -> None:
        """Raise Failure if the loop cannot continue after this stop reason."""
        if stop in UNFINISHED:
            raise Failure(str(stop), UNFINISHED[str(stop)])
        if stop == "tool_use" and not uses:
            raise Failure("malformed_response", "empty or malformed response: tools are asked for, and none is named")
        if stop not in ("tool_use", "pause_turn", *FINISHED):
            raise Failure("malformed_response", f"empty or malformed response: the model stopped for {stop!r}")

    def _run_tool(self, use: Block) -> Block:
        """Run one tool call; return the result block for the model."""
        name, tool_input = str(use.get("name", "")), use.get("input")
        self._writer.write_event("tool", id=use.get("id"), name=name, input=shorten(tool_input))
        text, failed = self._toolbox.use(name, tool_input)
        self._writer.write_event(
            "tool_result", id=use.get("id"), failed=failed, characters=len(text), text=shorten(text)
        )
        block: Block = {"type": "tool_result", "tool_use_id": use.get("id"), "content": text or "[nothing]"}
        return {**block, "is_error": True} if failed else block

    def _save(self, messages: list[Block]) -> None:
        """Save the session. If that fails, the call continues, but the session cannot be continued later."""
        if not self._can_save:
            return
        try:
            self._sessions.save(self._options.session, self._cwd, messages)
        except OSError as error:
            self._can_save = False
            self._writer.write_event("note", text=f"the conversation is not kept: {error}")


def _text(content: list[Block]) -> str:
    return "\n".join(str(block.get("text", "")) for block in content if block.get("type") == "text")


def add_cache_marks(messages: list[Block]) -> list[Block]:
    """Add cache marks to the user's last two messages: the part before the first is cached already, the part before the
    second is cached for the next request."""
    marked_positions = [at for at, message in enumerate(messages) if message["role"] == "user"][-2:]
    return [_add_cache_mark(message) if at in marked_positions else message for at, message in enumerate(messages)]


def _add_cache_mark(message: Block) -> Block:
    *before, last = message["content"]
    return {**message, "content": [*before, {**last, **CACHE_MARK}]}
