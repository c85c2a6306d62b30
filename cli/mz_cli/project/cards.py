"""Commands `mz cards list`, `validate` and `route`."""

from __future__ import annotations

from pathlib import Path

import click
from mz_engine.cards.load import load_cards, read_persona
from mz_engine.cards.route import RouteCandidate, route
from mz_engine.errors.diagnostics import Exit
from mz_engine.model.card import CardFile
from mz_engine.prompts.ledger import tokens_of

from mz_cli.app.help import command_family, format_options
from mz_cli.project.pipelines import BUILT_IN, LintResult, print_diagnostics, project_root, severity_counts
from mz_cli.terminal.json import Shape, print_document, shape_of
from mz_cli.terminal.table import Table, columns, print_output
from mz_cli.terminal.text import count_noun


class CardListed(Shape, frozen=True, kw_only=True):
    """One card that a pipeline may name as a role."""

    name: str
    file: str | None
    """Relative to the repository; null: built in."""
    domain: str | None
    """Null if the card has errors."""
    capabilities: tuple[str, ...] | None
    tokens: int
    """Of the card."""
    persona_tokens: int | None
    """Of its persona; null: not read."""
    errors: int
    warnings: int


class CardList(Shape, frozen=True, kw_only=True):
    """`mz cards list --json`."""

    cards: tuple[CardListed, ...]
    tokens: int
    """Of all cards."""
    persona_tokens: int | None
    """Of all personas; null without `--personas`."""


class CardRoute(Shape, frozen=True, kw_only=True):
    """`mz cards route TEXT --json`; the exit code is 1 if no card fits."""

    text: str
    needs: tuple[str, ...]
    candidates: tuple[RouteCandidate, ...]
    """The best first."""


@command_family(
    "cards",
    examples=(
        ("mz cards list", "the cards that a pipeline can name as a role"),
        ('mz cards route "Review the login form" --needs review_code', "which card fits a task, and why"),
    ),
    next_command="name a card in a pipeline: `agent: {role: NAME}`.",
)
def cards() -> None:
    """List, check and choose cards of roles.

    A card is a file agents/NAME/.agent: who an agent is in a phase, what it is good at, where its persona lies. Cards
    of the repository take precedence over the built-in ones. These commands open no other file of a card's folder.
    """


@cards.command(
    "list",
    examples=(
        ("mz cards list", "all cards, with their size"),
        ("mz cards list --personas", "what reading cards instead of personas saves"),
    ),
    next_command="`mz cards validate` prints the errors.",
)
@click.option("--personas", is_flag=True, help="Read the personas too, to compare their size.")
@format_options("Print one object with the schema mz.cards-list/1.")
def list_(personas: bool, as_json: bool) -> None:
    """List the cards of this repository and the built-in ones."""
    files = load_cards(project_root(Path.cwd())).values()
    listed = tuple(card_entry(file, tokens_of(read_persona(file)) if personas else None) for file in files)
    size, persona_size = sum(card.tokens for card in listed), sum(card.persona_tokens or 0 for card in listed)
    card_list = CardList(cards=listed, tokens=size, persona_tokens=persona_size if personas else None)
    rows = tuple(
        (card.name, card.file or BUILT_IN, card.domain or "-", " ".join(card.capabilities or "-"), str(card.tokens),
         "-" if card.persona_tokens is None else str(card.persona_tokens), str(card.errors), str(card.warnings))
        for card in listed
    )  # fmt: skip
    heads = columns("card", "file", "domain", "~capabilities", ">tokens", ">persona", ">errors", ">warnings")
    note = f"{count_noun(len(listed), 'card')}: {size:,} tokens instead of {persona_size:,} of their personas"
    table = Table(columns=heads, rows=rows, empty="No cards.")
    print_output(as_json, "cards-list", card_list, table, [note] if personas else [])


def card_entry(file: CardFile, persona_tokens: int | None) -> CardListed:
    values = {"file": None if file.built_in else file.file, "persona_tokens": persona_tokens}
    return shape_of(CardListed, file, file.card, **values, **severity_counts(file.diagnostics))


@cards.command(
    "validate",
    examples=(("mz cards validate", "all cards of this repository"),),
    next_command="`mz cards list` lists the cards.",
)
@format_options("Print one object with the schema mz.cards-validate/1.")
def validate(as_json: bool) -> int:
    """Check the cards of this repository.

    Reports all errors at once, with file, line and column: unknown keys, an identity that is not the folder's name,
    more than five capabilities, paths that do not exist, cards of more than 200 tokens. Exits with 10 for errors, not
    for warnings.
    """
    files = [file for file in load_cards(project_root(Path.cwd())).values() if not file.built_in]
    diagnostics = tuple(diagnostic for file in files for diagnostic in file.diagnostics)
    names = tuple(file.file for file in files)
    result = LintResult(files=names, diagnostics=diagnostics, **severity_counts(diagnostics))
    if as_json:
        print_document("cards-validate", result)
    else:
        print_diagnostics(diagnostics, result)
    return int(Exit.INVALID if result.errors else Exit.OK)


@cards.command(
    "route",
    examples=(
        ('mz cards route "Find security problems in the login form"', "by the words of a task"),
        ('mz cards route "Write the migration" --needs write_code --json', "of those that can do this"),
    ),
    next_command="`mz cards list` shows all cards.",
)
@click.argument("text")
@click.option("--needs", metavar="CAPABILITY", multiple=True, help="Only cards with this capability; repeatable.")
@format_options("Print one object with the schema mz.cards-route/1.")
def route_(text: str, needs: tuple[str, ...], as_json: bool) -> int:
    """Print the cards that fit a task, the best first, and why.

    A card fits if it has all capabilities of `--needs`; without them, if the task names a word of its domain or
    capabilities. More words come first, then the shorter card. Cards with errors are left out. Exits with 1 if none
    fits.
    """
    candidates = route(text, needs, load_cards(project_root(Path.cwd())).values())
    rows = tuple((card.name, str(card.score), reason_text(card), str(card.tokens)) for card in candidates)
    table = Table(columns=columns("card", ">score", "~reason", ">tokens"), rows=rows, empty="No card fits.")
    print_output(as_json, "cards-route", CardRoute(text=text, needs=needs, candidates=candidates), table)
    return int(Exit.OK if candidates else Exit.VERDICT)


def reason_text(candidate: RouteCandidate) -> str:
    parts = [f"needs {', '.join(candidate.needs)}"] if candidate.needs else []
    parts += [f"words {', '.join(candidate.terms)}"] if candidate.terms else []
    return "; ".join(parts)
