"""Types of cards: short headers that say what a role is good at, so that one can be chosen without its persona."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta
from mz_events.names import parse_name

from mz_engine.model.agent_description import parsed_by
from mz_engine.model.config import NonEmpty, RepositoryPath

PERSONA, MAX_TOKENS = "persona", "max_tokens"
"""Entry of `state`: the file whose text heads the prompt. Entry of `budget`: tokens of a phase's context files."""
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
