"""Effect that composes what heads the prompt of a call: the persona of the phase's card, and its skills."""

from __future__ import annotations

import msgspec
from mz_events.catalog.call import SkillUse
from mz_events.names import BUILDER

from mz_engine.decide.conditions import holds
from mz_engine.effects.steps import StepContext, Steps
from mz_engine.effects.validation import broken_rules
from mz_engine.model.card import Guidance
from mz_engine.prompts.render import HeadText

NO_GUIDANCE = Guidance()


class PromptHead(msgspec.Struct, frozen=True, kw_only=True):
    """The texts before a prompt, and where they come from."""

    texts: tuple[HeadText, ...] = ()
    card: str = ""
    skills: tuple[SkillUse, ...] = ()


def guidance_of(context: StepContext, role: str) -> Guidance:
    """Return the guidance of a call; a reviewer has none."""
    return context.pins.guidance.get(context.phase.phase, NO_GUIDANCE) if role == BUILDER else NO_GUIDANCE


def compose_head(context: StepContext, role: str) -> Steps[PromptHead]:
    """Compose the persona and the skills whose conditions hold; the others are left out."""
    guidance, uses = guidance_of(context, role), list[SkillUse]()
    persona = HeadText(source="persona", name=guidance.card, text=guidance.persona)
    texts = [persona] if guidance.persona else []
    for skill in guidance.skills:
        broken = yield from broken_rules(context, skill.when)
        state, unit_run, phase = context.phase_state, context.unit_run, context.phase
        is_given = not skill.when or any(holds(entry, state, unit_run, phase, broken) for entry in skill.when)
        uses.append(SkillUse(name=skill.name, version=skill.version, form="text" if is_given else "left-out"))
        if is_given:
            text = f"# Skill: {skill.name}\n\n{skill.text}"
            texts.append(HeadText(source="skill", name=skill.name, text=text))
    return PromptHead(texts=tuple(texts), card=guidance.card, skills=tuple(uses))
