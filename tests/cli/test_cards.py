"""`mz cards`: what there is, what is wrong with it, and which card fits a task."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tests.cli.drive import Mz

CARD = "identity: iris\ndomain: data-analysis\ncapabilities: [run_sql]\nstate: {persona: persona.md}\n"


def give(home: Path, text: str = CARD) -> None:
    folder = home / "agents" / "iris"
    folder.mkdir(parents=True)
    (folder / ".agent").write_text(text)
    (folder / "persona.md").write_text("You analyse data. " * 40)


def test_the_list_measures_what_headers_save(home: Path, mz: Mz) -> None:
    give(home)
    listed = msgspec.json.decode(mz("cards", "list", "--json").out)
    assert (listed["persona_tokens"], {card["persona_tokens"] for card in listed["cards"]}) == (None, {None})
    measured = msgspec.json.decode(mz("cards", "list", "--personas", "--json").out)
    assert 0 < measured["tokens"] < measured["persona_tokens"]
    entry = next(card for card in measured["cards"] if card["name"] == "iris")
    assert (entry["file"], entry["tokens"], entry["persona_tokens"]) == ("agents/iris/.agent", 22, 180)
    assert "tokens instead of" in mz("cards", "list", "--personas").err


def test_errors_of_cards_have_their_place_and_exit_code(home: Path, mz: Mz) -> None:
    give(home)
    assert "1 file: 0 errors, 0 warnings" in mz("cards", "validate").err
    (home / "agents" / "iris" / ".agent").write_text(CARD + "formatting: none\n")
    result = mz("cards", "validate", "--json")
    assert result.exit == 10
    assert msgspec.json.decode(result.out)["diagnostics"][0]["location"] == {
        "file": "agents/iris/.agent",
        "line": 5,
        "column": 1,
    }


def test_a_route_explains_itself_and_fails_if_none_fits(home: Path, mz: Mz) -> None:
    give(home)
    result = mz("cards", "route", "Analysis of the events", "--needs", "run_sql")
    assert result.out.splitlines()[1:] == ["iris\t1\tneeds run_sql; words analysis\t22"]
    assert mz("cards", "route", "x", "--needs", "fly").exit == 1
    assert msgspec.json.decode(mz("cards", "route", "x", "--json").out)["candidates"] == []
