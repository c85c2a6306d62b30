"""Adapter: layer 3: every rule set accepts what obeys it, and refuses by name what does not.

Artifacts are made from the rules themselves, and broken one rule at a time; those that were accepted when a cassette
was recorded are judged again.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from mz_engine.artifacts.parse import parse
from mz_engine.artifacts.rule import Rule, RuleSet
from mz_engine.artifacts.validate import SLOT, STOPPING, requirements, validate
from mz_engine.config import Limits
from mz_engine.pipelines.own import RULES, load_material
from mz_recordings.findings import Finding

from mz_qa.conformance.readings import damage
from mz_qa.layers.drafts import Draft, Unmakeable, draft
from mz_qa.layers.drifting import ABOUT_ARTIFACTS, drifted, told
from mz_qa.layers.facts import Checked, Project, Remark, Said
from mz_qa.layers.mutations import Mutation, mutations
from mz_qa.layers.within import TookTooLong, within

SEEDS = 6
SECONDS = 60
"""For one rule set of a project; it takes less than one."""
DAMAGES = 20
WHERE = "artifact"
SHOWN_MAX = 200
TOLD = (*ABOUT_ARTIFACTS, "PIPELINE", "UNUSABLE")
"""Verdicts, and what stands in their way: today's pipeline, or the cassette."""


def check(project: Project) -> Iterator[Said]:
    """All rule sets that pipelines may name here, and the artifacts of all cassettes."""
    material = load_material(project.root)
    own = {file.rpartition("/")[2].removesuffix(".yaml"): file for file in material.files if file.startswith(RULES)}
    for name, rules in material.rules.items():
        if name in own:
            yield from own_rules(rules, project.config.limits, own[name])
        else:
            yield from check_rules(rules, project.config.limits, "")
    yield from recorded(project)


def own_rules(rules: RuleSet, limits: Limits, file: str, seconds: float = SECONDS) -> tuple[Said, ...]:
    """Those of a project may hold a pattern that takes for ever, so they are tried in a process of their own."""
    try:
        return within(seconds, _all_said, rules, limits, file)
    except TookTooLong:
        words = f"cannot be judged within {seconds:g} s: a pattern in it may take for ever on some texts"
        return (Checked("rule sets"), _broken(rules, file, words))


def _all_said(rules: RuleSet, limits: Limits, file: str) -> tuple[Said, ...]:
    return tuple(check_rules(rules, limits, file))


def recorded(project: Project) -> Iterator[Said]:
    """What was handed over in the cassettes is judged, and read, as it was when it was recorded. What keeps it from
    being judged is said here too."""
    played, _ = drifted(project, played=False) if project.cassettes else ((), ())
    for one in played:
        yield Checked("recorded artifacts", one.judged)
        yield from told(project, Path(one.path), [each for each in one.findings if each.kind in TOLD])


def check_rules(rules: RuleSet, limits: Limits, file: str) -> Iterator[Said]:
    """One rule set; `file` is where it stands, empty for one that comes with mz."""
    yield Checked("rule sets")
    blanks = dict.fromkeys(words for words in requirements(rules, limits) if not words.strip() or SLOT.search(words))
    for words in blanks:
        yield _broken(rules, file, f"tells the agent {words!r}, which has a blank in it")
    tried, told_of = set[str](), set[tuple[str, str]]()
    for seed in range(SEEDS):
        try:
            made = draft(rules, limits, seed)
        except Unmakeable as error:
            yield _broken(rules, file, f"cannot be obeyed: {error}")
            return
        found = validate(rules, made.text, WHERE, limits, made.others)
        yield Checked("artifacts")
        if found:
            yield _contradiction(rules, file, made, tuple(one.message for one in found))
            return
        yield from _unread(rules, file, made)
        yield from _total(rules, file, made, seed)
        for rule in rules.rules:
            for mutation in mutations(made, rule):
                yield Checked("artifacts")
                verdict = judged(made, rule, mutation)
                tried |= {rule.id} if verdict is not None else set()
                if verdict and (rule.id, mutation.what) not in told_of:
                    told_of.add((rule.id, mutation.what))
                    yield Finding(
                        kind="RULE", cause=rule.id, file=file, detail=(f"  {verdict}",), mend=mend_of(file),
                        what=f"the rule set {rules.name}: an artifact {mutation.what} is not refused by {rule.id}",
                    )  # fmt: skip
    untried = [rule.id for rule in rules.rules if rule.id not in tried]
    if untried:
        yield Remark(f"nothing could try these rules of {rules.name}: {', '.join(untried)}")


def judged(made: Draft, rule: Rule, mutation: Mutation) -> str | None:
    """Empty: the rule refused it. None: a rule before it ended the judgement. Else what was said instead."""
    others = made.others if mutation.others is None else mutation.others
    found = validate(made.rules, mutation.text, WHERE, made.limits, others)
    named = {one.violation.rule for one in found}
    if rule.id in named:
        blank = next((one.message for one in found if SLOT.search(one.message)), "")
        return f"its message has a blank in it: {blank}" if blank else ""
    before = made.rules.rules[: made.rules.rules.index(rule)]
    if any(one.id in named for one in before if isinstance(one, STOPPING)):
        return None
    return f"refused by {', '.join(sorted(named))} only" if named else "it is accepted"


def _contradiction(rules: RuleSet, file: str, made: Draft, messages: tuple[str, ...]) -> Finding:
    return Finding(
        kind="RULE",
        what=f"the rule set {rules.name} refuses an artifact that was made to obey it: its rules contradict each other",
        cause=rules.name,
        detail=(*(f"  {message[:SHOWN_MAX]}" for message in messages), *(f"  | {line}" for line in _head(made.text))),
        mend=mend_of(file),
        file=file,
    )


def _head(text: str) -> list[str]:
    return [line[:SHOWN_MAX] for line in text.splitlines()[:12]]


def _unread(rules: RuleSet, file: str, made: Draft) -> Iterator[Finding]:
    """What decisions need of a valid artifact is found in it."""
    parsed, wanted = parse(rules, made.text), rules.extract
    if wanted.units and len(parsed.units) != len(made.items):
        yield _broken(rules, file, f"gives {len(parsed.units)} units of {len(made.items)} items")
    if wanted.files and not parsed.files:
        yield _broken(rules, file, f"gives no files, though {wanted.files} wants some")
    missing = [name for name in wanted.fields if made.items and name in made.items[0] and name not in parsed.fields]
    if missing:
        yield _broken(rules, file, f"gives no {', '.join(missing)} of an artifact that has it")


def _total(rules: RuleSet, file: str, made: Draft, seed: int) -> Iterator[Said]:
    """Damaged artifacts are judged and parsed like any other."""
    dice = random.Random(f"{rules.name}/{seed}")
    yield Checked("artifacts", DAMAGES)
    for _ in range(DAMAGES):
        text = damage(made.text.encode(), dice).decode("utf-8", "replace")
        try:
            parse(rules, text)
            validate(rules, text, WHERE, made.limits, dict.fromkeys(made.others, text))
        except Exception as error:
            yield _broken(rules, file, f"cannot judge a damaged artifact: {type(error).__name__}: {error}")
            return


def _broken(rules: RuleSet, file: str, words: str) -> Finding:
    return Finding(
        kind="RULE", what=f"the rule set {rules.name} {words}", cause=rules.name, file=file, mend=mend_of(file)
    )


def mend_of(file: str) -> str:
    """Rules of a project are its own to change."""
    return "change the rules, then: mz gate --layer 3" if file else "report it: these rules come with mz"
