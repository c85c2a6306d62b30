"""Makes `events/mz_events/redaction/gitleaks.json` from gitleaks' default rules.

    python -m tools.secret_rules gitleaks.toml VERSION

Kept of each rule: what finds a secret (expression, keywords, group, entropy, allowed values). The expressions are
changed in three ways. They match within one line, so that a stream can be searched line by line. A name before a value
may begin anywhere, which finds the same and is faster. A key of a recognisable shape may be followed by any character
that cannot be a part of it, since agents write keys in prose.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parents[1] / "events/mz_events/redaction/gitleaks.json"
SKIPPED = frozenset(("private-key", "pkcs12-file", "kubernetes-secret-yaml"))
"""Found as blocks, by the name of a file, and over several lines, of which each alone says nothing."""
WHOLE_MATCHES = frozenset(("jwt-base64", "microsoft-teams-webhook"))
"""Their first group is only a part of the secret."""
KEYWORDS = {"authress-service-client-access-key": [".acc_", ".acc-"], "jwt": [".ey"]}
"""Rarer ones, which are in every match too."""
NAME = (r"[\w.-]{0,50}?", r"(?i)[\w.-]{0,50}?", r"[\w.-]{0,50}?(?i:[\w.-]{0,50}?")
ASSIGNMENT = r"""(?:=|>|:{1,3}=|\|\||:|=>|\?=|,)[\x60'"\s=]{0,5}"""
"""Between name and value; a rule with it is certain only if the value has a shape of its own."""
SHAPED_VALUE = re.compile(r"\(+(?:\?:)?(?:[A-Za-z0-9]{2,}[-_]|AQVN|A\{22\})")
ENDS = (
    r"""(?:[\x60'"\s;]|\\[nr]|$)""", r"""(?:[\x60'"\s;]|\\[nr]|$|\b)""", r"(?:[^\w-]|\z)", r"(?:[^a-zA-Z0-9+/]|\z)",
    r"(?:[\/|\#|\?|:]|$)", r"""(?:$|[\\'"\x60\s<),])""",
)  # fmt: skip
END_AFTER_NAME, END_AFTER_SHAPE = r"""(?:[\x60'"\s;,)}\]<&]|$)""", r"(?:\W|$)"
SEVERAL_LINES = (
    (r"(?:.*?|.*?(?:[\r\n]{1,2}.*?){1,5})", ".*?"), (r"(?:.*|.*(?:[\r\n]{1,2}.*){1,5})", ".*"), ("(?s:.)", "."),
)  # fmt: skip
ESCAPE_OR_CLASS = re.compile(r"\(\?:[\^$]\|\[[^\]]+\]|\\.|\[\^?(?:\[:\w+:\]|\\.|[^\]\\])+\]", re.DOTALL)
BLANKS = r" \t\r\f"


def within_line(regex: str) -> str:
    """Return the expression without anything that matches a line end."""

    def changed(match: re.Match[str]) -> str:
        if match[0][0] != "[":  # What may stand before or behind a key may be a line end.
            return f"[{BLANKS}]" if match[0] == r"\s" else match[0]
        content = match[0].replace("[^", r"[^\n", 1) if match[0].startswith("[^") else match[0].replace(r"\n", "")
        return content.replace(r"\s", BLANKS) if not match[0].startswith("[^") else content

    return ESCAPE_OR_CLASS.sub(changed, regex)


def changed_expression(regex: str) -> str:
    """Return the expression as the redactor uses it."""
    for prefix in sorted(NAME, key=len, reverse=True):
        if regex.startswith(prefix):
            regex = ("(?i)" if prefix.startswith("(?i)") else "(?i:" if "(?i:" in prefix else "") + regex[len(prefix) :]
            break
    for several, single in SEVERAL_LINES:
        regex = regex.replace(several, single)
    end = END_AFTER_NAME if ASSIGNMENT in regex else END_AFTER_SHAPE
    for ending in sorted(ENDS, key=len, reverse=True):
        regex = regex.replace(ending, "\0")
    return within_line(regex).replace("\0", end)


def is_certain(regex: str) -> bool:
    """Return True if what the expression finds has a shape of its own."""
    _, assignment, value = regex.rpartition(ASSIGNMENT)
    return not assignment or SHAPED_VALUE.match(value) is not None


def trimmed(rule: dict[str, Any]) -> dict[str, Any]:
    """Return what is used of a rule."""
    regex = str(rule["regex"])
    result: dict[str, Any] = {
        "name": rule["id"], "regex": changed_expression(regex),
        "keywords": KEYWORDS.get(str(rule["id"]), rule["keywords"]), "entropy": rule.get("entropy", 0),
    }  # fmt: skip
    if rule["id"] in WHOLE_MATCHES or "secretGroup" in rule:
        result["group"] = rule.get("secretGroup", 0)
    if not is_certain(regex):
        result["certain"] = False
    for allowlist in rule.get("allowlists", []):
        key = "allow_match" if allowlist.get("regexTarget") else "allow"
        for name, values in ((key, "regexes"), ("stopwords", "stopwords")):
            if allowlist.get(values):
                result[name] = [*result.get(name, []), *allowlist[values]]
    return {name: value for name, value in result.items() if value or name in ("certain", "group")}


def main(source: Path, version: str) -> None:
    data = source.read_bytes()
    config = tomllib.loads(data.decode())
    licence, licence_text = "MIT", (TARGET.parent / "gitleaks-LICENSE.txt").read_text("utf-8")
    assert licence_text.startswith("MIT License")
    rules = [trimmed(rule) for rule in config["rules"] if rule["id"] not in SKIPPED]
    content = {
        "source": "gitleaks, config/gitleaks.toml", "version": version, "sha256": hashlib.sha256(data).hexdigest(),
        "license": licence, "license_file": "gitleaks-LICENSE.txt", "made_by": "tools/secret_rules.py",
        "allow": config["allowlist"]["regexes"], "stopwords": config["allowlist"]["stopwords"], "rules": rules,
    }  # fmt: skip
    TARGET.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
