"""Prices of people's own: dated, tiered, checked with file, line and column, and named in the events."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from mz_engine.errors.diagnostics import MzError
from mz_engine.model.config import PriceRow
from mz_engine.pricing.table import GenaiPrices, price_file, price_table, user_prices
from mz_engine.run.settings import load_config
from mz_events.catalog.call import Usage

from tests.support.tree import ROOT

TEXT = """\
prices:
- model: gateway/big
  input: "2.00"
  output: 8
- model: gateway/big
  from: 2026-06-01
  input: "1.00"
  output: "4.00"
  cache_read: "0.10"
  above: {tokens: 100000, input: "2.00", output: "8.00"}
  tiers:
    batch: {input: "0.50", output: "2.00"}
- model: claude-*
  from: 2026-09-01
  input: "7"
  output: "7"
"""


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1_000_000


def rows(folder: Path, text: str = TEXT) -> tuple[PriceRow, ...]:
    (folder / "mz.yaml").write_text(text)
    return load_config(folder, {}, {}).config.prices


@pytest.fixture
def prices(tmp_path: Path) -> GenaiPrices:
    return GenaiPrices(rows(tmp_path))


def test_a_price_counts_from_its_day(prices: GenaiPrices) -> None:
    assert prices.estimate("gateway/big", 1000, 1000, at("2026-05-31")) == 10_000_000
    assert prices.estimate("gateway/big", 1000, 1000, at("2026-06-01")) == 5_000_000
    assert prices.estimate("claude-opus-5", 1000, 1000, at("2026-08-31")) == 30_000_000, "the table's"
    assert prices.estimate("claude-opus-5[1m]", 1000, 1000, at("2026-09-01")) == 14_000_000
    assert prices.estimate("anthropic/claude-opus-5", 1000, 1000, at("2026-09-01")) == 14_000_000


@pytest.mark.parametrize("written", ["Gateway/Odd[1m]", "gateway/odd", "*[1m]", "gateway/odd[*"])
def test_a_model_is_written_as_the_agent_names_it(tmp_path: Path, written: str) -> None:
    """Only `*` stands for anything: brackets are part of names."""
    genai_prices = GenaiPrices(rows(tmp_path, f'prices:\n- {{model: "{written}", input: "1", output: "1"}}\n'))
    assert (genai_prices.estimate("gateway/odd[1m]", 1000, 0, 0) is None) == (written == "gateway/odd[*")


def test_nothing_but_the_star_stands_for_something_else(tmp_path: Path) -> None:
    genai_prices = GenaiPrices(rows(tmp_path, 'prices:\n- {model: "own?[ab]c", input: "1", output: "1"}\n'))
    assert genai_prices.estimate("own?[ab]c", 1000, 0, 0) == 1_000_000
    assert genai_prices.estimate("own1ac", 1000, 0, 0) is None


def test_long_requests_and_tiers_have_their_own(prices: GenaiPrices) -> None:
    def cost(**fields: Any) -> int | None:
        return prices.price_entry(Usage(model="gateway/big", requests=1, **fields), at("2026-07-01"))

    assert cost(input=100_000, output=0) == 100_000_000
    assert cost(input=100_001, output=0) == 200_002_000
    assert cost(input=1000, output=0, cache_read=1000) == 100_000
    assert cost(input=1000, output=0, cache_write_1h=1000) == 1_000_000, "as other input"
    assert cost(input=1000, output=1000, tier="batch") == 2_500_000
    assert cost(input=1000, output=1000, tier="flex") is None


def test_the_repository_comes_before_the_user(tmp_path: Path) -> None:
    """Also where the user's row is newer."""
    home = tmp_path / "home"
    (home / "mz").mkdir(parents=True)
    row = "- model: {model}\n  from: 2026-10-01\n  input: 9\n  output: 9\n"
    (home / "mz" / "prices.yaml").write_text("prices:\n" + row.format(model="gateway/big") + row.format(model="own"))
    (tmp_path / "mz.yaml").write_text(TEXT)
    config = load_config(tmp_path, {}, {}).config
    genai_prices = price_table(config, {"XDG_CONFIG_HOME": str(home)})
    assert genai_prices.estimate("gateway/big", 1000, 0, at("2026-11-01")) == 1_000_000
    assert genai_prices.estimate("own", 1000, 0, at("2026-11-01")) == 9_000_000
    assert price_table(config, {}).estimate("own", 1000, 0, at("2026-11-01")) is None


def test_where_the_user_writes_them() -> None:
    assert price_file({"XDG_CONFIG_HOME": "/x", "HOME": "/h"}) == Path("/x/mz/prices.yaml")
    assert price_file({"XDG_CONFIG_HOME": "relative", "HOME": "/h"}) == Path("/h/.config/mz/prices.yaml")
    assert price_file({}) is None
    assert user_prices({"HOME": "/nowhere"}) == ()


def test_events_name_what_was_gone_by(tmp_path: Path) -> None:
    """By what it says: the same rows in another file are the same."""
    plain, own = GenaiPrices().table, GenaiPrices(rows(tmp_path)).table
    assert own.startswith(f"{plain} own sha256:")
    assert GenaiPrices((), rows(tmp_path)).table == own
    assert GenaiPrices(rows(tmp_path, TEXT.replace('"4.00"', '"4.01"'))).table != own


@pytest.mark.parametrize(
    ("line", "code", "folder", "output"),
    [
        ("  input: cheap", "MZ2010", "mz.yaml:3:10", "'cheap' is not an amount"),
        ("  input: -1", "MZ2010", "mz.yaml:3:10", "'-1' is not an amount"),
        ("  input: 0.0000000001", "MZ2010", "mz.yaml:3:10", "is not an amount"),
        ("  from: soon\n  input: 1", "MZ2013", "mz.yaml:3:9", "'soon' is not a date"),
        ("  from: 2026-6-1\n  input: 1", "MZ2013", "mz.yaml:3:9", "is not a date"),
        ("  from: 2026-02-29\n  input: 1", "MZ2013", "mz.yaml:3:9", "is not a date"),
        ("  from: 2026-13-01\n  input: 1", "MZ2013", "mz.yaml:3:9", "is not a date"),
        ("  inputs: 1\n  input: 1", "MZ2005", "mz.yaml:3:3", "unknown key `inputs`"),
        ("  cache_read: 1", "MZ2007", "mz.yaml:2:3", "has no key `input`"),
        ("  input: 1\n  tiers: {slow: {input: 1, output: 1}}", "MZ2005", "mz.yaml:4:11", "slow"),
        ("  input: 1\n  above: {tokens: 0, input: 1, output: 1}", "MZ2006", "mz.yaml:4:19", "`prices[0].above.tokens`"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, line: str, code: str, folder: str, output: str) -> None:
    with pytest.raises(MzError) as caught:
        rows(tmp_path, f"prices:\n- model: m\n{line}\n  output: 1\n")
    assert caught.value.code == code
    assert str(caught.value.location).startswith(folder)
    assert output in caught.value.message or code == "MZ2006"


def test_the_same_model_and_day_twice(tmp_path: Path) -> None:
    twice = TEXT.replace("  from: 2026-06-01\n", "", 1)
    with pytest.raises(MzError, match="gateway/big already has prices in"):
        rows(tmp_path, twice)


def test_the_users_file_is_checked_likewise(tmp_path: Path) -> None:
    path = tmp_path / "mz" / "prices.yaml"
    path.parent.mkdir()
    path.write_text("prices:\n- model: m\n  input: 1\n  output: much\n")
    with pytest.raises(MzError) as caught:
        user_prices({"XDG_CONFIG_HOME": str(tmp_path)})
    assert str(caught.value.location) == f"{path}:4:11"


def test_the_example_of_the_page(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "costs.md").read_text("utf-8")
    (example,) = re.findall(r"^```yaml\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    (row,) = rows(tmp_path, example)
    assert (row.model, row.since, row.above and row.above.tokens, row.tiers.batch is not None) == (
        "gateway/claude-opus-5", "2026-06-01", 200_000, True)  # fmt: skip
