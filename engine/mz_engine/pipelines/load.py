"""Find pipelines by name or path: those of the repository first, then the built-in ones."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import msgspec

from mz_engine.errors import Diagnostic, MzError, Place
from mz_engine.pipelines.definition import Pipeline
from mz_engine.pipelines.form import parse_pipeline
from mz_engine.pipelines.lint import Known, lint
from mz_engine.shape import did_you_mean
from mz_engine.textfile import read_text
from mz_engine.yamlfile import Document

FOLDER = "pipelines"
SUFFIXES = (".yaml", ".yml")


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed pipeline, with the locations of its content."""

    pipeline: Pipeline
    document: Document
    built_in: bool


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Text and name of a pipeline file."""

    name: str
    """Name in messages: a path relative to the repository, or `NAME.yaml` of a built-in one."""
    text: str
    built_in: bool


def find_source(name: str, root: Path) -> Source:
    """Return the text of the pipeline `name`: a path relative to `root` if it ends in `.yaml`, else
    `pipelines/NAME.yaml` of the repository, else a built-in one. Raises MzError: MZ3001 if it does not exist, MZ20nn if
    it cannot be read."""
    own = name if name.endswith(SUFFIXES) else f"{FOLDER}/{name}.yaml"
    if (root / own).is_file():
        return Source(name=own, text=read_text(root / own, own), built_in=False)
    if name in built_in_pipelines():
        text = (files("mz_engine.pipelines") / f"{name}.yaml").read_text(encoding="utf-8")
        return Source(name=f"{name}.yaml", text=text, built_in=True)
    names = sorted({*built_in_pipelines(), *project_pipelines(root)})
    hint = did_you_mean(name, names)
    raise MzError("MZ3001", f"there is no pipeline `{name[:80]}`", hint=hint, place=Place(own))


def find_pipeline(name: str, root: Path) -> Found:
    """Return the parsed pipeline. Raises MzError as `find_source` does, and MZ20nn for its form."""
    source = find_source(name, root)
    pipeline, document = parse_pipeline(source.text, source.name)
    return Found(pipeline=pipeline, document=document, built_in=source.built_in)


def load_pipeline(name: str, root: Path, known: Known | None = None) -> tuple[Pipeline, tuple[Diagnostic, ...]]:
    """Return the pipeline and its lint warnings; without `known_names` it is not linted. Raises MzError as
    `find_pipeline` does, and with all errors of the lint (MZ30nn)."""
    found = find_pipeline(name, root)
    diagnostics = lint(found.pipeline, known, found.document, found.built_in) if known else ()
    errors = [each for each in diagnostics if each.severity == "error"]
    if errors:
        raise MzError.of(errors)
    return found.pipeline, diagnostics


def built_in_pipelines() -> tuple[str, ...]:
    """Return their names, sorted."""
    folder = files("mz_engine.pipelines")
    return tuple(sorted(each.name.removesuffix(".yaml") for each in folder.iterdir() if each.name.endswith(".yaml")))


def project_pipelines(root: Path) -> tuple[str, ...]:
    """Return the names of those in the repository's own folder, sorted."""
    return tuple(sorted(file.stem for file in (root / FOLDER).glob("*.yaml") if file.is_file()))


def check_source(source: Source, known: Known) -> tuple[Diagnostic, ...]:
    """Return all errors and warnings of a pipeline: of its form or, if that is valid, of its meaning."""
    try:
        pipeline, document = parse_pipeline(source.text, source.name)
    except MzError as error:
        return error.diagnostics
    return lint(pipeline, known, document, source.built_in)
