"""The ledger of a prompt: how many tokens come from which source. Tokens are estimated from characters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import NamedTuple

from mz_events.catalog.call import ContextPart

from mz_engine.prompts.render import PromptData, code, shown_form

CHARACTERS_PER_TOKEN = 4
FAILURES, FILE, LEARNING = "failures", "file", "learning"
LISTED_FAILURES_MAX = 100
"""The built-in templates list no more known failures by name."""


class Section(NamedTuple):
    """Texts that a source puts into a prompt."""

    source: str
    name: str
    texts: tuple[str, ...]


def sections(data: PromptData) -> Iterator[Section]:
    """Yield what the data of a prompt consist of, without rules and instructions."""
    for part in data.head:
        yield Section(part.source, part.name, (part.text,))
    yield Section("request", "", (data.title, data.body))
    if unit := data.unit:
        yield Section("unit", unit.id, (unit.record, bullets(unit.files)))
    for number, note in enumerate(data.notes, start=1):
        yield Section("note", str(number), (note,))
    for name, text in data.inputs.items():
        yield Section("input", name, (text,))
    for command in data.prepared:
        yield Section("command", command.name, (command.excerpt,))
    if rework := data.rework:
        lines = (line for message in rework.messages for line in message.strip().split("\n", 1))
        yield Section("rework", "", (*lines, *rework.artifacts.values()))
    for learning in data.learnings:
        yield Section(LEARNING, learning.id, (learning.text,))
    if data.known_failures:
        yield Section(FAILURES, "", (bullets(data.known_failures[:LISTED_FAILURES_MAX]),))
    for file in data.context:
        yield Section(FILE, file.path, (file.text,))


def bullets(names: Iterable[str]) -> str:
    """Return a list as the built-in templates show it."""
    return "\n".join(f"- {code(name)}" for name in names)


def tokens_of(text: str) -> int:
    return len(text) // CHARACTERS_PER_TOKEN


def characters_of(data: PromptData) -> int:
    """Return the characters of all texts that the data may put into a prompt."""
    return sum(len(text) for section in sections(data) for text in section.texts)


def fitting_failures(names: tuple[str, ...], characters: int) -> tuple[str, ...]:
    """Return as many of the names as fit into that many characters; all, if those that are listed do."""
    listed = names[:LISTED_FAILURES_MAX]
    count = sum(total <= characters for total in accumulate(len(f"{bullets([name])}\n") for name in listed))
    return names if count == len(listed) else names[:count]


def prompt_parts(prompt: str, data: PromptData, left_out: Iterable[ContextPart]) -> tuple[ContextPart, ...]:
    """Return the parts of a rendered prompt, which add up to it, and those that were left out.

    A text counts once, and only where the prompt shows it; one too short to be told apart counts as instructions."""
    remaining, all_sections = prompt, list(sections(data))
    texts = [(text, number) for number, section in enumerate(all_sections) for text in section.texts]
    characters = dict.fromkeys(range(len(all_sections)), 0)
    for text, number in sorted(texts, key=lambda pair: -len(pair[0])):  # Before those that it contains.
        if form := shown_form(remaining, text):
            remaining, characters[number] = remaining.replace(form, "", 1), characters[number] + len(form)
    parts = [
        ContextPart(source=section.source, name=section.name, tokens=characters[number] // CHARACTERS_PER_TOKEN)
        for number, section in enumerate(all_sections)
        if characters[number] >= CHARACTERS_PER_TOKEN
    ]
    others = tokens_of(prompt) - sum(part.tokens for part in parts)
    return ContextPart(source="instructions", tokens=others), *parts, *left_out


def covered_tokens(parts: Iterable[ContextPart]) -> int:
    """Return the tokens that `tokens_max` limits."""
    return sum(part.tokens for part in parts if part.source != "instructions" and not part.left_out)
