"""The templates that come with `mz`."""

from __future__ import annotations

from importlib import resources
from itertools import chain

TEMPLATE_SUFFIX = ".j2"


def load_templates() -> dict[str, str]:
    """Return the built-in templates by name, such as `prd.md.j2` and `partials/rework.md.j2`."""
    folder = resources.files("mz_engine.prompts") / "templates"
    entries = chain(
        ((entry.name, entry) for entry in folder.iterdir()),
        ((f"partials/{entry.name}", entry) for entry in (folder / "partials").iterdir()),
    )
    return {name: entry.read_text("utf-8") for name, entry in sorted(entries) if name.endswith(TEMPLATE_SUFFIX)}
