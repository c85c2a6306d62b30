"""Places of one machine out, those of another in: at boundaries only, and without breaking a line of JSON."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mz_recordings.cassette.placeholders import ALL_NAMES, MachineValues, expand, scrub, slug, url_quote

HERE = MachineValues(
    worktree="/home/ann/shop/.mz/worktrees/r1/cart",
    repository="/home/ann/shop",
    home="/home/ann",
    user="ann",
    session="11111111-2222-4333-8444-555555555555",
)
THERE = MachineValues(
    worktree="/srv/x y/.mz/worktrees/r9/cart",
    repository="/srv/x y",
    home='/Users/b"ob',
    user='b"ob',
    session="99999999-2222-4333-8444-555555555555",
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/home/ann/shop/.mz/worktrees/r1/cart/a.py", "<WORKTREE>/a.py"),
        ("/home/ann/shop/a.py", "<REPOSITORY>/a.py"),
        ("/home/ann/shopping/a.py", "<HOME>/shopping/a.py"),
        ("/home/ann/shop.git", "<HOME>/shop.git"),
        ("in /home/ann/shop.", "in <REPOSITORY>."),
        ("/home/anna/x", "/home/anna/x"),
        ("/mnt/home/ann/x", "/mnt/home/<USER>/x"),
        ("file:///home/ann/x", "file://<HOME>/x"),
        ('{"a": "x\\n/home/ann/y"}', '{"a": "x\\n<HOME>/y"}'),
        ('{"a": "\\u0020/home/ann/y"}', '{"a": "\\u0020<HOME>/y"}'),
        ('{"a": "\\/home\\/ann\\/y"}', '{"a": "<HOME>\\/y"}'),
        ("/home/ann/.claude/projects/-home-ann-shop/x", "<HOME>/.claude/projects/<REPOSITORY_SLUG>/x"),
        ("/tmp/claude-0/-home-ann-other/x", "/tmp/claude-0/<HOME_SLUG>-other/x"),
        ("find . -home-ann", "find . -home-ann"),
        ("?at=%2Fhome%2Fann%2Fshop%2Fa.py", "?at=<REPOSITORY_URL>%2Fa.py"),
        ("at%3D%2Fhome%2Fann%26", "at%3D<HOME_URL>%26"),
        ("%2Fmnt%2Fhome%2Fann", "%2Fmnt%2Fhome%2F<USER>"),
        ("a%2Fhome%2Fanna", "a%2Fhome%2Fanna"),
        ("/Users/ann/Library", "/Users/<USER>/Library"),
        ("ann said annals", "ann said annals"),
        ("session 11111111-2222-4333-8444-555555555555.", "session <SESSION>."),
        ("<WORKTREE> and <_HOME>", "<_WORKTREE> and <__HOME>"),
    ],
)
def test_what_is_replaced(text: str, expected: str) -> None:
    value = scrub(text.encode(), [HERE]).decode()
    assert value == expected
    assert expand(value.encode(), HERE).decode() == text.replace("\\/home\\/ann", "/home/ann")


def test_urls_in_small_letters_and_with_blanks() -> None:
    there = MachineValues(repository="/srv/x y", home="/home/ann", user="ann")
    data = scrub(b"q=%2fhome%2fann%2fz file:///srv/x%20y/a ?r=%2Fsrv%2Fx%20y", [there])
    assert data == b"q=<HOME_URL>%2fz file://<REPOSITORY>/a ?r=<REPOSITORY_URL>"
    assert expand(data, there) == b"q=%2Fhome%2Fann%2fz file:///srv/x y/a ?r=%2Fsrv%2Fx%20y"


def test_a_home_that_is_short_is_replaced_at_boundaries_only() -> None:
    root = MachineValues(home="/root", user="root")
    assert scrub(b"/root/.npm /var/root chroot/root root", [root]) == b"<HOME>/.npm /var/root chroot/root root"


def test_what_is_no_place_is_left_alone() -> None:
    assert scrub(b"/a /home/ann", [MachineValues(home="/", repository="", worktree="relative")]) == b"/a /home/ann"


def test_several_names_of_one_directory() -> None:
    other = MachineValues(repository="/private/shop", worktree="/private/shop/.mz/worktrees/r1/cart")
    data = scrub(b"/private/shop/.mz/worktrees/r1/cart/a /home/ann/shop/b", [HERE, other])
    assert data == b"<WORKTREE>/a <REPOSITORY>/b"


def test_another_machine() -> None:
    line = json.dumps({"cwd": HERE.worktree, "text": f"{HERE.home}/x\n<HOME>", "id": HERE.session}).encode()
    there = json.loads(expand(scrub(line, [HERE]), THERE, in_json=True))
    assert there == {"cwd": THERE.worktree, "text": f"{THERE.home}/x\n<HOME>", "id": THERE.session}


def test_a_token_without_a_place_stays() -> None:
    assert expand(b"<WORKTREE>/<USER>", MachineValues()) == b"<WORKTREE>/<USER>"


def test_slugs() -> None:
    assert slug("/home/ann/my.shop_2") == "-home-ann-my-shop-2"


PIECES = st.sampled_from(
    [
        *(path for path in HERE if path),
        *(slug(path) for path in HERE[:3]),
        *(url_quote(path) for path in HERE[:3]),
        *(f"<{name}>" for name in ALL_NAMES),
        *("/", "\\", '"', "\n", ".", "-", "_", "<", ">", "é", "ann", "/home", "x"),
    ]
)
TEXTS = st.lists(PIECES | st.text(max_size=4), max_size=12).map("".join)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)


@given(TEXTS)
@example("<<HOME>>")
@example("/home/ann/home/ann")
def test_there_and_back(text: str) -> None:
    data = text.encode()
    assert expand(scrub(data, [HERE]), HERE) == data


@given(VALUES, st.booleans())
@pytest.mark.slow
def test_a_line_of_json_keeps_its_shape(value: object, ascii_only: bool) -> None:
    line = json.dumps(value, ensure_ascii=ascii_only).encode()
    scrubbed = scrub(line, [HERE])
    assert _shape(json.loads(scrubbed)) == _shape(value)
    assert json.loads(expand(scrubbed, HERE, in_json=True)) == value
    assert _shape(json.loads(expand(scrubbed, THERE, in_json=True))) == _shape(value)


def _shape(value: object) -> object:
    if isinstance(value, dict):
        return [_shape(inner) for inner in value.values()]
    if isinstance(value, list):
        return [_shape(inner) for inner in value]
    return "text" if isinstance(value, str) else value


@given(VALUES)
def test_nothing_of_the_machine_is_left(value: object) -> None:
    """In a line of JSON, no path of this machine stands at a path boundary any more."""
    scrubbed = scrub(json.dumps(value).encode(), [HERE])
    for path in HERE[:3]:
        assert not re.search(rb"(?<![\w.\-/~\\])" + re.escape(path.encode()) + rb"(?![\w.-])", scrubbed)
    assert HERE.session.encode() not in scrubbed
