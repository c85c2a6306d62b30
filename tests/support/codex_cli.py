"""The installed `codex` CLI, set up for a scripted model endpoint."""

from __future__ import annotations

import os
from pathlib import Path

from mz_engine.ports import CallSpec

from tests.support import claude_cli
from tests.support.claude_cli import CLIS

MODEL = "gpt-6.1-sol"
PROVIDER = """model_provider = "scripted"

[model_providers.scripted]
name = "scripted"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "CODEX_API_KEY"
request_max_retries = {retries}
stream_max_retries = {retries}
"""


def installed() -> bool:
    return (CLIS / "codex").exists()


def environment(home: Path, url: str, retries: int = 1) -> dict[str, str]:
    """A fresh HOME, whose settings name the scripted endpoint: nothing of the caller's login or settings.

    The program refuses to work where its home lies in the temporary directory, so that one lies in the home.
    """
    settings = home / ".codex" / "config.toml"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text(PROVIDER.format(url=url, retries=retries))
    (home / "tmp").mkdir(exist_ok=True)
    return {
        "CODEX_API_KEY": "unused",
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "PATH": f"{CLIS}:{os.environ['PATH']}",
        "TMPDIR": str(home / "tmp"),
    }


def spec(prompt: str, session: str | None, **more: object) -> CallSpec:
    """A call of the adapter with everything filled in."""
    return claude_cli.spec(prompt, session, **{"agent": "codex", "model": MODEL, **more})
