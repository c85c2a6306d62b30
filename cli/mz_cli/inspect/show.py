"""Command `mz show`."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from functools import partial
from hashlib import sha256
from shlex import quote
from typing import get_args

import click
from msgspec.structs import replace
from mz_engine.decide.records import cited_texts, record_text
from mz_engine.errors.diagnostics import MzError
from mz_engine.model.pipeline import RECORDS_OF_PHASES, Record
from mz_events.catalog.call import AgentRequested, ContextComposed, ContextPart
from mz_events.codec import cited_digests
from mz_events.names import Digest
from mz_projections.feature.state import progress_of
from mz_projections.views.model import ArtifactView, FeatureView

from mz_cli.app.context import ProjectLog, open_log
from mz_cli.app.help import command, did_you_mean
from mz_cli.app.selectors import DIGEST, Selector, part_text, select
from mz_cli.assess.rewards import REWARD, print_reward
from mz_cli.common.advice import run_context
from mz_cli.common.feature_query import DetailOptions, feature_detail, part_of
from mz_cli.common.feature_text import render_text
from mz_cli.common.worktree_diff import patch
from mz_cli.people.questions import pipeline_of, state_of
from mz_cli.terminal.console import write_file_bytes
from mz_cli.terminal.json import Shape, print_document, shape_of
from mz_cli.terminal.table import print_output, write_output
from mz_cli.terminal.text import count_noun, format_count


class ArtifactText(ArtifactView, frozen=True, kw_only=True):
    """`mz show FEATURE --artifact NAME --json`, with the schema mz.show-artifact/1."""

    run: str
    feature: str
    text: str


@command(
    "show",
    examples=(
        ("mz show login", "attempts and results, phase by phase"),
        ("mz show login/code#2 --prompt --diff", "one attempt: its prompt and its changes"),
        ("mz show 5f3a9c01", "a text that the log cites by its digest"),
        ("mz show login --artifact techspec > techspec.md", "one artifact in full"),
        ("mz show login --context code", "what each prompt of a phase consisted of, in tokens"),
        ("mz show login --json | jq '.calls[].rejections'", "the reasons for rejected replies"),
    ),
    next_command="`mz log FEATURE` lists its events; `mz status` shows the run.",
)
@click.argument("feature", metavar="[RUN/]FEATURE[/PHASE[#ATTEMPT]] | DIGEST")
@click.option("--prompt", is_flag=True, help="Also print the prompts.")
@click.option("--output", is_flag=True, help="Print the full output of commands, gates and failed calls.")
@click.option("--diff", is_flag=True, help="Print the changes of each phase; with #ATTEMPT, of that attempt.")
@click.option(
    "--artifact",
    metavar="NAME",
    help="Print only this artifact, in full; NAME/UNIT for one unit, or a record such as PHASE.history, or reward.",
)
@click.option("--context", metavar="PHASE[/UNIT]", help="Print what its prompts consisted of, and what was left out.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one object: mz.show/1, mz.show-artifact/1, mz.show-context/1, mz.show-reward/1.",
)
def show(
    feature: str, prompt: bool, output: bool, diff: bool, artifact: str | None, context: str | None, as_json: bool
) -> None:
    """Show one feature: its phases, attempts and results.

    FEATURE is a feature of the newest run that has it; RUN/FEATURE, FEATURE/PHASE and FEATURE/PHASE#ATTEMPT choose
    another run, one phase or one attempt. DIGEST is a text's sha256 in the log, or its first 8 or more digits; the text
    is printed as stored, without secrets.

    For each attempt: agent, cost, rejections with rule and location, results of commands and gates; then artifacts,
    commits and changed files. Changed files are those that differed at the end of the attempt.
    """
    with open_log() as log:
        digest = find_digest(log, feature)
        if digest is not None:
            if as_json:
                raise click.UsageError("--json needs a feature; a blob is printed as it is stored")
            write_file_bytes(sys.stdout, log.blobs.get(digest))
            return
        selector = select(log, f"{feature}/{context}" if context else feature, feature_only=True)
        view = log.find_feature(selector.run, str(selector.feature))
        if selector.version is not None:
            raise MzError("MZ1002", f"{feature[:80]!r} is an event", hint=f"its state: mz log --at {quote(feature)}")
        part = checked_part(view, selector)
        if context is not None:
            document = read_context(log, selector)
            print_output(as_json, "show-context", document, context_lines(document))
            return
        if artifact is not None:
            is_made = artifact in (made.artifact for made in part.artifacts)
            record = None if is_made else find_record(artifact, {phase.phase for phase in view.phases})
            if record is not None:
                print_record(log, selector.run, view.feature, *record, as_json)
            elif artifact == REWARD and not is_made:
                print_reward(log, selector.run, view.feature, as_json)
            else:
                print_artifact(log, selector.run, view.feature, find_artifact(part, artifact), as_json)
            return
        make_patch = partial(patch, log.root, excluded=frozenset()) if diff else None
        by_attempt = selector.attempt is not None
        options = DetailOptions(prompts=prompt, outputs=output, patch=make_patch, by_attempt=by_attempt)
        detail = feature_detail(selector.run, view, part, options, run_context(log, selector.run))
    write_output(sys.stdout, as_json, "show", detail, render_text(detail))


def find_digest(log: ProjectLog, text: str) -> Digest | None:
    """Return the only digest that begins with the text and that an event cites; None if the text is no digest but names
    a feature or a run. Raises MzError (MZ5001)."""
    if not DIGEST.fullmatch(text) or any(text == run or text in log.features(run) for run in log.runs()):
        return None
    cited = {digest for recorded in log.store.read_all() for digest in cited_digests(recorded.event)}
    digests = sorted(digest for digest in cited if digest.startswith(text))
    if not digests and any(run.startswith(text) for run in log.runs()):
        return None
    if len(digests) != 1:
        problem = f"{len(digests)} digests begin with {text!r}" if digests else f"the log cites no digest {text!r}"
        hint = f"write more digits: {', '.join(digests[:3])}" if digests else "`mz log --json` prints the digests"
        raise MzError("MZ5001", problem, hint=hint)
    return digests[0]


def checked_part(view: FeatureView, selector: Selector) -> FeatureView:
    """Return the selected part of the feature. Raises UsageError if it has not started or made it."""
    phase, attempt, wanted = selector.phase, selector.attempt, selector.part
    phases = list(dict.fromkeys(phase_view.phase for phase_view in view.phases))
    if phase is not None and phase not in phases:
        listed = f"; it has: {', '.join(phases)}" if phases else "; it has started none"
        raise click.UsageError(f"{view.feature} has no phase {phase!r}{did_you_mean(phase, phases) or listed}")
    part = part_of(view, wanted)
    if attempt is not None and not part.calls:
        others = {name: value for name, value in wanted.items() if name != "attempt"}
        made = max((call.attempt for call in part_of(view, others).calls), default=0)
        raise click.UsageError(f"{view.feature} has no attempt {attempt}: it made {made or 'none'} in {phase}")
    if selector.unit is not None and not part.calls:
        units = list(dict.fromkeys(call.unit for call in part_of(view, {"phase": phase}).calls if call.unit))
        suggestion = did_you_mean(selector.unit, units) or f"; units: {', '.join(units) or 'none'}"
        raise click.UsageError(f"{view.feature} has no unit {selector.unit!r} in {phase}{suggestion}")
    return part


def find_artifact(part: FeatureView, name: str) -> ArtifactView:
    """Return the last artifact of a name or NAME/UNIT. Raises UsageError if there is none or one per unit."""
    by_key = {f"{a.artifact}/{a.unit}" if a.unit else a.artifact: a for a in part.artifacts}
    matching = [key for key, artifact in by_key.items() if name in (key, artifact.artifact)]
    if not matching:
        listed = f"; it has: {', '.join(by_key)}" if by_key else "; it has none"
        raise click.UsageError(f"{part.feature} has no artifact {name!r}{did_you_mean(name, by_key) or listed}")
    if len(matching) > 1:
        raise click.UsageError(f"{name!r} exists per unit: name one of {', '.join(matching)}")
    return by_key[matching[0]]


def find_record(name: str, phases: Collection[str]) -> tuple[Record, str | None] | None:
    """Return the record of a name such as `history` or `code.history`, with its phase; None if it names none."""
    phase, _, kind = name.rpartition(".")
    for record in get_args(Record):
        if record == kind and record not in RECORDS_OF_PHASES and (not phase or phase in phases):
            return record, phase or None
    return None


def print_record(log: ProjectLog, run: str, feature: str, record: Record, phase: str | None, as_json: bool) -> None:
    """Print a record, computed from the feature's stream."""
    progress, pipeline, text = progress_of(state_of(log, run, feature)), pipeline_of(log, log.view(run)), "nothing"
    if progress is not None:
        texts = {digest: log.load_text(digest) for digest in cited_texts(progress)}
        text = record_text(record, phase, progress, pipeline.phases if pipeline else (), texts)
    digest = Digest(sha256(text.encode()).hexdigest())
    view = ArtifactView(artifact=record, phase=phase or "", path=None, digest=digest)
    shape = shape_of(ArtifactText, view, run=run, feature=feature, text=text)
    print_output(as_json, "show-artifact", shape, text.splitlines())


def print_artifact(log: ProjectLog, run: str, feature: str, artifact: ArtifactView, as_json: bool) -> None:
    """Print an artifact: unchanged to a pipe, without escapes to a terminal. Raises BlobMissing if it was erased."""
    data = log.blobs.get(artifact.digest)
    if as_json:
        text = data.decode("utf-8", "replace")
        print_document("show-artifact", shape_of(ArtifactText, artifact, run=run, feature=feature, text=text))
    else:
        write_file_bytes(sys.stdout, data)


# what a prompt consisted of -------------------------------------------------------------------------------------------
class CallContext(Shape, frozen=True, kw_only=True):
    """What the prompt of one call consisted of."""

    key: str
    phase: str
    unit: str
    iteration: int
    attempt: int
    role: str
    agent: str
    model: str
    tier: str = ""
    """Tier that a condition or routing asked for; null: the phase's own."""
    tier_cause: str = ""
    """Name of that condition, or `routing`."""
    tokens: int
    """Estimated tokens of the prompt."""
    tokens_max: int | None
    """Limit for all parts but the instructions; null: there is none."""
    over: int
    """Tokens above the limit."""
    parts: tuple[ContextPart, ...]
    laid_out: tuple[ContextPart, ...]
    """The files that the agent saw, if its phase names them."""
    hidden_files: int
    """Number of files that it did not see."""


class ContextDocument(Shape, frozen=True, kw_only=True):
    """`mz show FEATURE --context PHASE --json`."""

    run: str
    feature: str
    calls: tuple[CallContext, ...]
    """Without calls of an older mz, which recorded no parts."""


def read_context(log: ProjectLog, selector: Selector) -> ContextDocument:
    """Return the prompts of the selected phase, unit or attempt, of every role. Raises UsageError if there are none."""
    composed, calls = dict[str, ContextComposed](), list[CallContext]()
    selector = selector if selector.attempt else replace(selector, role=None)
    for recorded in log.store.read(selector.stream):
        event = recorded.event
        if isinstance(event, ContextComposed):
            composed[event.key] = event
        elif isinstance(event, AgentRequested) and selector.includes(recorded) and event.ref.key in composed:
            request, parts = event, composed[event.ref.key]
            tokens = sum(part.tokens for part in parts.parts if not part.left_out)
            cause = request.escalated_by or ("routing" if request.routed_to else "")
            tier = {"tier": request.tier, "tier_cause": cause}
            calls.append(shape_of(CallContext, request.ref, parts, request, tokens=tokens, **tier))
    if not calls:
        text = part_text(selector.phase, selector.unit, selector.iteration, selector.attempt, selector.role)
        reason = "it made no call there, or an older mz made it, which did not record that"
        raise click.UsageError(f"{selector.feature}{text} has no context: {reason}")
    return ContextDocument(run=selector.run, feature=str(selector.feature), calls=tuple(calls))


def context_lines(document: ContextDocument) -> Iterator[str]:
    """Yield two lines or more for each call."""
    for call in document.calls:
        again = f"iteration {call.iteration}  " if call.iteration > 1 else ""
        unit, tier = f"{call.unit}  " if call.unit else "", f" {call.tier} ({call.tier_cause})" if call.tier else ""
        yield f"{again}attempt {call.attempt}  {unit}{call.role}  {call.agent} {call.model}{tier}"
        shown = [part for part in call.parts if not part.left_out]
        rules = sum(part.tokens for part in shown if part.source == "instructions")
        limit = f" of {format_count(call.tokens_max)}" if call.tokens_max is not None else ""
        over = f", {format_count(call.over)} too many" if call.over else ""
        yield f"  {format_count(call.tokens - rules)}{limit} tokens{over}; instructions {format_count(rules)}"
        yield from (f"  {_part_text(part)}" for part in shown if part.source != "instructions")
        yield from (f"  left out: {_part_text(part)}" for part in call.parts if part.left_out)
        yield from (f"  laid out: {_part_text(part).removeprefix('file ')}" for part in call.laid_out)
        if call.hidden_files:
            yield f"  not in scope: {count_noun(call.hidden_files, 'file')}"


def _part_text(part: ContextPart) -> str:
    name = f"{part.source} {part.name}".rstrip()
    return f"{name} {format_count(part.tokens)}" if part.tokens else name
