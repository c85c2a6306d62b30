"""The agent loop: send the messages, run the tools that the model calls, send their results, until it has finished."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from mz_engine.agents.anthropic_loop.api import Answer, Broken
from mz_engine.agents.anthropic_loop.facts import Block, Failure, Options
from mz_engine.agents.anthropic_loop.sessions import Sessions
from mz_engine.agents.anthropic_loop.toolbox import Toolbox
from mz_engine.agents.anthropic_loop.voice import Voice, cut
from mz_engine.agents.anthropic_loop.wording import marked, offered, prompted, system

RETRIES = 2
WAIT_SECONDS_MAX = 60
"""For longer waits the engine waits instead, and frees the slot."""
PAUSES_SECONDS = (0.5, 2.0)
"""Waits before each retry if the API names none."""
FINISHED = ("end_turn", "stop_sequence")
UNFINISHED = {
    "max_tokens": "the answer exceeded the output token maximum",
    "model_context_window_exceeded": "the conversation exceeded the model's context window",
    "refusal": "the model refuses to go on with this",
}


class Asks(Protocol):
    """Interface of `api.Api`."""

    def ask(self, request: Block, told: Callable[[str], None], alive: Callable[[], None]) -> Answer: ...

    def count(self, request: Block) -> int: ...


class Loop:
    """One call. `requests` counts the API's replies."""

    def __init__(
        self,
        options: Options,
        api: Asks,
        toolbox: Toolbox,
        sessions: Sessions,
        voice: Voice,
        cwd: str,
        sleep: Callable[[float], None],
    ) -> None:
        self._options, self._api, self._toolbox, self._sessions = options, api, toolbox, sessions
        self._voice, self._cwd, self._sleep = voice, cwd, sleep
        self.requests = 0
        self._saves = True

    def run(self, prompt: str) -> tuple[str, str]:
        """Run the loop; return the final text and the stop reason. Raises Failure."""
        options = self._options
        messages = self._sessions.load(options.session, self._cwd) if options.resumes else []
        messages = [*messages, prompted(prompt)]
        for _ in range(options.turns_max):
            answer = self._ask(messages)
            content = [block for block in answer.content if block.get("type") != "text" or block.get("text")]
            if content:
                messages.append({"role": "assistant", "content": content})
            uses = [block for block in content if block.get("type") == "tool_use"]
            self._stand(answer.stop_reason, uses)
            if uses:
                messages.append({"role": "user", "content": [self._use(use) for use in uses]})
            self._keep(messages)
            if not uses and answer.stop_reason in FINISHED:
                return _text(content), str(answer.stop_reason)
        raise Failure("max_turns", f"the model had not finished after {options.turns_max} requests")

    def count(self, prompt: str) -> int:
        """Count the tokens of the call's first request. Raises Failure."""
        options = self._options
        messages = self._sessions.load(options.session, self._cwd) if options.resumes else []
        return self._api.count(self._request([*messages, prompted(prompt)]))

    def _request(self, messages: list[Block]) -> Block:
        tools = offered(self._options.tools)
        request: Block = {"model": self._options.model, "system": system(self._cwd), "messages": marked(messages)}
        return {**request, "tools": tools} if tools else request

    # one request ------------------------------------------------------------------------------------------------------
    def _ask(self, messages: list[Block]) -> Answer:
        """Make one request, with retries where they may help. Raises Failure."""
        request = self._request(messages)
        for attempt in range(1, RETRIES + 2):
            try:
                answer = self._api.ask(request, lambda text: self._voice.say("text", text=text), self._voice.alive)
            except Broken as interruption:
                self._count(interruption.answer)
                failure = interruption.failure
            except Failure as error:
                failure = error
            else:
                self._count(answer)
                return answer
            self._wait(failure, attempt)
        raise AssertionError("the last attempt either answers or fails")

    def _wait(self, failure: Failure, attempt: int) -> None:
        """Wait before a retry. Raises the failure if no retry is due here."""
        requested = failure.wait_seconds
        if not failure.again or attempt > RETRIES or (requested or 0) > WAIT_SECONDS_MAX:
            raise failure
        wait_seconds = PAUSES_SECONDS[attempt - 1] if requested is None else requested
        self._voice.say("retry", attempt=attempt, wait_seconds=wait_seconds, error=failure.told())
        self._sleep(wait_seconds)

    def _count(self, answer: Answer) -> None:
        self.requests += 1
        self._voice.say(
            "request",
            id=answer.id,
            model=answer.model,
            request_id=answer.request_id,
            stop_reason=answer.stop_reason,
            usage=answer.usage,
        )

    # the reply --------------------------------------------------------------------------------------------------------
    def _stand(self, stop: str | None, uses: list[Block]) -> None:
        """Raise Failure if the loop cannot continue after this stop reason."""
        if stop in UNFINISHED:
            raise Failure(str(stop), UNFINISHED[str(stop)])
        if stop == "tool_use" and not uses:
            raise Failure("malformed_response", "empty or malformed response: tools are asked for, and none is named")
        if stop not in ("tool_use", "pause_turn", *FINISHED):
            raise Failure("malformed_response", f"empty or malformed response: the model stopped for {stop!r}")

    def _use(self, use: Block) -> Block:
        """Run one tool call; return the result block for the model."""
        name, given = str(use.get("name", "")), use.get("input")
        self._voice.say("tool", id=use.get("id"), name=name, input=cut(given))
        text, failed = self._toolbox.use(name, given)
        self._voice.say("tool_result", id=use.get("id"), failed=failed, characters=len(text), text=cut(text))
        block: Block = {"type": "tool_result", "tool_use_id": use.get("id"), "content": text or "[nothing]"}
        return {**block, "is_error": True} if failed else block

    def _keep(self, messages: list[Block]) -> None:
        """Save the session. If that fails, the call continues, but the session cannot be continued later."""
        if not self._saves:
            return
        try:
            self._sessions.save(self._options.session, self._cwd, messages)
        except OSError as error:
            self._saves = False
            self._voice.say("note", text=f"the conversation is not kept: {error}")


def _text(content: list[Block]) -> str:
    return "\n".join(str(block.get("text", "")) for block in content if block.get("type") == "text")
