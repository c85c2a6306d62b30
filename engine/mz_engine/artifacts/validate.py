"""Validate one artifact, or a feature as a whole, against rules."""

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
"""Kinds of rules after whose violation later rules would only repeat it."""
FOUND_MAX = 300
"""Characters of an artifact that a message quotes, in one line."""
SLOT = re.compile(r"\{(min|max|aliases|values|item|found)\}")


def validate(
    rules: RuleSet, text: str | None, where: str, limits: Limits, others: Mapping[str, str]
) -> tuple[Finding, ...]:
    """Return every broken rule, in the order of the rules; empty: valid.

    `text` None: the file does not exist. `source` is its path, or the artifact's name for a reply; `earlier_artifacts`
    are texts by name: a rule about an absent one never fails."""
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
    """Return the findings of a rule over the feature, in order. Raises KeyError for a name not in FEATURE_RULES."""
    return tuple(RULES[name](facts))


def judge(rule: Rule, subject: Subject) -> tuple[Breach, ...]:
    return tuple((jsonrules.judge if subject.rules.form == "json" else textrules.judge)(rule, subject))


def requirements(rules: RuleSet, limits: Limits) -> tuple[str, ...]:
    """Return the text of every rule that `validate` enforces, with all aliases and numbers."""
    return tuple(fill(rule.requirement, rule, limits) for rule in rules.rules)


def finding(rule: Rule, breach: Breach, where: str, limits: Limits) -> Finding:
    """Build a finding with the message `PATH:LINE: what is wrong. Example: ... [rule]`."""
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
