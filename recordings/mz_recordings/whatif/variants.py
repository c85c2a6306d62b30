"""Variants of a recorded call: its output cut, doubled or corrupted, its process killed.

Each variant occurred or may occur. They are derived from the bytes alone, so every cassette has them at no cost. Agents
of `endings.py` have variants of their last line too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from msgspec.structs import replace
from mz_events.catalog.call import Problem, ProblemClass

from mz_recordings.cassette import Cassette, Failure, Identity, Kind, Pace, Recording, StoredFile, Taken
from mz_recordings.whatif.endings import ASIDE, ENDINGS

HUGE_BYTES = 2_000_000
SIGNALS = (-9, -15)
TERMINATED = 143
"""Exit code of a terminated program: 128 + 15."""
BINARY = bytes(range(256)) * 16
NO_TEXT = b"\xff\xfe\xc3("
OURS = tuple(
    Problem(kind=kind, code=code)
    for kind, code in (
        (ProblemClass.TRANSIENT, "timeout"),
        (ProblemClass.TRANSIENT, "idle"),
        (ProblemClass.TRANSIENT, "killed"),
        (ProblemClass.PHASE, "output-limit"),
        (ProblemClass.FATAL, "disk-full"),
    )
)
"""Ways in which mz ends a call, whatever its output."""


class Variant(NamedTuple):
    """One way in which a recorded call might have ended."""

    identity: Identity
    name: str
    """Unique among the variants of a call."""
    stdout: bytes
    """In the form of recordings, with tokens for places."""
    stderr: bytes = b""
    exit: int | None = 0
    ours: Problem | None = None
    """The problem with which mz ended the call."""
    changes: bool = True
    """The agent's changes are in the tree."""
    pace: Pace | None = None
    """Timing of the output in a process; replays in memory get all of it at once."""


PROCESSES = (
    "cut-before-the-end-exit--9", "cut-before-the-end-exit-143", "cut-in-a-character", "binary",
    "huge-line-before-the-end", "half-and-idle", "whole-and-timeout",
)  # fmt: skip
"""Variants that differ between a pipe and memory: a sample for tests with processes."""
SLOW = Pace(piece_bytes=1009, pause_ms=20)


def paced(taken: Taken) -> tuple[Variant, ...]:
    """Return a sample of the variants for real processes, and a slow one in pieces that split characters."""
    stdout = content(taken, "stdout")
    lines = _lines(stdout)
    wide = b'{"type":"user","text":"' + "語".encode() * 3000 + b'"}\n'
    split = b"".join((*lines[:-1], wide, *lines[-1:]))
    slow = Variant(taken.recording.identity, "slow", split, content(taken, "stderr"), pace=SLOW)
    return (slow, *(variant for variant in derive(taken) if variant.name in PROCESSES))


def derive(taken: Taken) -> tuple[Variant, ...]:
    """Return all variants of a recording without duplicates."""
    stdout, stderr, code = content(taken, "stdout"), content(taken, "stderr"), taken.recording.exit or 0
    found = [
        *_cuts(stdout),
        *_bytes(stdout),
        *_twice(stdout),
        *_endings(taken.recording, stdout),
    ]
    whole = [Variant(taken.recording.identity, name, data, stderr, ended) for name, data, ended in found]
    whole += _aside(taken.recording, stdout, stderr)
    base = Variant(taken.recording.identity, "", stdout, stderr, code)
    whole += _processes(base)
    seen: dict[tuple[object, ...], Variant] = {}
    for variant in whole:
        seen.setdefault(variant[2:], variant)
    return tuple(seen.values())


def altered(cassette: Cassette, variant: Variant) -> Cassette:
    """Return a cassette with only the variant's feature, its call replaced, for processes. Traces are removed, as they
    no longer apply. Dependencies are ignored."""
    feature = variant.identity.feature
    world = cassette.manifest.world
    items = tuple(item for item in world.items if item.feature == feature)
    manifest = replace(cassette.manifest, stories={}, world=replace(world, items=items))
    taken = tuple(
        _answered(one, variant) if one.recording.identity == variant.identity else one
        for one in cassette.taken
        if one.recording.identity.feature == feature
    )
    return cassette._replace(manifest=manifest, taken=taken, stories={})


def _answered(one: Taken, variant: Variant) -> Taken:
    name = variant.identity.name
    kept = [file for file in one.recording.files if file.kind not in ("stdout", "stderr")]
    if not variant.changes:
        kept = [file for file in kept if file.kind not in ("patch", "artifact")]
    contents = {file.name: one.contents[file.name] for file in kept}
    streams: tuple[tuple[Kind, str, bytes], ...] = (
        ("stdout", f"{name}.stream-json", variant.stdout),
        ("stderr", f"{name}.stderr", variant.stderr),
    )
    for kind, file, data in streams:
        kept.append(StoredFile(kind=kind, name=file, sha256=hashlib.sha256(data).hexdigest()))
        contents[file] = data
    ours = variant.ours
    recording = replace(
        one.recording,
        outcome="replied",
        exit=variant.exit,
        failure=Failure(kind=ours.kind.value, code=ours.code) if ours else None,
        files=tuple(kept),
        pace=variant.pace,
    )
    return Taken(recording, contents)


def content(taken: Taken, kind: str) -> bytes:
    """Return one of the recording's files; empty if it has none."""
    file = next((file for file in taken.recording.files if file.kind == kind), None)
    return b"" if file is None else taken.contents[file.name]


def _lines(stdout: bytes) -> list[bytes]:
    """Split into lines with their ends."""
    return stdout.splitlines(keepends=True)


# cut ------------------------------------------------------------------------------------------------------------------
def _cuts(stdout: bytes) -> Iterator[tuple[str, bytes, int]]:
    lines = _lines(stdout)
    at = 0
    for number, line in enumerate(lines):
        yield (f"cut-after-line-{number}" if number else "empty"), stdout[:at], 0
        yield f"cut-in-line-{number + 1}", stdout[: at + len(line) // 2], 0
        if (inside := _inside_a_character(line)) is not None:
            yield f"cut-in-a-character-of-line-{number + 1}", stdout[: at + inside], 0
        at += len(line)
    yield "cut-before-the-last-byte", stdout.rstrip(b"\r\n")[:-1], 0
    yield "cut-before-the-last-line-end", stdout.rstrip(b"\r\n"), 0
    yield "cut-in-a-character", b"".join(lines[:-1]) + '{"type":"assistant","text":"é'.encode()[:-1], 0
    for code in (*SIGNALS, TERMINATED, 1):
        yield f"cut-before-the-end-exit-{code}", b"".join(lines[:-1]), code
        yield f"empty-exit-{code}", b"", code


def _inside_a_character(line: bytes) -> int | None:
    """Return the position behind the first byte of the last multi-byte character."""
    return next((at for at in range(len(line) - 1, 0, -1) if line[at] >= 0xC0), -1) + 1 or None


# corrupted ------------------------------------------------------------------------------------------------------------
def _bytes(stdout: bytes) -> Iterator[tuple[str, bytes, int]]:
    lines = _lines(stdout)
    head, last = b"".join(lines[:-1]), b"".join(lines[-1:])
    huge = b'{"type":"user","text":"' + b"x" * HUGE_BYTES + b'"}\n'
    yield "garbage-after-the-end", stdout + b"\x00\x07garbage {[\n", 0
    yield "json-after-the-end", stdout + b'[1,2]\n"text"\nnull\n{}\n{"type":7}\n', 0
    yield "half-a-line-after-the-end", stdout + (lines[0] if lines else b"{")[:20], 0
    yield "a-line-again-after-the-end", stdout + b"".join(lines[:1]), 0
    yield "binary", BINARY, 0
    yield "binary-before", BINARY + b"\n" + stdout, 0
    yield "no-text-in-a-line", head + b'{"type":"user","text":"' + NO_TEXT + b'"}\n' + last, 0
    yield "no-text-in-the-last-line", head + last.replace(b'"', b'"' + NO_TEXT, 1), 0
    yield "zeros-in-the-last-line", head + last.replace(b",", b",\x00", 1), 0
    yield "huge-line-before-the-end", head + huge + last, 0
    yield "huge-line-instead-of-the-end", head + huge, 0
    yield "huge-line-without-end", head + huge[: HUGE_BYTES // 2], 0
    yield "deep-line", head + b"[" * 100_000 + b"\n" + last, 0
    yield "no-line-ends", stdout.replace(b"\n", b" "), 0
    yield "other-line-ends", stdout.replace(b"\n", b"\r\n"), 0
    yield "empty-lines", stdout.replace(b"\n", b"\n\n \n"), 0
    yield "byte-order-mark", b"\xef\xbb\xbf" + stdout, 0
    yield "words-instead-of-lines", b"Done. Everything went well.\n", 0


def _twice(stdout: bytes) -> Iterator[tuple[str, bytes, int]]:
    lines = _lines(stdout)
    yield "twice", stdout + stdout, 0
    yield "end-twice", stdout + b"".join(lines[-1:]), 0
    yield "end-first", b"".join((*lines[-1:], *lines[:-1])), 0
    yield "backwards", b"".join(reversed(lines)), 0
    yield "end-alone", b"".join(lines[-1:]), 0


# other ends -----------------------------------------------------------------------------------------------------------
def _processes(base: Variant) -> Iterator[Variant]:
    """Yield the same bytes with other ends of the process."""
    for code in (*SIGNALS, TERMINATED, 1):
        yield base._replace(name=f"whole-exit-{code}", exit=code)
    for problem in OURS:
        yield base._replace(name=f"whole-and-{problem.code}", exit=None, ours=problem)
        half = base.stdout[: len(base.stdout) // 2]
        yield base._replace(name=f"half-and-{problem.code}", stdout=half, exit=None, ours=problem)
    noise = b"Error: rate limit exceeded, please run /login\n"
    yield base._replace(name="words-of-failure-on-stderr", stderr=base.stderr + noise)
    yield base._replace(name="empty-with-words-of-failure", stdout=b"", stderr=noise, exit=1)
    yield base._replace(name="nothing-changed", changes=False)


def _endings(recording: Recording, stdout: bytes) -> Iterator[tuple[str, bytes, int]]:
    """Yield other last lines in the agent's format, also before and after the recorded one."""
    ending = ENDINGS.get(recording.agent)
    lines = _lines(stdout)
    last = _object(lines[-1]) if lines else None
    if ending is None or last is None:
        return
    head = b"".join(lines[:-1])
    for name, other, code in ending(last):
        yield f"ends-{name}", head + other, code
        yield f"ends-{name}-exit-0", head + other, 0
        yield f"success-then-{name}", stdout + other, code
        yield f"{name}-then-success", head + other + lines[-1], 0


def _aside(recording: Recording, stdout: bytes, stderr: bytes) -> Iterator[Variant]:
    """Yield other ends of agents whose stderr tells how the call ended."""
    ending = ASIDE.get(recording.agent)
    for name, out, err, code in ending(stdout, stderr) if ending else ():
        yield Variant(recording.identity, name, out, err, code)


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
