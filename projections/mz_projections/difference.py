"""Differences between two runs: their pins, and the results of each feature."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec

from mz_projections.views import FeatureView, RunView, total

TEXT_MAX = 80
"""Characters; longer or multi-line texts are shown by their digest."""
NAMES = ("phase", "artifact", "output", "run", "rule", "cause", "name", "id")
"""Keys that name an entry of a list, by precedence."""
AMOUNTS = ("input_tokens", "output_tokens", "estimated_nanousd", "reported_nanousd", "computed_nanousd")
"""Over all calls: those copied by a fork count on both sides."""
DIGEST_SHORT = 12


class Differing(msgspec.Struct, frozen=True):
    """One value of the left run and its counterpart in the right one; None: absent."""

    path: str
    left: str | None
    right: str | None
    measured: bool = False
    """Differs between any two runs, such as a duration."""


class FeatureDifference(msgspec.Struct, frozen=True):
    feature: str
    left: bool
    """The feature is part of the left run."""
    right: bool
    differing: tuple[Differing, ...]


class RunDifference(msgspec.Struct, frozen=True, kw_only=True):
    left: str
    right: str
    start: tuple[Differing, ...]
    """Pipeline, base, version, and pins."""
    features: tuple[FeatureDifference, ...]
    """Features with a difference, in the order of the left run, then of the right one."""

    @property
    def differs(self) -> bool:
        """True if anything deterministic differs."""
        return any(not each.measured for each in self.start) or any(
            feature.left != feature.right or any(not each.measured for each in feature.differing)
            for feature in self.features
        )


def difference(left: RunView, right: RunView, left_pins: Any, right_pins: Any) -> RunDifference:
    """Compare two runs. Pins are JSON values, or None if they could not be read."""
    ids = dict.fromkeys(view.feature for run in (left, right) for view in run.features)
    features = (_features(name, left.find(name), right.find(name)) for name in ids)
    return RunDifference(
        left=left.run, right=right.run,
        start=(*_compared(_start(left), _start(right)), *_json("", left_pins, right_pins)),
        features=tuple(each for each in features if each.differing or each.left != each.right),
    )  # fmt: skip


def _start(run: RunView) -> dict[str, str]:
    return {"pipeline": run.pipeline, "base": run.base, "base_commit": run.base_commit, "mz": run.core,
            "status": run.status}  # fmt: skip


# features -------------------------------------------------------------------------------------------------------------
def _features(name: str, left: FeatureView | None, right: FeatureView | None) -> FeatureDifference:
    differing = (
        *_compared(_facts(left) if left else {}, _facts(right) if right else {}),
        *_compared(_measured(left) if left else {}, _measured(right) if right else {}, measured=True),
    )
    return FeatureDifference(name, left is not None, right is not None, differing)


def _facts(view: FeatureView) -> dict[str, str]:
    """Return the results of a feature by name; unknown ones are left out."""
    iterations: dict[str, int] = {}
    for phase in view.phases:
        iterations[phase.phase] = max(iterations.get(phase.phase, 0), phase.iteration)
    tests = view.tests
    facts: dict[str, object] = {
        "status": view.status,
        "code": view.code,
        "source": view.source,
        "title": view.title[:DIGEST_SHORT] if view.title else "",
        "phases": " ".join(view.completed),
        "rollbacks": view.rollbacks or None,
        **{f"iterations.{phase}": number for phase, number in iterations.items()},
        **{f"attempts.{phase}": number for phase, number in view.attempts.items()},
        "tests.passed": tests[0] if tests else None,
        "tests.failed": tests[1] if tests else None,
        **{name: total(getattr(call, name) for call in view.calls) for name in AMOUNTS},
        **{f"files.{path}": "changed" for path in view.touched},
        **{f"artifacts.{a.artifact}{f'/{a.unit}' if a.unit else ''}": a.digest[:DIGEST_SHORT] for a in view.artifacts},
    }
    return {name: str(value) for name, value in facts.items() if value not in ("", None)}


def _measured(view: FeatureView) -> dict[str, str]:
    if view.started_us is None or view.ended_us is None:
        return {}
    return {"duration_ms": str((view.ended_us - view.started_us) // 1000)}


def _compared(left: Mapping[str, str], right: Mapping[str, str], measured: bool = False) -> Iterator[Differing]:
    for name in dict.fromkeys((*left, *right)):
        if left.get(name) != right.get(name):
            yield Differing(name, left.get(name), right.get(name), measured)


# what they were started with ------------------------------------------------------------------------------------------
def _json(path: str, left: Any, right: Any) -> Iterator[Differing]:
    """Yield the differences of two JSON values, by path. Null and absent are equal."""
    if path:
        left, right = _filled(left, right), _filled(right, left)
    if isinstance(left, dict) and isinstance(right, dict):
        yield from _each(path, left, right)
    elif (named := _named(left, right)) is not None:
        yield from _ordered(path, *named)
        yield from _each(path, *named)
    elif left != right:
        yield Differing(path or "pins", _text(left), _text(right))


def _filled(value: Any, other: Any) -> Any:
    """Return {} for an absent map if the other side has one, so that its entries are reported one by one."""
    return {} if value is None and isinstance(other, dict) else value


def _each(path: str, left: Mapping[str, Any], right: Mapping[str, Any]) -> Iterator[Differing]:
    for name in dict.fromkeys((*left, *right)):
        yield from _json(f"{path}.{name}" if path else name, left.get(name), right.get(name))


def _ordered(path: str, left: Mapping[str, Any], right: Mapping[str, Any]) -> Iterator[Differing]:
    """Yield a difference in the order of the common entries."""
    before, after = [name for name in left if name in right], [name for name in right if name in left]
    if before != after:
        yield Differing(f"{path} (order)", _text(before), _text(after))


def _named(left: Any, right: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return two lists whose entries all have distinct names as maps by name; None otherwise."""
    if not isinstance(left, list) or not isinstance(right, list):
        return None
    maps = [{name: entry for entry in entries if (name := _name(entry))} for entries in (left, right)]
    return (maps[0], maps[1]) if [len(each) for each in maps] == [len(left), len(right)] else None


def _name(entry: Any) -> str:
    """Return the entry's name; empty if it has none."""
    named: Callable[[str], Any] = entry.get if isinstance(entry, dict) else lambda _: None
    return next((value for key in NAMES if isinstance(value := named(key), str)), "")


def _text(value: Any) -> str | None:
    """Return a short value as it is, a long one by its digest."""
    if value is None:
        return None
    text = value if isinstance(value, str) else msgspec.json.encode(value, order="sorted").decode()
    if len(text) <= TEXT_MAX and "\n" not in text:
        return text
    size: Sequence[str] = text.splitlines()
    return f"sha256:{sha256(text.encode()).hexdigest()[:DIGEST_SHORT]} ({len(size)} lines, {len(text)} characters)"
