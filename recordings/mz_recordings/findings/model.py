"""Findings of all checks: their kinds, each with its exit code, the commands that fix them, and the result of replaying
one cassette. Findings of many cassettes are grouped by cause, so that one edited line gives one entry to read and fix.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from shlex import quote
from typing import Literal, NamedTuple

import msgspec
from mz_engine.errors.diagnostics import Exit

from mz_recordings.cassette.model import Identity

FindingKind = Literal[
    "PROMPT", "CONFIG", "STREAM", "TRACE", "ARTIFACT", "FILES", "COST", "DECISION", "EXPIRED", "UNUSED",
    "MISSING", "COPIED", "NETWORK", "SECRET", "PIPELINE", "UNREADABLE", "COMMAND",
    "ADAPTER", "RULE", "SPEC", "FORMAT", "VARIANT", "NOTHING-CHECKED", "INTERNAL-ERROR",
]  # fmt: skip
"""First line: drift. Second line: reasons why a cassette cannot be replayed or trusted. Third line: findings of a gate
only."""
Risk = Literal["low", "medium", "high"]


class KindProperties(NamedTuple):
    """Properties shared by all findings of a kind."""

    exit: Exit
    risk: Risk
    meaning: str
    """Short clause for reports."""


KIND_PROPERTIES: dict[FindingKind, KindProperties] = {
    "INTERNAL-ERROR": KindProperties(Exit.BUG, "high", "the check itself failed"),
    "PIPELINE": KindProperties(Exit.INVALID, "high", "the current pipeline or settings are invalid"),
    "UNREADABLE": KindProperties(Exit.NOT_COMPARABLE, "high", "a cassette, fixture or past run cannot be read"),
    "SECRET": KindProperties(Exit.SECRET, "high", "the recording contains a secret"),
    "NETWORK": KindProperties(Exit.NETWORK, "high", "a process tried to reach the network"),
    "PROMPT": KindProperties(Exit.DRIFT, "medium", "the agent gets another prompt"),
    "CONFIG": KindProperties(Exit.DRIFT, "medium", "the agent is called with other settings"),
    "STREAM": KindProperties(Exit.DRIFT, "medium", "the agent's output format changed"),
    "FILES": KindProperties(Exit.DRIFT, "high", "other files are changed, or the call starts from another tree"),
    "DECISION": KindProperties(Exit.DRIFT, "high", "a rule, a gate or a permission decides differently"),
    "ARTIFACT": KindProperties(Exit.DRIFT, "medium", "an artifact has another structure"),
    "TRACE": KindProperties(Exit.DRIFT, "high", "the same calls produce different events"),
    "COST": KindProperties(Exit.DRIFT, "low", "tokens or cost differ"),
    "MISSING": KindProperties(Exit.RECORDING, "high", "a call or a trace was not recorded"),
    "UNUSED": KindProperties(Exit.RECORDING, "low", "the recording is unused"),
    "EXPIRED": KindProperties(Exit.RECORDING, "medium", "the recordings are older than allowed"),
    "COMMAND": KindProperties(Exit.RECORDING, "high", "a kept result of a command does not hold"),
    "COPIED": KindProperties(Exit.RECORDING, "high", "the replies were copied from another agent"),
    "ADAPTER": KindProperties(Exit.VERDICT, "high", "an agent's adapter breaks its contract"),
    "RULE": KindProperties(Exit.VERDICT, "high", "a rule judges an artifact wrongly"),
    "SPEC": KindProperties(Exit.VERDICT, "high", "a specification breaks its rules or contradicts another"),
    "FORMAT": KindProperties(Exit.VERDICT, "high", "an older file is not read as it was meant"),
    "VARIANT": KindProperties(Exit.VERDICT, "high", "a failing call is not handled as required"),
    "NOTHING-CHECKED": KindProperties(Exit.RECORDING, "medium", "there was nothing to check"),
}
"""In the order of reports."""
ORDER = tuple(KIND_PROPERTIES)
RISKS: tuple[Risk, ...] = ("low", "medium", "high")
"""In ascending order."""
ACCEPTABLE: tuple[FindingKind, ...] = ("PROMPT", "CONFIG", "TRACE", "DECISION", "ARTIFACT", "STREAM", "COST")
"""Kinds whose new inputs a person may accept while keeping the replies."""


class CallMismatch(msgspec.Struct, frozen=True):
    """Differences between a call and its recording; None: no difference."""

    prompt: str | None = None
    argv: tuple[str, ...] | None = None
    environment: tuple[str, ...] | None = None
    """Names of variables that no call may see."""
    tree: str | None = None
    rejection: str | None = None
    """Why the recorded reply could not be served."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One difference from a recording, or one defect."""

    kind: FindingKind
    message: str
    """One sentence without a full stop."""
    feature: str = ""
    call: str = ""
    """Name of the recording, such as `code.a2`."""
    cause: str = ""
    """The template or the setting that caused drift."""
    detail: tuple[str, ...] = ()
    """Lines of a diff: `-` recorded, `+` current."""
    fix: str = ""
    """Command that fixes it; `{cassette}` stands for the cassette's path."""
    risk: Risk | None = None
    """None: the default of the kind."""
    file: str = ""
    """Path relative to the project: a template, a rule set, mz.yaml or a file of the cassette."""
    line: int | None = None
    """Line of that file, from 1, if known."""
    fails: bool = True
    """The finding makes the command fail."""


def risk_of(finding: Finding) -> Risk:
    """Return the finding's own risk, else the default of its kind."""
    return finding.risk or KIND_PROPERTIES[finding.kind].risk


class ReplayFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What the replay of one cassette did, without its findings."""

    path: str
    name: str
    provenance: str = ""
    """Unknown where the cassette cannot be read."""
    recordings: int = 0
    calls_replayed: int = 0
    accepted_replies: int = 0
    """Number of replies that were kept when their prompt changed."""
    offline: bool = True
    """The network was cut off; otherwise only the proxy variables point nowhere."""
    online: tuple[str, ...] = ()
    """What had a network all the same, by `sandbox.online_in_replays`, if commands were executed."""
    trace_digests: dict[str, str] = {}
    """Digest of each feature's current trace."""
    traces_compared: int = 0
    """Number of features with a recorded trace to compare."""
    duration_ms: int = 0
    overridden_settings: tuple[str, ...] = ()
    """Settings, such as `commands.test`, used from the cassette instead of mz.yaml."""
    changes: tuple[str, ...] = ()
    """Description of each change written into the cassette."""
    in_memory: bool = False
    """Unchanged effects were answered from the record; otherwise everything was executed."""
    reason: str = ""
    """Why everything was executed although `--real` did not ask for it; empty if there is no such reason."""
    commands_answered: int = 0
    """Number of commands whose kept result was used."""
    commands_executed: int = 0


class ReplayResult(ReplayFigures, frozen=True, kw_only=True):
    """Result of replaying one cassette through the current pipeline."""

    calls: tuple[str, ...] = ()
    """Its recordings, such as `alpha/code.a2`; empty if the replay was impossible."""
    artifacts_checked: int = 0
    """Number of recorded artifacts that the current rules checked."""
    findings: tuple[Finding, ...] = ()


ACCEPT = "mz replay {cassette} --accept %s -m TEXT"
"""Accept new inputs or events and keep the replies; takes the finding kind."""
RERECORD = "mz rerecord {cassette}"
RERECORD_ALL = f"{RERECORD} --all"
RERECORD_EXPIRED = f"{RERECORD} --expired"
RECORD_NEW = f"{RERECORD} --new"
PRUNE = "mz replay {cassette} --prune"
KEEP = "mz replay {cassette} --keep"
PROPOSE_NOISE = "mz drift {cassette} --propose-noise -m TEXT"
"""Propose entries of `noise.yaml` for the differences."""
RECORD_AGAIN = "take it out of the project and commit, then: mz run && mz record --replace --to {cassette}"
"""Record from another commit: re-recording replies does not change the content of the project."""
UPDATE_BASELINE = "mz drift {cassette} --update-baseline -m TEXT"


def rerecord_call(call: Identity) -> str:
    return f"{RERECORD} {quote(f'{call.feature}/{call.phase}')}"


def rerecord_feature(feature: str) -> str:
    return f"{RERECORD} {quote(feature)}"


def finding_kinds(findings: Iterable[Finding]) -> tuple[FindingKind, ...]:
    """Return the kinds of the findings, each once."""
    return tuple(dict.fromkeys(finding.kind for finding in findings))


# groups ---------------------------------------------------------------------------------------------------------------
class FindingGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Findings with the same kind and cause."""

    kind: FindingKind
    message: str
    causes: tuple[str, ...]
    occurrences: tuple[tuple[str, Finding], ...]
    """Cassette path and finding."""

    @property
    def risk(self) -> Risk:
        """Return the highest risk of the findings."""
        return max((risk_of(finding) for _, finding in self.occurrences), key=RISKS.index)

    @property
    def fails(self) -> bool:
        return any(finding.fails for _, finding in self.occurrences)

    @property
    def first(self) -> Finding:
        return self.occurrences[0][1]

    @property
    def detail(self) -> tuple[str, ...]:
        """Return the detail of the first finding; the others are similar."""
        return self.first.detail

    @property
    def cassettes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(path for path, _ in self.occurrences))


def group_results(results: Iterable[ReplayResult]) -> tuple[FindingGroup, ...]:
    """Group the findings of all results by kind and cause."""
    return group_findings((result.path, finding) for result in results for finding in result.findings)


def group_findings(findings: Iterable[tuple[str, Finding]]) -> tuple[FindingGroup, ...]:
    """Group findings, each with a path or a name.

    Prompt findings with the same template or the same changed lines share a group. Runs in linear time.
    """
    groups: dict[int, list[tuple[str, Finding]]] = {}
    owner: dict[object, int] = {}
    keys: dict[int, list[object]] = {}
    for number, entry in enumerate(findings):
        own_keys = list(_keys(entry[1]))
        first, *others = sorted({owner[key] for key in own_keys if key in owner}) or [number]
        groups.setdefault(first, []).append(entry)
        keys.setdefault(first, []).extend(own_keys)
        for other in others:
            groups[first] += groups.pop(other)
            keys[first] += keys.pop(other)
        owner |= dict.fromkeys(keys[first] if others else own_keys, first)
    result = (_group(entries) for entries in groups.values())
    return tuple(sorted(result, key=lambda group: ORDER.index(group.kind)))


def verdict_line(result: ReplayResult, path: str) -> str:
    """Return one line with the verdict on a replayed cassette, labelled `path`. Whitespace in the path, which the
    author of the folder chose, is collapsed."""
    kinds = sorted({finding.kind for finding in result.findings})
    verdict = "matches the recording" if not kinds else ", ".join(kinds)
    return f"{' '.join(path.split())}: {verdict} ({result.duration_ms / 1000:.1f} s)"


def _keys(finding: Finding) -> Iterator[object]:
    """Yield keys; findings that share one have the same cause."""
    kind = finding.kind, risk_of(finding)
    if finding.kind == "PROMPT":
        yield kind, "cause", finding.cause
        yield kind, "changed", frozenset(line for line in finding.detail if line[:1] in "+-")
    elif finding.kind in ("CONFIG", "DECISION"):
        yield kind, finding.cause, finding.detail
    elif finding.kind in ("COST", "ARTIFACT") or (finding.kind == "FILES" and finding.risk == "low"):
        yield kind, finding.cause
    elif finding.kind == "STREAM":
        yield kind, finding.cause, finding.detail


def _group(entries: list[tuple[str, Finding]]) -> FindingGroup:
    first = entries[0][1]
    causes = tuple(sorted({finding.cause for _, finding in entries if finding.cause}))
    message = first.message
    if first.kind == "PROMPT":
        number = f"{len(entries)} prompts differ" if len(entries) > 1 else "a prompt differs"
        message = f"{', '.join(causes)}: {number} from the recording"
    elif first.kind == "CONFIG" and len(entries) > 1:
        message = f"{message}, in {len(entries)} calls"
    elif len(entries) > 1:
        message = f"{message}; {len(entries)} occurrences in total"
    return FindingGroup(kind=first.kind, message=message, causes=causes, occurrences=tuple(entries))
