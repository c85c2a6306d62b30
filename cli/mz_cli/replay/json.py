"""JSON documents of `mz record`, and of `mz replay` of recordings, past runs, variants and faults."""

from __future__ import annotations

from mz_recordings.findings.model import KIND_PROPERTIES, Finding, risk_of
from mz_recordings.past_runs.model import EventFieldDifference
from mz_recordings.record.fixture import ExcludedFeature

from mz_cli.reports.findings import fix_command
from mz_cli.terminal.json import Shape, shape_of


class CommittedSecret(Shape, frozen=True, kw_only=True):
    """A secret in a file of the project, which is in the cassette's `repository.bundle` as it was committed."""

    file: str
    line: int
    what: str
    """Description without the secret."""


class RecordResult(Shape, frozen=True, kw_only=True):
    run: str
    cassette: str
    """Path, relative to the current directory where it is below it."""
    pipeline: str
    agent: str
    provenance: str
    """`live`, `scripted-model`, `documented` or `copied`."""
    features: tuple[str, ...]
    recordings: int
    left_out: tuple[ExcludedFeature, ...]
    committed: tuple[CommittedSecret, ...]
    """Secrets that `mz recordings lint` will reject."""


class RecordingDifference(Shape, frozen=True, kw_only=True):
    """A difference from the recording."""

    kind: str
    """A class of drift (PROMPT, CONFIG, STREAM, TRACE, ARTIFACT, FILES, COST, DECISION, EXPIRED, UNUSED), or MISSING,
    COPIED, NETWORK, SECRET, PIPELINE, UNREADABLE."""
    risk: str
    """low, medium or high."""
    message: str
    feature: str | None
    call: str | None
    """The recording, such as `code.a2`."""
    detail: tuple[str, ...]
    """Diff lines: `-` recorded, `+` current or new."""


class ReplayFinding(RecordingDifference, frozen=True, kw_only=True):
    """One difference from the recording, or defect of it."""

    exit: int
    """Exit code for this finding; 0: it does not fail the command."""
    cause: str | None
    """For a drift: the template or setting."""
    fix: str
    """Command that repairs it."""
    file: str | None
    """File concerned, relative to the repository: a template, a rule set, mz.yaml, a file of the cassette."""
    line: int | None
    """Line in that file, from 1; null: unknown."""


class ReplayedCassette(Shape, frozen=True, kw_only=True):
    path: str
    name: str
    provenance: str | None
    """Null where the cassette cannot be read."""
    recordings: int
    played: int
    accepted_replies: int
    """Number of replies that were kept when their prompt changed."""
    offline: bool
    """The network was cut off; otherwise only the proxy variables point nowhere."""
    traces: dict[str, str]
    """Digest of each feature's current trace."""
    compared: int
    """Number of features with a recorded trace to compare."""
    duration_ms: int
    findings: tuple[ReplayFinding, ...]
    held: tuple[str, ...]
    """Settings, such as `commands.test`, used from the cassette instead of mz.yaml."""
    renewed: tuple[str, ...]
    """Description of each change written into the cassette."""


class ReplayReport(Shape, frozen=True, kw_only=True):
    exit: int
    cassettes: tuple[ReplayedCassette, ...]


class DivergenceShape(Shape, frozen=True, kw_only=True):
    event_ref: str
    """`stream@version`."""
    kind: str
    """order, missing, extra, decision, arguments, result, verdict or nondeterminism."""
    finding: str
    """Class of drift, as in `mz replay`."""
    risk: str
    recorded: str | None
    """Type of the recorded event; null: none."""
    produced: str | None
    """Type of the event that the current code produces; null: none."""
    differences: tuple[EventFieldDifference, ...]
    note: str | None
    explained: str | None
    """Id of the intended change of mz that explains it."""


class CauseShape(Shape, frozen=True, kw_only=True):
    """Divergences with the same cause."""

    kind: str
    recorded: str | None
    produced: str | None
    fields: tuple[str, ...]
    event_refs: tuple[str, ...]


class UncheckedPart(Shape, frozen=True, kw_only=True):
    """Something that was read from the log instead of being recomputed, or could not be checked."""

    what: str
    times: int


class ComparedStream(Shape, frozen=True, kw_only=True):
    stream: str
    events: int
    compared: int
    """Number of intents and derived events compared with the current code."""
    first: str | None
    """First diverging event; null: none."""
    divergences: int
    unfollowed: int
    """Number of events after a divergence, or after missing data, that cannot be compared."""
    missing: str | None
    """Recorded data that is gone, and the event from which the stream is not comparable; null: it is comparable."""


class PastRun(Shape, frozen=True, kw_only=True):
    exit: int
    run: str
    mz_version: str
    """Version of mz that started the run."""
    streams: tuple[ComparedStream, ...]
    divergences: tuple[DivergenceShape, ...]
    causes: tuple[CauseShape, ...]
    explained: tuple[DivergenceShape, ...]
    left: tuple[UncheckedPart, ...]


class RuleViolationShape(Shape, frozen=True, kw_only=True):
    rule: str
    path: str
    line: int | None
    message: str | None


class RuleChangeShape(Shape, frozen=True, kw_only=True):
    """An artifact on which the current rules reach another verdict."""

    run: str
    feature: str
    event_ref: str
    """`stream@version` of the recorded verdict."""
    phase: str
    artifact: str
    path: str | None
    """Null: the artifact is the agent's reply."""
    rules: str
    """Name of the current rule set."""
    was: str
    """valid or invalid."""
    now: str
    broken: tuple[RuleViolationShape, ...]
    """Rules broken now; for an artifact that is valid now, those broken then."""


class RecheckResult(Shape, frozen=True, kw_only=True):
    exit: int
    runs: tuple[str, ...]
    artifacts: int
    """Number of artifacts rechecked, including rejected attempts."""
    differing: tuple[RuleChangeShape, ...]
    left: tuple[UncheckedPart, ...]


class BrokenVariant(Shape, frozen=True, kw_only=True):
    """A variant that violates an invariant."""

    feature: str
    call: str | None
    """The recording, such as `code.a2`; null if only the order of the features was changed."""
    variant: str
    how: str
    """`memory`, or `crash`: mz was killed during the call and found the output afterwards."""
    end: str | None
    """State at the end; null: unnamed."""
    violations: tuple[str, ...]


class VariedCassette(Shape, frozen=True, kw_only=True):
    path: str
    played: int
    """Number of variants played."""
    ends: dict[str, int]
    """Number of variants by final state, such as `waiting (recording-missing)`."""
    broken: tuple[BrokenVariant, ...]


class VariantsResult(Shape, frozen=True, kw_only=True):
    exit: int
    cassettes: tuple[VariedCassette, ...]


class InjectResult(Shape, frozen=True, kw_only=True):
    exit: int
    path: str
    call: str
    """Feature and recording, such as `alpha/code.U1`."""
    fault: str
    what: str
    """Behaviour of the agent with the fault."""
    did: tuple[str, ...]
    """Reactions of the pipeline, in order."""
    end: str | None
    """Final state of the feature; null: unnamed."""


def finding_shape(finding: Finding, path: str) -> ReplayFinding:
    """Return the JSON form of a finding. `path`: its cassette."""
    return shape_of(
        ReplayFinding,
        finding,
        risk=risk_of(finding),
        exit=int(KIND_PROPERTIES[finding.kind].exit) if finding.fails else 0,
        fix=fix_command(finding.fix, (path,)),
    )
