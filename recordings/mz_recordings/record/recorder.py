"""Creation of a cassette from a past run: from the log, the blobs and the captured trees alone.

Ports are only read. The invocation of a call is not stored anywhere; the adapter builds it again from the same request.
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec.structs import replace
from mz_engine.agents.contract import Adapter, Invocation
from mz_engine.agents.reading.json_lines import decode_object
from mz_engine.agents.registry import all_adapters
from mz_engine.backlog.listed import issue_of
from mz_engine.decoding.quantity import encode_quantity
from mz_engine.effects.guidance import NO_GUIDANCE, skill_files
from mz_engine.git.repository import repository_error, run_git_as_user
from mz_engine.git.workspace import GitWorkspace
from mz_engine.model.config import WorkspaceSettings
from mz_engine.model.pins import Pins, decode_commands, decode_pins
from mz_engine.model.pipeline import Phase
from mz_engine.ports import CallResult, CallSpec, FeatureWorktree
from mz_engine.secrets import project_secrets
from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentFailed, AgentLost, AgentReplied, AgentRequested, ReplyParsed, Usage
from mz_events.catalog.feature import FeatureCancelled, FeatureRetried, FeatureStarted, HumanAnswered
from mz_events.catalog.run import FeatureStopped, ItemAdded, ItemSkipped, RunStarted
from mz_events.names import Commit, Digest, FeatureId, Path, feature_stream, run_stream
from mz_events.redaction.json_splice import merge_spans, redact_spans
from mz_events.redaction.redactor import Secrets
from mz_events.redaction.values import base64_encodings
from mz_events.store import Blobs, Recorded, Store
from mz_projections.run.fold import RunState, fold_run

from mz_recordings.cassette.model import (
    BUILDER,
    FIXTURE_DEFAULTS,
    FIXTURE_KEYS,
    FORMAT,
    VERDICTS,
    Cassette,
    DeliveredDependency,
    Failure,
    Fixture,
    Identity,
    Item,
    Kind,
    Manifest,
    Provenance,
    RecordedCall,
    RecordedDecision,
    RecordedLearning,
    Recording,
    StoredFile,
    format_time,
    identity_of,
)
from mz_recordings.cassette.placeholders import MachineValues, scrub
from mz_recordings.cassette.repository import create_bundle
from mz_recordings.cassette.trace import encode_trace, feature_trace, is_in_trace, is_ordered, with_run
from mz_recordings.record.learnings import logged_ids, logged_learnings
from mz_recordings.record.obstacles import ExcludedFeature, unrecordable_features

STREAM_JSON = "stream-json"
"""Argument by which some agents write JSON lines."""
BASE64_BYTES_MIN = 8
"""Shorter encodings of a path occur by chance."""
NOTHING_READ = CallResult(stdout=b"", stderr=b"", exit=None, duration_ms=0)

Outcome = AgentReplied | AgentFailed | AgentLost


class UnknownRun(Exception):
    """The log has no such run."""


class NothingToRecord(Exception):
    """No feature of the run can be replayed; gives the reason for each."""

    def __init__(self, run: str, unrecordable: tuple[ExcludedFeature, ...]) -> None:
        reasons = "; ".join(f"{entry.feature}: {entry.reason}" for entry in unrecordable) or "it has no features"
        super().__init__(f"no feature of run {run} can be recorded ({reasons})")
        self.unrecordable = unrecordable


class SecretInRecording(Exception):
    """A prompt, a patch or an artifact contains a secret. These are never rewritten, so the run cannot be recorded."""

    def __init__(self, location: str, names: tuple[str, ...]) -> None:
        super().__init__(f"{location} contains a secret ({', '.join(names)}); it cannot be recorded")
        self.location, self.names = location, names


class RecordSources:
    """The log of a run, its repository at `root`, and what must not be recorded. `environment`: that of the run's
    agents. `project`: the repository whose secrets are removed, if `root` is a scratch one."""

    def __init__(
        self,
        root: pathlib.Path,
        environment: Mapping[str, str],
        log: Store,
        blobs: Blobs,
        project: pathlib.Path | None = None,
    ) -> None:
        self.root, self.environment, self.log, self.blobs = root, environment, log, blobs
        self.workspace = GitWorkspace(root, WorkspaceSettings(), environment)
        self.secrets = Secrets(project_secrets(project or root, environment))

    def tree_id(self, commit: Commit) -> str:
        """Return git's tree id of a commit. Raises RepositoryUnusable."""
        arguments = ("rev-parse", "--quiet", "--verify", "--end-of-options", f"{commit}^{{tree}}")
        done = run_git_as_user(self.root, self.environment, *arguments)
        if done.exit_code:
            raise repository_error(self.root, done)
        return done.text

    def text(self, digest: Digest) -> str:
        return self.blobs.get(digest).decode("utf-8", "replace")

    def reject_secrets(self, location: str, data: bytes) -> None:
        """Raise SecretInRecording if the data contains a secret."""
        if names := self.secrets.names_in(data):
            raise SecretInRecording(location, names)


class LoggedCall(NamedTuple):
    """One call, as the log has it."""

    feature: str
    branch: str
    request: AgentRequested
    requested_at_us: int
    """Time of the request, by `observed_at`."""
    outcome: Outcome
    reply: ReplyParsed | None
    session_usage_before: tuple[Usage, ...] = ()
    """For a continued session: usage of its earlier calls."""


class RecordedRun(NamedTuple):
    """A run as a cassette, and the features that are not in it."""

    cassette: Cassette
    unrecordable: tuple[ExcludedFeature, ...]


def record_run(
    sources: RecordSources,
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
        raise UnknownRun(f"there is no run {run!r}")
    unrecordable = unrecordable_features(sources.log, run, state)
    unrecordable_names = {entry.feature for entry in unrecordable}
    items = tuple(track.item for feature, track in state.tracks.items() if feature not in unrecordable_names)
    if not items:
        raise NothingToRecord(run, unrecordable)
    pins = decode_pins(sources.blobs.get(started.pins))
    if state.commands is not None:
        pins = decode_commands(sources.blobs.get(state.commands)).apply(pins)
    traces = {str(item.feature): encode_trace(feature_trace(_events(sources.log, run, item.feature))) for item in items}
    heads = delivered_heads(items, state.skipped)
    bundle = b"" if template else create_bundle(sources.root, sources.environment, started.base_commit, heads)
    manifest = Manifest(
        format=FORMAT,
        name=name,
        pipeline=pins.pipeline.pipeline,
        agent=pins.config.agent,
        provenance=provenance,
        mz=started.mz_version,
        max_age_days=max_age_days,
        traces={feature: hashlib.sha256(content).hexdigest() for feature, content in traces.items()},
        fixture=_fixture(sources, started, state, pins, items, heads, template, bundle),
        evidence=_to_json_values(pins),
    )
    sources.reject_secrets("the run's input (settings, pipeline, backlog)", msgspec.json.encode(manifest))
    calls = [call for item in items for call in feature_calls(sources.log, run, item.feature)]
    if not calls:
        without_calls = (ExcludedFeature(item.feature, "no agent was called") for item in items)
        raise NothingToRecord(run, (*unrecordable, *without_calls))
    recorded_calls = tuple(record_call(sources, run, pins, call) for call in calls)
    return RecordedRun(Cassette(manifest, recorded_calls, traces, bundle), unrecordable)


def _fixture(
    sources: RecordSources,
    started: RunStarted,
    state: RunState,
    pins: Pins,
    items: tuple[ItemAdded, ...],
    heads: Mapping[str, Commit],
    template: str,
    bundle: bytes,
) -> Fixture:
    run, features = started.run, [item.feature for item in items]
    config = replace(pins.config, papers=pins.config.place_of_papers)  # A replay opens no pull request.
    decisions = tuple(human_decisions(sources.log, sources.blobs, run, features))
    for decision in decisions:
        sources.reject_secrets(f"a person's note on {decision.feature}", (decision.note or "").encode())
    return Fixture(
        run=run,
        template=template,
        bundle_sha256=hashlib.sha256(bundle).hexdigest() if bundle else "",
        base=started.base,
        base_commit=started.base_commit,
        base_tree=sources.tree_id(started.base_commit),
        clock_start=format_time(next(iter(sources.log.read(run_stream(run)))).observed_at_us),
        items=tuple(
            Item(
                feature=item.feature,
                title=sources.text(item.title),
                body=sources.text(item.body),
                priority=item.priority,
                depends_on=item.depends_on,
                source=item.source if issue_of(item.source) else "",
                kind=item.kind,
                is_own=item.source.startswith(f"{run}#"),
            )
            for item in items
        ),
        config={
            key: value
            for key, value in _to_json_values(config).items()
            if key in FIXTURE_KEYS and (key, value) not in FIXTURE_DEFAULTS.items()
        },
        memory=pins.memory,
        decisions=decisions,
        hints=tuple(recorded_learnings(sources, run, features)),
        delivered=tuple(
            DeliveredDependency(feature=feature, tree=sources.tree_id(head)) for feature, head in heads.items()
        ),
        delivered_ids=logged_ids(sources.log, run, features, pins.pipeline),
        base_results=_base_blob(sources, run, features, "base_results"),
        known_failures=_base_blob(sources, run, features, "known_failures"),
        integration=started.integration,
        cycles=state.cycle,
        order=merge_order(sources.log, run, features) if started.integration else (),
        parallel=pins.config.parallel_max if started.integration else 0,
        closing=state.closing.how if state.closing is not None and state.closing_item in features else "",
    )


def merge_order(log: Store, run: str, features: Iterable[str]) -> tuple[str, ...]:
    """Return the features in the order in which they merged, were merged or stopped, each as often as it did."""
    moments = [
        (recorded.position, recorded.event.feature)
        for recorded in log.read(run_stream(run))
        if isinstance(recorded.event, FeatureStopped) and recorded.event.version
    ]
    for feature in features:
        events = log.read(feature_stream(run, feature))
        moments += [(recorded.position, FeatureId(feature)) for recorded in events if is_ordered(recorded.event)]
    return tuple(feature for _, feature in sorted(moments))


def _events(log: Store, run: str, feature: str) -> Iterator[Event]:
    stream = log.read(feature_stream(run, feature))
    return (with_run(recorded.event, run) if recorded.is_forked_copy else recorded.event for recorded in stream)


# fixture --------------------------------------------------------------------------------------------------------------
def human_decisions(log: Store, blobs: Blobs, run: str, features: Iterable[str]) -> Iterator[RecordedDecision]:
    """Yield the decisions of people, in the form that a replay needs."""
    for feature in features:
        events_before = 0
        for recorded in log.read(feature_stream(run, feature)):
            event = recorded.event
            # Without an actor, the run itself begins a failed item again.
            by_person = not isinstance(event, FeatureRetried) or event.actor is not None
            if by_person and isinstance(event, HumanAnswered | FeatureRetried | FeatureCancelled):
                note = getattr(event, "note", None)
                yield RecordedDecision(
                    feature=feature,
                    after=events_before,
                    action=_decision(event),
                    phase=event.to if isinstance(event, FeatureRetried) else "",
                    note=blobs.get(note).decode("utf-8", "replace") if note else None,
                )
            events_before += is_in_trace(event)


def _base_blob(sources: RecordSources, run: str, features: Iterable[str], field: str) -> dict[str, Any]:
    """Return what a blob of the features' start says of the base, by command."""
    events = (event for feature in features for event in _events(sources.log, run, feature))
    digests = (getattr(event, field) for event in events if isinstance(event, FeatureStarted))
    digest = next(filter(None, digests), None)
    return dict(msgspec.json.decode(sources.text(digest))) if digest else {}


def _decision(
    event: HumanAnswered | FeatureRetried | FeatureCancelled,
) -> Literal["approve", "retry", "reject", "accept", "retry-phase", "revise", "cancel"]:
    if isinstance(event, HumanAnswered):
        return next(action for action, verdict in VERDICTS.items() if verdict is event.verdict)
    if isinstance(event, FeatureRetried):
        return "revise" if event.keeps_tree else "retry-phase"
    return "cancel"


def recorded_learnings(sources: RecordSources, run: str, features: Iterable[str]) -> Iterator[RecordedLearning]:
    """Yield what each call was given of the memory, without machine-specific paths; nothing for a feature without any
    learning. Raises SecretInRecording."""
    machine_values = _machine_values_of_repository(sources)
    for feature in features:
        of_feature = list(logged_learnings(sources.log, sources.blobs, run, feature))
        if any(learning.text for learning in of_feature):
            for learning in of_feature:
                data = learning.text.encode()
                sources.reject_secrets(f"a learning that {feature} was given", data)
                yield replace(learning, text=scrub(data, machine_values).decode())


def delivered_heads(items: Iterable[ItemAdded], skipped: Mapping[str, ItemSkipped]) -> dict[str, Commit]:
    """Return the head of each feature that an earlier run delivered and an item of this run depends on."""
    features = (other for item in items for other in item.depends_on if other in skipped)
    return {feature: head for feature in features if (head := skipped[feature].head) is not None}


# calls ----------------------------------------------------------------------------------------------------------------
def feature_calls(log: Store, run: str, feature: str) -> Iterator[LoggedCall]:
    """Yield the feature's calls that have an outcome, in order."""
    events: list[Recorded[Event]] = list(log.read(feature_stream(run, feature)))
    branch = next((recorded.event.branch for recorded in events if isinstance(recorded.event, FeatureStarted)), "")
    outcomes = {recorded.event.ref.key: recorded.event for recorded in events if isinstance(recorded.event, Outcome)}
    replies = {recorded.event.ref.key: recorded.event for recorded in events if isinstance(recorded.event, ReplyParsed)}
    for recorded in events:
        request = recorded.event
        if isinstance(request, AgentRequested) and (outcome := outcomes.get(request.ref.key)):
            yield LoggedCall(
                feature, branch, request, recorded.observed_at_us, outcome, replies.get(request.ref.key),
                _session_usage_before(recorded, events),
            )  # fmt: skip


def _session_usage_before(call: Recorded[Event], events: list[Recorded[Event]]) -> tuple[Usage, ...]:
    request = call.event
    if not isinstance(request, AgentRequested) or not request.resumes:
        return ()
    before = (recorded.event for recorded in events if recorded.version < call.version)
    replies = {reply.ref.key: reply for reply in before if isinstance(reply, ReplyParsed)}
    return tuple(usage for reply in replies.values() if reply.session == request.session for usage in reply.usage)


def record_call(sources: RecordSources, run: str, pins: Pins, call: LoggedCall) -> RecordedCall:
    """Record one call. Raises SecretInRecording, BlobMissing, RepositoryUnusable (a captured tree is missing)."""
    request, outcome = call.request, call.outcome
    identity = identity_of(pins.pipeline.pipeline, call.feature, request.ref)
    adapter = all_adapters(pins.config.agents)[request.agent]
    phase = pins.pipeline.find_phase(request.ref.phase)
    invocation = invocation_of(adapter, requested_spec(request, call.feature, pins, sources.blobs))
    replied = outcome if isinstance(outcome, AgentReplied) else None
    failed = outcome if isinstance(outcome, AgentFailed) else None
    ended = replied or failed
    stdout, stderr = sources.blobs.get(outcome.stdout), sources.blobs.get(ended.stderr) if ended else b""
    tree_after = ended.tree if ended else request.tree
    files = [
        *_streams(sources, call, identity, invocation.argv, stdout, stderr),
        *_artifacts(sources, phase, call, identity, tree_after),
    ]
    if patch := sources.workspace.patch(request.tree, tree_after):
        sources.reject_secrets(f"the patch of {identity.path}", patch)
        files.append(_file("patch", f"{identity.name}.patch", patch))
    version = replied.version if replied else ""
    recording = Recording(
        format=FORMAT,
        identity=identity,
        agent=request.agent,
        version=version or adapter.parse_output(replace(NOTHING_READ, stdout=stdout)).version,
        model=request.model,
        argv=tuple("<SESSION>" if word == request.session else word for word in invocation.argv),
        environment=tuple(sorted({*invocation.env, *pins.config.pass_environment})),
        tree_before=sources.tree_id(request.laid_out or request.tree),
        tree_after=sources.tree_id(tree_after),
        outcome="replied" if replied else "failed" if failed else "lost",
        exit=replied.exit if replied else None,
        failure=Failure(kind=failed.problem.kind.value, code=failed.problem.code) if failed else None,
        recorded_at=format_time(call.requested_at_us),
        duration_ms=ended.duration_ms if ended else 0,
        files=tuple(file for file, _ in files),
        forbidden_changes=replied.forbidden_changes if replied else (),
        earlier=call.session_usage_before,
    )
    return RecordedCall(recording, {file.name: data for file, data in files})


# inputs ---------------------------------------------------------------------------------------------------------------
def requested_spec(request: AgentRequested, feature: str, pins: Pins, blobs: Blobs) -> CallSpec:
    phase = pins.pipeline.find_phase(request.ref.phase)
    return CallSpec(
        key=request.ref.key,
        worktree=requested_worktree(request, feature),
        agent=request.agent,
        model=request.model,
        prompt=blobs.get(request.prompt).decode("utf-8", "replace"),
        session=request.session,
        resumes=request.resumes,
        tools=phase.call_of(request.ref.role).tools,
        skills=skill_files(pins.guidance.get(request.ref.phase, NO_GUIDANCE), request.skills)[0],
        total_seconds=phase.timeout.total,
        idle_seconds=phase.timeout.idle,
    )


def requested_worktree(request: AgentRequested, feature: str) -> FeatureWorktree:
    """Return where the call works."""
    run = request.ref.key.partition("/")[0]  # Of a fork, another run.
    return FeatureWorktree(run=run, feature=feature, branch="", is_scoped=request.laid_out is not None)


def invocation_of(adapter: Adapter, spec: CallSpec) -> Invocation:
    """Return what the adapter would start, with every variable that it would pass on."""
    invocations: list[Invocation] = []

    def capture(_: CallSpec, invocation: Invocation) -> CallResult:
        invocations.append(invocation)
        return NOTHING_READ

    adapter.run_call(spec, AnyEnvironment(), capture)
    return invocations[0]


class AnyEnvironment(Mapping[str, str]):
    """An environment that has every name, each with an empty value."""

    def __getitem__(self, name: str) -> str:
        return ""

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


# outputs --------------------------------------------------------------------------------------------------------------
def _streams(
    sources: RecordSources, call: LoggedCall, identity: Identity, argv: tuple[str, ...], stdout: bytes, stderr: bytes
) -> Iterator[tuple[StoredFile, bytes]]:
    prompt = sources.blobs.get(call.request.prompt)
    sources.reject_secrets(f"the prompt of {identity.path}", prompt)
    machine_values = _machine_values(sources, call, stdout)
    yield _file("prompt", f"{identity.name}.prompt.md", scrub(prompt, machine_values))
    clean_stdout, clean_stderr = (sources.secrets.clean(output) for output in (stdout, stderr))
    name = f"{identity.name}.{_stream_suffix(argv, stdout)}"
    yield _file("stdout", name, without_paths(clean_stdout, machine_values))
    if stderr:
        yield _file("stderr", f"{identity.name}.stderr", without_paths(clean_stderr, machine_values))


def _stream_suffix(argv: tuple[str, ...], stdout: bytes) -> str:
    """Return the file name suffix of a stream: from the arguments, else from the content. Never `json`, that of the
    recording itself."""
    if STREAM_JSON in argv:
        return STREAM_JSON
    return "jsonl" if decode_object(stdout.lstrip().partition(b"\n")[0]) is not None else "txt"


def without_paths(output: bytes, machine_values: tuple[MachineValues, ...]) -> bytes:
    """Return the output without machine-specific paths. A path in base64 cannot become a token, as the bytes around it
    would change, so it is redacted."""
    data = scrub(output, machine_values)
    paths = {path.encode("utf-8", "surrogateescape") for values in machine_values for path in values.paths().values()}
    forms = {form for path in paths for form in base64_encodings(path) if len(form) >= BASE64_BYTES_MIN}
    spans = merge_spans(match.span() for form in forms for match in re.finditer(re.escape(form), data))
    return redact_spans(data, spans) if spans else data


def _machine_values(sources: RecordSources, call: LoggedCall, stdout: bytes) -> tuple[MachineValues, ...]:
    """Return the paths of this repository and of other locations that the output names: it may have been moved."""
    worktree = requested_worktree(call.request, call.feature)
    worktree_suffix = f"/.mz/worktrees/{worktree.run}/{worktree.folder}"
    named_roots = re.findall(rb'"(/[^"\n]*)' + re.escape(worktree_suffix.encode()) + rb'"', stdout)
    roots = dict.fromkeys((str(sources.root.resolve()), *(_parse_json_string(root) for root in named_roots)))
    here, *others = _machine_values_of_repository(sources)
    here = here._replace(session=call.request.session or "")
    return (*(here._replace(worktree=root + worktree_suffix, repository=root) for root in roots if root), *others)


def _machine_values_of_repository(sources: RecordSources) -> tuple[MachineValues, ...]:
    """Return the paths that any text of this repository may name."""
    home = sources.environment.get("HOME", "")
    user = sources.environment.get("USER") or pathlib.Path(home).name
    here = MachineValues(repository=str(sources.root.resolve()), home=home, user=user)
    return here, MachineValues(home=os.path.realpath(home) if home else "")


def _parse_json_string(text: bytes) -> str:
    """Return the content of a JSON string; empty if it is invalid."""
    try:
        return str(json.loads(b'"%s"' % text))
    except ValueError:
        return ""


def _artifacts(
    sources: RecordSources, phase: Phase, call: LoggedCall, identity: Identity, tree_after: Commit
) -> Iterator[tuple[StoredFile, bytes]]:
    """Yield the artifacts of the phase: files of the tree, or the reply, as for a review."""
    used_names: set[str] = set()
    for artifact, path, _ in phase_outputs(phase, identity):
        if path:
            data = sources.workspace.read(tree_after, Path(path))
        else:
            data = sources.blobs.get(call.reply.text) if call.reply is not None else None
        if data is None:
            continue
        suffix = pathlib.PurePosixPath(path or "reply.md").suffix or ".txt"
        name = f"{identity.name}{suffix if suffix == '.md' else f'.out{suffix}'}"
        if name in used_names:
            name = f"{identity.name}.{artifact}.out{suffix}"
        used_names.add(name)
        sources.reject_secrets(f"the artifact {artifact} of {identity.path}", data)
        yield _file("artifact", name, data, artifact, path)


def phase_outputs(phase: Phase, call: Identity) -> Iterator[tuple[str, str, str]]:
    """Yield artifact, path and rules of what a call must produce; a reviewer's reply has no path."""
    if call.role != BUILDER:
        if phase.agent_review is not None:
            yield phase.agent_review.output, "", phase.agent_review.rules
        return
    for output in phase.outputs:
        path = (output.path or "").replace("{feature}", call.feature).replace("{unit}", call.unit)
        yield output.artifact, path, output.rules


def _file(kind: Kind, name: str, data: bytes, artifact: str = "", path: str = "") -> tuple[StoredFile, bytes]:
    sha256 = hashlib.sha256(data).hexdigest()
    return StoredFile(kind=kind, name=name, sha256=sha256, artifact=artifact, path=path), data


def _to_json_values(struct: msgspec.Struct) -> dict[str, object]:
    return msgspec.json.decode(msgspec.json.encode(struct, enc_hook=encode_quantity), type=dict[str, object])
