"""What the cheapest commands cost to start, in CPU seconds of whole processes: the version against importing
`click`; the status and the cost of a run, and the list of runs, in a log of 100,000 events against the same answers by
one SQL query."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from mz_engine.paths import LOG_FILE, MZ_FOLDER
from mz_events.adapters.blobs import FileBlobs
from mz_events.adapters.sqlite_log import SqliteStore

from tools.bench.clock import alternate, cpu_seconds
from tools.bench.figure import Figure, compare
from tools.bench.history import fill, simulate

EVENTS = 100_000
ROUNDS = 15
VERSION_MAX = 2.0
STATUS_MAX = 4.0
"""Of the query's time. The query starts Python with the standard library alone; the status also loads the vocabulary,
checks each event against it and folds it. Four times are about a quarter of a second: nobody waits for that."""
RUNS_MAX, COST_MAX = 2.5, 3.75
"""Of their queries' time: 0.2 and 0.3 seconds where the query takes 0.08."""
UNIT = "CPU s"

QUERY = """
WITH newest AS (
    SELECT name FROM stream WHERE name LIKE 'run/%' AND name NOT LIKE 'run/%/%' ORDER BY id DESC LIMIT 1
),
mine AS MATERIALIZED (
    SELECT substr(stream.name, length(newest.name) + 2) AS feature, event.position, event.type,
           CAST(event.payload AS TEXT) AS payload
    FROM newest JOIN stream ON stream.name = newest.name OR stream.name LIKE newest.name || '/%'
        JOIN event ON event.stream_id = stream.id
),
said AS (
    SELECT payload ->> 'feature' AS feature,
        min(payload ->> 'order') FILTER (WHERE type = 'item.added') AS number,
        max(printf('%012d', position) || (payload ->> 'status')) FILTER (WHERE type = 'feature.stopped') AS status
    FROM mine WHERE feature = '' GROUP BY 1
),
told AS (
    SELECT feature,
        max(printf('%012d', position) || (payload ->> 'phase')) FILTER (WHERE type = 'phase.started') AS phase,
        count(*) FILTER (WHERE type = 'agent.requested') AS attempts,
        max(payload ->> 'branch') FILTER (WHERE type = 'feature.started') AS branch,
        sum((SELECT sum(value ->> 'input') FROM json_each(payload, '$.usage')))
            FILTER (WHERE type = 'reply.parsed') AS input,
        sum((SELECT sum(value ->> 'output') FROM json_each(payload, '$.usage')))
            FILTER (WHERE type = 'reply.parsed') AS output,
        sum(payload ->> 'estimated_nanousd') FILTER (WHERE type = 'agent.requested') AS estimated,
        sum(payload ->> 'reported_nanousd') FILTER (WHERE type = 'reply.parsed') AS reported,
        sum(payload ->> 'computed_nanousd') FILTER (WHERE type = 'call.priced') AS computed
    FROM mine WHERE feature <> '' GROUP BY feature
)
SELECT said.feature, substr(status, 13), substr(phase, 13), attempts, branch, input, output,
    estimated, reported, computed
FROM said LEFT JOIN told ON told.feature = said.feature WHERE number IS NOT NULL ORDER BY number
"""
"""What `mz status` says of each feature: status, phase, attempts, branch, tokens, money."""

RUNS_QUERY = """
WITH said AS MATERIALIZED (
    SELECT stream.name AS run, event.position, event.type, event.recorded_at_us, CAST(event.payload AS TEXT) AS payload
    FROM stream JOIN event ON event.stream_id = stream.id
    WHERE stream.name LIKE 'run/%' AND stream.name NOT LIKE 'run/%/%'
),
told AS (
    SELECT run, payload ->> 'feature' AS feature, max(position), payload ->> 'status' AS status
    FROM said WHERE type = 'feature.stopped' GROUP BY 1, 2
),
counted AS (
    SELECT run, group_concat(status || ' ' || number) AS features
    FROM (SELECT run, status, count(*) AS number FROM told GROUP BY 1, 2) GROUP BY 1
)
SELECT said.run, min(recorded_at_us), max(type) FILTER (WHERE type IN ('run.finished', 'run.halted', 'run.idle')),
    max(payload ->> 'pipeline') FILTER (WHERE type = 'run.started'),
    max(payload ->> 'base') FILTER (WHERE type = 'run.started'),
    features
FROM said LEFT JOIN counted ON counted.run = said.run GROUP BY said.run ORDER BY 2 DESC
"""
"""What `mz runs` says of each run: start, status, pipeline, base, features by status."""

PROGRAM = "import sqlite3, sys\nfor row in sqlite3.connect(sys.argv[1]).execute({!r}): print(*row, sep='\\t')"


class Bench:
    """A repository with a log in it."""

    def __init__(self, path: Path, mz: Path, events: int) -> None:
        self.folder, self.mz, self.root = path, mz, path / "project"
        self.root.mkdir()
        subprocess.run(["git", "init", "--quiet", "--initial-branch=main"], cwd=self.root, check=True)
        home = self.root / MZ_FOLDER
        home.mkdir()
        with SqliteStore(home / LOG_FILE) as log:
            self.count = fill(log, FileBlobs(home / "blobs"), simulate(), events)
        self.log = home / LOG_FILE

    @property
    def environment(self) -> Mapping[str, str]:
        path = os.environ.get("PATH", os.defpath)
        return {"PATH": path, "HOME": str(self.folder), "LANG": "C.UTF-8", "NO_COLOR": "1"}

    def seconds(self, *argv: str | Path) -> float:
        return cpu_seconds(argv, self.root, self.environment, self.output_file)

    @property
    def output_file(self) -> Path:
        """The output of the last process."""
        return self.folder / "output.txt"

    def version(self) -> float:
        return self.seconds(self.mz, "--version")

    def click(self) -> float:
        return self.seconds(sys.executable, "-c", "import click")

    def status(self) -> float:
        return self.seconds(self.mz, "status")

    def runs(self) -> float:
        return self.seconds(self.mz, "runs")

    def cost(self) -> float:
        return self.seconds(self.mz, "cost")

    def query(self) -> float:
        """What the status and the cost are computed from."""
        return self.seconds(sys.executable, "-c", PROGRAM.format(QUERY), self.log)

    def runs_query(self) -> float:
        return self.seconds(sys.executable, "-c", PROGRAM.format(RUNS_QUERY), self.log)


def startup(path: Path, mz: Path, *, events: int = EVENTS, rounds: int = ROUNDS) -> tuple[Figure, ...]:
    """`path` is an empty directory, `mz` the program."""
    bench = Bench(path, mz, events)
    bench.runs()  # Makes the read model, once for each log.
    measures = (bench.version, bench.click, bench.status, bench.query, bench.runs, bench.runs_query, bench.cost)
    values = alternate(rounds, {measure.__name__: measure for measure in measures})
    plain = "one SQL query by sqlite3"
    return (
        compare(
            "startup.version", values["version"], UNIT, 'python -c "import click"', values["click"], at_most=VERSION_MAX
        ),
        compare("startup.status", values["status"], UNIT, plain, values["query"], at_most=STATUS_MAX),
        compare("startup.runs", values["runs"], UNIT, plain, values["runs_query"], at_most=RUNS_MAX),
        compare("startup.cost", values["cost"], UNIT, plain, values["query"], at_most=COST_MAX),
    )
