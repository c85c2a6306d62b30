"""A sandbox of jinja2 that counts steps: turns of loops, calls, filters, operators. A template fails in a replay too.
Not limited: what one step does inside Python, as with a width in a format string; recursive loops; inclusion."""

from collections.abc import Callable, Generator, Iterable
from contextvars import ContextVar
from functools import wraps
from typing import Any

from jinja2 import TemplateRuntimeError, nodes, pass_context
from jinja2.sandbox import ImmutableSandboxedEnvironment

STEPS_MAX, SIZE_MAX, SIZE_PER_STEP = 200_000, 10_000_000, 500
"""A built-in prompt takes some hundred steps. Size is that of one value: characters, items, tenths of a bit."""
ITEMS, TURNS = (str, list, tuple, dict, range), "turns of a loop"
steps_left = ContextVar("steps_left", default=STEPS_MAX)


class LimitedEnvironment(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def __init__(self, filters: dict[str, Callable[..., str]], **options: Any) -> None:
        super().__init__(**options)
        self.filters = {name: _counted(function) for name, function in (self.filters | filters).items()}
        # With the context, or the compiler would evaluate it.
        self.filters[TURNS] = pass_context(lambda context, items: (item for item in items if _spend()))
        del self.globals["lipsum"]  # Random text of any length.

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        for loop in tree.find_all(nodes.For):
            loop.iter = nodes.Filter(loop.iter, TURNS, [], [], None, None, environment=self)
        for text in tree.find_all(nodes.Concat):
            text.nodes = [nodes.Filter(node, "string", [], [], None, None, environment=self) for node in text.nodes]
        return tree

    def call(self, *args: Any, **kwargs: Any) -> Any:
        return _counted(super().call)(*args, **kwargs)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        value, times = (right, left) if isinstance(right, ITEMS) else (left, right)
        if isinstance(times, int) and (operator == "**" or (operator == "*" and isinstance(value, ITEMS))):
            _spend(range(_size(value) * times))
        return _counted(super().call_binop)(context, operator, left, right)

    def concat(self, pieces: Iterable[str]) -> str:
        _spend(range(sum(map(len, written := list(pieces)))))
        return "".join(written)


def _counted(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def counted(*args: Any, **kwargs: Any) -> Any:
        _spend(*args)
        result = function(*args, **kwargs)
        _spend(result)
        return (item for item in result if _spend(item)) if isinstance(result, Generator) else result

    return counted


def _spend(*values: Any) -> bool:
    sizes = [_size(value) for value in values]
    steps_left.set(steps_left.get() - 1 - sum(sizes) // SIZE_PER_STEP)
    if max(sizes, default=0) > SIZE_MAX or steps_left.get() < 0:
        raise TemplateRuntimeError(f"rendering takes more than {STEPS_MAX:,} steps or {SIZE_MAX:,} characters")
    return True


def _size(value: Any) -> int:
    return len(value) if isinstance(value, ITEMS) else value.bit_length() * 10 if isinstance(value, int) else 0
