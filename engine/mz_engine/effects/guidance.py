"""Effect that composes what heads the prompt of a call: the persona of the phase's card, and its skills."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Literal

import msgspec
from mz_events.catalog.call import SkillUse
from mz_events.names import BUILDER, Path

from mz_engine.decide.conditions import holds
from mz_engine.effects.steps import StepContext, Steps
from mz_engine.effects.validation import broken_rules
from mz_engine.model.card import Guidance
from mz_engine.prompts.render import HeadText

NO_GUIDANCE = Guidance()
SKILLS_FOLDER = ".mz/skills"
"""In a worktree; captures skip it."""


class PromptHead(msgspec.Struct, frozen=True, kw_only=True):
    """The texts before a prompt, and where they come from."""

    texts: tuple[HeadText, ...] = ()
    card: str = ""
    skills: tuple[SkillUse, ...] = ()
    skill_folder: str = ""
    """Folder in the worktree with those that the agent's program loads; empty: none."""
    files: Mapping[Path, bytes] = {}
    """Of these skills, by path in the worktree."""


def guidance_of(context: StepContext, role: str) -> Guidance:
    """Return the guidance of a call; a reviewer has none."""
    return context.pins.guidance.get(context.phase.phase, NO_GUIDANCE) if role == BUILDER else NO_GUIDANCE


def compose_head(context: StepContext, role: str, subfolder: str = "") -> Steps[PromptHead]:
    """Compose the persona and the skills whose conditions hold; the others are left out. If the agent's program loads
    skills from a `subfolder`, and the settings say so, they are files, which the prompt only names."""
    guidance, uses = guidance_of(context, role), list[SkillUse]()
    persona = HeadText(source="persona", name=guidance.card, text=guidance.persona)
    texts = [persona] if guidance.persona else []
    form: Literal["text", "native"] = "native" if subfolder and context.pins.config.skills == "native" else "text"
    for skill in guidance.skills:
        broken = yield from broken_rules(context, skill.when)
        state, unit_run, phase = context.phase_state, context.unit_run, context.phase
        is_given = not skill.when or any(holds(entry, state, unit_run, phase, broken) for entry in skill.when)
        uses.append(SkillUse(name=skill.name, version=skill.version, form=form if is_given else "left-out"))
        if is_given:
            text = f"# Skill: {skill.name}\n\n{skill.text}"
            text = text if form == "text" else f"Load and follow the skill `{skill.name}`."
            texts.append(HeadText(source="skill", name=skill.name, text=text))
    folder, files = skill_files(guidance, uses)
    return PromptHead(
        texts=tuple(texts),
        card=guidance.card,
        skills=tuple(uses),
        skill_folder=folder,
        files={Path(f"{folder}/{subfolder}/{name}/SKILL.md"): text.encode() for name, text in files.items()},
    )


def skill_files(guidance: Guidance, uses: Iterable[SkillUse]) -> tuple[str, dict[str, str]]:
    """Return the folder of the skills that the agent's program loads, empty if there are none, and their texts by name.

    The folder is named by their content: a replay finds a change, and a later call in the worktree its own skills only.
    """
    names, files = {use.name for use in uses if use.form == "native"}, dict[str, str]()
    for skill in (skill for skill in guidance.skills if skill.name in names):
        header = f"---\nname: {skill.name}\ndescription: {json.dumps(skill.description)}\n---\n"
        files[skill.name] = f"{header}\n{skill.text}\n"
    return f"{SKILLS_FOLDER}/{sha256(msgspec.json.encode(files)).hexdigest()[:8]}" if files else "", files
