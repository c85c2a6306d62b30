"""The program `mz-anthropic`, set up for a scripted model endpoint."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from mz_engine.ports import CallSpec

from tests.support import claude_cli

BIN = Path(sys.executable).parent
"""Where an installed `mz` has its programs."""


def installed() -> bool:
    return (BIN / "mz-anthropic").exists()


def environment(home: Path, url: str) -> dict[str, str]:
    """A fresh HOME and the scripted endpoint: nothing of the caller's login or settings."""
    return {
        "ANTHROPIC_API_KEY": "unused",
        "ANTHROPIC_BASE_URL": url,
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "PATH": f"{os.environ['PATH']}{os.pathsep}{BIN}",
    }


def spec(prompt: str, session: str | None, **more: object) -> CallSpec:
    """A call of the adapter with everything filled in."""
    return claude_cli.spec(prompt, session, **{"agent": "anthropic", **more})
