"""Layer 8: specification documents, by `specs` in mz.yaml, fulfil their rules and cite each other completely."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from mz_engine.artifacts.validate import validate
from mz_engine.decoding.regex import find_groups
from mz_engine.decoding.text_file import read_text
from mz_engine.errors.diagnostics import MzError
from mz_engine.git.process import run_git, safe_environment
from mz_engine.model.config import FILE_NAME, SpecDocuments
from mz_engine.path_patterns import select
from mz_engine.pipelines.load import RULES_FOLDER, load_pipeline_files
from mz_engine.run.settings import load_config
from mz_recordings.findings.model import Finding

from mz_qa.layers.static import to_layer_output
from mz_qa.results import CheckedItem, LayerOutput, Project


class SpecText(NamedTuple):
    path: str
    text: str

    @property
    def name(self) -> str:
        return PurePosixPath(self.path).stem


class SpecProblem(NamedTuple):
    path: str
    line: int
    """From 1."""
    message: str


class Mention(NamedTuple):
    """A definition or a citation of an id."""

    id: str
    path: str
    line: int


def check(project: Project) -> Iterator[LayerOutput]:
    """Check the documents in the working tree, without ignored files."""
    try:
        kinds = load_config(project.root, project.environment, {}).config.specs
    except MzError as error:
        yield from to_layer_output(error.diagnostics)
        return
    if not kinds:
        return
    command = ("ls-files", "-z", "--cached", "--others", "--exclude-standard")
    listed = run_git(command, project.root, safe_environment(project.environment))
    paths = sorted(set(os.fsdecode(listed.stdout).split("\0")) - {""})
    paths = [path for path in paths if os.path.lexists(project.root / path)]
    rule_sets, texts = load_pipeline_files(project.root).rules, dict[str, list[SpecText]]()
    for name, documents in kinds.items():
        texts[name], rules = [], rule_sets.get(documents.rules or "")
        if documents.rules and rules is None:
            yield _finding(f"specs.{name}: there is no rule set {documents.rules} in {RULES_FOLDER}", FILE_NAME)
        chosen = select(documents.files, paths)
        if not chosen:
            yield _finding(f"specs.{name}: no file matches its patterns", FILE_NAME)
        for path in chosen:
            yield CheckedItem("specifications")
            try:
                text = read_text(project.root / path, path)
            except MzError as error:
                yield _finding(f"{path}: {error.message}", path)
                continue
            texts[name].append(SpecText(path, text))
            for broken in validate(rules, text, path, project.config.limits, {}) if rules else ():
                yield _finding(broken.message, path, broken.violation.line)
    for problem in spec_problems(kinds, texts):
        yield _finding(f"{problem.path}:{problem.line}: {problem.message}", problem.path, problem.line)


def _finding(message: str, file: str, line: int | None = None) -> Finding:
    fix = f"change {file}, then run: mz check --layer 8"
    return Finding(kind="SPEC", message=message, file=file, line=line, cause=file, fix=fix)


# citations ------------------------------------------------------------------------------------------------------------
def spec_problems(kinds: Mapping[str, SpecDocuments], texts: Mapping[str, Sequence[SpecText]]) -> Iterator[SpecProblem]:
    """Yield ids that are defined twice, cited and not defined, or not cited as their kind demands. `texts` are the
    documents by kind; expressions must be valid."""
    definitions = {name: _definitions(documents, texts[name]) for name, documents in kinds.items()}
    citations = {
        (name, cited): [mention for text in texts[name] for mention in _matches(expression, text)]
        for name, documents in kinds.items()
        for cited, expression in documents.cites.items()
    }
    for name, mentions in definitions.items():
        yield from _repeated(mentions, f"{name} {{id}} is defined already in {{first}}")
    for (_, cited), mentions in citations.items():
        defined = {mention.id for mention in definitions[cited]}
        for id_, path, line in mentions:
            if id_ not in defined:
                yield SpecProblem(path, line, f"it cites {cited} {id_}, which no document defines")
    for name, documents in kinds.items():
        for citing in dict.fromkeys((*documents.cited_by, *documents.cited_once_by)):
            cited_ids = {mention.id for mention in citations[citing, name]}
            for id_, path, line in definitions[name]:
                if id_ not in cited_ids:
                    yield SpecProblem(path, line, f"{name} {id_} is cited by no {citing}")
        for citing in documents.cited_once_by:
            yield from _repeated(citations[citing, name], f"{name} {{id}} is cited already in {{first}}")


def _definitions(documents: SpecDocuments, texts: Sequence[SpecText]) -> list[Mention]:
    if documents.ids is None:
        return [Mention(text.name, text.path, 1) for text in texts]
    return [
        mention._replace(id=f"{text.name} {mention.id}") if documents.local else mention
        for text in texts
        for mention in _matches(documents.ids, text)
    ]


def _matches(expression: str, text: SpecText) -> Iterator[Mention]:
    for number, line in enumerate(text.text.split("\n"), start=1):
        for groups in find_groups(expression, line):
            yield Mention(" ".join(groups), text.path, number)


def _repeated(mentions: Sequence[Mention], message: str) -> Iterator[SpecProblem]:
    first = dict[str, Mention]()
    for mention in mentions:
        earlier = first.setdefault(mention.id, mention)
        if earlier is not mention:
            text = message.format(id=mention.id, first=f"{earlier.path}:{earlier.line}")
            yield SpecProblem(mention.path, mention.line, text)
