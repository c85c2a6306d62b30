"""Invariants of a run for any end of an agent's output: the end state is named, and no failure counts as success.

Success of a reply is judged by the second opinion in the agent's folder, independently of the parser, which is under
test.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from mz_engine.agents.catalog import agent_package
from mz_recordings.cassette.trace import EventJson, call_of_event
from mz_recordings.faults.faults import Variant

REPLY_USES = frozenset({"changes.checked", "artifact.parsed", "artifact.validated", "gate.checked", "commit.requested",
                  "commit.made", "unit.completed", "phase.completed", "feature.delivered"})  # fmt: skip
"""Events that only follow an accepted reply."""
FINAL_STATES = {"feature.delivered": "delivered", "feature.merged": "merged", "feature.cancelled": "cancelled"}
STATES_WITH_CODE = {"human.requested": "waiting", "feature.failed": "failed"}


class VariantOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a feature when one of its calls is replaced by a variant."""

    feature: str
    call: str = ""
    """The recording's name, such as `code.a2`; none if the cassette was played as recorded."""
    variant: str
    mode: str
    """`memory`, or `crash`: mz was killed during the call and recovered its output."""
    end: str = ""
    """Such as `delivered`, `waiting (no-terminal)`, `halted (auth-failure)`; none if it has no name."""
    violations: tuple[str, ...] = ()
    """Violated invariants, for people; empty if none."""

    @property
    def name(self) -> str:
        call_name = f"{self.feature}/{self.call}" if self.call else self.feature
        return f"{call_name}: {self.variant} ({self.mode})"


def end_state(trace: Sequence[EventJson]) -> str:
    """Return the name of the state that a feature's events end in; empty if it has none."""
    last = trace[-1] if trace else {}
    kind, code = last.get("type", ""), last.get("code")
    if kind in FINAL_STATES:
        return FINAL_STATES[kind]
    if kind in STATES_WITH_CODE and code:
        return f"{STATES_WITH_CODE[kind]} ({code})"
    if kind == "feature.held" and last["hold"] == "fatal":
        return f"halted ({code})" if code else ""
    if kind == "feature.held":
        return f"held ({code or last['hold']})"
    return ""


def violations(variant: Variant, success: bool, trace: Sequence[EventJson], usual: str) -> tuple[str, ...]:
    """Return the violated invariants of a feature's events from the altered call on. `success`: the output reports
    success and mz did not end the call; `usual`: the end state without the variant."""
    end, violations = end_state(trace), []
    if not end:
        last = trace[-1]["type"] if trace else "nothing"
        violations.append(f"it ended in a state without a name (after {last})")
    effect = _first_use(trace, variant)
    if effect and not success:
        violations.append(f"a failure passed as success: it led to {effect}")
    if success and variant.keeps_changes and end != usual:
        violations.append(f"a success ended in another state: {end or 'none'} instead of {usual}")
    if (unread_call := _find_unread_call(trace)) is not None:
        violations.append(f"the output of call {unread_call} was never parsed")
    return tuple(violations)


def _first_use(trace: Sequence[EventJson], variant: Variant) -> str:
    """Return the first event that used the altered reply, before the next request; empty if none."""
    is_requested = False
    for event in trace:
        if event["type"] == "agent.requested":
            if is_requested:
                return ""
            is_requested = call_of_event(event, variant.identity.pipeline, variant.identity.feature) == variant.identity
        elif is_requested and event["type"] in REPLY_USES:
            return str(event["type"])
    return ""


def _find_unread_call(trace: Sequence[EventJson]) -> str | None:
    """Return the key of a requested call that was never read; None if there is none."""
    read = {event["ref"]["key"] for event in trace if event["type"] == "reply.parsed"}
    requested = [event["ref"]["key"] for event in trace if event["type"] == "agent.requested"]
    return next((key for key in requested if key not in read), None)


# independent check of success -----------------------------------------------------------------------------------------
def succeeds(agent: str, stdout: bytes, stderr: bytes = b"") -> bool | None:
    """Return True if the output's last terminal event reports success; None for agents without a second opinion."""
    check = agent_package(agent).success_check
    return None if check is None else check(stdout, stderr)
