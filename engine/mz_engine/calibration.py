"""Pure: what past calls took, against what was estimated of them, as coefficients for the next estimates.

Medians of ratios, so that one call that ran wild moves nothing; a cell with too few calls has no coefficients of its
own, and its calls go by the next wider one: agent, model and phase; agent and model; agent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import median

import msgspec
from msgspec.structs import replace

from mz_engine.config import Coefficients

CALLS_MIN = 5
"""With fewer calls a median says more of chance than of the work."""
DIGITS = 3
FITTING = (0.9, 1.1)
"""An estimate within these shares of what was used needs no calibration."""

Cell = tuple[str, str, str]


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One call that ended and whose tokens are known."""

    agent: str
    model: str
    phase: str
    asked_tokens: int
    """Of what the call was given to read, as it was reserved: counted by the agent or estimated; in a session all that
    it held."""
    reply_tokens: int
    """Estimated, of the reply."""
    input: int
    """Used: cache reads and writes included."""
    output: int
    cache_read: int
    cache_write: int


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens that a call will probably take."""

    input: int
    output: int
    cache_read: int = 0
    cache_write: int = 0


class Fitted(msgspec.Struct, frozen=True, kw_only=True):
    """A cell's coefficients, and how far its estimates were off, as medians of |estimate - used| / used over input and
    output together."""

    coefficients: Coefficients
    error_before: float
    error_after: float
    """Each call estimated by the others alone."""
    ratio: float
    """Median of used / estimated, input and output together, before the calibration."""

    @property
    def helps(self) -> bool:
        """Estimates are better with it: calls that are too unlike each other have no common measure."""
        return self.error_after < self.error_before


def cells_of(sample: Sample) -> tuple[Cell, ...]:
    """The most exact first."""
    return (
        (sample.agent, sample.model, sample.phase),
        (sample.agent, sample.model, ""),
        (sample.agent, "", ""),
    )


def calibrate(samples: Iterable[Sample]) -> tuple[Fitted, ...]:
    """Every cell with enough calls, the widest first within an agent."""
    cells: dict[Cell, list[Sample]] = {}
    for sample in samples:
        for cell in cells_of(sample):
            cells.setdefault(cell, []).append(sample)
    return tuple(_fitted(cell, members) for cell, members in sorted(cells.items()) if len(members) >= CALLS_MIN)


def too_few(samples: Iterable[Sample]) -> tuple[tuple[Cell, int], ...]:
    """Cells of agent, model and phase that have calls, but too few for coefficients of their own."""
    counted: dict[Cell, int] = {}
    for sample in samples:
        cell = cells_of(sample)[0]
        counted[cell] = counted.get(cell, 0) + 1
    return tuple(sorted((cell, calls) for cell, calls in counted.items() if calls < CALLS_MIN))


def fit(cell: Cell, members: Sequence[Sample]) -> Coefficients:
    """At least one call."""
    agent, model, phase = cell

    def middle(value: Callable[[Sample], float]) -> float:
        return round(median(value(each) for each in members), DIGITS)

    return Coefficients(
        agent=agent,
        model=model,
        phase=phase,
        calls=len(members),
        input=middle(_input_ratio),
        output=middle(_output_ratio),
        cache_read=middle(lambda each: each.cache_read / max(each.input, 1)),
        cache_write=middle(lambda each: each.cache_write / max(each.input, 1)),
        input_tokens=round(median(each.input for each in members)),
        output_tokens=round(median(each.output for each in members)),
    )


def worth_writing(fitted: Iterable[Fitted]) -> tuple[Coefficients, ...]:
    """Those that help. Calls that their own do not help must not go by a wider cell's, which know even less of them:
    theirs are ones that change nothing."""
    helping, found = set[Cell](), list[Coefficients]()
    for each in sorted(fitted, key=lambda one: _cell(one.coefficients)):
        by = each.coefficients
        if each.helps:
            helping.add(_cell(by))
            found.append(by)
        elif helping & {(by.agent, by.model, ""), (by.agent, "", "")}:
            found.append(replace(by, input=1.0, output=1.0, cache_read=0.0, cache_write=0.0))
    return tuple(found)


def _cell(by: Coefficients) -> Cell:
    return by.agent, by.model, by.phase


def _fitted(cell: Cell, members: Sequence[Sample]) -> Fitted:
    inputs = medians_of_others([_input_ratio(each) for each in members])
    outputs = medians_of_others([_output_ratio(each) for each in members])
    by_others = [
        round(into * one.asked_tokens) + round(out * one.reply_tokens)
        for one, into, out in zip(members, inputs, outputs, strict=True)
    ]
    return Fitted(
        coefficients=fit(cell, members),
        error_before=median(_off(one, one.asked_tokens + one.reply_tokens) for one in members),
        error_after=median(_off(one, guess) for one, guess in zip(members, by_others, strict=True)),
        ratio=median((one.input + one.output) / max(one.asked_tokens + one.reply_tokens, 1) for one in members),
    )


def _input_ratio(sample: Sample) -> float:
    return sample.input / max(sample.asked_tokens, 1)


def _output_ratio(sample: Sample) -> float:
    return sample.output / max(sample.reply_tokens, 1)


def medians_of_others(values: Sequence[float]) -> list[float]:
    """For each value, the median of all the others; at least two values. Sorts once, so that many are no trouble."""
    ranks = sorted(range(len(values)), key=values.__getitem__)
    ordered = [values[at] for at in ranks]
    middle, even = (len(values) - 1) // 2, len(values) % 2 == 1
    found = [0.0] * len(values)
    for rank, at in enumerate(ranks):
        upper = ordered[middle + (middle >= rank)]
        lower = ordered[middle - 1 + (middle - 1 >= rank)] if even else upper
        found[at] = (lower + upper) / 2
    return found


def _off(one: Sample, guess: int) -> float:
    used = one.input + one.output
    return abs(guess - used) / max(used, 1)


def advice(ratio: float) -> str:
    """What a ratio of used to estimated means, in a word: fits, low (more was used than estimated) or high."""
    low, high = FITTING
    return "high" if ratio < low else "low" if ratio > high else "fits"


def typical(by: Coefficients) -> Expected:
    """Tokens of a call before there is a prompt."""
    read = min(round(by.cache_read * by.input_tokens), by.input_tokens)
    write = min(round(by.cache_write * by.input_tokens), by.input_tokens - read)
    return Expected(input=by.input_tokens, output=by.output_tokens, cache_read=read, cache_write=write)


# using ----------------------------------------------------------------------------------------------------------------
def coefficients_for(known: Iterable[Coefficients], agent: str, model: str, phase: str) -> Coefficients | None:
    """The most exact ones that fit a call; None: nothing is known of such calls."""
    by_cell = {(each.agent, each.model, each.phase): each for each in known}
    cells = ((agent, model, phase), (agent, model, ""), (agent, "", ""))
    return next((by_cell[cell] for cell in cells if cell in by_cell), None)


def expect(
    known: Iterable[Coefficients], agent: str, model: str, phase: str, asked_tokens: int, reply_tokens: int
) -> Expected:
    """Tokens of a call that is given `asked_tokens` to read; without coefficients those and a reply, and no cache."""
    by = coefficients_for(known, agent, model, phase)
    if by is None:
        return Expected(input=asked_tokens, output=reply_tokens)
    whole = round(by.input * asked_tokens)
    read = min(round(by.cache_read * whole), whole)
    return Expected(
        input=whole,
        output=round(by.output * reply_tokens),
        cache_read=read,
        cache_write=min(round(by.cache_write * whole), whole - read),
    )
