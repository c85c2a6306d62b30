"""Inputs of a call in two recordings: prompt, arguments, environment, model, CLI version, tree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from mz_recordings.cassette import Cassette, Identity, Recording, Taken
from mz_recordings.drift.difference import Difference, Pair
from mz_recordings.findings import Finding, FindingKind, Risk
from mz_recordings.mending import RERECORD, again
from mz_recordings.playing.compare import lines_of

EVIDENCE = ("pipeline", "rules")
"""Parts of the evidence that are compared; templates show in the prompts."""


def of_worlds(old: Cassette, new: Cassette) -> Iterator[Difference]:
    """Yield differences that concern all calls."""
    was, now = old.manifest, new.manifest
    world = {
        name: (getattr(was.world, name), getattr(now.world, name)) for name in ("items", "config", "said", "hints")
    }
    world |= {name: (getattr(was, name), getattr(now, name)) for name in ("pipeline", "agent", "provenance")}
    for name, (before, after) in world.items():
        if before != after:
            detail = lines_of(_told(before), _told(after))
            yield _config(
                f"the {name} of the fixture differ" if name in WORLD else f"another {name}", f"world.{name}", detail
            )
    for name in EVIDENCE:
        before, after = was.evidence.get(name), now.evidence.get(name)
        if before != after:
            yield _config(f"recorded with different {name}", f"evidence.{name}", lines_of(_told(before), _told(after)))
    if was.world.base_tree != now.world.base_tree:
        what = f"the repository had the tree {was.world.base_tree[:12]}, now {now.world.base_tree[:12]}"
        yield Difference(Finding(kind="EFFECT", what=what, cause="world.base_tree", mend=f"{RERECORD} --all"))


WORLD = ("items", "config", "said", "hints")


def _config(what: str, cause: str, detail: tuple[str, ...]) -> Difference:
    return Difference(Finding(kind="CONFIG", what=what, cause=cause, detail=detail, mend=f"{RERECORD} --all"))


def _told(value: object, path: str = "") -> list[str]:
    """Return the value as lines, one per leaf."""
    plain = msgspec.to_builtins(value)
    if isinstance(plain, dict):
        return [line for key, inner in plain.items() for line in _told(inner, f"{path}.{key}" if path else str(key))]
    if isinstance(plain, list | tuple):
        return [line for at, inner in enumerate(plain) for line in _told(inner, f"{path}[{at}]")]
    return [f"{path}: {plain}" if path else str(plain)]


def of_call(pair: Pair, templates: Mapping[Identity, str]) -> Iterator[Difference]:
    """Yield PROMPT and CONFIG differences of one call."""
    yield from _prompt(pair, templates.get(pair.identity, ""))
    was, now = pair.old.recording, pair.new.recording
    if (was.agent, was.model) != (now.agent, now.model):
        yield _of(pair, "CONFIG", "another model", "model", _model(was), _model(now))
    words = tuple("<MODEL>" if word == was.model else word for word in was.argv)
    others = tuple("<MODEL>" if word == now.model else word for word in now.argv)
    if words != others:
        yield _of(pair, "CONFIG", "other arguments", "arguments", was.argv, now.argv)
    if set(was.environment) != set(now.environment):
        before, after = sorted(was.environment), sorted(now.environment)
        yield _of(pair, "CONFIG", "the agent sees other variables", "environment", before, after)
    if was.version != now.version:
        yield _of(pair, "CONFIG", "another version of the CLI", "version", [was.version], [now.version], "low")


def _model(recording: Recording) -> list[str]:
    return [f"{recording.agent} {recording.model}"]


def _prompt(pair: Pair, template: str) -> Iterator[Difference]:
    before, after = _lines(pair.old), _lines(pair.new)
    if before == after:
        return
    old_replies, new_replies = _answered(pair.olds, pair.identity), _answered(pair.news, pair.identity)
    removed, added = old_replies - new_replies, new_replies - old_replies
    if [line for line in before if line not in removed] == [line for line in after if line not in added]:
        what = "the prompt differs only in text from earlier replies"
        yield _of(pair, "PROMPT", what, "earlier replies", before, after, "low")
    else:
        yield _of(pair, "PROMPT", "the prompts differ", template, before, after)


def _lines(one: Taken) -> list[str]:
    file = one.recording.find("prompt")
    return one.contents[file.name].decode("utf-8", "replace").splitlines() if file else []


def _answered(cassette: Cassette, call: Identity) -> set[str]:
    """Return the lines of the artifacts that earlier calls of the feature produced."""
    found: set[str] = set()
    for one in cassette.taken:
        identity = one.recording.identity
        if identity == call:
            break
        if identity.feature == call.feature:
            for file in one.recording.files:
                if file.kind == "artifact":
                    found |= set(one.contents[file.name].decode("utf-8", "replace").splitlines())
    return found


def _of(
    pair: Pair, kind: FindingKind, what: str, cause: str, before: list[str] | tuple[str, ...],
    after: list[str] | tuple[str, ...], risk: Risk | None = None,
) -> Difference:  # fmt: skip
    return Difference(
        Finding(
            kind=kind,
            what=what,
            feature=pair.identity.feature,
            call=pair.identity.name,
            cause=cause,
            detail=lines_of(before, after),
            mend=again(pair.identity),
            risk=risk,
        )
    )
