"""Command `mz show`."""

from __future__ import annotations

import sys
from functools import partial

import click
from mz_engine.errors.diagnostics import MzError
from mz_events.codec import cited_digests
from mz_events.names import Digest
from mz_projections.views.model import ArtifactView, FeatureView, RunView

from mz_cli.app.context import ProjectLog, open_log
from mz_cli.app.help import command, did_you_mean
from mz_cli.app.selectors import DIGEST, select
from mz_cli.common.advice import run_context
from mz_cli.common.feature_query import DetailOptions, attempts_by_phase, feature_detail
from mz_cli.common.feature_text import TextLimits, render_text
from mz_cli.common.json import ArtifactText
from mz_cli.people.inbox import messages_of_run
from mz_cli.terminal.console import is_terminal, write_file_bytes, write_lines
from mz_cli.terminal.json import print_document

LIMITS = TextLimits(message_characters=300, excerpt_lines=12)
"""Limits on a terminal; a pipe gets everything."""


@command(
    "show",
    examples=(
        ("mz show login", "attempts and results, phase by phase"),
        ("mz show login/code#2 --prompt --diff", "one attempt: its prompt and its changes"),
        ("mz show 5f3a9c01", "a text that the log cites by its digest"),
        ("mz show login --artifact techspec > techspec.md", "one artifact in full"),
        ("mz show login --json | jq '.calls[].refusals'", "the reasons for rejected replies"),
    ),
    next_command="`mz log FEATURE` lists its events; `mz status` shows the run.",
)
@click.argument("feature", metavar="[RUN/]FEATURE[/PHASE[#ATTEMPT]] | DIGEST")
@click.option("--phase", hidden=True)
@click.option("--attempt", type=click.IntRange(min=1), hidden=True)
@click.option("--prompt", is_flag=True, help="Also print the prompts.")
@click.option("--output", is_flag=True, help="Print the full output of commands, gates and failed calls.")
@click.option("--diff", is_flag=True, help="Print the changes of each phase; with #ATTEMPT, of that attempt.")
@click.option("--artifact", metavar="NAME", help="Print only this artifact, in full; NAME/UNIT for one unit.")
@click.option("--json", "as_json", is_flag=True, help="Print one object: mz.show/1, or mz.artifact/1 of an artifact.")
def show(
    feature: str, phase: str | None, attempt: int | None, prompt: bool, output: bool, diff: bool,
    artifact: str | None, as_json: bool,
) -> None:  # fmt: skip
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
            print_blob(log, digest, as_json)
            return
        selector = select(log, feature, feature_only=True)
        phase, attempt = selector.phase or phase, selector.attempt or attempt
        view, feature_view = log.find_feature(selector.run, str(selector.feature))
        check_phase(feature_view, phase)
        patch = patch_maker(log) if diff else None
        wanted = DetailOptions(phase=phase, attempt=attempt, prompts=prompt, outputs=output, patch=patch)
        check_attempt(feature_view, wanted)
        if artifact is not None:
            print_artifact(log, view, feature_view, find_artifact(feature_view, wanted, artifact), as_json)
            return
        detail = feature_detail(
            view, feature_view, wanted, log.load_text, run_context(log.home, messages_of_run(log, view.run))
        )
    if as_json:
        print_document("show", detail)
    else:
        write_lines(sys.stdout, render_text(detail, LIMITS if is_terminal(sys.stdout) else TextLimits()))


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


def print_blob(log: ProjectLog, digest: Digest, as_json: bool) -> None:
    """Print a blob as stored, without escapes to a terminal. Raises BlobMissing if it was erased."""
    if as_json:
        raise usage_error("--json needs a feature; a blob is printed as it is stored")
    write_file_bytes(sys.stdout, log.blobs.get(digest))


def patch_maker(log: ProjectLog) -> partial[str]:
    """Return a function that makes patches; git is called only when it is used."""
    from mz_cli.common.worktree_diff import patch

    return partial(patch, log.home, excluded=frozenset())


def check_phase(feature_view: FeatureView, phase: str | None) -> None:
    """Raise UsageError for a phase that the feature has not started."""
    phases = list(dict.fromkeys(phase_view.phase for phase_view in feature_view.phases))
    if phase is not None and phase not in phases:
        listed = f"; it has: {', '.join(phases)}" if phases else "; it has started none"
        raise usage_error(f"{feature_view.feature} has no phase {phase!r}{did_you_mean(phase, phases) or listed}")


def check_attempt(feature_view: FeatureView, wanted: DetailOptions) -> None:
    """Raise UsageError, with the number of attempts, for an attempt that was never made."""
    if wanted.attempt is None or wanted.calls(feature_view):
        return
    attempt_counts = attempts_by_phase(feature_view, wanted.phase)
    counts = ", ".join(f"{number} in {phase}" for phase, number in attempt_counts.items())
    raise usage_error(f"{feature_view.feature} has no attempt {wanted.attempt}: it made {counts or 'none'}")


def find_artifact(feature_view: FeatureView, wanted: DetailOptions, name: str) -> ArtifactView:
    """Return the last artifact of a name or NAME/UNIT. Raises UsageError if there is none or one per unit."""
    artifacts = wanted.artifacts(feature_view)
    artifacts_by_key = {
        f"{artifact.artifact}/{artifact.unit}" if artifact.unit else artifact.artifact: artifact
        for artifact in artifacts
    }
    matching_keys = [key for key, artifact in artifacts_by_key.items() if name in (key, artifact.artifact)]
    if not matching_keys:
        listed = f"; it has: {', '.join(artifacts_by_key)}" if artifacts_by_key else "; it has none"
        raise usage_error(
            f"{feature_view.feature} has no artifact {name!r}{did_you_mean(name, artifacts_by_key) or listed}"
        )
    if len(matching_keys) > 1:
        raise usage_error(f"{name!r} exists per unit: name one of {', '.join(matching_keys)}")
    return artifacts_by_key[matching_keys[0]]


def usage_error(message: str) -> click.UsageError:
    return click.UsageError(message, click.get_current_context())


def print_artifact(
    log: ProjectLog, view: RunView, feature_view: FeatureView, artifact: ArtifactView, as_json: bool
) -> None:
    """Print an artifact: unchanged to a pipe, without escapes to a terminal. Raises BlobMissing if it was erased."""
    data = log.blobs.get(artifact.digest)
    if not as_json:
        write_file_bytes(sys.stdout, data)
        return
    shape = ArtifactText(
        run=view.run, feature=feature_view.feature, artifact=artifact.artifact, phase=artifact.phase,
        unit=artifact.unit or None, path=artifact.path, digest=artifact.digest, text=data.decode("utf-8", "replace"),
    )  # fmt: skip
    print_document("artifact", shape)
