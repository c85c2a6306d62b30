"""Reports as a single HTML file without any external resource.

The page's Content-Security-Policy allows only its own style sheet and script, by digest, so that text from agents can
neither load nor run anything.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from importlib import resources

from jinja2 import StrictUndefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from markupsafe import Markup
from mz_engine.errors.codes import MEANINGS
from mz_engine.errors.exits import Exit
from mz_recordings.findings.grouping import FindingGroup
from mz_recordings.findings.model import KIND_PROPERTIES

from mz_cli.reports.findings import call_name, file_position, group_fix
from mz_cli.reports.model import Report, Suite, finding_groups, findings_by_case, kind_totals
from mz_cli.terminal.text import count_noun, format_elapsed, single_line

FEW_GROUPS, OPEN_GROUPS = 12, 3
"""With at most `FEW_GROUPS` groups, `OPEN_GROUPS` are expanded at first, otherwise one."""


def html(report: Report) -> str:
    """Return the HTML file of a sanitised report."""
    folder = resources.files("mz_cli.reports") / "page"
    template, style, script = ((folder / name).read_text("utf-8") for name in ("page.html.j2", "page.css", "page.js"))
    environment = ImmutableSandboxedEnvironment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    environment.filters |= {
        "calls": calls_by_suite, "diff_line": diff_line, "file_position": file_position, "fix": group_fix,
        "places": count_noun, "search_text": search_text, "single_line": single_line, "time": time_text,
    }  # fmt: skip
    groups = finding_groups(report)
    return environment.from_string(template).render(
        report=report,
        passed=report.exit == Exit.OK,
        meaning=MEANINGS[Exit(report.exit)],
        meanings={kind: properties.meaning for kind, properties in KIND_PROPERTIES.items()},
        kinds=kind_totals(groups),
        groups=groups,
        open_groups=OPEN_GROUPS if len(groups) <= FEW_GROUPS else 1,
        anchors={suite.label: f"suite-{number}" for number, suite in enumerate(report.suites, 1)},
        checks={suite.label: passed_and_all(suite) for suite in report.suites},
        style=Markup(style),
        script=Markup(script),
        policy=content_security_policy(style, script),
    )


def calls_by_suite(group: FindingGroup) -> dict[str, list[str]]:
    """Return the calls and features of a group by suite."""
    calls: dict[str, list[str]] = {}
    for label, finding in group.occurrences:
        calls.setdefault(label, []).extend(filter(None, [call_name(finding)]))
    return calls


def search_text(group: FindingGroup) -> str:
    """Return the text that the filter searches, in lower case."""
    calls = calls_by_suite(group)
    names = (name for named in calls.values() for name in named)
    return " ".join((group.kind, group.message, file_position(group.first), *group.causes, *calls, *names)).lower()


def diff_line(line: str) -> tuple[str, str]:
    """Return element and class of a line of a diff."""
    looks = {"+": ("ins", "new"), "-": ("del", "old")}
    return ("span", "hunk") if line.startswith("@@") else looks.get(line[:1], ("span", "same"))


def passed_and_all(suite: Suite) -> tuple[int, int]:
    """Return the number of cases that passed, and of all."""
    cases = findings_by_case(suite).values()
    return sum(not any(finding.fails for finding in findings) for findings in cases), len(cases)


def time_text(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 100 else format_elapsed(seconds)


def content_security_policy(style: str, script: str) -> str:
    """Return the Content-Security-Policy of the page."""
    style_digest, script_digest = (
        b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script)
    )
    allowed = f"style-src 'sha256-{style_digest}'; script-src 'sha256-{script_digest}'"
    return f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"
