"""Adapter: the checks of `mz doctor` that concern agents and what they cost."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime
from pathlib import Path
from types import MappingProxyType

from mz_engine.adapters.pricefile import price_file, user_prices
from mz_engine.adapters.prices import PACKAGE
from mz_engine.agents.contract import AuthCheck
from mz_engine.agents.generic_form import AgentDescription
from mz_engine.agents.registry import adapters
from mz_engine.check import Check, told
from mz_engine.config import Config
from mz_engine.errors import MzError

PRICES_DAYS_MAX = 90
DATES = re.compile(r"\b(20\d\d)-(\d\d)-(\d\d)\b|\bdate\((20\d\d), (\d{1,2}), (\d{1,2})\)")


def agents(
    environment: Mapping[str, str],
    chosen: str | None,
    successors: tuple[str, ...] = (),
    described: Mapping[str, AgentDescription] = MappingProxyType({}),
) -> Iterator[Check]:
    """One check an agent. Only the chosen one has to be there, and its successors; where none is chosen, any one."""
    known = adapters(described)
    found = {name: adapter.check_auth(environment) for name, adapter in known.items()}
    usable = [name for name, check in found.items() if not check.code]
    needed = dict.fromkeys((chosen or next(iter(usable), Config().agent), *successors))
    for name, check in found.items():
        yield _agent(name, check, known[name].capabilities().auth, name in needed)
    for name in needed:
        if name not in known:
            key = "failover" if name in successors else "agent"
            hint = f"set `{key}:` in mz.yaml to one of: {', '.join(known)}"
            yield Check.fail(f"agent:{name}", "there is no such agent", hint)


def _agent(name: str, check: AuthCheck, ways: tuple[str, ...], needed: bool) -> Check:
    title = f"agent:{name}"
    if not check.code:
        return Check.ok(title, f"{check.version or 'of an unknown version'}, logged in")
    if not needed:
        return Check.ok(title, f"{check.message}; not needed")
    version = f"{check.version}; " if check.version else ""
    told = check.code == "tool-missing" or all(way in check.fix for way in ways)
    hint = check.fix if told else f"{check.fix} (ways: {'; '.join(ways)})"
    return Check.fail(title, f"{version}{check.message}", hint)


def prices(now: float) -> Check:
    """The newest date that the price table names; the package does not say when its data were gathered."""
    version = importlib.metadata.version(PACKAGE)
    newest = newest_date(_table().read_text("utf-8", "replace"), datetime.fromtimestamp(now, UTC).date())
    if newest is None:
        return Check.warn("prices", f"{PACKAGE} {version} names no date", "update mz")
    days = (datetime.fromtimestamp(now, UTC).date() - newest).days
    said = f"{PACKAGE} {version}, newest price of {newest.isoformat()}, {days} days ago"
    if days > PRICES_DAYS_MAX:
        return Check.warn("prices", said, "new models may have no price, and count as unknown: update mz")
    return Check.ok("prices", said)


def own_prices(environment: Mapping[str, str]) -> Check:
    """The user's own price file. Raises OSError."""
    try:
        rows = user_prices(environment)
    except MzError as error:
        return told("own-prices", error, "`mz run --dry-run` shows all of it")
    return Check.ok("own-prices", f"{price_file(environment)}: {len(rows)} {'price' if len(rows) == 1 else 'prices'}")


def newest_date(text: str, today: date) -> date | None:
    """The last date in the text that is not in the future."""
    dates = []
    for found in DATES.finditer(text):
        year, month, day = (int(part) for part in found.groups() if part)
        with suppress(ValueError):
            dates.append(date(year, month, day))
    return max((each for each in dates if each <= today), default=None)


def _table() -> Path:
    """Found without importing the package, which takes long. Raises OSError."""
    spec = importlib.util.find_spec(PACKAGE.replace("-", "_"))
    if spec is None or spec.origin is None:
        raise FileNotFoundError(f"{PACKAGE} is not installed")
    return Path(spec.origin).with_name("data.py")
