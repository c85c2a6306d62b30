"""Rule sets and other data files that come with the package."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

import msgspec

from mz_engine.model.rules import RuleSet

SHARED_RULES_FILE = "shared.yaml"


@cache
def load_rules() -> dict[str, RuleSet]:
    """Return the built-in rule sets by name."""
    folder = resources.files("mz_engine.artifacts") / "rules"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".yaml"))
    sets = [assemble_rules(read_data(f"rules/{name}"), shared_rules()) for name in names if name != SHARED_RULES_FILE]
    return {rules.name: rules for rules in sets}


@cache
def shared_rules() -> dict[str, dict[str, Any]]:
    """Return the rules that sets include by `shared: NAME`."""
    return read_data(f"rules/{SHARED_RULES_FILE}")


def read_data(name: str) -> dict[str, Any]:
    """Parse a data file beside this module."""
    from mz_engine.decoding.yaml import load_yaml

    text = (resources.files("mz_engine.artifacts") / name).read_text("utf-8")
    return dict(load_yaml(text))


def assemble_rules(data: dict[str, Any], shared: dict[str, dict[str, Any]]) -> RuleSet:
    """Build a rule set from its YAML, with `shared: NAME` entries filled in. Raises msgspec.ValidationError."""
    rules = [
        {**shared[name], "id": f"{data['name']}.{name}"} | {key: rule[key] for key in rule if key != "shared"}
        if (name := rule.get("shared"))
        else rule
        for rule in data["rules"]
    ]
    return msgspec.convert({**data, "rules": rules}, RuleSet)
