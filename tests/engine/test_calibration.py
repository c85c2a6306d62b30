"""Estimates fitted to what calls really took."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mz_engine.errors.diagnostics import MzError
from mz_engine.model.config import Coefficients
from mz_engine.pricing.calibration import (
    GROUP_CALLS_MIN,
    CallSample,
    GroupCalibration,
    calibrate,
    coefficients_for,
    expected_tokens,
    groups_with_too_few_calls,
    median_coefficients,
    medians_of_others,
    typical_tokens,
    useful_coefficients,
)
from mz_engine.run.settings import (
    CALIBRATION_FILE,
    format_calibration,
    load_config,
    read_calibration,
    write_calibration,
)
from mz_events.catalog.call import Usage

CELL = ("a", "m", "code")


def sample(
    prompt: int = 1000, used: int = 5000, phase: str = "code", model: str = "m", output: int = 1000
) -> CallSample:
    return CallSample(
        agent="a",
        model=model,
        phase=phase,
        estimated_input_tokens=prompt,
        estimated_output_tokens=2000,
        input=used,
        output=output,
        cache_read=used // 2,
        cache_write=used // 10,
    )


def test_a_fit_is_the_median_call() -> None:
    """One call that ran wild moves nothing."""
    coefficients = median_coefficients(CELL, [sample(used=used) for used in (4000, 5000, 5000, 6000, 900_000)])
    assert (coefficients.agent, coefficients.model, coefficients.phase, coefficients.calls) == ("a", "m", "code", 5)
    assert (coefficients.input, coefficients.output) == (5.0, 0.5)
    assert (coefficients.cache_read, coefficients.cache_write) == (0.5, 0.1)
    assert (coefficients.input_tokens, coefficients.output_tokens) == (5000, 1000)


def test_cells_with_enough_calls_and_no_others() -> None:
    samples = [*[sample()] * GROUP_CALLS_MIN, *[sample(phase="plan")] * (GROUP_CALLS_MIN - 1), *[sample(model="n")]]
    cells = [
        (group.coefficients.agent, group.coefficients.model, group.coefficients.phase) for group in calibrate(samples)
    ]
    assert cells == [("a", "", ""), ("a", "m", ""), CELL]
    assert groups_with_too_few_calls(samples) == ((("a", "m", "plan"), 4), (("a", "n", "code"), 1))


def test_the_error_after_is_that_of_calls_that_were_not_looked_at() -> None:
    """Six calls alike are estimated without error; of six that have nothing in common none helps another."""
    (alike,) = (item for item in calibrate([sample()] * 6) if item.coefficients.phase)
    assert (alike.error_before, alike.error_after, alike.improves) == (0.5, 0.0, True)
    odd = [sample(used=used) for used in (2000, 2000, 2000, 200_000, 200_000, 200_000)]
    (unlike,) = (group for group in calibrate(odd) if group.coefficients.phase)
    assert unlike.error_after > 0.9
    assert not unlike.improves


def test_calls_that_their_own_coefficients_do_not_help_are_not_left_to_those_of_others() -> None:
    """Nine phases alike would else say of the tenth, which is like nothing, that it takes forty times as much."""
    unlike = [sample(used=used, phase="plan") for used in (2000, 2000, 2000, 200_000, 200_000, 200_000)]
    fitted = calibrate([*unlike, *[sample(used=40_000)] * 9])
    assert [group.coefficients.phase for group in fitted if not group.improves] == ["plan"]
    kept = useful_coefficients(fitted)
    assert expected_tokens(kept, "a", "m", "code", 1000, 2000).input == 40_000
    assert expected_tokens(kept, "a", "m", "plan", 1000, 2000) == expected_tokens((), "a", "m", "plan", 1000, 2000)
    assert useful_coefficients(calibrate(unlike)) == ()


@given(st.lists(st.integers(0, 9).map(float), min_size=2, max_size=9))
def test_medians_of_others(values: list[float]) -> None:
    slowly = [median(values[:at] + values[at + 1 :]) for at in range(len(values))]
    assert medians_of_others(values) == slowly


@pytest.mark.parametrize(("ratio", "output"), [(0.89, "high"), (0.9, "fits"), (1.1, "fits"), (1.11, "low")])
def test_advice(ratio: float, output: str) -> None:
    group = GroupCalibration(coefficients=expected(), error_before=0, error_after=0, ratio=ratio)
    assert group.estimates == output


def expected(agent: str = "a", model: str = "", phase: str = "", times: float = 2.0) -> Coefficients:
    return Coefficients(
        agent=agent, model=model, phase=phase, calls=5, input=times, output=1.5, cache_read=0.5, cache_write=0.25,
        input_tokens=800, output_tokens=90,
    )  # fmt: skip


def test_the_most_exact_cell_counts() -> None:
    table = (expected(), expected(model="m", times=3.0), expected(model="m", phase="code", times=4.0))
    coefficients = [
        coefficients_for(table, *cell) for cell in (CELL, ("a", "m", "plan"), ("a", "x", "code"), ("b", "m", "x"))
    ]
    assert [item and item.input for item in coefficients] == [4.0, 3.0, 2.0, None]


def test_what_is_expected() -> None:
    assert expected_tokens((), "a", "m", "code", 1000, 2000) == Usage(model="m", input=1000, output=2000, requests=1)
    actual = expected_tokens((expected(),), "a", "m", "code", 1000, 2000)
    assert actual == Usage(model="m", input=2000, output=3000, cache_read=1000, cache_write_5m=500, requests=1)
    usage = Usage(model="m", input=800, output=90, cache_read=400, cache_write_5m=200, requests=1)
    assert typical_tokens(expected(), "m") == usage


@given(
    st.lists(
        st.builds(sample, st.integers(0, 10**6), st.integers(0, 10**7), output=st.integers(0, 10**5)),
        min_size=1, max_size=12,
    )
)  # fmt: skip
@pytest.mark.slow
def test_any_calls_give_coefficients_that_can_be_written_and_read(samples: list[CallSample]) -> None:
    coefficients = median_coefficients(CELL, samples)
    guess = expected_tokens((coefficients,), *CELL, samples[0].estimated_input_tokens, 2000)
    assert 0 <= guess.cache_read + guess.cache_write_5m <= max(guess.input, 0)
    assert calibrate(samples) is not None


def test_what_is_written_is_read(tmp_path: Path) -> None:
    result = (expected(), expected(agent='odd "name"', model="m[1m]", phase="code"))
    assert read_calibration(tmp_path) == ()
    write_calibration(tmp_path, result)
    assert read_calibration(tmp_path) == result
    assert load_config(tmp_path, {}, {}).config.calibration == result
    assert format_calibration(()) == "calibration: []\n"


def test_a_damaged_file_is_told_with_its_place(tmp_path: Path) -> None:
    write_calibration(tmp_path, (expected(),))
    path = tmp_path / CALIBRATION_FILE
    path.write_text(path.read_text().replace("calls: 5", "calls: many"))
    with pytest.raises(MzError) as caught:
        load_config(tmp_path, {}, {})
    assert str(caught.value.location) == f"{CALIBRATION_FILE}:4:10"


@pytest.mark.parametrize("old", ["input: 2.0", "output: 1.5", "cache_read: 0.5", "output_tokens: 90"])
@pytest.mark.parametrize("new", ["-1", "1e400"])
def test_no_calibration_makes_a_reservation_negative_or_endless(tmp_path: Path, old: str, new: str) -> None:
    path = write_calibration(tmp_path, (expected(),))
    path.write_text(path.read_text().replace(f" {old}\n", f" {old.partition(':')[0]}: {new}\n"))
    with pytest.raises(MzError) as caught:
        load_config(tmp_path, {}, {})
    assert caught.value.location is not None
    assert caught.value.location.line
    assert "of at least 0" in caught.value.message


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / CALIBRATION_FILE).mkdir()
    with pytest.raises(MzError) as caught:
        write_calibration(tmp_path, (expected(),))
    assert caught.value.code == "MZ1007"
    assert [path.name for path in tmp_path.iterdir()] == [CALIBRATION_FILE]
