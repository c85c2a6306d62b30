"""One model counts once, whatever name was asked for and whatever name the API answered with."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace
from mz_engine.agents.claude_code.adapter import ClaudeCode
from mz_engine.agents.reading.anthropic import model_usage
from mz_engine.agents.registry import load_patterns
from mz_engine.decoding.quantity import UsdPerMillion
from mz_engine.model.config import PriceRow
from mz_engine.ports import CallResult, ParsedReply
from mz_engine.pricing.models import common_names, is_same_model
from mz_engine.pricing.table import GenaiPrices
from mz_events.catalog.call import Usage

ANSWERED = "claude-sonnet-4-5-20250929"
ARN = "arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/a1b2c3d4e5f6"
MEANT = f"{ARN} (claude-sonnet-4-5)"


@pytest.mark.parametrize(
    "name",
    [
        "claude-sonnet-4-5", "claude-sonnet-4-5-latest", "claude-sonnet-4-5[1m]", "claude-sonnet-4-5-20250929[1m]",
        "us.anthropic.claude-sonnet-4-5-20250929-v1:0", "bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0",
        "claude-sonnet-4-5@20250929", "publishers/anthropic/models/claude-sonnet-4-5@20250929",
        "anthropic/claude-sonnet-4.5", "openrouter/anthropic/claude-sonnet-4.5", "our-gateway/claude-sonnet-4-5",
    ],
)  # fmt: skip
def test_names_of_one_model(name: str) -> None:
    assert is_same_model(name, ANSWERED)
    assert is_same_model(ANSWERED, name)


@pytest.mark.parametrize("other", ["claude-sonnet-4-20250514", "claude-opus-4-5-20251101", "sonnet", "", "gpt-4.5"])
def test_names_of_another_model(other: str) -> None:
    assert not is_same_model(other, ANSWERED)


def used(input_: int, output: int) -> Usage:
    return Usage(model="", input=input_, output=output)


def test_a_total_has_the_name_of_the_requests() -> None:
    totals = {"claude-haiku-4-5": used(5, 1), "claude-sonnet-4-5[1m]": used(90, 9)}
    names = common_names({ANSWERED: used(80, 2)}, totals)
    assert names == {ANSWERED: ANSWERED, "claude-sonnet-4-5[1m]": ANSWERED, "claude-haiku-4-5": "claude-haiku-4-5"}


def test_a_gateways_name_is_that_of_the_requests_it_includes() -> None:
    """No word of it tells; a side model is too small to include them."""
    names = common_names({ANSWERED: used(80, 2)}, {"side": used(70, 9), "large": used(900, 9), "team-a": used(90, 9)})
    assert (names["team-a"], names["side"], names["large"]) == (ANSWERED, "side", "large")
    assert common_names({"m": used(10, 1)}, {"m": used(10, 1), "n": used(99, 9)})["n"] == "n"


def test_an_opaque_name_is_said_together_with_what_it_means() -> None:
    usage = model_usage(ARN, {"inputTokens": 1_000_000, "canonicalModel": "claude-sonnet-4-5"})
    assert usage.model == MEANT
    for name in ("claude-sonnet-4-5[1m]", "us.anthropic.claude-sonnet-4-5-20250929-v1:0"):
        assert model_usage(name, {"canonicalModel": "claude-sonnet-4-5"}).model == name
    assert is_same_model(MEANT, ANSWERED)
    assert is_same_model(MEANT, ARN)
    assert not is_same_model(ARN, ANSWERED)
    assert common_names({ARN: used(5, 1)}, {MEANT: used(5, 1)}) == {ARN: MEANT, MEANT: MEANT}


@pytest.mark.parametrize(
    ("rows", "dollars"),
    [
        ((), 3),
        ((("claude-sonnet-4-5", 2, None),), 2),
        ((("claude-*", 2, "2025-01-01"), (ARN, 1, None)), 1),
        ((("gpt-*", 2, None),), 3),
    ],
)
def test_own_prices_of_the_name_asked_for_win(rows: tuple[tuple[str, int, str | None], ...], dollars: int) -> None:
    rates = {price: UsdPerMillion(price * 10**9) for _, price, _ in rows}
    own = tuple(PriceRow(model=row, input=rates[cost], output=rates[cost], since=since) for row, cost, since in rows)
    usage = Usage(model=MEANT, input=1_000_000, output=0, requests=9)
    assert GenaiPrices(own).price_entry(usage, 1_770_000_000_000_000) == dollars * 10**9
    assert GenaiPrices().price_entry(replace(usage, model=ARN), 1_770_000_000_000_000) is None


# a call ---------------------------------------------------------------------------------------------------------------
def line(name: str, read: int, output: int, hour: int = 0, parent: str | None = None) -> dict[str, object]:
    lifetimes = {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": hour}
    counts = {"input_tokens": 10, "cache_read_input_tokens": read, "cache_creation_input_tokens": hour,
              "cache_creation": lifetimes, "output_tokens": output}  # fmt: skip
    message = {"id": name, "model": ANSWERED, "content": [], "usage": counts}
    return {"type": "assistant", "session_id": "s", "parent_tool_use_id": parent, "message": message}


def end(read: int, output: int, written: int = 0, model: str = "claude-sonnet-4-5", turn: int = 0) -> dict[str, Any]:
    numbers = {"inputTokens": 20, "outputTokens": output, "cacheReadInputTokens": read,
               "cacheCreationInputTokens": written}  # fmt: skip
    counts = {"input_tokens": 10, "output_tokens": 1, "cache_creation_input_tokens": turn,
              "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": turn}}  # fmt: skip
    return {"type": "result", "subtype": "success", "is_error": False, "result": "x", "session_id": "s",
            "usage": counts, "modelUsage": {model: numbers}}  # fmt: skip


def reading(*events: dict[str, object]) -> ParsedReply:
    stdout = b"\n".join(json.dumps(event).encode() for event in events)
    return ClaudeCode(load_patterns()).parse_output(CallResult(stdout=stdout, stderr=b"", exit=0, duration_ms=1))


@pytest.mark.parametrize("model", ["claude-sonnet-4-5", "team-a"])
def test_sizes_of_requests_survive_another_name(model: str) -> None:
    """A long context has a price of its own, by the size of each request; own prices are by the name asked for."""
    reply = reading(line("a", 100_000, 5), line("b", 250_000, 7), end(350_000, 12, model=model))
    assert [(usage.model, usage.input, usage.requests) for usage in reply.usage] == [
        (model, 100_010, 1), (model, 250_010, 1)]  # fmt: skip
    (usage,) = reading(line("a", 100_000, 1), line("b", 250_000, 1), end(350_000, 12, model=model)).usage
    assert (usage.model, usage.input, usage.output, usage.requests) == (model, 350_020, 12, 2)


def test_requests_are_known_by_what_the_name_means() -> None:
    """Their model is the one that answered, which the name asked for does not tell."""
    result = end(350_000, 12, model=ARN)
    result["modelUsage"] = {ARN: {**result["modelUsage"][ARN], "canonicalModel": "claude-sonnet-4-5"}}
    reply = reading(line("a", 100_000, 5), line("b", 250_000, 7), result)
    assert [(usage.model, usage.input) for usage in reply.usage] == [(MEANT, 100_010), (MEANT, 250_010)]


def test_lifetimes_of_sub_agents_requests_are_kept() -> None:
    """The turn's own usage is without them, so that its lifetimes do not add up to the total."""
    work = (line("a", 0, 1, hour=60_000), line("b", 0, 1, hour=30_000, parent="t"))
    (usage,) = reading(*work, end(0, 500, written=90_000, turn=60_000)).usage
    assert (usage.cache_write_5m, usage.cache_write_1h) == (0, 90_000)
    (usage,) = reading(*work, end(0, 500, written=99_000, turn=60_000)).usage
    assert (usage.cache_write_5m, usage.cache_write_1h) == (0, 99_000), "what no line shows is as most"
