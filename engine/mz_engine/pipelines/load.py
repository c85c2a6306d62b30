"""Find pipelines, templates and rule sets by name: those of the repository, then the built-in ones; make new ones."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from importlib.resources import files
from pathlib import Path

import msgspec
from mz_projections.rewards.reward import Rewards

from mz_engine.artifacts.load import load_rules, shared_rules
from mz_engine.cards.load import load_cards
from mz_engine.cards.skills import gather_guidance, load_skills
from mz_engine.decoding.structs import KeyPath, did_you_mean
from mz_engine.decoding.text_file import read_text
from mz_engine.decoding.yaml import YamlDocument, decode_document, parse_yaml
from mz_engine.errors.diagnostics import Diagnostic, MzError, SourceLocation
from mz_engine.model.config import Config
from mz_engine.model.pins import Pins
from mz_engine.model.pipeline import Pipeline
from mz_engine.model.rules import RuleSet
from mz_engine.pipelines.lint import lint_pipeline
from mz_engine.pipelines.lint_phase import PipelineFiles
from mz_engine.pipelines.material import check_template, read_rules
from mz_engine.prompts.render import TEMPLATE_SUFFIX, load_templates, template_environment

PIPELINES_FOLDER = "pipelines"
PIPELINE_SUFFIXES = (".yaml", ".yml")
GATE_COMMANDS = ("build", "lint", "test")
NAME_LINE = re.compile(r"\A(?:#.*\n|\s*\n)*pipeline:.*$", re.MULTILINE)
"""The key, with the comment that introduces the file."""


class PipelineSource(msgspec.Struct, frozen=True, kw_only=True):
    """Text and name of a pipeline file."""

    name: str
    """Name in messages: a path relative to the repository, or `NAME.yaml` of a built-in one."""
    text: str
    built_in: bool = False

    def parse(self) -> tuple[Pipeline, YamlDocument]:
        """Return the pipeline, and its document with locations for `lint`. Raises MzError with all errors of form
        (MZ2003 to MZ2009); the meaning is not checked here."""
        document = parse_yaml(self.text, self.name)
        return decode_document(document, Pipeline), document

    def check(self, material: PipelineFiles, config: Config) -> tuple[Diagnostic, ...]:
        """Return all errors and warnings: of the form or, if that is valid, of the meaning."""
        try:
            pipeline, document = self.parse()
        except MzError as error:
            return error.diagnostics
        return lint_pipeline(pipeline, material, config, document, self.built_in)


def find_source(name: str, root: Path) -> PipelineSource:
    """Return the text of the pipeline `name`: a path if it ends in `.yaml`, else of the repository or a built-in one.
    Raises MzError: MZ3001 if it does not exist, MZ20nn if it cannot be read."""
    path = name if name.endswith(PIPELINE_SUFFIXES) else f"{PIPELINES_FOLDER}/{name}.yaml"
    if (root / path).is_file():
        return PipelineSource(name=path, text=read_text(root / path, path))
    if name in built_in_pipelines():
        text = (files("mz_engine.pipelines") / f"{name}.yaml").read_text(encoding="utf-8")
        return PipelineSource(name=f"{name}.yaml", text=text, built_in=True)
    hint = did_you_mean(name, sorted({*built_in_pipelines(), *project_pipelines(root)}))
    raise MzError("MZ3001", f"there is no pipeline `{name[:80]}`", hint=hint, location=SourceLocation(path))


def load_pipeline(
    name: str, root: Path, material: PipelineFiles | None = None, config: Config | None = None
) -> tuple[Pipeline, tuple[Diagnostic, ...]]:
    """Return the pipeline and its lint warnings; without `material` and `config` it is not linted. Raises MzError as
    `find_source` does, MZ20nn for its form, and with all errors of the lint (MZ30nn)."""
    source = find_source(name, root)
    pipeline, document = source.parse()
    diagnostics = lint_pipeline(pipeline, material, config, document, source.built_in) if material and config else ()
    errors = [diagnostic for diagnostic in diagnostics if diagnostic.severity == "error"]
    if errors:
        raise MzError.from_diagnostics(errors)
    return pipeline, diagnostics


def built_in_pipelines() -> tuple[str, ...]:
    """Return their names, sorted."""
    folder = files("mz_engine.pipelines")
    return tuple(sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml")))


def project_pipelines(root: Path) -> tuple[str, ...]:
    """Return the names of those in the repository's own folder, sorted."""
    return tuple(sorted(file.stem for file in (root / PIPELINES_FOLDER).glob("*.yaml") if file.is_file()))


TEMPLATES_FOLDER = f"{PIPELINES_FOLDER}/templates"
RULES_FOLDER = f"{PIPELINES_FOLDER}/rules"
REWARDS_FOLDER = f"{PIPELINES_FOLDER}/rewards"


def load_pipeline_files(root: Path) -> PipelineFiles:
    """Load `pipelines/templates/**.j2`, named by their path below that folder, `pipelines/rules/NAME.yaml` and
    `pipelines/rewards/NAME.yaml`."""
    diagnostics, rules, files = list[Diagnostic](), dict[str, RuleSet](), list[str]()
    rewards = built_in_rewards()

    def read_below(folder: str, suffix: str) -> Iterator[tuple[str, str, str]]:
        """Yield the name below the folder, the path and the text of each file that can be read."""
        for path in sorted((root / folder).rglob(f"*{suffix}")):
            if path.is_file():
                file = path.relative_to(root).as_posix()
                files.append(file)
                try:
                    yield file.removeprefix(f"{folder}/"), file, read_text(path, file)
                except MzError as error:
                    diagnostics.extend(error.diagnostics)

    own_templates = {name: text for name, _, text in read_below(TEMPLATES_FOLDER, TEMPLATE_SUFFIX)}
    templates = {**load_templates(), **own_templates}
    for name, text in own_templates.items():
        diagnostics += check_template(f"{TEMPLATES_FOLDER}/{name}", name, text, templates)
    for name, file, text in read_below(RULES_FOLDER, ".yaml"):
        try:
            rule_set = read_rules(parse_yaml(text, file), name.removesuffix(".yaml"), shared_rules())
            rules[rule_set.name] = rule_set
        except MzError as error:
            diagnostics += error.diagnostics
    for name, file, text in read_below(REWARDS_FOLDER, ".yaml"):
        try:
            rewards[name.removesuffix(".yaml")] = read_rewards(parse_yaml(text, file), name.removesuffix(".yaml"))
        except MzError as error:
            diagnostics += error.diagnostics
    rules = {**load_rules(), **rules}
    return PipelineFiles(
        templates=templates,
        rules=rules,
        rewards=rewards,
        files=tuple(files),
        cards=load_cards(root),
        skills=load_skills(root),
        diagnostics=tuple(diagnostics),
    )


def built_in_rewards() -> dict[str, Rewards]:
    """Return the built-in files of rewards by name."""
    folder = files("mz_engine.pipelines") / "rewards"
    texts = {entry.name.removesuffix(".yaml"): entry.read_text(encoding="utf-8") for entry in folder.iterdir()}
    return {name: read_rewards(parse_yaml(text, f"{name}.yaml"), name) for name, text in sorted(texts.items())}


def read_rewards(document: YamlDocument, name: str) -> Rewards:
    """Return the rewards in a file called `name`. Raises MzError: MZ20nn for their form, MZ3030 for their meaning."""
    rewards = decode_document(document, Rewards)
    problems: list[tuple[KeyPath, str]] = []
    problems += [(("rewards",), f"`rewards` must be the file's name: {name}")] if rewards.rewards != name else []
    problems += [
        (("composite", "decisive", number), f"there is no dimension `{decisive[:80]}`")
        for number, decisive in enumerate(rewards.composite.decisive)
        if decisive not in rewards.dimensions
    ]
    if problems:
        raise MzError.from_diagnostics(
            Diagnostic(code="MZ3030", message=message, location=document.location(*route))
            for route, message in problems
        )
    return rewards


def pin_files(pipeline: Pipeline, material: PipelineFiles, config: Config) -> Pins:
    """Return the pins of a run of this pipeline. Raises MzError for a persona or a skill that cannot be used."""
    guidance = gather_guidance(pipeline, material.cards, material.skills)
    return Pins(
        pipeline=pipeline,
        rules=material.rules,
        templates=material.templates,
        config=config,
        rewards=material.rewards.get(pipeline.rewards or ""),
        guidance=guidance,
    )


def load_valid_pipeline_files(root: Path) -> PipelineFiles:
    """Load the files; raises MzError with all problems."""
    pipeline_files = load_pipeline_files(root)
    if pipeline_files.diagnostics:
        raise MzError.from_diagnostics(pipeline_files.diagnostics)
    return pipeline_files


def built_in_material(pipeline: Pipeline) -> dict[str, str]:
    """Return the texts of the built-in templates and rule sets that a pipeline uses, with what these templates refer
    to, by their path in a repository."""
    from jinja2 import meta

    templates, rule_sets = load_templates(), files("mz_engine.artifacts") / "rules"
    environment, reviews = template_environment(templates), [phase.agent_review for phase in pipeline.phases]
    prompts = [phase.prompt for phase in pipeline.phases] + [review.prompt for review in reviews if review]
    names = [name for name in dict.fromkeys(prompts) if name in templates]
    for name in names:  # It grows.
        references = meta.find_referenced_templates(environment.parse(templates[name]))
        names += [other for other in references if other in templates and other not in names]
    rules = [output.rules for phase in pipeline.phases for output in phase.outputs]
    rules += [review.rules for review in reviews if review]
    return {f"{TEMPLATES_FOLDER}/{name}": templates[name] for name in names} | {
        f"{RULES_FOLDER}/{name}.yaml": (rule_sets / f"{name}.yaml").read_text(encoding="utf-8")
        for name in dict.fromkeys(rules)
        if name in load_rules()
    }


def starter_pipeline(name: str, commands: Collection[str]) -> str:
    """Return the commented text of a pipeline that uses only `commands`, those of mz.yaml."""
    from jinja2.sandbox import SandboxedEnvironment

    causes = {"test": ", cause: code"}
    gates = [f"{{run: {command}{causes.get(command, '')}}}" for command in GATE_COMMANDS if command in commands]
    text = (files("mz_engine.pipelines") / "starter.yaml.j2").read_text(encoding="utf-8")
    template = SandboxedEnvironment(trim_blocks=True, keep_trailing_newline=True).from_string(text)
    return template.render(name=name, commands=commands, gates=gates)


def rename_pipeline(text: str, name: str, origin: str, left_out: Collection[str] = ()) -> str:
    """Return the text of a pipeline under another name, with a new first comment, and without the steps that run
    commands (`left_out`) that mz.yaml lacks: in the repository's own they would be errors."""
    comment = f"# Copied from {origin}. `mz pipelines lint {name}` checks it.\n"
    if left_out:
        comment += f"# Without the steps of {origin} that run {', '.join(left_out)}: mz.yaml has no such command.\n"
    text = NAME_LINE.sub(f"{comment}pipeline: {name}", text, 1)
    for command in left_out:
        text = re.sub(rf"(?:, )?\{{run: {re.escape(command)}(?:,[^{{}}]*)?\}}", "", text)
    return text.replace("[, ", "[")
