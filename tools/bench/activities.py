"""The reference of a history replay: a workflow of one activity after the other, replayed by Temporal's own
`Replayer` from the events that its server would have kept. No server is needed, and none is asked.

Only this module and what it imports is loaded again for each replay, by the sandbox that workflows run in.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import timedelta
from importlib.metadata import version

from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from temporalio import activity, workflow
from temporalio.api.common.v1 import ActivityType, Payload, Payloads, WorkflowType
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import (
    ActivityTaskCompletedEventAttributes,
    ActivityTaskScheduledEventAttributes,
    ActivityTaskStartedEventAttributes,
    History,
    HistoryEvent,
    WorkflowExecutionCompletedEventAttributes,
    WorkflowExecutionStartedEventAttributes,
    WorkflowTaskCompletedEventAttributes,
    WorkflowTaskScheduledEventAttributes,
    WorkflowTaskStartedEventAttributes,
)
from temporalio.api.sdk.v1 import WorkflowTaskCompletedMetadata
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

QUEUE = TaskQueue(name="steps")
START_SECONDS = 1_772_366_400
LIMIT = timedelta(minutes=1)
CHECKED = (1,)
"""The first workflow task of every real history says so: a replay compares the ids and types of activities."""
NAME = f"temporalio {version('temporalio')}, Replayer"


@activity.defn
async def step(number: int) -> int:
    """Never carried out: a replay answers it from the history."""
    return number


@workflow.defn
class Steps:
    """So many activities, one after the other, as a feature's calls are."""

    @workflow.run
    async def run(self, steps: int) -> int:
        total = 0
        for number in range(steps):
            total += await workflow.execute_activity(step, number, start_to_close_timeout=LIMIT)
        return total


def recorded(steps: int) -> bytes:
    """The history of a finished workflow, as protobuf keeps it: six events a step."""
    return History(events=_numbered(_reported(steps))).SerializeToString()


def replay(history: bytes, *, sandboxed: bool = True) -> None:
    """Decode and replay it. Raises what the replayer does where today's workflow parts from the history."""
    runner = SandboxedWorkflowRunner() if sandboxed else UnsandboxedWorkflowRunner()
    replayer = Replayer(workflows=[Steps], workflow_runner=runner)
    asyncio.run(_replay(replayer, WorkflowHistory("steps", History.FromString(history).events)))


async def _replay(replayer: Replayer, history: WorkflowHistory) -> None:
    await replayer.replay_workflow(history)


def _numbered(summary: Iterator[tuple[str, Message]]) -> Iterator[HistoryEvent]:
    """With ids from 1, a second apart."""
    for number, (name, attributes) in enumerate(summary, start=1):
        yield HistoryEvent(
            event_id=number,
            event_time=Timestamp(seconds=START_SECONDS + number),
            event_type=EventType.Value(f"EVENT_TYPE_{name.upper()}"),
            **{f"{name}_event_attributes": attributes},  # type: ignore[arg-type]  # protobuf's names are not known here
        )


def _reported(steps: int) -> Iterator[tuple[str, Message]]:
    """A workflow task decides on the next activity, which is scheduled, started and completed, and leads to another."""
    yield (
        "workflow_execution_started",
        WorkflowExecutionStartedEventAttributes(
            workflow_type=WorkflowType(name="Steps"), task_queue=QUEUE, input=_payload(steps), attempt=1,
            original_execution_run_id="run", first_execution_run_id="run",
        ),
    )  # fmt: skip
    at = 1
    yield from _task(at)
    for number in range(steps):
        at += 3
        scheduled = ActivityTaskScheduledEventAttributes(
            activity_id=str(number + 1), activity_type=ActivityType(name="step"), task_queue=QUEUE,
            input=_payload(number), workflow_task_completed_event_id=at,
        )  # fmt: skip
        yield "activity_task_scheduled", scheduled
        started = ActivityTaskStartedEventAttributes(scheduled_event_id=at + 1, attempt=1)
        yield "activity_task_started", started
        completed = ActivityTaskCompletedEventAttributes(
            scheduled_event_id=at + 1, started_event_id=at + 2, result=_payload(number)
        )
        yield "activity_task_completed", completed
        at += 3
        yield from _task(at)
    ended = WorkflowExecutionCompletedEventAttributes(
        result=_payload(sum(range(steps))), workflow_task_completed_event_id=at + 3
    )
    yield "workflow_execution_completed", ended


def _task(at: int) -> Iterator[tuple[str, Message]]:
    """A workflow task after event `at`."""
    yield "workflow_task_scheduled", WorkflowTaskScheduledEventAttributes(task_queue=QUEUE, attempt=1)
    yield "workflow_task_started", WorkflowTaskStartedEventAttributes(scheduled_event_id=at + 1)
    done = WorkflowTaskCompletedEventAttributes(
        scheduled_event_id=at + 1, started_event_id=at + 2,
        sdk_metadata=WorkflowTaskCompletedMetadata(core_used_flags=CHECKED if at == 1 else ()),
    )  # fmt: skip
    yield "workflow_task_completed", done


def _payload(value: int) -> Payloads:
    return Payloads(payloads=[Payload(metadata={"encoding": b"json/plain"}, data=json.dumps(value).encode())])
