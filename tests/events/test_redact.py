"""Secrets are found in every spelling, and what takes their place changes no JSON line's shape."""

from __future__ import annotations

import base64
import html
import json
import random
import string
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from mz_events.redaction.json_splice import TOKEN, merge_spans
from mz_events.redaction.redactor import CUT_MARKER, LINE_BYTES_MAX, Redactor, Secrets
from mz_events.redaction.values import encodings

from tests.support.examples import examples

VALUE = 'p"ss/w&rd<\\é\n+1'
SECRETS = Secrets({"DB_PASSWORD": VALUE, "PLAIN": "hunter2hunter2", "SHORT": "abc1234", "EMPTY": ""})
BODY = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj\n" * 4
PEM = f"-----BEGIN RSA PRIVATE KEY-----\n{BODY}-----END RSA PRIVATE KEY-----"
LETTERS = string.ascii_letters + string.digits


def letters(count: int) -> str:
    return "".join(random.Random(count).choices(LETTERS, k=count))


KEYS = {
    "anthropic-key": f"sk-ant-api03-{letters(90)}-x_AA",
    "openai-key": f"sk-proj-{letters(40)}_T3BlbkFJ-{letters(20)}",
    "openai-key legacy": f"sk-{letters(48)}",
    "github-token": f"ghp_{letters(36)}",
    "github-token oauth": f"gho_{letters(36)}",
    "github-token server": f"ghs_{letters(36)}",
    "github-token fine": f"github_pat_{letters(22)}_{letters(59)}",
    "gitlab-token": f"glpat-{letters(20)}",
    "aws-access-token": "AKIAQ3EGTMVWXYZ23456",
    "aws-access-token session": "ASIAQ3EGTMVWXYZ23456",
    "gcp-api-key": f"AIzaSy{letters(33)}",
    "slack-token": "xoxb-123456789012-abcdefGHIJKL",
    "jwt": f"eyJ{letters(20)}.eyJ{letters(30)}.{letters(43)}",
    "private-key": PEM,
}  # fmt: skip


@pytest.mark.parametrize(
    "spell",
    [
        str,
        lambda value: json.dumps(value)[1:-1],
        lambda value: json.dumps(value, ensure_ascii=False)[1:-1],
        lambda value: json.dumps(json.dumps(value))[1:-1],
        lambda value: json.dumps(value)[1:-1].replace("/", "\\/"),
        lambda value: json.dumps(value)[1:-1].replace("<", "\\u003c").replace("&", "\\u0026"),
        html.escape,
        lambda value: html.escape(value, quote=False),
        lambda value: html.escape(value).replace("&#x27;", "&#39;"),
        lambda value: quote(value, safe=""),
        quote,
        quote_plus,
        lambda value: "".join(f"%{byte:02x}" if chr(byte) not in LETTERS else chr(byte) for byte in value.encode()),
    ],
)
def test_a_known_value_is_found_in_every_spelling(spell: Any) -> None:
    text = f"before {spell(VALUE)} after"
    assert SECRETS.redact(text).replace('\\"', "") == "before <redacted> after"
    assert SECRETS.names_in(text.encode()) == ("DB_PASSWORD",)


@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
@pytest.mark.parametrize("before", range(7))
@pytest.mark.parametrize("after", range(4))
def test_base64_at_every_alignment(encode: Any, before: int, after: int) -> None:
    text = encode(b"x" * before + VALUE.encode() + b"y" * after)
    assert SECRETS.names_in(b"Authorization: Basic " + text) == ("DB_PASSWORD",)


@pytest.mark.parametrize("value", ["abc1234", "", "  abc1234  "])
def test_short_values_stand_everywhere_by_chance(value: str) -> None:
    secrets = Secrets({"SHORT": value})
    assert secrets.names_in(f"it says {value} here".encode()) == ()


def test_a_value_is_also_found_without_the_blanks_around_it() -> None:
    assert Secrets({"KEY": "hunter2hunter2\n"}).names_in(b"x hunter2hunter2 y") == ("KEY",)


def test_one_value_under_two_names_is_named_once() -> None:
    assert Secrets({"A": "hunter2hunter2", "B": "hunter2hunter2"}).names_in(b"hunter2hunter2") == ("A",)


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize(
    "text", ["{}", "key={} ", '{{"a":"{}"}}', "a\t{}\nb", '"line\\n{}\\nline"', "({})", "https://x:{}@host/"]
)
def test_keys_are_found_by_their_shape(kind: str, text: str) -> None:
    key = KEYS[kind].replace("\n", "\\n") if '"' in text else KEYS[kind]
    data = text.format(key).encode()
    findings = Secrets({}).find(data)
    assert {finding.name for finding in findings} == {kind.split()[0]}
    assert Secrets({}).clean(data) == text.format("<redacted>").encode()
    assert Secrets({}).names_in(data) == ((kind.split()[0],) if kind != "jwt" else ())


@pytest.mark.parametrize(
    "text",
    [
        "the task-list and disk-usage of sk-spinner-three-bounce-container-with-a-long-name-indeed",
        "risk-abcdefghijklmnopqrstuvwxyzabcdefghijklmnop",
        "sk-ant-your-key-here",
        "ghp_short",
        "AKIAIOSFODNN7EXAMPLE",
        "MAKIAQ3EGTMVWXYZ23456",
        "AKIAQ3EGTMVWXYZ23456789",
        "eyJhbGciOiJIUzI1NiJ9.only-one-part",
        "xoxb-",
        "AIzaShort",
        "-----BEGIN PRIVATE KEY-----",
        'if "-----BEGIN RSA PRIVATE KEY-----" in text: raise',
        "-----BEGIN CERTIFICATE-----\n" + BODY,
    ],
)
def test_what_only_looks_like_a_key_is_left(text: str) -> None:
    assert Secrets({}).names_in(text.encode()) == ()
    assert Secrets({}).redact(text) == text


@pytest.mark.parametrize(
    "text",
    [
        PEM,
        PEM.replace("\n", "\r\n"),
        PEM.replace("RSA ", ""),
        PEM.replace("RSA ", "OPENSSH "),
        PEM.replace("KEY-----\n", "KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,AB12\n\n", 1),
        PEM.replace("PRIVATE KEY", "PGP PRIVATE KEY BLOCK").replace("RSA ", ""),
        "\n".join(f"+{line}" for line in PEM.split("\n"))[1:],
        "\n".join(f"    {line}" for line in PEM.split("\n"))[4:],
        "\n".join(f"{number:6}→{line}" for number, line in enumerate(PEM.split("\n"), 1))[7:],
        "\n".join(f"{number}:{line}" for number, line in enumerate(PEM.split("\n"), 1))[2:],
        PEM.replace("\n", "\\n"),
        PEM.replace("\n", "\\\\n"),
        PEM.replace("\n", "\\r\\n"),
        json.dumps("\n".join(f"{number:6}\t{line}" for number, line in enumerate(PEM.split("\n"), 1)))[9:-1],
    ],
)
def test_private_keys_go_as_a_block(text: str) -> None:
    data = b'say "' + text.encode() + b'" (end)'
    assert Secrets({}).clean(data) == b'say "<redacted>" (end)'
    assert Secrets({}).names_in(data) == ("private-key",)


@pytest.mark.parametrize("separator", ["\n", "\\n"])
def test_a_private_key_that_was_cut_off_goes_as_far_as_it_goes(separator: str) -> None:
    text = PEM.replace("\n", separator)[:-60]
    tail = '"}' if separator == "\\n" else '\n{"type":"next"}'
    assert Secrets({}).redact('{"a":"' + text + tail) == '{"a":"<redacted>' + tail


def test_a_key_of_each_kind_in_one_text() -> None:
    text = "\n".join(KEYS.values())
    assert Secrets({}).redact(text) == "\n".join("<redacted>" for _ in KEYS)


@pytest.mark.parametrize(
    ("spans", "merged"),
    [([(7, 9), (0, 2), (4, 8)], [(0, 2), (4, 9)]), ([(0, 9), (2, 4)], [(0, 9)]), ([(0, 2), (2, 4)], [(0, 2), (2, 4)])],
)
def test_overlapping_spans_are_joined(spans: list[tuple[int, int]], merged: list[tuple[int, int]]) -> None:
    assert merge_spans(spans) == merged


def test_text_without_secrets_is_the_same_object() -> None:
    data = b"nothing here" * 100
    assert SECRETS.clean(data) is data


# JSON ---------------------------------------------------------------------------------------------------------------
def shape(text: bytes) -> object:
    """What a JSON text is made of, all values of strings, numbers and keys left out; duplicate keys kept."""

    def of(value: object) -> object:
        if isinstance(value, tuple):
            return ("object", *(of(part) for _, part in value))
        if isinstance(value, list):
            return ["array", *(of(part) for part in value)]
        return value if isinstance(value, bool) or value is None else type(value).__name__

    return of(json.loads(text, object_pairs_hook=tuple))


SYNTAX = st.text(alphabet='abcd"\\{}[]:,nu0019é \x1b/', min_size=8, max_size=14)
"""Values that look like the syntax that surrounds them."""
NUMBERS = (st.integers(10**7, 10**12 - 1) | st.integers(1 - 10**12, -(10**7))).map(str)


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, object]:
    """A secret value, and a JSON document in which it, or a part of it, stands here and there."""
    value = draw(SYNTAX | NUMBERS | st.text(min_size=8, max_size=12))
    assume(len(value.strip()) >= 8)
    assume(all(form not in TOKEN and TOKEN not in form for form in forms_of(value)))
    texts = st.text(alphabet='ab"\\n\n é', max_size=5)
    near = st.sampled_from([value, value[1:], value[:-1], value * 2, "x" + value + "\\", json.dumps(value)])
    numbers = st.integers() | st.just(int(value) if value.lstrip("-").isdecimal() and value.isascii() else 7)
    leaves = st.none() | st.booleans() | numbers | st.floats(allow_nan=False, allow_infinity=False) | texts | near
    document = draw(
        st.recursive(
            leaves,
            lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts | near, inner, max_size=4),
            max_leaves=12,
        )
    )
    return value, draw(st.sampled_from([[document], {"type": document}]))


def forms_of(value: str) -> list[bytes]:
    try:
        return list(encodings(value))
    except UnicodeEncodeError:
        return [TOKEN]


@pytest.mark.slow
@examples(200)
@given(documents(), st.booleans(), st.sampled_from([None, (",", ":")]))
@example(("12345678", [{"12345678": 12345678, "x": [1.2345678e20, -12345678]}]), True, None)
@example(('","x":"yz', {"a": '","x":"yz', "x": "yz"}), True, (",", ":"))
@example(("nabcdefgh\\", ["\nabcdefgh\\", '\nabcdefgh"']), True, None)
def test_a_json_line_keeps_its_shape_and_loses_the_secret(
    drawn: tuple[str, object], ascii_only: bool, separators: tuple[str, str] | None
) -> None:
    value, document = drawn
    line = json.dumps(document, ensure_ascii=ascii_only, separators=separators).encode()
    redactor = Redactor(Secrets({"SECRET": value}))
    cleaned = redactor.feed(line + b"\n") + redactor.finish()
    assert cleaned.endswith(b"\n")
    assert shape(cleaned) == shape(line)
    assert not any(value in text for text in strings(json.loads(cleaned)))


def strings(value: object) -> list[str]:
    """Every string and number of a document, keys included."""
    if isinstance(value, dict):
        return [text for pair in value.items() for part in pair for text in strings(part)]
    if isinstance(value, list):
        return [text for part in value for text in strings(part)]
    return [] if value is None or isinstance(value, bool) else [str(value)]


@pytest.mark.parametrize(
    ("line", "cleaned"),
    [
        (b'{"text":"a hunter2hunter2 b"}', b'{"text":"a <redacted> b"}'),
        (b'{"hunter2hunter2":1}', b'{"<redacted>":1}'),
        (b'{"a":"hunter2hunter2hunter2hunter2"}', b'{"a":"<redacted><redacted>"}'),
        (b'data: {"a":"hunter2hunter2"}', b'data: {"a":"<redacted>"}'),
        (b"C:\\hunter2hunter2\\bin", b"C:<redacted><redacted>in"),
        (b"hunter2hunter2", b"<redacted>"),
    ],
)
def test_what_takes_the_place_of_a_secret(line: bytes, cleaned: bytes) -> None:
    assert SECRETS.clean(line) in (cleaned, cleaned.replace(b"<redacted><redacted>in", b"<redacted>\\bin"))


# streams ------------------------------------------------------------------------------------------------------------
def stream(secrets: Secrets, data: bytes, cuts: list[int]) -> bytes:
    redactor = Redactor(secrets)
    ends = [*sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    pieces = [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    return b"".join(redactor.feed(piece) for piece in pieces) + redactor.finish()


TEXT = "\n".join((
    "first", f"a key {KEYS['github-token']} here", '{"password":"hunter2hunter2"}', VALUE, "x" + VALUE + "y" + VALUE,
    PEM, "after " + PEM, json.dumps({"key": PEM}), PEM[:100], "", "-----BEGIN PRIVATE KEY-----", "no key", "é" * 50,
)).encode()  # fmt: skip


@examples(100)
@given(cuts=st.lists(st.integers(0, 5000), max_size=8), newline=st.booleans())
def test_pieces_do_not_matter(cuts: list[int], newline: bool) -> None:
    data = TEXT + b"\n" * newline
    assert stream(SECRETS, data, cuts) == SECRETS.clean(data)


def test_byte_by_byte() -> None:
    assert stream(SECRETS, TEXT, list(range(len(TEXT)))) == SECRETS.clean(TEXT)


@examples(100)
@given(data=st.binary(max_size=300), cuts=st.lists(st.integers(0, 300), max_size=6))
def test_bytes_without_secrets_pass_unchanged(data: bytes, cuts: list[int]) -> None:
    assert stream(SECRETS, data, cuts) == data


def test_whole_lines_are_given_at_once() -> None:
    redactor = Redactor(SECRETS)
    assert redactor.feed(b'{"type":"result"}\nrest') == b'{"type":"result"}\n'
    assert redactor.feed(b" of it") == b""
    assert redactor.feed(b"\n") == b"rest of it\n"
    assert redactor.feed(json.dumps({"a": "-----BEGIN PRIVATE KEY-----"}).encode() + b"\n").endswith(b"}\n")


def test_a_line_is_held_only_while_a_secret_may_go_on() -> None:
    redactor = Redactor(SECRETS)
    head, tail = VALUE.encode().split(b"\n")
    assert redactor.feed(b"one\ntwo " + head + b"\n") == b"one\n"
    assert redactor.feed(tail + b"\n") == b"two <redacted>\n"
    assert redactor.feed(head + b"\n") == b""
    assert redactor.feed(b"something else\n") == head + b"\nsomething else\n"


def test_a_private_key_that_never_ends_is_not_waited_for_for_ever() -> None:
    redactor = Redactor(Secrets({}))
    data = b"-----BEGIN PRIVATE KEY-----\n" + BODY.encode() * 400
    assert len(redactor.feed(data)) + len(redactor.feed(b"the end.\n")) > 0
    assert redactor.finish() == b""


@pytest.mark.parametrize("size", [LINE_BYTES_MAX - 1, LINE_BYTES_MAX, LINE_BYTES_MAX + 1, 3 * LINE_BYTES_MAX])
@pytest.mark.parametrize("piece", [65536, 1 << 23])
def test_a_line_too_long_is_cut_and_marked(size: int, piece: int) -> None:
    data = b"one\n" + b"x" * size + b"\ntwo\n"
    redactor = Redactor(SECRETS)
    out = b"".join(redactor.feed(data[at : at + piece]) for at in range(0, len(data), piece)) + redactor.finish()
    middle = b"x" * size if size <= LINE_BYTES_MAX else b"x" * LINE_BYTES_MAX + CUT_MARKER
    assert out == b"one\n" + middle + b"\ntwo\n"


@pytest.mark.parametrize("offset", [-20, -14, -7, -1, 0, 5])
@pytest.mark.slow
def test_a_line_is_never_cut_within_a_secret(offset: int) -> None:
    index = LINE_BYTES_MAX + offset
    line = b"x" * index + b"hunter2hunter2" + b"y" * LINE_BYTES_MAX
    out = stream(SECRETS, line + b"\nnext\n", list(range(0, len(line), 65536)))
    assert out.endswith(CUT_MARKER + b"\nnext\n")
    assert b"hunter2" not in out
    assert (TOKEN in out) == (offset <= -14)


@pytest.mark.slow
def test_a_line_is_never_cut_within_a_character() -> None:
    line = b"x" + "é".encode() * LINE_BYTES_MAX
    out = stream(SECRETS, line, [])
    assert out.removesuffix(CUT_MARKER).decode().endswith("é")


def test_redacting_twice_changes_nothing_more() -> None:
    once = SECRETS.clean(TEXT)
    assert SECRETS.clean(once) == once
    assert SECRETS.names_in(once) == ()


@pytest.mark.slow
@pytest.mark.timeout(100)
def test_tens_of_megabytes_go_through() -> None:
    """They end: neither quadratic time nor a regular expression gone wild would."""
    data = b"the task-list said eyJ and sk-x, then -----BEGIN went on; " * 15
    block = b'{"type":"assistant","text":"' + data + b'"}\n'
    redactor = Redactor(Secrets({f"K{number}": letters(30 + number) for number in range(8)}))
    sizes = [len(redactor.feed(block * 70)) for _ in range(500)]
    assert sum(sizes) + len(redactor.finish()) == 500 * 70 * len(block)


# keys in base64 -------------------------------------------------------------------------------------------------------
ENCODED = [KEYS[name].encode() for name in KEYS if not name.startswith(("aws", "jwt", "private", "openai-key legacy"))]
"""The others begin with too few letters."""


@given(before=st.binary(max_size=7), after=st.binary(max_size=7), safe=st.booleans(), key=st.sampled_from(ENCODED))
def test_a_key_of_a_known_service_in_base64(before: bytes, after: bytes, safe: bool, key: bytes) -> None:
    """Nobody knows its value: its beginning tells, at each alignment."""
    encode = base64.urlsafe_b64encode if safe else base64.b64encode
    cleaned = Secrets({}).clean(json.dumps({"data": encode(before + b"\n" + key + b"\n" + after).decode()}).encode())
    assert TOKEN in cleaned
    for piece in json.loads(cleaned)["data"].encode().split(TOKEN):
        for begin in range(4):
            word = piece[begin:].replace(b"+", b"-").replace(b"/", b"_").rstrip(b"=")
            assert key[8:24] not in base64.urlsafe_b64decode(word[: len(word) // 4 * 4])


def test_base64_of_talk_about_keys_stays() -> None:
    for text in (b"keys begin with ghp_ or sk-ant- and are secret", b"AIza too, glpat- and xoxb- as well", b"ghp_"):
        data = base64.b64encode(text)
        assert Secrets({}).clean(data) == data
    assert Secrets({}).clean(b"Z2hwX sk-ant c2stYW50LQ==") == b"Z2hwX sk-ant c2stYW50LQ=="
