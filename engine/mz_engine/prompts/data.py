"""Facts: everything that a prompt template may show. No date, id, absolute path or measured value is in here."""

from __future__ import annotations

import msgspec

from mz_engine.config import Limits


class Data(msgspec.Struct, frozen=True, kw_only=True):
    """Base."""


class OutputData(Data, frozen=True, kw_only=True):
    artifact: str
    path: str | None
    """None: the reply itself is the artifact."""
    requirements: tuple[str, ...]
    """Every rule that will be enforced, in words, from the rule set that the validator reads."""
    schema: str = ""
    """Path of the JSON Schema of its form in the worktree; empty for Markdown."""


class CommandData(Data, frozen=True, kw_only=True):
    name: str
    command: str
    passed: bool
    excerpt: str
    """Normalised output; empty where it passed and says nothing."""


class UnitData(Data, frozen=True, kw_only=True):
    id: str
    files: tuple[str, ...]


class ReworkData(Data, frozen=True, kw_only=True):
    """The last reply was refused: the exact messages, and what was handed over."""

    messages: tuple[str, ...]
    artifacts: dict[str, str]
    """By path (or artifact name for a reply): the text that was refused."""
    hints: tuple[str, ...] = ()
    """What mended the same failure before."""


class ContextFile(Data, frozen=True, kw_only=True):
    path: str
    text: str


class Known(Data, frozen=True, kw_only=True):
    """What the session that the prompt goes on in has seen already, word for word; nothing in a new session."""

    rules: bool = False
    request: bool = False
    inputs: tuple[str, ...] = ()
    """Names of artifacts."""
    files: tuple[str, ...] = ()
    """Paths of context files."""


class PromptData(Data, frozen=True, kw_only=True):
    feature: str
    title: str
    body: str
    """The request, sanitised; templates fence it as untrusted."""
    phase: str
    role: str
    unit: UnitData | None
    inputs: dict[str, str]
    """Artifact name -> text."""
    outputs: tuple[OutputData, ...]
    prepared: tuple[CommandData, ...]
    gates: tuple[CommandData, ...]
    """What will be run on the result; `excerpt` is empty."""
    may_change: tuple[str, ...]
    """Patterns, outputs included."""
    denied: tuple[str, ...]
    limits: Limits
    interactive: bool
    """False: never ask; choose the most defensible option and write the assumption down."""
    rework: ReworkData | None
    notes: tuple[str, ...]
    """From a person, or from the phase that sent the work back."""
    context: tuple[ContextFile, ...]
    known: Known = Known()
    """A template need not look at it: one that does not is whole in a session too."""
    causes: tuple[str, ...] = ()
    """For a reviewer: the causes that the phase's `on_block` knows."""
