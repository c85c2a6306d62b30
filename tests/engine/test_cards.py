"""Cards: what is wrong with one, which of hundreds fits a task, and that no other file is opened for that."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
from mz_engine.cards.load import BUILT_IN, load_cards, read_persona
from mz_engine.cards.route import RouteCandidate, route, terms_of
from mz_engine.errors.diagnostics import MzError

GOOD = "identity: iris\ndomain: data-analysis\ncapabilities: [run_sql, anomaly_detection]\n"
_opened: list[str] = []
_is_watching = False


def _watch(event: str, arguments: tuple[object, ...]) -> None:
    if _is_watching and event == "open":
        _opened.append(str(arguments[0]))


@cache
def add_hook() -> None:
    """Add the hook once: it stays for the life of the process."""
    sys.addaudithook(_watch)


@contextmanager
def opened_files() -> Iterator[list[str]]:
    global _is_watching
    add_hook()
    _opened.clear()
    _is_watching = True
    yield _opened
    _is_watching = False


def write(root: Path, name: str, text: str, persona: str = "") -> None:
    folder = root / "agents" / name
    folder.mkdir(parents=True)
    (folder / ".agent").write_text(text)
    if persona:
        (folder / "persona.md").write_text(persona)


def messages(root: Path, name: str = "iris") -> list[str]:
    return [
        f"{item.location} {item.severity} {item.code} {item.message}" for item in load_cards(root)[name].diagnostics
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (GOOD, []),
        (GOOD + "formatting: none\n", ["agents/iris/.agent:4:1 error MZ2005 unknown key `formatting`"]),
        ("domain: x\ncapabilities: [a]\n", ["agents/iris/.agent:1:1 error MZ2007 the key `identity` is missing"]),
        (
            GOOD.replace("iris", "orion"),
            ["agents/iris/.agent:1:11 error MZ3027 `identity` is orion, but the folder is called iris"],
        ),
        (
            GOOD.replace("[run_sql, anomaly_detection]", "[a, b, c, d, e, f]"),
            ["agents/iris/.agent:3:15 error MZ3027 `capabilities` has 6 entries; it needs one to 5 different ones"],
        ),
        (
            GOOD.replace("[run_sql, anomaly_detection]", "[]"),
            ["agents/iris/.agent:3:15 error MZ3027 `capabilities` has 0 entries; it needs one to 5 different ones"],
        ),
        (
            GOOD + "state: {persona: persona.md}\n",
            ["agents/iris/.agent:4:18 error MZ3027 `state.persona`: there is no file persona.md in the card's folder"],
        ),
        (
            GOOD + "budget: {max_tokens: 0}\n",
            ["agents/iris/.agent:4:22 error MZ2006 `budget.max_tokens`: expected a whole number of at least 1, got 0"],
        ),
        (
            GOOD + f"# {'x' * 430}\n",
            ["agents/iris/.agent:1:1 warning MZ3027 the card has about 128 tokens; cards have at most 125"],
        ),
        (
            GOOD + f"# {'x' * 800}\n",
            ["agents/iris/.agent:1:1 error MZ3027 the card has about 220 tokens; cards have at most 200"],
        ),
    ],
)
def test_what_is_wrong_with_a_card_has_its_place(tmp_path: Path, text: str, expected: list[str]) -> None:
    write(tmp_path, "iris", text)
    assert messages(tmp_path) == expected
    has_errors = any(" error " in message for message in expected)
    assert (load_cards(tmp_path)["iris"].card is None) == has_errors


@pytest.mark.parametrize("path", ["../other", "/etc/passwd"])
def test_state_never_leads_out_of_the_folder(tmp_path: Path, path: str) -> None:
    write(tmp_path, "iris", GOOD + f"state: {{persona: {path}}}\n")
    assert [message.split()[2] for message in messages(tmp_path)] == ["MZ2013"]


def test_a_link_out_of_the_folder_is_no_persona(tmp_path: Path) -> None:
    write(tmp_path, "iris", GOOD + "state: {persona: persona.md}\n")
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "agents" / "iris" / "persona.md").symlink_to(tmp_path / "secret")
    assert "leads out of the card's folder" in messages(tmp_path)[0]


def test_a_card_that_is_a_link_out_of_the_repository_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("password: 1")
    (tmp_path / "root" / "agents" / "iris").mkdir(parents=True)
    (tmp_path / "root" / "agents" / "iris" / ".agent").symlink_to(tmp_path / "secret")
    expected = "agents/iris/.agent:1:1 error MZ3027 the card is a link that leads out of the repository"
    assert messages(tmp_path / "root") == [expected]


def test_other_files_of_a_folder_of_that_name_are_no_cards(tmp_path: Path) -> None:
    """A repository may have code in a folder `agents`."""
    (tmp_path / "agents" / "code").mkdir(parents=True)
    (tmp_path / "agents" / "code" / "main.py").write_text("")
    (tmp_path / "agents" / "base.py").write_text("")
    assert all(card.built_in for card in load_cards(tmp_path).values())


def test_built_in_cards_are_valid_and_the_repository_comes_first(tmp_path: Path) -> None:
    cards = load_cards(tmp_path)
    assert {*cards} == {folder.name for folder in BUILT_IN.iterdir()}
    assert all(card.card and not card.diagnostics and read_persona(card) for card in cards.values())
    write(tmp_path, "builder", GOOD.replace("iris", "builder"))
    assert (load_cards(tmp_path)["builder"].built_in, read_persona(load_cards(tmp_path)["builder"])) == (False, "")


def test_of_five_hundred_cards_only_the_headers_are_opened(tmp_path: Path) -> None:
    for number in range(500):
        name = f"agent-{number}"
        write(tmp_path, name, GOOD.replace("iris", name) + "state: {persona: persona.md}\n", "A long persona. " * 200)
    with opened_files() as opened:
        candidates = route("Run anomaly detection on the events of April", ("run_sql",), load_cards(tmp_path).values())
    assert len(candidates) == 500
    assert {Path(name).name for name in opened} == {".agent"}
    assert len(opened) == 500 + len(list(BUILT_IN.iterdir()))


def test_a_route_says_why(tmp_path: Path) -> None:
    write(tmp_path, "iris", GOOD.replace("data-analysis", "event-analysis"))
    write(tmp_path, "orion", "identity: orion\ndomain: backend\ncapabilities: [run_sql, http_request]\n")
    write(tmp_path, "broken", "identity: broken\n")
    cards = load_cards(tmp_path).values()
    candidates = route("Run anomaly detection on April events", ("run_sql",), cards)
    assert candidates == (
        RouteCandidate(
            name="iris", score=4, needs=("run_sql",), terms=("run", "anomaly", "detection", "event"), tokens=20
        ),
        RouteCandidate(name="orion", score=1, needs=("run_sql",), terms=("run",), tokens=17),
    )
    assert route("Paint the wall", (), cards) == ()
    assert route("", ("no_such_thing",), cards) == ()
    assert [candidate.name for candidate in route("", ("run_sql",), cards)] == ["orion", "iris"], "the shorter card"


def test_terms_of_a_text() -> None:
    assert terms_of("Reviews of run_sql, access-control & Class bus") == (
        "review", "of", "run", "sql", "access", "control", "class", "bus"
    )  # fmt: skip


def test_a_persona_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, "iris", GOOD + "state: {persona: persona.md}\n", "x")
    (tmp_path / "agents" / "iris" / "persona.md").write_bytes(b"\xff\xfe")
    with pytest.raises(MzError, match="UTF-16"):
        read_persona(load_cards(tmp_path)["iris"])
