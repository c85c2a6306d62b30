"""Types of cards and skills. A card is a short header that says what a role is good at, so that one can be chosen
without its persona; a skill is advice for a kind of work."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta
from mz_events.names import parse_name

from mz_engine.errors.diagnostics import Diagnostic
from mz_engine.model.agent_description import NonEmpty, RepositoryPath, parsed_by
from mz_engine.model.pipeline import Condition

PERSONA, MAX_TOKENS = "persona", "max_tokens"
"""Entry of `state`: the file whose text heads the prompt. Entry of `budget`: limit of a prompt's tokens."""
CardName = Annotated[str, parsed_by(parse_name)]


class Card(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of `agents/ID/.agent`."""

    identity: CardName
    """Name of the folder."""
    domain: NonEmpty
    capabilities: tuple[CardName, ...]
    """One to five."""
    state: dict[str, RepositoryPath] = {}
    """Files and folders that exist, relative to the card's folder."""
    budget: dict[str, Annotated[int, Meta(ge=1)]] = {}


class CardFile(msgspec.Struct, frozen=True, kw_only=True):
    """A card's file, and what it says if it is valid."""

    name: str
    """Name of the folder."""
    folder: str
    """Absolute path."""
    file: str
    """Relative to the repository; of a built-in card, from the folder `agents` on."""
    built_in: bool
    tokens: int = 0
    card: Card | None = None
    """None: the file has errors."""
    diagnostics: tuple[Diagnostic, ...] = ()


class SkillHeader(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """The front matter of `skills/NAME/SKILL.md`. Its last four keys belong to the format; mz does not use them."""

    name: CardName
    """Name of the folder."""
    description: NonEmpty
    version: str = ""
    when: tuple[Condition, ...] = ()
    """Given to calls for which one of these holds; empty: to all."""
    license: str = ""
    compatibility: str = ""
    metadata: dict[str, str | int | float | bool | None] = {}
    allowed_tools: str | tuple[str, ...] = ()


class Skill(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A skill as a run pins it."""

    name: str
    description: str = ""
    """Empty: of a run before descriptions were pinned."""
    version: str = ""
    when: tuple[Condition, ...] = ()
    text: str
    """Without the front matter."""


class SkillFile(msgspec.Struct, frozen=True, kw_only=True):
    """A skill's file, and what it says if it is valid."""

    name: str
    """Name of the folder."""
    file: str
    built_in: bool = False
    skill: Skill | None = None
    """None: the file has errors."""
    diagnostics: tuple[Diagnostic, ...] = ()


class Guidance(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What heads the prompts of a phase's builder."""

    card: str = ""
    persona: str = ""
    tokens_max: int | None = None
    """Limit of a prompt's tokens, as `context.tokens_max` of the phase."""
    skills: tuple[Skill, ...] = ()
