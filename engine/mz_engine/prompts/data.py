"""Data that a prompt template may show: no date, id, absolute path or measured value."""

from __future__ import annotations

import msgspec

from mz_engine.model.config import Limits


class OutputData(msgspec.Struct, frozen=True, kw_only=True):
    artifact: str
    path: str | None
    """None: the reply itself is the artifact."""
    requirements: tuple[str, ...]
    """Text of every enforced rule, from the rule set that the validator uses."""
    schema: str = ""
    """Path of its JSON Schema in the worktree; empty for Markdown."""


class CommandData(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    command: str
    passed: bool
    excerpt: str
    """Normalised output; empty if it passed without output of interest."""


class UnitData(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    files: tuple[str, ...]


class ReworkData(msgspec.Struct, frozen=True, kw_only=True):
    """The previous reply was rejected: the exact messages, and its artifacts."""

    messages: tuple[str, ...]
    artifacts: dict[str, str]
    """Rejected text by path (or artifact name for a reply)."""
    hints: tuple[str, ...] = ()
    """Fixes of the same failure in the past."""


class ContextFile(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    text: str


class SeenContent(msgspec.Struct, frozen=True, kw_only=True):
    """Content that the continued session has already seen verbatim; nothing in a new session."""

    rules: bool = False
    request: bool = False
    inputs: tuple[str, ...] = ()
    """Names of artifacts."""
    files: tuple[str, ...] = ()
    """Paths of context files."""


class PromptData(msgspec.Struct, frozen=True, kw_only=True):
    feature: str
    title: str
    body: str
    """The request after screening; templates fence it as untrusted."""
    phase: str
    role: str
    unit: UnitData | None
    inputs: dict[str, str]
    """Artifact name -> text."""
    outputs: tuple[OutputData, ...]
    prepared: tuple[CommandData, ...]
    gates: tuple[CommandData, ...]
    """Commands that will check the result; `excerpt` is empty."""
    may_change: tuple[str, ...]
    """Patterns, outputs included."""
    denied: tuple[str, ...]
    limits: Limits
    interactive: bool
    """False: never ask; choose the most defensible option and write the assumption down."""
    rework: ReworkData | None
    notes: tuple[str, ...]
    """From a person, or from the phase that rolled back."""
    context: tuple[ContextFile, ...]
    known: SeenContent = SeenContent()
    """Optional for templates: one that ignores it renders the full prompt in a session too."""
    causes: tuple[str, ...] = ()
    """For a reviewer: the causes in the phase's `on_block`."""
