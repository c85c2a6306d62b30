"""Render prompts from templates, sandboxed and strict.

A template has the fields of `PromptData` and these filters: `fenced` (a code block that its content cannot close),
`quoted` (every line behind `> `, so that nothing inside can end the quotation), `code` (a code span) and `line` (white
space joined, one line). Templates of edits also have `json` (the value as JSON, in one line)."""

from __future__ import annotations

import re
import traceback
from collections.abc import Mapping
from functools import lru_cache
from importlib import resources
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec.structs import asdict

from mz_engine.model.config import Limits
from mz_engine.ports import SelectedLearning

if TYPE_CHECKING:
    from jinja2.sandbox import SandboxedEnvironment

TEMPLATE_SUFFIX = ".j2"
CONTINUATION = "continuation.md.j2"
EDITS_FOLDER = "edits/"
"""Templates below it are of files that edits write; they have the fields of `EditData`."""
LATER_PARTIALS = {
    "learnings": "partials/learnings.md.j2",
    "notes": "partials/notes.md.j2",
    "rework": "partials/rework.md.j2",
}
"""By variable: what follows a template that does not know it."""
TEMPLATE_FAILURES = (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError, MemoryError)
"""What an expression of a template may raise, beside the errors of jinja2."""
BACKTICKS = re.compile(r"`+")
BLANK_LINES = re.compile(r"\n{3,}")
DISTINCTIVE_CHARS_MIN = 24
"""A text this long does not occur in a prompt by chance."""
KEPT_NEWLINE = "\0"
"""Replaces line breaks of shown data while blank lines left by templates are removed."""


# data of a template: no date, id, absolute path or measured value -----------------------------------------------------
class OutputData(msgspec.Struct, frozen=True, kw_only=True):
    artifact: str
    path: str | None
    """None: the reply itself is the artifact."""
    requirements: tuple[str, ...]
    """Text of every enforced rule, from the rule set that the validator uses."""
    schema: str = ""
    """Path of its JSON Schema in the worktree; empty for Markdown."""


class CommandData(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    command: str
    passed: bool
    excerpt: str
    """Normalised output; empty if it passed without output of interest."""


class UnitData(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    files: tuple[str, ...]
    depends_on: tuple[str, ...] = ()
    fields: dict[str, str] = {}
    """Those that its rule set extracts."""
    record: str = ""
    """All that its artifact says of it, as JSON."""


class ReworkData(msgspec.Struct, frozen=True, kw_only=True):
    """The previous reply was rejected: the exact messages, and its artifacts."""

    messages: tuple[str, ...]
    artifacts: dict[str, str]
    """Rejected text by path (or artifact name for a reply)."""
    hints: tuple[str, ...] = ()
    """Learnings about the same failure."""


class ContextFile(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    text: str


class HeadText(msgspec.Struct, frozen=True, kw_only=True):
    """A text that stands before the template's: a persona, or a skill."""

    source: Literal["persona", "skill"]
    name: str
    text: str


class SeenContent(msgspec.Struct, frozen=True, kw_only=True):
    """Content that the continued session has already seen verbatim; nothing in a new session."""

    rules: bool = False
    request: bool = False
    inputs: tuple[str, ...] = ()
    """Names of artifacts."""
    files: tuple[str, ...] = ()
    """Paths of context files."""


class PromptData(msgspec.Struct, frozen=True, kw_only=True):
    feature: str
    title: str
    body: str
    """The request after screening; templates fence it as untrusted."""
    phase: str
    role: str
    unit: UnitData | None
    inputs: dict[str, str]
    """Artifact name -> text; of a phase with several units, the texts of all of them."""
    outputs: tuple[OutputData, ...]
    prepared: tuple[CommandData, ...]
    gates: tuple[CommandData, ...]
    """Commands that will check the result; `excerpt` is empty."""
    may_change: tuple[str, ...]
    """Patterns, outputs included."""
    denied: tuple[str, ...]
    scope: str = ""
    """Folder to which changes are limited, except for outputs; empty: there is none."""
    limits: Limits
    interactive: bool
    """False: never ask; choose the most defensible option and write the assumption down."""
    rework: ReworkData | None
    notes: tuple[str, ...]
    """From a person, or from the phase that rolled back."""
    context: tuple[ContextFile, ...]
    context_left_out: tuple[str, ...] = ()
    """Paths of context files that do not fit."""
    known: SeenContent = SeenContent()
    """Optional for templates: one that ignores it renders the full prompt in a session too."""
    causes: tuple[str, ...] = ()
    """Causes of blocks: for a reviewer all in the phase's `on_block`, for the builder those that it may raise."""
    block: OutputData | None = None
    """The file that the builder may write instead of its outputs, to block the phase."""
    learnings: tuple[SelectedLearning, ...] = ()
    """What earlier work taught; `rework.hints` has the texts of those about the failure to fix."""
    known_failures: tuple[str, ...] = ()
    """Ids of tests whose failure in a command of the phase is known: from the base, or accepted by a person."""
    is_scoped: bool = False
    """The agent sees only some files of the repository."""
    known_failures_left_out: int = 0
    """Number of those that do not fit."""
    head: tuple[HeadText, ...] = ()
    """What stands before the prompt; templates need not show it."""


class ItemData(msgspec.Struct, frozen=True, kw_only=True):
    """Another item of the run."""

    id: str
    kind: str
    title: str
    state: str
    """As a `FeatureOutcome`; open: nothing became of it yet. One that may be begun again is `failed` until then."""
    attempts: int
    """How often it was begun."""
    code: str
    """Why it failed; empty: it did not."""
    depends_on: tuple[str, ...]
    files: tuple[str, ...]
    """Those that its entry in the plan lists."""


class EditData(msgspec.Struct, frozen=True, kw_only=True):
    """Data of the template of a file that an edit writes."""

    item: str
    """Id of the feature."""
    title: str
    body: str
    """The request after screening."""
    items: tuple[ItemData, ...]
    """Items of the kinds that the phase has as inputs, in the order in which they were added."""
    base: str
    """Name of the base branch."""
    integration: str
    """Name of the integration branch; empty: the run has none."""


# rendering ------------------------------------------------------------------------------------------------------------
class TemplateError(Exception):
    """A template that cannot be rendered; the text is `NAME:LINE: reason`."""

    def __init__(self, template: str, line: int | None, reason: str) -> None:
        super().__init__(f"{template}:{line}: {reason}" if line else f"{template}: {reason}")
        self.template, self.line, self.reason = template, line, reason


def load_templates() -> dict[str, str]:
    """Return the templates that come with `mz` by name, such as `prd.md.j2` and `partials/rework.md.j2`."""
    entries = {entry.name: entry for entry in (resources.files("mz_engine.prompts") / "templates").iterdir()}
    for folder in [name for name, entry in entries.items() if entry.is_dir()]:
        entries |= {f"{folder}/{entry.name}": entry for entry in entries.pop(folder).iterdir()}
    return {name: entry.read_text("utf-8") for name, entry in sorted(entries.items()) if name.endswith(TEMPLATE_SUFFIX)}


def render(templates: Mapping[str, str], name: str, data: PromptData, continuation: bool = False) -> str:
    """Return the prompt, ending in one newline. Raises TemplateError.

    As a `continuation` of a session that received this phase's prompt, only the rework and the notes of `data` are
    rendered. Templates may leave out what is in `data.known`; where one does not know learnings, notes or rework,
    they follow it, since what a person answers or why a reply was rejected must not get lost. `limits.py` limits work
    and size."""
    name = CONTINUATION if continuation and CONTINUATION in templates else name
    text = "\n\n".join(_rendered_texts(templates, name, data, LATER_PARTIALS))
    return BLANK_LINES.sub("\n\n", text).strip().replace(KEPT_NEWLINE, "\n") + "\n"


def render_edit(templates: Mapping[str, str], name: str, data: EditData) -> str:
    """Return the text of a file that an edit writes. Raises TemplateError."""
    return _rendered_texts(templates, name, data, {})[0]


def _rendered_texts(
    templates: Mapping[str, str], name: str, data: PromptData | EditData, later: Mapping[str, str]
) -> list[str]:
    """Return the text of the template, and those of the `later` ones whose variable it does not know."""
    import jinja2

    from mz_engine.prompts.limits import STEPS_MAX, steps_left

    sources = tuple(sorted(templates.items()))
    environment, values = _environment(sources), asdict(data)
    steps_left.set(STEPS_MAX)
    try:
        texts = [environment.get_template(name).render(values)]
        for variable, partial in later.items():
            if values[variable] and partial in templates and variable not in known_variables(sources, name):
                texts.append(environment.get_template(partial).render(values))
        return texts
    except (jinja2.TemplateError, *TEMPLATE_FAILURES) as error:
        raise template_error(name, error) from error


@lru_cache(maxsize=128)
def known_variables(sources: tuple[tuple[str, str], ...], name: str) -> frozenset[str]:
    """Return the variables that a template, or one that it includes or extends, refers to."""
    from jinja2 import meta

    tree = _environment(sources).parse(dict(sources)[name])
    others = {*dict(sources)} & {*meta.find_referenced_templates(tree)} - {name}
    return frozenset(meta.find_undeclared_variables(tree)).union(*(known_variables(sources, other) for other in others))


def shown_form(prompt: str, text: str) -> str:
    """Return the text as a rendered prompt contains it, plain, fenced or quoted; empty if it does not, and for very
    short texts."""
    plain = text.strip()
    if len(plain) < DISTINCTIVE_CHARS_MIN or plain in prompt:
        return plain if len(plain) >= DISTINCTIVE_CHARS_MIN else ""
    in_quotes = quoted(text).replace(KEPT_NEWLINE, "\n")
    return in_quotes if in_quotes in prompt else ""


def template_environment(templates: Mapping[str, str]) -> SandboxedEnvironment:
    return _environment(tuple(sorted(templates.items())))


@lru_cache(maxsize=32)
def _environment(sources: tuple[tuple[str, str], ...]) -> SandboxedEnvironment:
    """Return a cached environment: compiling a template costs more than rendering it ten times."""
    from jinja2 import FunctionLoader, StrictUndefined

    from mz_engine.prompts.limits import LimitedEnvironment

    # The name of a template is the file name in its code, from which an error gets its location.
    loader = FunctionLoader({name: (text, name, None) for name, text in sources}.get)
    return LimitedEnvironment(
        {"fenced": fenced, "quoted": quoted, "code": code, "line": one_line, "json": json_text},
        loader=loader,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=finalize_value,
    )


def template_error(name: str, error: Exception) -> TemplateError:
    """Convert an error, with the location that it names, or else the deepest line of a template being rendered."""
    line: int | None = getattr(error, "lineno", None)
    template: str = (getattr(error, "name", None) if line else None) or name
    if not line:
        for frame, number in traceback.walk_tb(error.__traceback__):
            if frame.f_code.co_filename.endswith(TEMPLATE_SUFFIX):
                template, line = frame.f_code.co_filename, number
    return TemplateError(template, line, getattr(error, "message", None) or f"{type(error).__name__}: {error}")


def fenced(text: str, language: str = "") -> str:
    """Return a code block with a fence longer than any run of backticks inside."""
    fence = "`" * max(3, _longest_ticks(text) + 1)
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
    if isinstance(value, str) and not isinstance(value, KeptText):
        return value.replace(KEPT_NEWLINE, "\ufffd")
    return value


def code(text: str) -> str:
    """Return a code span in one line that its content cannot close."""
    text = one_line(text)
    ticks = "`" * (_longest_ticks(text) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{ticks}{pad}{text}{pad}{ticks}"


def _longest_ticks(text: str) -> int:
    return max(map(len, BACKTICKS.findall(text)), default=0)


def json_text(value: object) -> str:
    return msgspec.json.encode(value).decode()


def one_line(text: str) -> str:
    """Join white space to single spaces."""
    return " ".join(text.split())
