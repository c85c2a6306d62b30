"""Pure: what must hold however an agent's output ends: the end has a name, and nothing passes that is no success.

Whether a reply is a success is computed here from its bytes a second time, by other code than the adapter's: the
adapter is what is to be tested.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from mz_events.catalog.base import Event
from mz_events.codec import comparable
from mz_recordings.whatif.variants import Variant

Told = Mapping[str, Any]
"""An event as stories tell it: its type and its fields."""
USES = frozenset({"changes.checked", "artifact.parsed", "artifact.validated", "gate.checked", "commit.requested",
                  "commit.made", "unit.completed", "phase.completed", "feature.delivered"})  # fmt: skip
"""What only follows a reply that was taken for one."""
ENDED = {"feature.delivered": "delivered", "feature.merged": "merged", "feature.cancelled": "cancelled"}
NAMED = {"human.requested": "waiting", "feature.failed": "failed"}


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a feature when one of its calls ended otherwise."""

    feature: str
    call: str
    """The recording's name, such as `code.a2`; empty where the whole cassette was played in another order."""
    variant: str
    how: str
    """`memory`, `crash` (mz was killed during the call, and found the output afterwards) or `process`."""
    end: str
    """Such as `delivered`, `waiting (no-terminal)`, `halted (auth-failure)`; empty: it has no name."""
    violations: tuple[str, ...] = ()
    """What does not hold, in words; empty: all is well."""

    @property
    def name(self) -> str:
        place = f"{self.feature}/{self.call}" if self.call else self.feature
        return f"{place}: {self.variant} ({self.how})"


def told(events: Iterable[Event]) -> list[Told]:
    return [comparable(event) for event in events]


def parse_story(story: bytes) -> list[Told]:
    """The events of a story as it is written to a cassette."""
    return [json.loads(line) for line in story.splitlines()]


def end_of(story: Sequence[Told]) -> str:
    """The state that a feature's events end in; empty where it has no name."""
    last = story[-1] if story else {}
    kind, code = last.get("type", ""), last.get("code")
    if kind in ENDED:
        return ENDED[kind]
    if kind in NAMED and code:
        return f"{NAMED[kind]} ({code})"
    if kind == "feature.held" and last["hold"] == "fatal":
        return f"halted ({code})" if code else ""
    if kind == "feature.held":
        return f"held ({code or last['hold']})"
    return ""


def violations(variant: Variant, success: bool, story: Sequence[Told], usual: str) -> tuple[str, ...]:
    """What does not hold for a feature's events from the altered call on. `success`: its output says that all went
    well, and we did not end it; `usual`: the end without the variant."""
    end, found = end_of(story), []
    if not end:
        last = story[-1]["type"] if story else "nothing"
        found.append(f"it ended in no state that has a name (after {last})")
    used = _used(story, variant)
    if used and not success:
        found.append(f"it passed as a success and is none: {used} came of it")
    if success and variant.changes and end != usual:
        found.append(f"it is a success as before, and ended otherwise: {end or 'nowhere'} instead of {usual}")
    if (missing := _unsettled(story)) is not None:
        found.append(f"the call {missing} was never settled")
    return tuple(found)


def _used(story: Sequence[Told], variant: Variant) -> str:
    """What was done with the altered reply before anything else was asked; empty: nothing."""
    for event in _after_the_request(story, variant)[1:]:
        if event["type"] == "agent.requested":
            return ""
        if event["type"] in USES:
            return str(event["type"])
    return ""


def _after_the_request(story: Sequence[Told], variant: Variant) -> Sequence[Told]:
    wanted = variant.identity
    for at, event in enumerate(story):
        if event["type"] == "agent.requested":
            ref = event["ref"]
            asked = (ref["phase"], ref["unit"], ref["iteration"], ref["attempt"], ref["role"])
            if asked == (wanted.phase, wanted.unit, wanted.iteration, wanted.attempt, wanted.role):
                return story[at:]
    return ()


def _unsettled(story: Sequence[Told]) -> str | None:
    """A call that was asked for and never read."""
    read = {event["ref"]["key"] for event in story if event["type"] == "reply.read"}
    asked = [event["ref"]["key"] for event in story if event["type"] == "agent.requested"]
    return next((key for key in asked if key not in read), None)


# the second opinion ---------------------------------------------------------------------------------------------------
def succeeds(agent: str, stdout: bytes, stderr: bytes = b"") -> bool | None:
    """Whether the output holds a terminal event, and the last one says that all went well. None: nobody knows how this
    agent's output ends."""
    if agent in SUCCESSES_ASIDE:
        return SUCCESSES_ASIDE[agent](stdout, stderr)
    judge = SUCCESSES.get(agent)
    return None if judge is None else judge(stdout)


def _last(stdout: bytes, *kinds: str) -> dict[str, Any] | None:
    """The last line that is an event of one of these types."""
    found = [event for event in _events(stdout) if event.get("type") in kinds]
    return found[-1] if found else None


def _events(stream: bytes) -> Iterator[dict[str, Any]]:
    """The lines that are objects."""
    for line in stream.split(b"\n"):
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict):
            yield event


def _claude(stdout: bytes) -> bool:
    last = _last(stdout, "result")
    if last is None:
        return False
    failed, subtype = last.get("is_error"), last.get("subtype")
    if failed is None:
        return subtype == "success"
    return failed is False and not str(subtype).startswith("error")


def _codex(stdout: bytes) -> bool:
    """A turn that was begun after the last end owes another."""
    last = _last(stdout, "turn.started", "turn.completed", "turn.failed")
    return last is not None and last["type"] == "turn.completed"


def _gemini(stdout: bytes) -> bool:
    last = _last(stdout, "result")
    return last is not None and last.get("status") == "success"


def _anthropic(stdout: bytes) -> bool:
    last = _last(stdout, "end")
    return last is not None and last.get("status") == "success" and last.get("error") is None


def _aider(stdout: bytes, stderr: bytes) -> bool:
    """Its log ends, and no message that it began is left without an answer; an answer that is too long is none."""
    said = [str(event.get("event")) for event in _events(stderr)]
    sent = [event for event in said if event.startswith("message_send")]
    too_long = any(line.startswith(b"Model ") and b" has hit a token limit!" in line for line in stdout.split(b"\n"))
    return sent[-1:] == ["message_send"] and "exit" in said and not too_long


SUCCESSES: Mapping[str, Callable[[bytes], bool]] = {
    "anthropic": _anthropic, "claude-code": _claude, "codex": _codex, "gemini": _gemini,
}  # fmt: skip
"""By agent: whether its output is that of a call that went well."""
SUCCESSES_ASIDE: Mapping[str, Callable[[bytes, bytes], bool]] = {"aider": _aider}
"""By agent whose standard error says so, the second argument."""
