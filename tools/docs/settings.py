"""Tables of settings, or of the keys of an agent's description, on a documentation page. `python -m tools.docs.settings
FILE` renews the one that the page has."""

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
from mz_engine.model.agent_description import AgentDescription
from mz_engine.model.config import Settings

TABLE_HEAD = "| setting | values | default | meaning |\n|---|---|---|---|\n"


def renew(page: str) -> str:
    """Return the page with new tables between its markers. Raises ValueError if it has none, or one without its end."""
    tables = {"settings": settings_tables, "description": description_table}
    name = next((name for name in tables if f"<!-- {name} -->\n" in page), "settings")
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
    before, _, text = page.partition(begin)
    if end not in text:
        raise ValueError(f"the page lacks {begin.strip()} or {end.strip()}")
    return f"{before}{begin}{tables[name]()}{end}{text.partition(end)[2]}"


def description_table() -> str:
    """Return the table of the keys of an agent's description."""
    return TABLE_HEAD.replace("setting", "key") + "".join(_description_rows(AgentDescription, "", {}))


def _description_rows(kind: type[object], prefix: str, first_uses: dict[type[object], str]) -> Iterator[str]:
    """Yield a row per key; the keys of a mapping follow it where it is first used."""
    struct = inspect.type_info(kind)
    assert isinstance(struct, inspect.StructType)
    for field in struct.fields:
        name, value, description = f"{prefix}{field.encode_name}", field.type, ""
        while isinstance(value, inspect.Metadata):
            description = description or str((value.extra_json_schema or {}).get("description", ""))
            value = value.type
        members = value.types if isinstance(value, inspect.UnionType) else (value,)
        item = members[0].item_type if isinstance(members[0], inspect.VarTupleType) else members[0]
        values = ", ".join(_values(field.type)) or "mapping"
        if isinstance(item, inspect.StructType):
            first = first_uses.setdefault(item.cls, name)
            values = f"as `{first}`" if first != name else values
            description = description or " ".join((item.cls.__doc__ or "").split())
        shown = field.default if isinstance(field.default, str | bool) else ""
        default = "required" if field.required else f"`{str(shown).lower()}`" if shown != "" else "none"
        yield f"| `{name}` | {values} | {default} | {description} |\n"
        if isinstance(item, inspect.StructType) and first_uses[item.cls] == name:
            yield from _description_rows(item.cls, f"{name}{'[]' if item is not members[0] else ''}.", first_uses)


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
        case inspect.BoolType():
            yield from ("`true`", "`false`")
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
