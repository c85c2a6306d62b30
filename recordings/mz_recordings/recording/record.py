"""Creation of a cassette from a past run: from the log, the blobs and the captured trees alone.

Ports are only read. The invocation of a call is not stored anywhere; the adapter builds it again from the same request.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Literal, NamedTuple

import msgspec
from mz_engine.agents.contract import Adapter, Invocation
from mz_engine.agents.generic_form import AgentDescription
from mz_engine.agents.jsonline import decode
from mz_engine.pins import Pins, decode_pins
from mz_engine.pipelines.definition import Phase
from mz_engine.ports import CallResult, CallSpec, Place, Workspace
from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentFailed, AgentLost, AgentReplied, AgentRequested, ReplyRead, Usage
from mz_events.catalog.feature import FeatureStarted
from mz_events.catalog.run import ItemAdded, ItemSkipped, RunStarted
from mz_events.envelope import Recorded
from mz_events.names import Commit, Digest, Path, feature_stream, run_stream
from mz_events.redact import Secrets
from mz_events.store import Blobs, Store
from mz_projections.run import fold_run

from mz_recordings.cassette import (
    BUILDER,
    FORMAT,
    WORLD_KEYS,
    Cassette,
    Delivered,
    Failure,
    Identity,
    Item,
    Kind,
    Manifest,
    Provenance,
    Recording,
    StoredFile,
    Taken,
    World,
    identity_of,
)
from mz_recordings.recording.circumstances import LeftOut, dependencies, hints, left_out, said
from mz_recordings.recording.conceal import conceal
from mz_recordings.recording.scrub import Places, scrub
from mz_recordings.recording.story import in_run, story, write

STREAM_JSON = "stream-json"
"""Argument by which some agents write JSON lines."""

Outcome = AgentReplied | AgentFailed | AgentLost


class RunUnknown(Exception):
    """The log has no such run."""


class NothingToRecord(Exception):
    """No feature of the run can be replayed; gives the reason for each."""

    def __init__(self, run: str, left_out: tuple[LeftOut, ...]) -> None:
        reasons = "; ".join(f"{out.feature}: {out.why}" for out in left_out) or "it has no features"
        super().__init__(f"no feature of run {run} can be recorded ({reasons})")
        self.left_out = left_out


class SecretInRecording(Exception):
    """A prompt, a patch or an artifact contains a secret. These are never rewritten, so the run cannot be recorded."""

    def __init__(self, where: str, names: tuple[str, ...]) -> None:
        super().__init__(f"{where} contains a secret ({', '.join(names)}); it cannot be recorded")
        self.where, self.names = where, names


class Sources(NamedTuple):
    """Data sources of a recording."""

    log: Store
    blobs: Blobs
    workspace: Workspace
    tree_id: Callable[[Commit], str]
    """Return git's tree id of a commit."""
    bundle: Callable[[Commit, Mapping[str, Commit]], bytes]
    """Return a git bundle with the content of a commit and of further ones by feature, without history."""
    adapters: Callable[[Mapping[str, AgentDescription]], Mapping[str, Adapter]]
    """Return mz's own adapters and those of the agents that a run's settings describe."""
    secrets: Secrets
    root: str
    """Absolute path of the repository, spelled as agents see it."""
    home: str
    user: str
    home_behind: str = ""
    """Resolved path of the home directory."""


class Call(NamedTuple):
    """One call, as the log has it."""

    feature: str
    branch: str
    request: AgentRequested
    at_us: int
    """Time of the request by the raw clock."""
    outcome: Outcome
    read: ReplyRead | None
    earlier: tuple[Usage, ...] = ()
    """For a continued session: usage of its earlier calls."""


class RecordedRun(NamedTuple):
    """A run as a cassette, and the features that are not in it."""

    cassette: Cassette
    left_out: tuple[LeftOut, ...]


def record_run(
    sources: Sources,
    run: str,
    *,
    name: str,
    provenance: Provenance,
    template: str = "",
    max_age_days: int | None = None,
) -> RecordedRun:
    """Record every call of every stopped feature of a run. Raises UnknownRun, NothingToRecord, SecretInRecording,
    BlobMissing and RepositoryUnusable (a captured tree is missing)."""
    state = fold_run(sources.log.read(run_stream(run)))
    started = state.started
    if started is None:
        raise RunUnknown(f"there is no run {run!r}")
    missing = left_out(sources.log, run, state)
    known = {out.feature for out in missing}
    items = tuple(track.item for feature, track in state.tracks.items() if feature not in known)
    if not items:
        raise NothingToRecord(run, missing)
    pins = decode_pins(sources.blobs.get(started.pins))
    stories = {str(item.feature): write(story(_events(sources.log, run, item.feature))) for item in items}
    below = dependencies(items, state.skipped)
    bundle = b"" if template else sources.bundle(started.base_commit, _heads(below))
    manifest = Manifest(
        format=FORMAT,
        name=name,
        pipeline=pins.pipeline.pipeline,
        agent=pins.config.agent,
        provenance=provenance,
        mz=started.core,
        max_age_days=max_age_days,
        stories={feature: hashlib.sha256(told).hexdigest() for feature, told in stories.items()},
        world=_world(sources, started, pins, items, below, template, bundle),
        evidence=_plain(pins),
    )
    _refuse_secrets(sources, "the run's input (settings, pipeline, backlog)", msgspec.json.encode(manifest))
    calls = [(item, call) for item in items for call in calls_of(sources.log, run, item.feature)]
    taken = tuple(take(sources, run, pins, call) for _, call in calls)
    return RecordedRun(Cassette(manifest, taken, stories, bundle), missing)


def _world(
    sources: Sources,
    started: RunStarted,
    pins: Pins,
    items: tuple[ItemAdded, ...],
    below: tuple[ItemSkipped, ...],
    template: str,
    bundle: bytes,
) -> World:
    run, features = started.run, [item.feature for item in items]
    notes = tuple(said(sources.log, sources.blobs, run, features))
    for note in notes:
        _refuse_secrets(sources, f"a person's note on {note.feature}", (note.note or "").encode())
    return World(
        run=run,
        template=template,
        bundle_sha256=hashlib.sha256(bundle).hexdigest() if bundle else "",
        base=started.base,
        base_commit=started.base_commit,
        base_tree=sources.tree_id(started.base_commit),
        clock_start=_time(next(iter(sources.log.read(run_stream(run)))).observed_at_us),
        items=tuple(_item(sources, item) for item in items),
        config={key: value for key, value in _plain(pins.config).items() if key in WORLD_KEYS},
        said=notes,
        hints=tuple(hints(sources.log, run, features)),
        delivered=tuple(
            Delivered(feature=feature, tree=sources.tree_id(head)) for feature, head in _heads(below).items()
        ),
    )


def _heads(below: tuple[ItemSkipped, ...]) -> dict[str, Commit]:
    return {item.feature: item.head for item in below if item.head is not None}


def _events(log: Store, run: str, feature: str) -> Iterator[Event]:
    stream = log.read(feature_stream(run, feature))
    return (in_run(recorded.event, run) if recorded.copied else recorded.event for recorded in stream)


def calls_of(log: Store, run: str, feature: str) -> Iterator[Call]:
    """Yield the feature's calls that have an outcome, in order."""
    events: list[Recorded[Event]] = list(log.read(feature_stream(run, feature)))
    branch = next((recorded.event.branch for recorded in events if isinstance(recorded.event, FeatureStarted)), "")
    outcomes = {recorded.event.ref.key: recorded.event for recorded in events if isinstance(recorded.event, Outcome)}
    replies = {recorded.event.ref.key: recorded.event for recorded in events if isinstance(recorded.event, ReplyRead)}
    for recorded in events:
        request = recorded.event
        if isinstance(request, AgentRequested) and (outcome := outcomes.get(request.ref.key)):
            yield Call(
                feature, branch, request, recorded.observed_at_us, outcome, replies.get(request.ref.key),
                _earlier(recorded, events),
            )  # fmt: skip


def _earlier(call: Recorded[Event], events: list[Recorded[Event]]) -> tuple[Usage, ...]:
    request = call.event
    if not isinstance(request, AgentRequested) or not request.resumes:
        return ()
    before = (recorded.event for recorded in events if recorded.version < call.version)
    replies = {reply.ref.key: reply for reply in before if isinstance(reply, ReplyRead)}
    return tuple(usage for reply in replies.values() if reply.session == request.session for usage in reply.usage)


def take(sources: Sources, run: str, pins: Pins, call: Call) -> Taken:
    """Record one call. Raises SecretInRecording, BlobMissing, RepositoryUnusable (a captured tree is missing)."""
    request, outcome = call.request, call.outcome
    identity = identity_of(pins.pipeline.pipeline, call.feature, request.ref)
    adapter = sources.adapters(pins.config.agents)[request.agent]
    phase = pins.pipeline.find(request.ref.phase)
    invocation = invocation_of(adapter, _spec(sources, run, phase, call))
    stdout = sources.blobs.get(outcome.stdout)
    stderr = b"" if isinstance(outcome, AgentLost) else sources.blobs.get(outcome.stderr)
    after = request.tree if isinstance(outcome, AgentLost) else outcome.tree
    files = [
        *_streams(sources, run, call, identity, invocation.argv, stdout, stderr),
        *_artifacts(sources, phase, call, identity, after),
        *_patch(sources, identity, request.tree, after),
    ]
    contents = {file.name: data for file, data in files}
    recording = Recording(
        format=FORMAT,
        identity=identity,
        agent=request.agent,
        version=_version(adapter, outcome, stdout),
        model=request.model,
        argv=tuple("<SESSION>" if word == request.session else word for word in invocation.argv),
        environment=tuple(sorted({*invocation.env, *pins.config.pass_environment})),
        tree_before=sources.tree_id(request.tree),
        tree_after=sources.tree_id(after),
        outcome=_outcome(outcome),
        exit=outcome.exit if isinstance(outcome, AgentReplied) else None,
        failure=_failure(outcome),
        recorded_at=_time(call.at_us),
        duration_ms=0 if isinstance(outcome, AgentLost) else outcome.duration_ms,
        files=tuple(file for file, _ in files),
        offences=outcome.offences if isinstance(outcome, AgentReplied) else (),
        earlier=call.earlier,
    )
    return Taken(recording, contents)


# inputs ---------------------------------------------------------------------------------------------------------------
def _spec(sources: Sources, run: str, phase: Phase, call: Call) -> CallSpec:
    request = call.request
    use = phase.agent if request.ref.role == BUILDER else phase.review
    return CallSpec(
        key=request.ref.key,
        place=Place(run=run, feature=call.feature, branch=call.branch),
        agent=request.agent,
        model=request.model,
        prompt=_text(sources, request.prompt),
        session=request.session,
        resumes=request.resumes,
        tools=use.tools if use is not None else (),
        total_seconds=phase.timeout.total_seconds,
        idle_seconds=phase.timeout.idle_seconds,
    )


def invocation_of(adapter: Adapter, spec: CallSpec) -> Invocation:
    """Return what the adapter would start, with every variable that it would pass on."""
    invocations: list[Invocation] = []

    def note(_: CallSpec, invocation: Invocation) -> CallResult:
        invocations.append(invocation)
        return CallResult(stdout=b"", stderr=b"", exit=0, duration_ms=0)

    adapter.run_phase(spec, EveryName(), note)
    return invocations[0]


class EveryName(Mapping[str, str]):
    """An environment that has every name, each with an empty value."""

    def __getitem__(self, name: str) -> str:
        return ""

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


# outputs --------------------------------------------------------------------------------------------------------------
def _streams(
    sources: Sources, run: str, call: Call, identity: Identity, argv: tuple[str, ...], stdout: bytes, stderr: bytes
) -> Iterator[tuple[StoredFile, bytes]]:
    prompt = sources.blobs.get(call.request.prompt)
    _refuse_secrets(sources, f"the prompt of {identity.path}", prompt)
    places = _places(sources, run, call, stdout)
    yield _file("prompt", f"{identity.name}.prompt.md", scrub(prompt, places))
    yield _file("stdout", f"{identity.name}.{_form(argv, stdout)}", _harmless(sources, stdout, places))
    if stderr:
        yield _file("stderr", f"{identity.name}.stderr", _harmless(sources, stderr, places))


def _form(argv: tuple[str, ...], stdout: bytes) -> str:
    """Return the file name suffix of a stream: from the arguments, else from the content."""
    if STREAM_JSON in argv:
        return STREAM_JSON
    first = stdout.lstrip().partition(b"\n")[0]
    if first and decode(first) is not None:
        return "jsonl" if b"\n" in stdout.strip() else "json"
    return "json" if decode(stdout) is not None else "txt"


def _harmless(sources: Sources, output: bytes, places: tuple[Places, ...]) -> bytes:
    """Return the output without secrets and machine-specific paths."""
    return conceal(scrub(sources.secrets.clean(output), places), places)


def _places(sources: Sources, run: str, call: Call, stdout: bytes) -> tuple[Places, ...]:
    """Return the paths of this repository and of other locations that the output names: it may have been moved."""
    made_in = call.request.ref.key.partition("/")[0]  # Of a fork, another run.
    within = f"/.mz/worktrees/{made_in}/{call.feature}"
    said = re.findall(rb'"(/[^"\n]*)' + re.escape(within.encode()) + rb'"', stdout)
    roots = dict.fromkeys((sources.root, *(_unquoted(root) for root in said)))
    session = call.request.session or ""
    here = tuple(Places(root + within, root, sources.home, sources.user, session) for root in roots if root)
    return (*here, Places(home=sources.home_behind))


def _unquoted(text: bytes) -> str:
    """Return the content of a JSON string; empty if it is invalid."""
    try:
        return str(json.loads(b'"%s"' % text))
    except ValueError:
        return ""


def _artifacts(
    sources: Sources, phase: Phase, call: Call, identity: Identity, after: Commit
) -> Iterator[tuple[StoredFile, bytes]]:
    """Yield the artifacts of the phase: files of the tree, or the reply, as for a review."""
    taken: set[str] = set()
    for artifact, path in _outputs(phase, call, identity):
        if path:
            data = sources.workspace.read(after, Path(path))
        else:
            data = sources.blobs.get(call.read.text) if call.read is not None else None
        if data is None:
            continue
        ending = PurePosixPath(path or "reply.md").suffix or ".txt"
        name = f"{identity.name}{ending if ending == '.md' else f'.out{ending}'}"
        if name in taken:
            name = f"{identity.name}.{artifact}.out{ending}"
        taken.add(name)
        _refuse_secrets(sources, f"the artifact {artifact} of {identity.path}", data)
        yield _file("artifact", name, data, artifact, path)


def _outputs(phase: Phase, call: Call, identity: Identity) -> Iterator[tuple[str, str]]:
    if identity.role != BUILDER:
        yield (phase.review.output if phase.review is not None else identity.role), ""
        return
    for output in phase.outputs:
        path = (output.path or "").replace("{feature}", call.feature).replace("{unit}", identity.unit)
        yield output.artifact, path


def _patch(sources: Sources, identity: Identity, before: Commit, after: Commit) -> Iterator[tuple[StoredFile, bytes]]:
    if patch := sources.workspace.patch(before, after):
        _refuse_secrets(sources, f"the patch of {identity.path}", patch)
        yield _file("patch", f"{identity.name}.patch", patch)


def _file(kind: Kind, name: str, data: bytes, artifact: str = "", path: str = "") -> tuple[StoredFile, bytes]:
    sha256 = hashlib.sha256(data).hexdigest()
    return StoredFile(kind=kind, name=name, sha256=sha256, artifact=artifact, path=path), data


def _version(adapter: Adapter, outcome: Outcome, stdout: bytes) -> str:
    if isinstance(outcome, AgentReplied) and outcome.version:
        return outcome.version
    return adapter.parse_output(CallResult(stdout=stdout, stderr=b"", exit=None, duration_ms=0)).version


def _outcome(outcome: Outcome) -> Literal["replied", "failed", "lost"]:
    match outcome:
        case AgentReplied():
            return "replied"
        case AgentFailed():
            return "failed"
        case AgentLost():
            return "lost"


def _failure(outcome: Outcome) -> Failure | None:
    if not isinstance(outcome, AgentFailed):
        return None
    return Failure(kind=outcome.problem.kind.value, code=outcome.problem.code)


# helpers --------------------------------------------------------------------------------------------------------------
def _item(sources: Sources, item: ItemAdded) -> Item:
    return Item(
        feature=item.feature,
        title=_text(sources, item.title),
        body=_text(sources, item.body),
        priority=item.priority,
        depends_on=item.depends_on,
    )


def _plain(facts: msgspec.Struct) -> dict[str, object]:
    """Return the struct as plain JSON values."""
    return msgspec.json.decode(msgspec.json.encode(facts), type=dict[str, object])


def _refuse_secrets(sources: Sources, where: str, data: bytes) -> None:
    if names := sources.secrets.scan(data):
        raise SecretInRecording(where, names)


def _text(sources: Sources, digest: Digest) -> str:
    return sources.blobs.get(digest).decode("utf-8", "replace")


def _time(at_us: int) -> str:
    return datetime.fromtimestamp(at_us // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
