"""Reports as JUnit XML, in the format that pytest, Jenkins and GitLab share (`junit-10.xsd` of Jenkins' xUnit plugin):
a test suite per suite, a test case per case, at most one failure or error per case."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from xml.etree import ElementTree as Xml

from mz_engine.errors.exits import Exit
from mz_recordings.findings.model import KIND_PROPERTIES, Finding, risk_of

from mz_cli.reports.findings import file_position, fix_command
from mz_cli.reports.model import Report, Suite, findings_by_case
from mz_cli.terminal.text import single_line

ERRORS = (Exit.BUG, Exit.INVALID, Exit.NOT_COMPARABLE)
"""Exit codes reported as errors instead of failures, because nothing was compared."""


def junit(report: Report) -> str:
    """Return the XML file of a sanitised report."""
    elements = [_suite(suite) for suite in report.suites]
    root = Xml.Element("testsuites", name=report.title, time=f"{sum(suite.seconds for suite in report.suites):.3f}")
    for name in ("tests", "failures", "errors"):
        root.set(name, str(sum(int(suite.get(name, "0")) for suite in elements)))
    root.extend(elements)
    Xml.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{Xml.tostring(root, encoding="unicode")}\n'


def _suite(suite: Suite) -> Xml.Element:
    cases = [_case(suite, name, findings) for name, findings in findings_by_case(suite).items()]
    element = Xml.Element("testsuite", name=suite.label, tests=str(len(cases)))
    for name, tag in (("failures", "failure"), ("errors", "error")):
        element.set(name, str(sum(case.find(tag) is not None for case in cases)))
    element.set("skipped", "0")
    element.set("time", f"{suite.seconds:.3f}")
    if suite.properties:
        properties = Xml.SubElement(element, "properties")
        for property_name, value in suite.properties:
            Xml.SubElement(properties, "property", name=property_name, value=value)
    element.extend(cases)
    return element


def _case(suite: Suite, name: str, findings: Sequence[Finding]) -> Xml.Element:
    element = Xml.Element("testcase", name=name, classname=suite.label)
    text = "\n\n".join("\n".join(_lines(suite, finding)) for finding in findings)
    failing = [finding for finding in findings if finding.fails]
    if failing:
        broken = any(KIND_PROPERTIES[finding.kind].exit in ERRORS for finding in failing)
        kinds = dict.fromkeys(finding.kind for finding in failing)
        message = "; ".join(dict.fromkeys(single_line(finding.message) for finding in failing))
        tag = Xml.SubElement(element, "error" if broken else "failure", type=", ".join(kinds), message=message)
        tag.text = text
    elif findings:
        Xml.SubElement(element, "system-out").text = text
    return element


def _lines(suite: Suite, finding: Finding) -> Iterator[str]:
    """Yield a complete finding: kind and message, location, cause, diff and fix."""
    yield f"{finding.kind} ({risk_of(finding)} risk): {finding.message}"
    if finding.file:
        yield file_position(finding)
    if finding.cause:
        yield f"cause: {finding.cause}"
    yield from finding.detail
    if finding.fix:
        yield f"fix: {fix_command(finding.fix, (suite.label,))}"
