"""The plan of a run, from settings, pipeline, rules, templates, backlog and earlier deliveries; checks before a run
costs money.

Writes nothing. `mz run --dry-run` shows the plan, and a run process starts with it.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace
from mz_events.adapters.blobs import FileBlobs
from mz_events.catalog.run import FeatureOutcome
from mz_events.names import Commit, inbox_stream, run_stream
from mz_events.store import Log, Store
from mz_projections.read_models.store import ReadModelStore
from mz_projections.run.delivered import DELIVERED, Delivery, latest_deliveries
from mz_projections.run.fold import FeatureTrack, RunState, fold_run, is_complete
from mz_projections.views.timeline import list_names

from mz_engine.agents.contract import Adapter, names_endpoint
from mz_engine.agents.registry import UnknownAgent, all_adapters, built_in_adapters
from mz_engine.backlog.item import BacklogItem, LeftOutItem, plan_backlog
from mz_engine.backlog.listed import FORGE_SOURCE, issue_items, parse_json_lines
from mz_engine.backlog.markdown import parse_backlog
from mz_engine.decide.caller import possible_calls
from mz_engine.decide.items import OWN_SOURCES
from mz_engine.decoding.text_file import read_text
from mz_engine.effects.prompt import configured_model
from mz_engine.errors.diagnostics import Diagnostic, MzError, SourceLocation
from mz_engine.git.repository import (
    base_commit,
    branch_commit,
    has_remote,
    lfs_files,
    open_repository,
    ref_exists,
    reject_tracked_folder,
    run_git_as_user,
    submodules,
    uncommitted_files,
)
from mz_engine.git.workspace import fetches_submodules
from mz_engine.model.agent_description import AgentDescription
from mz_engine.model.config import FILE_NAME, Config, Models
from mz_engine.model.pins import Pins, decode_pins
from mz_engine.model.pipeline import Pipeline, TagStep, Tier
from mz_engine.paths import BLOBS_FOLDER, MZ_FOLDER, READ_MODELS_FILE
from mz_engine.pipelines.lint_phase import PipelineFiles
from mz_engine.pipelines.load import PIPELINES_FOLDER, load_pipeline, load_valid_pipeline_files, pin_files
from mz_engine.pipelines.material import edit_problems, misspelt_edits
from mz_engine.ports import RemoteError, RepositoryUnusable
from mz_engine.pricing.models import candidate_names
from mz_engine.pricing.table import known_models, price_table
from mz_engine.processes.container import Container, container_of
from mz_engine.processes.environment import git_directory
from mz_engine.processes.supervise import best_level, can_confine, can_hide
from mz_engine.ref_names import INTEGRATION, fill
from mz_engine.run.intake import BacklogIntake, PutText, take_items
from mz_engine.run.routing import routing_problems
from mz_engine.run.settings import MEMORY_FILE, READ_AT_USE, LoadedConfig, load_config, read_memory_rules

PLAIN_PROGRAM = re.compile(r"[\w./+-]+\Z")
ASSIGNMENT = re.compile(r"\w+=\S*\Z")
PYTHON_ENVIRONMENT = re.compile(r"venv|\b(uv|poetry|pdm|pipenv) ")
"""In a set-up line that makes a virtual environment, whose programs are found before those on PATH."""
OTHER_PROGRAM = re.compile(
    "ant|bun|bundle|cargo|composer|deno|docker|dotnet|go|gradle|java|make|mvn|node|npm|npx|perl|php|pnpm|rake|ruby|swift|yarn"
)
"""A program that no Python package brings."""
SHELL_WORDS = frozenset(
    """
    if for while until case { ( ! . : cd test [ true false exit set export unset eval exec command echo printf umask
    source time trap ulimit
    """.split()  # noqa: SIM905
)
NAMED_MAX = 20
BACKLOG_BYTES_MAX = 16_000_000


class RunPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of `mz run`."""

    pins: Pins
    base: str
    integration: str
    """Name of the run's integration branch; empty: it has none."""
    items: tuple[BacklogItem, ...]
    """The whole backlog."""
    intake: BacklogIntake
    unfinished: RunState | None
    """The run that these items are added to; None: a new run."""
    warnings: tuple[Diagnostic, ...]


class PlanSources(NamedTuple):
    """What settings refer to, loaded."""

    material: PipelineFiles
    pipeline: Pipeline
    items: tuple[BacklogItem, ...] | None
    """The whole backlog; None: there is none yet."""
    warnings: tuple[Diagnostic, ...]


def load_sources(
    root: Path, environment: Mapping[str, str], loaded: LoadedConfig, needs_backlog: bool = True
) -> PlanSources:
    """Load pipeline and backlog; check agents, base and prices. Without `needs_backlog` the default backlog may be
    missing. Raises MzError with everything that is wrong."""
    config, items, lists_own_items = loaded.config, None, False
    errors = [*loaded.unknown_agents()]
    try:
        if config.base is not None:
            branch_commit(root, config.base, environment)
    except RepositoryUnusable as error:
        message, _, hint = str(error).partition("; ")
        if error.code == "no-base":
            errors += loaded.with_location("base", MzError("MZ2013", f"`base`: {message}", hint=hint)).diagnostics
    errors += loaded.unknown_tracker(root, environment)
    warnings = list(loaded.warnings)
    try:
        material = load_valid_pipeline_files(root)
        pipeline, lint = load_configured_pipeline(loaded, root, material)
        lists_own_items = pipeline.cycle is not None
        merges = any("merge" in phase.deliver for phase in pipeline.phases)
        if config.base and merges and not ref_exists(root, f"heads/{config.base}", environment):
            message = f"`base`: {pipeline.pipeline} merges into it, and {config.base} is no local branch"
            hint = f"name a local branch, or make one: `git branch NAME {config.base}`"
            errors += loaded.with_location("base", MzError("MZ2013", message, hint=hint)).diagnostics
        errors += edit_problems(config, pipeline, material.templates, loaded.document)
        errors += routing_problems(loaded.routing, pipeline, all_adapters(config.agents))
        has_price = price_lookup(config, environment)
        warnings += (*lint, *missing_tools(pipeline, config), *unpriced_models(pipeline, config, has_price))
        warnings += (*unknown_models(config, has_price), *misspelt_edits(config, pipeline, loaded.document))
    except MzError as error:
        errors += error.diagnostics
    try:
        needs_backlog = needs_backlog and not (lists_own_items and loaded.origins["backlog"] == "default")
        if needs_backlog or os.path.lexists(root / config.backlog) or loaded.origins["backlog"] != "default":
            items = read_backlog(root, config, environment)
    except MzError as error:
        errors += error.diagnostics
    if errors:
        raise MzError.from_diagnostics((*errors, *loaded.warnings))
    return PlanSources(material, pipeline, items, tuple(warnings))


def make_plan(
    root: Path,
    environment: Mapping[str, str],
    flags: Mapping[str, object],
    only: tuple[str, ...],
    store: Log | None,
    put: PutText,
    keeps_views: bool = True,
    is_new: bool = False,
) -> RunPlan:
    """Return the plan of a run. `only`: ids of features, empty for all; `store` is None if nothing ever ran. Without
    `keeps_views` no file is written; with `is_new` the run begins beside an unfinished one. Raises MzError, and
    RepositoryUnusable if there is no commit to start from."""
    loaded = load_config(root, environment, flags)
    material, pipeline, items, warnings = load_sources(root, environment, loaded)
    config, items = loaded.config, items or ()
    base, commit = base_commit(root, config.base, environment)
    reject_tracked_folder(root, commit, environment)
    gaps = missing_content(root, commit, config.workspace.setup, environment)
    ids = [item.id for item in items]
    for name in only:
        if name not in ids:
            hint = f"it has: {', '.join(ids[:NAMED_MAX])}{', ...' if len(ids) > NAMED_MAX else ''}"
            raise MzError("MZ4010", f"the backlog has no feature {name!r}", hint=hint)
    pins = replace(pin_files(pipeline, material, config), memory=read_memory_rules(root / MEMORY_FILE))
    unfinished = find_unfinished_run(store) if store and not is_new else None
    if is_new and not pins.pipeline.integration:
        message = "only runs with an integration branch of their own can be unfinished at the same time"
        raise MzError("MZ5003", message, hint="continue or cancel the unfinished run first: `mz runs` names it")
    if unfinished is not None:
        pins = _pins_of_unfinished(root, unfinished, pins, base, flags, only)
    delivered = delivered_items(root if keeps_views else None, store) if store else {}
    in_run = unfinished.tracks if unfinished else ()
    intake = take_items(items, only, delivered, in_run, pins, put)
    unseen = unseen_changes(root, config, environment)
    warnings = (*warnings, *gaps, *unseen, *weak_isolation(), *intake.warnings)
    reject_own_ids(pins, items)
    if unfinished and unfinished.started:
        integration = unfinished.started.integration
    else:
        now = time.strftime("%Y-%m-%d-%H-%M-%S", time.gmtime())
        name = pins.config.integration or pins.pipeline.integration
        integration = name.replace("{time}", now) if pins.pipeline.integration else ""
    reject_used_names(root, pins, "" if unfinished else integration, environment)
    return RunPlan(
        pins=pins,
        base=base,
        integration=integration,
        items=items,
        intake=intake,
        unfinished=unfinished,
        warnings=warnings,
    )


def reject_own_ids(pins: Pins, items: Iterable[BacklogItem]) -> None:
    """Raise MzError (MZ4014) for features with ids that the run gives to its own items."""
    own = [rf"{kind.kind}(-\d+)?" for kind in pins.pipeline.items if OWN_SOURCES.intersection(kind.sources)]
    own += [rf"{kind.kind[0]}\d+" for kind in pins.pipeline.items if "output" in kind.sources]
    clashing = [item for item in items if re.fullmatch("|".join(own) or r"(?!)", item.id)]
    if clashing:
        raise MzError.from_diagnostics(
            Diagnostic(
                code="MZ4014",
                message=f"the run gives the id `{item.id}` to an item of its own",
                hint="give the feature another id",
                location=SourceLocation(item.file, item.line),
            )
            for item in clashing
        )


def reject_used_names(root: Path, pins: Pins, integration: str, environment: Mapping[str, str]) -> None:
    """Raise MzError (MZ5019) if there is an integration branch of this name already, or a tag that is named by it."""
    tags = (step.tag for phase in pins.pipeline.phases for step in phase.deliver if isinstance(step, TagStep))
    named = (fill(tag, {INTEGRATION: integration}) for tag in tags if f"{{{INTEGRATION}}}" in tag)
    for noun, name in (("branch", f"heads/{integration}"), *(("tag", f"tags/{tag}") for tag in named)):
        if integration and ref_exists(root, name, environment):
            hint = "set `integration:` in mz.yaml or MZ_INTEGRATION to another name; without, it is made from the time"
            raise MzError("MZ5019", f"the {noun} {name.partition('/')[2]} exists already", hint=hint)


def _pins_of_unfinished(
    root: Path, state: RunState, new: Pins, base: str, flags: Mapping[str, object], only: tuple[str, ...]
) -> Pins:
    """Return the pins of an unfinished run, with the current budget. Raises MzError (MZ5003) if pipeline, base or a
    flag differ, or if it has more to do than `only`: the run keeps its own."""
    started = state.started
    assert started is not None
    pins = decode_pins(FileBlobs(root / MZ_FOLDER / BLOBS_FOLDER).get(started.pins))
    differences = [
        f"{name} {pinned}"
        for name, pinned, value in (
            ("pipeline", started.pipeline, new.pipeline.pipeline),
            ("base", started.base, base),
            *((name, getattr(pins.config, name), value) for name, value in flags.items() if name not in READ_AT_USE),
        )
        if value not in (None, pinned)
    ]
    others = [feature for feature, track in state.tracks.items() if _has_work(track) and feature not in only]
    if only and others:
        differences.append(f"other features to do ({', '.join(others[:NAMED_MAX])})")
    if differences:
        message = f"unfinished run {started.run} has {' and '.join(differences)}, and keeps it"
        hint = f"continue it as it is with `mz resume {started.run}`, or cancel it with `mz cancel {started.run}`"
        hint += "; `mz run --new` begins beside it" if new.pipeline.integration else ""
        raise MzError("MZ5003", message, hint=hint)
    return replace(pins, config=replace(pins.config, budget=new.config.budget))


def _has_work(track: FeatureTrack) -> bool:
    """Return True if the feature continues with the run, without an answer of a person."""
    return not (track.has_ended or (track.stop is not None and track.stop.status is FeatureOutcome.WAITING))


def load_configured_pipeline(
    loaded: LoadedConfig, root: Path, material: PipelineFiles | None = None
) -> tuple[Pipeline, tuple[Diagnostic, ...]]:
    """Load the pipeline that the settings name. Raises MzError, for a missing one with the location of its name."""
    try:
        return load_pipeline(loaded.config.pipeline, root, material or load_valid_pipeline_files(root), loaded.config)
    except MzError as error:
        if error.code != "MZ3001":
            raise
        raise loaded.with_location("pipeline", error) from error


def read_backlog(root: Path, config: Config, environment: Mapping[str, str]) -> tuple[BacklogItem, ...]:
    """Return the items of the backlog: a file of the repository, Markdown or JSON Lines, or issues, which `gh` reads.
    Raises MzError: MZ2001 to MZ2008 for the file, MZ40nn for the content, MZ4013 for the forge."""
    name = config.backlog
    if (forge_source := FORGE_SOURCE.fullmatch(name)) is not None:
        from mz_engine.forge.github import GhForge

        forge = GhForge(root, config.pull_requests.remote, environment, forge_source["repository"] or "")
        try:
            return issue_items(forge.issues(forge_source["label"]))
        except RemoteError as error:
            message, _, hint = str(error).partition("; ")
            raise MzError("MZ4013", f"the issues of {name} cannot be read: {message}", hint=hint) from error
    if not os.path.lexists(root / name):
        hint = "run `mz init` to create it, or set `backlog:` in mz.yaml to another file"
        raise MzError("MZ2001", "the backlog file does not exist", hint=hint, location=SourceLocation(name))
    parse = parse_json_lines if name.endswith(".jsonl") else parse_backlog
    return parse(read_text(root / name, name, BACKLOG_BYTES_MAX), name)


def find_unfinished_run(store: Store, run: str | None = None) -> RunState | None:
    """Return this run, or the newest one, if it is unfinished. A fork has to be named."""
    inbox_versions = dict(store.streams("inbox/"))
    streams = [stream for stream, _ in store.streams("run/") if stream.count("/") == 1]
    runs: list[tuple[int, RunState]] = []
    for stream in streams if run is None else [run_stream(run)]:
        events = tuple(store.read(stream))
        state = fold_run(events)
        if state.started is None or (run is None and state.fork is not None):
            continue
        if not is_complete(state, inbox_versions.get(inbox_stream(state.started.run), 0)):
            runs.append((events[0].position, state))
    return max(runs, key=lambda entry: entry[0])[1] if runs else None


def delivered_items(root: Path | None, store: Log) -> dict[str, Delivery]:
    """Return the last delivery of each source over all runs. Without a root, no read model is stored."""
    with ReadModelStore(root / MZ_FOLDER / READ_MODELS_FILE if root else None, store, (DELIVERED,)) as views:
        views.refresh()
        return latest_deliveries(views.rows(DELIVERED))


def waiting_texts(left_out: tuple[LeftOutItem, ...], only: Iterable[str] = ()) -> dict[str, str]:
    """Return why items wait, with the next step: for a dependency, or for their own status if they are in `only`."""
    stuck = {out.item.id: f"{out.reason}: make it FEAT" for out in left_out if out.reason in ("blocked", "in-progress")}
    named = stuck.keys() & set(only)
    causes = {out.item.id: out.blocked_by or out.item.id for out in left_out if out.blocked_by or out.item.id in named}
    texts = {name: stuck.get(cause, f"not delivered: mz run --feature {cause}") for name, cause in causes.items()}
    return {name: f"{name} waits: {causes[name]} is {text}" for name, text in texts.items()}


def waiting_items(root: Path, environment: Mapping[str, str], in_run: Iterable[str]) -> dict[str, str]:
    """Return why features of the backlog wait that are not in the run; nothing if it cannot be read here."""
    try:
        config = load_config(root, environment, {}).config
        items = () if FORGE_SOURCE.fullmatch(config.backlog) else read_backlog(root, config, environment)
    except MzError:
        return {}
    return waiting_texts(plan_backlog(items, (), in_run)[1])


# checks of agents, commands, remote and `gh` --------------------------------------------------------------------------
def find_agent(name: str, described: Mapping[str, AgentDescription], container: Container | None = None) -> Adapter:
    """Return the adapter of a built-in or described agent. Raises MzError (MZ1004) for any other name."""
    adapters_by_name = all_adapters(described, container)
    if name not in adapters_by_name:
        unknown = UnknownAgent(name, tuple(sorted(adapters_by_name)))
        raise MzError("MZ1004", str(unknown), hint="choose one with `agent:` in mz.yaml")
    return adapters_by_name[name]


def model_of(config: Config, agent: str, tier: Tier) -> str:
    """Return the model of a tier. Raises MzError (MZ1004) for an unknown agent."""
    return configured_model(config, agent, tier) or find_agent(agent, config.agents).capabilities().models[tier]


def check_agent(name: str, config: Config, environment: Mapping[str, str]) -> None:
    """Check program and login of an agent, without calling a model. Raises MzError: MZ1004 program, MZ1005 login."""
    check = find_agent(name, config.agents, container_of(config, environment)).check_auth(environment)
    if check.code:
        code = "MZ1004" if check.code == "tool-missing" else "MZ1005"
        raise MzError(code, check.message, hint=check.fix)


def check_agents(root: Path, config: Config, environment: Mapping[str, str]) -> None:
    """Check every agent that a run may call, successors included. Raises MzError."""
    for name in config.called_agents:
        check_agent(name, config, environment)


def check_commands(root: Path, config: Config, environment: Mapping[str, str]) -> None:
    """Check that the program of every command exists. Raises MzError (MZ1004) with all that are missing."""
    missing = []
    for name, program in missing_programs(root, config, environment).items():
        message, hint = f"`{name}` needs {program}, which is not on PATH", f"install it, or change {name} in mz.yaml"
        missing.append(Diagnostic(code="MZ1004", message=message, hint=hint))
    if missing:
        raise MzError.from_diagnostics(missing)


def missing_content(
    root: Path, commit: Commit, setup: Iterable[str], environment: Mapping[str, str]
) -> Iterator[Diagnostic]:
    """Yield warnings (MZ1009) for submodules, LFS files and partial clones, whose content is not in worktrees."""
    texts, names = list[tuple[str, str]](), ("--name-only", "--get-regexp", r"^remote\..*\.partialclonefilter$")
    paths = tuple(path for path in submodules(root, commit, environment) if git_directory(root / path) is None)
    if paths and not fetches_submodules(setup):
        hint = "run `git submodule update --init --recursive`, or add it to `workspace.setup` in mz.yaml"
        texts.append((f"worktrees have empty directories in place of submodules: {list_names(paths)}", hint))
    if paths := lfs_files(root, commit, environment):
        hint = "agents and tests there do not see the content; `mz doctor --run-commands` shows which tests fail"
        texts.append((f"worktrees have pointers in place of files in Git LFS: {list_names(paths)}", hint))
    if name := run_git_as_user(root, environment, "config", *names).text.partition("\n")[0]:
        hint = f"`git config --unset {name}`, then `git fetch --refetch`"
        texts.append(("this is a partial clone: `git blame` and `git log -p` do not work for agents", hint))
    return (Diagnostic(code="MZ1009", message=message, hint=hint, severity="warning") for message, hint in texts)


def unseen_changes(root: Path, config: Config, environment: Mapping[str, str]) -> Iterator[Diagnostic]:
    """Yield a warning (MZ1010) for uncommitted changes, except those of files that mz reads from the checkout."""
    files, folders = (FILE_NAME, config.backlog, ".gitignore"), (f"{PIPELINES_FOLDER}/", f"{config.recordings}/")
    paths = [path for path in uncommitted_files(root, environment) if not (path in files or path.startswith(folders))]
    if paths:
        message = f"agents do not see uncommitted changes, since worktrees start from a commit: {list_names(paths)}"
        yield Diagnostic(code="MZ1010", message=message, hint="commit what they need", severity="warning")


def price_lookup(config: Config, environment: Mapping[str, str]) -> Callable[[str], bool]:
    """Return a function that tells whether a model has a price now."""
    table = price_table(config, environment)
    return lambda model: table.estimate(model, 1, 1, time.time_ns() // 1_000) is not None


def unknown_models(config: Config, has_price: Callable[[str], bool]) -> Iterator[Diagnostic]:
    """Yield a warning (MZ2020) for each configured model that the price table does not know, although it knows other
    models of a built-in agent."""
    if (adapter := built_in_adapters().get(config.agent)) is None:
        return
    configured = {getattr(config.models, tier): tier for tier in Models.__struct_fields__}
    for model, tier in configured.items():
        if not model or not candidate_names(model) or has_price(model):
            continue
        if listed := known_models(adapter.capabilities().models[tier]):
            near = get_close_matches(model, listed, n=3, cutoff=0.5)
            names = f"similar ones: {', '.join(near)}" if near else f"known: {list_names(listed, NAMED_MAX)}"
            message = f"`models.{tier}` is {model}, which the price table does not know; {names}"
            hint = "correct it; if the model is new or your own, add its price under `prices:` in mz.yaml"
            yield Diagnostic(code="MZ2020", message=message, hint=hint, severity="warning")


def missing_programs(root: Path, config: Config, environment: Mapping[str, str]) -> dict[str, str]:
    """Return missing programs by setting, such as `commands.test`. Skips command lines that only a shell can parse, and
    what a set-up may create, which the test of the base finds missing: paths, and what Python packages may bring."""
    lines = {f"commands.{name}": command.run for name, command in config.commands.items()}
    lines |= {f"workspace.setup[{index}]": line for index, line in enumerate(config.workspace.setup)}
    makes_environment = any(map(PYTHON_ENVIRONMENT.search, config.workspace.setup))

    def is_missing(setting: str, program: str) -> bool:
        if "/" in program:
            return not config.workspace.setup and not (root / program).exists()
        if setting.startswith("commands.") and makes_environment and not OTHER_PROGRAM.fullmatch(program):
            return False
        return shutil.which(program, path=environment.get("PATH")) is None

    programs = {name: program_of(line) for name, line in lines.items()}
    return {name: program for name, program in programs.items() if program and is_missing(name, program)}


def check_delivery(root: Path, config: Config, environment: Mapping[str, str]) -> None:
    """Check that configured pull requests can be opened. Raises MzError: no remote (MZ1003), no `gh` (MZ1004)."""
    settings = config.pull_requests
    if settings.strategy == "none":
        return
    alternative = "or set pull_requests.strategy to none in mz.yaml: branch and description then stay on this machine"
    if not has_remote(open_repository(root, environment), settings.remote):
        hint = f"`git remote add {settings.remote} URL`, {alternative}"
        raise MzError("MZ1003", f"the remote {settings.remote!r} for pull requests does not exist", hint=hint)
    if not shutil.which("gh", path=environment.get("PATH")):
        raise MzError("MZ1004", "pull requests need `gh`, which is not on PATH", hint=f"install it, {alternative}")


ISOLATION_HINT = "`mz doctor` says how to get mount namespaces"


def check_isolation(root: Path, config: Config, environment: Mapping[str, str]) -> None:
    """Check that this machine has the isolation that is required. Raises MzError (MZ1011)."""
    if (config.isolation == "mounts" and not can_hide()) or (config.isolation == "landlock" and not can_confine()):
        message = f"`isolation: {config.isolation}` is required, but this machine only has the level {best_level()}"
        raise MzError("MZ1011", message, hint=ISOLATION_HINT)


def weak_isolation() -> Iterator[Diagnostic]:
    """Yield a warning (MZ1012) if this machine has no mount namespaces."""
    if not can_hide():
        may = "reach sockets of yours" if can_confine() else "change whatever your user may change"
        message = f"isolation is {best_level()}: agents and commands can {may}"
        hint = f"{ISOLATION_HINT}; `isolation: mounts` in mz.yaml refuses to run without"
        yield Diagnostic(code="MZ1012", message=message, hint=hint, severity="warning")


PREREQUISITES = (check_agents, check_commands, check_delivery, check_isolation)
"""What a run needs before anything is written or paid."""


def preflight_warnings(root: Path, config: Config, environment: Mapping[str, str]) -> Iterator[Diagnostic]:
    """Return the errors with which a run would refuse to start, as warnings. Raises RepositoryUnusable, and MzError
    (MZ1004) for an unknown agent."""
    for name in config.called_agents:
        find_agent(name, config.agents)
    for check in PREREQUISITES:
        try:
            check(root, config, environment)
        except MzError as error:
            yield from (replace(diagnostic, severity="warning") for diagnostic in error.diagnostics)


def program_of(command: str) -> str | None:
    """Return the program that a command line starts; None if only a shell can tell."""
    parts = [word for word in command.split() if not ASSIGNMENT.match(word)]
    if not parts or not PLAIN_PROGRAM.match(parts[0]) or parts[0] in SHELL_WORDS:
        return None
    return parts[0]


UNREPORTED_TOOL = "read"
"""A tool that is never reported as missing: prompts hold or name what the agent needs to read."""


def missing_tools(pipeline: Pipeline, config: Config) -> Iterator[Diagnostic]:
    """Yield a warning (MZ3019) for each agent and tool. An agent that describes no tools is assumed to have all."""
    phases_by_tool: dict[tuple[str, str], dict[str, None]] = {}
    agents = _agents(config)
    for phase, call in pipeline.calls:
        for name in dict.fromkeys(name for name, _ in possible_calls(config, phase, call) if name in agents):
            agent_tools = agents[name].capabilities().tools
            for tool in call.tools if agent_tools else ():
                if tool not in (UNREPORTED_TOOL, *agent_tools):
                    phases_by_tool.setdefault((name, tool), {})[f"`{phase.phase}`"] = None
    for (agent, missing), phases in phases_by_tool.items():
        users = f"the phase {', '.join(phases)} asks" if len(phases) == 1 else f"the phases {', '.join(phases)} ask"
        message = f"{users} for the tool `{missing}`, which the agent {agent} does not have"
        hint = (
            f"the call is made without it; choose another agent, or remove `{missing}` from `tools:` there. For an "
            "agent of your own, list its tools in `allowed:` and `denied:` under `agents:`"
        )
        yield Diagnostic(code="MZ3019", message=message, hint=hint, severity="warning")


def unpriced_models(pipeline: Pipeline, config: Config, has_price: Callable[[str], bool]) -> Iterator[Diagnostic]:
    """Yield a warning (MZ2016) if a budget is set and models of the run have no price."""
    limits = msgspec.structs.asdict(config.budget)
    if all(limit is None for name, limit in limits.items() if name.endswith("nanousd")):
        return
    agents = _agents(config)
    calls = (possible for phase, use in pipeline.calls for possible in possible_calls(config, phase, use))
    models = dict.fromkeys(model_of(config, agent, tier) for agent, tier in calls if agent in agents)
    unpriced = [model for model in models if not has_price(model)]
    if unpriced:
        models_have = "the model has" if len(unpriced) == 1 else "these models have"
        message = f"a budget is set, but {models_have} no price: {', '.join(unpriced)}; no money is reserved for calls"
        hint = "add prices under `prices:` in mz.yaml; without them only costs that the agent reports count"
        yield Diagnostic(code="MZ2016", message=message, hint=hint, severity="warning")


def reply_provenance(config: Config, environment: Mapping[str, str]) -> str:
    """Return the provenance of replies: `live`, or `unknown` if an agent has an endpoint of the user's."""
    passed = {name: environment.get(name, "") for name in config.pass_environment}
    adapters = _agents(config).values()
    is_redirected = names_endpoint(passed) or any(adapter.has_own_endpoint(environment) for adapter in adapters)
    return "unknown" if is_redirected else "live"


def _agents(config: Config) -> dict[str, Adapter]:
    """Return the agents that a run may call, by name; unknown names are reported elsewhere."""
    adapters_by_name = all_adapters(config.agents)
    return {name: adapters_by_name[name] for name in config.called_agents if name in adapters_by_name}
