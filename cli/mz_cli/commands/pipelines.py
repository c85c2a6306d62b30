"""Commands `mz pipelines list`, `show`, `lint` and `new`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click
from mz_engine.config import Config
from mz_engine.configfile import load_config
from mz_engine.errors import Diagnostic, MzError, format_diagnostic
from mz_engine.exits import Exit
from mz_engine.pipelines.form import parse_pipeline
from mz_engine.pipelines.lint import Known, missing_commands
from mz_engine.pipelines.load import (
    FOLDER,
    SUFFIXES,
    Source,
    built_in_pipelines,
    check_source,
    find_source,
    project_pipelines,
)
from mz_engine.pipelines.own import load_material
from mz_engine.pipelines.starter import renamed, starter_pipeline
from mz_engine.planning import known_names
from mz_engine.textfile import read_text
from mz_events.names import BadName, parse_name

from mz_cli.context import find_home
from mz_cli.help import section
from mz_cli.pipelinepage import Line, head_lines, phase_lines, whole
from mz_cli.render.console import answer, is_terminal, note
from mz_cli.render.document import show_document
from mz_cli.render.draw import show as show_table
from mz_cli.render.table import Table, columns
from mz_cli.render.text import counted
from mz_cli.shapes.pipelines import (
    Found,
    LintResult,
    NewPipeline,
    PipelineList,
    PipelineListed,
    PipelineShown,
    Where,
)

BUILT_IN = "built in"


@section(
    "pipelines",
    examples=(
        ("mz pipelines list", "the pipelines that mz.yaml can name"),
        ("mz pipelines new mine && mz pipelines lint mine", "create one of your own"),
    ),
    following="`mz pipelines show monozukuri` shows the built-in pipeline.",
)
def pipelines() -> None:
    """List, show, check and create pipelines.

    A pipeline defines the phases of a feature: what each asks of an agent, and which gates check the result. Pipelines
    of the repository are files pipelines/NAME.yaml; they take precedence over the built-in ones.
    """


@pipelines.page(
    "list",
    examples=(("mz pipelines list", "all pipelines, with the selected one"),),
    following="`mz pipelines show NAME` shows one.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.pipelines-list/1.")
def list_(as_json: bool) -> None:
    """List the pipelines of this repository and the built-in ones.

    Counts the errors and warnings of each; `mz pipelines lint NAME` prints them.
    """
    root = root_of(Path.cwd())
    config = settings(root)
    names = dict.fromkeys((*project_pipelines(root), *built_in_pipelines(), config.pipeline))
    known = known_names(config, load_material(root))
    listed = PipelineList(pipelines=tuple(listing(name, root, config, known) for name in names))
    if as_json:
        show_document("pipelines-list", listed)
        return
    rows = tuple(
        (each.name, "yes" if each.chosen else "-", each.file or BUILT_IN, str(each.errors), str(each.warnings),
         " ".join(each.phases) or "-")
        for each in listed.pipelines
    )  # fmt: skip
    heads = columns("pipeline", "selected", "file", ">errors", ">warnings", "phases")
    show_table(Table(columns=heads, rows=rows, empty="No pipelines."))


def listing(name: str, root: Path, config: Config, known: Known) -> PipelineListed:
    chosen = name == config.pipeline
    try:
        source = find_source(name, root)
        phases = tuple(phase.phase for phase in parse_pipeline(source.text, source.name)[0].phases)
        found = check_source(source, known)
        file = None if source.built_in else source.name
    except MzError as error:
        own = error.place.file if error.place else name
        return PipelineListed(
            name=name, file=own, chosen=chosen, phases=(), errors=len(error.diagnostics), warnings=0
        )  # fmt: skip
    return PipelineListed(
        name=name, file=file, chosen=chosen, phases=phases, errors=errors_in(found), warnings=warnings_in(found)
    )  # fmt: skip


@pipelines.page(
    "show",
    examples=(
        ("mz pipelines show monozukuri", "phase by phase, in the order of execution"),
        ("mz pipelines show monozukuri --yaml", "the text of its file"),
        ("mz pipelines show mine --json | jq '.definition.phases[].gates'", "complete, with all defaults"),
    ),
    following="`mz pipelines new NAME --from monozukuri` makes a copy to edit.",
)
@click.argument("pipeline", metavar="NAME")
@click.option("--yaml", "as_yaml", is_flag=True, help="Print the text of its file.")
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.pipelines-show/1.")
def show(pipeline: str, as_yaml: bool, as_json: bool) -> None:
    """Show a pipeline phase by phase.

    NAME is one of `mz pipelines list`, or the path of a YAML file.
    """
    source = find_source(pipeline, root_of(Path.cwd()))
    if as_yaml:
        answer(source.text.rstrip("\n"))
        return
    definition, _ = parse_pipeline(source.text, source.name)
    file = None if source.built_in else source.name
    if as_json:
        show_document(
            "pipelines-show", PipelineShown(name=definition.pipeline, file=file, definition=whole(definition))
        )
        return
    parts = [("", tuple(head_lines(definition, file or BUILT_IN)))]
    parts += [(phase.phase, tuple(phase_lines(phase))) for phase in definition.phases]
    if is_terminal(sys.stdout):
        answer("\n".join(page(parts)))
    else:
        rows = tuple((phase or "-", key, words) for phase, lines in parts for key, words in lines)
        show_table(Table(columns=columns("phase", "property", "value"), rows=rows, empty=""))


def page(parts: Sequence[tuple[str, tuple[Line, ...]]]) -> list[str]:
    """Return the lines for a terminal: one part after the other, properties indented."""
    width = max(len(key) for _, lines in parts for key, _ in lines)
    shown: list[str] = []
    for phase, lines in parts:
        shown += ["", phase] if phase else []
        shown += [f"{'  ' if phase else ''}{key:<{width}}  {words}" for key, words in lines]
    return shown


@pipelines.page(
    "lint",
    examples=(
        ("mz pipelines lint", "all pipelines of this repository"),
        ("mz pipelines lint mine ../other.yaml", "selected ones, by name or by file"),
        ("mz pipelines lint --json | jq '.diagnostics[].where'", "for editors and CI"),
    ),
    following="`mz run --dry-run` shows what the chosen pipeline would do.",
)
@click.argument("pipeline", metavar="[NAME|FILE]...", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.pipelines-lint/1.")
def lint(pipeline: tuple[str, ...], as_json: bool) -> int:
    """Check pipelines without running anything.

    Reports all errors at once, with file, line and column: unknown keys, artifacts, rules, templates and commands,
    unreachable phases, writes into the scope of another phase, reviewers that are not independent. Also checks the
    repository's own templates and rule sets. Exits with 10 for errors, not for warnings.
    """
    root = root_of(Path.cwd())
    material = load_material(root)
    known = known_names(settings(root), material)
    checked = [checked_file(name, root, known) for name in pipeline or project_pipelines(root)]
    found = (*material.found, *(diagnostic for _, diagnostics in checked for diagnostic in diagnostics))
    result = LintResult(
        files=(*material.files, *(file for file, _ in checked)), errors=errors_in(found), warnings=warnings_in(found),
        diagnostics=tuple(map(shape, found)),
    )  # fmt: skip
    if as_json:
        show_document("pipelines-lint", result)
    else:
        show_diagnostics(found, result)
    return int(Exit.INVALID if result.errors else Exit.OK)


def checked_file(name: str, root: Path, known: Known) -> tuple[str, tuple[Diagnostic, ...]]:
    """Return the file's name and its diagnostics. A path is relative to the current directory."""
    try:
        if name.endswith(SUFFIXES):
            source = Source(name=name, text=read_text(Path(name), name), built_in=False)
        else:
            source = find_source(name, root)
    except MzError as error:
        return (error.place.file if error.place else name), error.diagnostics
    return source.name, check_source(source, known)


def show_diagnostics(found: Sequence[Diagnostic], result: LintResult) -> None:
    if is_terminal(sys.stdout):
        for each in found:
            answer(format_diagnostic(each) + "\n")
    else:
        rows = tuple((str(each.place or "-"), each.severity, each.code, each.message, each.hint) for each in found)
        show_table(Table(columns=columns("location", "severity", "code", "message", "hint"), rows=rows, empty=""))
    errors, warnings = counted(result.errors, "error"), counted(result.warnings, "warning")
    note(f"{counted(len(result.files), 'file')}: {errors}, {warnings}")


@pipelines.page(
    "new",
    examples=(
        ("mz pipelines new mine", "a commented starter, with the commands of mz.yaml as gates"),
        ("mz pipelines new mine --from monozukuri", "a copy of another pipeline"),
    ),
    following="edit the file, run `mz pipelines lint NAME`, then set `pipeline: NAME` in mz.yaml.",
)
@click.argument("name")
@click.option("--from", "pipeline", metavar="PIPELINE", help="Copy this pipeline.")
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.pipelines-new/1.")
def new(name: str, pipeline: str | None, as_json: bool) -> None:
    """Create a pipeline of this repository: pipelines/NAME.yaml.

    Never overwrites a file. A copy of a built-in pipeline omits the steps whose command mz.yaml does not define, and
    reports them.
    """
    try:
        parse_name(name)
    except BadName as error:
        raise MzError("MZ2013", str(error), hint="such as `mz pipelines new mine`") from error
    root = root_of(Path.cwd())
    config = settings(root)
    text, left_out = copied(pipeline, name, root, config) if pipeline else (starter_pipeline(name, config.commands), ())
    file = f"{FOLDER}/{name}.yaml"
    write_new(root / file, file, text)
    found = check_source(Source(name=file, text=text, built_in=False), known_names(config, load_material(root)))
    if as_json:
        show_document("pipelines-new", NewPipeline(
            name=name, file=file, copied_from=pipeline, errors=errors_in(found), warnings=warnings_in(found)
        ))  # fmt: skip
        return
    answer(f"created {file}; select it with `pipeline: {name}` in mz.yaml")
    if left_out:
        note(f"omitted, because mz.yaml does not define the command: steps that run {', '.join(left_out)}")
    for each in found:
        note(format_diagnostic(each))


def copied(origin: str, name: str, root: Path, config: Config) -> tuple[str, tuple[str, ...]]:
    """Return the text of a copy, and the commands whose steps it omits. Raises MzError as `find_source` does."""
    source = find_source(origin, root)
    lacking = missing_commands(parse_pipeline(source.text, source.name)[0], config.commands) if source.built_in else ()
    return renamed(source.text, name, origin, lacking), lacking


def write_new(path: Path, name: str, text: str) -> None:
    """Create the file. Raises MzError: MZ2015 if it exists, MZ1003 if it cannot be written."""
    try:
        if not path.parent.is_dir():
            path.parent.mkdir()
        with open(path, "x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        if path.exists():
            hint = "choose another name, or edit that file"
            raise MzError("MZ2015", f"{name} already exists", hint=hint) from None
        message = f"{name} cannot be written: {error.strerror or error}"
        raise MzError("MZ1003", message, hint="check the permissions of the folder and the free disk space") from error


def root_of(start: Path) -> Path:
    """Return the root of the repository; outside of one, the directory itself, where built-in pipelines work too."""
    try:
        return find_home(start)
    except MzError:
        return start


def settings(root: Path) -> Config:
    return load_config(root, os.environ, {}).config


def errors_in(found: Sequence[Diagnostic]) -> int:
    return sum(each.severity == "error" for each in found)


def warnings_in(found: Sequence[Diagnostic]) -> int:
    return sum(each.severity == "warning" for each in found)


def shape(found: Diagnostic) -> Found:
    place = found.place
    where = Where(file=place.file, line=place.line or None, column=place.column or None) if place else None
    return Found(
        severity=found.severity, code=found.code, message=found.message, hint=found.hint or None, where=where
    )  # fmt: skip
