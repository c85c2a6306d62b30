"""A run as the log keeps it, appended to a real store: one feature delivered after a rework, one that waits for
a person, one that waits for another, one that nobody has started."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from pathlib import Path

from mz_events.adapters.blobs import FileBlobs
from mz_events.adapters.sqlite_log import SqliteStore
from mz_events.catalog.base import Event
from mz_events.catalog.call import (
    AgentFailed,
    AgentReplied,
    AgentRequested,
    CallPriced,
    CallRef,
    ForbiddenChange,
    Problem,
    ProblemClass,
    ReplyParsed,
    Usage,
)
from mz_events.catalog.delivery import CommitRequested, Committed, PullRequestOpened
from mz_events.catalog.feature import (
    FeatureDelivered,
    FeatureHeld,
    FeatureStarted,
    HumanRequested,
    PhaseCompleted,
    PhaseStarted,
    QuestionKind,
)
from mz_events.catalog.run import (
    CommandsChanged,
    FeatureAdmitted,
    FeatureOutcome,
    FeatureStopped,
    Hold,
    ItemAdded,
    RunIdle,
    RunStarted,
)
from mz_events.catalog.validation import (
    ArtifactParsed,
    ArtifactValidated,
    Change,
    ChangesChecked,
    CommandRan,
    GateChecked,
    Violation,
)
from mz_events.names import Commit, Digest, FeatureId, RunId, StreamId, feature_stream, run_stream
from mz_events.names import Path as TreePath
from mz_events.store import Append, Recorded

RUN = "20260301-120000-abcd"
START_US = 1_772_366_400_000_000
"""2026-03-01 12:00:00 UTC."""
TREE = Commit("a" * 40)
BRANCH = "feat/login"


class StoredRun:
    """Appends to the log of a directory, one second after the other."""

    def __init__(self, home: Path, run: str = RUN) -> None:
        (home / ".mz").mkdir(parents=True, exist_ok=True)
        self.home, self.run = home, run
        self.store = SqliteStore(home / ".mz" / "mz.db")
        self.blobs = FileBlobs(home / ".mz" / "blobs")
        self.seconds = count()
        self.closed = False
        self.copied_from = ""
        """The run whose feature's events these are copies of."""
        self.recorded: list[Recorded[Event]] = []

    def close(self) -> None:
        """Once; the story is of no use afterwards."""
        if not self.closed:
            self.store.close()
        self.closed = True

    def correct(self) -> str:
        """A resume took over a corrected command, which has characters that act on terminals; return its event ref."""
        changes = self.blob("- commands.test: make \x1b]0;title\x07test\n+ commands.test: make \u202echeck\n")
        self.to_run(CommandsChanged(commands=self.blob("{}"), changes=changes))
        return self.recorded[-1].event_ref

    def blob(self, text: str) -> Digest:
        return self.blobs.put(text.encode())

    def to_run(self, *events: Event) -> None:
        self._append(run_stream(self.run), events)

    def to_feature(self, feature: str, *events: Event) -> None:
        self._append(feature_stream(self.run, feature), events)

    def _append(self, stream: StreamId, events: Sequence[Event]) -> None:
        for event in events:
            origin = stream.replace(self.run, self.copied_from) if self.copied_from and stream.count("/") > 1 else ""
            append = Append(stream=stream, expected=None, events=(event,), causation=origin and f"{origin}@1")
            self.recorded += self.store.append([append], START_US + next(self.seconds) * 1_000_000)

    # whole chapters ---------------------------------------------------------------------------------------------------
    def begin(self, *features: str, title: str = "Let people log in", pins: bytes = b"{}") -> StoredRun:
        self.to_run(
            RunStarted(run=RunId(self.run), pipeline="monozukuri", base="main", base_commit=Commit("b" * 40),
                       pins=self.blobs.put(pins), mz_version="0.1.0")
        )  # fmt: skip
        for order, feature in enumerate(features):
            self.to_run(
                ItemAdded(feature=FeatureId(feature), source=f"features.md#{feature}", priority=1, order=order,
                          title=self.blob(title), body=self.blob("As a person I want ..."))
            )  # fmt: skip
        return self

    def admit(self, feature: str) -> StoredRun:
        self.to_run(FeatureAdmitted(feature=FeatureId(feature)))
        self.to_feature(
            feature,
            FeatureStarted(feature=FeatureId(feature), run_version=2, branch=f"feat/{feature}", target="main",
                           starts_from=(Commit("b" * 40),), title=self.blob("Let people log in"),
                           body=self.blob("As a person I want ...")),
        )  # fmt: skip
        return self

    def ref(self, feature: str, phase: str, attempt: int = 1, role: str = "builder", unit: str = "") -> CallRef:
        key = f"{self.run}/{feature}/{phase}/{unit or '-'}/1/{attempt}/agent.{role}"
        return CallRef(key=key, phase=phase, unit=unit, iteration=1, attempt=attempt, role=role)

    def ask(self, feature: str, ref: CallRef, tree: Commit = TREE, routed_to: str = "") -> None:
        self.to_feature(
            feature,
            AgentRequested(ref=ref, agent="claude-code", model="claude-sonnet-4-5", prompt=self.blob("Do it, please."),
                           template=f"{ref.phase}.md.j2", full_prompt=True, session="s1", resumes=False, tree=tree,
                           estimated_tokens=3000, estimated_nanousd=25_000_000, routed_to=routed_to),
        )  # fmt: skip

    def reply(self, feature: str, ref: CallRef, text: str = "Done.", computed: int | None = 12_345_000) -> None:
        self.to_feature(
            feature,
            AgentReplied(ref=ref, stdout=self.blob("{}\n"), stderr=self.blob(""), exit=0, duration_ms=4200, tree=TREE),
            ReplyParsed(ref=ref, parser="claude-code/1", ending="success", session="s1", text=self.blob(text),
                      usage=(Usage(model="claude-sonnet-4-5", input=1000, output=200),), reported_nanousd=12_000_000),
            CallPriced(key=ref.key, computed_nanousd=computed),
            ChangesChecked(ref=ref, tree=TREE,
                           changes=(Change(path=TreePath("src/login.py"), kind="added"),)),
        )  # fmt: skip

    def validate(self, feature: str, ref: CallRef, *violations: str) -> None:
        report = self.blob('["The section Risks is missing."]') if violations else None
        self.to_feature(
            feature,
            ArtifactParsed(artifact=ref.phase, phase=ref.phase, unit=ref.unit, digest=self.blob("# text"),
                           path=TreePath(f"tasks/{feature}/{ref.phase}.md")),
            ArtifactValidated(ref=ref, report=report,
                              violations=tuple(Violation(rule=rule, path="prd.md") for rule in violations)),
        )  # fmt: skip

    def gate(self, feature: str, phase: str, passed: int, failed: int) -> None:
        self.to_feature(
            feature,
            CommandRan(stage="gate", phase=phase, unit="", name="test", exit=1 if failed else 0, passed=passed,
                       failed=failed, output=self.blob("E  assert"), excerpt=self.blob("E"), duration_ms=900),
            GateChecked(phase=phase, unit="", gate="test", passed=not failed, cause="code" if failed else "",
                        report=self.blob('["1 test failed: test_login"]') if failed else None),
        )  # fmt: skip

    def commit(self, feature: str, phase: str) -> None:
        key = f"{self.run}/{feature}/{phase}/-/1/1/commit"
        self.to_feature(
            feature,
            CommitRequested(key=key, purpose="work", phase=phase, unit="", tree=TREE, parent=TREE,
                            message=self.blob(f"{phase}: {feature}")),
            Committed(key=key, commit=Commit("c" * 40), files=2, insertions=30, deletions=4),
            PhaseCompleted(phase=phase),
        )  # fmt: skip

    def deliver(self, feature: str) -> None:
        """Three phases, the first refused once by a rule, the second once by the tests."""
        self.admit(feature)
        self.to_feature(feature, PhaseStarted(phase="prd", iteration=1))
        first, second = self.ref(feature, "prd"), self.ref(feature, "prd", attempt=2)
        self.ask(feature, first)
        self.reply(feature, first)
        self.validate(feature, first, "sections")
        self.ask(feature, second)
        self.reply(feature, second)
        self.validate(feature, second)
        self.commit(feature, "prd")
        self.to_feature(feature, PhaseStarted(phase="code", iteration=1))
        for attempt, failed in ((1, 1), (2, 0)):
            ref = self.ref(feature, "code", attempt=attempt)
            self.ask(feature, ref)
            self.reply(feature, ref, text="All done.\nThe tests pass now.")
            self.validate(feature, ref)
            self.gate(feature, "code", 7, failed)
        self.commit(feature, "code")
        self.to_feature(
            feature,
            PullRequestOpened(key="k", url="https://forge.invalid/pull/7", number=7),
            FeatureDelivered(ending="delivered", head=Commit("c" * 40), changed_paths=(TreePath("src/login.py"),)),
        )
        self.to_run(
            FeatureStopped(
                feature=FeatureId(feature), version=9, status=FeatureOutcome.DELIVERED, head=Commit("c" * 40)
            )
        )

    def wait(self, feature: str, detail: str = "Which database shall I use?") -> None:
        """One phase; its second call failed, and the agent asks for a person."""
        self.admit(feature)
        self.to_feature(feature, PhaseStarted(phase="prd", iteration=1))
        ref = self.ref(feature, "prd")
        self.ask(feature, ref)
        self.to_feature(
            feature,
            AgentFailed(
                ref=ref,
                problem=Problem(kind=ProblemClass.NEEDS_PERSON, code="blocker", detail=self.blob(detail)),
                stdout=self.blob(""),
                stderr=self.blob(""),
                duration_ms=100,
                tree=TREE,
            ),
            ChangesChecked(ref=ref, tree=TREE, forbidden_changes=(ForbiddenChange(kind="outside", path="README.md"),)),
            HumanRequested(
                phase="prd", unit="", question_kind=QuestionKind.BLOCKER, code="agent-blocker", detail=self.blob(detail)
            ),
        )
        self.to_run(FeatureStopped(feature=FeatureId(feature), version=6, status=FeatureOutcome.WAITING))

    def hold(self, feature: str) -> None:
        self.admit(feature)
        until = START_US + 3_600_000_000
        self.to_feature(feature, FeatureHeld(hold=Hold.TIMER, until_us=until, code="rate-limit"))
        self.to_run(
            FeatureStopped(
                feature=FeatureId(feature), version=2, status=FeatureOutcome.HELD, hold=Hold.TIMER, until_us=until
            )
        )

    def stop(self) -> None:
        self.to_run(RunIdle())


def tell(home: Path) -> StoredRun:
    """The whole story; the store is open."""
    log = StoredRun(home).begin("login", "audit", "export", "later")
    log.deliver("login")
    log.wait("audit")
    log.hold("export")
    log.stop()
    return log
