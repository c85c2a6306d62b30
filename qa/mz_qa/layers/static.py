"""Adapter: layer 1: settings, pipelines, rule sets, templates and backlog of a project, and those that come with mz.

It reads what lies in the repository; whether tools, logins and remotes are there is for `mz doctor`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from mz_engine.artifacts.load import load_rules
from mz_engine.backlog.file import read_backlog
from mz_engine.configfile import load_config
from mz_engine.configform import FILE_NAME
from mz_engine.errors import Diagnostic, MzError
from mz_engine.pins import Pins
from mz_engine.pipelines.form import parse_pipeline
from mz_engine.pipelines.lint import NO_COMMAND, in_short
from mz_engine.pipelines.load import Source, built_in_pipelines, check_source, find_source, project_pipelines
from mz_engine.pipelines.material import check_template, fault_of
from mz_engine.pipelines.own import TEMPLATES, Material, load_material
from mz_engine.planning import known_names
from mz_engine.preflight import known_agent
from mz_engine.prompts.load import load_templates
from mz_engine.prompts.render import TemplateBroken, render
from mz_recordings.findings import Finding

from mz_qa.layers.facts import Checked, Project, Remark, Said
from mz_qa.layers.prompts import Sample, samples, unstated


def check(project: Project) -> Iterator[Said]:
    """Everything that a run would refuse to begin with, and prompts that cannot be put together."""
    said = tuple(settings(project))
    yield from said
    # What a pipeline names cannot be told from what settings lack that cannot be read.
    unread = any(isinstance(one, Finding) for one in said)
    material = load_material(project.root)
    yield Checked("files of the project's own", len(material.files))
    yield from told(material.found)
    yield from built_in_material()
    for name in names(project):
        for one in pipeline(project, name, material):
            if not (unread and isinstance(one, Finding) and one.cause == NO_COMMAND):
                yield one
    yield from backlog(project)


def settings(project: Project) -> Iterator[Said]:
    yield Checked("settings files")
    try:
        loaded = load_config(project.root, project.environment, {})
    except MzError as error:
        yield from told(error.diagnostics)
        return
    yield from told(loaded.warnings)
    names = [("agent", loaded.config.agent), *(("failover", name) for name in loaded.config.failover)]
    for key, name in names:
        try:
            known_agent(name, loaded.config.agents)
        except MzError as error:
            yield from told(loaded.blamed(key, MzError("MZ2013", error.message, hint=error.hint)).diagnostics)


def built_in_material() -> Iterator[Said]:
    """What comes with mz is held to what is asked of a project's own."""
    templates = load_templates()
    for name, text in templates.items():
        yield Checked("templates")
        yield from told(check_template(name, name, text, templates))
    for name, rules in load_rules().items():
        yield Checked("rule sets")
        fault = fault_of(rules)
        if fault:
            yield Finding(
                kind="RULE", what=f"the rule set {name} cannot be judged: {fault}", cause=name, mend="report it"
            )


def names(project: Project) -> tuple[str, ...]:
    """Pipelines of the project and of mz, and the one that the settings name, which may be a file anywhere."""
    return tuple(dict.fromkeys((project.config.pipeline, *project_pipelines(project.root), *built_in_pipelines())))


def pipeline(project: Project, name: str, material: Material) -> Iterator[Said]:
    """Its form, what it says, and all its prompts."""
    yield Checked("pipelines")
    known, chosen = known_names(project.config, material), name == project.config.pipeline
    try:
        source = find_source(name, project.root)
    except MzError as error:
        yield from told(error.diagnostics)
        return
    found = check_source(source, known)
    errors = [each for each in found if each.severity == "error"]
    if errors:
        yield from told(errors)
        return
    definition = parse_pipeline(source.text, source.name)[0]
    if chosen or not source.built_in:
        yield from told(in_short(found, definition, project.config.commands))
    pins = Pins(pipeline=definition, rules=material.rules, templates=material.templates, config=project.config)
    yield from prompts(pins, source)


def prompts(pins: Pins, source: Source) -> Iterator[Said]:
    """All can be made. A template that comes with mz states every rule; one of the project may leave that out."""
    ours = load_templates()
    own = {name for name, text in pins.templates.items() if ours.get(name) != text}
    broken: set[str] = set()
    unsaid: dict[tuple[str, str], set[str]] = {}
    for sample in samples(pins):
        yield Checked("prompts")
        try:
            text = render(pins.templates, sample.template, sample.data, sample.continuation)
        except TemplateBroken as error:
            if str(error) not in broken:
                yield unmakeable(sample, error, source, error.template in own)
            broken.add(str(error))
            continue
        if not sample.continuation and (missing := unstated(sample, text)):
            unsaid.setdefault((sample.phase, sample.template), set()).update(missing)
    for (phase, template), lines in unsaid.items():
        words = f"{template} does not tell the agent of phase {phase} all rules; unsaid: {len(lines)}"
        if template in own:
            yield Remark(f"{source.name}: {words}")
        else:
            detail = tuple(f"  {one}" for one in sorted(lines))
            yield Finding(kind="PIPELINE", what=words, cause=template, detail=detail, file=source.name)


def unmakeable(sample: Sample, error: TemplateBroken, source: Source, own: bool) -> Finding:
    """With the place in the project's own template, else in the pipeline that asks for it."""
    return Finding(
        kind="PIPELINE",
        what=f"the prompt of phase {sample.phase} cannot be made {sample.how}: {error.why}",
        cause=error.template,
        mend=f"mz pipelines lint {source.name}" if own else "mz explain MZ3017",
        file=f"{TEMPLATES}/{error.template}" if own else source.name,
        line=error.line if own else None,
    )


def backlog(project: Project) -> Iterator[Said]:
    """Only where it is there: it may be written anew for every run."""
    name = project.config.backlog
    if not os.path.lexists(project.root / name):
        yield Remark(f"there is no {name}")
        return
    try:
        yield Checked("backlog items", len(read_backlog(project.root, name)))
    except MzError as error:
        yield from told(error.diagnostics)


def told(found: Iterable[Diagnostic]) -> Iterator[Said]:
    """Errors as findings, warnings as remarks."""
    for each in found:
        place = each.place
        if each.severity == "warning":
            where = f"{place}: " if place else ""
            yield Remark(f"{where}{each.message} [{each.code}]")
            continue
        yield Finding(
            kind="PIPELINE",
            what=f"{each.message} [{each.code}]",
            cause=each.code,
            detail=tuple(f"  {line}" for line in each.hint.splitlines()),
            mend=f"mz explain {each.code}",
            file=place.file if place else FILE_NAME,
            line=(place.line or None) if place else None,
        )
