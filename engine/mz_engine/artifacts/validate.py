"""Pure: rules over one artifact or over a feature as a whole: which are broken, where, and the words for it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from mz_events.catalog.check import Violation

from mz_engine.artifacts import jsonrules, textrules
from mz_engine.artifacts.check import RULES
from mz_engine.artifacts.rule import Bytes, File, Finding, Json, Limit, Rule, RuleFacts, RuleSet
from mz_engine.artifacts.subject import Breach, Subject, resolve
from mz_engine.config import Limits

STOPPING = (File, Bytes, Json)
"""Kinds after whose breach the rest would only repeat it."""
FOUND_MAX = 300
"""Characters of an artifact that a message quotes, in one line."""
SLOT = re.compile(r"\{(min|max|aliases|values|item|found)\}")


def validate(
    rules: RuleSet, text: str | None, where: str, limits: Limits, others: Mapping[str, str]
) -> tuple[Finding, ...]:
    """Every broken rule, in the order of the rules; empty: valid.

    `text` None: the file is not there. `where` is its path, or the artifact's name for a reply; `others` are the texts
    of earlier artifacts by name: a rule about one that is absent is kept.
    """
    if text is None:
        missing = [rule for rule in rules.rules if isinstance(rule, File)]
        return tuple(finding(rule, Breach(), where, limits) for rule in missing)
    subject = Subject(rules, text, limits, others)
    found: list[Finding] = []
    for rule in rules.rules:
        breaches = judge(rule, subject)
        found += [finding(rule, breach, where, limits) for breach in breaches]
        if breaches and isinstance(rule, STOPPING):
            break
    return tuple(found)


def check_rule(name: str, facts: RuleFacts) -> tuple[Finding, ...]:
    """The findings of a rule over the feature, in order; empty: kept. Raises KeyError for a name not in RULES."""
    return tuple(RULES[name](facts))


def judge(rule: Rule, subject: Subject) -> tuple[Breach, ...]:
    return tuple((jsonrules.judge if subject.rules.form == "json" else textrules.judge)(rule, subject))


def requirements(rules: RuleSet, limits: Limits) -> tuple[str, ...]:
    """Every rule that `validate` enforces, in words, with every alias and number."""
    return tuple(fill(rule.requirement, rule, limits) for rule in rules.rules)


def finding(rule: Rule, breach: Breach, where: str, limits: Limits) -> Finding:
    """The violation, and `PATH:LINE: what is wrong. Example: ... [rule]`."""
    found = " ".join(breach.found.split())[:FOUND_MAX]
    words = fill(rule.message, rule, limits, item=breach.item, found=found)
    place = f"{where}:{breach.line}" if breach.line else where
    example = f". Example: {rule.example}" if rule.example else ""
    return Finding(
        violation=Violation(rule=rule.id, path=where + breach.place, line=breach.line),
        message=f"{place}: {words}{example} [{rule.id}]",
    )


def fill(text: str, rule: Rule, limits: Limits, **values: str) -> str:
    slots = {
        "min": number(getattr(rule, "min", None), limits),
        "max": number(getattr(rule, "max", None), limits),
        "aliases": listed(getattr(rule, "aliases", ())),
        "values": listed(getattr(rule, "values", ())),
        **values,
    }
    return SLOT.sub(lambda slot: slots.get(slot[1], slot[0]), text)


def number(limit: Limit | None, limits: Limits) -> str:
    return "" if limit is None else str(resolve(limit, limits))


def listed(names: tuple[str, ...]) -> str:
    quoted = [f'"{name}"' for name in names]
    return " or ".join(filter(None, [", ".join(quoted[:-1]), *quoted[-1:]]))
