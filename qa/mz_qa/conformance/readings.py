"""Pure: what every adapter's parser must keep to: any bytes give a reading or a classified failure, never an exception.

From every stream that was recorded come its prefixes, and others by seeded damage: the same on every machine.

All prefixes of a stream are covered, though not all are parsed. A line that is a JSON object has no prefix that is one,
since the brace that opens it is closed by its last; so a parser that takes lines apart before it looks into them reads
all cuts inside such a line alike: as the lines before it, and one that is bad. That a parser does so is looked at in
every such line, behind its first brace, in its middle and before its last brace. In lines of any other kind, which
may hold words, every place is a cut of its own: all of them are parsed where a stream has few, else a sample, and
another one of those around the ends of such lines. So are lines of a stream that has more of them than `OBJECTS_MAX`.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Literal, NamedTuple, TypeVar, cast

import msgspec
from msgspec.structs import replace
from mz_engine.agents.contract import Adapter, Tells, Watch
from mz_engine.agents.jsonline import decode
from mz_engine.ports import CallResult, Reading
from mz_events.catalog.call import Problem, ProblemClass
from mz_recordings.findings import Finding

from mz_qa.conformance.contract import broken, told_by
from mz_qa.conformance.endings import ASKED, Ending
from mz_qa.layers.facts import Checked, Said

T = TypeVar("T")

OURS = Problem(kind=ProblemClass.TRANSIENT, code="timeout")
LYING_EXITS = (0, 1, 143, -9, None)
VALUES = (b"null", b"-1", b"1e999", b"[]", b"{}", b'"\\ud800"', b"[" * 2000, b"9" * 400, b"true", b"\xff\xfe", b"\0",
          b'"--help"')  # fmt: skip
"""What may stand where something else was expected."""
OBJECTS_MAX = 500
"""Objects of one stream that are cut."""
AROUND = (-2, -1, 0, 1)
"""Cuts at the end of a line of words, where a parser that takes words line by line may go wrong."""
FOUND_MAX = 3
"""Findings of one kind for one stream: the rest would only repeat them."""


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent once wrote."""

    name: str
    result: CallResult


def read_all(
    adapter: Adapter, endings: Sequence[Ending], failures: Sequence[Ending], streams: Sequence[Stream], budget: int
) -> Iterator[Said]:
    """The parser on all of them. `budget`, shared out evenly, is how many accidents and samples of cuts there are;
    parses beside it are those of objects (`OBJECTS_MAX`) and of line ends, whose number the streams decide. `failures`
    are of any agent."""
    for ending in (*endings, *failures):
        yield Checked("endings")
        yield from expected(adapter, ending)
    every = [*(Stream(name=one.name, result=one.result) for one in endings), *streams]
    share = max(20, budget // max(1, len(every)))
    for stream in every:
        yield from read_stream(adapter, stream, share)
    yield from complete(adapter, endings)
    yield from truthful(adapter, every)


def expected(adapter: Adapter, ending: Ending) -> Iterator[Finding]:
    """What is known of an ending is what the parser makes of it."""
    reading = attempt(adapter, ending.result)
    if isinstance(reading, str):
        yield broken(adapter, "parse_output", f"raises on the ending {ending.name}: {reading}")
        return
    problem, known = reading.problem, ending.expected
    found = (reading.terminal, problem.code if problem else "", problem.kind if problem else None)
    wait = problem.retry_after_seconds if problem else None
    if (*found, wait) != (known.terminal, known.code, known.kind, known.wait):
        words = ", ".join(str(part) for part in (*found, wait) if part)
        wanted = ", ".join(str(part) for part in (known.terminal, known.code, known.kind, known.wait) if part)
        yield broken(adapter, "parse_output", f"takes the ending {ending.name} for {words}; it is {wanted}")
    counted = (sum(one.input for one in reading.usage), sum(one.output for one in reading.usage))
    if known.tokens is not None and counted != known.tokens:
        yield broken(adapter, "parse_output", f"counts {counted} tokens in {ending.name}; they are {known.tokens}")
    if known.session is not None and reading.session != known.session:
        yield broken(
            adapter, "parse_output", f"reads the session {reading.session} in {ending.name}; it is {known.session}"
        )


def read_stream(adapter: Adapter, stream: Stream, share: int) -> Iterator[Said]:
    """One stream whole, with other exit codes, cut off, and damaged."""
    asked = Asked(adapter)
    same = cast("Adapter", asked)
    told = [*whole(same, stream), *prefixes(same, stream, share // 2), *damaged(same, stream, share // 2)]
    yield Checked("readings", asked.parses)
    for words in list(dict.fromkeys(told))[:FOUND_MAX]:
        yield broken(adapter, "parse_output", f"{words} (stream {stream.name})")


class Asked:
    """An adapter that knows how often its parser was asked."""

    def __init__(self, adapter: Adapter) -> None:
        self._adapter, self.parses = adapter, 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._adapter, name)

    def parse_output(self, result: CallResult, watch: Watch | None = None) -> Reading:
        """As the adapter does it. Raises what it raises."""
        self.parses += 1
        return self._adapter.parse_output(result) if watch is None else self._adapter.parse_output(result, watch)


def attempt(adapter: Adapter, result: CallResult) -> Reading | str:
    """A reading, or the exception in words."""
    try:
        return adapter.parse_output(result)
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:200]


def whole(adapter: Adapter, stream: Stream) -> Iterator[str]:
    """The same bytes read alike each time; the exit code does not decide; what we did to the call does."""
    first = attempt(adapter, stream.result)
    if isinstance(first, str):
        yield f"raises on a recorded stream: {first}"
        return
    if first != attempt(adapter, stream.result):
        yield "reads the same bytes differently"
    if first != adapter.parse_output(stream.result, dict):
        yield "reads the same bytes differently when it is watched"
    if first.terminal == "success" and first.problem is None:
        for code in LYING_EXITS:
            again = attempt(adapter, replace(stream.result, exit=code))
            if isinstance(again, str) or (again.terminal, again.problem) != ("success", None):
                yield f"believes exit code {code} rather than the stream's last word"
    ended = attempt(adapter, replace(stream.result, problem=OURS))
    if isinstance(ended, str) or ended.problem != OURS:
        yield "forgets that we ended the call"
    silent = attempt(adapter, replace(stream.result, stdout=b"", stderr=b"", exit=0))
    if isinstance(silent, str) or silent.terminal != "no-terminal" or silent.problem is None:
        yield "takes silence for an answer"


def prefixes(adapter: Adapter, stream: Stream, share: int) -> Iterator[str]:
    """Cut off before its last word, no stream is a success; wherever it is cut, it is read. That word may stand on
    standard error alone."""
    said = carrier(adapter, stream)
    data: bytes = getattr(stream.result, said)
    lines = list(accumulate(len(line) + 1 for line in data.split(b"\n")))
    verdict = next((end for end in lines if succeeds(adapter, replace(stream.result, **{said: data[:end]}))), None)
    if verdict is not None and said == "stderr":  # Words, which need not be there to their end.
        verdict = data.rfind(b"\n", 0, verdict - 1) + 2
    objects, words, ends = parted(data)
    last = (verdict if verdict is not None else len(data)) - 2
    around = sorted({end + by for end in ends for by in AROUND if 0 <= end + by <= len(data)})
    kept = {cut for each in objects for cut in (each.start, *each.inside, each.end)}
    kept |= {*spread(words, share), *spread(around, share)}
    kept |= {cut for cut in range(last - 1, last + 4) if 0 <= cut <= len(data)}
    readings = {cut: attempt(adapter, replace(stream.result, **{said: data[:cut]})) for cut in sorted(kept)}
    for cut, reading in readings.items():
        yield from unsound(adapter, reading)
        # The line end after the last word may be missing.
        good = not isinstance(reading, str) and reading.terminal == "success"
        if good and (verdict is None or cut < verdict - 1):
            yield "takes a stream that was cut off for a success"
    yield from torn(objects, readings)


class ObjectLine(NamedTuple):
    """Where a line that is a JSON object stands in its stream."""

    start: int
    inside: tuple[int, ...]
    """Cuts behind its first brace, in the middle, and before its last."""
    end: int


def parted(data: bytes) -> tuple[tuple[ObjectLine, ...], tuple[int, ...], tuple[int, ...]]:
    """The lines that are objects, every place in the others, and where those end."""
    objects: list[ObjectLine] = []
    words: list[int] = []
    ends: list[int] = []
    at = 0
    for line in data.split(b"\n"):
        end, close = at + len(line), at + line.rfind(b"}")
        if line.startswith(b"{") and decode(line) is not None:
            objects.append(ObjectLine(at, tuple(sorted({at + 1, (at + 1 + close) // 2, close})), end))
        else:
            words += range(at, end + 1)
            ends.append(end)
        at = end + 1
    return spread(objects, OBJECTS_MAX), tuple(words), tuple(ends)


def spread(every: Sequence[T], most: int) -> tuple[T, ...]:
    """All of them, or of too many some at equal distances."""
    return tuple(every[:: -(-len(every) // most)]) if every else ()


def torn(objects: Sequence[ObjectLine], readings: Mapping[int, Reading | str]) -> Iterator[str]:
    """An object that was cut off anywhere is a bad line, and nothing else comes of it."""
    for line in objects:
        before = readings[line.start]
        if isinstance(before, str):
            continue
        wanted = replace(before, bad_lines=before.bad_lines + 1)
        if any(not isinstance(readings[cut], str) and readings[cut] != wanted for cut in line.inside):
            yield "makes more of an object that was cut off than a bad line"


def carrier(adapter: Adapter, stream: Stream) -> Literal["stdout", "stderr"]:
    """Where the agent says how its call ended."""
    alone = replace(stream.result, stderr=b"")
    return "stderr" if succeeds(adapter, stream.result) and not succeeds(adapter, alone) else "stdout"


def succeeds(adapter: Adapter, result: CallResult) -> bool:
    reading = attempt(adapter, result)
    return not isinstance(reading, str) and reading.terminal == "success"


def damaged(adapter: Adapter, stream: Stream, share: int) -> Iterator[str]:
    """Damage that the stream's name decides."""
    dice, said = random.Random(stream.name), carrier(adapter, stream)
    for _ in range(share):
        data = damage(getattr(stream.result, said), dice)
        exit_code = dice.choice(LYING_EXITS)
        yield from unsound(adapter, attempt(adapter, replace(stream.result, **{said: data}, exit=exit_code)))


def damage(data: bytes, dice: random.Random) -> bytes:
    """The bytes with one to three accidents in them."""
    for _ in range(dice.randint(1, 3)):
        at, to = sorted(dice.randrange(len(data) + 1) for _ in range(2))
        to = min(to, at + dice.choice((1, 10, 1000)))
        lines = data.split(b"\n")
        match dice.randrange(6):
            case 0:
                data = data[:at] + dice.randbytes(dice.randint(1, 8)) + data[to:]
            case 1:
                data = data[:at] + data[to:]
            case 2:
                data = data[:to] + data[at:to] + data[to:]
            case 3:
                dice.shuffle(lines)
                data = b"\n".join(lines)
            case 4:
                data = b"\n".join(lines[: dice.randint(0, len(lines))] * 2)
            case _:
                data = revalued(data, dice)
    return data


def revalued(data: bytes, dice: random.Random) -> bytes:
    """With another value behind one of its colons."""
    colons = [found.start() for found in re.finditer(b":", data)]
    if not colons:
        return dice.choice(VALUES)
    at = dice.choice(colons) + 1
    ends = [end for end in (data.find(mark, at) for mark in (b",", b"}", b"\n")) if end >= 0]
    return data[:at] + dice.choice(VALUES) + data[min(ends, default=len(data)) :]


def unsound(adapter: Adapter, reading: Reading | str) -> Iterator[str]:
    """What no reading may be, whatever the bytes were."""
    if isinstance(reading, str):
        yield f"raises on damaged bytes: {reading}"
        return
    if reading.terminal not in ("success", "error", "no-terminal"):
        yield f"knows an ending {reading.terminal!r}"
    if reading.terminal != "success" and reading.problem is None:
        yield f"leaves the ending {reading.terminal} without a class"
    if reading.parser != adapter.parser:
        yield f"signs a reading as {reading.parser}"
    if reading.session is not None and (not reading.session or reading.session.startswith("-")):
        yield f"takes {reading.session!r} for a session, which its program would take for an option"
    yield from miscounted(reading)
    if reading.bad_lines < 0 or (reading.reported_nanousd or 0) < 0:
        yield "reports less than nothing"
    try:
        msgspec.json.encode(reading)
    except (msgspec.EncodeError, UnicodeError) as error:
        yield f"makes a reading that cannot be kept: {error}"


def miscounted(reading: Reading) -> Iterator[str]:
    """Numbers that no price can be put on."""
    for one in reading.usage:
        parts = (one.cache_read, one.cache_write_5m, one.cache_write_1h)
        if min(one.input, one.output, one.reasoning, *parts) < 0:
            yield "counts fewer than no tokens"
        if sum(parts) > one.input:
            yield "counts more tokens of a cache than it counts in all"
        if one.reasoning > one.output:
            yield "counts more reasoning than output"
        if not one.model:
            yield "counts tokens of a model without a name, though one was asked for"


NEEDED = frozenset({"", "auth-failure", "rate-limit", "no-terminal"})
"""Ends that must be stored of every agent, by code: it works, two that everybody meets, and none at all."""


def complete(adapter: Adapter, endings: Sequence[Ending]) -> Iterator[Said]:
    """The ends that matter most are there."""
    yield Checked("contract checks")
    lacking = NEEDED - {one.expected.code for one in endings}
    if lacking:
        named = ", ".join(sorted(code or "one that works" for code in lacking))
        yield broken(adapter, "fixtures", f"has stored streams, but not of these ends: {named}")


def truthful(adapter: Adapter, streams: Sequence[Stream]) -> Iterator[Said]:
    """What the capabilities say of the output is what its successes show, where real ones were recorded."""
    yield Checked("contract checks")
    said = adapter.capabilities()
    readings = [attempt(adapter, stream.result) for stream in streams]
    good = [one for one in readings if not isinstance(one, str) and one.terminal == "success"]
    if not good:
        yield broken(adapter, "capabilities", "has no recorded stream that ends well, so nothing shows what it can do")
        return
    shown: dict[str, object] = {
        "reports_money": any(one.reported_nanousd for one in good),
        "token_counting": "exact" if any(one.usage for one in good) else "estimate",
    }
    if said.sessions:
        shown["sessions"] = any(one.session for one in good)
    for name, value in shown.items():
        if getattr(said, name) != value:
            words = f"says {name}: {getattr(said, name)}, and its recorded streams show {value}"
            yield broken(adapter, "capabilities", words)
    for tells in said.tells:
        if tells.evidence == "recorded":
            of_version = [one for one in good if told_by(said, one.version) == tells]
            yield from outspoken(adapter, tells, of_version)


def outspoken(adapter: Adapter, tells: Tells, good: Sequence[Reading]) -> Iterator[Finding]:
    """Every word of what an agent's output is said to tell is shown by some success of these versions, and no more."""
    entries = [entry for reading in good for entry in reading.usage]
    hour, short = any(one.cache_write_1h for one in entries), any(one.cache_write_5m for one in entries)
    shown = {
        "model": any(entry.model != ASKED for entry in entries),
        "requests": any(len(one.usage) > 1 and all(entry.requests == 1 for entry in one.usage) for one in good),
        "money": any(one.reported_nanousd for one in good),
        "thoughts": any(one.reasoning for one in entries),
        "session": any(one.session for one in good),
        "cache_writes": "by lifetime" if hour else "total" if short else "no",
    }
    for name, value in shown.items():
        if getattr(tells, name) != value:
            words = f"since {tells.since or 'ever'} tells {name}: {getattr(tells, name)}; recorded streams show {value}"
            yield broken(adapter, "tells", words)
