"""Items of a backlog that is a list: a JSON Lines file, or the issues of a forge with a label.

A line of the file is one object (`ListedItem`). An issue is the item `issue-NUMBER`: its title and its text, which may
begin with front matter, `priority` and `depends_on` between two lines `---`; it is done when it is closed. HTML
comments are left out, since nobody sees them who reads the issue.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Literal

import msgspec
from mz_events.names import FeatureId, InvalidName, parse_name

from mz_engine.backlog.item import BacklogItem, ItemStatus
from mz_engine.backlog.markdown import PRIORITY_NAMES, check_dependencies, proposed_id, split_lines, strip_controls
from mz_engine.decoding.yaml import YamlDocument, decode_document, parse_yaml
from mz_engine.errors.diagnostics import Diagnostic, MzError, SourceLocation

FORGE_SOURCE = re.compile(r"github:(?:(?P<repository>[\w.-]+(?:/[\w.-]+){1,2})#)?(?P<label>\S(?:.*\S)?)")
"""`github:LABEL`, or `github:[HOST/]OWNER/NAME#LABEL` for issues of another repository than that of the remote."""
ISSUE_URL = re.compile(r"https://(?:github\.com/)?(?P<repository>\S+)/issues/(?P<number>\d+)")
ISSUE_ID = "issue-{}"
FRONT_MATTER = re.compile(
    r"(?P<before>\s*\n)?---[ \t]*\n(?P<yaml>(?:[ \t]*(?:[a-z][\w -]*:|-|#).*\n)*)---[ \t]*(?:\n|\Z)"
)
"""Only keys and lists: two rules with prose between them are text."""
COMMENT = re.compile(
    r"(?P<code>^[ \t]*(?P<fence>`{3,}|~{3,}).*?(?:^[ \t]*(?P=fence)|\Z))|<!--.*?(?:-->|\Z)", re.DOTALL | re.MULTILINE
)
"""A fenced block, which stays, or an HTML comment."""
Priorities = Literal["high", "medium", "low", "none"]


class ListedItem(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line of a JSON Lines backlog."""

    id: str
    title: str
    body: str = ""
    status: Literal["backlog", "in-progress", "done", "blocked"] = "backlog"
    priority: Priorities = "none"
    depends_on: tuple[str, ...] = ()


class FrontMatter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an issue says before its text."""

    priority: Priorities = "none"
    depends_on: tuple[Annotated[int, msgspec.Meta(ge=1)], ...] = ()
    """Numbers of issues."""


class IssueLabel(msgspec.Struct, frozen=True, kw_only=True):
    name: str


class Issue(msgspec.Struct, frozen=True, kw_only=True):
    """An issue as GitHub's REST API lists it."""

    number: int
    title: str
    html_url: str
    body: str | None = None
    state: str = "open"
    labels: tuple[IssueLabel, ...] = ()
    pull_request: msgspec.Raw | None = None
    """Pull requests are listed among the issues."""

    @property
    def is_open(self) -> bool:
        return self.state == "open"


def parse_json_lines(text: str, name: str) -> tuple[BacklogItem, ...]:
    """Return the items of a file of JSON Lines, in its order. Raises MzError with all errors and their lines: MZ2003 no
    JSON, MZ2005 to MZ2007 wrong keys and values, and those of ids and dependencies as `parse_backlog`."""
    items, errors = list[BacklogItem](), list[Diagnostic]()
    for number, line in enumerate(split_lines(text), 1):
        if line.strip():
            location = SourceLocation(name, number, 1)
            try:
                value = msgspec.json.decode(line)
                document = YamlDocument(name, value, {(): location}, {})
                items.append(listed_item(decode_document(document, ListedItem), name, len(items), number))
            except (msgspec.DecodeError, RecursionError) as error:
                errors.append(Diagnostic(code="MZ2003", message=f"no JSON: {error}", location=location))
            except MzError as error:
                errors += error.diagnostics
    if not items and not errors:
        raise MzError("MZ4001", "the backlog has no features", location=SourceLocation(name))
    return _checked(items, errors)


def issue_items(issues: Iterable[Issue]) -> tuple[BacklogItem, ...]:
    """Return the items of the open issues, and those closed ones that they depend on. Raises MzError as
    `parse_json_lines` does, with the issue's address as file."""
    listed, items, errors = tuple(issues), list[BacklogItem](), list[Diagnostic]()
    for issue in (issue for issue in listed if issue.is_open):
        body = COMMENT.sub(
            lambda match: match["code"] or "\n" * match[0].count("\n"), "\n".join(split_lines(issue.body or ""))
        )
        front, matter = FrontMatter(), FRONT_MATTER.match(body)
        try:
            if matter is not None:
                text = f"{matter['before'] or ''}\n{matter['yaml']}"
                front = decode_document(parse_yaml(text, issue.html_url), FrontMatter)
                body = body[matter.end() :]
        except MzError as error:
            errors += error.diagnostics
        entry = ListedItem(
            id=ISSUE_ID.format(issue.number),
            title=issue.title,
            body=body,
            priority=front.priority,
            depends_on=tuple(ISSUE_ID.format(number) for number in front.depends_on),
        )
        body_line = matter[0].count("\n") + 1 if matter else 1
        items.append(listed_item(entry, issue.html_url, len(items), body_line=body_line))
    needed = {name for item in items for name in item.depends_on}
    for issue in listed:
        if not issue.is_open and (id_ := ISSUE_ID.format(issue.number)) in needed:
            done = ListedItem(id=id_, title=issue.title, status="done")
            items.append(listed_item(done, issue.html_url, len(items)))
    return _checked(items, errors)


def issue_of(source: str) -> str:
    """Return `[HOST/]OWNER/NAME#NUMBER` of the issue that is an item's source; empty: it is none."""
    match = ISSUE_URL.match(source)
    return f"{match['repository']}#{match['number']}" if match else ""


def _checked(items: list[BacklogItem], errors: list[Diagnostic]) -> tuple[BacklogItem, ...]:
    lines: dict[str, int] = {}
    for item in items:
        location = SourceLocation(item.file, item.line)
        try:
            parse_name(item.id)
        except InvalidName as error:
            hint = f"for example `{proposed_id(item.id or item.title)}`"
            errors.append(Diagnostic(code="MZ4003", message=str(error), hint=hint, location=location))
        if not item.title:
            errors.append(Diagnostic(code="MZ4002", message=f"`{item.id[:80]}` has no title", location=location))
        if (first := lines.setdefault(item.id.lower(), item.line)) != item.line:
            message = f"duplicate id: line {first} has `{item.id[:80]}` already; ids must differ in more than case"
            hint = "change one of the two ids"
            errors.append(Diagnostic(code="MZ4004", message=message, hint=hint, location=location))
    links: dict[str, dict[str, SourceLocation]] = {
        item.id: dict.fromkeys(item.depends_on, SourceLocation(item.file, item.line)) for item in items
    }
    errors += check_dependencies(links, complete=not errors)
    if errors:
        raise MzError.from_diagnostics(errors)
    return tuple(items)


def listed_item(listed: ListedItem, file: str, order: int, line: int = 1, body_line: int | None = None) -> BacklogItem:
    """Return the item without control characters. `body_line`: line of the body's first line; None: all of it is in
    one line."""
    lines = [strip_controls(text).rstrip() for text in split_lines(listed.body)]
    filled = [index for index, line in enumerate(lines) if line]
    first, end = (filled[0], filled[-1] + 1) if filled else (0, 0)
    return BacklogItem(
        id=FeatureId(listed.id),
        title=" ".join(strip_controls(listed.title.replace("\n", " ")).split()),
        body="\n".join(lines[first:end]),
        status=ItemStatus(listed.status),
        priority=PRIORITY_NAMES[listed.priority],
        depends_on=tuple(map(FeatureId, dict.fromkeys(listed.depends_on))),
        order=order,
        source=f"{file}#{listed.id}",
        line=line,
        body_lines=tuple(line if body_line is None else body_line + index for index in range(first, end)),
    )
