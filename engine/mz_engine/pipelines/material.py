"""Check templates and rule sets of a repository before a run depends on them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from mz_engine.artifacts.load import assemble
from mz_engine.artifacts.rule import RuleSet
from mz_engine.artifacts.validate import requirements, validate
from mz_engine.config import Limits
from mz_engine.errors import Diagnostic, Place
from mz_engine.pipelines.lint import Unfilled
from mz_engine.prompts.data import PromptData
from mz_engine.prompts.render import environment
from mz_engine.shape import Route, did_you_mean
from mz_engine.yamlfile import Document

AT = re.compile(r" - at `\$(?:\.)?(.*?)`$")
STEP = re.compile(r"([A-Za-z_]\w*)|\[(\d+)\]")
PLAIN = frozenset({"loop", "self", "super", "caller", "varargs", "kwargs"})
"""Names that jinja2 itself provides to templates."""
SAMPLES = (None, "", "# T\n\n## A\n\n- `a.py`: one\n\ntext FR-001\n", '[{"id": "a"}]', '{"severity": "NONE"}')
"""Artifacts of all forms: a rule that can be evaluated on these can be evaluated on any."""


def check_template(file: str, name: str, text: str, known: Collection[str]) -> Iterator[Diagnostic]:
    """Yield MZ3017: syntax errors, unknown filters and names, and missing templates (not in `template_names`)."""
    from jinja2 import TemplateSyntaxError, meta

    made = environment({name: text})
    try:
        made.compile(text, name, name)
        tree = made.parse(text, name, name)
    except TemplateSyntaxError as error:
        reason = error.message or "not a valid template"
        yield Diagnostic(code="MZ3017", message=sentence(reason), place=Place(file, error.lineno))
        return
    fields = [field.name for field in msgspec.structs.fields(PromptData)]
    for variable in sorted(meta.find_undeclared_variables(tree) - {*fields, *made.globals, *PLAIN}):
        said = f"prompts have no variable `{variable[:80]}`"
        place = Place(file, line_of(text, variable))
        yield Diagnostic(code="MZ3017", message=said, hint=did_you_mean(variable, fields), place=place)
    for other in sorted(each for each in meta.find_referenced_templates(tree) if each and each not in known):
        place = Place(file, line_of(text, other))
        hint = did_you_mean(other, sorted(known))
        yield Diagnostic(code="MZ3017", message=f"there is no template `{other[:80]}`", hint=hint, place=place)


def unfilled(templates: Mapping[str, str]) -> dict[str, tuple[Unfilled, ...]]:
    """Return the required blocks that templates do not define, in the order of the text. Templates may declare them or
    inherit the declaration. Invalid templates are left to `check_template`."""
    from jinja2 import TemplateSyntaxError, nodes

    made, trees = environment(templates), dict[str, nodes.Template]()
    for name, text in templates.items():
        with suppress(TemplateSyntaxError):
            trees[name] = made.parse(text, name, name)
    found = dict[str, tuple[Unfilled, ...]]()
    for name in trees:
        written, lacking, chain = set[str](), list[Unfilled](), list[str]()
        at: str | None = name
        while at in trees and at not in chain:
            chain.append(at)
            blocks = tuple(trees[at].find_all(nodes.Block))
            required = [each for each in blocks if each.required and each.name not in written]
            lacking += [Unfilled(each.name, f"{at}:{each.lineno}") for each in required]
            written |= {each.name for each in blocks}
            parent = next((each.template for each in trees[at].find_all(nodes.Extends)), None)
            at = str(parent.value) if isinstance(parent, nodes.Const) else None
        if lacking:
            found[name] = tuple(lacking)
    return found


def line_of(text: str, word: str) -> int:
    """Return the first line that contains the word; 0 if none does."""
    found = re.search(rf"(?<![\w.]){re.escape(word)}(?!\w)", text)
    return text.count("\n", 0, found.start()) + 1 if found else 0


def read_rules(document: Document, name: str, shared: Mapping[str, dict[str, Any]]) -> RuleSet | tuple[Diagnostic, ...]:
    """Return the rule set in a file called `name`, or its errors (MZ3018)."""
    found = tuple(_form(document, name, shared))
    if found:
        return found
    try:
        rules = assemble(dict(_mapping(document.value)), dict(shared))
    except msgspec.ValidationError as error:
        words = str(error)
        return (_wrong(document, route_of(words), sentence(AT.sub("", words))),)
    return tuple(_sense(rules, document)) or rules


def _form(document: Document, name: str, shared: Mapping[str, dict[str, Any]]) -> Iterator[Diagnostic]:
    value = _mapping(document.value)
    if value.get("name") != name:
        yield _wrong(document, ("name",), f"`name` must be the file's name: {name}")
    rules = value.get("rules")
    if not isinstance(rules, list) or not rules:
        yield _wrong(document, ("rules",), "`rules` must be a list of at least one rule", "begin with `- shared: file`")
        return
    for number, rule in enumerate(rules):
        if not isinstance(rule, dict):
            yield _wrong(document, ("rules", number), "a rule must be a mapping")
        elif "shared" in rule and rule["shared"] not in shared:
            said = f"there is no shared rule `{str(rule['shared'])[:80]}`"
            yield _wrong(document, ("rules", number, "shared"), said, did_you_mean(str(rule["shared"]), shared))


def _sense(rules: RuleSet, document: Document) -> Iterator[Diagnostic]:
    """Yield errors that only evaluation shows: patterns, names of limits, references between rules."""
    seen: set[str] = set()
    alone = False
    for number, rule in enumerate(rules.rules):
        if not rule.id.startswith(f"{rules.name}.") or rule.id in seen:
            said = f"ids must be unique and have the form `{rules.name}.SOMETHING`: `{rule.id}`"
            yield _wrong(document, ("rules", number, "id"), said)
        seen.add(rule.id)
        # A rule on its own may fail because it refers to another one; these errors are its own.
        fault = fault_of(msgspec.structs.replace(rules, rules=(rule,)))
        if isinstance(fault, re.error | AttributeError):
            alone = True
            yield _wrong(document, ("rules", number), f"this rule cannot be evaluated: {fault}")
    fault = None if alone else fault_of(rules)
    if fault:
        reason = f"{type(fault).__name__}: {fault}"
        yield _wrong(document, ("rules",), f"these rules cannot be evaluated together: {reason}")


def fault_of(rules: RuleSet) -> Exception | None:
    """Return the error of stating these rules to an agent or evaluating them on sample artifacts."""
    limits = Limits()
    try:
        requirements(rules, limits)
        for text in SAMPLES:
            validate(rules, text, "sample", limits, {})
    except Exception as error:
        return error
    return None


def route_of(words: str) -> Route:
    """Return the location that msgspec names: `$.rules[3].kind` is ("rules", 3, "kind")."""
    found = AT.search(words)
    steps = STEP.finditer(found[1]) if found else ()
    return tuple(int(step[2]) if step[2] else step[1] for step in steps)


def sentence(text: str) -> str:
    text = " ".join(text.split()).removesuffix(".")
    return text[:1].lower() + text[1:]


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _wrong(document: Document, at: Route, said: str, hint: str = "") -> Diagnostic:
    return Diagnostic(code="MZ3018", message=said, hint=hint, place=document.place(*at))
