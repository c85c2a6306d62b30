"""The test of a run's base before anything is paid: drives it, and says what it means to the user."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from os.path import normpath
from pathlib import Path
from secrets import token_hex
from shlex import join

import msgspec
from mz_events.adapters.memory import MemoryBlobs, MemoryStore
from mz_events.catalog.base import Event
from mz_events.catalog.run import BaseTested
from mz_events.catalog.validation import CommandRan
from mz_events.names import Commit, RunId
from mz_events.store import Blobs

from mz_engine.artifacts.command_output import UNSTARTABLE_EXITS, can_start, cut, remedy_for_omissions
from mz_engine.effects.commands import run_on_base
from mz_engine.effects.steps import Do, Emit
from mz_engine.errors.diagnostics import Diagnostic, MzError
from mz_engine.git.repository import output_as_user
from mz_engine.model.pins import Pins
from mz_engine.paths import MZ_FOLDER
from mz_engine.ports import Interrupted, Ports
from mz_engine.run.ports import SystemPorts

SHOWN_LINES, SHOWN_CHARS = 12, 200
"""Last lines of the output of a command that cannot be used, and how much of each."""
LISTED_MAX = 20
SEVERAL_CHECKS = re.compile(r"\bmake\b|^(?!cd [^;&|]+&&[^;&|]+$|for folder in ).*(?:&&|;|\|\|)", re.DOTALL)
OWN_ENVIRONMENT = (
    "nothing was paid; let `workspace.setup` in mz.yaml make an environment in each worktree, for example\n"
    '  setup: ["python3 -m venv .venv", ".venv/bin/python -m pip install -e ."] or setup: ["npm ci"]\nthen: '
)

Append = Callable[[tuple[Event, ...]], object]


def drive_base_test(
    run: RunId, commit: Commit, pins: Pins, ports: Ports, append: Append, is_stopping: Callable[[], bool]
) -> None:
    """Run the set-up and the commands on the base, and append the results; a stop ends it between two commands. Raises
    RepositoryUnusable."""
    steps, result = run_on_base(run, commit, pins), None
    try:
        while not is_stopping():
            match steps.send(result):
                case Do() as step:
                    result = step.call(ports)
                case Emit(events=events):
                    result = append(events)
    except (StopIteration, Interrupted):
        return


def try_base(
    root: Path, commit: Commit, pins: Pins, environment: Mapping[str, str]
) -> tuple[MzError | None, tuple[Diagnostic, ...]]:
    """Run the set-up and the commands on the base without a run or a log; return the problem and the warnings."""
    blobs, events, run = MemoryBlobs(), list[Event](), RunId(f"doctor-{token_hex(4)}")
    ports = SystemPorts(root, pins.config, MemoryStore(), blobs, environment)
    try:
        drive_base_test(run, commit, pins, ports, events.extend, lambda: False)
    finally:
        ports.kill.set()
        ports.workspace.close_checkouts(run)
    again = "mz doctor --run-commands"
    return base_problem(events, blobs, root, environment, again, again), tuple(base_warnings(events, blobs, pins))


def base_problem(
    events: Sequence[Event], blobs: Blobs, root: Path, environment: Mapping[str, str], resume: str, restart: str
) -> MzError | None:
    """Return the error about a base on which no feature can be tested; None: it can. `resume`, `restart`: the command
    to use when settings were corrected, or a commit was made."""
    tested = events[-1] if events else None
    if not isinstance(tested, BaseTested) or not tested.unusable:
        return None
    if tested.outside is not None:
        links = "".join(f"  {line}\n" for line in blobs.get(tested.outside).decode("utf-8", "replace").splitlines())
        message = f"`commands.{tested.unusable[0]}` does not test the worktree it runs in"
        hint = f"its environment has other code of this project:\n{links}{OWN_ENVIRONMENT}{resume}"
        return MzError("MZ2019", message, hint=hint)
    ran = next(event for event in reversed(events) if isinstance(event, CommandRan))
    lines = blobs.get(ran.excerpt).decode("utf-8", "replace").splitlines()[-SHOWN_LINES:]
    shown = "".join(f"  {cut(line, SHOWN_CHARS)}\n" for line in lines)
    output = f"it printed:\n{shown}" if lines else "it printed nothing\n"
    setting = "`workspace.setup`" if ran.stage == "setup" else f"`commands.{ran.name}`"
    needs = "give it what it needs (programs; files of HOME: `sandbox.read`; variables: `pass_environment`)"
    remedy = f"correct {setting} in mz.yaml or {needs}, then: {resume}\nor correct a committed file, then: {restart}"
    untracked = output_as_user(root, environment, "ls-files", "-z", "--others", f"--exclude={MZ_FOLDER}/").split("\0")
    if absent := set(untracked) & set(map(normpath, re.findall(r"[^\s\"'=;&|<>()]+", ran.name))):
        remedy = f"git does not track what it names: `git add {join(sorted(absent))}`, commit, then: {restart}"
    hint = f"{output}nothing was paid; {remedy}"
    ending = "ran out of time" if ran.exit is None else f"ended with exit {ran.exit}"
    if can_start(ran.exit, blobs.get(ran.output)):
        return MzError("MZ2018", f"the set-up command `{ran.name}` {ending} on the base", hint=hint)
    missing = "cannot start" if ran.exit in UNSTARTABLE_EXITS else "cannot run its tests"
    return MzError("MZ1008", f"{setting} {missing} on the base: it {ending}", hint=hint)


def base_warnings(events: Sequence[Event], blobs: Blobs, pins: Pins) -> Iterator[Diagnostic]:
    """Yield a warning for each command that fails, or runs no test, on the base."""
    for ran in (event for event in events if isinstance(event, CommandRan) and event.stage == "base"):
        ran_no_test = (ran.passed, ran.failed) == (0, 0)
        if ran.exit == 0 and not ran_no_test:
            continue
        ending = "ran out of time" if ran.exit is None else f"exit {ran.exit}"
        counts = f", {ran.failed} tests failed and {ran.passed} passed" if ran.failed else ""
        names: list[str] = [] if ran.failures is None else msgspec.json.decode(blobs.get(ran.failures))
        listed = "".join(f"\n  {name}" for name in names[:LISTED_MAX])
        listed += f"\n  and {len(names) - LISTED_MAX} more" if len(names) > LISTED_MAX else ""
        if ran_no_test:
            meaning = "proves nothing before" if ran.exit == 0 else "does not pass until"
            meaning = f"as a gate it {meaning} agents write tests; if there are some, correct the command in mz.yaml"
        elif names and not ran.passed:
            meaning = f"no test passed, so as a gate it has to succeed: fix it before{listed}"
        elif names and pins.config.gates.baseline != "strict":
            meaning = f"known failures: as a gate it passes if no other test fails than{listed}"
            if SEVERAL_CHECKS.search(pins.config.commands[ran.name].run):
                meaning += "\nother checks in it could fail without notice: make each a command of its own"
        elif names:
            meaning = f"`gates.baseline` is strict: as a gate it has to succeed, so these have to be fixed{listed}"
        else:
            remedy = remedy_for_omissions(blobs.get(ran.output))
            why = f"runs not all tests after a failed one ({remedy})" if remedy else "names no failed tests"
            meaning = f"it {why}, so as a gate it has to succeed: fix it before"
        message = f"`commands.{ran.name}` {'ran no test' if ran_no_test else 'fails'} on the base ({ending}{counts})"
        yield Diagnostic(code="MZ2017", message=message, hint=meaning, severity="warning")
