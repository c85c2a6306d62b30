"""Facts: what a reader of a transcript's numbers must know, by stable codes. `mz transcript` prints `code: words`."""

from __future__ import annotations

from collections.abc import Mapping

from mz_projections.imported import OPEN

NOTES: Mapping[str, str] = {
    "half-line": "the last line is not complete: the file is still being written, or was cut off",
    "long-line": "a line is longer than mz reads; it is passed over and counted as bad",
    "mended": "lines with bytes that are no text were read all the same",
    "utf-16": "the file is UTF-16 and was read so",
    "compressed": "the file is compressed with gzip and was read so",
    "unknown-lines": "lines of types that mz does not know are counted, and nothing is made of them",
    "session-log": "a session's log has no terminal event: it can go on at any time",
    "no-terminal": "no terminal event: the call was killed, or goes on",
    "error": "the agent ended in an error",
    "several-ends": "several results: the last status counts, money and tokens count once",
    "several-sessions": "lines of several sessions; the id is that of the last one",
    "sub-agents": "tokens of sub-agents are included",
    "sub-agents-apart": "sub-agents worked, whose tokens are not in this file",
    "sub-agents-short": "sub-agents worked, and the agent tells no sums by model: tokens of theirs may be missing",
    "whole-thread": "the agent counts on over a whole thread: where that began before this file, its earlier calls are "
    "included",
    "stub-output": "output tokens of single messages are stubs; the sums are those that the agent gives at its end",
    OPEN: "output tokens of some messages are those of their beginning: what they came to is not told",
    "hidden-requests": "the agent counts requests that its messages do not show (compaction, titles, sub-agents); the "
    "sums are the agent's",
    "main-thread": "the agent tells no sums by model: tokens of side models and sub-agents are missing, their money is "
    "not",
    "result-short": "the result counts less than the messages before it; the sums are those of the messages",
    "tool-requests": "the log leaves out requests that did nothing but call tools: tokens are missing",
    "per-call": "tokens are told for a whole call, not by request: a price that depends on a request's size may be off",
    "cache-lifetime": "the file does not say how long cache writes live; they count as those of five minutes",
    "rounded": "tokens and money are rounded in these words; `--analytics-log` has them exactly",
    "no-model": "the file names no model, so nothing can be priced",
    "no-usage": "the file tells no tokens",
    "no-times": "the file tells no times; prices are those of the file's own date",
    "copied": "lines were copied from an earlier session, whose requests are counted here too",
    "reported-elsewhere": "money is reported for the session as a whole, and may include requests that are not in this "
    "file",
}

LACKS = frozenset({OPEN, "tool-requests", "sub-agents-short"})
"""Notes of files that tell fewer tokens than were used, or may do so."""
