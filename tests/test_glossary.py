"""Pages use the terms of docs/glossary.md: a table of words that they must not use for a concept."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.support.tree import ROOT

WRONG_TERMS = {
    r"stor(?:y|ies)": "trace",
    r"(?<!simulated )worlds?": "fixture (of a cassette)",
    r"wires?": "stream, or stream shape",
    r"letters? (?:for|of|to) (?:a|the) run": "message",
    r"crews?|tapes?|shel(?:f|ves)|desks?": "the glossary's term",
    r"mend(?:s|ed|ing)?": "fix",
    r"put(?:s|ting)? back": "restore, reset or revert",
    r"(?:come|comes|came|brings?) .{0,30}to rest|at rest|rest(?:s|ed)": "stopped, idle, held or waiting",
    r"go(?:es|ing)? on|went on": "continue",
    r"give(?:s|n)? up|gave up": "cancel, or fail",
    r"hand(?:s|ed)? over|handed in": "produce, or deliver",
    r"once more": "retry, or again",
    r"for nothing": "free, or wasted",
    r"thrown away": "wasted",
    r"not as recorded|as (?:it|they) (?:was|were) recorded": "matches, or differs from, the recording",
    r"owed": "pending",
    r"the worst of": "the highest",
}
"""Pattern, as whole words in any case, and the term to use instead."""

GENERATED = {"commands.md", "json.md", "what-agents-tell.md", "figures.md", "errors.md"}
"""Pages, or most of them, that a program writes from the code."""
PAGES = sorted(
    [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
    + [path for path in (ROOT / "docs").glob("*.md") if path.name not in GENERATED]
    + [path for path in ROOT.glob("*/README.md") if path.parent.name != "docs"]
)


def prose(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines outside of code blocks, numbered from 1, without inline code and link targets."""
    fence = ""
    for number, line in enumerate(text.splitlines(), 1):
        marks = re.match(r" {0,3}(`{3,}|~{3,})", line)
        if marks and (not fence or line.strip() == fence):
            fence = "" if fence else marks[1]
        elif not fence and not line.startswith("    "):
            yield number, re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`]*`", "``", line))


def wrong_terms(text: str) -> Iterator[str]:
    for number, line in prose(text):
        for pattern, term in WRONG_TERMS.items():
            for match in re.finditer(rf"(?<![\w-])(?:{pattern})(?![\w-])", line, re.IGNORECASE):
                yield f"{number}: {match[0]!r}: say {term}: {line.strip()}"


def test_pages_use_the_terms_of_the_glossary() -> None:
    findings = [
        f"{path.relative_to(ROOT)}:{finding}" for path in PAGES for finding in wrong_terms(path.read_text("utf-8"))
    ]
    assert not findings, "\n".join(findings)


def test_prose_is_told_from_code() -> None:
    text = "The story.\n```\nthe story\n```\nSee `the story` and [a page](story.md).\n    story\n"
    assert [finding.partition(":")[0] for finding in wrong_terms(text)] == ["1"]


def test_the_glossary_defines_each_term_once() -> None:
    rows = re.findall(r"^\| (?!term|---)(.+?) \|", (ROOT / "docs" / "glossary.md").read_text("utf-8"), re.MULTILINE)
    terms = [term.strip() for row in rows for term in row.split(",")]
    assert len(terms) > 100
    assert sorted(terms) == sorted(set(terms))
