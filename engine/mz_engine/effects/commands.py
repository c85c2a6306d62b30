"""Effects that run the user's commands: one in a worktree, and all of a pipeline on the base before a run costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Literal

import msgspec
from mz_events.catalog.run import BaseTested
from mz_events.catalog.validation import CommandRan
from mz_events.names import Commit, FeatureId, RunId
from mz_events.store import Blobs

from mz_engine.artifacts.command_output import (
    UNSTARTABLE_EXITS,
    can_start,
    count_tests,
    excerpt,
    failed_tests,
    failure_signature,
)
from mz_engine.decoding.quantity import Duration
from mz_engine.effects.steps import Effect, StepContext, Steps, call_port, emit, get_json, put_blob
from mz_engine.model.config import Command
from mz_engine.model.pins import Pins
from mz_engine.ports import Checkout, EnvironmentOutside, Executor, FeatureWorktree, Workspace

SETUP_SECONDS = 1800
BASE = FeatureId("_base")
"""Stands for a feature in paths and keys of what runs on the base; no feature can have this name."""


def open_checkout(
    worktree: FeatureWorktree, key: str, head: Commit, tree: Commit, pins: Pins
) -> Steps[tuple[Checkout, CommandRan | None]]:
    """Take a checkout of `tree` and set it up if need be; also return the command of the set-up that failed, if one
    did, which is not emitted."""
    checkout = yield from call_port(Workspace.checkout, worktree, head, tree)
    if not checkout.needs_setup:
        return checkout, None
    for line in pins.config.workspace.setup:
        ran = yield from run_setup_command(checkout, line, key)
        if ran.exit != 0:
            return checkout, ran
        yield from emit(ran)
    yield from call_port(Workspace.adopt, checkout.worktree, tree)
    return (yield from call_port(Workspace.checkout, worktree, head, tree)), None


def run_setup_command(target: Checkout | FeatureWorktree, line: str, key: str) -> Steps[CommandRan]:
    """Run a command of the set-up; `key` is that of the feature or of the base."""
    command = Command(run=line, timeout=Duration(SETUP_SECONDS))
    return (yield from run_command(target, command, "setup", f"{key}/setup/{line}", line))


def run_command(
    target: Checkout | FeatureWorktree,
    command: Command,
    stage: Literal["setup", "prepare", "gate", "base"],
    key: str,
    name: str,
) -> Steps[CommandRan]:
    """Run a command. Raises EnvironmentOutside if it may have used code outside its worktree, or fails on the base
    because it could not."""
    worktree, environment = (target.worktree, target.environment) if isinstance(target, Checkout) else (target, None)
    result = yield from call_port(Executor.run, worktree, command.run, command.timeout, key)
    is_base_red = stage == "base" and result.exit != 0
    links = tuple(link.text for link in result.outside_links if is_base_red or not link.is_hidden)
    if links and stage != "setup":
        raise EnvironmentOutside(links)
    output_excerpt = excerpt(result.output, (result.root,) if result.root else ())
    counts = filter(None, (count_tests(result.output), result.test_counts))
    passed, failed = max(counts, key=sum, default=(None, None))
    failures = None
    if 0 < (result.exit or 0) < min(UNSTARTABLE_EXITS):  # A killed command has not run all tests.
        failures = result.failed_tests if len(result.failed_tests or ()) >= (failed or 1) else None
        failures = failures or failed_tests(result.output)
    return CommandRan(
        stage=stage,
        phase="",
        unit="",
        name=name,
        exit=result.exit,
        passed=passed,
        failed=failed,
        signature=failure_signature(output_excerpt),
        failures=None if failures is None else (yield from put_blob(msgspec.json.encode(failures).decode())),
        output=(yield from put_blob(result.output)),
        excerpt=(yield from put_blob(output_excerpt)),
        duration_ms=result.duration_ms,
        environment=environment,
    )


def known_failures(context: StepContext, name: str) -> Steps[tuple[str, ...]]:
    """Return the ids of tests whose failure in a command is known: from the base, or accepted by a person."""
    progress, ids = context.phase_state.progress, Counter[str]()
    if progress.started.known_failures is not None:
        ids.update((yield from get_json(progress.started.known_failures)).get(name, ()))
    for accepted in progress.accepted_gates:
        if accepted.gate == name and accepted.ran is not None:
            ids |= Counter((yield from get_json(accepted.ran.failures)))
    return tuple(sorted(ids.elements()))


# the base -------------------------------------------------------------------------------------------------------------
CommandResultCounts = tuple[int | None, int | None, int | None]
"""Exit, passed and failed tests, as in `CommandRan`."""


def result_counts(ran: CommandRan) -> CommandResultCounts:
    return ran.exit, ran.passed, ran.failed


def base_commands(pins: Pins) -> Iterator[str]:
    """Yield the commands that gates and preparations of the pipeline run, each once, gates first."""
    phases, commands = pins.pipeline.phases, pins.config.commands
    uses = [gate.run for phase in phases for gate in phase.gates]
    uses += [preparation.run for phase in phases for preparation in phase.prepare]
    return (name for name in dict.fromkeys(uses) if name is not None and name in commands)


def run_on_base(run: RunId, commit: Commit, pins: Pins) -> Effect:
    """Run the set-up and every command of the pipeline on the base, in a checkout that features use afterwards. What
    cannot start ends the test."""
    worktree, key = FeatureWorktree(run=run, feature=BASE, branch=""), f"{run}/{BASE}"
    red, ids, results = list[str](), dict[str, list[str]](), dict[str, CommandResultCounts]()
    checkout, failed = yield from open_checkout(worktree, key, commit, commit, pins)
    if failed is not None:
        yield from emit(failed, BaseTested(unusable=(failed.name,)))
        return
    for name in base_commands(pins):
        checkout = yield from call_port(Workspace.checkout, worktree, commit, commit)
        try:
            ran = yield from run_command(checkout, pins.config.commands[name], "base", f"{key}/{name}", name)
        except EnvironmentOutside as error:
            yield from emit(BaseTested(unusable=(name,), outside=(yield from put_blob("\n".join(error.links)))))
            return
        if not can_start(ran.exit, (yield from call_port(Blobs.get, ran.output))):
            yield from emit(ran, BaseTested(unusable=(name,)))
            return
        results[name] = result_counts(ran)
        if ran.exit != 0:
            red.append(name)
        # A command without a single passed test has shown nothing, so as a gate it has to succeed.
        if ran.failures is not None and ran.passed:
            ids[name] = yield from get_json(ran.failures)
        yield from emit(ran)
    yield from call_port(Workspace.release, worktree)
    digest = (yield from put_blob(msgspec.json.encode(ids).decode())) if ids else None
    counts = yield from put_blob(msgspec.json.encode(results).decode())
    yield from emit(BaseTested(red=tuple(red), known_failures=digest, results=counts))
