"""Ways in which a `gemini` call can end (`tests.support.agent_cases`)."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

from tests.support import gemini_cli
from tests.support.agent_cases import Case, Cases, asks, refuses, works
from tests.support.endpoint import Answer, Cut, Garbage, Hang, Reply, Request, Use, server_event

QUOTA = "You exceeded your current quota, please check your plan and billing details. Please retry in 34.07s."
BEGUN = "I looked at all the files. "
"""What comes of an answer before it breaks off."""


def reads_outside(request: Request) -> Answer:
    """Asks for a file outside the worktree, and for a tool that nobody gave it."""
    if request.results():
        return Reply("I could not read it.")
    return Reply("", (Use("read_file", {"file_path": "/etc/hostname"}), Use("web_fetch", {"prompt": "example.org"})))


def thinks(request: Request) -> Answer:
    """One answer for each prompt, with thoughts."""
    return Reply(f"You said: {request.prompt.strip()}", thoughts=40)


def unfinished(text: str) -> Garbage:
    """A stream that ends as if all were said, without the model's last word."""
    document = {"index": 0, "content": {"role": "model", "parts": [{"text": text}]}}
    return Garbage(server_event({"candidates": [document]}))


class Hiccup:
    """The first answer of each conversation ends too early; the second one is whole."""

    def __init__(self) -> None:
        self._begun: set[str] = set()

    def __call__(self, request: Request) -> Answer:
        if request.session in self._begun:
            return Reply(f"{BEGUN}There is nothing to do.")
        self._begun.add(request.session)
        return unfinished(BEGUN)


def set_to(**settings: object) -> Callable[[Path, str], dict[str, str]]:
    """The usual environment, with further settings of the user."""
    return lambda home, url: gemini_cli.environment(home, url, {**gemini_cli.SETTINGS, **settings})


def without_key(home: Path, url: str) -> dict[str, str]:
    outside = gemini_cli.environment(home, url)
    del outside["GEMINI_API_KEY"]
    return outside


GEMINI = Cases(
    "gemini",
    gemini_cli.environment,
    gemini_cli.spec,
    {
        "works": Case(works),
        "continued": Case(thinks, continues=True),
        "denied": Case(reads_outside),
        "asks": Case(asks),
        "begun-again": Case(Hiccup(), environment=set_to(general={"enableAutoUpdate": False, "maxAttempts": 2})),
        "400-key": Case(refuses(400, "", "API key not valid. Please pass a valid API key.")),
        "401": Case(refuses(401, "", "Request had invalid authentication credentials.")),
        "403": Case(refuses(403, "", "The caller does not have permission")),
        "429": Case(refuses(429, "", QUOTA)),
        "429-bare": Case(refuses(429, "", "Resource has been exhausted (e.g. check quota).")),
        "500": Case(refuses(500, "", "An internal error has occurred.")),
        "503": Case(refuses(503, "", "This model is currently experiencing high demand.")),
        "no-model": Case(refuses(404, "", "models/gemini-x is not found for API version v1beta")),
        "bad-request": Case(refuses(400, "", "Invalid JSON payload received.")),
        "cut": Case(lambda _: Cut(Reply(BEGUN * 4))),
        "unfinished": Case(lambda _: unfinished(BEGUN)),
        "garbage": Case(lambda _: Garbage(b"lalala\n\n{}")),
        "refused": Case(works, unreachable=True),
        "no-session": Case(works, resumes=True),
        "no-key": Case(works, environment=without_key),
        "turns": Case(works, environment=set_to(model={"maxSessionTurns": 1})),
        "other-login": Case(works, environment=set_to(security={"auth": {"enforcedType": "oauth-personal"}})),
        "terminated": Case(lambda _: Hang(), signal=signal.SIGTERM),
        "interrupted": Case(lambda _: Hang(), signal=signal.SIGINT),
    },
)
