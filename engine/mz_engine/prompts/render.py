"""Render prompts from templates, sandboxed and strict.

A template has the fields of `PromptData` and these filters: `fenced` (a code block that its content cannot close),
`quoted` (every line behind `> `, so that nothing inside can end the quotation), `code` (a code span) and `line` (white
space joined, one line)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from mz_engine.prompts.data import PromptData

if TYPE_CHECKING:
    from jinja2.sandbox import SandboxedEnvironment

TEMPLATE_SUFFIX = ".md.j2"
CONTINUATION = "continuation.md.j2"
BACKTICKS = re.compile(r"`+")
BLANK_LINES = re.compile(r"\n{3,}")
DISTINCTIVE_CHARS_MIN = 24
"""A text this long does not occur in a prompt by chance."""
KEPT_NEWLINE = "\0"
"""Replaces line breaks of shown data while blank lines left by templates are removed."""


class TemplateError(Exception):
    """A template that cannot be rendered; the text is `NAME:LINE: reason`."""

    def __init__(self, template: str, line: int | None, reason: str) -> None:
        super().__init__(f"{template}:{line}: {reason}" if line else f"{template}: {reason}")
        self.template = template
        self.line = line
        self.reason = reason


def render(templates: Mapping[str, str], name: str, data: PromptData, continuation: bool = False) -> str:
    """Return the prompt, ending in one newline. Raises TemplateError.

    As a `continuation` of a session that received this phase's prompt, only the rework and the notes of `data` are
    rendered. Templates may leave out what is in `data.known`."""
    import jinja2

    name = CONTINUATION if continuation and CONTINUATION in templates else name
    try:
        text = template_environment(templates).get_template(name).render(template_fields(data))
    except jinja2.TemplateError as error:
        raise template_error(name, error) from error
    except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError) as error:
        raise TemplateError(*error_location(name, error), f"{type(error).__name__}: {error}") from error
    return BLANK_LINES.sub("\n\n", text).strip().replace(KEPT_NEWLINE, "\n") + "\n"


def contains_text(prompt: str, text: str) -> bool:
    """Return True if a rendered prompt contains the text, plain, fenced or quoted; False for very short texts."""
    plain = text.strip()
    return len(plain) >= DISTINCTIVE_CHARS_MIN and (
        plain in prompt or quoted(text).replace(KEPT_NEWLINE, "\n") in prompt
    )


def template_environment(templates: Mapping[str, str]) -> SandboxedEnvironment:
    return _environment(tuple(sorted(templates.items())))


@lru_cache(maxsize=4)
def _environment(sources: tuple[tuple[str, str], ...]) -> SandboxedEnvironment:
    """Return a cached environment: compiling a template costs more than rendering it ten times."""
    from jinja2 import FunctionLoader, StrictUndefined
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    templates = dict(sources)

    def load(name: str) -> tuple[str, str, None] | None:
        return (templates[name], name, None) if name in templates else None

    sandbox = ImmutableSandboxedEnvironment(
        loader=FunctionLoader(load),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=finalize_value,
    )
    sandbox.filters |= {"fenced": fenced, "quoted": quoted, "code": code, "line": one_line}
    return sandbox


def template_fields(data: PromptData) -> dict[str, Any]:
    return {name: getattr(data, name) for name in data.__struct_fields__}


def template_error(name: str, error: Exception) -> TemplateError:
    """Convert an error, with the location that it names, or else the deepest line of a template being rendered."""
    line = getattr(error, "lineno", None)
    template = getattr(error, "name", None) if line else None
    reason = getattr(error, "message", None) or str(error) or type(error).__name__
    if line:
        return TemplateError(template or name, line, reason)
    return TemplateError(*error_location(name, error), reason)


def error_location(name: str, error: Exception) -> tuple[str, int | None]:
    location: tuple[str, int | None] = (name, None)
    trace = error.__traceback__
    while trace:
        file = trace.tb_frame.f_code.co_filename
        if file.endswith(TEMPLATE_SUFFIX):
            location = file, trace.tb_lineno
        trace = trace.tb_next
    return location


def fenced(text: str, language: str = "") -> str:
    """Return a code block with a fence longer than any run of backticks inside."""
    longest = max((len(run) for run in BACKTICKS.findall(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return keep_newlines(f"{fence}{language}\n", text.rstrip(), f"\n{fence}")


def quoted(text: str) -> str:
    """Put every line behind `> `, with the line ends of any script."""
    return keep_newlines("\n".join(f"> {line}".rstrip() for line in text.strip().splitlines()) or ">")


class KeptText(str):
    """Text whose line breaks a filter of mz replaced by KEPT_NEWLINE."""

    __slots__ = ()


def keep_newlines(*parts: str) -> KeptText:
    return KeptText("".join(parts).replace(KEPT_NEWLINE, "\ufffd").replace("\n", KEPT_NEWLINE))


def finalize_value(value: object) -> object:
    """Remove the replacement character from data: it must not become a line break."""
    return (
        value.replace(KEPT_NEWLINE, "\ufffd") if isinstance(value, str) and not isinstance(value, KeptText) else value
    )


def code(text: str) -> str:
    """Return a code span in one line that its content cannot close."""
    text = one_line(text)
    longest = max((len(run) for run in BACKTICKS.findall(text)), default=0)
    ticks = "`" * (longest + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{ticks}{pad}{text}{pad}{ticks}"


def one_line(text: str) -> str:
    """Join white space to single spaces."""
    return " ".join(text.split())
