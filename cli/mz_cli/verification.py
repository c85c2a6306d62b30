"""Verify the integrity of a log: the hash chain of every stream, and every blob that an event cites."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Literal

import msgspec
from mz_engine.home import HOME
from mz_events.chain import Damage
from mz_events.citations import cited
from mz_events.codec import CODEC
from mz_events.envelope import Stored
from mz_events.names import Digest, StreamId, feature_stream, inbox_stream, run_stream
from mz_events.store import BlobDamaged, BlobMissing, StoreUnusable, UnknownEvent

from mz_cli.context import Reading

FindingKind = Literal["chain", "event", "blob", "file"]
PATIENCE_SECONDS = 2.0
"""Minimum time between two progress messages."""
TICK = 500
SEVERAL = "log"
"""Event ref of findings that concern no single stream."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One deviation from what was recorded."""

    place: str
    """`stream@version`, or `log`."""
    kind: FindingKind
    what: str
    hint: str


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a verification."""

    events: int
    streams: int
    blobs: int
    findings: tuple[Finding, ...]
    elsewhere: int = 0
    """Number of findings in runs other than the selected one."""

    @property
    def whole(self) -> bool:
        return not self.findings


def verify_log(log: Reading, run: str | None, say: Callable[[str], None]) -> Verification:
    """Verify the log, or the events of one run.

    The chain is always verified over the full log, since missing events have no stream.
    """
    watch = _Watch(run, _patient(say))
    try:
        damages = log.store.verify(watch.see)
    except StoreUnusable as error:
        damages = (Damage("", 0, str(error)),)
    chain = tuple(_of_damage(damage) for damage in damages)
    mine = tuple(
        finding for finding in chain if finding.place in watch.gaps or watch.concerns(finding.place.partition("@")[0])
    )
    broken = {finding.place.partition("@")[0] for finding in chain}
    events = (finding for finding in watch.findings if finding.place.partition("@")[0] not in broken)
    blobs = tuple(_blobs(log, watch.cited, watch.tell))
    return Verification(
        events=watch.events, streams=len(watch.streams), blobs=len(watch.cited),
        findings=(*mine, *events, *blobs), elsewhere=len(chain) - len(mine),
    )  # fmt: skip


class _Watch:
    """Visitor of all events of the log; collects cited blobs and findings."""

    def __init__(self, run: str | None, tell: Callable[[str], None]) -> None:
        self._run, self.tell = run, tell
        self.events, self._seen, self._position = 0, 0, 0
        self.gaps: set[str] = set()
        """Event refs before which an event of an unknown stream is missing."""
        self.streams: set[StreamId] = set()
        self.cited: dict[Digest, list[str]] = {}
        self.findings: list[Finding] = []

    def concerns(self, stream: str) -> bool:
        """Return True if the stream is selected, or the finding has none."""
        run = self._run
        named = run is None or stream in (SEVERAL, run_stream(run), inbox_stream(run))
        return named or stream.startswith(feature_stream(run or "", ""))

    def see(self, event: Stored) -> None:
        self._seen += 1
        if self._seen % TICK == 0:
            self.tell(f"{self._seen} events checked")
        place = f"{event.stream}@{event.version}"
        if event.position != self._position + 1:
            self.gaps.add(place)
        self._position = event.position
        if not self.concerns(event.stream):
            return
        self.events += 1
        self.streams.add(event.stream)
        try:
            for digest in cited(CODEC.decode(event.type, event.schema, event.payload, place)):
                self.cited.setdefault(digest, []).append(place)
        except UnknownEvent as error:
            hint = "use the version of mz that wrote it; blobs of this event were not verified"
            self.findings.append(Finding(place=place, kind="event", what=str(error), hint=hint))
        except StoreUnusable as error:
            hint = "restore .mz/mz.db from a copy; blobs of this event were not verified"
            self.findings.append(Finding(place=place, kind="event", what=str(error), hint=hint))


def _of_damage(damage: Damage) -> Finding:
    if not damage.place:
        hint = f"restore {HOME}/mz.db from a copy; events after the damage were not verified"
        return Finding(place=SEVERAL, kind="file", what=damage.what, hint=hint)
    hint = f"restore {HOME}/mz.db from a copy: from here on the stream differs from what was recorded"
    return Finding(place=damage.place, kind="chain", what=damage.what, hint=hint)


def _blobs(log: Reading, cited: dict[Digest, list[str]], tell: Callable[[str], None]) -> Iterator[Finding]:
    for number, (digest, places) in enumerate(cited.items(), start=1):
        if number % TICK == 0:
            tell(f"{number} of {len(cited)} blobs checked")
        try:
            log.blobs.get(digest)
            continue
        except BlobDamaged:
            what = f"blob {digest} does not contain the recorded bytes"
        except BlobMissing:
            what = f"blob {digest} is missing"
        except StoreUnusable as error:
            what = f"blob {digest}: {error}"
        more = f"; {len(places) - 1} more events cite it" if len(places) > 1 else ""
        kept = log.blobs.path(digest).relative_to(log.home)
        yield Finding(place=places[0], kind="blob", what=what + more, hint=f"restore {kept} from a copy")


def _patient(say: Callable[[str], None]) -> Callable[[str], None]:
    """Return a function that reports at most every `PROGRESS_SECONDS`, so that quick checks are silent."""
    last = time.monotonic()

    def report_sometimes(text: str) -> None:
        nonlocal last
        if time.monotonic() - last >= PATIENCE_SECONDS:
            last = time.monotonic()
            say(text)

    return report_sometimes
