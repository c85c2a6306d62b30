"""Reports of covered lines that commands write: Cobertura, coverage.json of coverage.py, lcov."""

from __future__ import annotations

import re
from contextlib import suppress

import msgspec

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
