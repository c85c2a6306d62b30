"""A real executable in the place of the agent's CLI, which does what a file beside it says."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Literal

Mode = Literal["idle", "hang", "broken"]
"""Says that it is done and did nothing; works for ever; ends without a word."""

SCRIPT = """#!{python} -IS
import sys
if "--version" in sys.argv:
    print("2.1.197 (Claude Code)")
    sys.exit(0)
import json, time
with open({mode!r}) as file:
    mode = file.read()
if mode == "hang":
    time.sleep(600)
if mode == "idle":
    print(json.dumps({{"type": "system", "subtype": "init", "session_id": "s", "model": "claude-sonnet-4-6"}}))
    print(json.dumps({{"type": "result", "subtype": "success", "is_error": False, "session_id": "s",
                      "result": "All done.\\x1b[31m", "total_cost_usd": 0.01, "num_turns": 1,
                      "usage": {{"input_tokens": 100, "output_tokens": 20}}}}))
"""


class FakeAgent:
    """`claude` in a directory of its own; `environment` puts it first on PATH."""

    def __init__(self, folder: Path, mode: Mode) -> None:
        self.bin, self._mode, self.home = folder / "bin", folder / "mode", folder / "home"
        self.bin.mkdir(parents=True)
        self.home.mkdir()
        self.says(mode)
        program = self.bin / "claude"
        program.write_text(SCRIPT.format(python=sys.executable, mode=str(self._mode)))
        program.chmod(0o755)

    def says(self, mode: Mode) -> None:
        """What it does from now on."""
        self._mode.write_text(mode)

    @property
    def environment(self) -> dict[str, str]:
        path = f"{self.bin}:{os.environ['PATH']}"
        return {"PATH": path, "HOME": str(self.home), "ANTHROPIC_API_KEY": "fake-key-of-the-tests", "TZ": "UTC"}
