"""Calibration: coefficients that correct token estimates, from past calls.

Coefficients are medians of used / estimated, so that one extreme call changes nothing. Calls form groups by agent,
model and phase; a group with too few calls has no coefficients, and its calls use those of the next wider group: agent
and model, then agent.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from statistics import median

import msgspec
from msgspec.structs import replace
from mz_events.catalog.call import Usage

from mz_engine.model.config import Coefficients

GROUP_CALLS_MIN = 5
"""With fewer calls a median is mostly chance."""
RATIO_DIGITS = 3
FITTING_RATIOS = (0.9, 1.1)
"""Ratios of used to estimated tokens that need no calibration."""

CallGroup = tuple[str, str, str]


class CallSample(msgspec.Struct, frozen=True, kw_only=True):
    """One call with known usage."""

    agent: str
    model: str
    phase: str
    estimated_input_tokens: int
    """Input as it was reserved: counted by the agent or estimated, a continued session included."""
    estimated_output_tokens: int
    """Estimated output."""
    input: int
    """Used; cache reads and writes included."""
    output: int
    cache_read: int
    cache_write: int

    @property
    def input_ratio(self) -> float:
        return self.input / max(self.estimated_input_tokens, 1)

    @property
    def output_ratio(self) -> float:
        return self.output / max(self.estimated_output_tokens, 1)

    def estimate(self, input_ratio: float = 1, output_ratio: float = 1) -> int:
        """Return the estimated tokens, corrected by these ratios."""
        return round(input_ratio * self.estimated_input_tokens) + round(output_ratio * self.estimated_output_tokens)

    def error_of(self, estimate: int) -> float:
        used = self.input + self.output
        return abs(estimate - used) / max(used, 1)


class GroupCalibration(msgspec.Struct, frozen=True, kw_only=True):
    """Coefficients of a group of calls, and the error of its estimates.

    Errors are medians of |estimate - used| / used over input and output together.
    """

    coefficients: Coefficients
    error_before: float
    error_after: float
    """Leave-one-out: each call is estimated from the others."""
    ratio: float
    """Median of used / estimated, input and output together, before the calibration."""

    @property
    def improves(self) -> bool:
        """Return True if estimates are better with these coefficients; not so if the calls differ too much."""
        return self.error_after < self.error_before

    @property
    def estimates(self) -> str:
        """Return fits, low (more was used than estimated) or high."""
        low, high = FITTING_RATIOS
        return "high" if self.ratio < low else "low" if self.ratio > high else "fits"


def groups_of(agent: str, model: str, phase: str) -> tuple[CallGroup, ...]:
    """Return the groups that a call belongs to, the narrowest first."""
    return (agent, model, phase), (agent, model, ""), (agent, "", "")


def calibrate(samples: Iterable[CallSample]) -> tuple[GroupCalibration, ...]:
    """Return every group with enough calls, the widest first within an agent."""
    groups: dict[CallGroup, list[CallSample]] = {}
    for sample in samples:
        for group in groups_of(sample.agent, sample.model, sample.phase):
            groups.setdefault(group, []).append(sample)
    return tuple(
        _calibrate_group(group, members) for group, members in sorted(groups.items()) if len(members) >= GROUP_CALLS_MIN
    )


def groups_with_too_few_calls(samples: Iterable[CallSample]) -> tuple[tuple[CallGroup, int], ...]:
    """Return groups of agent, model and phase with too few calls, and the number of calls."""
    calls_by_group = Counter((sample.agent, sample.model, sample.phase) for sample in samples)
    return tuple(sorted((group, calls) for group, calls in calls_by_group.items() if calls < GROUP_CALLS_MIN))


def median_coefficients(group: CallGroup, members: Sequence[CallSample]) -> Coefficients:
    """Return the coefficients of a group of at least one call."""
    agent, model, phase = group

    def rounded_median(value: Callable[[CallSample], float]) -> float:
        return round(median(value(sample) for sample in members), RATIO_DIGITS)

    return Coefficients(
        agent=agent,
        model=model,
        phase=phase,
        calls=len(members),
        input=rounded_median(lambda sample: sample.input_ratio),
        output=rounded_median(lambda sample: sample.output_ratio),
        cache_read=rounded_median(lambda sample: sample.cache_read / max(sample.input, 1)),
        cache_write=rounded_median(lambda sample: sample.cache_write / max(sample.input, 1)),
        input_tokens=round(median(sample.input for sample in members)),
        output_tokens=round(median(sample.output for sample in members)),
    )


def useful_coefficients(calibrations: Iterable[GroupCalibration]) -> tuple[Coefficients, ...]:
    """Return the coefficients that improve estimates.

    A group that its own do not improve gets neutral ones if a wider group has some, so that it does not use those.
    """
    helping, chosen = set[CallGroup](), list[Coefficients]()
    for entry in sorted(calibrations, key=lambda entry: _group(entry.coefficients)):
        coefficients = entry.coefficients
        agent, model, _ = _group(coefficients)
        if entry.improves:
            helping.add(_group(coefficients))
            chosen.append(coefficients)
        elif helping & {(agent, model, ""), (agent, "", "")}:
            chosen.append(replace(coefficients, input=1.0, output=1.0, cache_read=0.0, cache_write=0.0))
    return tuple(chosen)


def _group(coefficients: Coefficients) -> CallGroup:
    return coefficients.agent, coefficients.model, coefficients.phase


def _calibrate_group(group: CallGroup, members: Sequence[CallSample]) -> GroupCalibration:
    input_ratios = medians_of_others([sample.input_ratio for sample in members])
    output_ratios = medians_of_others([sample.output_ratio for sample in members])
    corrected = zip(members, input_ratios, output_ratios, strict=True)
    return GroupCalibration(
        coefficients=median_coefficients(group, members),
        error_before=_median(sample.error_of(sample.estimate()) for sample in members),
        error_after=_median(sample.error_of(sample.estimate(*ratios)) for sample, *ratios in corrected),
        ratio=_median((sample.input + sample.output) / max(sample.estimate(), 1) for sample in members),
    )


def _median(values: Iterable[float]) -> float:
    return round(median(values), 4)


def medians_of_others(values: Sequence[float]) -> list[float]:
    """Return for each of at least two values the median of all the others."""
    ordered = sorted(values)
    indexes = [bisect_left(ordered, value) for value in values]
    return [median(ordered[:index] + ordered[index + 1 :]) for index in indexes]


def coefficients_for(calibration: Iterable[Coefficients], agent: str, model: str, phase: str) -> Coefficients | None:
    """Return the coefficients of the narrowest group that a call belongs to, or None."""
    by_group = {_group(coefficients): coefficients for coefficients in calibration}
    return next(filter(None, map(by_group.get, groups_of(agent, model, phase))), None)


def expected_tokens(
    calibration: Iterable[Coefficients],
    agent: str,
    model: str,
    phase: str,
    estimated_input_tokens: int,
    estimated_output_tokens: int,
) -> Usage:
    """Return the expected tokens of a call with this input, as one request; without coefficients the arguments, and no
    cache."""
    coefficients = coefficients_for(calibration, agent, model, phase)
    if coefficients is None:
        return Usage(model=model, input=estimated_input_tokens, output=estimated_output_tokens, requests=1)
    input_tokens = round(coefficients.input * estimated_input_tokens)
    return _with_cache(coefficients, model, input_tokens, round(coefficients.output * estimated_output_tokens))


def typical_tokens(coefficients: Coefficients, model: str) -> Usage:
    """Return the expected tokens of a call whose prompt is not known yet."""
    return _with_cache(coefficients, model, coefficients.input_tokens, coefficients.output_tokens)


def _with_cache(coefficients: Coefficients, model: str, input_tokens: int, output_tokens: int) -> Usage:
    read = min(round(coefficients.cache_read * input_tokens), input_tokens)
    write = min(round(coefficients.cache_write * input_tokens), input_tokens - read)
    return Usage(
        model=model, input=input_tokens, output=output_tokens, cache_read=read, cache_write_5m=write, requests=1
    )
