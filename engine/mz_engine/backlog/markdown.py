"""Pure: the Markdown backlog, from text to items.

A feature begins with a heading of level 2, `## [STATUS] id: title`, and goes on to the next one. Lines such as
`- priority: high`, `- labels: a, b` and `- depends on: x, y` say more about it, a suffix `[p:high]` of the title too;
all the rest is its body. Code fences are body, whatever is in them; HTML comments are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches

import msgspec
from mz_events.names import BadName, FeatureId, parse_name

from mz_engine.backlog.item import Item, ItemStatus, Priority
from mz_engine.backlog.lines import Kind, Line, classify, without_controls
from mz_engine.backlog.links import check_links
from mz_engine.errors import Diagnostic, MzError, Place
from mz_engine.shape import nearest

STATUSES = {
    "FEAT": ItemStatus.BACKLOG,
    "WIP": ItemStatus.IN_PROGRESS,
    "DONE": ItemStatus.DONE,
    "BLOCKED": ItemStatus.BLOCKED,
}
"""Any other word in the brackets means backlog, unless it is nearly one of these."""

PRIORITIES = {each.name.lower(): each for each in Priority}
FORM = "## [FEAT] an-id: A title"

_HEADING = re.compile(r" {0,3}##[ \t]+\[([A-Za-z][A-Za-z _-]{0,30})\]([^:]*):(.*)\Z", re.DOTALL)
_NEAR_HEADING = re.compile(
    r" {0,3}(?:#{1,6}[ \t]*\[(?:feat|wip|done|blocked)\b"
    r"|##[ \t]*\[[a-z][a-z _-]{0,30}\](?![(\[:])"
    r"|#{2,6}[ \t]*(?:feat|wip|(?-i:DONE|BLOCKED))\b"
    r"|\[feat\][ \t]*[\w-]+[ \t]*:)",
    re.IGNORECASE,
)
_META = re.compile(r" {0,3}(?:[-*+][ \t]+)?(labels|priority|depends?[ _-]on)[ \t]*:(.*)\Z", re.IGNORECASE | re.DOTALL)


class _Draft(msgspec.Struct):
    """A feature while its lines are read."""

    id: str
    title: str
    status: ItemStatus
    line: int
    priority: Priority | None = None
    depends_on: dict[str, int] = {}
    """Id -> line, in the order of the text."""
    labels: list[str] = []
    body: list[str] = []


def parse_backlog(text: str, name: str) -> tuple[Item, ...]:
    """The items of a Markdown backlog in the order of the text; `name` is what messages and sources call the file.

    Raises MzError with everything that is wrong: MZ4001 empty, MZ4002 malformed heading, MZ4003 illegal id, MZ4004
    duplicate id, MZ4005 unknown, MZ4007 own and MZ4008 cyclic dependency, MZ4006 unknown priority, MZ4009 a fence or
    comment that swallows features."""
    reader = _Reader(name)
    for line in classify(text):
        reader.read(line)
    drafts = reader.drafts
    found = sorted(reader.found, key=lambda each: (each.place.line, each.place.column) if each.place else (0, 0))
    if not drafts and not found:
        hint = f"a feature begins with a heading such as\n{FORM}"
        found = [Diagnostic(code="MZ4001", message="there is no feature in it", hint=hint, place=Place(name))]
    links = {draft.id: draft.depends_on for draft in drafts}
    found += check_links(links, name, complete=not any(each.code in ("MZ4002", "MZ4003") for each in found))
    if found:
        raise MzError.of(found)
    return tuple(_item(draft, order, name) for order, draft in enumerate(drafts))


def _item(draft: _Draft, order: int, name: str) -> Item:
    return Item(
        id=FeatureId(draft.id),
        title=draft.title,
        body="\n".join(draft.body).strip("\n"),
        status=draft.status,
        priority=Priority.NONE if draft.priority is None else draft.priority,
        depends_on=tuple(FeatureId(each) for each in draft.depends_on),
        labels=tuple(draft.labels),
        order=order,
        source=f"{name}#{draft.id}",
        line=draft.line,
    )


class _Reader:
    """Collects drafts and what is wrong, line by line. A feature whose heading is wrong is left out, its lines too."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.drafts: list[_Draft] = []
        self.current: _Draft | None = None
        self.found: list[Diagnostic] = []
        self.seen: dict[str, _Draft] = {}

    def read(self, line: Line) -> None:
        match line.kind:
            case Kind.UNCLOSED:
                said = f"the {line.text} that begins here is never closed and swallows the features after it"
                self.wrong("MZ4009", said, line.number)
            case Kind.TEXT if heading := _HEADING.match(line.text):
                self.heading(heading, line.number)
            case Kind.TEXT if _NEAR_HEADING.match(line.text):
                self.current = None
                shown = without_controls(line.text).strip()[:80]
                hint = f"a feature begins with a heading such as `{FORM}`"
                self.wrong("MZ4002", f"{shown!r} is not the heading of a feature", line.number, 1, hint)
            case Kind.TEXT if self.current and (meta := _META.match(line.text)):
                self.meta(self.current, meta, line.number)
            case Kind.TEXT | Kind.CODE if self.current:
                self.current.body.append(without_controls(line.text).rstrip())

    def heading(self, found: re.Match[str], number: int) -> None:
        word, id_text, rest = (part.strip() for part in found.groups())
        self.current = None
        status = STATUSES.get(word.upper())
        if status is None and (near := get_close_matches(word.upper(), STATUSES, n=1, cutoff=0.7)):
            said = f"[{word}] is no status"
            self.wrong("MZ4002", said, number, found.start(1), f"did you mean [{near[0]}]?")
            return
        draft = _Draft(id=id_text, title="", status=status or ItemStatus.BACKLOG, line=number)
        self.title(draft, rest, number, found.start(3) + 1)
        if self.legal(draft, found.end(2) - len(found[2].lstrip()) + 1):
            self.seen[draft.id.lower()] = draft
            self.drafts.append(draft)
            self.current = draft

    def title(self, draft: _Draft, text: str, number: int, column: int) -> None:
        title = without_controls(text).strip()
        if title.endswith("#"):
            bare = title.rstrip("#")
            title = bare.strip() if not bare or bare.endswith((" ", "\t")) else title
        at = title.lower().rfind("[p:")
        if at >= 0 and title.find("]", at) == len(title) - 1:
            draft.priority = self.priority(title[at + 3 : -1], number)
            title = title[:at].rstrip()
        draft.title = title
        if not title:
            self.wrong("MZ4002", "the feature has no title", number, column, f"write it after the colon: `{FORM}`")

    def legal(self, draft: _Draft, column: int) -> bool:
        try:
            parse_name(draft.id)
        except BadName as error:
            said = str(error) if draft.id else "the feature has no id"
            self.wrong("MZ4003", said, draft.line, column, _proposal(draft.id or draft.title))
            return False
        first = self.seen.get(draft.id.lower())
        if first:
            case = "" if first.id == draft.id else f" as `{first.id}`, and ids must differ in more than case"
            self.wrong("MZ4004", f"the id `{draft.id}` stands in line {first.line} already{case}", draft.line, column)
        return first is None

    def meta(self, draft: _Draft, found: re.Match[str], number: int) -> None:
        key, value = found[1].lower(), without_controls(found[2])
        words = list(_words(value))
        if key == "labels":
            draft.labels += [word for word in words if word not in draft.labels]
        elif key == "priority":
            draft.priority = self.priority(value.strip(), number)
        else:
            for word in words:
                if word.lower() not in ("none", "-"):
                    draft.depends_on.setdefault(word, number)

    def priority(self, word: str, number: int) -> Priority | None:
        found = PRIORITIES.get(word.strip().lower())
        if found is None:
            hint = nearest(word, PRIORITIES) or f"known here: {', '.join(PRIORITIES)}"
            self.wrong("MZ4006", f"{word[:40]!r} is no priority", number, 0, hint)
        return found

    def wrong(self, code: str, message: str, line: int, column: int = 0, hint: str = "") -> None:
        self.found.append(Diagnostic(code=code, message=message, hint=hint, place=Place(self.name, line, column)))


def _words(value: str) -> Iterator[str]:
    for part in value.split(","):
        word = part.strip().strip("`").strip()
        if word:
            yield word


def _proposal(text: str) -> str:
    slug = re.sub(r"[^A-Za-z0-9_]+", "-", text[:200]).strip("-_")[:64].rstrip("-")
    return f"`{slug}` would do" if slug else f"the form is `{FORM}`"
