"""Events about what a phase produced: commands run, changes reverted, artifacts, rules, gates."""

from __future__ import annotations

from typing import Literal

from mz_events.catalog.base import DerivedEvent, EventPart, OutcomeEvent
from mz_events.catalog.call import CallRef, ForbiddenChange
from mz_events.names import Commit, Digest, Path


class Violation(EventPart, frozen=True, kw_only=True):
    """One broken rule. The message is in the report blob; decisions read only this."""

    rule: str
    """Id of the rule or gate."""
    path: str = ""
    """File, or location within the artifact."""
    line: int | None = None


class Unit(EventPart, frozen=True, kw_only=True):
    """One piece of work listed in an artifact."""

    id: str
    depends_on: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()
    fields: dict[str, str] = {}
    """Enum-like fields that the pipeline may refer to: type, ..."""


class CommandRan(OutcomeEvent, frozen=True, kw_only=True, tag="command.ran"):
    """A process started by `mz`: setup, preparation or gate, or a command on the base, which is in the run's own
    stream. The only source of test counts."""

    SCHEMA = 4
    NON_DETERMINISTIC = frozenset({"duration_ms", "output", "excerpt", "passes", "failures", "missing", "environment"})
    stage: Literal["setup", "prepare", "gate", "base"]
    phase: str
    """Empty for a set-up, unless it failed before a preparation or gate of the phase, which then did not run."""
    unit: str
    name: str
    """Name of the command in `mz.yaml`; of a set-up command, the command itself."""
    exit: int | None
    """None: killed at its time limit. Negative: signal."""
    passed: int | None = None
    failed: int | None = None
    """`passed` and `failed` count tests, if the output or a JUnit report names them."""
    passes: Digest | None = None
    """Blob: JSON array with the ids of the passed tests, sorted. None: no report names them."""
    missing: Digest | None = None
    """Blob: JSON array with the ids of tests that passed on the base, and now neither pass nor fail. None: none."""
    failures: Digest | None = None
    """Blob: JSON array with the ids of the failed tests, sorted. None: none failed, or not all are known."""
    new_failures: int | None = None
    """Failed tests that did not fail on the base; 0: the failure is a known one. None: not compared."""
    signature: str = ""
    """Hash of the first lines of the normalised output: equal failures have equal signatures."""
    output: Digest
    """Blob: raw, redacted."""
    excerpt: Digest
    """Blob: normalised and shortened, as it may enter a prompt."""
    duration_ms: int
    coverage: tuple[int, ...] = ()
    """Lines that are covered, and all that could be, by reports that the command wrote; empty: there are none."""
    environment: str | None = None
    """In a clean checkout: digest of its set-up and of the files that say what it installs; empty: there is no set-up.
    None: it ran in the agent's worktree."""


class Change(EventPart, frozen=True, kw_only=True):
    """A path that differs between two trees."""

    path: Path
    kind: Literal["added", "modified", "deleted", "mode"]


class ChangesChecked(OutcomeEvent, frozen=True, kw_only=True, tag="changes.checked"):
    """The tree after a reply, with every forbidden change reverted."""

    NON_DETERMINISTIC = frozenset({"tree"})
    ref: CallRef
    tree: Commit
    """Capture after reverting."""
    changes: tuple[Change, ...] = ()
    """Against the tree before the call, within the write scope."""
    forbidden_changes: tuple[ForbiddenChange, ...] = ()


class ArtifactParsed(DerivedEvent, frozen=True, kw_only=True, tag="artifact.parsed"):
    """Everything decisions need from an artifact, extracted once."""

    SCHEMA = 5
    artifact: str
    phase: str
    unit: str
    path: Path | None
    """None: the artifact is the reply itself. With `*`: it is the files that match."""
    digest: Digest
    units: tuple[Unit, ...] = ()
    files: tuple[Path, ...] = ()
    fields: dict[str, str] = {}
    """Enum-like fields that the pipeline may refer to: severity, cause, ..."""
    names: tuple[str, ...] = ()
    """Names that it lists in the field that its rule set chooses."""
    ids: tuple[str, ...] = ()
    """Ids that it defines in the field that its rule set chooses."""
    new_ids: tuple[str, ...] = ()
    """Those that it had in no delivered feature, if a check of the pipeline asks for them."""
    counts: dict[str, int] = {}
    """Numbers of its items by name, as its rule set counts them."""
    is_result: bool = False
    """It is the result of a command that mz ran."""


class ArtifactValidated(DerivedEvent, frozen=True, kw_only=True, tag="artifact.validated"):
    """Result of the rules for all outputs of one reply."""

    ref: CallRef
    violations: tuple[Violation, ...] = ()
    """Empty: valid."""
    report: Digest | None = None
    """Blob: JSON array of the messages, as the agent gets them."""


class ArtifactsKept(DerivedEvent, frozen=True, kw_only=True, tag="artifacts.kept"):
    """The artifacts of a phase were there already, valid and newer than what they depend on: no agent was called."""

    phase: str
    unit: str


class ConditionsChecked(DerivedEvent, frozen=True, kw_only=True, tag="conditions.checked"):
    """Which conditions of a phase, or of its agent review, hold. None: it is skipped."""

    phase: str
    unit: str
    of: Literal["phase", "review"]
    met: tuple[str, ...] = ()


class GateChecked(DerivedEvent, frozen=True, kw_only=True, tag="gate.checked"):
    SCHEMA = 2
    phase: str
    unit: str
    gate: str
    passed: bool
    cause: str = ""
    violations: tuple[Violation, ...] = ()
    report: Digest | None = None
    """Blob: JSON array of messages."""
    signature: str = ""
    """Signature of a failed command: see CommandRan."""
    judged_by: str = ""
    """Key, without the run, of the reviewer's call that judged; empty: mz checked the gate itself."""
