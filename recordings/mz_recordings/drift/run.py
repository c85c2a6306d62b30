"""Drift check: the cassettes of a library against the current project, or two cassettes against each other, without
known noise."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec
from msgspec.structs import replace
from mz_engine.adapters.prices import GenaiPrices
from mz_engine.errors import MzError
from mz_engine.pins import Pins

from mz_recordings.cassette import Cassette
from mz_recordings.drift.difference import Difference
from mz_recordings.drift.drift import differences
from mz_recordings.drift.known import Known
from mz_recordings.drift.noise import Heard, Noise, Refusal, refusal_of, without_noise
from mz_recordings.drift.noisefile import NAME, add_noise
from mz_recordings.drift.noiselearn import learn, may_match
from mz_recordings.drift.static import check, judged
from mz_recordings.files.library import CassetteUnusable, load
from mz_recordings.findings import Finding, Played
from mz_recordings.mending import ALL
from mz_recordings.playing.compare import by_itself, counted
from mz_recordings.playing.fleet import play_all
from mz_recordings.playing.replay import Job, placed, unplayable
from mz_recordings.playing.today import pins_of
from mz_recordings.recording.scratch import WorldMissing
from mz_recordings.wire.check import check_wires


class Drifted(msgspec.Struct, frozen=True, kw_only=True):
    """Findings without noise, and the noise."""

    played: tuple[Played, ...]
    hidden: tuple[tuple[Noise, int], ...] = ()
    """Entries that hid something, each with the number of differences."""
    quiet: int = 0
    """Number of hidden differences."""
    learned: tuple[Noise, ...] = ()
    refused: tuple[Refusal, ...] = ()


# current project ------------------------------------------------------------------------------------------------------
def check_today(
    jobs: tuple[Job, ...],
    known: Known,
    *,
    static: bool,
    whole: bool,
    workers: int,
    tell: Callable[[Played], None],
    reason: str = "",
) -> Drifted:
    """Compare each cassette with the current parsers, prices, rules and baselines, and unless `static` replay it.

    `is_whole_library`: these are all its cassettes. With a `reason`, differences that can be noise are added to the
    library's file.
    """
    played = (None,) * len(jobs) if static else play_all(jobs, workers, tell)
    found, cassettes, through = [], list[Cassette](), _Today()
    for job, one in zip(jobs, played, strict=True):
        cassette, result, plain = _checked(job, one, known, through)
        cassettes += [cassette] if cassette else []
        found.append((cassette.manifest.name if cassette else "", result, plain))
    drifted = _heard(found, known, reason)
    drifted = replace(drifted, played=tuple(placed(one, Path(jobs[0].project)) for one in drifted.played))
    aged = tuple(_aged(known, cassettes, whole and len(cassettes) == len(jobs)))
    return replace(drifted, played=(*drifted.played, *aged))


def _checked(
    job: Job, played: Played | None, known: Known, today: _Today
) -> tuple[Cassette | None, Played, tuple[Difference, ...]]:
    """Return the cassette if it is readable, the result of its replay, and the differences found without a replay."""
    path = Path(job.path)
    result = played or Played(path=job.path, name=path.name)
    try:
        cassette = load(path)
    except CassetteUnusable as error:
        return None, result if played else replace(result, findings=(unplayable(error),)), ()
    manifest = cassette.manifest
    result = replace(
        result,
        name=manifest.name,
        provenance=manifest.provenance,
        recordings=len(cassette.taken),
        predates=counted(cassette),
        calls=tuple(one.recording.identity.path for one in cassette.taken),
    )
    pins, problem = today.pins(job, cassette)
    if problem is not None and played is None:
        result = replace(result, findings=(problem,))
    if manifest.provenance == "seeded":
        plain = tuple(Difference(finding) for finding in by_itself(cassette, job.today))
    else:
        prices = GenaiPrices(pins.config.prices if pins is not None else ())
        plain = (*check(cassette, pins, prices, job.today), *check_wires(cassette, known.baselines, known.described))
        result = replace(result, judged=judged(cassette, pins) if pins is not None else 0)
    return cassette, result, tuple(each for each in plain if not _told(each.finding, result.findings))


class _Today:
    """Caches the current pins, which many cassettes share."""

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[Pins | None, Finding | None]] = {}

    def pins(self, job: Job, cassette: Cassette) -> tuple[Pins | None, Finding | None]:
        manifest = cassette.manifest
        key = msgspec.json.encode((job.project, manifest.pipeline, manifest.agent, manifest.world.config))
        if key not in self._known:
            try:
                self._known[key] = pins_of(Path(job.project), job.environment, manifest, 1), None
            except (WorldMissing, MzError) as error:
                self._known[key] = None, unplayable(error)
        return self._known[key]


def _told(finding: Finding, known: tuple[Finding, ...]) -> bool:
    """Return True if the replay reported the finding too."""
    by_cassette = (finding.kind, finding.what) in {(one.kind, one.what) for one in known}
    return by_cassette or (
        bool(finding.feature) and (finding.kind, finding.feature) in {(one.kind, one.feature) for one in known}
    )


# two cassettes --------------------------------------------------------------------------------------------------------
def compare_two(old: Path, new: Path, known: Known, reason: str = "") -> Drifted:
    """Compare two recordings of the same calls. Copied replies are rejected."""
    try:
        was, now = load(old), load(new)
    except CassetteUnusable as error:
        return Drifted(played=(Played(path=str(error.path), name=old.name, findings=(unplayable(error),)),))
    names = (was.manifest.name, now.manifest.name)
    result = Played(path=str(old), name=names[0], provenance=now.manifest.provenance, recordings=len(now.taken))
    seeded = [one.manifest.name for one in (was, now) if one.manifest.provenance == "seeded"]
    if seeded:
        what = (
            f"the replies of {', '.join(dict.fromkeys(seeded))} were copied from another agent: nothing can be compared"
        )
        return Drifted(played=(replace(result, findings=(Finding(kind="SEEDED", what=what, mend=ALL),)),))
    drifted = _heard([(names[0], result, differences(was, now, known.described))], known, reason, names)
    return replace(drifted, played=(*drifted.played, *_aged(known, [was, now], False)))


# noise ----------------------------------------------------------------------------------------------------------------
def _heard(
    found: list[tuple[str, Played, tuple[Difference, ...]]], known: Known, reason: str, names: tuple[str, ...] = ()
) -> Drifted:
    entries, learned, refused = known.noise, list[Noise](), list[Refusal]()
    if reason:
        for name, _, plain in found:
            more, against = learn(without_noise(plain, entries, (name, *names)).kept, name, reason, known.today)
            learned += more
            refused += against
        if learned:
            add_noise(known.library, tuple(learned))
        entries = (*entries, *learned)
    heard = [(result, without_noise(plain, entries, (name, *names))) for name, result, plain in found]
    return Drifted(
        played=tuple(_merged(result, each) for result, each in heard),
        hidden=tuple(_sums(each for _, each in heard)),
        quiet=sum(each.differences for _, each in heard),
        learned=tuple(learned),
        refused=tuple(refused),
    )


def _merged(result: Played, heard: Heard) -> Played:
    return replace(result, findings=(*result.findings, *(each.finding for each in heard.kept)))


def _sums(heard: Iterable[Heard]) -> Iterator[tuple[Noise, int]]:
    times: dict[Noise, int] = {}
    for each in heard:
        for entry, count in each.hidden:
            times[entry] = times.get(entry, 0) + count
    yield from times.items()


def _aged(known: Known, cassettes: list[Cassette], whole: bool) -> Iterator[Played]:
    """Yield findings for noise entries that have expired or match nothing. An entry for all cassettes is only reported
    as unmatched if the `is_whole_library` library was read."""
    path, found = str(known.library / NAME), list[Finding]()
    names = {cassette.manifest.name for cassette in cassettes}
    for at, entry in enumerate(known.noise, start=1):
        place, mend = f"entry {at} ({entry.kind} {entry.path})", f"remove entry {at} from {{cassette}}"
        if refusal_of(entry, known.today) == "EXPIRED":
            what = f"EXPIRED: {place} was valid until {entry.until}"
            found.append(Finding(kind="STALE", what=what, cause="EXPIRED", mend=f"{mend}, or change its date"))
        elif (whole or entry.cassette in names) and not any(may_match(entry, each) for each in cassettes):
            what = f"UNUSED_ENTRY: {place} matches nothing any more"
            found.append(Finding(kind="UNUSED", what=what, cause="UNUSED_ENTRY", mend=mend))
    if found:
        yield Played(path=path, name=NAME, findings=tuple(found))
