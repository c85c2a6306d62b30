"""A `claude` on PATH that does at once what the demo's scripts say: it reads no prompt and asks no model.

A real process for tests of what surrounds an agent: it writes and edits files, and answers in the stream's form.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.support.script_demo import play

AGENT = """#!{python} -IS
import sys
if "--version" in sys.argv:
    print("2.1.197 (Claude Code)")
    sys.exit(0)
import json, os
sys.stdin.read()
_, feature, phase, _, _, attempt, _ = os.environ["MZ_KEY"].split("/")
with open({script!r}) as file:
    takes = json.load(file)[feature][phase]
take = takes[min(int(attempt), len(takes)) - 1]
session = sys.argv[sys.argv.index("--session-id") + 1]
model = sys.argv[sys.argv.index("--model") + 1]
def say(**line):
    print(json.dumps({{**line, "session_id": session}}), flush=True)
say(type="system", subtype="init", model=model, claude_code_version="2.1.197", cwd=os.getcwd())
for path, old, new in take["files"]:
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    if old:
        with open(path) as file:
            new = file.read().replace(old, new)
    with open(path, "w") as file:
        file.write(new)
say(type="result", subtype="success", is_error=False, result=take["says"], total_cost_usd=0.05,
    usage={{"input_tokens": 9000, "output_tokens": 400}},
    modelUsage={{model: {{"inputTokens": 9000, "outputTokens": 400, "cacheReadInputTokens": 0,
                          "cacheCreationInputTokens": 0}}}})
"""


def install_agent(directory: Path, *features: str) -> None:
    """Writes `claude` and what it does for these features into `directory`, to be put first on PATH."""
    script = {
        feature: {
            phase: [
                {
                    "files": [
                        (action.write or action.edit, action.old, action.text or action.new)
                        for step in take.steps
                        for action in step.use
                        if action.write or action.edit
                    ],
                    "says": take.steps[-1].say,
                }
                for take in takes
            ]
            for phase, takes in play(feature).items()
        }
        for feature in features
    }
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "script.json").write_text(json.dumps(script))
    program = directory / "claude"
    program.write_text(AGENT.format(python=sys.executable, script=str(directory / "script.json")))
    program.chmod(0o755)
