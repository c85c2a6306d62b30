"""A simulated world in which everything fails that can: at every port, as often as a seed says, and then no more.

`FaultyWorld` decides at each side effect and each look at the outside whether a fault happens there. Each seed has a
backlog, settings and faults of its own; when its faults are used up, the run must come to an end."""

from __future__ import annotations

import errno
from collections import Counter
from random import Random
from typing import Literal

import msgspec
from mz_engine.decoding.quantity import Usd
from mz_engine.model.config import Budget, PullRequests
from mz_engine.model.pins import Pins
from mz_engine.ports import CallSpec, CiCheck, RemoteError, RepositoryUnusable, StorageFailed
from mz_events.adapters.memory import MemoryStore
from mz_events.catalog.base import Event
from mz_events.catalog.call import Problem, ProblemClass
from mz_events.catalog.feature import QuestionKind
from mz_events.catalog.inbox import AnswerPosted, CancelPosted, PausePosted, ResumePosted, RetryPosted
from mz_events.catalog.run import Verdict
from mz_events.names import BUILDER, Commit, Digest, FeatureId, feature_stream, inbox_stream
from mz_events.store import Append, Recorded, StoreUnusable, VersionConflict
from mz_projections.feature.state import Waiting

from mz_qa.simulation import trial
from mz_qa.simulation.driver import drive_run
from mz_qa.simulation.invariants import Invariants, Violation, require
from mz_qa.simulation.world import Crash, Files, ScriptedReply, SimulatedStore, Tree, World

RATES = {
    "crash": 0.006, "cut": 0.05, "race": 0.006, "disk": 0.005, "git": 0.004, "outage": 0.02, "forge": 0.15,
    "clock": 0.004, "base": 0.003, "person": 0.006, "rate-limit": 0.05, "hang": 0.05, "garbage": 0.05, "killed": 0.05,
    "login": 0.02, "worktree": 0.03, "wrong": 0.12, "secret": 0.03, "command": 0.06, "check": 0.3, "visit": 0.15,
    "block": 0.3,
}  # fmt: skip
"""How probable each fault is wherever it can happen; a seed multiplies each by 0, 1 or 4."""
BACKLOGS: tuple[dict[str, tuple[str, ...]], ...] = (
    {"b": ()}, {"a": ()}, {"b": (), "c": ()}, {"a": (), "b": ("a",)}, {"a": (), "b": ("a",), "c": ()},
)  # fmt: skip
PROBLEMS = {
    "rate-limit": Problem(kind=ProblemClass.TRANSIENT, code="rate-limit", retry_after_seconds=60),
    "hang": Problem(kind=ProblemClass.TRANSIENT, code="idle"),
    "login": Problem(kind=ProblemClass.FATAL, code="auth-failure"),
}
FAULTS = (3, 8, 20)
STEPS_MAX, WAITS_MAX, PROCESSES_MAX = 20_000, 500, 90
GIT = frozenset({
    "open", "ensure", "capture", "adopt", "provide", "commit", "merge", "advance", "tag", "close_branch", "git",
})  # fmt: skip
FORGE = frozenset({"push", "open_pr", "update", "rerun", "forge"})
DEATHS = (Crash, StorageFailed, StoreUnusable, VersionConflict, OSError)
"""Exceptions that end a process, of which another continues the run."""
ACTOR = Digest("0" * 64)


def faulty_pins(rng: Random, seed: int) -> Pins:
    """Return the trial's pins with settings by seed."""
    strategies: tuple[Literal["none", "draft", "ready"], ...] = ("none", "draft", "ready")
    config = msgspec.structs.replace(
        trial.trial_config(rng.choice(("fresh", "continue")), rng.choice(((), ("other",)))),
        parallel_max=rng.choice((1, 2, 3)), pull_requests=PullRequests(strategy=rng.choice(strategies)),
        papers=rng.choice((None, "branch", "log")), commits=rng.choice(("phases", "squash")),
        budget=Budget(run_nanousd=rng.choice((None, None, None, Usd(3_000_000), Usd(6_000_000)))),
    )  # fmt: skip
    pinned = trial.pins(config)
    pipeline = trial.pipeline_and_files()[0] if rng.random() < 0.5 else pinned.pipeline
    # Drawn from another source, so that the seeds of before find the same.
    merges = Random(f"merges {seed}").random() < 0.3
    return msgspec.structs.replace(pinned, pipeline=trial.with_merge(pipeline) if merges else pipeline)


class FaultyStore(SimulatedStore):
    """Shows everything appended to the invariants."""

    invariants: Invariants

    def _add(self, added: list[Recorded[Event]]) -> None:  # type: ignore[override]
        super()._add(added)
        self.invariants.appended(added)


class FaultyWorld(World):
    """A world whose seed decides which faults happen where."""

    def __init__(self, seed: int) -> None:
        self.rng, self.counts = Random(f"faults {seed}"), Counter[str]()
        self.faults_left, self.first_step = 0, self.rng.choice((0, 0, 100, 250, 500))
        """The number of faults to come, and the step from which on they come."""
        self.rates = {name: rate * self.rng.choice((0, 1, 4)) for name, rate in RATES.items()}
        self.outage = False
        """git fails, until this process or another ends."""
        self.never_answers, self.waits = self.rng.random() < 0.2, 0
        super().__init__(trial.FILES, self.reply, self.run_command)
        self.pins = faulty_pins(self.rng, seed)
        self.checks = self.check
        self.invariants = Invariants(self, self.pins)
        self.store: FaultyStore = FaultyStore(self.tick)
        self.store.invariants = self.invariants
        trial.begin(self, self.pins, self.rng.choice(BACKLOGS))
        self.faults_left = self.rng.choice(FAULTS)

    def begin_process(self) -> bool:
        """Prepare for another process. Before it a person may say something, and does while git fails. Return True if
        nothing fails any more."""
        self.waits, self.outage = 0, self.outage and self.faults_left > 0 and self.rng.random() < 0.6
        if self.outage or self.strikes("visit"):
            self._say_something()
        return not self.faults_left

    def strikes(self, fault: str) -> bool:
        """Return True if this fault happens here and now."""
        if not self.faults_left or self.steps < self.first_step or self.rng.random() >= self.rates[fault]:
            return False
        self.faults_left -= 1
        self.counts[fault] += 1
        return True

    def tick(self, name: str) -> None:
        super().tick(name)
        require(self.steps < STEPS_MAX, "the run does not end")
        if not self.faults_left and not self.outage:
            return
        port, _, instant = name.partition(".")
        if self.strikes("crash") or (instant == "after" and port != "append" and self.strikes("cut")):
            raise Crash(name)
        if self.strikes("clock"):
            self.now_us = max(0, self.now_us - self.rng.randrange(3_600_000_000))
        if self.strikes("base"):
            self._move_base()
        if self.strikes("person"):
            self._say_something()
        if name == "append.before":
            if self.strikes("disk"):
                raise self.rng.choice((StoreUnusable("the log is full"), OSError(errno.ENOSPC, "no space left")))
            if self.strikes("race"):
                raise VersionConflict(inbox_stream(trial.RUN), 0, 1)
        elif instant == "before" or port == "push":
            self._strike_outside(port)

    def look(self, name: str) -> None:
        if name == "wait":
            self.waits += 1
            require(self.waits < WAITS_MAX, "the run waits for ever")
            if self.invariants.run_state.paused:
                self.post(ResumePosted(actor=ACTOR))
        else:
            self._strike_outside(name)

    def _strike_outside(self, port: str) -> None:
        if port in FORGE and self.strikes("forge"):
            raise RemoteError("the forge does not answer")
        if port in GIT and self.strikes("disk"):
            raise StorageFailed("git-failed", "no space left on device")
        self.outage = self.outage or (port in ("capture", "commit") and self.strikes("outage"))
        if port in GIT and (self.outage or self.strikes("git")):
            raise RepositoryUnusable("git-failed", "git failed")
        if port == "capture" and self.strikes("worktree"):
            self.invariants.finished &= self.invariants.ended.keys()  # Of an open call the files are lost.
            raise RepositoryUnusable("worktree-lost", "the worktree is gone")

    def _move_base(self) -> None:
        """Somebody else commits to the base branch."""
        old = self.refs["refs/heads/main"]
        files = {**self.objects[old].files, f"news{self.steps}.txt": b"news"}
        self.refs["refs/heads/main"] = self.remote["main"] = self.write(Tree(files, old, b"by somebody else"))

    def reply(self, spec: CallSpec, files: Files) -> ScriptedReply:
        """Answer as the trial's model, unless the agent, the model or the process fails."""
        self.invariants.calling(spec.worktree.feature, spec.key)
        reply = trial.script(spec, files)
        if self.strikes("killed"):
            raise Crash(spec.key)
        for fault, problem in PROBLEMS.items():
            if self.strikes(fault):
                return msgspec.structs.replace(reply, problem=problem)
        if self.strikes("garbage"):
            return msgspec.structs.replace(reply, stdout=self.rng.randbytes(40))
        if self.strikes("wrong") and reply.files:
            reply = msgspec.structs.replace(reply, files=dict.fromkeys(reply.files, "broken"))
        if self.strikes("secret"):
            reply = msgspec.structs.replace(reply, files={**reply.files, f"{spec.worktree.feature}1.txt": "a SECRET"})
        phase = self.pins.pipeline.find_phase(spec.key.split("/")[2])
        can_block = self.pins.pipeline.block_file and phase.raisable_causes and spec.key.endswith(BUILDER)
        if can_block and self.strikes("block"):
            cause, unit = (
                self.rng.choice(phase.raisable_causes),
                self.rng.choice(("", "units: [u1]", "units: [u2, u3]")),
            )
            block = f"cause: {cause}\nreason: It cannot be done as it is.\nmissing: [what is meant]\n{unit}\n"
            reply = msgspec.structs.replace(reply, files={f"blocked/{spec.worktree.feature}.md": block})
        self.invariants.finished.add(spec.key)
        return reply

    def run_command(self, command: str, files: Files) -> tuple[int | None, str]:
        if self.strikes("command"):
            return self.rng.choice((None, -9, 1)), "killed"
        return trial.commands(command, files)

    def check(self, head: Commit, looks: int) -> tuple[CiCheck, ...] | None:
        fails = bool(looks) and self.strikes("check")
        state: Literal["pending", "red", "green"] = "green" if not fails else "red" if looks % 2 else "pending"
        return (CiCheck(name="ci", state=state, run="1"),) if looks else None

    def post(self, event: Event) -> None:
        """Leave a message in the run's inbox, as another process does, in which nothing fails."""
        MemoryStore.append(self.store, [Append(inbox_stream(trial.RUN), None, (event,))], self.now_us)

    def _say_something(self) -> None:
        feature = FeatureId(self.rng.choice(sorted(self.invariants.run_state.tracks)))
        phase = self.rng.choice((None, "plan", "build"))
        messages: tuple[Event, ...] = (
            CancelPosted(feature=feature, actor=ACTOR), PausePosted(actor=ACTOR), ResumePosted(actor=ACTOR),
            RetryPosted(feature=feature, phase=phase, actor=ACTOR, keeps_tree=self.rng.random() < 0.5),
            AnswerPosted(feature=feature, verdict=Verdict.RETRY, actor=ACTOR),
        )  # fmt: skip
        self.post(self.rng.choice(messages))

    def answer(self) -> bool:
        """Let a person answer what the run asks. Return False if nothing is asked, or nobody ever answers."""
        answered = False
        for name, track in self.invariants.run_state.tracks.items():
            state = self.invariants.states.get(feature_stream(trial.RUN, FeatureId(name)))
            if self.never_answers or track.last_stop is None or not isinstance(state, Waiting):
                continue
            approves = state.question.question_kind is QuestionKind.APPROVAL
            verdict = Verdict.REJECT if self.rng.random() < 0.1 else Verdict.APPROVE if approves else Verdict.RETRY
            self.post(AnswerPosted(feature=FeatureId(name), verdict=verdict, actor=ACTOR))
            answered = True
        return answered


def simulate(world: FaultyWorld) -> None:
    """Drive a world's run from beginning to end, through all its faults, process after process. Raises Violation."""
    for number in range(PROCESSES_MAX):
        was_quiet = world.begin_process()
        world.invariants.started()
        try:
            drive_run(world, trial.RUN, world.pins, world.rng.randrange(1 << 30), resumes=number > 0)
        except DEATHS as death:
            require(not was_quiet, f"a process ended without a fault: {death!r}")
            continue
        if world.answer() or world.invariants.run_state.halt is not None:
            continue
        if was_quiet:
            world.invariants.at_rest()
            return
        world.faults_left = 0  # Nothing is left to which they could happen.
    raise Violation("the run needs more and more processes")
