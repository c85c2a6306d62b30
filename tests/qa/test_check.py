"""The gate itself: every layer runs, the first that fails is named, and nothing to check is no pass."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from mz_engine.errors.diagnostics import Exit
from mz_qa.layers.run import LAYERS, NUMBERS, SELF_TEST_LAYERS, run_layer, run_layers
from mz_qa.results import CheckedItem, Layer, LayerOutput, LayerResult, Project, Remark
from mz_recordings.findings.model import KIND_PROPERTIES, ORDER, Finding

from tests.support.gates import project_of

DRIFT = Finding(kind="PROMPT", message="the prompt differs from the recording")
RULE = Finding(kind="RULE", message="a rule is broken")


def fine(project: Project) -> Iterator[LayerOutput]:
    yield CheckedItem("things", 2)
    yield Remark("all is well")
    yield Remark("all is well")
    yield CheckedItem("things")


def drifts(project: Project) -> Iterator[LayerOutput]:
    yield CheckedItem("things")
    yield DRIFT


def breaks(project: Project) -> Iterator[LayerOutput]:
    yield CheckedItem("things")
    yield RULE
    raise ZeroDivisionError("by hand")


def silent(project: Project) -> Iterator[LayerOutput]:
    return iter(())


def layers(*checks: object) -> tuple[Layer, ...]:
    return tuple(Layer(number, f"layer{number}", "about", check) for number, check in enumerate(checks, start=1))  # type: ignore[arg-type]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return project_of(tmp_path)


def test_all_run_though_the_first_fails(project: Project) -> None:
    layer_results: list[LayerResult] = []
    result = run_layers(project, (1, 2, 3), on_result=layer_results.append, layers=layers(breaks, drifts, fine))
    assert [layer.status for layer in result.layers] == ["failed", "failed", "passed"]
    assert layer_results == list(result.layers)
    assert result.first_failure is result.layers[0]
    assert result.layers[2].checked == {"things": 3}
    assert result.layers[2].remarks == ("all is well",)
    assert result.started <= result.finished


def test_what_a_layer_dies_of_is_its_finding(project: Project) -> None:
    (layer,) = run_layers(project, (1,), layers=layers(breaks)).layers
    rule, crash = layer.findings
    assert rule == RULE
    assert (crash.kind, crash.message) == ("INTERNAL-ERROR", "internal error in the check: ZeroDivisionError: by hand")
    assert any(line.strip().startswith("test_check.py:") for line in crash.detail)
    assert not any("/" in line for line in crash.detail)


@pytest.mark.parametrize(
    ("checks", "code"),
    [
        ((fine, fine), Exit.OK), ((fine, drifts), Exit.DRIFT), ((silent, fine), Exit.RECORDING),
        ((drifts, silent), Exit.DRIFT), ((breaks, drifts), Exit.BUG),
    ],
)  # fmt: skip
def test_the_exit_code_is_the_worst_of_what_was_found(project: Project, checks: tuple[object, ...], code: Exit) -> None:
    assert run_layers(project, (1, 2), layers=layers(*checks)).exit is code


def test_nothing_to_check_fails_unless_it_may_be_so(project: Project) -> None:
    (layer,) = run_layers(project, (1,), layers=layers(silent)).layers
    assert (layer.status, layer.findings[0].kind) == ("failed", "NOTHING-CHECKED")
    assert "mz check --allow-empty 1" in layer.findings[0].fix
    (layer,) = run_layers(project, (1,), (1,), layers=layers(silent)).layers
    assert (layer.status, layer.reason, layer.findings) == ("empty", "nothing to check", ())
    (layer,) = run_layers(project, (1,), (1,), layers=layers(fine)).layers
    assert layer.status == "passed"


def test_a_layer_that_nobody_asked_for_is_skipped(project: Project) -> None:
    result = run_layers(project, (2,), layers=layers(breaks, fine))
    assert [(layer.status, layer.reason) for layer in result.layers] == [("skipped", "not selected"), ("passed", "")]
    assert result.exit is Exit.OK


def test_the_layers_of_the_gate() -> None:
    assert NUMBERS == (1, 3, 4, 7, 8)
    assert len({layer.name for layer in LAYERS}) == len(LAYERS)
    assert {layer.number for layer in LAYERS} | {layer.number for layer in SELF_TEST_LAYERS} == {1, 2, 3, 4, 7, 8}


@pytest.mark.parametrize("layer", [layer for layer in SELF_TEST_LAYERS if layer.name in ("static", "formats")])
@pytest.mark.slow
def test_the_fast_self_tests_pass_outside_of_a_project(project: Project, layer: Layer) -> None:
    result = run_layer(layer, project, may_be_empty=False)
    assert (result.status, result.remarks) == ("passed", ()), result.findings


def test_a_layer_about_what_a_project_may_lack_can_be_empty(project: Project) -> None:
    results = run_layers(project, (3, 4)).layers
    assert [layer.status for layer in results if layer.number in (3, 4)] == ["empty", "empty"]


def test_every_kind_of_finding_has_a_place_in_the_order() -> None:
    assert sorted(ORDER) == sorted(KIND_PROPERTIES)
