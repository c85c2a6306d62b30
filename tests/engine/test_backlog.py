"""The Markdown backlog: what becomes of text, what is refused and how that is said, and the order of work."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mz_engine.backlog.item import BacklogItem, ItemStatus, Priority, order_items, plan_backlog
from mz_engine.backlog.markdown import parse_backlog
from mz_engine.decoding.yaml import decode_yaml
from mz_engine.errors.diagnostics import MzError
from mz_engine.model.config import Config
from mz_engine.run.plan import read_backlog, waiting_texts
from mz_events.names import FeatureId, parse_name

from tests.support.timing import ENDS, grows_evenly

CASES = Path(__file__).parents[1] / "cases" / "backlog"
REFUSED = decode_yaml((CASES / "refused.yaml").read_text(), "refused.yaml", dict[str, dict[str, str]])


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_wrong_is_said_with_its_place(name: str) -> None:
    with pytest.raises(MzError) as caught:
        parse_backlog(REFUSED[name]["text"], "features.md")
    assert str(caught.value) == REFUSED[name]["errors"].rstrip("\n")


def test_the_cases_cover_every_code_of_the_parser() -> None:
    output = "".join(case["errors"] for case in REFUSED.values())
    assert [f"MZ40{number:02}" for number in range(1, 10) if f"[MZ40{number:02}]" not in output] == []


def test_the_whole_syntax_at_once() -> None:
    items = parse_backlog((CASES / "whole.md").read_text(), "whole.md")
    assert json.loads(msgspec.json.encode(items)) == json.loads((CASES / "whole.json").read_text())


def titles(text: str) -> list[str]:
    return [item.title for item in parse_backlog(text, "f.md")]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends_do_not_matter(end: str) -> None:
    text = "\ufeff# x\n\n## [FEAT] a: A\nbody\n\nmore\n## [FEAT] b: B".replace("\n", end).removeprefix("\ufeff")
    items = parse_backlog(text, "f.md")
    assert [(item.line, item.title, item.body) for item in items] == [(3, "A", "body\n\nmore"), (7, "B", "")]


def test_titles_lose_what_a_terminal_would_obey() -> None:
    assert titles("## [FEAT] a: \x1b[31mred\x1b[0m \x1b]0;window\x07and\x00 \x9b31m\u2028plain\x7f\n") == [
        "red and 31mplain"
    ]
    assert titles("## [FEAT] a: with 🎉 and 👩‍👩‍👧 and עברית\n") == ["with 🎉 and 👩‍👩‍👧 and עברית"]
    assert titles(f"## [FEAT] a: {'x' * 10_000}\n") == ["x" * 10_000]


def test_bodies_lose_control_characters_but_no_line() -> None:
    (item,) = parse_backlog("## [FEAT] a: A\none\x1b[2J\n\ttwo\x07\n\nthree\x0bfour\n", "f.md")
    assert item.body == "one\n\ttwo\n\nthreefour"


@pytest.mark.parametrize(
    ("heading", "title", "priority"),
    [
        ("A [p:high]", "A", Priority.HIGH),
        ("A [P: Low ]", "A", Priority.LOW),
        ("A [p:high] B", "A [p:high] B", Priority.NONE),
        ("A [x]", "A [x]", Priority.NONE),
        ("A [p:high] [x]", "A [p:high] [x]", Priority.NONE),
        ("A ##", "A", Priority.NONE),
        ("Support C#", "Support C#", Priority.NONE),
    ],
)
def test_the_suffix_of_a_title_is_a_priority(heading: str, title: str, priority: Priority) -> None:
    (item,) = parse_backlog(f"## [FEAT] a: {heading}\n", "f.md")
    assert (item.title, item.priority) == (title, priority)


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("- depends: b", "did you mean `depends on:`?"),
        ("- dependencies: b", "did you mean `depends on:`?"),
        ("depnds-on: b", "did you mean `depends on:`?"),
        ("* priorty: high", "did you mean `priority:`?"),
        ("- Label: core", "did you mean `labels:`?"),
        ("- staus: done", "write it in the heading, such as `## [DONE] an-id: A title`"),
    ],
)
def test_a_misspelt_key_is_an_error(line: str, hint: str) -> None:
    with pytest.raises(MzError) as caught:
        parse_backlog(f"## [FEAT] a: A\n\n- labels: x\n{line}\n\nText.\n", "f.md")
    (error,) = caught.value.diagnostics
    assert (error.code, error.hint) == ("MZ4011", hint)
    assert error.location
    assert (error.location.line, error.location.column) == (4, 3 if line[1] == " " else 1)


@pytest.mark.parametrize(
    "body",
    ["Text.\n- depends: on the weather", "- status: a column of the table", "- priorities: sorted", "- name: a",
     "Note: this depends: on it", "```\npriorty: high\n```"],
)  # fmt: skip
def test_other_items_of_a_list_are_text(body: str) -> None:
    (item,) = parse_backlog(f"## [FEAT] a: A\n{body}\n", "f.md")
    assert item.body == body


def test_a_priority_line_wins_over_the_suffix() -> None:
    (item,) = parse_backlog("## [FEAT] a: A [p:low]\npriority: high\n", "f.md")
    assert item.priority is Priority.HIGH


@pytest.mark.parametrize(
    "written", ["depends on: b", "- depends on: b", "* Depend on: `b`", "+ depends_on: b, b,", "DEPENDS-ON:b"]
)
def test_dependencies_are_written_in_many_ways(written: str) -> None:
    items = parse_backlog(f"## [FEAT] a: A\n{written}\n## [FEAT] b: B\n- depends on: none\n", "f.md")
    assert [item.depends_on for item in items] == [("b",), ()]


def test_fences_and_comments_hide_features() -> None:
    hidden = ["~~~\n## [FEAT] a: A\n~~~~", "<!-- ## [FEAT] b: B -->", "<!--\n## [FEAT] c: C\n-->"]
    text = "\n".join([*hidden, "## [FEAT] d: D", "````\n```\n## [FEAT] e: E\n````"])
    assert titles(text) == ["D"]


def test_a_fence_that_is_never_closed_may_end_the_last_feature() -> None:
    (item,) = parse_backlog("## [FEAT] a: A\n```\ncode\n", "f.md")
    assert item.body == "```\ncode"


def test_ordinary_headings_and_lines_are_body() -> None:
    headings = "## Notes\n### Done criteria: all\n## [a link](x)\n# Top\n"
    body = headings + "> ## [FEAT] quoted: Q\n    ## [FEAT] code: C\n- [DONE] step: one"
    (item,) = parse_backlog(f"## [FEAT] a: A\n{body}\n", "f.md")
    assert item.body == body


@ENDS
@pytest.mark.slow
def test_many_features_take_evenly_long() -> None:
    def work(count: int) -> Callable[[], object]:
        text = "".join(
            f"## [FEAT] f{n}: Title {n} [p:low]\n- depends on: f{max(n - 1, 1)}\nbody\n\n" for n in range(2, count + 1)
        )
        return lambda: planned("## [FEAT] f1: First\n" + text)

    def planned(text: str) -> int:
        return len(plan_backlog(parse_backlog(text, "f.md"))[0])

    assert work(1000)() == 1000
    assert grows_evenly(work, 500)


@pytest.mark.parametrize(
    ("head", "piece"), [("## [FEAT]", " "), ("## [FEAT] a: ", "[p:"), ("## [FEAT] a: A\n", "\x1b]"), ("", "#")]
)
@ENDS
def test_odd_lines_take_evenly_long(head: str, piece: str) -> None:
    def work(length: int) -> Callable[[], object]:
        return lambda: parse(head + piece * (length // len(piece)))

    def parse(text: str) -> None:
        with suppress(MzError):
            parse_backlog(text, "f.md")

    assert grows_evenly(work, 50_000)


@given(st.text())
def test_any_text_parses_or_is_refused(text: str) -> None:
    assert parses_or_is_refused(text)


LINES = [
    "## [FEAT] a: A",
    "## [DONE] b: B [p:low]",
    "## FEAT c",
    "- depends on: a, b",
    "priority: x",
    "```",
    "<!--",
    "-->",
    "text",
]


@given(st.lists(st.sampled_from(LINES) | st.text(alphabet="#[]:FEATab -`\x1b\n", max_size=20)))
def test_any_lines_parse_or_are_refused(lines: list[str]) -> None:
    assert parses_or_is_refused("\n".join(lines))


def parses_or_is_refused(text: str) -> bool:
    try:
        items = parse_backlog(text, "f.md")
    except MzError as error:
        return all(diagnostic.code.startswith("MZ40") and diagnostic.location for diagnostic in error.diagnostics)
    feature_ids = {item.id for item in items}
    for item in items:
        assert parse_name(item.id)
        assert item.title.isprintable() or item.title.strip()
        assert "\x1b" not in item.title + item.body
        assert feature_ids.issuperset(item.depends_on)
    return len(feature_ids) == len(items) > 0


def item(
    name: str, *needs: str, at: int = 0, priority: Priority = Priority.NONE, status: ItemStatus = ItemStatus.BACKLOG
) -> BacklogItem:
    return BacklogItem(
        id=FeatureId(name),
        title=name,
        body="",
        status=status,
        priority=priority,
        depends_on=tuple(FeatureId(text) for text in needs),
        order=at,
        source=name,
        line=1,
    )


def test_ready_items_go_by_priority_and_then_by_source() -> None:
    items = [
        item("a", "d", at=0, priority=Priority.HIGH),
        item("b", at=1, priority=Priority.LOW),
        item("c", at=2),
        item("d", at=3, priority=Priority.MEDIUM),
        item("e", at=4, priority=Priority.MEDIUM),
    ]
    assert [backlog_item.id for backlog_item in order_items(items)] == ["d", "a", "e", "b", "c"]


@given(st.permutations(range(8)), st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=12))
def test_no_item_comes_before_what_it_needs(priorities: list[int], pairs: list[tuple[int, int]]) -> None:
    needs = {n: sorted({low for low, high in pairs if low < high == n}) for n in range(8)}
    items = [item(str(n), *map(str, needs[n]), at=7 - n, priority=Priority(priorities[n] % 4)) for n in range(8)]
    ordered = [backlog_item.id for backlog_item in order_items(items)]
    assert sorted(ordered) == [str(n) for n in range(8)]
    assert all(ordered.index(FeatureId(need)) < ordered.index(entry.id) for entry in items for need in entry.depends_on)


def test_only_what_can_be_delivered_is_planned() -> None:
    items = [
        item("done", at=0, status=ItemStatus.DONE),
        item("wip", at=1, status=ItemStatus.IN_PROGRESS),
        item("a", "done", at=2),
        item("b", "a", "wip", at=3),
        item("c", "b", at=4),
        item("d", "a", at=5),
        item("stuck", at=6, status=ItemStatus.BLOCKED),
    ]
    chosen, left_out = plan_backlog(items)
    assert [(backlog_item.id, backlog_item.depends_on) for backlog_item in chosen] == [("a", ()), ("d", ("a",))]
    assert [(left_out_item.item.id, left_out_item.reason, left_out_item.blocked_by) for left_out_item in left_out] == [
        ("done", "done", None),
        ("wip", "in-progress", None),
        ("b", "dependency", "wip"),
        ("c", "dependency", "b"),
        ("stuck", "blocked", None),
    ]


def test_what_waits_says_for_what_and_names_a_step_that_helps() -> None:
    items = [
        item("a", at=0),
        item("b", "a", at=1),
        item("wip", at=2, status=ItemStatus.IN_PROGRESS),
        item("c", "wip", at=3),
    ]
    stuck = "wip is in-progress: make it FEAT"
    assert waiting_texts(plan_backlog(items)[1]) == {"c": f"c waits: {stuck}"}
    assert waiting_texts(plan_backlog(items, ["wip"])[1], ["wip"]) == {"wip": f"wip waits: {stuck}"}
    assert waiting_texts(plan_backlog(items, ["a"], ["a"])[1], ["a"]) == {}
    expected = {"b": "b waits: a is not delivered: mz run --feature a"}
    assert waiting_texts(plan_backlog(items, ["b"])[1], ["b"]) == expected


def test_one_feature_alone_needs_its_dependencies_done_before() -> None:
    items = [item("a", at=0), item("b", "a", at=1), item("c", at=2)]
    chosen, left_out = plan_backlog(items, only=["b"])
    assert not chosen
    actual = [(entry.item.id, entry.reason) for entry in left_out]
    assert actual == [("a", "not-asked-for"), ("b", "dependency"), ("c", "not-asked-for")]
    chosen, left_out = plan_backlog(items, only=["b"], delivered=["a"])
    assert [(backlog_item.id, backlog_item.depends_on) for backlog_item in chosen] == [("b", ())]
    actual = [(left_out_item.item.id, left_out_item.reason) for left_out_item in left_out]
    assert actual == [("a", "delivered"), ("c", "not-asked-for")]


def test_a_backlog_is_read_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "features.md").write_bytes(b"\xef\xbb\xbf## [FEAT] a: A\r\n")
    assert [backlog_item.source for backlog_item in read_backlog(tmp_path, Config(agent="a"), {})] == ["features.md#a"]
    with pytest.raises(MzError, match="MZ2001"):
        read_backlog(tmp_path, Config(agent="a", backlog="other.md"), {})
