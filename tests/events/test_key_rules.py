"""Keys of services: each rule's shape in each encoding, what is not covered, and where the rules come from."""

from __future__ import annotations

import base64
import hashlib
import json
import string
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from random import Random

import pytest
import yaml
from mz_events.redaction.decoders import DECODERS, unescape
from mz_events.redaction.key_rules import KeyRule, KeyRules, compile_regex, find_keys, load_rules
from mz_events.redaction.redactor import Redactor, Secrets

from tests.support.key_canaries import encoded, sample, survivors

RULES = load_rules()
FOLDER = files("mz_events.redaction")
EXCEPTIONS = yaml.safe_load((Path(__file__).parents[1] / "cases" / "secrets" / "not_covered.yaml").read_text("utf-8"))
"""Encoding of a rule's key that the redactor does not find, with the reason, by rule."""
SECRETS = Secrets({})


@pytest.mark.slow
# shapes ---------------------------------------------------------------------------------------------------------------
def test_keys_of_all_rules_in_all_encodings_are_redacted_but_for_the_exceptions() -> None:
    planted, left = 0, dict[str, list[str]]()
    for at, rule in enumerate(RULES):
        canary = sample(rule, at)
        planted += sum(1 for _ in encoded(canary))
        if remaining := list(survivors(canary, SECRETS.clean)):
            left.setdefault(rule.name, []).extend(remaining)
    assert planted > 3600
    assert left == {name: entry["encodings"] for name, entry in EXCEPTIONS.items()}


def test_a_reason_is_given_for_each_exception() -> None:
    assert all(entry["reason"] for entry in EXCEPTIONS.values())
    assert {name for name, entry in EXCEPTIONS.items()} <= {rule.name for rule in RULES}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("xai-key", f"xai-{'aB3' * 27}"),
        ("groq-key", f"gsk_{'aB3' * 17}"),
        ("huggingface-token", f"hf_{'aB3' * 12}"),
        ("age-key", f"AGE-SECRET-KEY-1{'QPZRY9X8' * 8}"),
        ("slack-token", f"xapp-1-A0{'1B' * 10}-abc"),
        ("authorization-header", "Authorization: Bearer 7f3kd92ma01xpq8s"),
        ("authorization-header", "'authorization': 'Basic Zm9vOmJhcmJhenF1eHF1dXg='"),
        ("azure-account-key", f"DefaultEndpointsProtocol=https;AccountKey={'aB3/' * 20}=="),
        ("password-in-url", "amqp://shop:kq93mf02ls84nd@queue.example/shop"),
    ],
)
def test_our_own_rules(name: str, text: str) -> None:
    assert [match.name for match in SECRETS.find(f"x {text} y".encode())] == [name]


@pytest.mark.parametrize(
    "text",
    [
        "api_key = 'AKfyb83kLm2Qx9vR4tZs'",
        'password: "correct-horse-7-battery"',
        "CallPriced(key=ref.key, computed_nanousd=computed)",
        "postgres://u:kq93mf02ls84nd@db/x",
        "Authorization: Bearer 7f3kd92ma01xpq8s",
    ],
)
def test_what_may_be_no_secret_stops_no_call(text: str) -> None:
    assert SECRETS.names_in(text.encode()) == ()


@pytest.mark.parametrize(
    "text",
    [
        "CallPriced(key=ref.key, computed_nanousd=computed)",
        'DEFAULTS = frozenset(("password", "changeme"))',
        "the token: none, the key = value, secret=None, api_version=2024",
        "monkey = keyboard.layout('querty-layout-of-the-user')",
        "a commit 4b825dc642cb6eb9a060e54bf8d69288fbee4904 of sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41",
        "https://example.org/path:8080/@scope",
        "AKIAIOSFODNN7EXAMPLE",
        "somethinglong\nandanotherword of prose",
    ],
)
def test_code_and_prose_stay(text: str) -> None:
    assert SECRETS.redact(text) == text


# encodings ------------------------------------------------------------------------------------------------------------
KEY = "ghp_" + "aB3dE6gH9j" * 4
NESTED: dict[str, Callable[[str], str]] = {
    "base64 in JSON": lambda text: json.dumps({"a": f"\n{base64.b64encode(text.encode()).decode()}"}),
    "base64 in base64": lambda text: base64.b64encode(base64.b64encode(f"x {text} y".encode())).decode(),
    "base64 in a URL": lambda text: base64.b64encode(f"??{text}>>".encode()).decode().replace("+", "%2B"),
    "hexadecimal in base64": lambda text: base64.b64encode(text.encode().hex().encode()).decode(),
    "base64 over lines": lambda text: base64.encodebytes(f"A=1\nKEY={text}\nB=2\n{text}\n".encode()).decode(),
    "base64 over escaped lines": lambda text: json.dumps(base64.encodebytes(f"{text}\n{text}\n".encode()).decode()),
    "escapes of bytes": lambda text: "".join(f"\\x{byte:02x}" for byte in text.encode()),
    "escapes of characters": lambda text: "".join(f"\\u{byte:04x}" for byte in text.encode()),
    "colours in JSON": lambda text: json.dumps(f"\x1b[31m{text[:6]}\x1b[0m\x1b[1m{text[6:]}\x1b[0m"),
}


@pytest.mark.parametrize("name", NESTED)
def test_encodings_may_be_nested(name: str) -> None:
    line = NESTED[name](KEY)
    assert SECRETS.names_in(line.encode()) == ("github-token",)
    assert KEY[6:14] not in SECRETS.redact(line)


def test_a_private_key_in_base64() -> None:
    body = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj\n" * 4
    key = base64.b64encode(f"-----BEGIN RSA PRIVATE KEY-----\n{body}-----END RSA PRIVATE KEY-----\n".encode())
    assert SECRETS.names_in(b"client-key-data: " + key) == ("private-key",)


VALUES = ("hunter2hunter2", 'p"ss/w&rd<\\é\n+1', "9f2 b&1=/+?~ k3", "x" * 8 + "\\n" + "y" * 3)


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("alignment", range(5))
def test_a_known_value_in_base32_and_hexadecimal(value: str, alignment: int) -> None:
    raw = b"#" * alignment + value.encode() + b"!"
    for text in (base64.b32encode(raw), raw.hex().encode(), raw.hex().upper().encode()):
        assert Secrets({"DB_PASSWORD": value}).names_in(b"it is " + text) == ("DB_PASSWORD",)


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("inside", ["\x1b[31m", "\x1b[01;31m\x1b[K", "\n", "\r\n", "\\n", "\\u001b[0m", "\\n\\n"])
def test_a_known_value_with_colours_and_line_ends_inside(value: str, inside: str) -> None:
    secrets = Secrets({"DB_PASSWORD": value})
    for at in range(4, 7):
        text = f"it is {value[:at]}{inside}{value[at:]}."
        assert secrets.redact(text) == "it is <redacted>."
        if "\n" not in text:
            line = json.dumps({"text": text})
            assert json.loads(secrets.redact(line)) == {"text": "it is <redacted>."}


@pytest.mark.parametrize("size", [1, 7, 64])
def test_keys_over_several_lines_are_found_in_a_stream(size: int) -> None:
    data = f"one two\n{KEY[:20]}\n{KEY[20:]}\nend of it\nhunter2h\nunter2\nlast {KEY}\n".encode()
    secrets = Secrets({"DB_PASSWORD": "hunter2hunter2"})
    redactor = Redactor(secrets)
    cleaned = b"".join(redactor.feed(data[at : at + size]) for at in range(0, len(data), size)) + redactor.finish()
    assert (
        cleaned == b"one two\n<redacted>\n<redacted>\nend of it\n<redacted>\nlast <redacted>\n" == secrets.clean(data)
    )


def test_a_file_of_long_words_is_not_held_for_ever() -> None:
    redactor, line = Redactor(SECRETS), b"Q2FuYXJ5" * 9 + b"\n"
    released = sum(len(redactor.feed(line)) for _ in range(300))
    assert released > 100 * len(line)
    assert released + len(redactor.finish()) == 300 * len(line)


@pytest.mark.parametrize("data", [b"", b"\\", b"\x0b", b"\x1b[", b"\\u001b[31", b"%", b"%4", b"QUJD" * 9, b"41" * 20])
def test_offsets_lead_back_to_the_source(data: bytes) -> None:
    text = unescape(data)
    for start in range(len(text.data)):
        low, high = text.source(start, start + 1)
        assert 0 <= low < high <= len(data)


def test_random_bytes_are_decoded_without_errors() -> None:
    for seed in range(200):
        chance = Random(seed)
        letters = chance.choice(
            ["ABCDEF0123456789", "%u00x4", string.ascii_letters + string.digits + "+/-_=\n", "A2=Z7"]
        )
        data = "".join(chance.choices(letters, k=200)).encode()
        for match in SECRETS.find(data):
            assert 0 <= match.start < match.end <= len(data)
    assert len(DECODERS) == len({name for name, _, _ in DECODERS})


# rules ----------------------------------------------------------------------------------------------------------------
def test_only_rules_whose_keyword_occurs_are_tried() -> None:
    rules = (KeyRule(name="a", regex="Ab[0-9]+", keywords=("ab",)), KeyRule(name="b", regex="c", keywords=("cd",)))
    marks, tried = KeyRules(rules, ("[0-9]{3}",)).scan(b"xAB12 123")
    assert ([rule.name for rule in tried], marks) == (["a"], frozenset({"[0-9]{3}"}))
    assert list(find_keys(b"Ab1", rules)) == [(0, 3, rules[0])]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({"entropy": 3.0}, []),
        ({"entropy": 0.5}, [b"abab"]),
        ({"allow": ("^ab",)}, []),
        ({"allow_match": ("^k=",)}, []),
        ({"stopwords": ("bab",)}, []),
        ({"group": 0}, [b"k=abab;"]),
    ],
)
def test_what_a_rule_leaves_out(rule: dict[str, object], expected: list[bytes]) -> None:
    made = KeyRule(name="k", regex="k=([a-z]+);", keywords=("k=",), **rule)  # type: ignore[arg-type]
    text = b"x k=abab; y"
    assert [text[start:end] for start, end, _ in find_keys(text, (made,))] == expected


def test_every_expression_is_valid_and_stays_within_a_line() -> None:
    for rule in RULES:
        assert rule.keywords, rule.name
        assert all(word == word.lower() for word in rule.keywords), rule.name
        for start, end, _ in find_keys(b"\n".join((sample(rule).text.encode(),) * 2), (rule,)):
            assert start < end
        assert compile_regex(rule.regex).search(b"\n" * 500) is None, rule.name


def test_the_rules_of_others_are_given_with_version_digest_and_licence() -> None:
    rules = json.loads((FOLDER / "gitleaks.json").read_text("utf-8"))
    assert (rules["license"], rules["version"]) == ("MIT", "v8.30.1")
    assert len(rules["sha256"]) == len(hashlib.sha256().hexdigest())
    assert (FOLDER / rules["license_file"]).read_text("utf-8").startswith("MIT License")
    assert len(rules["rules"]) > 200
