"""Effects that run the user's commands: one in a worktree, and all of a pipeline on the base before a run costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Literal, NamedTuple

import msgspec
from mz_events.catalog.run import BaseTested
from mz_events.catalog.validation import CommandRan
from mz_events.names import Commit, FeatureId, RunId
from mz_events.store import Blobs
from mz_projections.views.timeline import list_names

from mz_engine.artifacts.command_output import (
    UNSTARTABLE_EXITS,
    can_start,
    count_runs,
    excerpt,
    failed_tests,
    failure_signature,
    normalise_line,
    remedy_for_omissions,
    unreported,
)
from mz_engine.decoding.quantity import Duration
from mz_engine.effects.steps import Effect, StepContext, Steps, call_port, emit, get_json, put_blob, put_report
from mz_engine.model.config import Command, Config
from mz_engine.model.pins import Pins
from mz_engine.ports import Checkout, EnvironmentOutside, Executor, FeatureWorktree, Workspace

SETUP_SECONDS = 1800
NAMED_MAX = 20
BASE = FeatureId("_base")
"""Stands for a feature in paths and keys of what runs on the base; no feature can have this name."""


class Counts(NamedTuple):
    """How a command ended, how many tests passed, also in each run of a printed runner, and which, by its reports."""

    exit: int | None = None
    passed: int | None = None
    failed: int | None = None
    printed: tuple[int, ...] = ()
    passes: Sequence[str] = ()


def open_checkout(
    worktree: FeatureWorktree, key: str, head: Commit, tree: Commit, config: Config
) -> Steps[tuple[Checkout, CommandRan | None]]:
    """Take a checkout of `tree` and set it up if need be; also return the command of the set-up that failed, if one
    did, which is not emitted."""
    checkout = yield from call_port(Workspace.checkout, worktree, head, tree)
    if not checkout.needs_setup:
        return checkout, None
    for line in config.workspace.setup:
        ran = yield from run_setup_command(checkout, line, key)
        if ran.exit != 0:
            return checkout, ran
        yield from emit(ran)
    yield from call_port(Workspace.adopt, checkout.worktree, tree)
    return (yield from call_port(Workspace.checkout, worktree, head, tree)), None


def run_setup_command(target: Checkout | FeatureWorktree, line: str, key: str) -> Steps[CommandRan]:
    """Run a command of the set-up; `key` is that of the feature or of the base."""
    command = Command(run=line, timeout=Duration(SETUP_SECONDS))
    return (yield from run_command(target, command, "setup", f"{key}/setup/{line}", line))[0]


def run_command(
    target: Checkout | FeatureWorktree,
    command: Command,
    stage: Literal["setup", "prepare", "gate", "base"],
    key: str,
    name: str,
) -> Steps[tuple[CommandRan, Counts]]:
    """Run a command. Raises EnvironmentOutside if it may have used code outside its worktree, or fails on the base
    because it could not."""
    worktree, environment = (target.worktree, target.environment) if isinstance(target, Checkout) else (target, None)
    result = yield from call_port(Executor.run, worktree, command.run, command.timeout, key)
    is_base_red = stage == "base" and result.exit != 0
    links = tuple(link.text for link in result.outside_links if is_base_red or not link.is_hidden)
    if links and stage != "setup":
        raise EnvironmentOutside(links)
    output_excerpt = excerpt(result.output, (result.root,) if result.root else ())
    runs, passes, reported_failures = count_runs(result.output), result.passed_tests, result.failed_tests
    printed = (sum(run[0] for run in runs), sum(run[1] for run in runs)) if runs else None
    reported = (len(passes), len(reported_failures)) if passes or reported_failures else None
    passed, failed = max(filter(None, (printed, reported)), key=sum, default=(None, None))
    failures = list[str]()
    if 0 < (result.exit or 0) < min(UNSTARTABLE_EXITS):  # A killed command has not run all tests.
        failures += (*reported_failures, *unreported(failed_tests(result.output), reported_failures))
        if len(failures) < max(1, failed or 0, *(printed or ())[1:]) or remedy_for_omissions(result.output):
            failures.clear()
    ran = CommandRan(
        stage=stage,
        phase="",
        unit="",
        name=name,
        exit=result.exit,
        passed=passed,
        failed=failed,
        signature=failure_signature(output_excerpt),
        passes=(yield from put_report(passes)),
        failures=(yield from put_report(failures)),
        output=(yield from put_blob(result.output)),
        excerpt=(yield from put_blob(output_excerpt)),
        duration_ms=result.duration_ms,
        coverage=result.coverage,
        environment=environment,
    )
    return ran, Counts(result.exit, passed, failed, tuple(run[0] for run in runs), passes)


def missing_tests(before: Counts, now: Counts, failures: Sequence[str]) -> tuple[str, ...]:
    """Return the ids of tests that passed on the base, by its reports, and now neither pass nor fail."""
    old, present = Counter(before.passes), Counter((*now.passes, *failures))
    gone, new = (Counter(normalise_line(id_, ()) for id_ in ids.elements()) for ids in (old - present, present - old))
    return tuple(sorted((gone - new).elements()))


def objection(before: Counts, now: Counts, missing: Sequence[str] = ()) -> str:
    """Return why failures that are known from the base excuse none of a command now; empty: they do."""
    if missing:
        return f"tests that passed on the base are missing: {list_names(missing, NAMED_MAX)}"
    if (now.passed or 0) < (before.passed or 0):
        return f"{now.passed or 0} tests passed, and {before.passed} on the base"
    runs = zip_longest(*(sorted(counts.printed, reverse=True) for counts in (now, before)), fillvalue=0)
    if any(passed < expected for passed, expected in runs):
        return "fewer tests passed in one of its test runs than on the base"
    is_better = (now.exit or 0) < (before.exit or 0) and (now.failed or 0) < (before.failed or 0)
    return "" if before.exit in (now.exit, 0, None) or is_better else f"it ended with exit {before.exit} on the base"


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
    red, ids, results = list[str](), dict[str, list[str]](), dict[str, Counts]()
    checkout, failed = yield from open_checkout(worktree, key, commit, commit, pins.config)
    if failed is not None:
        yield from emit(failed, BaseTested(unusable=(failed.name,)))
        return
    for name in base_commands(pins):
        checkout = yield from call_port(Workspace.checkout, worktree, commit, commit)
        try:
            ran, counts = yield from run_command(checkout, pins.config.commands[name], "base", f"{key}/{name}", name)
        except EnvironmentOutside as error:
            yield from emit(BaseTested(unusable=(name,), outside=(yield from put_blob("\n".join(error.links)))))
            return
        if not can_start(ran.exit, (yield from call_port(Blobs.get, ran.output))):
            yield from emit(ran, BaseTested(unusable=(name,)))
            return
        results[name] = counts
        if ran.exit != 0:
            red.append(name)
        # A command without a single passed test has shown nothing, so as a gate it has to succeed.
        if ran.failures is not None and ran.passed:
            ids[name] = yield from get_json(ran.failures)
        yield from emit(ran)
    yield from call_port(Workspace.release, worktree)
    digest = (yield from put_blob(msgspec.json.encode(ids).decode())) if ids else None
    results_digest = yield from put_blob(msgspec.json.encode(results).decode())
    yield from emit(BaseTested(red=tuple(red), known_failures=digest, results=results_digest))
