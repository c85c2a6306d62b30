"""Outputs of a call in two recordings: artifacts, files, tokens and cost, stream shape."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import NamedTuple

from mz_engine.agents.contract import Adapter
from mz_engine.ports import CallResult, Reading
from mz_events.catalog.call import Problem, ProblemClass

from mz_recordings.cassette import Kind, Recording, Taken
from mz_recordings.drift.difference import Atom, Difference, Pair
from mz_recordings.drift.patches import changed_files
from mz_recordings.drift.structure import structure
from mz_recordings.findings import Finding, FindingKind, Risk
from mz_recordings.mending import ALL, again
from mz_recordings.playing.compare import lines_of
from mz_recordings.wire.diff import bounded, compare_wires, findings
from mz_recordings.wire.wire import Stream, observe

GROWTH_MAX = 0.5
"""Share of change in tokens or cost above which the risk is medium."""
LINES_MATCHED_MAX = 2000
"""Maximum lines of a text to match with each other, which takes quadratic time."""
NANOUSD_PER_USD = 10**9


# artifacts ------------------------------------------------------------------------------------------------------------
class Text(NamedTuple):
    """An artifact of a recording."""

    artifact: str
    path: str
    name: str
    text: str


def texts(one: Taken) -> dict[str, Text]:
    """Return the artifacts of a recording, by name in the pipeline and path."""
    found = {}
    for file in one.recording.files:
        if file.kind == "artifact":
            text = one.contents[file.name].decode("utf-8", "replace")
            found[f"{file.artifact} {file.path}".strip()] = Text(file.artifact, file.path, file.name, text)
    return found


def of_artifacts(pair: Pair) -> Iterator[Difference]:
    """Yield differences in structure; where that is equal, in text."""
    before, after = texts(pair.old), texts(pair.new)
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old is None or new is None:
            change = "is missing from the new recording" if new is None else "is only in the new recording"
            yield _of(pair, "ARTIFACT", f"the artifact {name} {change}", (old or after[name]).artifact, (), "high")
        elif old.text != new.text:
            yield _artifact(pair, old, new)


def _artifact(pair: Pair, old: Text, new: Text) -> Difference:
    built, builds = structure(old.text, old.name), structure(new.text, new.name)
    if built != builds:
        lost = set(built) - set(builds) or [part for part in builds if part in built] != list(built)
        what = (
            f"the artifact {old.artifact} has another structure"
            if lost
            else f"the artifact {old.artifact} has additional parts"
        )
        return _of(pair, "ARTIFACT", what, old.artifact, lines_of(built, builds), "high" if lost else "low")
    before, after = old.text.splitlines(), new.text.splitlines()
    whole = (Atom(f"{old.artifact}.text"),)
    short = max(len(before), len(after)) <= LINES_MATCHED_MAX
    atoms = (tuple(_line_atoms(f"{old.artifact}.text", before, after)) if short else ()) or whole
    what = f"the artifact {old.artifact} has the same structure and another text"
    return _of(pair, "ARTIFACT", what, f"{old.artifact}.text", lines_of(before, after), "low", atoms)


def _line_atoms(path: str, before: list[str], after: list[str]) -> Iterator[Atom]:
    """Yield the differing lines in pairs of old and new."""
    for tag, low, high, first, end in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        old, new = before[low:high], after[first:end]
        for at in range(max(len(old), len(new))):
            yield Atom(path, old[at] if at < len(old) else "", new[at] if at < len(new) else "")


# files ----------------------------------------------------------------------------------------------------------------
def of_effects(pair: Pair) -> Iterator[Difference]:
    """Yield differences in the set of changed files, else in their content."""
    was, now = pair.old.recording, pair.new.recording
    before, after = changed_files(content(pair.old, "patch")), changed_files(content(pair.new, "patch"))
    old, new = (
        [f"{change.kind} {change.mode} {path}" for path, change in sorted(changes.items())]
        for changes in (before, after)
    )
    if old != new:
        yield _of(pair, "EFFECT", "other files are changed", "files", lines_of(old, new))
    artifacts = {text.path for one in (pair.old, pair.new) for text in texts(one).values()}
    other = [path for path in before if path in after and before[path] != after[path] and path not in artifacts]
    if other and old == new:
        what = "the same files are changed, with other content"
        yield _of(pair, "EFFECT", what, "content", tuple(f"  {path}" for path in other), "low")
    if was.offences != now.offences:
        changes = [[f"{change.kind} {change.path}" for change in recording.offences] for recording in (was, now)]
        yield _of(pair, "EFFECT", "other changes that no patch can hold", "offences", lines_of(*changes))


# tokens and cost ------------------------------------------------------------------------------------------------------
def reading_of(one: Taken, adapters: Mapping[str, Adapter]) -> Reading | None:
    """Parse the recorded stream with the current parser; None for an agent unknown to this `mz`."""
    adapter = adapters.get(one.recording.agent)
    return None if adapter is None else adapter.parse_output(result_of(one))


def result_of(one: Taken) -> CallResult:
    """Return the result of the call, with tokens in place of paths and sessions."""
    recording, failure = one.recording, one.recording.failure
    return CallResult(
        stdout=content(one, "stdout"),
        stderr=content(one, "stderr"),
        exit=recording.exit,
        duration_ms=recording.duration_ms,
        problem=Problem(kind=ProblemClass(failure.kind), code=failure.code) if failure else None,
        version=recording.version,
        model=recording.model,
        earlier=recording.earlier,
    )


def amounts(reading: Reading) -> dict[str, int | str | None]:
    """Return token totals, cost and models by the path that noise entries use."""
    usage = reading.usage
    return {
        "usage.input": sum(one.input for one in usage),
        "usage.output": sum(one.output for one in usage),
        "usage.cache_read": sum(one.cache_read for one in usage),
        "usage.cache_write": sum(one.cache_write_5m + one.cache_write_1h for one in usage),
        "reported": reading.reported_nanousd,
        "models": ", ".join(sorted({one.model for one in usage})),
    }


def of_costs(pair: Pair, adapters: Mapping[str, Adapter]) -> Iterator[Difference]:
    """Yield differences in tokens and cost, both read by the current parser."""
    old, new = reading_of(pair.old, adapters), reading_of(pair.new, adapters)
    if old is None or new is None:
        return
    before, after = amounts(old), amounts(new)
    differing = [path for path in before if before[path] != after[path]]
    if differing:
        atoms = tuple(Atom(path, _plain(before[path]), _plain(after[path])) for path in differing)
        detail = tuple(
            line for path in differing
            for line in (f"- {path}: {_shown(path, before[path])}", f"+ {path}: {_shown(path, after[path])}")
        )  # fmt: skip
        grave = any((change := grown(atom)) is None or abs(change) > GROWTH_MAX for atom in atoms)
        what = "tokens or cost differ"
        yield _of(pair, "COST", what, "tokens", detail, "medium" if grave else "low", atoms)


def grown(atom: Atom) -> Fraction | None:
    """Return the relative growth of a number, exactly; None if undefined."""
    try:
        old, new = int(atom.old), int(atom.new)
    except ValueError:
        return None
    return Fraction(new - old, old) if old else None


def _plain(value: int | str | None) -> str:
    return "" if value is None else str(value)


def _shown(path: str, value: int | str | None) -> str:
    if path == "reported" and isinstance(value, int):
        return f"${value / NANOUSD_PER_USD:.6f}"
    return "unknown" if value is None else str(value)


# ends and streams -----------------------------------------------------------------------------------------------------
def of_ends(pair: Pair) -> Iterator[Difference]:
    """Yield differences in the end of the process."""
    old, new = _end(pair.old.recording), _end(pair.new.recording)
    if old != new:
        yield _of(pair, "EVENT", "the call ends differently", "end", (f"- {old}", f"+ {new}"))
    before, after = (content(one, "stderr").decode("utf-8", "replace").splitlines() for one in (pair.old, pair.new))
    if before != after:
        yield _of(pair, "WIRE", "stderr differs", "stderr", lines_of(before, after), "low")


def _end(recording: Recording) -> str:
    failure = f", {recording.failure.kind} {recording.failure.code}" if recording.failure else ""
    return f"{recording.outcome}, exit {recording.exit}{failure}"


def of_wires(pairs: Iterable[Pair], adapters: Mapping[str, Adapter]) -> Iterator[Difference]:
    """Yield differences in the combined shape of all streams of an agent: a single call need not have all events."""
    known = tuple(pairs)
    for agent, adapter in adapters.items():
        mine = [pair for pair in known if pair.old.recording.agent == pair.new.recording.agent == agent]
        if not mine:
            continue
        old, new = (
            observe(agent, _versions(ones), streams_of(ones), adapter)
            for ones in zip(*((p.old, p.new) for p in mine), strict=True)
        )
        changes = compare_wires(old.wire, new, adapter, alike=True)
        mended = [f"  {where}: {words}" for where, words in old.broken if (where, words) not in new.broken]
        if mended:
            what = "frames that were broken are intact now"
            finding = Finding(kind="WIRE", what=what, cause="frames", detail=bounded(mended), mend=ALL, risk="low")
            yield Difference(finding)
        new = new._replace(broken=tuple(one for one in new.broken if one not in old.broken))
        for finding in findings(changes, new, "the old recording", ALL):
            lows = [Atom(change.name) for change in changes if change.risk == "low"]
            yield Difference(finding, tuple(lows) if finding.risk == "low" else ())


def _versions(ones: Iterable[Taken]) -> str:
    return ", ".join(sorted({one.recording.version for one in ones}))


def streams_of(ones: Iterable[Taken]) -> Iterator[Stream]:
    for one in ones:
        yield Stream(one.recording.identity.path, result_of(one), one.recording.outcome == "replied")


def content(one: Taken, kind: Kind) -> bytes:
    file = one.recording.find(kind)
    return b"" if file is None else one.contents[file.name]


def _of(
    pair: Pair, kind: FindingKind, what: str, cause: str, detail: tuple[str, ...], risk: Risk | None = None,
    atoms: tuple[Atom, ...] = (),
) -> Difference:  # fmt: skip
    finding = Finding(
        kind=kind,
        what=what,
        feature=pair.identity.feature,
        call=pair.identity.name,
        cause=cause,
        detail=detail,
        mend=again(pair.identity),
        risk=risk,
    )
    return Difference(finding, atoms)
