"""The installed `gemini` CLI, and how tests call it without the engine's own process handling."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from mz_engine.ports import CallSpec

from tests.support import claude_cli
from tests.support.claude_cli import CLIS

SETTINGS: Mapping[str, object] = {
    "security": {"auth": {"selectedType": "gemini-api-key"}},
    "privacy": {"usageStatisticsEnabled": False},
    "general": {"enableAutoUpdate": False, "maxAttempts": 1},
}
"""Of the user: a key, as with an endpoint of one's own the CLI asks for another login; nothing for its makers; and no
tries but the first, which would take minutes."""


def installed() -> bool:
    return (CLIS / "gemini").exists()


def environment(home: Path, url: str, settings: Mapping[str, object] = SETTINGS) -> dict[str, str]:
    """A fresh HOME with these settings of a user, and the scripted endpoint: nothing of the caller's login."""
    folder = home / ".gemini"
    folder.mkdir(exist_ok=True)
    (folder / "settings.json").write_text(json.dumps(settings))
    return {
        "GEMINI_API_KEY": "unused",
        "GOOGLE_GEMINI_BASE_URL": url,
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "PATH": f"{CLIS}:{os.environ['PATH']}",
    }


def spec(prompt: str, session: str | None, **more: object) -> CallSpec:
    """A call of the adapter with everything filled in."""
    return claude_cli.spec(prompt, session, **{"agent": "gemini", "model": "gemini-2.5-pro", **more})
