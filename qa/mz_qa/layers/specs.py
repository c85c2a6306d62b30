"""Layer 8: specification documents, by `specs` in mz.yaml, fulfil their rules and cite each other completely."""

from __future__ import annotations

import os
from collections.abc import Iterator

from mz_engine.artifacts.validate import validate
from mz_engine.decoding.text_file import read_text
from mz_engine.errors.diagnostics import MzError
from mz_engine.git.process import run_git, safe_environment
from mz_engine.model.config import FILE_NAME
from mz_engine.path_patterns import select
from mz_engine.pipelines.load import RULES_FOLDER, load_pipeline_files
from mz_engine.run.settings import load_config
from mz_engine.specs import SpecText, spec_problems
from mz_recordings.findings.model import Finding

from mz_qa.layers.static import to_layer_output
from mz_qa.results import CheckedItem, LayerOutput, Project


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
