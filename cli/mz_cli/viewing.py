"""Adapter: the flags that say how a run is shown while it works; the same for all commands that drive or watch one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import click

from mz_cli.render.progress import Wish

F = TypeVar("F", bound=Callable[..., Any])
KEY = "mz_cli.wish"


def view_options(function: F) -> F:
    """Decorator: adds `--no-progress` and `--quiet`. `wished` answers what they say; the command takes no parameter."""
    quiet = click.option(
        "--quiet", "-q", is_flag=True, expose_value=False, callback=_remember("quiet"),
        help="Show nothing while it works but warnings.",
    )  # fmt: skip
    lines = click.option(
        "--no-progress", is_flag=True, expose_value=False, callback=_remember("lines"),
        help="Show a line for each change instead of a picture; MZ_NO_PROGRESS=1 does too.",
    )  # fmt: skip
    return lines(quiet(function))


def _remember(wish: Wish) -> Callable[[click.Context, click.Parameter, bool], bool]:
    def remember(context: click.Context, parameter: click.Parameter, value: bool) -> bool:
        if value and context.meta.get(KEY) != "quiet":
            context.meta[KEY] = wish
        return value

    return remember


def wished() -> Wish:
    """What the flags of the running command allow; a picture where nothing was said."""
    context = click.get_current_context(silent=True)
    return cast(Wish, context.meta.get(KEY, "picture")) if context else "picture"
