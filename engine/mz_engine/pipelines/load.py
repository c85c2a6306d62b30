"""Find pipelines by name or path: those of the repository first, then the built-in ones."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import msgspec

from mz_engine.errors import Diagnostic, MzError, SourceLocation
from mz_engine.pipelines.definition import Pipeline
from mz_engine.pipelines.form import parse_pipeline
from mz_engine.pipelines.lint import KnownNames, lint_pipeline
from mz_engine.shape import did_you_mean
from mz_engine.textfile import read_text
from mz_engine.yamlfile import YamlDocument

PIPELINES_FOLDER = "pipelines"
PIPELINE_SUFFIXES = (".yaml", ".yml")


class LoadedPipeline(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed pipeline, with the locations of its content."""

    pipeline: Pipeline
    document: YamlDocument
    built_in: bool


class PipelineSource(msgspec.Struct, frozen=True, kw_only=True):
    """Text and name of a pipeline file."""

    name: str
    """Name in messages: a path relative to the repository, or `NAME.yaml` of a built-in one."""
    text: str
    built_in: bool


def find_source(name: str, root: Path) -> PipelineSource:
    """Return the text of the pipeline `name`: a path relative to `root` if it ends in `.yaml`, else
    `pipelines/NAME.yaml` of the repository, else a built-in one. Raises MzError: MZ3001 if it does not exist, MZ20nn if
    it cannot be read."""
    path = name if name.endswith(PIPELINE_SUFFIXES) else f"{PIPELINES_FOLDER}/{name}.yaml"
    if (root / path).is_file():
        return PipelineSource(name=path, text=read_text(root / path, path), built_in=False)
    if name in built_in_pipelines():
        text = (files("mz_engine.pipelines") / f"{name}.yaml").read_text(encoding="utf-8")
        return PipelineSource(name=f"{name}.yaml", text=text, built_in=True)
    names = sorted({*built_in_pipelines(), *project_pipelines(root)})
    hint = did_you_mean(name, names)
    raise MzError("MZ3001", f"there is no pipeline `{name[:80]}`", hint=hint, location=SourceLocation(path))


def read_pipeline(name: str, root: Path) -> LoadedPipeline:
    """Return the parsed pipeline. Raises MzError as `find_source` does, and MZ20nn for its form."""
    source = find_source(name, root)
    pipeline, document = parse_pipeline(source.text, source.name)
    return LoadedPipeline(pipeline=pipeline, document=document, built_in=source.built_in)


def load_pipeline(name: str, root: Path, known_names: KnownNames | None = None) -> tuple[Pipeline, tuple[Diagnostic, ...]]:
    """Return the pipeline and its lint warnings; without `known_names` it is not linted. Raises MzError as
    `find_pipeline` does, and with all errors of the lint (MZ30nn)."""
    loaded = read_pipeline(name, root)
    diagnostics = lint_pipeline(loaded.pipeline, known_names, loaded.document, loaded.built_in) if known_names else ()
    errors = [diagnostic for diagnostic in diagnostics if diagnostic.severity == "error"]
    if errors:
        raise MzError.from_diagnostics(errors)
    return loaded.pipeline, diagnostics


def built_in_pipelines() -> tuple[str, ...]:
    """Return their names, sorted."""
    folder = files("mz_engine.pipelines")
    return tuple(sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml")))


def project_pipelines(root: Path) -> tuple[str, ...]:
    """Return the names of those in the repository's own folder, sorted."""
    return tuple(sorted(file.stem for file in (root / PIPELINES_FOLDER).glob("*.yaml") if file.is_file()))


def check_source(source: PipelineSource, known_names: KnownNames) -> tuple[Diagnostic, ...]:
    """Return all errors and warnings of a pipeline: of its form or, if that is valid, of its meaning."""
    try:
        pipeline, document = parse_pipeline(source.text, source.name)
    except MzError as error:
        return error.diagnostics
    return lint_pipeline(pipeline, known_names, document, source.built_in)
