"""Parser of a described program's output; accepts any bytes.

The description alone defines the end of a call: an object of the output, or an exit code with non-empty text. Output
with neither is a failure, whatever the exit code."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Literal

from mz_events.catalog.call import Usage
from mz_projections.usage import limit_parts, sum_by_model, usage_since

from mz_engine.agents.reading import records
from mz_engine.agents.reading.call import CallOutput, ObjectObserver
from mz_engine.agents.reading.json_lines import (
    STDERR_BYTES_READ,
    Json,
    count,
    decode_lines,
    decode_value,
    nanousd,
    session_id,
    string,
)
from mz_engine.decoding import regex
from mz_engine.model.agent_description import (
    ANYTHING,
    AgentDescription,
    ObjectMatch,
    OutputFormat,
    Selector,
    TextProof,
    UsageSelector,
)
from mz_engine.ports import CallResult

UNKNOWN_MODEL = "unknown"
"""Model name if neither the output nor the call has one."""
LINE_CHARS_MAX = 2000
"""Longer lines are not searched: they come from the model, not from the program."""
STARTS_MAX = 20
"""Number of line starts that are tried as the start of a JSON document."""
VERSION_LINES_MAX = 30
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])|\r(?=\n)")


def read_output(
    result: CallResult, description: AgentDescription, watch: ObjectObserver | None = None
) -> tuple[CallOutput, str]:
    """Read the output of one call: its facts, and what it wrote for people about a failure."""
    output = description.output
    events, undecodable_lines = decode_output(result, output, watch)
    stdout = strip_escapes(result.stdout) if output.form == "text" or output.stream == "stderr" else ""
    stderr = strip_escapes(result.stderr[-STDERR_BYTES_READ:])
    if output.stream == "stderr":
        stderr = "\n".join(line for line in stderr.split("\n") if not line.lstrip().startswith("{"))
    text = _text(events, output, stdout)
    ending = _ending(result, description, events, text, {"stdout": stdout, "stderr": stderr.strip()})
    model = string(_last_value(events, output.model)) or result.model
    usage = usage_of(events, output.usage, model, result.session_usage_before)
    end = records.StreamEnd(
        status="success" if ending == "success" else "error", reported_nanousd=_nanousd(events, output)
    )
    # The first lines come from the program, not from its model.
    first_lines = islice(_short_lines(stdout), VERSION_LINES_MAX if output.version_pattern else 0)
    groups = (regex.first_group(output.version_pattern, line) for line in first_lines)
    versions = (group for group in groups if group is not None)
    call_output = CallOutput(
        undecodable_lines=undecodable_lines,
        session=session_id(_last_value(events, output.session)),
        version=string(_last_value(events, output.version)) or next(versions, ""),
        texts=[text],
        requests={str(number): request for number, request in enumerate(usage)},
        ends=[end],
        end=None if ending == "no-terminal" else end,
        error=records.ErrorReported(
            message=string(_last_value(events, output.error)), http_status=count(_last_value(events, output.status))
        ),
    )
    unfinished = "" if ending == "success" else stdout[-STDERR_BYTES_READ:].strip()
    return call_output, "\n".join(part for part in (stderr.strip(), unfinished) if part)


def strip_escapes(data: bytes) -> str:
    """Decode text and remove terminal control sequences."""
    return _ESCAPES.sub("", data.decode("utf-8", "replace"))


def _short_lines(text: str) -> Iterator[str]:
    return (line for line in text.split("\n") if len(line) <= LINE_CHARS_MAX)


# objects --------------------------------------------------------------------------------------------------------------
def decode_output(result: CallResult, output: OutputFormat, watch: ObjectObserver | None) -> tuple[list[Json], int]:
    """Return the output's objects, in order, and the number of bad lines. Text on standard error is not bad."""
    data = result.stdout if output.stream == "stdout" else result.stderr
    if output.form == "text":
        return [], 0
    if output.form == "json":
        decoded = _decode_document(data)
    else:
        if output.stream == "stderr":
            data = b"\n".join(line for line in data.split(b"\n") if line.lstrip().startswith(b"{"))
        decoded = list(decode_lines(data))
    events: list[Json] = [watch(event) if watch else event for event in decoded if event is not None]
    return events, sum(1 for event in decoded if event is None)


def _decode_document(data: bytes) -> list[dict[str, object] | None]:
    """Decode an object or a list of objects, after optional text."""
    if not data.strip():
        return []
    starts = (0, *(match.start() for match in re.finditer(rb"(?m)^[{\[]", data)))[:STARTS_MAX]
    for start in starts:
        value = decode_value(data[start:])
        if isinstance(value, dict):
            return [value]
        if isinstance(value, list) and value:
            return [item if isinstance(item, dict) else None for item in value]
    return [None]


def lookup(event: object, path: str) -> object:
    """Return the value at a path such as `a.b.0`; None if there is none."""
    for part in path.split("."):
        if isinstance(event, dict):
            event = event.get(part)
        elif isinstance(event, list) and part.isascii() and part.isdigit() and int(part[:9]) < len(event):
            event = event[int(part[:9])]
        else:
            return None
    return event


def matches(event: Json, where: ObjectMatch) -> bool:
    """Return True if all paths have their values; `true` is not 1."""
    pairs = ((lookup(event, path), value) for path, value in where.items())
    return all(
        actual is not None and (value == ANYTHING or (type(actual) is type(value) and actual == value))
        for actual, value in pairs
    )


def _values(events: Iterable[Json], selector: Selector | None) -> Iterator[object]:
    if selector is None:
        return
    for event in events:
        if matches(event, selector.where) and (value := lookup(event, selector.path)) is not None:
            yield value


def _last_value(events: Iterable[Json], selector: Selector | None) -> object:
    return next(reversed([*_values(events, selector)]), None)


# text and end ---------------------------------------------------------------------------------------------------------
def _text(events: list[Json], output: OutputFormat, stdout: str) -> str:
    if output.text is None:
        text = stdout
    elif output.text.joined:
        text = "".join(string(value) for value in _values(events, output.text))
    else:
        text = string(_last_value(events, output.text))
    return remove_matches(text, output.remove).strip()


def remove_matches(text: str, expressions: tuple[str, ...]) -> str:
    """Remove all matches of the expressions, line by line; drop lines that become empty."""
    if not expressions:
        return text
    lines = text.split("\n")
    shortened = (regex.remove_matches(expressions, line) if len(line) <= LINE_CHARS_MAX else line for line in lines)
    return "\n".join(short for line, short in zip(lines, shortened, strict=True) if short or not line)


def _ending(
    result: CallResult, description: AgentDescription, events: list[Json], text: str, streams: Mapping[str, str]
) -> Literal["success", "error", "no-terminal"]:
    """Decide by the objects, or by exit code and text. Without an exit code (mz crashed during the call) only `proof`
    makes a text conclusive."""
    ends = description.ends
    is_success_exit = not ends.exits or result.exit is None or result.exit in ends.exits
    is_proven = (ends.proof is None or _is_found(ends.proof, streams)) and not (
        ends.disproof is not None and _is_found(ends.disproof, streams)
    )
    if description.output.form == "text":
        if not is_success_exit:
            return "error"
        is_conclusive = text and (result.exit is not None or ends.proof is not None)
        return "success" if is_conclusive and is_proven else "no-terminal"
    kinds = (("error", ends.error), ("open", ends.open), ("success", ends.success))
    state = ""
    for event in events:
        state = next((kind for kind, wheres in kinds if any(matches(event, where) for where in wheres)), state)
    if state == "error":
        return "error"
    has_last = ends.last is None or any(matches(event, ends.last) for event in events)
    if not state or not has_last or (state == "open" and ends.last is None):
        return "no-terminal"
    return "success" if state == "success" and is_success_exit and is_proven else "error"


def _is_found(proof: TextProof, streams: Mapping[str, str]) -> bool:
    return any(regex.matches_any((proof.pattern,), line) for line in _short_lines(streams[proof.stream]))


# tokens and money -----------------------------------------------------------------------------------------------------
def usage_of(
    events: Iterable[Json], selector: UsageSelector | None, model: str, earlier: tuple[Usage, ...] = ()
) -> tuple[Usage, ...]:
    """Return usage per request, or the last count of each model; of session totals, the part added since `earlier`."""
    if selector is None:
        return ()
    usages = [
        usage for event in events if (usage := _object_usage(event, selector, model or UNKNOWN_MODEL)) is not None
    ]
    if selector.counts == "request":
        return tuple(usages)
    newest = {usage.model: usage for usage in usages}
    if selector.counts == "session":
        before = sum_by_model(earlier)
        for name, usage in newest.items():
            added = usage_since(usage, before[name]) if name in before else usage
            # If numbers fell, it is not the session we took it for: count too much rather than nothing.
            newest[name] = usage if added is None else limit_parts(added)
    return tuple(usage for usage in newest.values() if usage.input or usage.output)


def _object_usage(event: Json, selector: UsageSelector, model: str) -> Usage | None:
    if not matches(event, selector.where):
        return None
    paths = (selector.input, selector.output, selector.cache_read, selector.cache_write, selector.cache_write_1h)
    numbers = [count(lookup(event, path)) if path else 0 for path in (*paths, selector.reasoning)]
    if numbers[0] is None and numbers[1] is None:
        return None
    input_tokens, output, read, cache_writes, hour, reasoning = (number or 0 for number in numbers)
    cache_writes = max(cache_writes, hour)
    cached = read + cache_writes
    return Usage(
        model=(string(lookup(event, selector.model)) if selector.model else "") or model,
        input=input_tokens + cached if selector.cached == "apart" else max(input_tokens, cached),
        output=output + reasoning if selector.thoughts == "apart" else max(output, reasoning),
        cache_read=read,
        cache_write_5m=cache_writes - hour,
        cache_write_1h=hour,
        reasoning=reasoning,
        requests=1 if selector.counts == "request" else None,
    )


def _nanousd(events: list[Json], output: OutputFormat) -> int | None:
    if output.money is None:
        return None
    amounts = [amount for value in _values(events, output.money) if (amount := nanousd(value)) is not None]
    return sum(amounts) if amounts and output.money.counts == "request" else next(reversed(amounts), None)
