"""The user's own price file, which applies to every repository, and the price table that a command uses."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from mz_engine.adapters.prices import GenaiPrices
from mz_engine.config import Config, PriceRow
from mz_engine.errors import Diagnostic, MzError
from mz_engine.priceform import PricesFile, to_rows
from mz_engine.textfile import read_text
from mz_engine.yamlfile import convert_document, load

FILE = Path("mz", "prices.yaml")
"""Path below the user's configuration directory."""


def price_file(environment: Mapping[str, str]) -> Path | None:
    """Return the path of the user's price file by the XDG rules; None without a home directory."""
    named = environment.get("XDG_CONFIG_HOME", "")
    if named.startswith("/"):
        return Path(named) / FILE
    home = environment.get("HOME", "")
    return Path(home) / ".config" / FILE if home.startswith("/") else None


def has_own_prices(environment: Mapping[str, str]) -> bool:
    """Return True if the user has a price file."""
    path = price_file(environment)
    return path is not None and os.path.lexists(path)


def user_prices(environment: Mapping[str, str]) -> tuple[PriceRow, ...]:
    """Return the rows of the user's file, empty without one. Raises MzError (MZ20nn) with the location of every
    error."""
    path = price_file(environment)
    if path is None or not os.path.lexists(path):
        return ()
    document = load(read_text(path, str(path)), str(path))
    rows, wrong = to_rows(convert_document(document, PricesFile).prices)
    if wrong:
        raise MzError.of(
            Diagnostic(code=each.code, message=each.message, hint=each.hint, place=document.place(*each.route))
            for each in wrong
        )
    return rows


def prices_of(config: Config, environment: Mapping[str, str]) -> GenaiPrices:
    """Return the table of the repository's prices, then the user's, then the built-in ones. Raises MzError as
    `user_prices` does."""
    return GenaiPrices(config.prices, user_prices(environment))
