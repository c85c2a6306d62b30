"""All transcript formats that `mz` reads. A new format is a module of its own and an entry here."""

from __future__ import annotations

from mz_recordings.transcripts import aider, anthropic, claude, codex, gemini, opencode, qwen
from mz_recordings.transcripts.facts import Format

FORMATS: tuple[Format, ...] = (
    *claude.FORMATS,
    *codex.FORMATS,
    *gemini.FORMATS,
    *aider.FORMATS,
    *opencode.FORMATS,
    *qwen.FORMATS,
    *anthropic.FORMATS,
)
"""The order does not matter: a line matches at most one of them."""
