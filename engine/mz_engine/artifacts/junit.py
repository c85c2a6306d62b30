"""JUnit XML reports, which many test runners write beside their output."""

from __future__ import annotations

from xml.parsers.expat import ExpatError, ParserCreate

REPORT_BYTES_MAX = 20_000_000
SUITES = ("testsuite", "testsuites")


def read_cases(data: bytes) -> tuple[list[str], list[str]]:
    """Return the ids of passed and failed cases, as `class::name`; none if the data is no JUnit report, whose sums are
    not read."""
    root, case, passed, failed = "", list[str](), list[str](), list[str]()

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal root
        root = root or name
        if root not in SUITES:
            raise ValueError(name)
        if name == "testcase":
            case[:] = ["::".join(filter(None, (attributes.get("classname"), attributes.get("name"))))]
        elif name in ("failure", "error") and case:
            failed.append(case[0])
            case.clear()
        elif name == "skipped" and case:
            case.append(name)

    def end(name: str) -> None:
        if name == "testcase":
            passed.extend(case if len(case) == 1 else ())
            case.clear()

    def refuse(*_: object) -> None:
        raise ValueError("an entity")

    parser = ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler, parser.EntityDeclHandler = start, end, refuse
    try:
        parser.Parse(data, True)
    except (ExpatError, ValueError):
        return [], []
    return passed, failed
