"""Find and check skills, and gather what a run pins of cards and skills."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from mz_engine.cards.load import read_persona
from mz_engine.cards.route import card_of_phase
from mz_engine.decoding.text_file import read_text
from mz_engine.decoding.yaml import decode_document, parse_yaml
from mz_engine.errors.diagnostics import Diagnostic, MzError, SourceLocation
from mz_engine.model.card import MAX_TOKENS, CardFile, Guidance, Skill, SkillFile, SkillHeader
from mz_engine.model.pipeline import Pipeline

SKILLS_FOLDER, SKILL_FILE = "skills", "SKILL.md"
BUILT_IN_SKILLS = Path(__file__).parent / "built_in_skills"
SKILL_BYTES_MAX = 64_000
FRONT_MATTER = re.compile(r"---[ \t]*\n(.*?\n)---[ \t]*(?:\n|\Z)", re.DOTALL)


def load_skills(root: Path) -> dict[str, SkillFile]:
    """Return the skills that a pipeline may name, sorted; one of the repository hides a built-in one."""
    return dict(sorted({**_below(BUILT_IN_SKILLS), **_below(root / SKILLS_FOLDER)}.items()))


def _below(folder: Path, prefix: str = "") -> dict[str, SkillFile]:
    if not folder.is_dir():
        return {}
    names = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir())
    files = {name: f"{prefix}{SKILLS_FOLDER}/{name}/{SKILL_FILE}" for name in names}
    return {
        name: read_skill(folder / name, file)
        for name, file in files.items()
        if os.path.lexists(folder / name / SKILL_FILE)
    }


def read_skill(folder: Path, file: str) -> SkillFile:
    """Read the skill in a folder; `file` is its name in messages."""
    empty = SkillFile(name=folder.name, file=file, built_in=folder.parent == BUILT_IN_SKILLS)
    try:
        if (folder / SKILL_FILE).is_symlink() or folder.is_symlink():
            hint = "put the file itself in its place"
            raise MzError("MZ3028", "a skill is never a link", hint=hint, location=SourceLocation(file))
        skill = parse_skill(read_text(folder / SKILL_FILE, file, SKILL_BYTES_MAX), folder.name, file)
    except MzError as error:
        return msgspec.structs.replace(empty, diagnostics=error.diagnostics)
    return msgspec.structs.replace(empty, skill=skill)


def parse_skill(text: str, name: str | None, file: str) -> Skill:
    """Return the skill; `name` is that of its folder, None: any will do. Raises MzError: MZ20nn for
    the form of its front matter, else MZ3028."""
    match = FRONT_MATTER.match(text)
    if match is None:
        hint = "begin with `---`, `name:`, `description:` and another `---`"
        raise MzError("MZ3028", "it has no front matter", hint=hint, location=SourceLocation(file, 1, 1))
    document = parse_yaml(f"\n{match[1]}", file)  # Lines count from the first `---`.
    header, body = decode_document(document, SkillHeader), text[match.end() :].strip()
    if name is not None and header.name != name:
        message, location = f"`name` is {header.name}, but the folder is called {name}", document.location("name")
        raise MzError("MZ3028", message, hint="rename one of them", location=location)
    if not body:
        location = SourceLocation(file, text.count("\n", 0, match.end()) + 1, 1)
        raise MzError("MZ3028", "the skill has no text", hint="write it below the front matter", location=location)
    about = header.description
    return Skill(name=header.name, description=about, version=header.version, when=header.when, text=body)


def gather_guidance(
    pipeline: Pipeline, cards: Mapping[str, CardFile], skills: Mapping[str, SkillFile]
) -> dict[str, Guidance]:
    """Return the guidance of each phase that has a card or skills, for the pins. Raises MzError with all that cannot be
    read."""
    guidance, diagnostics = dict[str, Guidance](), list[Diagnostic]()
    for phase in pipeline.phases:
        file = cards.get(card_of_phase(phase, pipeline, cards))
        named = [skills[name] for name in (phase.agent.skills if phase.agent else ()) if name in skills]
        if file is None and not named:
            continue
        own = _below(Path(file.folder) / SKILLS_FOLDER, f"{file.file.rpartition('/')[0]}/") if file else {}
        files = {**own, **{skill.name: skill for skill in named}}
        diagnostics += [diagnostic for skill in files.values() for diagnostic in skill.diagnostics]
        try:
            guidance[phase.phase] = Guidance(
                card=file.name if file else "",
                persona=read_persona(file).strip() if file else "",
                tokens_max=file.card.budget.get(MAX_TOKENS) if file and file.card else None,
                skills=tuple(skill.skill for skill in files.values() if skill.skill),
            )
        except MzError as error:
            diagnostics += error.diagnostics
    if diagnostics:
        raise MzError.from_diagnostics(dict.fromkeys(diagnostics))
    return guidance
