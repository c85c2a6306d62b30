"""Caveats about a transcript's numbers, by stable code. `mz transcript` prints `code: text`."""

from __future__ import annotations

from collections.abc import Mapping

from mz_projections.imported import OUTPUT_OPEN

NOTES: Mapping[str, str] = {
    "half-line": "the last line is incomplete: the file is still being written, or was cut off",
    "long-line": "a line exceeds the length limit; it is skipped and counted as undecodable",
    "mended": "damaged lines were repaired and read",
    "utf-16": "the file is UTF-16",
    "compressed": "the file is compressed with gzip",
    "unknown-lines": "lines of unknown types are counted, but not read",
    "session-log": "a session log has no terminal event: it can continue at any time",
    "no-terminal": "no terminal event: the call was killed, or is still running",
    "error": "the agent ended in an error",
    "several-ends": "several results: the last status counts; money and tokens count once",
    "several-sessions": "lines of several sessions; the id is that of the last one",
    "sub-agents": "tokens of subagents are included",
    "sub-agents-apart": "tokens of subagents are not in this file",
    "sub-agents-short": "the agent reports no totals by model: tokens of subagents may be missing",
    "whole-thread": "token counts are cumulative over the thread: if it began before this file, its earlier calls "
    "are included",
    "stub-output": "output tokens of single messages are incomplete; the agent's final totals are used",
    OUTPUT_OPEN: "output tokens of some messages are those at their start; the final counts are not reported",
    "hidden-requests": "the agent counts requests that its messages do not show (compaction, titles, subagents); "
    "its totals are used",
    "main-thread": "the agent reports no totals by model: tokens of side models and subagents are missing, their money "
    "is included",
    "result-short": "the result counts less than the messages before it; the messages are used",
    "tool-requests": "the log omits requests that only call tools: tokens are missing",
    "per-call": "tokens are reported per call, not per request: a price that depends on a request's size may be wrong",
    "cache-lifetime": "the file does not report the lifetime of cache writes; they are priced as 5-minute writes",
    "rounded": "tokens and money are rounded in this output; `--analytics-log` has exact numbers",
    "no-model": "the file names no model, so nothing can be priced",
    "no-usage": "the file reports no tokens",
    "no-times": "the file has no timestamps; prices of the file's modification date are used",
    "copied": "lines were copied from an earlier session, whose requests are counted here too",
    "reported-elsewhere": "money is reported for the whole session, and may include requests that are not in this file",
}

INCOMPLETE_NOTES = frozenset({OUTPUT_OPEN, "tool-requests", "sub-agents-short"})
"""Notes of files that report, or may report, fewer tokens than were used."""
