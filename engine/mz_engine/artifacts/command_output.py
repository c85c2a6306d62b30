"""Normalised process output for prompts, equal for equal failures on every machine and day."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha256
from itertools import pairwise
from xml.parsers.expat import ExpatError, ParserCreate

import msgspec

from mz_engine.artifacts.load import read_data

READ_BYTES_MAX = 4 * 1024 * 1024
"""Bytes read: half from the beginning, half from the end."""
LINE_CHARS_MAX = 400
SIGNATURE_LINES = 5
UNSTARTABLE_EXITS = (126, 127)
"""Exit codes of a shell for a command that it cannot execute, or cannot find."""
ESCAPE_SEQUENCE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|[ -/]*[0-~])"
)
CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
REPORT_LINE = re.compile(r"\d|PASS|FAIL|OK|NO-SOURCE|^make: |(?i:no test)")
OMITTED_LINES = "[... lines left out ...]"
CUT_MARK = " [... cut ...]"


class Replacement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every match of `find` becomes `put` (with `\\1` for groups)."""

    name: str
    find: str
    put: str


class RunnerPatterns(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Report format of one test runner. Within each match of `block` the numbers (first group) are added up; a pattern
    without a group counts 1. Passed is `passed`, or else `total` minus the others. Without a block it counts none."""

    name: str
    block: str = ""
    passed: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    total: tuple[str, ...] = ()
    other: tuple[str, ...] = ()
    """Neither passed nor failed: skipped, pending, expected failures."""
    section: str = ""
    """Part of the output with the ids of failed tests; empty: all of it."""
    failures: tuple[str, ...] = ()
    """Failed tests, and whatever else fails the run: the groups of a match are the id."""
    fallback: bool = False
    """Used only if no other runner reported."""


class OutputPatterns(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of `output.yaml` and `counts.yaml`, in their order."""

    left_out: tuple[str, ...]
    """Whole lines, of which machines have some and others not."""
    replacements: tuple[Replacement, ...]
    insignificant: tuple[str, ...]
    """Lines that say nothing about a failure; matched at their start, after normalisation."""
    runners: tuple[RunnerPatterns, ...]
    unstartable: tuple[str, ...]
    """Lines of a failed command that could not start what it runs, or was called wrongly."""
    incomplete: dict[str, str]


@cache
def output_patterns() -> OutputPatterns:
    """Return the patterns. Ports call it before there are threads: msgspec analyses a type at its first conversion, and
    two threads doing so at once can crash the interpreter (seen with 0.22)."""
    return msgspec.convert(read_data("output.yaml") | read_data("counts.yaml"), OutputPatterns)


def excerpt(raw: bytes, roots: tuple[str, ...] = (), lines_max: int = 60) -> str:
    """Return at most `lines_max` normalised lines: the first third and the last two thirds if there are more. Terminal
    control is removed, `roots` and mz's worktrees become `<worktree>`, and what differs between runs (durations, times,
    addresses, seeds, ports, process ids, temporary and library paths) is masked."""
    lines = squeeze_blank_lines(list(plain_lines(raw)))
    if len(lines) > lines_max:
        head = (lines_max - 1) // 3
        lines = [*lines[:head], OMITTED_LINES, *lines[len(lines) - (lines_max - 1 - head) :]]
    return "".join(f"{normalise_line(line, roots)}\n" for line in lines)


def without_lines(text: str, ids: Iterable[str]) -> str:
    """Return an excerpt without the lines that name one of these tests."""
    names = [re.escape(id_.rsplit("::", 1)[-1] if id_ not in text else id_) for id_ in ids]
    named = re.compile(rf"(?<!\w)(?:{'|'.join(names)})(?!\w)")  # Not only the beginning of another one's name.
    return "".join(line for line in text.splitlines(keepends=True) if not (names and named.search(line)))


def failure_signature(text: str) -> str:
    """Return the hexadecimal SHA-256 of the first five significant lines of an excerpt; empty without any."""
    patterns = [compile_multiline(pattern) for pattern in output_patterns().insignificant]
    stripped = filter(None, map(str.strip, text.splitlines()))
    lines = [line for line in stripped if not any(pattern.match(line) for pattern in patterns)][:SIGNATURE_LINES]
    return sha256("\n".join(lines).encode("utf-8", "surrogatepass")).hexdigest() if lines else ""


def count_runs(raw: bytes) -> list[tuple[int, int]]:
    """Return passed and failed tests of each run of a runner that reported; some report each test as a run."""
    # The patterns are far slower than this filter of lines that may belong to a report.
    lines = squeeze_blank_lines(list(plain_lines(raw)))
    text = "\n".join(line for line in lines if not line or REPORT_LINE.search(line))
    reports: list[tuple[int, int]] = []
    for runner in output_patterns().runners:
        if runner.block and not (runner.fallback and reports):
            reports += [count_block(runner, block[0]) for block in compile_multiline(runner.block).finditer(text)]
    return reports


def failed_tests(raw: bytes) -> tuple[str, ...]:
    """Return the ids of the failed tests, sorted, each as often as it is listed; none if the output does not name as
    many as it counts."""
    failed = sum(run[1] for run in count_runs(raw))
    text, ids = "\n".join(plain_lines(raw)), list[str]()
    for runner in output_patterns().runners if failed else ():
        block, are_named = runner.block, len(ids) >= failed  # Steps do not name the tests that failed in them.
        has_reported = not runner.fallback and (compile_multiline(block).search(text) if block else are_named)
        if runner.failures and (has_reported or (runner.fallback and not ids)):
            sections = compile_multiline(runner.section).finditer(text) if runner.section else ()
            part = "\n".join(match[0] for match in sections) if runner.section else text
            matches = (match for pattern in runner.failures for match in compile_multiline(pattern).finditer(part))
            ids += [" ".join("::".join(filter(None, match.groups())).split()) for match in matches]
    return tuple(sorted(ids)) if len(ids) >= failed else ()


def unreported(printed: Sequence[str], reported: Sequence[str]) -> list[str]:
    """Return the printed ids of failed tests whose last word ends none of a report: the two may differ before it."""
    last_word = {id_: [id_, *re.findall(r"\w+", id_)][-1] for id_ in (*printed, *reported)}
    reported_words = {last_word[id_] for id_ in reported}
    return [id_ for id_ in printed if last_word[id_] not in reported_words]


def remedy_for_omissions(raw: bytes) -> str:
    """Return what makes a command run all tests that left some out after a failed one; empty: it did not."""
    text = "\n".join(plain_lines(raw))
    patterns = output_patterns().incomplete.items()
    return next((remedy for pattern, remedy in patterns if compile_multiline(pattern).search(text)), "")


def can_start(exit_code: int | None, raw: bytes) -> bool:
    """Return False for a command whose program, or what that should run, is missing or cannot be executed, or that the
    program does not understand."""
    if exit_code not in UNSTARTABLE_EXITS and exit_code != 0 and not any(map(any, count_runs(raw))):
        lines = list(filter(None, plain_lines(raw)))
        edges = "\n".join((*lines[:10], *lines[-10:]))  # In the middle, tests may print such lines.
        return not any(compile_multiline(pattern).search(edges) for pattern in output_patterns().unstartable)
    return exit_code not in UNSTARTABLE_EXITS


def count_block(runner: RunnerPatterns, block: str) -> tuple[int, int]:
    failed = sum_matches(runner.failed, block)
    if runner.total:
        return max(0, sum_matches(runner.total, block) - failed - sum_matches(runner.other, block)), failed
    return sum_matches(runner.passed, block), failed


def sum_matches(patterns: tuple[str, ...], block: str) -> int:
    matches = (match for pattern in patterns for match in compile_multiline(pattern).finditer(block))
    return sum(int(match[1]) if match.re.groups else 1 for match in matches)


def plain_lines(raw: bytes) -> Iterator[str]:
    """Yield lines as a terminal would leave them: without escapes, and with overwritten lines in their last state."""
    if len(raw) > READ_BYTES_MAX:
        raw = raw[: READ_BYTES_MAX // 2] + f"\n{OMITTED_LINES}\n".encode() + raw[-READ_BYTES_MAX // 2 :]
    text = CONTROL_CHARACTERS.sub("", ESCAPE_SEQUENCE.sub("", raw.decode("utf-8", "replace")))
    for pattern in output_patterns().left_out:
        text = compile_multiline(pattern).sub("", text)
    for line in text.split("\n"):
        yield line.rstrip().rsplit("\r", 1)[-1]


def normalise_line(line: str, roots: tuple[str, ...]) -> str:
    line = cut(line, LINE_CHARS_MAX)
    for root in sorted(filter(None, roots), key=len, reverse=True):
        line = re.sub(rf"(?<![\w/.-]){re.escape(root.rstrip('/'))}(?![\w.-])", "<worktree>", line)
    for replacement in output_patterns().replacements:
        line = compile_multiline(replacement.find).sub(replacement.put, line)
    return line


def cut(line: str, chars_max: int) -> str:
    return line if len(line) <= chars_max else line[:chars_max] + CUT_MARK


def squeeze_blank_lines(lines: list[str]) -> list[str]:
    """Remove blank lines at both ends, and merge repeated ones."""
    squeezed = [line for previous, line in pairwise(["", *lines]) if line or previous]
    return squeezed[:-1] if squeezed and not squeezed[-1] else squeezed


@cache
def compile_multiline(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.MULTILINE)


# JUnit reports, which many runners write beside their output ----------------------------------------------------------
REPORT_BYTES_MAX = 20_000_000
SUITES = ("testsuite", "testsuites")


def read_cases(data: bytes) -> tuple[list[str], list[str]]:
    """Return the ids of passed and failed cases, as `class::name`; none if the data is no JUnit report, whose sums are
    not read."""
    root, case, passed, failed = "", list[str](), list[str](), list[str]()

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal root
        root = root or name
        if root not in SUITES:
            raise ValueError(name)
        if name == "testcase":
            case[:] = ["::".join(filter(None, (attributes.get("classname"), attributes.get("name"))))]
        elif name in ("failure", "error") and case:
            failed.append(case[0])
            case.clear()
        elif name == "skipped" and case:
            case.append(name)

    def end(name: str) -> None:
        if name == "testcase":
            passed.extend(case if len(case) == 1 else ())
            case.clear()

    def refuse(*_: object) -> None:
        raise ValueError("an entity")

    parser = ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler, parser.EntityDeclHandler = start, end, refuse
    try:
        parser.Parse(data, True)
    except (ExpatError, ValueError):
        return [], []
    return passed, failed


# reports of covered lines: Cobertura, coverage.json of coverage.py, lcov ----------------------------------------------
COBERTURA = re.compile(rb"<coverage\s([^>]{0,2000})>")
ATTRIBUTE = re.compile(rb'\b(lines-covered|lines-valid)="(\d{1,12})"')
LCOV_LINE = re.compile(rb"^(LH|LF):(\d{1,12})\r?$", re.MULTILINE)
REPORT_NAMES = (".xml", "coverage.json", "lcov.info")
"""Endings of the names of files that are read."""


class Totals(msgspec.Struct):
    covered_lines: int
    num_statements: int


class JsonReport(msgspec.Struct):
    totals: Totals


def read_coverage(data: bytes) -> tuple[int, int] | None:
    """Return the numbers of covered lines and of all that could be; None if the data is no report, or of no line."""
    covered = total = 0
    if data.lstrip().startswith(b"{"):
        with suppress(msgspec.MsgspecError):
            totals = msgspec.json.decode(data, type=JsonReport).totals
            covered, total = totals.covered_lines, totals.num_statements
    elif match := COBERTURA.search(data[:10_000]):
        values = dict(ATTRIBUTE.findall(match[1]))
        covered, total = int(values.get(b"lines-covered", 0)), int(values.get(b"lines-valid", 0))
    else:
        for name, count in LCOV_LINE.findall(data):
            covered, total = (covered + int(count), total) if name == b"LH" else (covered, total + int(count))
    return (covered, total) if 0 <= covered <= total and total else None
