"""Policy file for Gemini CLI that allows a call only its phase's tools.

Of the rules that match a tool, the one with the highest priority decides; a denied tool is not offered to the model.
These rules are of the user's tier, so an administrator's rules override them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping

from mz_engine.pipelines.definition import Tool

TOOLS: Mapping[Tool, tuple[str, ...]] = {
    "read": ("glob", "grep_search", "list_directory", "read_file", "read_many_files"),
    "write": ("replace", "write_file"),
    "shell": ("run_shell_command",),
}
"""Names of this CLI's tools; file tools work within the worktree only."""

OTHER_TOOLS = (
    "activate_skill",
    "ask_user",
    "enter_plan_mode",
    "exit_plan_mode",
    "get_internal_docs",
    "google_web_search",
    "invoke_agent",
    "list_background_processes",
    "list_mcp_resources",
    "read_background_output",
    "read_mcp_resource",
    "update_topic",
    "web_fetch",
    "write_todos",
)
"""The CLI's other built-in tools (0.61)."""

PRIORITY_LAST, PRIORITY_LOW, PRIORITY_FIRST = 0, 1, 999
DIGEST_DIGITS = 8


def policy_text(tools: Iterable[Tool]) -> str:
    """Return the policy as TOML.

    Known tools that are not requested are denied with the highest priority. Requested tools are allowed with a low one,
    so that prohibitions in the user's own policies still hold. Any other tool, such as one of a later version, is
    denied unless a policy of the user allows it."""
    requested = frozenset(tools)
    allowed = sorted(name for tool in requested for name in TOOLS[tool])
    denied = sorted({*OTHER_TOOLS, *(name for names in TOOLS.values() for name in names)} - set(allowed))
    rules = [_rule(["*"], "deny", PRIORITY_LAST), _rule(denied, "deny", PRIORITY_FIRST)]
    if allowed:
        rules.append(_rule(allowed, "allow", PRIORITY_LOW) + "allowRedirection = true\n")
    return "\n".join(rules)


def policy_file_name(text: str) -> str:
    """Return a file name that depends on the policy's text."""
    return f"{hashlib.sha256(text.encode()).hexdigest()[:DIGEST_DIGITS]}.toml"


def _rule(names: list[str], decision: str, priority: int) -> str:
    return f'[[rule]]\ntoolName = {json.dumps(names)}\ndecision = "{decision}"\npriority = {priority}\n'
