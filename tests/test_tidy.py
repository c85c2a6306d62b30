"""The house style, as far as a machine can see it."""

from __future__ import annotations

import ast
import re
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.support.tree import PACKAGES, ROOT, kept_files, modules

MODULE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
PUT_OFF = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
BARE_IGNORE = re.compile(r"#\s*type:\s*ignore(?!\[)")
EVERYWHERE = ("/", "/tmp", "/home", "/root", "/usr", "/opt", "/srv", "/var")
"""Parents of a checkout that say nothing about the machine."""
TEXT = (".py", ".md", ".toml", ".yaml", ".yml", ".j2", ".txt", ".sh", "")
BANNED = frozenset(
    (
        "found", "told", "said", "each", "one", "known", "words", "place", "rest",
        "news", "owed", "heard", "asked", "given", "taken", "seen", "mend", "story",
        "wish", "whole", "upto", "carry", "lacks", "around", "alone",
    )
)  # fmt: skip
ALLOWED = {
    ("engine/mz_engine/prompts/render.py", "known")  # Templates of users name it.
}
"""Names that stored files or users' templates hold. The list may only shrink."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
NAME_FIELDS: dict[type[ast.AST], str] = {
    ast.Name: "id", ast.arg: "arg", ast.FunctionDef: "name", ast.AsyncFunctionDef: "name", ast.ClassDef: "name",
    ast.MatchAs: "name", ast.MatchStar: "name", ast.ExceptHandler: "name",
}  # fmt: skip
"""Where a node has the name that it defines; of `ast.Name` only if a value is stored in it."""
STORED = ast.Store()
CODE = tuple(modules(*PACKAGES, "tests", "tools"))


def text_of(path: Path) -> str:
    return (ROOT / path).read_text("utf-8", "replace")


@pytest.mark.slow
def test_modules_and_names_keep_the_style() -> None:
    """One test for all that needs syntax trees: to parse is most of its work. It keeps none: that would slow others."""
    used, broken = set(), []
    for path in CODE:
        tree = ast.parse(text_of(path), str(path))
        nodes = tuple(walk(tree))
        broken += [f"{path}:{finding}" for finding in style_findings(path, tree, nodes)]
        if "bundled" not in path.parts:
            names = (path.stem, *defined_names(nodes))
            used |= {(path.as_posix(), name) for name in names if name.strip("_").lower() in BANNED}
    assert not broken
    assert sorted(used - ALLOWED) == []
    assert sorted(ALLOWED - used) == [], "remove what is no longer needed"


def walk(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes as `ast.walk` does, in another order and in half its time: without contexts and constants."""
    nodes = [tree]
    while nodes:
        yield (node := nodes.pop())
        for value in vars(node).values():
            if type(value) is list:
                nodes += [part for part in value if isinstance(part, ast.AST)]
            elif isinstance(value, ast.AST) and not isinstance(value, ast.expr_context | ast.Constant):
                nodes.append(value)


def style_findings(path: Path, tree: ast.Module, nodes: Iterable[ast.AST]) -> Iterator[str]:
    if not ast.get_docstring(tree):
        yield "1 opens without a docstring"
    for statement in tree.body if path.name != "conftest.py" else ():
        documents = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if isinstance(statement, ast.Expr | ast.For | ast.While | ast.With) and not documents:
            yield f"{statement.lineno} does something when it is imported: at the top stand definitions"
    for node in nodes:
        if isinstance(node, FUNCTIONS):
            assert node.end_lineno is not None
            if node.end_lineno - node.lineno >= FUNCTION_LINES_MAX:
                yield f"{node.lineno} {node.name} is long"
            if node.returns is None:
                yield f"{node.lineno} {node.name} does not say what it returns"


def defined_names(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if (field := NAME_FIELDS.get(type(node))) and type(getattr(node, "ctx", STORED)) is ast.Store:
            yield getattr(node, field) or ""


def test_modules_are_short() -> None:
    long = {str(path): count for path in CODE if (count := len(text_of(path).splitlines())) > MODULE_LINES_MAX}
    assert not long


def test_nothing_is_put_off() -> None:
    assert not [f"{path}:{line}" for path in CODE for line, comment in comments(path) if PUT_OFF.search(comment)]


def comments(path: Path) -> Iterator[tuple[int, str]]:
    if not PUT_OFF.search(text_of(path)):
        return  # Telling comments from strings takes long.
    with open(ROOT / path, "rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string


def test_type_errors_are_ignored_by_name_only() -> None:
    assert not [str(path) for path in CODE if BARE_IGNORE.search(text_of(path))]


def test_no_file_names_a_place_on_this_machine() -> None:
    places = [re.escape(str(ROOT))]
    if str(ROOT.parent) not in EVERYWHERE and not str(ROOT.parent).startswith("/tmp/"):
        places.append(rf"(?<![\w.>}}*])/{re.escape(str(ROOT.parent)[1:])}/")
    pattern = re.compile("|".join(places))
    assert not [f"{path}: {match[0]}" for path in texts() if (match := pattern.search(text_of(path)))]


def texts() -> Iterator[Path]:
    for path in kept_files():
        if path.suffix in TEXT:
            yield path
