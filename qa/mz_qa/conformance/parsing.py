"""Checks of an adapter's parser: any bytes give a parsed reply or a classified problem, never an exception.

Every recorded stream is parsed complete, cut off, and with seeded damage, the same on every machine. The cuts are a
sample of all, those around the ends of its lines, and one inside each line with a JSON object. Each field of the
streams' objects is replaced by each type of JSON, once for all objects of the same kind."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Literal, TypeVar

import msgspec
from msgspec.structs import replace
from mz_engine.agents.contract import Adapter, ReportedFields
from mz_engine.agents.reading.json_lines import decode_object
from mz_engine.ports import CallResult, ParsedReply
from mz_events.catalog.call import Problem, ProblemClass
from mz_recordings.findings.model import Finding

from mz_qa.conformance.contract import adapter_finding, fields_for_version
from mz_qa.conformance.endings import REQUESTED_MODEL, StoredEnding, Stream
from mz_qa.results import CheckedItem, LayerOutput

T = TypeVar("T")

OWN_PROBLEM = Problem(kind=ProblemClass.TRANSIENT, code="timeout")
OTHER_EXITS = (0, 1, 143, -9, None)
VALUES = (b"null", b"-1", b"1e999", b"[]", b"{}", b'"\\ud800"', b"[" * 2000, b"9" * 400, b"true", b"\xff\xfe", b"\0",
          b'"--help"')  # fmt: skip
"""Unexpected values to insert."""
FIELD_VALUES: tuple[object, ...] = (None, True, -1, 0.5, 10**30, "", "text", [], ["text"], [{}], {}, {"text": {}})
"""Values that replace each field."""
FIELDS_MAX = 400
"""Maximum number of fields per adapter; the agents have 100 to 200."""
DEPTH_MAX = 20
"""Maximum depth of a replaced field."""
LINES_MAX = 500
"""Maximum number of lines per stream to cut at or in."""
CUT_OFFSETS = (-3, -2, -1, 0)
"""Cuts around the end of a line, relative to the start of the next one."""
FINDINGS_MAX = 3
"""Maximum number of findings per stream; more would repeat them."""
_encoder = msgspec.json.Encoder(decimal_format="number")


def check_parser(
    adapter: Adapter,
    endings: Sequence[StoredEnding],
    failures: Iterable[StoredEnding],
    streams: Sequence[Stream],
    budget: int,
) -> Iterator[LayerOutput]:
    """Check the parser on all endings and streams. `budget` is the number of damaged streams and sampled cuts, shared
    evenly by the streams; cuts at lines (`LINES_MAX`) come on top. `failures` apply to any agent."""
    for ending in (*endings, *failures):
        yield CheckedItem("endings")
        yield from check_ending(adapter, ending)
    all_streams = [*endings, *streams]
    share = max(20, budget // max(1, len(all_streams)))
    for stream in all_streams:
        yield from check_stream(adapter, stream, share)
    yield from check_fields(adapter, all_streams)
    yield from check_coverage(adapter, endings)
    yield from check_capabilities(adapter, all_streams)


def check_ending(adapter: Adapter, ending: StoredEnding) -> Iterator[Finding]:
    """The parse of an ending is the expected one."""
    reading = try_parse(adapter, ending.result)
    if isinstance(reading, str):
        yield adapter_finding(adapter, "parse_output", f"raises on the ending {ending.name}: {reading}")
        return
    expected, problem = ending.expected, reading.problem
    parsed: dict[str, object] = {
        "terminal": reading.ending,
        "code": problem.code if problem else "",
        "kind": problem.kind if problem else None,
        "wait": problem.retry_after_seconds if problem else None,
    }
    if expected.tokens is not None:
        parsed["tokens"] = (sum(entry.input for entry in reading.usage), sum(entry.output for entry in reading.usage))
    if expected.session is not None:
        parsed["session"] = reading.session
    for name, value in parsed.items():
        if value != (wanted := getattr(expected, name)):
            message = f"parses the {name} of the ending {ending.name} as {value}; expected {wanted}"
            yield adapter_finding(adapter, "parse_output", message)


def check_stream(adapter: Adapter, stream: Stream, share: int) -> Iterator[LayerOutput]:
    """Check one stream: complete, with other exit codes, cut off, and damaged."""
    yield CheckedItem("streams")
    problems = [
        *check_complete(adapter, stream),
        *check_prefixes(adapter, stream, share // 2),
        *check_cut_objects(adapter, stream),
        *check_damaged(adapter, stream, share // 2),
    ]
    for problem in list(dict.fromkeys(problems))[:FINDINGS_MAX]:
        yield adapter_finding(adapter, "parse_output", f"{problem} (stream {stream.name})")


def try_parse(adapter: Adapter, result: CallResult) -> ParsedReply | str:
    """Parse; return the exception as text if it raises."""
    try:
        return adapter.parse_output(result)
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:200]


def check_complete(adapter: Adapter, stream: Stream) -> Iterator[str]:
    """Parsing is deterministic; the exit code does not decide; a problem caused by mz does."""
    first = try_parse(adapter, stream.result)
    if isinstance(first, str):
        yield f"raises on a recorded stream: {first}"
        return
    if first != try_parse(adapter, stream.result):
        yield "reads the same bytes differently"
    if first != adapter.parse_output(stream.result, dict):
        yield "reads the same bytes differently with an observer"
    if first.ending == "success" and first.problem is None:
        for code in OTHER_EXITS:
            other = try_parse(adapter, replace(stream.result, exit=code))
            if isinstance(other, str) or (other.ending, other.problem) != ("success", None):
                yield f"believes exit code {code} rather than the stream's final event"
    ended = try_parse(adapter, replace(stream.result, problem=OWN_PROBLEM))
    if isinstance(ended, str) or ended.problem != OWN_PROBLEM:
        yield "ignores that mz ended the call"
    silent = try_parse(adapter, replace(stream.result, stdout=b"", stderr=b"", exit=0))
    if isinstance(silent, str) or silent.ending != "no-terminal" or silent.problem is None:
        yield "takes empty output for a reply"


def check_prefixes(adapter: Adapter, stream: Stream, share: int) -> Iterator[str]:
    """A stream cut before its final event (which may be on standard error) is no success; every cut is parsed."""
    channel = final_event_stream(adapter, stream)
    data: bytes = getattr(stream.result, channel)
    lines = list(accumulate(len(line) + 1 for line in data.split(b"\n")))
    verdict = next((end for end in lines if succeeds(adapter, replace(stream.result, **{channel: data[:end]}))), None)
    if verdict is not None and channel == "stderr":  # Text, which need not be complete.
        verdict = data.rfind(b"\n", 0, verdict - 1) + 2
    last_byte = (verdict if verdict is not None else len(data)) - 2
    edge_cuts = [end + by for end in sample_evenly(lines, LINES_MAX) for by in CUT_OFFSETS]
    cuts = {*sample_evenly(range(len(data)), share), *edge_cuts, *range(last_byte - 1, last_byte + 4)}
    for cut in sorted(cut for cut in cuts if 0 <= cut <= len(data)):
        reading = try_parse(adapter, replace(stream.result, **{channel: data[:cut]}))
        yield from reply_errors(adapter, reading)
        # The newline after the final event may be missing.
        is_success = not isinstance(reading, str) and reading.ending == "success"
        if is_success and (verdict is None or cut < verdict - 1):
            yield "parses a cut-off stream as a success"


def check_cut_objects(adapter: Adapter, stream: Stream) -> Iterator[str]:
    """A cut-off object is one bad line and has no other effect."""
    channel = final_event_stream(adapter, stream)
    data: bytes = getattr(stream.result, channel)
    lines = [(match.start(), match[0]) for match in re.finditer(rb"^\{.*", data, re.MULTILINE)]
    for start, line in sample_evenly([entry for entry in lines if decode_object(entry[1]) is not None], LINES_MAX):
        prefixes = (data[:start], data[: start + len(line) // 2])
        before, after = (try_parse(adapter, replace(stream.result, **{channel: prefix})) for prefix in prefixes)
        if isinstance(before, str) or isinstance(after, str):
            continue
        if after != replace(before, undecodable_lines=before.undecodable_lines + 1):
            yield "parses a cut-off object as more than a bad line"


def sample_evenly(values: Sequence[T], count_max: int) -> Sequence[T]:
    """Return all values, or a sample at equal distances."""
    return values[:: -(-len(values) // count_max)] if values else ()


def final_event_stream(adapter: Adapter, stream: Stream) -> Literal["stdout", "stderr"]:
    """Return the stream with the agent's final event."""
    without_stderr = replace(stream.result, stderr=b"")
    return "stderr" if succeeds(adapter, stream.result) and not succeeds(adapter, without_stderr) else "stdout"


def succeeds(adapter: Adapter, result: CallResult) -> bool:
    reading = try_parse(adapter, result)
    return not isinstance(reading, str) and reading.ending == "success"


def check_damaged(adapter: Adapter, stream: Stream, share: int) -> Iterator[str]:
    """Check streams with damage seeded by the stream's name."""
    rng, channel = random.Random(stream.name), final_event_stream(adapter, stream)
    for _ in range(share):
        data = damage(getattr(stream.result, channel), rng)
        exit_code = rng.choice(OTHER_EXITS)
        yield from reply_errors(adapter, try_parse(adapter, replace(stream.result, **{channel: data}, exit=exit_code)))


def check_fields(adapter: Adapter, streams: Sequence[Stream]) -> Iterator[LayerOutput]:
    """Check that any value of any field of any object is parsed."""
    yield CheckedItem("contract checks")
    channels: tuple[Literal["stdout", "stderr"], ...] = ("stdout", "stderr")
    examined: set[str] = set()
    problems = dict.fromkeys(
        f"{problem} (stream {stream.name}, {location})"
        for stream in streams
        for channel in channels
        for location, data in replace_fields(getattr(stream.result, channel), examined)
        for problem in reply_errors(adapter, try_parse(adapter, replace(stream.result, **{channel: data})))
    )
    for problem in list(problems)[:FINDINGS_MAX]:
        yield adapter_finding(adapter, "parse_output", problem)


def replace_fields(data: bytes, examined: set[str]) -> Iterator[tuple[str, bytes]]:
    """Yield the data with each field of its JSON lines replaced by each of `FIELD_VALUES`, and the field's location.
    Skip the locations in `examined`, and add the others to it."""
    lines = data.split(b"\n")
    for index, line in enumerate(lines):
        event = decode_object(line)
        for location, owner, key in _fields(event):
            if location in examined or len(examined) >= FIELDS_MAX:
                continue
            examined.add(location)
            recorded_value = owner[key]
            for value in FIELD_VALUES:
                owner[key] = value
                yield location, b"\n".join((*lines[:index], _encoder.encode(event), *lines[index + 1 :]))
            owner[key] = recorded_value


def _fields(value: object, location: str = "", depth: int = 0) -> Iterator[tuple[str, dict[str, object], str]]:
    """Yield the location of each field at any depth, its object and its key. A location names the types of objects and
    no index, so that fields of similar objects have the same location."""
    if isinstance(value, dict) and depth < DEPTH_MAX:
        for key, item in value.items():
            name = f"{location}[{value.get('type')!s:.40}].{key}"
            yield name, value, key
            yield from _fields(item, name, depth + 1)
    elif isinstance(value, list) and depth < DEPTH_MAX:
        for item in value:
            yield from _fields(item, location, depth + 1)


def damage(data: bytes, rng: random.Random) -> bytes:
    """Damage the bytes in one to three places."""
    for _ in range(rng.randint(1, 3)):
        at, to = sorted(rng.randrange(len(data) + 1) for _ in range(2))
        to = min(to, at + rng.choice((1, 10, 1000)))
        lines = data.split(b"\n")
        match rng.randrange(6):
            case 0:
                data = data[:at] + rng.randbytes(rng.randint(1, 8)) + data[to:]
            case 1:
                data = data[:at] + data[to:]
            case 2:
                data = data[:to] + data[at:to] + data[to:]
            case 3:
                rng.shuffle(lines)
                data = b"\n".join(lines)
            case 4:
                data = b"\n".join(lines[: rng.randint(0, len(lines))] * 2)
            case _:
                data = replace_value(data, rng)
    return data


def replace_value(data: bytes, rng: random.Random) -> bytes:
    """Replace the value after one of the colons."""
    colons = [match.start() for match in re.finditer(b":", data)]
    if not colons:
        return rng.choice(VALUES)
    at = rng.choice(colons) + 1
    ends = [end for end in (data.find(mark, at) for mark in (b",", b"}", b"\n")) if end >= 0]
    return data[:at] + rng.choice(VALUES) + data[min(ends, default=len(data)) :]


def reply_errors(adapter: Adapter, reading: ParsedReply | str) -> Iterator[str]:
    """Yield the violations of a parsed reply that hold for any bytes."""
    if isinstance(reading, str):
        yield f"raises on damaged bytes: {reading}"
        return
    if reading.ending not in ("success", "error", "no-terminal"):
        yield f"returns an unknown ending {reading.ending!r}"
    if reading.ending != "success" and reading.problem is None:
        yield f"has no problem for the ending {reading.ending}"
    if reading.parser != adapter.parser:
        yield f"names its parser {reading.parser}"
    if reading.session is not None and (not reading.session or reading.session.startswith("-")):
        yield f"takes {reading.session!r} for a session, which its program would take for an option"
    yield from usage_errors(reading)
    if reading.undecodable_lines < 0 or (reading.reported_nanousd or 0) < 0:
        yield "reports a negative number"
    try:
        msgspec.json.encode(reading)
    except (msgspec.EncodeError, UnicodeError) as error:
        yield f"returns a reply that cannot be encoded: {error}"


def usage_errors(reading: ParsedReply) -> Iterator[str]:
    """Yield invalid token counts."""
    for entry in reading.usage:
        parts = (entry.cache_read, entry.cache_write_5m, entry.cache_write_1h)
        if min(entry.input, entry.output, entry.reasoning, *parts) < 0:
            yield "counts a negative number of tokens"
        if sum(parts) > entry.input:
            yield "counts more cached tokens than input tokens"
        if entry.reasoning > entry.output:
            yield "counts more reasoning than output tokens"
        if not entry.model:
            yield "counts tokens without a model name, though the request named one"


REQUIRED_CODES = frozenset({"", "auth-failure", "rate-limit", "no-terminal"})
"""Endings that every agent must have stored, by code: success, two common failures, and no final event."""


def check_coverage(adapter: Adapter, endings: Sequence[StoredEnding]) -> Iterator[LayerOutput]:
    """The required endings are stored."""
    yield CheckedItem("contract checks")
    missing = REQUIRED_CODES - {ending.expected.code for ending in endings}
    if missing:
        names = ", ".join(sorted(code or "success" for code in missing))
        yield adapter_finding(adapter, "fixtures", f"has no stored streams of these endings: {names}")


def check_capabilities(adapter: Adapter, streams: Sequence[Stream]) -> Iterator[LayerOutput]:
    """The capabilities agree with the recorded successful streams."""
    yield CheckedItem("contract checks")
    capabilities = adapter.capabilities()
    readings = [try_parse(adapter, stream.result) for stream in streams]
    successes = [reading for reading in readings if not isinstance(reading, str) and reading.ending == "success"]
    if not successes:
        yield adapter_finding(
            adapter, "capabilities", "has no recorded successful stream, so its capabilities are untested"
        )
        return
    shown: dict[str, object] = {
        "token_counting": "exact" if any(reading.usage for reading in successes) else "estimate"
    }
    if capabilities.sessions:
        shown["sessions"] = any(reading.session for reading in successes)
    for name, value in shown.items():
        if getattr(capabilities, name) != value:
            problem = f"claims {name}: {getattr(capabilities, name)}, but its recorded streams show {value}"
            yield adapter_finding(adapter, "capabilities", problem)
    for fields in capabilities.reported_fields:
        if fields.evidence == "recorded":
            of_version = [
                reading for reading in successes if fields_for_version(capabilities, reading.version) == fields
            ]
            yield from check_reported_fields(adapter, fields, of_version)


def check_reported_fields(
    adapter: Adapter, fields: ReportedFields, successes: Sequence[ParsedReply]
) -> Iterator[Finding]:
    """The reported fields agree with the recorded successes of these versions."""
    entries = [entry for reading in successes for entry in reading.usage]
    hour, short = any(item.cache_write_1h for item in entries), any(item.cache_write_5m for item in entries)
    shown = {
        "model": any(entry.model != REQUESTED_MODEL for entry in entries),
        "requests": any(len(item.usage) > 1 and all(entry.requests == 1 for entry in item.usage) for item in successes),
        "money": any(item.reported_nanousd for item in successes),
        "thoughts": any(item.reasoning for item in entries),
        "session": any(item.session for item in successes),
        "cache_writes": "by lifetime" if hour else "total" if short else "no",
    }
    for name, value in shown.items():
        if getattr(fields, name) != value:
            claim = f"since {fields.since or 'ever'} claims {name}: {getattr(fields, name)}"
            yield adapter_finding(adapter, "reported_fields", f"{claim}, but recorded streams show {value}")
