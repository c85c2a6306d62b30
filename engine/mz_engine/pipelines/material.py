"""Check templates and rule sets of a repository before a run depends on them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from mz_engine.artifacts.load import assemble_rules
from mz_engine.artifacts.validate import requirements, validate
from mz_engine.decoding.regex import inspect_expression
from mz_engine.decoding.structs import KeyPath, did_you_mean, format_key_path, similar_name_hint
from mz_engine.decoding.yaml import YamlDocument
from mz_engine.errors.diagnostics import Diagnostic, MzError, SourceLocation
from mz_engine.model.config import Config, Limits
from mz_engine.model.pipeline import Edit, Pipeline
from mz_engine.model.rules import CoversIds, MatchingText, RuleSet
from mz_engine.path_patterns import select
from mz_engine.pipelines.lint_phase import LintFinding, MissingBlock, check_braces
from mz_engine.prompts.render import EDITS_FOLDER, EditData, PromptData, template_environment

if TYPE_CHECKING:
    from jinja2 import nodes

RuleProblem = tuple[KeyPath, str, str]
"""Location, message and hint."""
ERROR_PATH = re.compile(r" - at `\$(?:\.)?(.*?)`$")
PATH_STEP = re.compile(r"([A-Za-z_]\w*)|\[(\d+)\]")
JINJA_NAMES = frozenset({"loop", "self", "super", "caller", "varargs", "kwargs"})
"""Names that jinja2 itself provides to templates."""
SAMPLE_ARTIFACTS = (
    *(None, "", "# T\n\n## A\n\n- `a.py`: one\n- [ ] AC-1: b\n\n| id |\n|---|\n| a |\n\ntext FR-001\n"),
    *('[{"id": "a"}]', '{"severity": "NONE"}', '{"a": {"id": "a"}}'),
)
"""Artifacts of all forms: a rule that can be evaluated on these can be evaluated on any."""


def check_template(file: str, name: str, text: str, template_names: Collection[str]) -> Iterator[Diagnostic]:
    """Yield MZ3017: syntax errors, unknown filters and names, and missing templates (not in `template_names`)."""
    from jinja2 import TemplateSyntaxError, meta

    jinja = template_environment({name: text})
    try:
        jinja.compile(text, name, name)
        tree = jinja.parse(text, name, name)
    except TemplateSyntaxError as error:
        reason = error.message or "not a valid template"
        yield Diagnostic(code="MZ3017", message=to_sentence(reason), location=SourceLocation(file, error.lineno))
        return
    is_edit = name.startswith(EDITS_FOLDER)
    fields = [field.name for field in msgspec.structs.fields(EditData if is_edit else PromptData)]
    variables = meta.find_undeclared_variables(tree) - {*fields, *jinja.globals, *JINJA_NAMES}
    references = {name for name in meta.find_referenced_templates(tree) if name and name not in template_names}
    kind = "edits" if is_edit else "prompts"
    unknown = [(name, f"{kind} have no variable", fields) for name in sorted(variables)]
    unknown += [(name, "there is no template", sorted(template_names)) for name in sorted(references)]
    for name, problem, candidates in unknown:
        message, hint = f"{problem} `{name[:80]}`", did_you_mean(name, candidates)
        match = re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", text)
        location = SourceLocation(file, text.count("\n", 0, match.start()) + 1 if match else None)
        yield Diagnostic(code="MZ3017", message=message, hint=hint, location=location)


def check_edits(pipeline: Pipeline, edits: Mapping[str, Edit], templates: Collection[str]) -> Iterator[LintFinding]:
    """Yield MZ3016 for paths and patterns of edits with a wrong placeholder, MZ3008 for missing templates."""
    names = sorted(name for name in templates if name.startswith(EDITS_FOLDER))
    used = () if pipeline.integration else {phase.edit for phase in pipeline.phases}
    for edit_name, edit in edits.items():
        allowed = {"item"} if edit_name in used else {"item", "integration"}
        for number, pattern in enumerate(edit.delete):
            yield from check_braces(("edits", edit_name, "delete", number), pattern, allowed)
        for path, template in edit.write.items():
            route: KeyPath = ("edits", edit_name, "write", path)
            yield from check_braces(route, path, allowed)
            if template not in names:
                hint = did_you_mean(template, names) or f"write it to pipelines/templates/{EDITS_FOLDER}NAME.j2"
                yield LintFinding(route, "MZ3008", f"there is no template `{template[:80]}` of an edit", hint)


def edit_problems(
    config: Config, pipeline: Pipeline, templates: Collection[str], document: YamlDocument
) -> Iterator[Diagnostic]:
    """Yield errors of `check_edits`, and for each file of an edit that nothing may change (MZ2013). `document` is
    mz.yaml."""
    findings = [*check_edits(pipeline, config.edits, templates)]
    for name, edit in {**pipeline.edits, **config.edits}.items():
        for path in select(config.denied_paths, edit.write):
            message = "the file is one of `denied_paths`, which nothing changes"
            hint = "" if name in config.edits else f"`edits: {{{name}: {{}}}}` leaves out this edit of the pipeline"
            findings.append(LintFinding(("edits", name, "write", path), "MZ2013", message, hint))
    located = sorted((document.location(*finding.route).position, finding) for finding in findings)
    for _, (route, code, message, hint, _) in located:
        text = f"`{format_key_path(route)}`: {message}"
        yield Diagnostic(code=code, message=text, hint=hint, location=document.location(*route))


def misspelt_edits(config: Config, pipeline: Pipeline, document: YamlDocument) -> Iterator[Diagnostic]:
    """Yield a warning (MZ2005) for each edit with nearly the name of one that the pipeline makes and mz.yaml lacks."""
    made = {phase.edit for phase in pipeline.phases if phase.edit}
    for name in sorted(config.edits.keys() - made):
        if hint := similar_name_hint(name, sorted(made - config.edits.keys())):
            message = f"the pipeline `{pipeline.pipeline}` makes no edit `{name}`"
            location = document.key_location("edits", name)
            yield Diagnostic(code="MZ2005", message=message, hint=hint, location=location, severity="warning")


def missing_blocks(templates: Mapping[str, str]) -> dict[str, tuple[MissingBlock, ...]]:
    """Return the required blocks, declared or inherited, that templates do not define, in the order of the text."""
    missing = dict[str, tuple[MissingBlock, ...]]()
    for name in templates:
        defined, missing_here, chain = set[str](), list[MissingBlock](), list[str]()
        current = name
        while current in templates and current not in chain:
            chain.append(current)
            blocks, parent = _blocks_and_parent(current, templates[current])
            required = [node for node in blocks if node.required and node.name not in defined]
            missing_here += [MissingBlock(node.name, f"{current}:{node.lineno}") for node in required]
            defined |= {node.name for node in blocks}
            current = parent
        if missing_here:
            missing[name] = tuple(missing_here)
    return missing


@lru_cache(maxsize=256)
def _blocks_and_parent(name: str, text: str) -> tuple[tuple[nodes.Block, ...], str]:
    """Return the blocks of a template, and the template that it extends ("" is none). Of a wrong one: nothing."""
    from jinja2 import TemplateSyntaxError, nodes

    try:
        tree = template_environment({}).parse(text, name, name)
    except TemplateSyntaxError:
        return (), ""
    parent = next((node.template for node in tree.find_all(nodes.Extends)), None)
    return tuple(tree.find_all(nodes.Block)), str(parent.value) if isinstance(parent, nodes.Const) else ""


def read_rules(document: YamlDocument, name: str, shared: Mapping[str, dict[str, Any]]) -> RuleSet:
    """Return the rule set in a file called `name`. Raises MzError (MZ3018) with all errors."""
    data: dict[str, Any] = document.value if isinstance(document.value, dict) else {}
    if not (problems := list(_check_form(data, name, shared))):
        try:
            rules = assemble_rules(dict(data), dict(shared))
            if not (problems := list(_check_evaluation(rules))):
                return rules
        except msgspec.ValidationError as error:
            match = ERROR_PATH.search(str(error))
            steps = PATH_STEP.finditer(match[1]) if match else ()  # `$.rules[3].kind`, as msgspec names a location.
            route = tuple(int(step[2]) if step[2] else step[1] for step in steps)
            problems = [(route, to_sentence(ERROR_PATH.sub("", str(error))), "")]
    raise MzError.from_diagnostics(
        Diagnostic(code="MZ3018", message=message, hint=hint, location=document.location(*route))
        for route, message, hint in problems
    )


def _check_form(data: dict[str, Any], name: str, shared: Mapping[str, dict[str, Any]]) -> Iterator[RuleProblem]:
    if data.get("name") != name:
        yield ("name",), f"`name` must be the file's name: {name}", ""
    rules = data.get("rules")
    if not isinstance(rules, list) or not rules:
        yield ("rules",), "`rules` must be a list of at least one rule", "begin with `- shared: file`"
        return
    for number, rule in enumerate(rules):
        if not isinstance(rule, dict):
            yield ("rules", number), "a rule must be a mapping", ""
        elif "shared" in rule and rule["shared"] not in shared:
            wanted = str(rule["shared"])
            hint = did_you_mean(wanted, shared)
            yield ("rules", number, "shared"), f"there is no shared rule `{wanted[:80]}`", hint


def _check_evaluation(rules: RuleSet) -> Iterator[RuleProblem]:
    """Yield errors that only evaluation shows: patterns, names of limits, references between rules."""
    used_ids: set[str] = set()
    has_rule_faults = False
    for number, rule in enumerate(rules.rules):
        if not rule.id.startswith(f"{rules.name}.") or rule.id in used_ids:
            message = f"ids must be unique and have the form `{rules.name}.SOMETHING`: `{rule.id}`"
            yield ("rules", number, "id"), message, ""
        used_ids.add(rule.id)
        if isinstance(rule, MatchingText) and (error := inspect_expression(rule.pattern).error):
            has_rule_faults = True
            yield ("rules", number, "pattern"), f"invalid pattern: {error}", ""
            continue
        if isinstance(rule, CoversIds) and (rule.of == "unit") != (not rule.artifact and bool(rule.field)):
            message = "a rule that covers ids has either `artifact`, or `of: unit` and `field`"
            yield ("rules", number), message, ""
        # A rule on its own may fail because it refers to another one; these errors are its own.
        fault = find_fault(msgspec.structs.replace(rules, rules=(rule,)))
        if isinstance(fault, re.error | AttributeError):
            has_rule_faults = True
            yield ("rules", number), f"this rule cannot be evaluated: {fault}", ""
    fault = None if has_rule_faults else find_fault(rules)
    if fault:
        yield ("rules",), f"these rules cannot be evaluated together: {type(fault).__name__}: {fault}", ""


def find_fault(rules: RuleSet) -> Exception | None:
    """Return the error of stating these rules to an agent or evaluating them on sample artifacts."""
    limits = Limits()
    try:
        requirements(rules, limits)
        for text in SAMPLE_ARTIFACTS:
            validate(rules, text, "sample", limits, {})
    except Exception as error:
        return error
    return None


def to_sentence(text: str) -> str:
    text = " ".join(text.split()).removesuffix(".")
    return text[:1].lower() + text[1:]
