"""Content that a session has already seen, by marks, so that a continuation prompt can leave it out."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from hashlib import sha256

import msgspec
from msgspec.structs import replace
from mz_projections.conversation import text_mark
from mz_projections.state import UnitRun

from mz_engine.prompts.data import PromptData, SeenContent
from mz_engine.prompts.render import contains_text, render

SHARED_SECTIONS: Mapping[str, str] = {"rules": "partials/rules.md.j2", "request": "partials/request.md.j2"}
"""Sections that are the same in every phase of a feature: mark -> template."""


class TextMarks(msgspec.Struct, frozen=True, kw_only=True):
    """Marks of the texts in a prompt."""

    inputs: Mapping[str, str] = {}
    """Artifact -> mark."""
    notes: tuple[str, ...] = ()
    """Marks, in the order of the prompt's notes."""
    rework: Mapping[str, str] = {}
    """Path or artifact of a rejected output -> mark."""


def phase_mark(phase: str, unit_run: UnitRun) -> str:
    """Return the mark of the full prompt of this phase and unit."""
    return f"phase:{phase}/{unit_run.unit}"


def file_mark(path: str, text: str) -> str:
    return text_mark(sha256(f"{path}\0{text}".encode()).hexdigest())


def unseen_data(data: PromptData, marks: TextMarks, seen_marks: Collection[str]) -> PromptData:
    """Return prompt data for a session that has seen the marks `shown`.

    Known content is only named; notes and rejected texts that were shown or written there are left out.
    """
    known_names = SeenContent(
        rules="rules" in seen_marks,
        request="request" in seen_marks,
        inputs=tuple(name for name in data.inputs if marks.inputs.get(name) in seen_marks),
        files=tuple(file.path for file in data.context if file_mark(file.path, file.text) in seen_marks),
    )
    notes = tuple(note for note, note_mark in zip(data.notes, marks.notes, strict=True) if note_mark not in seen_marks)
    rework = data.rework
    if rework is not None:
        unseen = {name: text for name, text in rework.artifacts.items() if marks.rework.get(name) not in seen_marks}
        rework = replace(rework, artifacts=unseen)
    return replace(data, known=known_names, notes=notes, rework=rework)


def newly_seen_marks(
    prompt: str, data: PromptData, marks: TextMarks, templates: Mapping[str, str], seen_marks: Collection[str]
) -> tuple[str, ...]:
    """Return sorted marks of the content that the prompt really holds: a project's templates may omit anything."""
    return tuple(sorted({*_marks_in_prompt(prompt, data, marks, templates)}.difference(seen_marks)))


def _marks_in_prompt(prompt: str, data: PromptData, marks: TextMarks, templates: Mapping[str, str]) -> Iterator[str]:
    for name, template in SHARED_SECTIONS.items():
        if template in templates and contains_text(prompt, render(templates, template, data)):
            yield name
    for name, text in data.inputs.items():
        if name in marks.inputs and contains_text(prompt, text):
            yield marks.inputs[name]
    for file in data.context:
        if contains_text(prompt, file.text):
            yield file_mark(file.path, file.text)
    for note, note_mark in zip(data.notes, marks.notes, strict=True):
        if contains_text(prompt, note):
            yield note_mark
