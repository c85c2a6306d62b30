"""Content that a session has already seen, by marks, so that a continuation prompt can leave it out."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from hashlib import sha256

import msgspec
from msgspec.structs import replace
from mz_projections.conversation import mark
from mz_projections.state import Cell

from mz_engine.prompts.data import Known, PromptData
from mz_engine.prompts.render import render, shows

PARTS: Mapping[str, str] = {"rules": "partials/rules.md.j2", "request": "partials/request.md.j2"}
"""Sections that are the same in every phase of a feature: mark -> template."""


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """Marks of the texts in a prompt."""

    inputs: Mapping[str, str] = {}
    """Artifact -> mark."""
    notes: tuple[str, ...] = ()
    """Marks, in the order of the prompt's notes."""
    rework: Mapping[str, str] = {}
    """Path or artifact of a rejected output -> mark."""


def phase_mark(phase: str, cell: Cell) -> str:
    """Return the mark of the full prompt of this phase and unit."""
    return f"phase:{phase}/{cell.unit}"


def file_mark(path: str, text: str) -> str:
    return mark(sha256(f"{path}\0{text}".encode()).hexdigest())


def continued(data: PromptData, sources: Sources, shown: Collection[str]) -> PromptData:
    """Return prompt data for a session that has seen the marks `shown`.

    Known content is only named; notes and rejected texts that were shown or written there are left out.
    """
    known_names = Known(
        rules="rules" in shown,
        request="request" in shown,
        inputs=tuple(name for name in data.inputs if sources.inputs.get(name) in shown),
        files=tuple(file.path for file in data.context if file_mark(file.path, file.text) in shown),
    )
    notes = tuple(note for note, its in zip(data.notes, sources.notes, strict=True) if its not in shown)
    rework = data.rework
    if rework is not None:
        unseen = {name: text for name, text in rework.artifacts.items() if sources.rework.get(name) not in shown}
        rework = replace(rework, artifacts=unseen)
    return replace(data, known=known_names, notes=notes, rework=rework)


def newly_shown(
    prompt: str, data: PromptData, sources: Sources, templates: Mapping[str, str], shown: Collection[str]
) -> tuple[str, ...]:
    """Return sorted marks of the content that the prompt really holds: a project's templates may omit anything."""
    return tuple(sorted({*_marks(prompt, data, sources, templates)}.difference(shown)))


def _marks(prompt: str, data: PromptData, sources: Sources, templates: Mapping[str, str]) -> Iterator[str]:
    for name, template in PARTS.items():
        if template in templates and shows(prompt, render(templates, template, data)):
            yield name
    for name, text in data.inputs.items():
        if name in sources.inputs and shows(prompt, text):
            yield sources.inputs[name]
    for file in data.context:
        if shows(prompt, file.text):
            yield file_mark(file.path, file.text)
    for note, its in zip(data.notes, sources.notes, strict=True):
        if shows(prompt, note):
            yield its
