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
from mz_engine.yamlfile import decode_document, parse_yaml

PRICE_FILE = Path("mz", "prices.yaml")
"""Path below the user's configuration directory."""


def price_file(environment: Mapping[str, str]) -> Path | None:
    """Return the path of the user's price file by the XDG rules; None without a home directory."""
    config_home = environment.get("XDG_CONFIG_HOME", "")
    if config_home.startswith("/"):
        return Path(config_home) / PRICE_FILE
    home = environment.get("HOME", "")
    return Path(home) / ".config" / PRICE_FILE if home.startswith("/") else None


def has_user_prices(environment: Mapping[str, str]) -> bool:
    """Return True if the user has a price file."""
    path = price_file(environment)
    return path is not None and os.path.lexists(path)


def user_prices(environment: Mapping[str, str]) -> tuple[PriceRow, ...]:
    """Return the rows of the user's file, empty without one. Raises MzError (MZ20nn) with the location of every
    error."""
    path = price_file(environment)
    if path is None or not os.path.lexists(path):
        return ()
    document = parse_yaml(read_text(path, str(path)), str(path))
    rows, row_errors = to_rows(decode_document(document, PricesFile).prices)
    if row_errors:
        raise MzError.from_diagnostics(
            Diagnostic(code=row_error.code, message=row_error.message, hint=row_error.hint, location=document.location(*row_error.key_path))
            for row_error in row_errors
        )
    return rows


def price_table(config: Config, environment: Mapping[str, str]) -> GenaiPrices:
    """Return the table of the repository's prices, then the user's, then the built-in ones. Raises MzError as
    `user_prices` does."""
    return GenaiPrices(config.prices, user_prices(environment))
