"""Tables of all settings on their documentation page. `python -m tools.docs.settings FILE` renews them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect
from mz_engine.config.schema import SettingInfo, list_settings
from mz_engine.decoding.quantity import Duration, encode_quantity
from mz_engine.model.config import Settings

BEGIN, END = "<!-- settings -->\n", "<!-- end of settings -->\n"
TABLE_HEAD = "| setting | values | default | meaning |\n|---|---|---|---|\n"


def renew(page: str) -> str:
    """Return the page with new tables between its markers. Raises ValueError if a marker is missing."""
    before, begin, text = page.partition(BEGIN)
    _, end, after = text.partition(END)
    if not begin or not end:
        raise ValueError(f"the page lacks {BEGIN.strip()} or {END.strip()}")
    return f"{before}{BEGIN}{settings_tables()}{END}{after}"


def settings_tables() -> str:
    """Return one Markdown table for the settings without a section, and one for each section."""
    settings = sorted(list_settings(), key=lambda setting: "." in setting.name)
    return "\n".join(_table(section, group) for section, group in groupby(settings, key=_section))


def _section(setting: SettingInfo) -> str:
    return setting.name.rpartition(".")[0]


def _table(section: str, settings: Iterable[SettingInfo]) -> str:
    heading = f"### `{section}`\n\n" if section else "### Top level\n\n"
    return heading + TABLE_HEAD + "".join(_row(setting) for setting in settings)


def _row(setting: SettingInfo) -> str:
    cells = (f"`{setting.name}`", ", ".join(_values(setting.type)), default_text(setting.name), setting.description)
    return f"| {' | '.join(cells)} |\n"


def _values(kind: inspect.Type) -> Iterator[str]:
    """Yield the kinds of values that a setting takes, without null."""
    match kind:
        case inspect.Metadata():
            yield from _values(kind.type)
        case inspect.UnionType():
            for member in kind.types:
                yield from _values(member)
        case inspect.CustomType():
            yield "duration" if kind.cls is Duration else "money"
        case inspect.LiteralType():
            yield from (f"`{value}`" for value in kind.values)
        case inspect.EnumType():
            yield from (f"`{member.value}`" for member in kind.cls)
        case inspect.IntType():
            yield f"number {_bounds(kind)}".rstrip()
        case inspect.StrType():
            yield "text"
        case inspect.VarTupleType():
            yield "list"
        case inspect.DictType():
            yield "mapping"


def _bounds(kind: inspect.IntType) -> str:
    match kind.ge, kind.le:
        case None, None:
            return ""
        case low, None:
            return f"≥ {low}"
        case low, high:
            return f"{low}-{high}"


def default_text(name: str) -> str:
    """Return the default of a setting as Markdown; `none` for null and empty values."""
    value: Any = msgspec.to_builtins(Settings(), enc_hook=encode_quantity)
    for key in name.split("."):
        value = value[key]
    if isinstance(value, list | tuple):
        return ", ".join(f"`{item}`" for item in value) or "none"
    return f"`{value}`" if value not in (None, {}) else "none"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(renew(path.read_text(encoding="utf-8")), encoding="utf-8")
