"""`mz replay --run` and `--recheck-rules`: replay past runs through the current code, or recheck their artifacts
with the current rules."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace
from mz_engine.agents.registry import all_adapters
from mz_engine.errors.diagnostics import MzError
from mz_engine.model.pipeline import Pipeline
from mz_engine.pipelines.load import load_pipeline, load_valid_pipeline_files
from mz_engine.ports import RepositoryUnusable
from mz_engine.pricing.table import price_table
from mz_engine.run.settings import load_config
from mz_recordings.past_runs.model import RunReplay, findings_of
from mz_recordings.past_runs.ports import ReplayInputs
from mz_recordings.past_runs.rejudge import Recheck, RecheckRules, recheck_run
from mz_recordings.past_runs.replay import PinsUnreadable, hint_lookup, load_pins, replay_run, run_started
from mz_recordings.past_runs.workspace import CapturedTrees, GitTrees

from mz_cli.app.context import ProjectLog, open_log
from mz_cli.replay.bisect import clamp_exit
from mz_cli.replay.past_runs_text import (
    history_exit,
    past_run,
    recheck_exit,
    recheck_findings,
    recheck_result,
    recheck_text,
    render_text,
)
from mz_cli.reports.model import ReportOptions, Suite
from mz_cli.reports.options import text_stream, write_reports
from mz_cli.terminal.console import write_lines
from mz_cli.terminal.json import print_document

PINS_UNREADABLE_HINT = "use the version of mz that started it, or replay another run: mz runs"


def replay_history(selector: str, bisect: bool, as_json: bool, reports: ReportOptions) -> int:
    """Replay a past run through the current code; return the exit code, with `bisect` that for git. Raises MzError
    (MZ5001, MZ6001, MZ6010)."""
    with open_log() as log:
        history = load_history(log, log.find_run(selector))
    exit_code = clamp_exit(history_exit(history, bisect)) if bisect else history_exit(history)
    if as_json:
        print_document("replay-run", replace(past_run(history), exit=int(exit_code)))
    else:
        with text_stream(reports) as stream:
            write_lines(stream, render_text(history))
    write_reports(reports, "mz replay --run", _suites(history), exit_code, as_json)
    return int(exit_code)


def load_history(log: ProjectLog, run: str) -> RunReplay:
    """Replay the run. Raises MzError: MZ6001 if there is nothing to compare, MZ6010 if the pins cannot be read."""
    with _captured_trees(log.home) as trees, _reject_unreadable_pins():
        prices = price_table(load_pins(log.blobs, run_started(log.store, run)).config, os.environ)
        agent_adapters = all_adapters(load_pins(log.blobs, run_started(log.store, run)).config.agents)
        ports = ReplayInputs(
            blobs=log.blobs, trees=trees, adapters=agent_adapters, prices=prices, hints=hint_lookup(log.store)
        )
        history = replay_run(log.store, run, ports)
    if not any(stream.compared or stream.divergences or stream.missing_data for stream in history.streams):
        raise MzError("MZ6001", f"run {run} has no decisions to replay yet", hint="`mz runs` lists the runs")
    return history


@contextmanager
def _captured_trees(home: Path) -> Iterator[CapturedTrees | None]:
    """Yield the captured trees; None without a usable git, and then the trees count as missing."""
    try:
        trees = GitTrees(home, os.environ)
    except RepositoryUnusable:
        yield None
        return
    with trees:
        yield trees


@contextmanager
def _reject_unreadable_pins() -> Iterator[None]:
    try:
        yield
    except PinsUnreadable as error:
        raise MzError("MZ6010", str(error), hint=PINS_UNREADABLE_HINT) from error


def _suites(history: RunReplay) -> tuple[Suite, ...]:
    facts = tuple((f"events of {stream.stream}", str(stream.events)) for stream in history.streams)
    return (Suite(name=f"run {history.run}", findings=findings_of(history), properties=facts),)


# current rules --------------------------------------------------------------------------------------------------------
def recheck_past_runs(selector: str | None, as_json: bool, reports: ReportOptions) -> int:
    """Recheck the artifacts of a run, or of all runs, with the current rules; return the exit code. Raises MzError
    (MZ5001, MZ6001, MZ6010, and those of the project's files)."""
    with open_log() as log, _reject_unreadable_pins():
        runs = (log.find_run(selector),) if selector is not None else tuple(reversed(log.runs()))
        rules = _current_rules(log, runs)
        rechecked = tuple(recheck_run(log.store, log.blobs, run, rules) for run in runs)
    if not any(run.artifacts for run in rechecked):
        raise MzError("MZ6001", "no artifact was produced that could be rechecked", hint="`mz runs` lists the runs")
    if as_json:
        print_document("judge", recheck_result(rechecked))
    else:
        with text_stream(reports) as stream:
            write_lines(stream, recheck_text(rechecked))
    write_reports(reports, "mz replay --recheck-rules", _recheck_suites(rechecked), recheck_exit(rechecked), as_json)
    return int(recheck_exit(rechecked))


def _current_rules(log: ProjectLog, runs: Sequence[str]) -> RecheckRules:
    """Return the current rules: the project's, else those of mz."""
    config = load_config(log.home, os.environ, {}).config
    names = {load_pins(log.blobs, run_started(log.store, run)).pipeline.pipeline for run in runs}
    pipelines = {
        name: pipeline for name in sorted(names) if (pipeline := _current_pipeline(name, log.home)) is not None
    }
    return RecheckRules(rule_sets=load_valid_pipeline_files(log.home).rules, limits=config.limits, pipelines=pipelines)


def _current_pipeline(name: str, home: Path) -> Pipeline | None:
    """Return the current pipeline of that name; None if there is none."""
    try:
        return load_pipeline(name, home)[0]
    except MzError as error:
        if error.code != "MZ3001":
            raise
        return None


def _recheck_suites(rechecked: Sequence[Recheck]) -> tuple[Suite, ...]:
    return tuple(Suite(name=f"run {run.run}", findings=recheck_findings(run)) for run in rechecked)
