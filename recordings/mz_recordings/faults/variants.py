"""Variants of a recorded call: its output cut, doubled or corrupted, its process killed.

Each variant occurred or may occur. They are derived from the bytes alone, so every cassette has them at no cost.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from mz_engine.agents.catalog import agent_package
from mz_events.catalog.call import Problem, ProblemClass

from mz_recordings.cassette.model import Identity, RecordedCall, Recording
from mz_recordings.faults.faults import split_last_line

HUGE_BYTES = 2_000_000
SIGNALS = (-9, -15)
TERMINATED = 143
"""Exit code of a terminated program: 128 + 15."""
BINARY = bytes(range(256)) * 16
INVALID_UTF8 = b"\xff\xfe\xc3("
MZ_ENDINGS = tuple(
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
    ended_by_mz: Problem | None = None
    """The problem with which mz ended the call."""
    keeps_changes: bool = True
    """The agent's changes are in the tree."""


def derive_variants(call: RecordedCall) -> tuple[Variant, ...]:
    """Return all variants of a recording without duplicates."""
    stdout, stderr, code = call.content("stdout"), call.content("stderr"), call.recording.exit or 0
    stdout_variants = [
        *_cut_variants(stdout),
        *_corrupted_variants(stdout),
        *_repeated_variants(stdout),
        *_stdout_ending_variants(call.recording, stdout),
    ]
    variants = [Variant(call.identity, name, data, stderr, exit_code) for name, data, exit_code in stdout_variants]
    variants += _stderr_ending_variants(call.recording, stdout, stderr)
    base = Variant(call.identity, "", stdout, stderr, code)
    variants += _process_end_variants(base)
    unique_variants: dict[tuple[object, ...], Variant] = {}
    for variant in variants:
        unique_variants.setdefault(variant[2:], variant)
    return tuple(unique_variants.values())


# cut ------------------------------------------------------------------------------------------------------------------
def _cut_variants(stdout: bytes) -> Iterator[tuple[str, bytes, int]]:
    lines = stdout.splitlines(keepends=True)
    offset = 0
    for number, line in enumerate(lines):
        yield (f"cut-after-line-{number}" if number else "empty"), stdout[:offset], 0
        yield f"cut-in-line-{number + 1}", stdout[: offset + len(line) // 2], 0
        if (split_offset := _character_split(line)) is not None:
            yield f"cut-in-a-character-of-line-{number + 1}", stdout[: offset + split_offset], 0
        offset += len(line)
    yield "cut-before-the-last-byte", stdout.rstrip(b"\r\n")[:-1], 0
    yield "cut-before-the-last-line-end", stdout.rstrip(b"\r\n"), 0
    yield "cut-in-a-character", b"".join(lines[:-1]) + '{"type":"assistant","text":"é'.encode()[:-1], 0
    for code in (*SIGNALS, TERMINATED, 1):
        yield f"cut-before-the-end-exit-{code}", b"".join(lines[:-1]), code
        yield f"empty-exit-{code}", b"", code


def _character_split(line: bytes) -> int | None:
    """Return the position behind the first byte of the last multi-byte character."""
    return next((at for at in range(len(line) - 1, 0, -1) if line[at] >= 0xC0), -1) + 1 or None


# corrupted ------------------------------------------------------------------------------------------------------------
def _corrupted_variants(stdout: bytes) -> Iterator[tuple[str, bytes, int]]:
    lines = stdout.splitlines(keepends=True)
    head, last = b"".join(lines[:-1]), b"".join(lines[-1:])
    huge = b'{"type":"user","text":"' + b"x" * HUGE_BYTES + b'"}\n'
    yield "garbage-after-the-end", stdout + b"\x00\x07garbage {[\n", 0
    yield "json-after-the-end", stdout + b'[1,2]\n"text"\nnull\n{}\n{"type":7}\n', 0
    yield "half-a-line-after-the-end", stdout + (lines[0] if lines else b"{")[:20], 0
    yield "a-line-again-after-the-end", stdout + b"".join(lines[:1]), 0
    yield "binary", BINARY, 0
    yield "binary-before", BINARY + b"\n" + stdout, 0
    yield "no-text-in-a-line", head + b'{"type":"user","text":"' + INVALID_UTF8 + b'"}\n' + last, 0
    yield "no-text-in-the-last-line", head + last.replace(b'"', b'"' + INVALID_UTF8, 1), 0
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


def _repeated_variants(stdout: bytes) -> Iterator[tuple[str, bytes, int]]:
    lines = stdout.splitlines(keepends=True)
    yield "twice", stdout + stdout, 0
    yield "end-twice", stdout + b"".join(lines[-1:]), 0
    yield "end-first", b"".join((*lines[-1:], *lines[:-1])), 0
    yield "backwards", b"".join(reversed(lines)), 0
    yield "end-alone", b"".join(lines[-1:]), 0


# other ends -----------------------------------------------------------------------------------------------------------
def _process_end_variants(base: Variant) -> Iterator[Variant]:
    """Yield the same bytes with other ends of the process."""
    for code in (*SIGNALS, TERMINATED, 1):
        yield base._replace(name=f"whole-exit-{code}", exit=code)
    for problem in MZ_ENDINGS:
        yield base._replace(name=f"whole-and-{problem.code}", exit=None, ended_by_mz=problem)
        half = base.stdout[: len(base.stdout) // 2]
        yield base._replace(name=f"half-and-{problem.code}", stdout=half, exit=None, ended_by_mz=problem)
    noise = b"Error: rate limit exceeded, please run /login\n"
    yield base._replace(name="words-of-failure-on-stderr", stderr=base.stderr + noise)
    yield base._replace(name="empty-with-words-of-failure", stdout=b"", stderr=noise, exit=1)
    yield base._replace(name="nothing-changed", keeps_changes=False)


def _stdout_ending_variants(recording: Recording, stdout: bytes) -> Iterator[tuple[str, bytes, int]]:
    """Yield other last lines in the agent's format, also before and after the recorded one."""
    endings = agent_package(recording.agent).stdout_endings
    head, last = split_last_line(stdout)
    if endings is None or last is None:
        return
    for name, other, code in endings(last):
        yield f"ends-{name}", head + other, code
        yield f"ends-{name}-exit-0", head + other, 0
        yield f"success-then-{name}", stdout + other, code
        yield f"{name}-then-success", head + other + stdout.removeprefix(head), 0


def _stderr_ending_variants(recording: Recording, stdout: bytes, stderr: bytes) -> Iterator[Variant]:
    """Yield other ends of agents whose stderr tells how the call ended."""
    ending = agent_package(recording.agent).stderr_endings
    for name, out, err, code in ending(stdout, stderr) if ending else ():
        yield Variant(recording.identity, name, out, err, code)
