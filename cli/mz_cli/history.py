"""`mz replay --run` and `--judge`: replay past runs through the current code, or recheck their artifacts with the
current rules."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace
from mz_engine.adapters.pricefile import prices_of
from mz_engine.agents.registry import adapters
from mz_engine.configfile import load_config
from mz_engine.errors import MzError
from mz_engine.pipelines.definition import Pipeline
from mz_engine.pipelines.load import find_pipeline
from mz_engine.pipelines.own import sound_material
from mz_engine.ports import RepositoryUnusable
from mz_recordings.history.answers import Means, Trees
from mz_recordings.history.divergence import History
from mz_recordings.history.judge import Judged, Rules, judge_run
from mz_recordings.history.past import PinsUnreadable, hints_of, pins_of, replay_run, started_of
from mz_recordings.history.told import findings_of
from mz_recordings.history.trees import GitTrees

from mz_cli.context import Reading, reading
from mz_cli.historypage import document, exit_of, judge_document, judge_exit, judge_findings, judge_page, page
from mz_cli.past import clamped
from mz_cli.render.console import put_lines
from mz_cli.render.document import show_document
from mz_cli.reports.facts import ReportOptions, Suite
from mz_cli.reports.options import answering, write_reports

NOT_READABLE = "use the version of mz that started it, or replay another run: mz runs"


def replay_history(wanted: str, bisect: bool, as_json: bool, reports: ReportOptions) -> int:
    """Replay a past run through the current code; return the exit code, with `bisect` that for git. Raises MzError
    (MZ5001, MZ6001, MZ6010)."""
    with reading() as log:
        history = history_of(log, log.find_run(wanted))
    ended = clamped(exit_of(history)) if bisect else exit_of(history)
    if as_json:
        show_document("replay-run", replace(document(history), exit=int(ended)))
    else:
        with answering(reports) as stream:
            put_lines(stream, page(history))
    write_reports(reports, "mz replay --run", _suites(history), ended, as_json)
    return int(ended)


def history_of(log: Reading, run: str) -> History:
    """Replay the run. Raises MzError: MZ6001 if there is nothing to compare, MZ6010 if the pins cannot be read."""
    with _trees(log.home) as trees, _readable():
        prices = prices_of(pins_of(log.blobs, started_of(log.store, run)).config, os.environ)
        known = adapters(pins_of(log.blobs, started_of(log.store, run)).config.agents)
        means = Means(blobs=log.blobs, trees=trees, adapters=known, prices=prices, hints=hints_of(log.store))
        history = replay_run(log.store, run, means)
    if not any(stream.compared or stream.divergences for stream in history.streams):
        raise MzError("MZ6001", f"run {run} has no decisions to replay yet", hint="`mz runs` lists the runs")
    return history


@contextmanager
def _trees(home: Path) -> Iterator[Trees | None]:
    """Yield the captured trees; None without a usable git, and then the trees count as missing."""
    try:
        trees = GitTrees(home, os.environ)
    except RepositoryUnusable:
        yield None
        return
    with trees:
        yield trees


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except PinsUnreadable as error:
        raise MzError("MZ6010", str(error), hint=NOT_READABLE) from error


def _suites(history: History) -> tuple[Suite, ...]:
    facts = tuple((f"events of {one.stream}", str(one.events)) for one in history.streams)
    return (Suite(name=f"run {history.run}", findings=findings_of(history), facts=facts),)


# current rules --------------------------------------------------------------------------------------------------------
def judge_past(wanted: str | None, as_json: bool, reports: ReportOptions) -> int:
    """Recheck the artifacts of a run, or of all runs, with the current rules; return the exit code. Raises MzError
    (MZ5001, MZ6001, MZ6010, and those of the project's files)."""
    with reading() as log, _readable():
        runs = (log.find_run(wanted),) if wanted is not None else tuple(reversed(log.runs()))
        rules = _rules(log, runs)
        judged = tuple(judge_run(log.store, log.blobs, run, rules) for run in runs)
    if not any(run.artifacts for run in judged):
        raise MzError("MZ6001", "no artifact was produced that could be rechecked", hint="`mz runs` lists the runs")
    if as_json:
        show_document("judge", judge_document(judged))
    else:
        with answering(reports) as stream:
            put_lines(stream, judge_page(judged))
    write_reports(reports, "mz replay --judge", _judge_suites(judged), judge_exit(judged), as_json)
    return int(judge_exit(judged))


def _rules(log: Reading, runs: Sequence[str]) -> Rules:
    """Return the current rules: the project's, else those of mz."""
    config = load_config(log.home, os.environ, {}).config
    names = {pins_of(log.blobs, started_of(log.store, run)).pipeline.pipeline for run in runs}
    found = {name: pipeline for name in sorted(names) if (pipeline := _pipeline(name, log.home)) is not None}
    return Rules(sets=sound_material(log.home).rules, limits=config.limits, pipelines=found)


def _pipeline(name: str, home: Path) -> Pipeline | None:
    """Return the current pipeline of that name; None if there is none."""
    try:
        return find_pipeline(name, home).pipeline
    except MzError as error:
        if error.code != "MZ3001":
            raise
        return None


def _judge_suites(judged: Sequence[Judged]) -> tuple[Suite, ...]:
    return tuple(Suite(name=f"run {run.run}", findings=judge_findings(run)) for run in judged)
