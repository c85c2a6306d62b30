"""The house style, as far as a machine can see it."""

from __future__ import annotations

import ast
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tests.support.tree import PACKAGES, ROOT, functions, kept_files, lines_of, modules, parsed

MODULE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
PUT_OFF = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
BARE_IGNORE = re.compile(r"#\s*type:\s*ignore(?!\[)")
EVERYWHERE = ("/", "/tmp", "/home", "/root", "/usr", "/opt", "/srv", "/var")
"""Parents of a checkout that say nothing about the machine."""
TEXT = (".py", ".md", ".toml", ".yaml", ".yml", ".j2", ".txt", ".sh", "")
CODE = tuple(modules(*PACKAGES, "tests"))


def text_of(path: Path) -> str:
    return (ROOT / path).read_text("utf-8", "replace")


def test_a_module_opens_with_a_docstring() -> None:
    assert not [str(path) for path in CODE if not ast.get_docstring(parsed(path))]


def test_modules_are_short() -> None:
    long = {str(path): count for path in CODE if (count := len(text_of(path).splitlines())) > MODULE_LINES_MAX}
    assert not long


def test_functions_are_short() -> None:
    sizes = {
        f"{path}:{function.lineno} {function.name}": lines_of(function) for path in CODE for function in functions(path)
    }
    assert not {name: size for name, size in sizes.items() if size > FUNCTION_LINES_MAX}


def test_every_function_says_what_it_returns() -> None:
    assert not [
        f"{path}:{function.lineno}" for path in CODE for function in functions(path) if function.returns is None
    ]


def test_only_the_command_prints() -> None:
    libraries = [package for package in PACKAGES if package != "cli"]
    assert not [f"{path}:{line}" for path in modules(*libraries) for line in prints(path)]


def prints(path: Path) -> Iterator[int]:
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            yield node.lineno


def test_importing_does_nothing() -> None:
    """At the top of a module stand definitions; calls for their effect, loops and `with` do not."""
    assert not [f"{path}:{line}" for path in CODE if path.name != "conftest.py" for line in effects(path)]


def effects(path: Path) -> Iterator[int]:
    for node in parsed(path).body:
        documents = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, ast.Expr | ast.For | ast.While | ast.With) and not documents:
            yield node.lineno


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
