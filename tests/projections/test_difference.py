"""What differs between two runs, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from mz_events.names import Commit, Digest, Path
from mz_projections.views.diff import FieldDifference, run_difference
from mz_projections.views.model import ArtifactView, CommandView, FeatureView, PhaseView, RunView

from tests.support import views
from tests.support.samples import sample

CALL = replace(views.CALL, tree_before=Commit("b"), computed_nanousd=5, reported_nanousd=4)
VIEW = FeatureView(
    feature="login", status="delivered", calls=(CALL,),
    phases=(PhaseView(phase="code", iteration=1, started_us=1, state="completed"),),
    changed_paths=(Path("src/a.py"),), started_us=0, ended_us=5_000,
    artifacts=(ArtifactView(artifact="code", phase="code", unit="", path=None, digest=Digest("a" * 64)),),
    commands=(replace(sample(CommandView), stage="gate", name="test", passed=7, failed=0),),
)  # fmt: skip


def runs(left: FeatureView | None, right: FeatureView | None) -> tuple[RunView, RunView]:
    run_view, two = (RunView(run=run, features=(view,) if view else ()) for run, view in (("l", left), ("r", right)))
    return run_view, two


def between(left: FeatureView | None, right: FeatureView | None) -> dict[str, tuple[str | None, str | None]]:
    difference = run_difference(*runs(left, right), None, None)
    return {
        field_difference.path: (field_difference.left, field_difference.right)
        for feature in difference.features
        for field_difference in feature.differences
    }


def test_a_run_does_not_differ_from_itself() -> None:
    difference = run_difference(*runs(VIEW, VIEW), {"a": [1]}, {"a": [1]})
    assert (difference.start_differences, difference.features, difference.differs) == ((), (), False)


def test_how_a_feature_went() -> None:
    other = replace(
        VIEW, status="failed", code="no", changed_paths=(Path("src/b.py"),), rollbacks=1, commands=(), artifacts=(),
        phases=(replace(VIEW.phases[0], iteration=2),), calls=(CALL, replace(CALL, key="k2", computed_nanousd=None)),
    )  # fmt: skip
    assert between(VIEW, other) == {
        "status": ("delivered", "failed"), "code": (None, "no"), "rollbacks": (None, "1"),
        "iterations.code": ("1", "2"), "attempts.code": ("1", "2"), "tests.passed": ("7", None),
        "tests.failed": ("0", None), "reported_nanousd": ("4", "8"), "files.src/a.py": ("changed", None),
        "files.src/b.py": (None, "changed"), "artifacts.code": ("a" * 12, None),
    }  # fmt: skip


def test_a_feature_that_only_one_has() -> None:
    difference = run_difference(*runs(VIEW, None), None, None)
    assert [
        (feature_difference.id, feature_difference.in_left, feature_difference.in_right)
        for feature_difference in difference.features
    ] == [("login", True, False)]
    assert difference.differs


def test_durations_are_measured() -> None:
    difference = run_difference(*runs(VIEW, replace(VIEW, ended_us=9_000)), None, None)
    assert difference.features[0].differences == (FieldDifference("duration_ms", "5", "9", non_deterministic=True),)
    assert not difference.differs


def test_how_runs_were_started() -> None:
    left, right = runs(None, None)
    difference = run_difference(replace(left, pipeline="one"), replace(right, pipeline="two"), None, None)
    assert difference.start_differences == (FieldDifference("pipeline", "one", "two"),)
    assert difference.differs


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ({"a": 1}, {"a": 1, "b": None}, {}),
        ({"a": {"b": True}}, {"a": {"b": False}}, {"a.b": ("true", "false")}),
        ({"a": ["x", "y"]}, {"a": ["y"]}, {"a": ('["x","y"]', '["y"]')}),
        ([{"phase": "prd", "n": 1}], [{"phase": "prd", "n": 2}], {"prd.n": ("1", "2")}),
        ({"p": [{"phase": "a"}, {"phase": "b"}]}, {"p": [{"phase": "b"}, {"phase": "a"}]},
         {"p (order)": ('["a","b"]', '["b","a"]')}),
        ({"p": [{"run": "test"}]}, {"p": [{"run": "test"}, {"rule": "size"}]},
         {"p.size.rule": (None, "size")}),
        ({"p": [{"phase": "a"}, {"phase": "a"}]}, {"p": []}, {"p": ('[{"phase":"a"},{"phase":"a"}]', "[]")}),
        (None, {"a": 1}, {"pins": (None, '{"a":1}')}),
        ({}, {"a": {"b": 1, "c": None}}, {"a.b": (None, "1")}),
        ({"b": 2, "a": 1}, {"a": 1, "b": 2}, {}),
    ],
)  # fmt: skip
def test_pins(left: Any, right: Any, expected: dict[str, tuple[str | None, str | None]]) -> None:
    difference = run_difference(*runs(None, None), left, right)
    assert {
        field_difference.path: (field_difference.left, field_difference.right)
        for field_difference in difference.start_differences
    } == expected


def test_long_texts_are_told_by_their_digest() -> None:
    (field_difference,) = run_difference(*runs(None, None), {"t": "one\ntwo"}, {"t": "short"}).start_differences
    assert field_difference.left is not None
    assert field_difference.left.startswith("sha256:")
    assert field_difference.left.endswith("(2 lines, 7 characters)")
    assert field_difference.right == "short"


json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["phase", "a", "b"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(json, json)
def test_any_two_pins(left: Any, right: Any) -> None:
    def start(item: Any, two: Any) -> dict[str, tuple[str | None, str | None]]:
        return {
            field_difference.path: (field_difference.left, field_difference.right)
            for field_difference in run_difference(*runs(None, None), item, two).start_differences
        }

    assert start(left, left) == {}
    assert start(right, left) == {path: (two, text) for path, (text, two) in start(left, right).items()}
