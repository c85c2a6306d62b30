"""Pure: reads what a described program wrote, as its description says. Total over any bytes.

What ends a call is named by the description alone: an object of the output, or an exit code with non-empty words. What
shows neither did not end well, whatever the exit code.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Literal, TypeAlias

from msgspec.structs import replace
from mz_events.catalog.call import ProblemClass, Usage

from mz_engine.agents import linear
from mz_engine.agents.classify import Ending, Pattern, Patterns, classify
from mz_engine.agents.contract import Watch
from mz_engine.agents.generic_form import (
    ANYTHING,
    AgentDescription,
    Ends,
    Output,
    Proof,
    Selector,
    UsageSelector,
    Value,
    Where,
)
from mz_engine.agents.jsonline import STDERR_BYTES_READ, Json, count, decode, decode_any, nanousd, session_id, string
from mz_engine.ports import CallResult, Reading

Terminal: TypeAlias = Literal["success", "error", "no-terminal"]

COUNTED = ("input", "output", "cache_read", "cache_write_5m", "cache_write_1h", "reasoning")
UNNAMED = "unknown"
"""The model, where neither the output nor the call names one."""
LINE_CHARS = 2000
"""Longer lines are not looked through for words: they are the model's, not the program's own."""
STARTS_MAX = 20
"""So many beginnings of lines are tried for a JSON document."""
VERSION_LINES_MAX = 30
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])|\r(?=\n)")


def read_output(
    result: CallResult, name: str, description: AgentDescription, patterns: Patterns, watch: Watch | None = None
) -> Reading:
    """What one call said. Never raises: unreadable lines are counted, a missing end is a problem."""
    output = description.output
    events, bad_lines = gather(result, output, watch)
    stdout = plain(result.stdout) if output.form == "text" or output.stream == "stderr" else ""
    stderr = _without_objects(plain(result.stderr[-STDERR_BYTES_READ:]), output).strip()
    text = _text(events, output, stdout)
    terminal = (
        _by_exit(result, description.ends, text, stdout, stderr)
        if output.form == "text"
        else _by_events(result, description.ends, events, stdout, stderr)
    )
    error = _last_text(events, output.error)
    unfinished = "" if terminal == "success" else stdout[-STDERR_BYTES_READ:].strip()
    words = "\n".join(part for part in (stderr, unfinished, error) if part)
    status = _last(events, output.status)
    problem = classify(
        Ending(
            ours=result.problem, terminal=terminal, exit=result.exit, status=count(status), words=words, text=text,
        ),
        own_patterns(description, patterns),
    )  # fmt: skip
    usage = usage_of(events, output.usage, _last_text(events, output.model) or result.model, result.earlier)
    return Reading(
        parser=f"{name}/1",
        terminal=terminal,
        text=text or error,
        session=session_id(_last(events, output.session)),
        usage=usage,
        reported_nanousd=_money(events, output, bool(usage)),
        problem=problem,
        problem_detail=(error or words or text) if problem else "",
        bad_lines=bad_lines,
        version=_last_text(events, output.version) or _version_in(stdout, output) or result.version,
    )


def own_patterns(description: AgentDescription, patterns: Patterns) -> Patterns:
    """The description's words for failures, before those that all agents share."""
    own = tuple(
        Pattern(code=one.code, kind=ProblemClass(one.kind), words=one.words, retry_after_seconds=one.retry_after)
        for one in description.problems
    )
    return Patterns(problem=(*own, *patterns.problem), blocker=patterns.blocker)


def _without_objects(words: str, output: Output) -> str:
    if output.stream == "stdout":
        return words
    return "\n".join(line for line in words.split("\n") if not line.lstrip().startswith("{"))


def plain(data: bytes) -> str:
    """Text without what only moves or colours a terminal."""
    return _ESCAPES.sub("", data.decode("utf-8", "replace"))


# objects --------------------------------------------------------------------------------------------------------------
def gather(result: CallResult, output: Output, watch: Watch | None) -> tuple[list[Json], int]:
    """The objects of the output, in order, and how many lines are none. Words on standard error are no bad lines."""
    data = result.stdout if output.stream == "stdout" else result.stderr
    if output.form == "text":
        return [], 0
    found = _document(data) if output.form == "json" else _lines(data, words_too=output.stream == "stderr")
    events: list[Json] = [watch(event) if watch else event for event in found if event is not None]
    return events, sum(1 for event in found if event is None)


def _lines(data: bytes, *, words_too: bool) -> list[dict[str, object] | None]:
    lines = [line for line in data.split(b"\n") if line.strip()]
    if words_too:
        lines = [line for line in lines if line.lstrip().startswith(b"{")]
    return [decode(line) for line in lines]


def _document(data: bytes) -> list[dict[str, object] | None]:
    """An object, or a list of objects; words before it are passed over."""
    if not data.strip():
        return []
    starts = (0, *(found.start() for found in re.finditer(rb"(?m)^[{\[]", data)))[:STARTS_MAX]
    for start in starts:
        value = decode_any(data[start:])
        if isinstance(value, dict):
            return [value]
        if isinstance(value, list) and value:
            return [each if isinstance(each, dict) else None for each in value]
    return [None]


def lookup(event: object, path: str) -> object:
    """What stands at `a.b.0`; None where nothing does."""
    for part in path.split("."):
        if isinstance(event, dict):
            event = event.get(part)
        elif isinstance(event, list) and part.isascii() and part.isdigit() and int(part[:9]) < len(event):
            event = event[int(part[:9])]
        else:
            return None
    return event


def fits(event: Json, where: Where) -> bool:
    return all(_is(lookup(event, path), value) for path, value in where.items())


def _is(found: object, wanted: Value) -> bool:
    if wanted == ANYTHING:
        return found is not None
    return type(found) is type(wanted) and found == wanted


def _values(events: Iterable[Json], selector: Selector | None) -> Iterator[object]:
    for event in events if selector is not None else ():
        assert selector is not None
        if fits(event, selector.where) and (value := lookup(event, selector.path)) is not None:
            yield value


def _last(events: Iterable[Json], selector: Selector | None) -> object:
    found: object = None
    for value in _values(events, selector):
        found = value
    return found


def _last_text(events: Iterable[Json], selector: Selector | None) -> str:
    return string(_last(events, selector))


# what they say --------------------------------------------------------------------------------------------------------
def _text(events: list[Json], output: Output, stdout: str) -> str:
    if output.text is None:
        words = stdout
    elif output.text.joined:
        words = "".join(string(value) for value in _values(events, output.text))
    else:
        words = _last_text(events, output.text)
    return without(words, output.remove).strip()


def without(words: str, expressions: tuple[str, ...]) -> str:
    """The words without what the expressions match, line by line; a line of which nothing is left goes."""
    if not expressions:
        return words
    kept = []
    for line in words.split("\n"):
        less = linear.without(expressions, line) if len(line) <= LINE_CHARS else line
        if less or not line:
            kept.append(less)
    return "\n".join(kept)


def _version_in(stdout: str, output: Output) -> str:
    """Named at the beginning, by the program itself: what its model says comes later."""
    if not output.version_words:
        return ""
    lines = (line for line in stdout.split("\n")[:VERSION_LINES_MAX] if len(line) <= LINE_CHARS)
    return next((said for line in lines if (said := linear.group(output.version_words, line)) is not None), "")


def _by_events(result: CallResult, ends: Ends, events: list[Json], stdout: str, stderr: str) -> Terminal:
    kinds = (("error", ends.error), ("open", ends.open), ("success", ends.success))
    state = ""
    for event in events:
        state = next((kind for kind, wheres in kinds if any(fits(event, where) for where in wheres)), state)
    if state == "error":
        return "error"
    over = ends.last is None or any(fits(event, ends.last) for event in events)
    if not state or not over or (state == "open" and ends.last is None):
        return "no-terminal"
    well = state == "success" and _exit_fits(result, ends) and _proven(ends, stdout, stderr)
    return "success" if well else "error"


def _by_exit(result: CallResult, ends: Ends, text: str, stdout: str, stderr: str) -> Terminal:
    """Without an exit code, as after a crash of ours, only words can prove anything."""
    if not _exit_fits(result, ends):
        return "error"
    seen = result.exit is not None or ends.proof is not None
    return "success" if seen and text and _proven(ends, stdout, stderr) else "no-terminal"


def _exit_fits(result: CallResult, ends: Ends) -> bool:
    return not ends.exits or result.exit is None or result.exit in ends.exits


def _proven(ends: Ends, stdout: str, stderr: str) -> bool:
    """By the words that have to be there, and those that must not be."""
    wanted = ends.proof is None or _stands(ends.proof, stdout, stderr)
    return wanted and not (ends.disproof is not None and _stands(ends.disproof, stdout, stderr))


def _stands(proof: Proof, stdout: str, stderr: str) -> bool:
    words = stdout if proof.stream == "stdout" else stderr
    return any(linear.found((proof.words,), line) for line in words.split("\n") if len(line) <= LINE_CHARS)


# tokens and money -----------------------------------------------------------------------------------------------------
def usage_of(
    events: Iterable[Json], selector: UsageSelector | None, model: str, earlier: tuple[Usage, ...] = ()
) -> tuple[Usage, ...]:
    """Each request, or the last count of each model; of a session's sums, what this call added to `earlier`."""
    if selector is None:
        return ()
    found = [one for event in events if (one := _usage(event, selector, model or UNNAMED)) is not None]
    if selector.counts == "request":
        return tuple(found)
    newest = {one.model: one for one in found}
    if selector.counts == "session":
        newest = {name: _since(one, earlier) for name, one in newest.items()}
    return tuple(one for one in newest.values() if one.input or one.output)


def _usage(event: Json, selector: UsageSelector, model: str) -> Usage | None:
    if not fits(event, selector.where):
        return None
    numbers = [
        count(lookup(event, path)) if path else 0
        for path in (
            selector.input, selector.output, selector.cache_read, selector.cache_write, selector.cache_write_1h,
            selector.reasoning,
        )
    ]  # fmt: skip
    if numbers[0] is None and numbers[1] is None:
        return None
    given, output, read, written, hour, reasoning = (number or 0 for number in numbers)
    written = max(written, hour)
    return Usage(
        model=(string(lookup(event, selector.model)) if selector.model else "") or model,
        input=given + read + written if selector.cached == "apart" else max(given, read + written),
        output=output + reasoning if selector.thoughts == "apart" else max(output, reasoning),
        cache_read=read,
        cache_write_5m=written - hour,
        cache_write_1h=hour,
        reasoning=reasoning,
        requests=1 if selector.counts == "request" else None,
    )


def _since(total: Usage, earlier: tuple[Usage, ...]) -> Usage:
    rest = {
        name: getattr(total, name) - sum(getattr(one, name) for one in earlier if one.model == total.model)
        for name in COUNTED
    }
    if min(rest.values()) < 0:
        # Not the session that it was taken for: better too much than a call for nothing.
        return total
    # Parts are no more than the whole, whatever the sums say.
    left = rest["input"]
    for name in COUNTED[2:5]:
        rest[name] = min(rest[name], left)
        left -= rest[name]
    return replace(total, **{**rest, "reasoning": min(rest["reasoning"], rest["output"])})


def _money(events: list[Json], output: Output, used: bool) -> int | None:
    if output.money is None:
        return None
    sums = [amount for value in _values(events, output.money) if (amount := nanousd(value)) is not None]
    if not sums:
        return None
    total = sum(sums) if output.money.counts == "request" else sums[-1]
    # Where tokens were used, nothing reported is a price that the program does not know.
    return total or (None if used else 0)
