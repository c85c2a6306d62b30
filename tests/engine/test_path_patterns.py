"""Path patterns: the same answers as git's own, on patterns and paths that nobody would write."""

from __future__ import annotations

import shutil

import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st
from mz_engine.path_patterns import IgnoreRules, ignore_rules, is_pattern, matches

from tests.support.examples import examples
from tests.support.gitrepo import GitRepo

NAMES = ("a", "b", "ab", "a.b", "[a]", "a b", "-", "!a", "#a", "a\\b", "x")
PIECES = (*"abx*?/.[\\ !#-]^", "**", "[ab]", "[!a]", "[a-x]", "[]a]", "[[:alpha:]]", "[[:no:]]")

names = st.sampled_from(NAMES)
paths = st.lists(names, min_size=1, max_size=4).map("/".join)
patterns = st.lists(st.sampled_from(PIECES), max_size=6).map("".join)
texts = st.lists(patterns, max_size=4).map("\n".join)


@pytest.fixture(scope="module")
def repo(tmp_path_factory: pytest.TempPathFactory) -> GitRepo:
    return GitRepo(tmp_path_factory.mktemp("ignore") / "repo")


def says_git(repo: GitRepo, texts: dict[str, str], path: str, is_directory: bool) -> bool:
    """git's answer, with the files really there."""
    for old in repo.root.iterdir():
        if old.name != ".git":
            shutil.rmtree(old) if old.is_dir() else old.unlink()
    target = repo.root / path
    (target if is_directory else target.parent).mkdir(parents=True, exist_ok=True)
    if not is_directory:
        target.touch()
    for directory, text in texts.items():
        if (repo.root / directory).is_dir():
            (repo.root / directory / ".gitignore").write_text(text)
    return repo.git("check-ignore", "--no-index", "--", f"./{path}", check=False) != ""


def ignores(rules: IgnoreRules, path: str, is_directory: bool) -> bool:
    """As the walker asks: from the top down, until something is ignored."""
    parts = path.encode().split(b"/")
    above = (b"/".join(parts[:count]) for count in range(1, len(parts)))
    return any(rules.ignores(data, True) for data in above) or rules.ignores(path.encode(), is_directory)


@examples(100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(top=texts, below=texts, path=paths, is_directory=st.booleans())
@example(top="a/b**", below="", path="a/b/x", is_directory=False)
@example(top="**/x", below="", path="x", is_directory=False)
@example(top="a/**/x", below="", path="a/x", is_directory=False)
@example(top="a/**", below="!x", path="a/x", is_directory=False)
@example(top="*\n!a/\n!a/x", below="", path="a/x", is_directory=False)
@example(top="a\\ ", below="", path="a b", is_directory=False)
@example(top="\ufeffa\r\n", below="", path="a", is_directory=True)
@pytest.mark.slow
def test_the_answers_are_those_of_git(repo: GitRepo, top: str, below: str, path: str, is_directory: bool) -> None:
    texts = {"": top, "a": below}
    rules = IgnoreRules({directory.encode(): text.encode() for directory, text in texts.items()})
    assert ignores(rules, path, is_directory) == says_git(repo, texts, path, is_directory)


def test_settings_are_patterns_too() -> None:
    rules = ignore_rules(("node_modules", ".venv", "target/deps"))
    assert rules.ignores(b"web/node_modules", True)
    assert rules.ignores(b"target/deps", True)
    assert not rules.ignores(b"sub/target/deps", True)
    assert not rules.ignores(b"node_modules2", True)


@pytest.mark.parametrize("pattern", ["[[:space:]]", "[[:punct:]]", "[[:xdigit:]-]", "[\\]]", "[a-]", "[--0]", "[z-a]"])
def test_classes_match_byte_for_byte(repo: GitRepo, pattern: str) -> None:
    for name in ("a", "F", "g", " ", "~", "-", "]", ".x", "0", "\\", "z"):
        texts = {"": pattern}
        assert ignores(IgnoreRules({b"": pattern.encode()}), name, False) == says_git(repo, texts, name, False), name


@pytest.mark.parametrize(
    ("patterns", "selected", "excluded"),
    [
        (("src/**",), "src/a/b.py", "other/src/a.py"),
        (("src/", "!src/secret.py"), "src/a.py", "src/secret.py"),
        (("*.py", "!test_*.py"), "a/b.py", "a/test_b.py"),
        (("/docs",), "docs/a.md", "a/docs/b.md"),
        (("v[[:digit:]].txt",), "a/v1.txt", "va.txt"),
        (("caf\u00e9/*",), "caf\u00e9/x", "cafe/x"),
    ],
)
def test_the_last_pattern_that_matches_decides(patterns: tuple[str, ...], selected: str, excluded: str) -> None:
    assert matches(patterns, selected)
    assert not matches(patterns, excluded)


def test_a_pattern_that_can_match_nothing_is_none() -> None:
    texts = ("a", "[[:alpha:]]", "!a/", "# a", "", "[", "[[:no:]]", "a\\", "a\nb")
    assert [text for text in texts if is_pattern(text)] == [
        "a", "[[:alpha:]]", "!a/",
    ]  # fmt: skip
