"""Pure: prompts from templates, sandboxed and strict.

A template sees the fields of `PromptData` and these filters: `fenced` (a code block that its content cannot close),
`quoted` (every line behind `> `, so that nothing inside can end the quotation), `code` (a code span) and `line` (white
space joined, one line).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from mz_engine.prompts.data import PromptData

if TYPE_CHECKING:
    from jinja2.sandbox import SandboxedEnvironment

SUFFIX = ".md.j2"
CONTINUATION = "continuation.md.j2"
BACKTICKS = re.compile(r"`+")
BLANK = re.compile(r"\n{3,}")
TELLING = 24
"""So many characters are not in a prompt by chance."""
KEPT = "\0"
"""Stands for a line break of what is shown, while blank lines that templates leave behind are squeezed."""


class TemplateBroken(Exception):
    """A template that cannot be rendered; the text is `NAME:LINE: why`."""

    def __init__(self, template: str, line: int | None, why: str) -> None:
        super().__init__(f"{template}:{line}: {why}" if line else f"{template}: {why}")
        self.template = template
        self.line = line
        self.why = why


def render(templates: Mapping[str, str], name: str, data: PromptData, continuation: bool = False) -> str:
    """The prompt, ending in one newline. Raises TemplateBroken.

    As a `continuation` of a session that was given this phase's prompt, only the rework and the notes of `data` are
    rendered. What `data` says to be known is left out by templates that look at it.
    """
    from jinja2 import TemplateError

    name = CONTINUATION if continuation and CONTINUATION in templates else name
    try:
        text = environment(templates).get_template(name).render(fields(data))
    except TemplateError as error:
        raise broken(name, error) from error
    except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError) as error:
        raise TemplateBroken(*place(name, error), f"{type(error).__name__}: {error}") from error
    return BLANK.sub("\n\n", text).strip().replace(KEPT, "\n") + "\n"


def shows(prompt: str, text: str) -> bool:
    """Whether a rendered prompt has the text in it, plain, fenced or quoted. Of a very short one nobody can tell."""
    plain = text.strip()
    return len(plain) >= TELLING and (plain in prompt or quoted(text).replace(KEPT, "\n") in prompt)


def environment(templates: Mapping[str, str]) -> SandboxedEnvironment:
    return _environment(tuple(sorted(templates.items())))


@lru_cache(maxsize=4)
def _environment(sources: tuple[tuple[str, str], ...]) -> SandboxedEnvironment:
    """Kept, since compiling a template costs more than rendering it ten times."""
    from jinja2 import FunctionLoader, StrictUndefined
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    templates = dict(sources)

    def load(name: str) -> tuple[str, str, None] | None:
        return (templates[name], name, None) if name in templates else None

    made = ImmutableSandboxedEnvironment(
        loader=FunctionLoader(load),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=printed,
    )
    made.filters |= {"fenced": fenced, "quoted": quoted, "code": code, "line": one_line}
    return made


def fields(data: PromptData) -> dict[str, Any]:
    return {name: getattr(data, name) for name in data.__struct_fields__}


def broken(name: str, error: Exception) -> TemplateBroken:
    """With the place that the error itself names, or else the deepest line of a template that was being rendered."""
    line = getattr(error, "lineno", None)
    template = getattr(error, "name", None) if line else None
    why = getattr(error, "message", None) or str(error) or type(error).__name__
    if line:
        return TemplateBroken(template or name, line, why)
    return TemplateBroken(*place(name, error), why)


def place(name: str, error: Exception) -> tuple[str, int | None]:
    found: tuple[str, int | None] = (name, None)
    trace = error.__traceback__
    while trace:
        file = trace.tb_frame.f_code.co_filename
        if file.endswith(SUFFIX):
            found = file, trace.tb_lineno
        trace = trace.tb_next
    return found


def fenced(text: str, language: str = "") -> str:
    """A code block with a fence longer than any run of backticks inside."""
    longest = max((len(run) for run in BACKTICKS.findall(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return keep(f"{fence}{language}\n", text.rstrip(), f"\n{fence}")


def quoted(text: str) -> str:
    """Every line behind `> `, whatever ends a line in any script."""
    return keep("\n".join(f"> {line}".rstrip() for line in text.strip().splitlines()) or ">")


class Kept(str):
    """Text whose line breaks were replaced by KEPT, by a filter of ours and nobody else."""

    __slots__ = ()


def keep(*parts: str) -> Kept:
    return Kept("".join(parts).replace(KEPT, "\ufffd").replace("\n", KEPT))


def printed(value: object) -> object:
    """What a template expression prints: a KEPT that stood in the data must not become a line break."""
    return value.replace(KEPT, "\ufffd") if isinstance(value, str) and not isinstance(value, Kept) else value


def code(text: str) -> str:
    """A code span that its content cannot close, in one line."""
    text = one_line(text)
    longest = max((len(run) for run in BACKTICKS.findall(text)), default=0)
    ticks = "`" * (longest + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{ticks}{pad}{text}{pad}{ticks}"


def one_line(text: str) -> str:
    """White space joined to single spaces."""
    return " ".join(text.split())
