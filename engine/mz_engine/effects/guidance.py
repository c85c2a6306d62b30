"""Effect that composes what heads the prompt of a call: the persona of the phase's card, and its skills."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from hashlib import sha256
from itertools import accumulate
from typing import Literal

import msgspec
from mz_events.catalog.call import SkillUse
from mz_events.names import BUILDER, Path

from mz_engine.decide.conditions import holds
from mz_engine.effects.steps import StepContext, Steps, call_port
from mz_engine.effects.validation import broken_rules
from mz_engine.model.card import Guidance, Skill
from mz_engine.ports import Workspace
from mz_engine.prompts.render import HeadText

NO_GUIDANCE = Guidance()
SKILLS_FOLDER = ".mz/skills"
"""In a worktree; captures skip it."""
DIGEST_DIGITS = 8
NAME_CHARS_MAX = 64
"""Of a skill, in all programs that list skills."""


class PromptHead(msgspec.Struct, frozen=True, kw_only=True):
    """The texts before a prompt, and where they come from."""

    texts: tuple[HeadText, ...] = ()
    card: str = ""
    skills: tuple[SkillUse, ...] = ()
    skill_folder: str = ""
    """Of those that the agent's program loads; empty: none."""
    files: Mapping[Path, bytes] = {}
    """Of these skills, by path in the worktree."""


def compose_head(context: StepContext, role: str, skills_path: str = "") -> Steps[PromptHead]:
    """Compose the persona and the skills whose conditions hold; the others are left out, and all for a reviewer. If the
    agent's program loads skills from `skills_path` (`Capabilities.skills`), and the settings say so, they are files,
    which the prompt only names."""
    guidance, uses = NO_GUIDANCE, list[SkillUse]()
    if role == BUILDER:
        guidance = context.pins.guidance.get(context.phase.phase, NO_GUIDANCE)
    persona = HeadText(source="persona", name=guidance.card, text=guidance.persona)
    texts = [persona] if guidance.persona else []
    is_native = bool(guidance.skills) and (yield from _loads_files(context, skills_path))
    form: Literal["text", "native"] = "native" if is_native else "text"
    for skill in guidance.skills:
        broken = yield from broken_rules(context, skill.when)
        state, unit_run, phase = context.phase_state, context.unit_run, context.phase
        is_given = not skill.when or any(holds(entry, state, unit_run, phase, broken) for entry in skill.when)
        uses.append(SkillUse(name=skill.name, version=skill.version, form=form if is_given else "left-out"))
        if is_given:
            text = f"# Skill: {skill.name}\n\n{skill.text}"
            text = text if form == "text" else f"Load and follow the skill `{listed_name(skill)}`."
            texts.append(HeadText(source="skill", name=skill.name, text=text))
    folder, texts_by_name = skill_files(guidance, uses)
    top, files = skills_path.format(call=folder), dict[Path, bytes]()
    for name, text in texts_by_name.items():
        files |= {Path(f"{top}/{name}/SKILL.md"): text.encode(), Path(f"{top}/{name}/.gitignore"): b"*\n"}
    return PromptHead(texts=tuple(texts), card=guidance.card, skills=tuple(uses), skill_folder=folder, files=files)


def _loads_files(context: StepContext, skills_path: str) -> Steps[bool]:
    """Return True if skills are to be files: the phase has tools to load them with, and the project has no file or link
    where their folder has to be."""
    use = context.phase.agent
    if not skills_path or not use or not use.tools or context.pins.config.skills != "native":
        return False
    for path in accumulate(skills_path.format(call=SKILLS_FOLDER).split("/"), "{}/{}".format):
        if (yield from call_port(Workspace.read, context.unit_run.tree, Path(path))) is not None:
            return False
    return True


def listed_name(skill: Skill) -> str:
    """Return the name of a skill that is a file. It depends on the content: a replay finds a change in the prompt, and
    no skill of the project or the user has the same."""
    digest = sha256(msgspec.json.encode((skill.description, skill.text))).hexdigest()[:DIGEST_DIGITS]
    return f"{skill.name[: NAME_CHARS_MAX - DIGEST_DIGITS - 1]}-{digest}"


def skill_files(guidance: Guidance, uses: Iterable[SkillUse]) -> tuple[str, dict[str, str]]:
    """Return the folder of the skills that the agent's program loads, empty if there are none, and their texts by the
    names that it lists.

    The folder is named by their content: a replay finds a change, and a later call in the worktree its own skills only.
    """
    names, files = {use.name for use in uses if use.form == "native"}, dict[str, str]()
    for skill in (skill for skill in guidance.skills if skill.name in names):
        header = f"---\nname: {listed_name(skill)}\ndescription: {json.dumps(skill.description)}\n---\n"
        files[listed_name(skill)] = f"{header}\n{skill.text}\n"
    digest = sha256(msgspec.json.encode(files)).hexdigest()[:DIGEST_DIGITS]
    return f"{SKILLS_FOLDER}/{digest}" if files else "", files
