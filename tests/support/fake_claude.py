"""A `claude` for end-to-end tests: a real process that does what the demo's script says, and can misbehave.

It works from its prompt alone, so that a call that was lost and is made again gets the same answer. Every call is
written to `calls.log` before anything else is done: what the world saw is counted there. `acts/FEATURE.PHASE.py`, for
the second iteration `acts/FEATURE.PHASE.2.py`, is executed once, instead of the answer, with `cwd`, `root`, `key`,
`say` and `answer` at hand.

It is started some thousand times, and loads little: what the script says is written beside it, and this file compiled.
"""

from __future__ import annotations

import json
import os
import re
import sys

TYPE_CHECKING = False  # typing, pathlib and shutil would double what it loads.
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

MODEL = "claude-sonnet-4-6"
VERSION = "2.1.197 (Claude Code)"


def install(directory: Path, home: Path) -> Path:
    """Puts `claude` into the directory, which belongs on PATH, and returns it. Agents cannot change the directory, so
    what this one writes lies in its own folder of HOME, and is linked there."""
    import py_compile
    import shutil

    import msgspec

    from tests.support.script_demo import FEATURE, PHASE, REWORK, features, play
    from tests.support.tree import AGENT_STATE

    state = home / AGENT_STATE
    (state / "acts").mkdir(parents=True)
    directory.mkdir(parents=True)
    for name in ("acts", "calls.log"):
        (directory / name).symlink_to(state / name)
    script = {
        "feature": FEATURE.pattern,
        "phase": PHASE.pattern,
        "rework": REWORK,
        "plays": {name: play(name) for name in features()},
    }
    (state / "script.json").write_bytes(msgspec.json.encode(script))
    program = directory / "claude"
    py_compile.compile(str(shutil.copy(__file__, directory)))  # An agent sees nothing else of the tests.
    program.write_text(
        f"#!{sys.executable} -IS\nimport sys\nsys.path.insert(0, {str(directory)!r})\n"
        f"from fake_claude import main\nmain({str(state)!r})\n"
    )
    program.chmod(0o755)
    return directory


def say(line: object) -> None:
    sys.stdout.write((line if isinstance(line, str) else json.dumps(line)) + "\n")
    sys.stdout.flush()


def main(directory: str) -> None:
    if "--version" in sys.argv:
        say(VERSION)
        return
    prompt, key = sys.stdin.read(), os.environ["MZ_KEY"]
    with open(f"{directory}/calls.log", "a") as log:
        log.write(f"{key}\n")
    with open(f"{directory}/script.json", "rb") as file:
        script = json.load(file)
    feature, phase = (re.search(script[name], prompt) for name in ("feature", "phase"))
    assert feature, prompt[:200]
    assert phase, prompt[:200]
    plays = script["plays"][feature[1]]
    takes = plays.get(phase[1], plays["pr"])
    take = takes[-1] if script["rework"] in prompt else takes[0]

    def answer() -> None:
        perform(take, prompt)

    iteration = key.split("/")[4]
    act = f"{directory}/acts/{feature[1]}.{phase[1]}{'' if iteration == '1' else '.' + iteration}"
    if not os.path.exists(f"{act}.py"):
        answer()
        return
    from pathlib import Path

    done = Path(f"{act}.py").rename(f"{act}.done")
    cwd = Path.cwd()
    exec(done.read_text(), {"cwd": cwd, "root": cwd.parents[3], "key": key, "say": say, "answer": answer})


def perform(take: dict[str, Any], prompt: str) -> None:
    """What the real CLI would leave in the tree and on the stream."""
    session = sys.argv[sys.argv.index("--session-id") + 1]
    say({"type": "system", "subtype": "init", "session_id": session, "model": MODEL, "claude_code_version": "2.1.197"})
    for step in take["steps"]:
        for action in step["use"]:
            carry_out(action)
    args = take["steps"][-1]["say"] or "Done."
    message = {"id": "msg_1", "model": MODEL, "role": "assistant", "content": [{"type": "text", "text": args}]}
    say({"type": "assistant", "session_id": session, "message": message})
    tokens = {"inputTokens": len(prompt) // 4, "outputTokens": len(args) // 4 + 1}
    usage = {"input_tokens": tokens["inputTokens"], "output_tokens": tokens["outputTokens"]}
    more = {"cacheReadInputTokens": 0, "cacheCreationInputTokens": 0, "costUSD": 0.01}
    say(
        {
            "type": "result",
            "subtype": "success",
            "is_error": False,
            "result": args,
            "session_id": session,
            "total_cost_usd": 0.01,
            "usage": usage,
            "modelUsage": {MODEL: {**tokens, **more}},
        }
    )


def carry_out(action: dict[str, str]) -> None:
    """Whatever the script runs is tests, which leave nothing."""
    if action["write"]:
        os.makedirs(os.path.dirname(action["write"]) or ".", exist_ok=True)
        with open(action["write"], "w") as file:
            file.write(action["text"])
    elif action["edit"]:
        with open(action["edit"], "r+") as file:
            text = file.read()
            if action["new"] in text:
                return
            assert action["old"] in text, action
            file.seek(0)
            file.truncate()
            file.write(text.replace(action["old"], action["new"], 1))
