"""JUnit XML reports, which many test runners write beside their output."""

from __future__ import annotations

from xml.parsers.expat import ExpatError, ParserCreate

REPORT_BYTES_MAX = 20_000_000
SUITES = ("testsuite", "testsuites")


def failed_cases(data: bytes) -> tuple[str, ...] | None:
    """Return the ids of the failed test cases, as `class::name`; None if the data is no JUnit report."""
    root, case, failed = list[str](), list[str](), list[str]()

    def start(name: str, attributes: dict[str, str]) -> None:
        root.append(name)
        if root[0] not in SUITES:
            raise ValueError(name)
        if name == "testcase":
            case[:] = ["::".join(filter(None, (attributes.get("classname"), attributes.get("name"))))]
        elif name in ("failure", "error") and case:
            failed.append(case.pop())

    def end(name: str) -> None:
        if name == "testcase":
            case.clear()

    def refuse(*_: object) -> None:
        raise ValueError("an entity")

    parser = ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler, parser.EntityDeclHandler = start, end, refuse
    try:
        parser.Parse(data, True)
    except (ExpatError, ValueError):
        return None
    return tuple(sorted(failed))
