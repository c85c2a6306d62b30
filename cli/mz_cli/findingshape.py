"""A finding for `--json`."""

from __future__ import annotations

from mz_recordings.findings import KIND_PROPERTIES, Finding, risk_of

from mz_cli.replaypage import fix_command
from mz_cli.shapes.replay import ReplayFinding


def finding_shape(finding: Finding, path: str) -> ReplayFinding:
    """Return the JSON form of a finding. `path`: its cassette."""
    return ReplayFinding(
        kind=finding.kind,
        risk=risk_of(finding),
        exit=int(KIND_PROPERTIES[finding.kind].exit) if finding.fails else 0,
        message=finding.message,
        feature=finding.feature or None,
        call=finding.call or None,
        cause=finding.cause or None,
        detail=finding.detail,
        fix=fix_command(finding.fix, (path,)),
        file=finding.file or None,
        line=finding.line,
    )
