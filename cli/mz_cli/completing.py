"""Suggestions for shell completion. Reads only: no log is opened for writing, no read model is updated, and every error
means no suggestions."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from pathlib import Path

import click
from click.shell_completion import ShellComplete, get_completion_class
from mz_engine.home import HOME, LOG

from mz_cli.main import COMMANDS, COMPLETING

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
    "SELECT payload FROM event WHERE type = 'phase.started' AND "
    "stream_id IN (SELECT id FROM stream WHERE name LIKE ?) ORDER BY position"
)

Asked = Mapping[str, object]
"""Parameters already on the command line, by name."""


def script(shell: str) -> str:
    """Return the script that the shell evaluates to enable completion."""
    found = get_completion_class(shell)
    assert found is not None
    # Click's bash class would start a bash to check its version, which may not be the user's bash.
    return ShellComplete.source(found(click.Command(PROGRAM), {}, PROGRAM, COMPLETING))


def complete(root: click.Command, instruction: str) -> int:
    """Print the suggestions for the command line in the environment; return exit code 0, or 1 without any output."""
    with suppress(Exception):
        shell, _, what = instruction.partition("_")
        found = get_completion_class(shell)
        if found is not None and what == "complete":
            sys.stdout.write(found(root, {}, PROGRAM, COMPLETING).complete() + "\n")
            sys.stdout.flush()
            return 0
    return 1


def suggest(kind: str, begun: str, asked: Asked) -> list[str]:
    """Return the suggestions of a kind (`SOURCES`) with that prefix; empty on any error."""
    with suppress(Exception):
        return [word for word in SOURCES[kind](asked) if word.startswith(begun)][:SUGGESTED_MAX]
    return []


def home() -> Path:
    """Return the nearest `.mz` with a log in it. Raises StopIteration."""
    here = Path.cwd()
    return next(folder / HOME for folder in (here, *here.parents) if (folder / HOME / LOG).is_file())


def rows(query: str, *values: object) -> list[tuple[object, ...]]:
    """Query the log. Raises sqlite3.Error. A log that no process has open is read as immutable, since opening it
    otherwise would create files beside it."""
    log = home() / LOG
    wal = log.with_name("mz.db-wal")
    still = not wal.exists() or wal.stat().st_size == 0
    target = f"{log.as_uri()}?mode=ro{'&immutable=1' if still else ''}"
    with closing(sqlite3.connect(target, uri=True, timeout=TIMEOUT_SECONDS)) as connection:
        return connection.execute(query, values).fetchall()


def runs(asked: Asked) -> Iterable[str]:
    """Return run ids, the newest first."""
    return [str(name).removeprefix("run/") for (name,) in rows(RUNS, SUGGESTED_MAX)]


def the_run(asked: Asked) -> str:
    """Return the run on the command line, else the newest. Raises StopIteration."""
    named = asked.get("run")
    return next(each for each in runs(asked) if named is None or each.startswith(str(named)))


def features(asked: Asked) -> Iterable[str]:
    """Return ids of the run's features that are not on the command line yet."""
    taken = asked.get("features") or ()
    found = named_in(rows(ITEMS, f"run/{the_run(asked)}"), "feature")
    return [name for name in found if not isinstance(taken, tuple) or name not in taken]


def phases(asked: Asked) -> Iterable[str]:
    """Return the started phases of the feature, or of all features of the run."""
    return named_in(rows(PHASES, f"run/{the_run(asked)}/{asked.get('feature') or '%'}"), "phase")


def named_in(found: Iterable[tuple[object, ...]], key: str) -> Iterable[str]:
    """Return the distinct values of a key in JSON payloads."""
    payloads = (payload for (payload,) in found if isinstance(payload, bytes | str))
    return dict.fromkeys(json.loads(payload)[key] for payload in payloads)


def pipelines(asked: Asked) -> Iterable[str]:
    from mz_engine.pipelines.load import built_in_pipelines, project_pipelines

    here = Path.cwd()
    root = next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), here)
    return dict.fromkeys((*project_pipelines(root), *built_in_pipelines()))


def codes(asked: Asked) -> Iterable[str]:
    """Return error codes."""
    from mz_engine.errorcodes import CODES

    return CODES


def agents(asked: Asked) -> Iterable[str]:
    from mz_engine.agents.registry import built_in

    return built_in()


def topics(asked: Asked) -> Iterable[str]:
    from mz_cli.topics import TOPICS

    return (*TOPICS, *COMMANDS)


SOURCES: Mapping[str, Callable[[Asked], Iterable[str]]] = {
    "runs": runs,
    "features": features,
    "phases": phases,
    "pipelines": pipelines,
    "codes": codes,
    "agents": agents,
    "topics": topics,
}
