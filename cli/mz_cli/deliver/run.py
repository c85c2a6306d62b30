"""Commands `mz run`, `mz resume` and `mz fork`, which drive a run until it stops."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import click
from mz_engine.decoding.text_file import read_text
from mz_engine.errors.diagnostics import Exit, MzError, format_diagnostic, most_severe
from mz_engine.model.config import PARALLEL_MAX
from mz_engine.paths import LOG_FILE, MZ_FOLDER
from mz_engine.pipelines.material import check_template
from mz_engine.run.fork import CannotFork, ForkChange, phase_start
from mz_engine.run.plan import price_lookup, unknown_models, waiting_texts
from mz_engine.run.process import RunProcess
from mz_events.catalog.call import CallSettled
from mz_events.catalog.inbox import ResumePosted
from mz_events.catalog.run import Verdict
from mz_events.names import inbox_stream, run_stream
from mz_projections.run.fold import fold_run
from mz_projections.views.model import ENDED_STATUSES, RunView

from mz_cli.app.context import ProjectLog, find_root, open_log
from mz_cli.app.help import command, did_you_mean, format_options, jobs_option, message_option, view_options
from mz_cli.app.input import is_confirmed, may_ask, read_text_option
from mz_cli.app.selectors import check_phase, select, select_part
from mz_cli.common.advice import run_context
from mz_cli.common.run_text import run_status
from mz_cli.live.driver import NothingToDo, drive_run
from mz_cli.people.inbox import active_run, post_message, posted_text, store_user_name, user_name
from mz_cli.people.questions import pipeline_of, post_answers, unfinished_runs
from mz_cli.terminal.console import print_note
from mz_cli.terminal.json import print_document
from mz_cli.terminal.text import count_noun, exact_usd

SKIPPED_STEP = "MZ3009"
"""Code for a pipeline step whose command is not configured: shown in the plan, not at every run."""


cycles_option = click.option(
    "--cycles",
    metavar="N",
    type=click.IntRange(0),
    help="At most N more cycles, of a pipeline that has cycles; 0: work off what is open, plan nothing.",
)


@command(
    "run",
    examples=(
        ("mz run --dry-run", "the plan: features, order, estimated cost; writes nothing"),
        ("mz run", "deliver the backlog"),
        ("mz run --backlog github:ready", "issues of GitHub with the label ready; comments on them say what happens"),
        ("mz run --feature login --feature audit --autonomy full_auto", "two features, without asking"),
    ),
    next_command="`mz status` shows the progress; `mz resume` continues after a stop or a question.",
)
@click.option("--feature", "features", metavar="ID", multiple=True, help="Only this feature; repeatable.")
@click.option("--backlog", metavar="SOURCE", help="Backlog instead of the one in mz.yaml: a file, or github:LABEL.")
@click.option("--agent", metavar="NAME", help="Agent to use instead of the one in mz.yaml.")
@jobs_option("Number of parallel features.", PARALLEL_MAX)
@click.option(
    "--autonomy",
    type=click.Choice(["supervised", "checkpoint", "full_auto"]),
    help="When to ask a person: also after planning, only at gates, or never.",
)
@click.option("--dry-run", is_flag=True, help="Print the plan; write nothing.")
@click.option("--exit-code", is_flag=True, help="With --dry-run: exit with 1 if there is something to do.")
@cycles_option
@click.option("--new", "is_new", is_flag=True, help="Begin beside an unfinished run; needs an integration branch.")
@click.option("--record", is_flag=True, help="Make a cassette of the run afterwards, as `mz record` does.")
@view_options
@format_options("Print one object: mz.run/1, or mz.run-plan/1 in a dry run.", default="table")
def run(
    features: tuple[str, ...], backlog: str | None, agent: str | None, jobs: int | None, autonomy: str | None,
    dry_run: bool, exit_code: bool, cycles: int | None, is_new: bool, record: bool, as_json: bool,
) -> int:  # fmt: skip
    """Deliver the backlog, feature by feature.

    Reads mz.yaml and the backlog, and takes each feature through the pipeline in its own worktree. An unfinished run is
    continued with its own settings, and with new items of the backlog. Ctrl-C finishes current calls, then stops; a
    second Ctrl-C stops now.
    """
    if exit_code and not dry_run:
        raise click.UsageError("--exit-code requires --dry-run")
    if record and dry_run:
        raise click.UsageError("--record cannot be combined with --dry-run")
    root = find_root(Path.cwd())
    flags = {"backlog": backlog, "agent": agent, "parallel_max": jobs, "autonomy": autonomy}
    if dry_run:
        from mz_cli.deliver.plan import print_plan

        has_work = print_plan(root, flags, features, as_json, is_new)
        return int(Exit.VERDICT if exit_code and has_work else Exit.OK)

    waiting: dict[str, str] = {}

    def begin(process: RunProcess, say: Callable[[str], None]) -> None:
        if record:
            from mz_cli.common.recording import check_recordable

            check_recordable(root, flags)
        plan = process.start(flags, features, is_new, cycles)
        waiting.update(waiting_texts(plan.intake.left_out, features))
        warnings = (format_diagnostic(warning) for warning in plan.warnings if warning.code != SKIPPED_STEP)
        for text in (*waiting.values(), *warnings):
            say(text)
        if process.coordinator is None:
            why = "the backlog has no feature with the status FEAT"
            if plan.intake.skipped:
                delivered = count_noun(len(plan.intake.skipped), "feature")
                why = f"{delivered} of the backlog already delivered; `mz runs` lists the runs"
            raise NothingToDo("everything else waits" if waiting else why)
        if cycles is not None:
            process.allow_cycles(cycles)

    code, run_id = drive_run(root, begin, "run", as_json)
    if record and run_id is not None:
        from mz_cli.common.recording import record_finished_run

        record_finished_run(run_id)
    return most_severe((Exit(code), Exit.WAITING if waiting else Exit.OK))


# resume ---------------------------------------------------------------------------------------------------------------
@command(
    "resume",
    examples=(
        ("mz resume", "continue the paused run, or the unfinished one with the latest event or message"),
        ("mz resume login --answer approve", "answer the question of login, and continue"),
        ("mz resume login --answer retry -m 'use SQLite'", "try again, with a note for the agent"),
    ),
    next_command="`mz review list` shows open questions.",
)
@click.argument("selector", required=False)
@click.option("--feature", "features", metavar="ID", multiple=True, help="Feature to answer; repeatable.")
@click.option(
    "--answer",
    type=click.Choice([verdict.value for verdict in Verdict]),
    help="Verdict: continue, try again, or reject.",
)
@message_option("ack", "Reason, for the next prompt; approves if alone; - reads it from stdin.")
@cycles_option
@view_options
@format_options("Print one object with the schema mz.resume/1.", default="table")
def resume(
    selector: str | None, features: tuple[str, ...], answer: str | None, ack: str | None, cycles: int | None,
    as_json: bool,
) -> int:  # fmt: skip
    """Continue a run.

    Continues exactly where the log ends, after a stop, a crash or a question; paid calls are not repeated. An answer
    applies to the named features, or to the only waiting one. If a process is already running the run, it gets the
    answer, and continues if it was paused. SELECTOR is a run's id or its beginning, or with an answer [RUN/]FEATURE.
    """
    root, run_id, answers = find_root(Path.cwd()), selector, bool(features or answer or ack)
    if selector is not None or answers or (root / MZ_FOLDER / LOG_FILE).is_file():
        with open_log(root) as log:
            selected = None if selector is None else select_part(log, selector)
            if selected is not None and selected.feature is not None:
                if not answers:
                    hint = f"`mz resume {selected.run}` continues the run; --answer or -m answers the feature"
                    raise MzError("MZ1002", f"{selected.feature} is a feature; runs are resumed as a whole", hint=hint)
                features = (selected.feature, *features)
            run_id = selected.run if selected else run_to_resume(log)
            messages = []
            if answers:
                answered = features_to_answer(log.view(run_id), features)
                note = read_text_option(ack, "the reason")
                posted = post_answers(log, run_id, answered, Verdict(answer or "approve"), note)
                if posted.process_running:
                    messages.append(f"answered: {', '.join(answered)}; {posted_text(posted)}")
            if active_run(log) == run_id and fold_run(log.store.read(run_stream(run_id))).paused:
                posted = post_message(log, run_id, lambda: (ResumePosted(actor=store_user_name(log)),))
                if posted.process_running:
                    messages.append(f"run {run_id} continues; {posted_text(posted)}")
            print_note(*messages)
            if messages:
                if as_json:
                    print_document("resume", run_status(log.view(run_id), run_context(log, run_id)))
                return 0

    def begin(process: RunProcess, say: Callable[[str], None]) -> None:
        process.resume(run_id)
        if cycles is not None:
            process.allow_cycles(cycles)

    return drive_run(root, begin, "resume", as_json)[0]


# finish ---------------------------------------------------------------------------------------------------------------
@command(
    "finish",
    examples=(
        ("mz finish", "end the unfinished run: merge, tag and close its branches, as its pipeline says"),
        ("mz finish r4f1a2b3c --yes", "end this run, without a question"),
        ("mz finish generation-a", "end the run with this integration branch"),
    ),
    next_command="`mz runs` lists the runs.",
)
@click.argument("run", required=False)
@click.option("--yes", "-y", is_flag=True, help="Do not ask whether to cancel what is open.")
@view_options
@format_options("Print one object with the schema mz.resume/1.", default="table")
def finish(run: str | None, yes: bool, as_json: bool) -> int:
    """End a run whose pipeline has an end that people decide on.

    What is open is cancelled, after you were asked. Then the last item of the run does what the pipeline says: for
    example, merge the integration branch into the base, tag it, and close the branches. If its commands fail, or the
    base conflicts, the run stays open, and nothing was merged. RUN is a run's id, its beginning, or its integration
    branch; it may be left out if one run alone is unfinished.
    """
    root = find_root(Path.cwd())
    with open_log(root) as log:
        if run is None and len(unfinished := unfinished_runs(log)) > 1:
            hint = "name one: `mz finish RUN`; `mz runs` shows their branches"
            raise MzError("MZ5001", f"{len(unfinished)} runs are unfinished: {', '.join(unfinished)}", hint=hint)
        run_id = log.find_run(run) if run is not None else run_to_resume(log)
        view = log.view(run_id)
        pipeline = pipeline_of(log, view)
        last = pipeline.kind_from("finish") if pipeline is not None else None
        others = [feature for feature in view.features if last is None or feature.kind != last.kind]
        open_items = [feature.feature for feature in others if feature.status not in ENDED_STATUSES]
        person = user_name(root, os.environ.get("MZ_USER", ""))
    if open_items and not yes:
        question = f"this cancels {len(open_items)} open items: {', '.join(open_items)}; end run {run_id}?"
        if not may_ask(os.environ):
            raise click.UsageError(f"{', '.join(open_items)} would be cancelled; --yes does it without a question")
        if not is_confirmed(question):
            return int(Exit.USAGE)
    return drive_run(root, lambda process, _: process.close(run_id, "finish", person), "resume", as_json)[0]


def run_to_resume(log: ProjectLog) -> str:
    """Return the running run, else the unfinished one with the latest event or message, else the newest. Raises MzError
    (MZ5001)."""

    def last_position(run: str) -> int:
        own = (run_stream(run), inbox_stream(run), f"{run_stream(run)}/")
        streams = [item for item in log.store.streams() if item[0] in own or item[0].startswith(own[-1])]
        return max(event.position for stream, version in streams for event in log.store.read(stream, version - 1))

    return active_run(log) or max(unfinished_runs(log), key=last_position, default=None) or log.find_run(None)


def features_to_answer(view: RunView, features: tuple[str, ...]) -> tuple[str, ...]:
    """Return the features to answer. Raises MzError (MZ4010) and UsageError."""
    waiting_features = [feature.feature for feature in view.features if feature.status == "waiting"]
    if not features:
        if len(waiting_features) != 1:
            names = f": {', '.join(waiting_features)}; name one" if waiting_features else ""
            raise click.UsageError(f"{len(waiting_features)} features of run {view.run} wait for an answer{names}")
        return tuple(waiting_features)
    for feature in features:
        if view.find_feature(feature) is None:
            names = did_you_mean(feature, [other.feature for other in view.features])
            problem = f"run {view.run} has no feature {feature!r}{names}"
            raise MzError("MZ4010", problem, hint=f"waiting for an answer: {', '.join(waiting_features) or 'none'}")
    return tuple(dict.fromkeys(features))


# fork -----------------------------------------------------------------------------------------------------------------
@command(
    "fork",
    examples=(
        ("mz fork r4f1/login@57 --model claude-opus-4-6", "continue from event 57 with another model"),
        ("mz fork r4f1/login/techspec --prompt try.md.j2", "repeat a phase with another prompt"),
        ("mz fork r4f1/login/code --without L-3f9ac01b2e", "repeat it without a learning, to see what that changes"),
    ),
    next_command="`mz diff RUN FORK` compares results, tokens and cost; `mz log RUN` shows the versions.",
)
@click.argument("source", metavar="RUN/FEATURE[/PHASE|@VERSION]")
@click.option("--agent", metavar="NAME", help="Agent to use from there.")
@click.option("--model", metavar="NAME", help="Model to use for every call from there.")
@click.option(
    "--prompt", metavar="FILE", type=click.Path(path_type=Path), help="Template to use for the phase that continues."
)
@click.option(
    "--without", metavar="ID", multiple=True, help="Learning that no prompt shows from there; may be repeated."
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask whether to call the agent.")
@view_options
@format_options("Print one object with the schema mz.fork/1.", default="table")
def fork(
    source: str, agent: str | None, model: str | None, prompt: Path | None, without: tuple[str, ...], yes: bool,
    as_json: bool,
) -> int:  # fmt: skip
    """Start a new run from an event of a past run, with something changed.

    PHASE stands for its last start, VERSION for an event of the feature's stream, as `mz log` prints it. The new run
    copies the feature's events up to there and calls the agent from there, for real money, after it has asked. An
    unfinished call is repeated. The fork has its own branches, opens no pull request, and is ignored by later runs: it
    serves for comparison. `mz resume ID` continues it.
    """
    root = find_root(Path.cwd())
    with open_log(root) as log:
        selector = select(log, source, feature_only=True)
        check_phase(selector, source)
        run, feature = selector.run, str(selector.feature)
        version = selector.version
        if selector.phase is not None:
            version = phase_start(tuple(log.store.read(selector.stream)), selector.phase)
            if version is None:
                raise MzError("MZ5007", f"{feature} has not started {selector.phase}", hint=f"mz log {run}/{feature}")
        if version is None:
            raise click.UsageError(f"name a phase or an event to start from: {run}/{feature}/PHASE")
        later = (recorded.event for recorded in log.store.read(selector.stream, after=version))
        paid_nanousd = sum(event.nanousd for event in later if isinstance(event, CallSettled))
    template = read_text(prompt, str(prompt)) if prompt else None
    if prompt and template and (errors := tuple(check_template(str(prompt), prompt.name, template, {prompt.name}))):
        raise MzError.from_diagnostics(errors)
    change = ForkChange(agent=agent, model=model, prompt=template, without=learning_ids(without))

    def begin(process: RunProcess, say: Callable[[str], None]) -> None:
        try:
            process.fork(run, feature, version, change)
        except CannotFork as error:
            hint = f"mz log {run}/{feature}"
            raise MzError("MZ5008", f"cannot fork {source}: {error}", hint=hint) from error
        assert process.coordinator is not None
        config = process.coordinator.pins.config
        for warning in unknown_models(config, price_lookup(config, os.environ)):
            say(format_diagnostic(warning))

    if not yes:
        if not may_ask(os.environ):
            raise click.UsageError("a fork calls the agent for real money, and nobody can be asked: add --yes")
        if not is_confirmed(f"Call the agent? The original paid ${exact_usd(paid_nanousd)} from there on."):
            return int(Exit.OK)
    code, forked_run = drive_run(root, begin, "fork", as_json)
    print_note(f"compare: mz diff {run} {forked_run}")
    return code


def learning_ids(prefixes: tuple[str, ...]) -> tuple[str, ...]:
    """Return the ids of learnings. Raises MzError (MZ5016)."""
    from mz_cli.common.memory import open_memory  # Runs need no read model.

    if not prefixes:
        return ()
    with open_memory(with_shared=True) as opened:
        return tuple(opened.find(prefix).id for prefix in prefixes)
