"""Facts: every format that `mz` reads. A new one is a module of its own and a line here."""

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
"""The order means nothing: a line fits one of them at most."""
