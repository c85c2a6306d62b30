"""Outputs of a call in two recordings: artifacts, files, tokens and cost, stream shape."""

from __future__ import annotations

import difflib
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from msgspec.structs import replace
from mz_engine.agents.contract import Adapter
from mz_engine.artifacts.markdown import comparable_heading, read_markdown
from mz_engine.effects.call import CALL_LOST
from mz_engine.ports import ParsedReply

from mz_recordings.cassette.model import Identity, RecordedCall, Recording
from mz_recordings.drift.model import Difference, LeafDifference, RecordingPair, call_difference
from mz_recordings.drift.stream_shape import compare_shapes, json_type, observe_streams, shape_differences
from mz_recordings.findings.model import RERECORD_ALL
from mz_recordings.replay.compare import diff_lines

GROWTH_SHARE_MAX = 0.5
"""Share of change in tokens or cost above which the risk is medium."""
LINES_MATCHED_MAX = 2000
"""Maximum lines of a text to match with each other, which takes quadratic time."""
NANOUSD_PER_USD = 10**9


# artifacts ------------------------------------------------------------------------------------------------------------
def artifact_differences(pair: RecordingPair) -> Iterator[Difference]:
    """Yield differences in structure; where that is equal, in text."""
    before, after = (
        {f"{file.artifact} {file.path}".strip(): (file, text) for file, text in call.artifacts().items()}
        for call in (pair.old, pair.new)
    )
    for name in sorted(before.keys() | after.keys()):
        if name not in before or name not in after:
            change = "is missing from the new recording" if name in before else "is only in the new recording"
            file, _ = before.get(name) or after[name]
            yield call_difference("ARTIFACT", pair.identity, f"the artifact {name} {change}", file.artifact, (), "high")
            continue
        (old_file, old_text), (new_file, new_text) = before[name], after[name]
        if old_text == new_text:
            continue
        artifact = old_file.artifact
        old_parts, new_parts = structure(old_text, old_file.name), structure(new_text, new_file.name)
        if old_parts != new_parts:
            is_extended = tuple(part for part in new_parts if part in old_parts) == old_parts
            change = "has additional parts" if is_extended else "has another structure"
            yield call_difference(
                "ARTIFACT", pair.identity, f"the artifact {artifact} {change}", artifact,
                diff_lines(old_parts, new_parts), "low" if is_extended else "high",
            )  # fmt: skip
        else:
            yield _text_difference(pair.identity, artifact, old_text.splitlines(), new_text.splitlines())


def _text_difference(call: Identity, artifact: str, before: list[str], after: list[str]) -> Difference:
    path = f"{artifact}.text"
    is_short = max(len(before), len(after)) <= LINES_MATCHED_MAX
    leaves = tuple(_line_leaves(path, before, after)) if is_short else ()
    message = f"the artifact {artifact} has the same structure and another text"
    return call_difference(
        "ARTIFACT", call, message, path, diff_lines(before, after), "low", leaves or (LeafDifference(path),)
    )


def _line_leaves(path: str, before: list[str], after: list[str]) -> Iterator[LeafDifference]:
    """Yield the differing lines in pairs of old and new."""
    for tag, low, high, first, end in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        for old, new in itertools.zip_longest(before[low:high], after[first:end], fillvalue=""):
            yield LeafDifference(path, old, new)


TITLE_LEVEL, LEVEL_MAX = 1, 3
"""Levels of headings; the text of the title is not structure, and neither are deeper levels."""


def structure(text: str, name: str) -> tuple[str, ...]:
    """Return a line per part in order: `## scope`, `table: file | why`; for JSON by name, `units[].id: string`, and
    `units[U1]` for each object in a list, or its index if it has no id. Total. The suffix of the file `name` gives the
    type."""
    if name.endswith(".json"):
        try:
            return tuple(dict.fromkeys(sorted(_json_parts(json.loads(text), ""))))
        except (ValueError, RecursionError):
            return ("no JSON",)
    return tuple(_markdown_parts(text))


def _markdown_parts(text: str) -> Iterator[str]:
    document = read_markdown(text)
    parts = [
        (heading.line, f"{'#' * heading.level} {comparable_heading(heading.text)}".rstrip())
        if heading.level > TITLE_LEVEL
        else (heading.line, "#")
        for heading in document.headings
        if heading.level <= LEVEL_MAX
    ]
    tables: dict[tuple[int, tuple[str, ...]], int] = {}
    for entry in document.entries:
        if entry.header:
            section = max((line for line, _ in parts if line <= entry.line), default=0)
            tables.setdefault((section, entry.header), entry.line)
    parts += [(line, f"table: {' | '.join(header)}") for (_, header), line in tables.items()]
    yield from (part for _, part in sorted(parts))


def _json_parts(value: object, path: str) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _json_parts(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        yield f"{path}[]"
        for at, inner in enumerate(value):
            if isinstance(inner, dict):
                name = inner.get("id")
                yield f"{path}[{name if isinstance(name, str) else at}]"
            yield from _json_parts(inner, f"{path}[]")
    else:
        yield f"{path}: {json_type(value)}"


# files ----------------------------------------------------------------------------------------------------------------
def file_differences(pair: RecordingPair) -> Iterator[Difference]:
    """Yield differences in the set of changed files, else in their content."""
    old_recording, new_recording = pair.old.recording, pair.new.recording
    before, after = changed_files(pair.old.content("patch")), changed_files(pair.new.content("patch"))
    old, new = (
        [f"{change.description} {path}" for path, change in sorted(changes.items())] for changes in (before, after)
    )
    if old != new:
        yield call_difference("FILES", pair.identity, "other files are changed", "files", diff_lines(old, new))
    artifacts = {file.path for call in (pair.old, pair.new) for file in call.artifacts()}
    changed_paths = [path for path in before if path in after and before[path] != after[path] and path not in artifacts]
    if changed_paths and old == new:
        message = "the same files are changed, with other content"
        yield call_difference(
            "FILES", pair.identity, message, "content", tuple(f"  {path}" for path in changed_paths), "low"
        )
    if old_recording.forbidden_changes != new_recording.forbidden_changes:
        changes = [
            [f"{change.kind} {change.path}" for change in recording.forbidden_changes]
            for recording in (old_recording, new_recording)
        ]
        yield call_difference(
            "FILES", pair.identity, "other changes that no patch can hold", "forbidden_changes", diff_lines(*changes)
        )


HEADER = re.compile(
    rb"^diff --git (.+)\n(?:(new|deleted) file mode (\d+)\n|old mode \d+\nnew mode (\d+)\n)?", re.MULTILINE
)
KINDS = {b"new": "added", b"deleted": "deleted", None: "modified"}


class FileChange(NamedTuple):
    description: str
    """Kind of change, and the new mode if the patch names it."""
    content: bytes
    """The part of the patch for this file, without its header lines."""


def changed_files(patch: bytes) -> dict[str, FileChange]:
    """Return the changes by path, as the patch spells it. Text that is not a patch has no changes.

    Lines of a hunk begin with a sign, so a line that begins with `diff` is a header.
    """
    _, *parts = HEADER.split(patch)
    changes: dict[str, FileChange] = {}
    for names, kind, file_mode, mode, content in zip(*[iter(parts)] * 5, strict=True):
        new_mode = b"" if kind == b"deleted" else file_mode or mode or b""
        # The path is in `a/x b/x`, or in both parts in quotes: each is half of the text.
        path = names[: (len(names) - 1) // 2].decode("utf-8", "replace").strip('"').removeprefix("a/")
        changes[path] = FileChange(f"{KINDS[kind]} {new_mode.decode()}", content)
    return changes


# tokens and cost ------------------------------------------------------------------------------------------------------
def parse_recorded(call: RecordedCall, adapters: Mapping[str, Adapter]) -> ParsedReply | None:
    """Parse the recorded stream with the current parser; None for an agent unknown to this `mz`."""
    adapter = adapters.get(call.recording.agent)
    if adapter is None:
        return None
    reading = adapter.parse_output(call.result())
    return replace(reading, problem=CALL_LOST) if call.recording.outcome == "lost" else reading


def token_amounts(reading: ParsedReply) -> dict[str, int | str | None]:
    """Return token totals, cost and models by the path that noise entries use."""
    usage = reading.usage
    return {
        "usage.input": sum(entry.input for entry in usage),
        "usage.output": sum(entry.output for entry in usage),
        "usage.cache_read": sum(entry.cache_read for entry in usage),
        "usage.cache_write": sum(entry.cache_write_5m + entry.cache_write_1h for entry in usage),
        "reported": reading.reported_nanousd,
        "models": ", ".join(sorted({entry.model for entry in usage})),
    }


def cost_differences(pair: RecordingPair, adapters: Mapping[str, Adapter]) -> Iterator[Difference]:
    """Yield differences in tokens and cost, both read by the current parser."""
    old, new = parse_recorded(pair.old, adapters), parse_recorded(pair.new, adapters)
    if old is None or new is None:
        return
    before, after = token_amounts(old), token_amounts(new)
    differing = [path for path in before if before[path] != after[path]]
    if differing:
        leaves = tuple(
            LeafDifference(path, *("" if amount is None else str(amount) for amount in (before[path], after[path])))
            for path in differing
        )
        detail = tuple(
            f"{sign} {path}: {_format_amount(path, amounts[path])}"
            for path in differing
            for sign, amounts in (("-", before), ("+", after))
        )
        is_large = any((growth := relative_growth(leaf)) is None or abs(growth) > GROWTH_SHARE_MAX for leaf in leaves)
        message = "tokens or cost differ"
        yield call_difference("COST", pair.identity, message, "tokens", detail, "medium" if is_large else "low", leaves)


def relative_growth(leaf: LeafDifference) -> Fraction | None:
    """Return the relative growth of a number, exactly; None if undefined."""
    try:
        old, new = int(leaf.old), int(leaf.new)
    except ValueError:
        return None
    return Fraction(new - old, old) if old else None


def _format_amount(path: str, value: int | str | None) -> str:
    if path == "reported" and isinstance(value, int):
        return f"${value / NANOUSD_PER_USD:.6f}"
    return "unknown" if value is None else str(value)


# ends and streams -----------------------------------------------------------------------------------------------------
def end_differences(pair: RecordingPair) -> Iterator[Difference]:
    old, new = _describe_end(pair.old.recording), _describe_end(pair.new.recording)
    if old != new:
        yield call_difference("TRACE", pair.identity, "the call ends differently", "end", (f"- {old}", f"+ {new}"))
    before, after = (call.lines("stderr") for call in (pair.old, pair.new))
    if before != after:
        yield call_difference("STREAM", pair.identity, "stderr differs", "stderr", diff_lines(before, after), "low")


def _describe_end(recording: Recording) -> str:
    failure = f", {recording.failure.kind} {recording.failure.code}" if recording.failure else ""
    return f"{recording.outcome}, exit {recording.exit}{failure}"


def stream_differences(pairs: Sequence[RecordingPair], adapters: Mapping[str, Adapter]) -> Iterator[Difference]:
    """Yield differences in the combined shape of all streams of an agent: a single call need not have all events."""
    for agent, adapter in adapters.items():
        recorded = [pair[:2] for pair in pairs if pair.old.recording.agent == pair.new.recording.agent == agent]
        if not recorded:
            continue
        old, new = (observe_streams(calls, adapter) for calls in zip(*recorded, strict=True))
        changes = compare_shapes(old.shape, new, adapter, same_calls=True)
        new = new._replace(broken_frames=tuple(frame for frame in new.broken_frames if frame not in old.broken_frames))
        yield from shape_differences(changes, new, "the old recording", RERECORD_ALL)
