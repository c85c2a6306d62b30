"""Adapter: `--json`: one object that names its schema. Structs say its shape; unknown values are null, never zero."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import msgspec


def document(command: str, body: msgspec.Struct | Mapping[str, object]) -> str:
    """`{"schema": "mz.<command>/1", ...}`, indented, without a final line end."""
    plain = msgspec.to_builtins(body)
    return msgspec.json.format(msgspec.json.encode({"schema": f"mz.{command}/1", **plain}), indent=2).decode()


def show_document(command: str, body: msgspec.Struct | Mapping[str, object]) -> None:
    sys.stdout.write(document(command, body) + "\n")
