"""JSON documents of `mz recordings` and `mz rerecord`."""

from __future__ import annotations

from mz_recordings.findings.lint import LintNotice
from mz_recordings.record.fixture import ExcludedFeature

from mz_cli.replay.json import RecordingDifference, ReplayFinding
from mz_cli.terminal.json import Shape


class CassetteLine(Shape, frozen=True, kw_only=True):
    """One cassette. Unknown values are null; then `problem` has the reason."""

    path: str
    name: str | None
    pipeline: str | None
    agent: str | None
    provenance: str | None
    """`live`, `scripted-model`, `documented` or `copied`."""
    recordings: int
    features: tuple[str, ...]
    recorded: str | None
    """Start of the recorded run; ISO 8601, UTC."""
    age_days: int | None
    max_age_days: int | None
    """Days until its replies expire; null: never."""
    format: int | None
    bytes: int
    problem: str | None
    """Reason why it cannot be replayed. Only `mz recordings lint` reads every file; null here is no proof."""


class CassetteList(Shape, frozen=True, kw_only=True):
    exit: int
    library: tuple[str, ...]
    """Searched folders."""
    cassettes: tuple[CassetteLine, ...]


class LintedCassette(Shape, frozen=True, kw_only=True):
    path: str
    format: int | None
    recordings: int
    files: int
    bytes: int
    findings: tuple[ReplayFinding, ...]
    notices: tuple[LintNotice, ...]


class RecordingsLint(Shape, frozen=True, kw_only=True):
    exit: int
    cassettes: tuple[LintedCassette, ...]


class RerecordCall(Shape, frozen=True, kw_only=True):
    """A call to be re-recorded."""

    call: str
    """Feature and name, such as `login/code.a2`."""
    why: tuple[str, ...]
    """PROMPT, CONFIG, FILES, STREAM, EXPIRED, COPIED, MISSING; ASKED: named on the command line; AGENT: another agent
    is to reply."""
    follows: str | None
    """Call or feature whose new reply probably changes this call's prompt."""
    paid: bool
    """An earlier, incomplete attempt already has the reply."""
    estimated_tokens: int
    estimated_nanousd: int | None
    """Null: unpriced."""


class RerecordedCassette(Shape, frozen=True, kw_only=True):
    path: str
    planned: tuple[RerecordCall, ...] = ()
    called: tuple[str, ...] = ()
    """Calls made to the real agent."""
    served: tuple[str, ...] = ()
    """Calls served from recordings."""
    spent_nanousd: int = 0
    """Cost of `called`: the higher of reported and computed."""
    stopped: str = ""
    """`interrupted`, `budget`, or the code of a problem that further calls cannot fix; null: completed."""
    kept: tuple[str, ...] = ()
    """Features with accepted new recordings."""
    dropped: tuple[ExcludedFeature, ...] = ()
    differences: tuple[RecordingDifference, ...] = ()
    refused: tuple[str, ...] = ()
    """Classes of differences that were not accepted."""
    written: bool = False
    """The cassette holds the new recordings."""
    waits: str = ""
    """Path of the new cassette that waits to be accepted."""
    backup: str = ""
    """Path of a copy, if the cassette had an older format: none is read so far."""
    helps: str = ""
    """Command to run next."""


class RerecordReport(Shape, frozen=True, kw_only=True):
    exit: int
    budget_nanousd: int | None
    cassettes: tuple[RerecordedCassette, ...]
