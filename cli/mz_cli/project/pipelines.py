"""Commands `mz pipelines list`, `show`, `contract`, `lint`, `prompt`, `new` and `copy`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import methodcaller
from pathlib import Path
from typing import Any

import click
import msgspec
from mz_engine.decoding.quantity import Quantity
from mz_engine.decoding.text_file import read_text
from mz_engine.decoding.yaml import format_yaml
from mz_engine.errors.diagnostics import Diagnostic, Exit, MzError, format_diagnostic
from mz_engine.model.config import Config
from mz_engine.pipelines.lint import missing_commands
from mz_engine.pipelines.lint_phase import PipelineFiles
from mz_engine.pipelines.load import (
    PIPELINE_SUFFIXES,
    PIPELINES_FOLDER,
    PipelineSource,
    built_in_material,
    built_in_pipelines,
    find_source,
    load_pipeline_files,
    project_pipelines,
    rename_pipeline,
    starter_pipeline,
)
from mz_engine.run.settings import load_config
from mz_events.names import InvalidName, parse_name

from mz_cli.app.context import find_root
from mz_cli.app.help import command_family, did_you_mean, format_options
from mz_cli.project.config import value_text
from mz_cli.terminal.console import print_line, print_note
from mz_cli.terminal.json import Shape, print_document
from mz_cli.terminal.table import Table, columns, print_output, print_table, prints_tsv
from mz_cli.terminal.text import count_noun

BUILT_IN = "built in"


class PipelineListed(Shape, frozen=True, kw_only=True):
    """One pipeline that `pipeline:` in mz.yaml may name."""

    name: str
    file: str | None
    """Relative to the repository; null: built in."""
    chosen: bool
    """Selected by mz.yaml, a variable or the default."""
    phases: tuple[str, ...]
    """Phases of the pipeline; empty if the file cannot be parsed."""
    errors: int
    warnings: int


class PipelineList(Shape, frozen=True, kw_only=True):
    """`mz pipelines list --json`."""

    pipelines: tuple[PipelineListed, ...]


class PipelineShown(Shape, frozen=True, kw_only=True):
    """`mz pipelines show NAME --json`."""

    name: str
    file: str | None
    """Relative to the repository; null: built in."""
    definition: dict[str, Any]
    """All keys of docs/pipelines.md, including defaults; timeouts in seconds."""


class LintResult(Shape, frozen=True, kw_only=True):
    """`mz pipelines lint --json`; the exit code is 10 if there are errors."""

    files: tuple[str, ...]
    errors: int
    warnings: int
    diagnostics: tuple[Diagnostic, ...]


class NewPipeline(Shape, frozen=True, kw_only=True):
    """`mz pipelines new NAME --json`, `mz pipelines copy NAME --json`."""

    name: str
    file: str
    """Relative to the repository."""
    copied_from: str | None
    errors: int
    """Lint errors: a copy may name commands that mz.yaml does not define."""
    warnings: int
    material: tuple[str, ...] = ()
    """Templates and rule sets that were copied too, relative to the repository."""


def full_definition(value: object, convert: Callable[[Quantity], object]) -> Any:
    """Return a definition as plain data under the keys of its file, with all defaults filled in."""
    if isinstance(value, msgspec.Struct):
        fields, tag = msgspec.structs.fields(value), value.__struct_config__
        named = {field.encode_name: full_definition(getattr(value, field.name), convert) for field in fields}
        return {tag.tag_field: tag.tag, **named} if tag.tag_field else named
    if isinstance(value, dict):
        return {key: full_definition(element, convert) for key, element in value.items()}
    if isinstance(value, tuple):
        return [full_definition(element, convert) for element in value]
    return convert(value) if isinstance(value, Quantity) else value


def property_rows(name: str, definition: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield name, key and value of each property that is set; one row for each mapping of a list."""
    for key, value in definition.items():
        has_mappings = isinstance(value, list) and any(isinstance(element, dict) for element in value)
        for element in value if has_mappings else [value]:
            if text := value_text(element):
                yield name, key, text


@command_family(
    "pipelines",
    examples=(
        ("mz pipelines list", "the pipelines that mz.yaml can name"),
        ("mz pipelines new mine && mz pipelines lint mine", "create one of your own"),
    ),
    next_command="`mz pipelines show monozukuri` shows the built-in pipeline.",
)
def pipelines() -> None:
    """List, show, check and create pipelines.

    A pipeline defines the phases of a feature: what each asks of an agent, and which gates check the result. Pipelines
    of the repository are files pipelines/NAME.yaml; they take precedence over the built-in ones.
    """


@pipelines.command(
    "list",
    examples=(("mz pipelines list", "all pipelines, with the selected one"),),
    next_command="`mz pipelines show NAME` shows one.",
)
@format_options("Print one object with the schema mz.pipelines-list/1.")
def list_(as_json: bool) -> None:
    """List the pipelines of this repository and the built-in ones.

    Counts the errors and warnings of each; `mz pipelines lint NAME` prints them.
    """
    root = project_root(Path.cwd())
    config = load_settings(root)
    names = dict.fromkeys((*project_pipelines(root), *built_in_pipelines(), config.pipeline))
    material = load_pipeline_files(root)
    pipeline_list = PipelineList(pipelines=tuple(pipeline_entry(name, root, config, material) for name in names))
    rows = tuple(
        (entry.name, "yes" if entry.chosen else "-", entry.file or BUILT_IN, str(entry.errors), str(entry.warnings),
         " ".join(entry.phases) or "-")
        for entry in pipeline_list.pipelines
    )  # fmt: skip
    heads = columns("pipeline", "selected", "file", ">errors", ">warnings", "~phases")
    print_output(as_json, "pipelines-list", pipeline_list, Table(columns=heads, rows=rows, empty="No pipelines."))


def pipeline_entry(name: str, root: Path, config: Config, material: PipelineFiles) -> PipelineListed:
    chosen = name == config.pipeline
    try:
        source = find_source(name, root)
        phases = tuple(phase.phase for phase in source.parse()[0].phases)
        file, diagnostics = None if source.built_in else source.name, source.check(material, config)
    except MzError as error:
        file, phases, diagnostics = error.location.file if error.location else name, (), error.diagnostics
    return PipelineListed(name=name, file=file, chosen=chosen, phases=phases, **severity_counts(diagnostics))


@pipelines.command(
    "show",
    examples=(
        ("mz pipelines show monozukuri", "phase by phase, in the order of execution"),
        ("mz pipelines show monozukuri --yaml", "the text of its file"),
        ("mz pipelines show mine --json | jq '.definition.phases[].gates'", "complete, with all defaults"),
    ),
    next_command="`mz pipelines copy NAME` makes a copy to edit, with its templates and rule sets.",
)
@click.argument("pipeline", metavar="NAME")
@click.option("--yaml", "as_yaml", is_flag=True, help="Print the text of its file.")
@format_options("Print one object with the schema mz.pipelines-show/1.")
def show(pipeline: str, as_yaml: bool, as_json: bool) -> None:
    """Show a pipeline phase by phase.

    NAME is one of `mz pipelines list`, or the path of a YAML file.
    """
    source = find_source(pipeline, project_root(Path.cwd()))
    if as_yaml:
        print_line(source.text.rstrip("\n"))
        return
    definition, _ = source.parse()
    file = None if source.built_in else source.name
    shown = PipelineShown(name=definition.pipeline, file=file, definition=full_definition(definition, int))
    head = full_definition(definition, methodcaller("format"))
    phases = head.pop("phases")
    rows = [*property_rows("-", {"file": file or BUILT_IN, **head})]
    rows += [row for phase in phases for row in property_rows(phase.pop("phase"), phase)]
    print_output(as_json, "pipelines-show", shown, Table(columns=columns("*phase", "*property", "~value"), rows=rows))


@pipelines.command(
    "contract",
    examples=(("mz pipelines contract monozukuri techspec", "what a phase needs, makes, may change and may not do"),),
    next_command="`mz export --as agentswe` writes them beside what a run made.",
)
@click.argument("pipeline", metavar="NAME")
@click.argument("phase", required=False)
def contract(pipeline: str, phase: str | None) -> None:
    """Print the contract of a phase, or of all, as YAML.

    A contract lists required inputs, outputs, their rules, gates, files that may change, outputs of others that may
    not, files that the prompt shows, and how the agent can block the phase. mz enforces all of it.
    """
    from mz_cli.common.contract import contract_of

    root = project_root(Path.cwd())
    definition, _ = find_source(pipeline, root).parse()
    names = [entry.phase for entry in definition.phases]
    if phase is not None and phase not in names:
        raise click.UsageError(
            f"{pipeline} has no phase {phase!r}{did_you_mean(phase, names)}; it has: {', '.join(names)}"
        )
    rules, limits = load_pipeline_files(root).rules, load_settings(root).limits
    chosen = [entry for entry in definition.phases if phase in (None, entry.phase)]
    print_line(
        "---\n".join(format_yaml(contract_of(entry, definition, rules, limits)) for entry in chosen).rstrip("\n")
    )


@pipelines.command(
    "lint",
    examples=(
        ("mz pipelines lint", "all pipelines of this repository"),
        ("mz pipelines lint mine ../other.yaml", "selected ones, by name or by file"),
        ("mz pipelines lint --json | jq '.diagnostics[].location'", "for editors and CI"),
    ),
    next_command="`mz run --dry-run` shows what the chosen pipeline would do.",
)
@click.argument("pipeline", metavar="[NAME|FILE]...", nargs=-1)
@format_options("Print one object with the schema mz.pipelines-lint/1.")
def lint(pipeline: tuple[str, ...], as_json: bool) -> int:
    """Check pipelines without running anything.

    Reports all errors at once, with file, line and column: unknown keys, artifacts, rules, templates and commands,
    unreachable phases, writes into the scope of another phase, calls that cannot be independent. Also checks the
    repository's own templates and rule sets. Exits with 10 for errors, not for warnings.
    """
    root = project_root(Path.cwd())
    material, config = load_pipeline_files(root), load_settings(root)
    checked = [check_pipeline(name, root, material, config) for name in pipeline or project_pipelines(root)]
    all_diagnostics = (*material.diagnostics, *(diagnostic for _, diagnostics in checked for diagnostic in diagnostics))
    files = (*material.files, *(file for file, _ in checked))
    result = LintResult(files=files, diagnostics=all_diagnostics, **severity_counts(all_diagnostics))
    if as_json:
        print_document("pipelines-lint", result)
    else:
        print_diagnostics(all_diagnostics, result)
    return int(Exit.INVALID if result.errors else Exit.OK)


def check_pipeline(
    name: str, root: Path, material: PipelineFiles, config: Config
) -> tuple[str, tuple[Diagnostic, ...]]:
    """Return the file's name and its diagnostics. A path is relative to the current directory."""
    try:
        if name.endswith(PIPELINE_SUFFIXES):
            source = PipelineSource(name=name, text=read_text(Path(name), name))
        else:
            source = find_source(name, root)
    except MzError as error:
        return (error.location.file if error.location else name), error.diagnostics
    return source.name, source.check(material, config)


def print_diagnostics(diagnostics: Sequence[Diagnostic], result: LintResult) -> None:
    if not prints_tsv(sys.stdout):
        print_line(*(f"{format_diagnostic(diagnostic)}\n" for diagnostic in diagnostics))
    else:
        rows = tuple(
            (str(diagnostic.location or "-"), diagnostic.severity, diagnostic.code, diagnostic.message, diagnostic.hint)
            for diagnostic in diagnostics
        )
        print_table(Table(columns=columns("location", "severity", "code", "~message", "~hint"), rows=rows, empty=""))
    errors, warnings = count_noun(result.errors, "error"), count_noun(result.warnings, "warning")
    print_note(f"{count_noun(len(result.files), 'file')}: {errors}, {warnings}")


@pipelines.command(
    "prompt",
    examples=(("mz pipelines prompt monozukuri prd --item login", "the first prompt of a phase, for a backlog item"),),
    next_command="after a run, `mz show FEATURE --prompt` prints what was sent.",
)
@click.argument("pipeline", metavar="NAME")
@click.argument("phase")
@click.option("--item", metavar="FEATURE", required=True, help="Item of the backlog.")
def prompt(pipeline: str, phase: str, item: str) -> None:
    """Print the prompt that the first call of a phase would get.

    Starts nothing. The request, the rules and the files of the base are real; what earlier phases make and commands
    print is not there yet: a note names it.
    """
    from mz_cli.project.prompt import print_prompt

    print_prompt(pipeline, phase, item)


@pipelines.command(
    "new",
    examples=(
        ("mz pipelines new mine", "a commented starter, with the commands of mz.yaml as gates"),
        ("mz pipelines new mine --from monozukuri", "a copy of another pipeline"),
    ),
    next_command="edit the file, run `mz pipelines lint NAME`, then set `pipeline: NAME` in mz.yaml.",
)
@click.argument("name")
@click.option("--from", "pipeline", metavar="PIPELINE", help="Copy this pipeline.")
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.pipelines-new/1.")
def new(name: str, pipeline: str | None, as_json: bool) -> None:
    """Create a pipeline of this repository: pipelines/NAME.yaml.

    Never overwrites a file. A copy of a built-in pipeline omits the steps whose command mz.yaml does not define, and
    reports them.
    """
    create_pipeline("new", name, pipeline, as_json)


@pipelines.command(
    "copy",
    examples=(
        ("mz pipelines copy quick", "pipelines/quick.yaml takes the place of the built-in one"),
        ("mz pipelines copy monozukuri --as mine", "under another name"),
    ),
    next_command="edit the files and run `mz pipelines lint NAME`.",
)
@click.argument("pipeline", metavar="NAME")
@click.option("--as", "name", metavar="NEW", help="Name of the copy. [default: NAME]")
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.pipelines-copy/1.")
def copy(pipeline: str, name: str | None, as_json: bool) -> None:
    """Copy a pipeline with its templates and rule sets into this repository.

    Writes pipelines/NAME.yaml and, below pipelines/templates and pipelines/rules, the built-in texts that it uses. All
    pipelines of the repository use these from then on, so change what all may have, and rename the rest. Never
    overwrites a file. Steps whose command mz.yaml does not define are omitted, and reported.
    """
    create_pipeline("copy", name or Path(pipeline).stem, pipeline, as_json, with_material=True)


def create_pipeline(command: str, name: str, origin: str | None, as_json: bool, with_material: bool = False) -> None:
    """Create a pipeline, a starter or a copy of `origin`, `with_material` also the built-in texts that it uses, and
    print the result. Raises MzError: MZ2013 for a name that it cannot have, and as `find_source` does."""
    try:
        parse_name(name)
    except InvalidName as error:
        raise MzError("MZ2013", str(error), hint="such as `mz pipelines new mine`") from error
    root = project_root(Path.cwd())
    config, file = load_settings(root), f"{PIPELINES_FOLDER}/{name}.yaml"
    left_out, texts = tuple[str, ...](), dict[str, str]()
    if not origin:
        text = starter_pipeline(name, config.commands)
    else:
        source = find_source(origin, root)
        definition, _ = source.parse()
        if source.built_in:
            left_out = missing_commands(definition, config)
        text = rename_pipeline(source.text, name, origin, left_out)
        texts = built_in_material(definition) if with_material else {}
    material = tuple(path for path in texts if not (root / path).exists())
    create_file(root / file, file, text)
    for path in material:
        create_file(root / path, path, texts[path])
    diagnostics = PipelineSource(name=file, text=text).check(load_pipeline_files(root), config)
    counts = severity_counts(diagnostics)
    shown = NewPipeline(name=name, file=file, copied_from=origin, material=material, **counts)
    lines = (f"created {file}; select it with `pipeline: {name}` in mz.yaml", *(f"created {path}" for path in material))
    omitted = f"omitted, because mz.yaml does not define the command: steps that run {', '.join(left_out)}"
    notes = (*([omitted] if left_out else []), *map(format_diagnostic, diagnostics))
    print_output(as_json, f"pipelines-{command}", shown, lines, notes)


def create_file(path: Path, name: str, text: str) -> None:
    """Create the file. Raises MzError: MZ2015 if it exists, MZ1003 if it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        if path.exists():
            hint = "choose another name, or edit that file"
            raise MzError("MZ2015", f"{name} already exists", hint=hint) from None
        message = f"{name} cannot be written: {error.strerror or error}"
        raise MzError("MZ1003", message, hint="check the permissions of the folder and the free disk space") from error


def project_root(start: Path) -> Path:
    """Return the root of the repository; outside of one, the directory itself, where built-in pipelines work too."""
    try:
        return find_root(start)
    except MzError:
        return start


def load_settings(root: Path) -> Config:
    return load_config(root, os.environ, {}).config


def severity_counts(diagnostics: Sequence[Diagnostic]) -> dict[str, int]:
    severities = [diagnostic.severity for diagnostic in diagnostics]
    return {"errors": severities.count("error"), "warnings": severities.count("warning")}
