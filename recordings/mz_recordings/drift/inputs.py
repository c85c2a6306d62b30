"""Inputs of a call in two recordings: prompt, arguments, environment, model, CLI version, tree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from mz_recordings.cassette.model import Cassette, Identity, RecordedCall, Recording
from mz_recordings.drift.model import Difference, RecordingPair
from mz_recordings.findings.model import RERECORD, Finding, FindingKind, Risk, rerecord_call
from mz_recordings.replay.compare import diff_lines

EVIDENCE_KEYS = ("pipeline", "rules")
"""Parts of the evidence that are compared; templates show in the prompts."""


def fixture_differences(old: Cassette, new: Cassette) -> Iterator[Difference]:
    """Yield differences that concern all calls."""
    old_manifest, new_manifest = old.manifest, new.manifest
    values = {
        name: (getattr(old_manifest.fixture, name), getattr(new_manifest.fixture, name))
        for name in ("items", "config", "decisions", "hints")
    }
    values |= {
        name: (getattr(old_manifest, name), getattr(new_manifest, name)) for name in ("pipeline", "agent", "provenance")
    }
    for name, (before, after) in values.items():
        if before != after:
            detail = diff_lines(_flatten(before), _flatten(after))
            yield _config_difference(
                f"the {name} of the fixture differ" if name in FIXTURE_FIELDS else f"another {name}",
                f"fixture.{name}",
                detail,
            )
    for name in EVIDENCE_KEYS:
        before, after = old_manifest.evidence.get(name), new_manifest.evidence.get(name)
        if before != after:
            yield _config_difference(
                f"recorded with different {name}", f"evidence.{name}", diff_lines(_flatten(before), _flatten(after))
            )
    if old_manifest.fixture.base_tree != new_manifest.fixture.base_tree:
        message = (
            f"the repository had the tree {old_manifest.fixture.base_tree[:12]}, now "
            f"{new_manifest.fixture.base_tree[:12]}"
        )
        yield Difference(Finding(kind="FILES", message=message, cause="fixture.base_tree", fix=f"{RERECORD} --all"))


FIXTURE_FIELDS = ("items", "config", "decisions", "hints")


def _config_difference(message: str, cause: str, detail: tuple[str, ...]) -> Difference:
    return Difference(Finding(kind="CONFIG", message=message, cause=cause, detail=detail, fix=f"{RERECORD} --all"))


def _flatten(value: object, path: str = "") -> list[str]:
    """Return the value as lines, one per leaf."""
    value_tree = msgspec.to_builtins(value)
    if isinstance(value_tree, dict):
        return [
            line for key, inner in value_tree.items() for line in _flatten(inner, f"{path}.{key}" if path else str(key))
        ]
    if isinstance(value_tree, list | tuple):
        return [line for at, inner in enumerate(value_tree) for line in _flatten(inner, f"{path}[{at}]")]
    return [f"{path}: {value_tree}" if path else str(value_tree)]


def input_differences(pair: RecordingPair, templates: Mapping[Identity, str]) -> Iterator[Difference]:
    """Yield PROMPT and CONFIG differences of one call."""
    yield from _prompt_difference(pair, templates.get(pair.identity, ""))
    old_recording, new_recording = pair.old.recording, pair.new.recording
    if (old_recording.agent, old_recording.model) != (new_recording.agent, new_recording.model):
        yield _call_difference(
            pair, "CONFIG", "another model", "model", _model_line(old_recording), _model_line(new_recording)
        )
    old_argv = tuple("<MODEL>" if argument == old_recording.model else argument for argument in old_recording.argv)
    new_argv = tuple("<MODEL>" if argument == new_recording.model else argument for argument in new_recording.argv)
    if old_argv != new_argv:
        yield _call_difference(pair, "CONFIG", "other arguments", "arguments", old_recording.argv, new_recording.argv)
    if set(old_recording.environment) != set(new_recording.environment):
        before, after = sorted(old_recording.environment), sorted(new_recording.environment)
        yield _call_difference(pair, "CONFIG", "the agent sees other variables", "environment", before, after)
    if old_recording.version != new_recording.version:
        yield _call_difference(
            pair,
            "CONFIG",
            "another version of the CLI",
            "version",
            [old_recording.version],
            [new_recording.version],
            "low",
        )


def _model_line(recording: Recording) -> list[str]:
    return [f"{recording.agent} {recording.model}"]


def _prompt_difference(pair: RecordingPair, template: str) -> Iterator[Difference]:
    before, after = _prompt_lines(pair.old), _prompt_lines(pair.new)
    if before == after:
        return
    old_replies, new_replies = (
        _earlier_artifact_lines(pair.old_cassette, pair.identity),
        _earlier_artifact_lines(pair.new_cassette, pair.identity),
    )
    removed, added = old_replies - new_replies, new_replies - old_replies
    if [line for line in before if line not in removed] == [line for line in after if line not in added]:
        message = "the prompt differs only in text from earlier replies"
        yield _call_difference(pair, "PROMPT", message, "earlier replies", before, after, "low")
    else:
        yield _call_difference(pair, "PROMPT", "the prompts differ", template, before, after)


def _prompt_lines(call: RecordedCall) -> list[str]:
    file = call.recording.find("prompt")
    return call.contents[file.name].decode("utf-8", "replace").splitlines() if file else []


def _earlier_artifact_lines(cassette: Cassette, call: Identity) -> set[str]:
    """Return the lines of the artifacts that earlier calls of the feature produced."""
    lines: set[str] = set()
    for recorded_call in cassette.calls:
        identity = recorded_call.recording.identity
        if identity == call:
            break
        if identity.feature == call.feature:
            for file in recorded_call.recording.files:
                if file.kind == "artifact":
                    lines |= set(recorded_call.contents[file.name].decode("utf-8", "replace").splitlines())
    return lines


def _call_difference(
    pair: RecordingPair, kind: FindingKind, message: str, cause: str, before: list[str] | tuple[str, ...],
    after: list[str] | tuple[str, ...], risk: Risk | None = None,
) -> Difference:  # fmt: skip
    return Difference(
        Finding(
            kind=kind,
            message=message,
            feature=pair.identity.feature,
            call=pair.identity.name,
            cause=cause,
            detail=diff_lines(before, after),
            fix=rerecord_call(pair.identity),
            risk=risk,
        )
    )
