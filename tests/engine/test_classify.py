"""The order and the patterns by which failed calls are told apart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mz_engine.agents.classify import CallEnd, classify, parse_patterns
from mz_engine.agents.registry import load_patterns
from mz_events.catalog.call import Problem, ProblemClass

PATTERNS = load_patterns()


def failed(error_text: str = "", **more: object) -> CallEnd:
    fields: dict[str, object] = {"own_problem": None, "ending": "error", "exit": 1, "error_text": error_text, **more}
    return CallEnd(**fields)  # type: ignore[arg-type]


def code(ending: CallEnd) -> str:
    problem = classify(ending, PATTERNS)
    return "" if problem is None else problem.code


def says(text: str) -> str:
    return code(CallEnd(own_problem=None, ending="success", exit=0, text=text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("You've hit your limit · resets 3pm (Europe/Paris)", "rate-limit"),
        ("Claude usage limit reached. Try again later.", "rate-limit"),
        ("stream error: exceeded retry limit, last status: 429 Too Many Requests", "rate-limit"),
        ("You exceeded your current quota", "rate-limit"),
        ("status: 401, see the docs", "auth-failure"),
        ("Not logged in · Please run /login", "auth-failure"),
        ("OAuth token has expired", "auth-failure"),
        ("Credit balance is too low", "billing"),
        ("sh: 1: claude: command not found", "tool-missing"),
        ("Error: spawn claude ENOENT", "tool-missing"),
        ("write error: No space left on device", "disk-full"),
        ("Prompt is too long", "prompt-too-long"),
        ("Error: Session ID 11111111-2222 is already in use.", "session-taken"),
        ("it broke somehow", "exit-1"),
        ("", "exit-1"),
    ],
)
def test_words(text: str, expected: str) -> None:
    assert code(failed(text)) == expected


def test_a_rate_limit_comes_before_a_login() -> None:
    assert code(failed("error 401\nrate limit reached")) == "rate-limit"


def test_the_status_comes_before_the_words() -> None:
    assert code(failed("the log mentions a rate limit", status=401)) == "auth-failure"


def test_only_the_last_lines_are_read() -> None:
    assert code(failed("rate limit\n" + "fine\n" * 100)) == "exit-1"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("rate limit; retry-after: 17", 17),
        ("rate limit, try again in 5 minutes", 300),
        ("rate limit: retry after 2h", 7200),
        ("rate limit", 600),
        ("rate limit, retry-after: 0", 600),
        ("rate limit, try again in 999999 hours", 604800),
    ],
)
def test_waits(text: str, seconds: int) -> None:
    problem = classify(failed(text), PATTERNS)
    assert problem is not None
    assert problem.kind is ProblemClass.TRANSIENT
    assert problem.retry_after_seconds == seconds


@pytest.mark.parametrize(
    ("exit_", "expected"),
    [
        (127, "tool-missing"),
        (126, "tool-missing"),
        (1, "no-terminal"),
        (0, "no-terminal"),
        (None, "no-terminal"),
        (-9, "no-terminal"),
    ],
)
def test_without_a_terminal_event(exit_: int | None, expected: str) -> None:
    assert code(failed(ending="no-terminal", exit=exit_)) == expected


def test_an_unknown_error_names_its_exit() -> None:
    assert classify(failed(exit=9), PATTERNS) == Problem(kind=ProblemClass.UNKNOWN, code="exit-9")


@pytest.mark.parametrize(
    "text",
    [
        "Blocker – Need access to the staging database",
        "**Blocker:** waiting for the key".replace("waiting", "Wait"),
        "I stopped here: I need your input on the format.",
        "Human intervention required: the two specs disagree.",
        "All done.\n\n- Blocker - Requires a decision",
    ],
)
def test_a_reply_that_asks_for_a_person(text: str) -> None:
    assert says(text) == "agent-blocker"


@pytest.mark.parametrize(
    "text",
    [
        "All done. No human intervention required.",
        "I did not need your input.",
        "The page now says:\n```\nNeed your input\n```\nand the tests pass.",
        "> Human intervention required\n\nI made that line configurable.",
        "There was a blocker, but I removed it.",
        "",
    ],
)
def test_a_reply_that_does_not(text: str) -> None:
    assert says(text) == ""


@given(st.text(), st.text())
def test_total(args: str, text: str) -> None:
    assert classify(failed(args, text=text), PATTERNS) is not None
    classify(CallEnd(own_problem=None, ending="success", exit=0, text=text), PATTERNS)


def test_a_broken_pattern_is_found_when_it_is_read() -> None:
    with pytest.raises(Exception, match="unterminated"):
        parse_patterns('problem = []\nblocker = ["(["]')
