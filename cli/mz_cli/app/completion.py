"""Suggestions for shell completion. Reads only: no log is opened for writing, no read model is updated, and every error
means no suggestions."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import click
from click.shell_completion import ShellComplete, get_completion_class
from mz_engine.paths import LOG_FILE, MZ_FOLDER

from mz_cli.app.command_table import COMMANDS, COMPLETION_VARIABLE

SHELLS = ("bash", "zsh", "fish")
PROGRAM = "mz"
SUGGESTED_MAX = 200
TIMEOUT_SECONDS = 0.2
RUNS = "SELECT name FROM stream WHERE name LIKE 'run/%' AND name NOT LIKE 'run/%/%' ORDER BY id DESC LIMIT ?"
ITEMS = (
    "SELECT payload FROM event WHERE type = 'item.added' AND "
    "stream_id = (SELECT id FROM stream WHERE name = ?) ORDER BY version"
)
PHASES = (
    "SELECT stream.name, event.payload FROM stream LEFT JOIN event "
    "ON event.stream_id = stream.id AND event.type = 'phase.started' "
    "WHERE stream.name LIKE 'run/%/%' ORDER BY stream.id DESC, event.version"
)
"""Streams of features with the phases that started, if any."""
PREFIX = "<prefix>"
"""Key of the word to complete, among the parameters."""

Parameters = Mapping[str, object]
"""Parameters already on the command line, by name."""


def completion_script(shell: str) -> str:
    """Return the script that the shell evaluates to enable completion."""
    shell_class = get_completion_class(shell)
    assert shell_class is not None
    # Click's bash class would start a bash to check its version, which may not be the user's bash.
    return ShellComplete.source(shell_class(click.Command(PROGRAM), {}, PROGRAM, COMPLETION_VARIABLE))


def print_completions(root: click.Command, instruction: str) -> int:
    """Print the suggestions for the command line in the environment; return exit code 0, or 1 without any output."""
    with suppress(Exception):
        shell, _, action = instruction.partition("_")
        shell_class = get_completion_class(shell)
        if shell_class is not None and action == "complete":
            sys.stdout.write(shell_class(root, {}, PROGRAM, COMPLETION_VARIABLE).complete() + "\n")
            sys.stdout.flush()
            return 0
    return 1


def suggestions(kind: str, prefix: str, parameters: Parameters) -> list[str]:
    """Return the suggestions of a kind (`SOURCES`) with that prefix; empty on any error."""
    with suppress(Exception):
        names = SOURCES[kind]({**parameters, PREFIX: prefix})
        return [name for name in names if name.startswith(prefix)][:SUGGESTED_MAX]
    return []


def query_log(query: str, *values: object) -> list[tuple[Any, ...]]:
    """Query the nearest log. Raises sqlite3.Error, and StopIteration without any log. A log that no process has open is
    read as immutable, since opening it otherwise would create files beside it."""
    here = Path.cwd()
    logs = (folder / MZ_FOLDER / LOG_FILE for folder in (here, *here.parents))
    log = next(filter(Path.is_file, logs))
    wal = log.with_name("mz.db-wal")
    is_idle = not wal.exists() or wal.stat().st_size == 0
    target = f"{log.as_uri()}?mode=ro{'&immutable=1' if is_idle else ''}"
    with closing(sqlite3.connect(target, uri=True, timeout=TIMEOUT_SECONDS)) as connection:
        return connection.execute(query, values).fetchall()


def runs(parameters: Parameters) -> Iterable[str]:
    """Return run ids, the newest first."""
    return [str(name).removeprefix("run/") for (name,) in query_log(RUNS, SUGGESTED_MAX)]


def selected_run(parameters: Parameters) -> str:
    """Return the run on the command line, else the newest. Raises StopIteration."""
    named = parameters.get("run")
    return next(run for run in runs(parameters) if named is None or run.startswith(str(named)))


def selectors(parameters: Parameters) -> Iterable[str]:
    """Return runs and features that are not on the command line yet; after a `/`, selectors as deep as the prefix."""
    names, entered = features(parameters), parameters.get("selectors")
    if "/" in str(parameters.get(PREFIX, "")):
        return names
    return [name for name in (*names, *runs(parameters)) if not isinstance(entered, tuple) or name not in entered]


def features(parameters: Parameters) -> Iterable[str]:
    """Return ids of the run's features that are not on the command line yet; after a `/`, RUN/FEATURE, FEATURE/PHASE
    and RUN/FEATURE/PHASE, as deep as the prefix."""
    if depth := str(parameters.get(PREFIX, "")).count("/"):
        candidates = (
            candidate
            for run, feature, phase in started_phases()
            for candidate in (
                f"{run}/{feature}",
                *((f"{feature}/{phase}", f"{run}/{feature}/{phase}") if phase else ()),
            )
        )
        return dict.fromkeys(candidate for candidate in candidates if candidate.count("/") == depth)
    entered = parameters.get("features")
    rows = query_log(ITEMS, f"run/{selected_run(parameters)}")
    names = dict.fromkeys(json.loads(payload)["feature"] for (payload,) in rows)
    return [name for name in names if not isinstance(entered, tuple) or name not in entered]


def phases(parameters: Parameters) -> Iterable[str]:
    """Return the started phases of the feature, or of all features of the run."""
    selected, named = selected_run(parameters), parameters.get("feature")
    return dict.fromkeys(
        phase for run, feature, phase in started_phases() if phase and run == selected and named in (None, feature)
    )


def started_phases() -> Iterator[tuple[str, str, str]]:
    """Yield run, feature and phase of each phase that started; an empty phase for a feature without any."""
    for name, payload in query_log(PHASES):
        _, run, feature = str(name).split("/")
        yield run, feature, json.loads(payload)["phase"] if payload else ""


def pipelines(parameters: Parameters) -> Iterable[str]:
    from mz_engine.pipelines.load import built_in_pipelines, project_pipelines

    here = Path.cwd()
    root = next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), here)
    return dict.fromkeys((*project_pipelines(root), *built_in_pipelines()))


def codes(parameters: Parameters) -> Iterable[str]:
    """Return error codes."""
    from mz_engine.errors.codes import CODES

    return CODES


def agents(parameters: Parameters) -> Iterable[str]:
    from mz_engine.agents.registry import built_in_adapters

    return built_in_adapters()


def topics(parameters: Parameters) -> Iterable[str]:
    from mz_cli.app.topics import TOPICS

    return (*TOPICS, "codes", *COMMANDS, *(codes(parameters) if parameters.get(PREFIX) else ()))


SOURCES: Mapping[str, Callable[[Parameters], Iterable[str]]] = {
    "runs": runs,
    "features": features,
    "selectors": selectors,
    "phases": phases,
    "pipelines": pipelines,
    "codes": codes,
    "agents": agents,
    "topics": topics,
}
