"""Display options of all commands that drive or watch a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import click

from mz_cli.render.progress import DisplayMode

F = TypeVar("F", bound=Callable[..., Any])
META_KEY = "mz_cli.wish"


def view_options(function: F) -> F:
    """Decorator: add `--no-progress` and `--quiet`, without a parameter; `display_mode` returns the result."""
    quiet = click.option(
        "--quiet", "-q", is_flag=True, expose_value=False, callback=_remember_mode("quiet"),
        help="Show only warnings while it works.",
    )  # fmt: skip
    no_progress = click.option(
        "--no-progress", is_flag=True, expose_value=False, callback=_remember_mode("lines"),
        help="Show one line per change instead of a live view; as does MZ_NO_PROGRESS=1.",
    )  # fmt: skip
    return no_progress(quiet(function))


def _remember_mode(mode: DisplayMode) -> Callable[[click.Context, click.Parameter, bool], bool]:
    def remember(context: click.Context, parameter: click.Parameter, value: bool) -> bool:
        if value and context.meta.get(META_KEY) != "quiet":
            context.meta[META_KEY] = mode
        return value

    return remember


def display_mode() -> DisplayMode:
    """Return the display mode that the flags of the running command allow; by default a live picture."""
    context = click.get_current_context(silent=True)
    return cast(DisplayMode, context.meta.get(META_KEY, "picture")) if context else "picture"
