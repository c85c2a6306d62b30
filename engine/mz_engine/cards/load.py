"""Find and check cards: those of the repository, then those that come with mz.

Nothing but `.agent` files is opened, so hundreds of cards cost little; a persona is read when its card is used.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from mz_engine.decoding.text_file import read_text
from mz_engine.decoding.yaml import YamlDocument, decode_document, parse_yaml
from mz_engine.errors.diagnostics import Diagnostic, MzError, SourceLocation
from mz_engine.model.card import PERSONA, Card, CardFile
from mz_engine.prompts.ledger import tokens_of

CARDS_FOLDER, CARD_FILE = "agents", ".agent"
BUILT_IN = Path(__file__).parent / "built_in"
"""A folder like a repository's `agents`, with the cards that come with mz."""
CAPABILITIES_MAX = 5
TOKENS_WARNED, TOKENS_MAX = 125, 200


def load_cards(root: Path) -> dict[str, CardFile]:
    """Return all cards by name, sorted; a card of the repository hides a built-in one."""
    folders = (folder for top in (BUILT_IN, root / CARDS_FOLDER) if top.is_dir() for folder in top.iterdir())
    cards = {folder.name: _load_card(folder) for folder in folders if os.path.lexists(folder / CARD_FILE)}
    return dict(sorted(cards.items()))


def read_persona(card: CardFile) -> str:
    """Return the text of a card's persona; empty without one. Raises MzError (MZ20nn)."""
    path = card.card.state.get(PERSONA) if card.card else None
    if path is None:
        return ""
    return read_text(Path(card.folder) / path, f"{card.file.removesuffix(CARD_FILE)}{path}")


def _load_card(folder: Path) -> CardFile:
    file = f"{CARDS_FOLDER}/{folder.name}/{CARD_FILE}"
    empty = CardFile(name=folder.name, folder=str(folder), file=file, built_in=folder.parent == BUILT_IN)
    if not (folder / CARD_FILE).resolve().is_relative_to(folder.parent.parent.resolve()):
        message, hint = "the card is a link that leads out of the repository", "replace the link by what it leads to"
        finding = Diagnostic(code="MZ3027", message=message, hint=hint, location=SourceLocation(file, 1, 1))
        return msgspec.structs.replace(empty, diagnostics=(finding,))
    try:
        text = read_text(folder / CARD_FILE, file)
        document = parse_yaml(text, file)
        card = decode_document(document, Card)
    except MzError as error:
        return msgspec.structs.replace(empty, diagnostics=error.diagnostics)
    tokens = tokens_of(text)
    diagnostics = tuple(_check_card(card, document, folder, tokens))
    has_errors = any(diagnostic.severity == "error" for diagnostic in diagnostics)
    return msgspec.structs.replace(empty, card=None if has_errors else card, tokens=tokens, diagnostics=diagnostics)


def _check_card(card: Card, document: YamlDocument, folder: Path, tokens: int) -> Iterator[Diagnostic]:
    """Yield MZ3027 for what only the folder and the values as a set show."""

    def error(location: SourceLocation, message: str, hint: str) -> Diagnostic:
        return Diagnostic(code="MZ3027", message=message, hint=hint, location=location)

    if card.identity != folder.name:
        message = f"`identity` is {card.identity}, but the folder is called {folder.name}"
        yield error(document.location("identity"), message, "rename one of them")
    count = len(card.capabilities)
    if not 1 <= count <= CAPABILITIES_MAX or len({*card.capabilities}) < count:
        message = f"`capabilities` has {count} entries; it needs one to {CAPABILITIES_MAX} different ones"
        yield error(document.location("capabilities"), message, "name what sets this card apart")
    for name, path in card.state.items():
        target, needs_file = folder / path, name == PERSONA
        if not (target.is_file() if needs_file else target.exists()):
            message = f"`state.{name}`: there is no {'file' if needs_file else 'path'} {path} in the card's folder"
            yield error(document.location("state", name), message, "paths are relative to the card's folder")
        elif not target.resolve().is_relative_to(folder.resolve()):
            message = f"`state.{name}`: {path} leads out of the card's folder"
            yield error(document.location("state", name), message, "replace the link by what it leads to")
    if tokens > TOKENS_WARNED:
        is_error = tokens > TOKENS_MAX
        message = f"the card has about {tokens} tokens; cards have at most {TOKENS_MAX if is_error else TOKENS_WARNED}"
        hint = "a card is a header: what the agent needs to know belongs into its persona"
        finding = error(SourceLocation(document.name, 1, 1), message, hint)
        yield finding if is_error else msgspec.structs.replace(finding, severity="warning")
