"""Verify the integrity of a log: the hash chain of every stream, and every blob that an event cites."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec
from mz_engine.paths import MZ_FOLDER
from mz_events.catalog.inbox import BlobErased
from mz_events.chain import Damage
from mz_events.codec import CODEC, cited_digests, type_of
from mz_events.names import Digest, StreamId, is_of_run
from mz_events.seal import Seal
from mz_events.store import BlobDamaged, BlobMissing, Stored, StoreUnusable, UnknownEvent

from mz_cli.app.context import ProjectLog
from mz_cli.common.seals import check_seal
from mz_cli.terminal.console import print_note
from mz_cli.terminal.json import Shape

IntegrityFindingKind = Literal["chain", "event", "blob", "file", "seal"]
PROGRESS_INTERVAL = 20_000
"""Events or blobs between two progress messages: some seconds, so that quick checks are silent."""
LOG_REF = "log"
"""Event ref of findings that concern no single stream."""
SEAL_HINT = f"the log is not the one that was sealed: restore {MZ_FOLDER} from a copy, or check where the seal is from"


class IntegrityFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One deviation from what was recorded."""

    event_ref: str
    """`stream@version`, or `log`."""
    kind: IntegrityFindingKind
    message: str
    hint: str


class IntegrityResult(Shape, frozen=True, kw_only=True):
    """Result of checking the log's integrity."""

    intact: bool
    """No damage was found."""
    events: int
    streams: int
    blobs: int
    seals: tuple[str, ...]
    """The seals with which the log was compared: root, number of events, signature."""
    findings: tuple[IntegrityFinding, ...]


class VerifyResult(IntegrityResult, frozen=True, kw_only=True):
    """`mz audit --verify --json`."""

    repository: str
    run: str | None
    """Null: the whole log."""
    findings_elsewhere: int
    """Number of findings in other runs."""


def verify_log(
    log: ProjectLog, run: str | None, seals: Sequence[Seal] = (), signers: Path | None = None
) -> VerifyResult:
    """Verify the log, or the events of one run, and compare it with seals, with progress on stderr if that takes long.

    The chain is always verified over the full log, since missing events have no stream.
    """
    scan = _LogScan(run, {(stream, head.version) for seal in seals for stream, head in seal.heads.items()})
    try:
        damages = log.store.verify(scan.visit)
    except StoreUnusable as error:
        damages = (Damage("", 0, str(error)),)
    chain = tuple(_damage_finding(damage) for damage in damages)
    chain_findings = tuple(
        finding
        for finding in chain
        if finding.event_ref in scan.gaps or scan.includes(finding.event_ref.partition("@")[0])
    )
    damaged_streams = {StreamId(finding.event_ref.partition("@")[0]) for finding in chain}
    readable = all(damage.event_ref for damage in damages)
    checks = [check_seal(seal, scan.links, run, signers) for seal in seals if readable]
    for digest in (digest for digest in scan.erased if not log.blobs.path(digest).exists()):
        scan.cited.pop(digest, None)
    events = (finding for finding in scan.findings if finding.event_ref.partition("@")[0] not in damaged_streams)
    differing = (part for _, differences in checks for part in differences)
    sealed = (IntegrityFinding(event_ref=ref, kind="seal", message=text, hint=SEAL_HINT) for ref, text in differing)
    findings = (*chain_findings, *events, *sealed, *_blob_findings(log, scan.cited))
    return VerifyResult(
        repository=str(log.root), run=run, intact=not findings, findings=findings,
        seals=tuple(text for text, _ in checks), events=scan.events, streams=len(scan.streams), blobs=len(scan.cited),
        findings_elsewhere=len(chain) - len(chain_findings),
    )  # fmt: skip


class _LogScan:
    """Visitor of all events of the log; collects cited blobs and findings."""

    def __init__(self, run: str | None, sealed: Collection[tuple[StreamId, int]]) -> None:
        self._run, self._sealed = run, sealed
        self.links: dict[StreamId, dict[int, bytes]] = {}
        """Those of the sealed ends, and of the last event."""
        self.events, self._scanned_count, self._position = 0, 0, 0
        self.gaps: set[str] = set()
        """Event refs before which an event of an unknown stream is missing."""
        self.streams: set[StreamId] = set()
        self.cited: dict[Digest, list[str]] = {}
        self.erased: set[Digest] = set()
        self.findings: list[IntegrityFinding] = []

    def includes(self, stream: str) -> bool:
        """Return True if the stream is selected, or the finding has none."""
        return self._run is None or stream == LOG_REF or is_of_run(stream, self._run)

    def visit(self, event: Stored) -> None:
        self._scanned_count += 1
        if self._scanned_count % PROGRESS_INTERVAL == 0:
            print_note(f"{self._scanned_count} events checked")
        event_ref = f"{event.stream}@{event.version}"
        if event.position != self._position + 1:
            self.gaps.add(event_ref)
        self._position = event.position
        links = self.links.setdefault(event.stream, {})
        if event.version > 1 and (event.stream, event.version - 1) not in self._sealed:
            links.pop(event.version - 1, None)
        links[event.version] = event.chain
        included = self.includes(event.stream)
        if not included and event.type != type_of(BlobErased):  # What another run erased is erased for all.
            return
        self.events += included
        self.streams |= {event.stream} if included else set()
        try:
            decoded = CODEC.decode(event.type, event.schema, event.payload, event_ref)
            self.erased |= {decoded.blob} if isinstance(decoded, BlobErased) else set()
            for digest in cited_digests(decoded) if included else ():
                self.cited.setdefault(digest, []).append(event_ref)
        except (UnknownEvent, StoreUnusable) as error:
            unknown = isinstance(error, UnknownEvent)
            fix = "use the version of mz that wrote it" if unknown else "restore .mz/mz.db from a copy"
            hint = f"{fix}; blobs of this event were not verified"
            self.findings.append(IntegrityFinding(event_ref=event_ref, kind="event", message=str(error), hint=hint))


def _damage_finding(damage: Damage) -> IntegrityFinding:
    if not damage.event_ref:
        hint = f"restore {MZ_FOLDER}/mz.db from a copy; events after the damage were not verified"
        return IntegrityFinding(event_ref=LOG_REF, kind="file", message=damage.message, hint=hint)
    hint = f"restore {MZ_FOLDER}/mz.db from a copy: from here on the stream differs from what was recorded"
    return IntegrityFinding(event_ref=damage.event_ref, kind="chain", message=damage.message, hint=hint)


def _blob_findings(log: ProjectLog, cited: dict[Digest, list[str]]) -> Iterator[IntegrityFinding]:
    for number, (digest, event_refs) in enumerate(cited.items(), start=1):
        if number % PROGRESS_INTERVAL == 0:
            print_note(f"{number} of {len(cited)} blobs checked")
        try:
            log.blobs.get(digest)
            continue
        except BlobDamaged:
            message = f"blob {digest} does not contain the recorded bytes"
        except BlobMissing:
            message = f"blob {digest} is missing"
        except StoreUnusable as error:
            message = f"blob {digest}: {error}"
        more = f"; {len(event_refs) - 1} more events cite it" if len(event_refs) > 1 else ""
        hint = f"restore {log.blobs.path(digest).relative_to(log.root)} from a copy"
        yield IntegrityFinding(event_ref=event_refs[0], kind="blob", message=message + more, hint=hint)
