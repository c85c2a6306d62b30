"""Checks of `mz doctor` on agents and prices."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime
from pathlib import Path
from types import MappingProxyType

from mz_engine.agents.contract import AuthCheck
from mz_engine.agents.registry import all_adapters
from mz_engine.errors.diagnostics import MzError
from mz_engine.model.agent_description import AgentDescription
from mz_engine.model.config import Config
from mz_engine.pricing.table import PRICES_PACKAGE, price_file, user_prices
from mz_engine.setup.checks import DoctorCheck, failed_check

PRICES_DAYS_MAX = 90
DATES = re.compile(r"\b(20\d\d)-(\d\d)-(\d\d)\b|\bdate\((20\d\d), (\d{1,2}), (\d{1,2})\)")


def agent_checks(
    environment: Mapping[str, str],
    chosen: str | None,
    successors: tuple[str, ...] = (),
    described: Mapping[str, AgentDescription] = MappingProxyType({}),
) -> Iterator[DoctorCheck]:
    """Return one check per agent. Required are the chosen agent and its successors; if none is chosen, any one."""
    adapters_by_name = all_adapters(described)
    logins = {name: adapter.check_auth(environment) for name, adapter in adapters_by_name.items()}
    usable = [name for name, login in logins.items() if not login.code]
    required = dict.fromkeys((chosen or next(iter(usable), Config().agent), *successors))
    for name, login in logins.items():
        yield _agent_check(name, login, adapters_by_name[name].capabilities().auth, name in required)
    for name in required:
        if name not in adapters_by_name:
            key = "failover" if name in successors else "agent"
            hint = f"set `{key}:` in mz.yaml to one of: {', '.join(adapters_by_name)}"
            yield DoctorCheck.fail(f"agent:{name}", "there is no such agent", hint)


def _agent_check(name: str, login: AuthCheck, methods: tuple[str, ...], required: bool) -> DoctorCheck:
    """Return the check of one agent; `methods` are its ways to log in."""
    check_name = f"agent:{name}"
    if not login.code:
        return DoctorCheck.ok(check_name, f"{login.version or 'unknown version'}, logged in")
    if not required:
        return DoctorCheck.ok(
            check_name, f"{'not installed' if login.code == 'tool-missing' else login.message} (optional)"
        )
    version = f"{login.version}; " if login.version else ""
    is_complete = login.code == "tool-missing" or all(method in login.fix for method in methods)
    hint = login.fix if is_complete else f"{login.fix} (ways to log in: {'; '.join(methods)})"
    return DoctorCheck.fail(check_name, f"{version}{login.message}", hint)


def price_table_check(now_seconds: float) -> DoctorCheck:
    """Check the age of the price table by the newest date that it names: the package has no date of its own."""
    version = importlib.metadata.version(PRICES_PACKAGE)
    newest = newest_date(
        _price_table_path().read_text("utf-8", "replace"), datetime.fromtimestamp(now_seconds, UTC).date()
    )
    if newest is None:
        return DoctorCheck.warn("prices", f"{PRICES_PACKAGE} {version} names no date", "update mz")
    days = (datetime.fromtimestamp(now_seconds, UTC).date() - newest).days
    summary = f"{PRICES_PACKAGE} {version}, newest price of {newest.isoformat()}, {days} days ago"
    if days > PRICES_DAYS_MAX:
        return DoctorCheck.warn("prices", summary, "new models may have no price, so their cost is unknown: update mz")
    return DoctorCheck.ok("prices", summary)


def own_prices_check(environment: Mapping[str, str]) -> DoctorCheck:
    """Check the user's own price file. Raises OSError."""
    try:
        rows = user_prices(environment)
    except MzError as error:
        return failed_check("own-prices", error, "`mz run --dry-run` shows all errors")
    return DoctorCheck.ok(
        "own-prices", f"{price_file(environment)}: {len(rows)} {'price' if len(rows) == 1 else 'prices'}"
    )


def newest_date(text: str, today: date) -> date | None:
    """Return the latest date in the text that is not in the future."""
    dates = []
    for match in DATES.finditer(text):
        year, month, day = (int(part) for part in match.groups() if part)
        with suppress(ValueError):
            dates.append(date(year, month, day))
    return max((day for day in dates if day <= today), default=None)


def _price_table_path() -> Path:
    """Return the price table's file without importing the package, which is slow. Raises OSError."""
    spec = importlib.util.find_spec(PRICES_PACKAGE.replace("-", "_"))
    if spec is None or spec.origin is None:
        raise FileNotFoundError(f"{PRICES_PACKAGE} is not installed")
    return Path(spec.origin).with_name("data.py")
