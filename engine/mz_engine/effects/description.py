"""The text of a pull request, for the person who reviews it: what the agent wrote about the work, then what the log
knows of it."""

from __future__ import annotations

from mz_projections.views.timeline import count_noun, list_names

from mz_engine.artifacts.parse import title_and_body
from mz_engine.decide.caller import agent_of
from mz_engine.decoding.quantity import NANOUSD_PER_USD
from mz_engine.effects.steps import StepContext, Steps, get_json, get_text
from mz_engine.model.pins import Commands, Pins

NOT_RUN = "not run"
SETUP_FAILED = "not run, the set-up failed"


def pull_request_body(context: StepContext, key: str) -> Steps[str]:
    """Return the body: the artifact without its heading, the request, gates, corrected commands, effort, papers, and,
    hidden, the key by which the pull request is found again."""
    sections = (
        (yield from _summary(context)),
        (yield from _request(context)),
        (yield from _gates(context)),
        _corrections(context.pins),
        _effort(context),
        _papers(context),
        f"<!--\nMz-Key: {key}\n-->",
    )
    return "\n\n".join(section for section in sections if section) + "\n"


def _summary(context: StepContext) -> Steps[str]:
    for output in context.phase.outputs:
        parsed = context.unit_run.parsed_artifacts.get(output.artifact)
        if parsed is not None:
            return title_and_body((yield from get_text(parsed.digest)))[1].rstrip()
    return ""


def _request(context: StepContext) -> Steps[str]:
    started = context.phase_state.progress.started
    title, body = (yield from get_text(started.title)), (yield from get_text(started.body))
    quoted = (f"> {line}".rstrip() for line in body.strip().splitlines())
    return "\n".join(("## Request", "", f"> **{' '.join(title.split())}**", ">", *quoted))


def _gates(context: StepContext) -> Steps[str]:
    """Return a table of the commands before and after the work, then what failed and counts as passed."""
    progress = context.phase_state.progress
    gate_runs = {**progress.gate_runs, **context.unit_run.gate_runs}
    base = dict((yield from get_json(progress.started.base_results)))
    rows = [
        f"| `{name}` | {_result(*base[name][:3]) if name in base else NOT_RUN} | "
        f"{_result(ran.exit, ran.passed, ran.failed) if ran.stage == 'gate' else SETUP_FAILED} |"
        for name, ran in gate_runs.items()
    ]
    table = ["| command | before | after |", "|---|---|---|", *rows] if rows else ["No command of `mz.yaml` is a gate."]
    notes = list[str]()
    for name, ran in gate_runs.items():
        if ran.missing is not None:
            missing = list_names(f"`{id_}`" for id_ in (yield from get_json(ran.missing)))
            notes.append(f"- `{name}`: tests that passed on the base are missing: {missing}")
    if progress.started.known_failures is not None:
        for name, ids in (yield from get_json(progress.started.known_failures)).items():
            notes.append(f"- `{name}`: {len(ids)} failed tests, which fail without this change too; no others fail.")
    for accepted in progress.accepted_gates:
        actor = yield from get_text(accepted.answer.actor)
        note = (yield from get_text(accepted.answer.note)) if accepted.answer.note else "no reason given"
        notes.append(f"- `{accepted.gate}` failed and was accepted as it is by {actor}: {' '.join(note.split())}")
    for name, key in {**progress.judged_by, **_judged_here(context)}.items():
        phase = context.pins.pipeline.find_phase(name.partition("/")[0])
        rules = list_names(f"`{rule.id}`" for rule in context.pins.judged_rules(phase))
        notes.append(f"- {name.removesuffix('/')}: {rules}: judged by `{key}`")
    return "\n".join(("## Gates", "", *table, *(("", *notes) if notes else ())))


def _judged_here(context: StepContext) -> dict[str, str]:
    unit_run = context.unit_run
    return {f"{context.phase_state.phase}/{unit_run.unit}": unit_run.judged_by} if unit_run.judged_by else {}


def _result(exit_code: int | None, passed: int | None, failed: int | None) -> str:
    if passed is not None:
        return f"{passed} passed, {failed or 0} failed"
    return "passed" if exit_code == 0 else "ran out of time" if exit_code is None else f"exit {exit_code}"


def _corrections(pins: Pins) -> str:
    """Return the commands, and what they need, that are others than at the start of the run."""
    changes = Commands.of(pins.config).changes_from(pins.first_commands) if pins.first_commands else ()
    lines = ("".join(filter(str.isprintable, line)) for line in changes)
    return "\n".join(("## Corrected during the run", "", "```diff", *lines, "```")) if changes else ""


def _effort(context: StepContext) -> str:
    progress, usage = context.phase_state.progress, context.phase_state.progress.usage
    calls, rollbacks = sum(progress.calls.values()), progress.rollback_count
    tokens = f"{usage.input_tokens:,} input and {usage.output_tokens:,} output tokens"
    cost = f"${usage.nanousd / NANOUSD_PER_USD:.2f}" if usage.nanousd else "at an unknown cost"
    by_phase = ", ".join(f"{phase} {count}" for phase, count in progress.calls.items())
    effort = f"{count_noun(calls, 'call')} of {agent_of(progress, context.pins.config)} ({by_phase})"
    effort += f", {count_noun(rollbacks, 'rollback')}" if rollbacks else ""
    more = f"every attempt, prompt and change: `mz show {context.feature}`; the evidence: `mz audit {context.feature}`"
    return f"## Effort\n\n- {effort}, {tokens}, {cost}\n- {more}"


def _papers(context: StepContext) -> str:
    """Return how to read the papers that the branch does not have."""
    if context.pins.config.place_of_papers == "branch":
        return ""
    artifacts = {**context.phase_state.progress.artifacts, **context.unit_run.parsed_artifacts}
    names = {artifact.path: name for name, artifact in artifacts.items() if artifact.path is not None}
    rows = [f"- {path}: `mz show {context.feature} --artifact {name}`" for path, name in names.items()]
    return "\n".join(("## Papers", "", "Not on this branch, but in the log:", "", *rows)) if rows else ""
