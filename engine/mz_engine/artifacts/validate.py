"""Validate one artifact, or a feature as a whole, against rules."""

from __future__ import annotations

import re
from collections.abc import Mapping

from mz_events.catalog.validation import Violation

from mz_engine.artifacts import json_rules, text_rules
from mz_engine.artifacts.feature_rules import FEATURE_RULES
from mz_engine.artifacts.subject import ArtifactSubject, RuleViolation, resolve_limit
from mz_engine.model.config import Limits
from mz_engine.model.rules import ByteSize, FeatureRuleInput, FileRule, JsonForm, Limit, Rule, RuleFinding, RuleSet

BLOCKING_KINDS = (FileRule, ByteSize, JsonForm)
"""Kinds of rules after whose violation later rules would only repeat it."""
QUOTE_CHARS_MAX = 300
"""Characters of an artifact that a message quotes, in one line."""
MESSAGE_SLOT = re.compile(r"\{(min|max|aliases|values|item|found)\}")


def validate(
    rules: RuleSet, text: str | None, source: str, limits: Limits, earlier_artifacts: Mapping[str, str]
) -> tuple[RuleFinding, ...]:
    """Return every broken rule, in the order of the rules; empty: valid.

    `text` None: the file does not exist. `source` is its path, or the artifact's name for a reply; `earlier_artifacts`
    are texts by name: a rule about an absent one never fails."""
    if text is None:
        missing = [rule for rule in rules.rules if isinstance(rule, FileRule)]
        return tuple(rule_finding(rule, RuleViolation(), source, limits) for rule in missing)
    subject = ArtifactSubject(rules, text, limits, earlier_artifacts)
    findings: list[RuleFinding] = []
    for rule in rules.rules:
        violations = rule_violations(rule, subject)
        findings += [rule_finding(rule, violation, source, limits) for violation in violations]
        if violations and isinstance(rule, BLOCKING_KINDS):
            break
    return tuple(findings)


def evaluate_feature_rule(name: str, facts: FeatureRuleInput) -> tuple[RuleFinding, ...]:
    """Return the findings of a rule over the feature, in order. Raises KeyError for a name not in FEATURE_RULES."""
    return tuple(FEATURE_RULES[name](facts))


def rule_violations(rule: Rule, subject: ArtifactSubject) -> tuple[RuleViolation, ...]:
    return tuple(
        (json_rules.rule_violations if subject.rules.form == "json" else text_rules.rule_violations)(rule, subject)
    )


def requirements(rules: RuleSet, limits: Limits) -> tuple[str, ...]:
    """Return the text of every rule that `validate` enforces, with all aliases and numbers."""
    return tuple(fill_slots(rule.requirement, rule, limits) for rule in rules.rules)


def rule_finding(rule: Rule, violation: RuleViolation, source: str, limits: Limits) -> RuleFinding:
    """Build a finding with the message `PATH:LINE: what is wrong. Example: ... [rule]`."""
    quote = " ".join(violation.actual.split())[:QUOTE_CHARS_MAX]
    message = fill_slots(rule.message, rule, limits, item=violation.item_label, found=quote)
    location = f"{source}:{violation.line}" if violation.line else source
    example = f". Example: {rule.example}" if rule.example else ""
    return RuleFinding(
        violation=Violation(rule=rule.id, path=source + violation.location, line=violation.line),
        message=f"{location}: {message}{example} [{rule.id}]",
    )


def fill_slots(text: str, rule: Rule, limits: Limits, **values: str) -> str:
    slots = {
        "min": limit_text(getattr(rule, "min", None), limits),
        "max": limit_text(getattr(rule, "max", None), limits),
        "aliases": quoted_list(getattr(rule, "aliases", ())),
        "values": quoted_list(getattr(rule, "values", ())),
        **values,
    }
    return MESSAGE_SLOT.sub(lambda slot: slots.get(slot[1], slot[0]), text)


def limit_text(limit: Limit | None, limits: Limits) -> str:
    return "" if limit is None else str(resolve_limit(limit, limits))


def quoted_list(names: tuple[str, ...]) -> str:
    quoted = [f'"{name}"' for name in names]
    return " or ".join(filter(None, [", ".join(quoted[:-1]), *quoted[-1:]]))
