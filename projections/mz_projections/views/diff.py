"""Differences between two runs: their pins, and the results of each feature."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any

import msgspec

from mz_projections.usage import sum_known
from mz_projections.views.model import FeatureView, RunView

TEXT_MAX = 80
"""Characters; longer or multi-line texts are shown by their digest."""
NAME_KEYS = ("phase", "artifact", "output", "run", "rule", "cause", "name", "id")
"""Keys that name an entry of a list, by precedence."""
AMOUNTS = ("input_tokens", "output_tokens", "estimated_nanousd", "reported_nanousd", "computed_nanousd")
"""Over all calls: those copied by a fork count on both sides."""
DIGEST_SHORT = 12


class FieldDifference(msgspec.Struct, frozen=True):
    """One value of the left run and its counterpart in the right one; None: absent."""

    path: str
    """Path of the value, such as `attempts.code`, `files.src/app.py`, `config.budget.run_usd`."""
    left: str | None
    """None: missing or unknown. Long texts are shown by their digest."""
    right: str | None
    non_deterministic: bool = False
    """The value varies between any two runs, like a duration, and does not count as a difference."""


class FeatureDifference(msgspec.Struct, frozen=True):
    id: str
    in_left: bool
    """The left run has the feature."""
    in_right: bool
    differences: tuple[FieldDifference, ...]


class RunDifference(msgspec.Struct, frozen=True, kw_only=True):
    left: str
    right: str
    start_differences: tuple[FieldDifference, ...]
    """Differences in pipeline, base, version and every pinned setting, rule and template."""
    features: tuple[FeatureDifference, ...]
    """Features with a difference, in the order of the left run, then of the right one."""

    @property
    def differs(self) -> bool:
        """True if anything deterministic differs."""
        return any(not field.non_deterministic for field in self.start_differences) or any(
            feature.in_left != feature.in_right or any(not field.non_deterministic for field in feature.differences)
            for feature in self.features
        )


def run_difference(left: RunView, right: RunView, left_pins: Any, right_pins: Any) -> RunDifference:
    """Compare two runs. Pins are JSON values, or None if they could not be read."""
    ids = dict.fromkeys(view.feature for run in (left, right) for view in run.features)
    features = (_feature_difference(name, left.find_feature(name), right.find_feature(name)) for name in ids)
    return RunDifference(
        left=left.run,
        right=right.run,
        start_differences=(
            *_field_differences(_start_fields(left), _start_fields(right)),
            *_json_differences("", left_pins, right_pins),
        ),
        features=tuple(feature for feature in features if feature.differences or feature.in_left != feature.in_right),
    )


def _start_fields(run: RunView) -> dict[str, str]:
    return {"pipeline": run.pipeline, "base": run.base, "base_commit": run.base_commit, "mz_version": run.mz_version,
            "status": run.status}  # fmt: skip


# features -------------------------------------------------------------------------------------------------------------
def _feature_difference(name: str, left: FeatureView | None, right: FeatureView | None) -> FeatureDifference:
    differences = (
        *_field_differences(_feature_fields(left) if left else {}, _feature_fields(right) if right else {}),
        *_field_differences(_durations(left), _durations(right), non_deterministic=True),
    )
    return FeatureDifference(name, left is not None, right is not None, differences)


def _feature_fields(view: FeatureView) -> dict[str, str]:
    """Return the results of a feature by name; unknown ones are left out."""
    iterations: dict[str, int] = {}
    for phase in view.phases:
        iterations[phase.phase] = max(iterations.get(phase.phase, 0), phase.iteration)
    tests = view.tests
    fields: dict[str, object] = {
        "status": view.status,
        "code": view.code,
        "source": view.source,
        "title": view.title[:DIGEST_SHORT] if view.title else "",
        "phases": " ".join(view.completed_phases),
        "rollbacks": view.rollbacks or None,
        **{f"iterations.{phase}": number for phase, number in iterations.items()},
        **{f"attempts.{phase}": number for phase, number in view.attempts.items()},
        "tests.passed": tests[0] if tests else None,
        "tests.failed": tests[1] if tests else None,
        **{name: sum_known(getattr(call, name) for call in view.calls) for name in AMOUNTS},
        **{f"files.{path}": "changed" for path in view.changed_paths},
        **{f"artifacts.{a.artifact}{f'/{a.unit}' if a.unit else ''}": a.digest[:DIGEST_SHORT] for a in view.artifacts},
    }
    return {name: str(value) for name, value in fields.items() if value not in ("", None)}


def _durations(view: FeatureView | None) -> dict[str, str]:
    if view is None or view.started_us is None or view.ended_us is None:
        return {}
    return {"duration_ms": str((view.ended_us - view.started_us) // 1000)}


def _field_differences(
    left: Mapping[str, str], right: Mapping[str, str], non_deterministic: bool = False
) -> Iterator[FieldDifference]:
    for name in dict.fromkeys((*left, *right)):
        if left.get(name) != right.get(name):
            yield FieldDifference(name, left.get(name), right.get(name), non_deterministic)


# what they were started with ------------------------------------------------------------------------------------------
def _json_differences(path: str, left: Any, right: Any) -> Iterator[FieldDifference]:
    """Yield the differences of two JSON values, by path. Null and absent are equal."""
    if path and None in (left, right) and (isinstance(left, dict) or isinstance(right, dict)):
        left, right = left or {}, right or {}
    if isinstance(left, list) and isinstance(right, list) and None not in (maps := (_by_name(left), _by_name(right))):
        left, right = maps
        left_order, right_order = [name for name in left if name in right], [name for name in right if name in left]
        if left_order != right_order:
            yield FieldDifference(f"{path} (order)", _value_text(left_order), _value_text(right_order))
    if isinstance(left, dict) and isinstance(right, dict):
        for name in dict.fromkeys((*left, *right)):
            yield from _json_differences(f"{path}.{name}" if path else name, left.get(name), right.get(name))
    elif left != right:
        yield FieldDifference(path or "pins", _value_text(left), _value_text(right))


def _by_name(entries: list[Any]) -> dict[str, Any] | None:
    """Return the entries of a list by name; None unless all have a name of their own."""
    maps = (entry if isinstance(entry, dict) else {} for entry in entries)
    names = [next((entry[key] for key in NAME_KEYS if isinstance(entry.get(key), str)), "") for entry in maps]
    return dict(zip(names, entries, strict=True)) if all(names) and len({*names}) == len(names) else None


def _value_text(value: Any) -> str | None:
    """Return a short value as it is, a long one by its digest."""
    if value is None:
        return None
    text = value if isinstance(value, str) else msgspec.json.encode(value, order="sorted").decode()
    if len(text) <= TEXT_MAX and "\n" not in text:
        return text
    digest, lines = sha256(text.encode()).hexdigest()[:DIGEST_SHORT], text.splitlines()
    return f"sha256:{digest} ({len(lines)} lines, {len(text)} characters)"
