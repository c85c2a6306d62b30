"""Comparison of two recordings of the same calls, by identity, with a finding kind for each difference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mz_engine.agents.contract import Adapter
from mz_engine.agents.generic_form import AgentDescription
from mz_engine.agents.registry import adapters

from mz_recordings.cassette import Cassette, Identity, Taken
from mz_recordings.drift.difference import Difference, Pair
from mz_recordings.drift.inputs import of_call, of_worlds
from mz_recordings.drift.outputs import of_artifacts, of_costs, of_effects, of_ends, of_wires
from mz_recordings.drift.stories import of_stories, templates_of
from mz_recordings.findings import Finding
from mz_recordings.grouping import ORDER
from mz_recordings.mending import NEW, again

Described = Mapping[str, AgentDescription]
"""The project's own agents, needed to read their streams."""


def compare_cassettes(old: Cassette, new: Cassette, described: Described) -> tuple[Finding, ...]:
    """Return the differences of the new cassette as findings, ignoring measurements (times, durations, ids of runs and
    sessions) and tool output that nothing reads."""
    return tuple(difference.finding for difference in differences(old, new, described))


def differences(old: Cassette, new: Cassette, described: Described) -> tuple[Difference, ...]:
    """Return the differences as `compare_cassettes`, with the parts that noise can hide."""
    agents = adapters(described)
    was, now = _by_identity(old), _by_identity(new)
    pairs = [Pair(was[call], now[call], old, new) for call in was if call in now]
    only = [call for call in (*was, *now) if (call in was) != (call in now)]
    templates = {**templates_of(old), **templates_of(new)}
    found = [*of_worlds(old, new), *_each(pairs, templates, agents), *of_wires(pairs, agents), *_trees(pairs, old, new)]
    ended = {difference.finding.feature for difference in found if difference.finding.kind == "EVENT"}
    found += [*of_stories(old, new, only, ended), *_alone(was, now)]
    return tuple(sorted(found, key=lambda difference: ORDER.index(difference.finding.kind)))


def _by_identity(cassette: Cassette) -> dict[Identity, Taken]:
    return {call.recording.identity: call for call in cassette.taken}


def _each(pairs: list[Pair], templates: Mapping[Identity, str], agents: Mapping[str, Adapter]) -> Iterator[Difference]:
    for pair in pairs:
        yield from of_call(pair, templates)
        yield from of_artifacts(pair)
        yield from of_effects(pair)
        yield from of_costs(pair, agents)
        yield from of_ends(pair)


def _alone(was: Mapping[Identity, Taken], now: Mapping[Identity, Taken]) -> Iterator[Difference]:
    for call in now:
        if call not in was:
            what = "only the new recording makes this call"
            yield Difference(Finding(kind="MISSING", what=what, feature=call.feature, call=call.name, mend=NEW))
    for call in was:
        if call not in now:
            what = "only the old recording makes this call"
            yield Difference(Finding(kind="UNUSED", what=what, feature=call.feature, call=call.name, mend=again(call)))


def _trees(pairs: list[Pair], old: Cassette, new: Cassette) -> Iterator[Difference]:
    """Yield changed trees that no reported difference explains, such as other changes by an earlier call of the feature
    or of a dependency."""
    if old.manifest.world.base_tree != new.manifest.world.base_tree:
        return
    changed = {pair.identity.feature for pair in pairs if _patch(pair.old) != _patch(pair.new)}
    builds = {item.feature: {*item.depends_on} for item in old.manifest.world.items}
    moved: set[str] = set()
    for pair in pairs:
        was, now, feature = pair.old.recording, pair.new.recording, pair.identity.feature
        explained = feature in moved or bool(({feature} | builds.get(feature, set())) & (changed | moved))
        before, after = was.tree_before != now.tree_before, was.tree_after != now.tree_after
        if (before or after) and not explained:
            moved.add(feature)
            what = "the call starts from another tree" if before else "the call ends with another tree"
            trees = (was.tree_before, now.tree_before) if before else (was.tree_after, now.tree_after)
            detail = (f"- {trees[0]}", f"+ {trees[1]}")
            finding = Finding(
                kind="EFFECT", what=what, feature=feature, call=pair.identity.name, cause="tree", detail=detail,
                mend=again(pair.identity),
            )  # fmt: skip
            yield Difference(finding)


def _patch(one: Taken) -> bytes:
    file = one.recording.find("patch")
    return b"" if file is None else one.contents[file.name]
