"""Makes baselines of streams from what the real command lines wrote: stored transcripts and, with `--streams`, those in
a folder, such as the adapter's cases (`agent_cases`) driven with another version.

    python -m tests.support.make_baselines claude-code 2.1.330 --streams DIR
    python -m tests.support.make_baselines qwen 0.24.4

A baseline that is there is extended. How to install another version: see `make_transcripts`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import yaml
from mz_engine.agents.catalog import AGENTS
from mz_engine.agents.contract import Adapter, Capabilities
from mz_engine.agents.registry import built_in_adapters, load_patterns
from mz_recordings.cassette.model import Identity, RecordedCall
from mz_recordings.drift.stream_baselines import built_in_folder, extend_baseline, load_baselines, write_baseline
from mz_recordings.drift.stream_shape import ObservedStreams, observe_streams

from tests.support.tapes import recording
from tests.support.tree import ROOT

STORED = ROOT / "tests/cases/transcripts"
REASON = "streams of the real command line against a scripted model"
NO_SESSION = "no-session"
"""Case whose stream names no version."""


def adapter_of(agent: str) -> Adapter:
    """The agent's adapter; for one that mz only reads, an adapter of nothing but the reader of its streams."""
    adapters = built_in_adapters()
    if agent in adapters:
        return adapters[agent]

    class ReadAgent(Adapter):
        name, parser, command = agent, f"{agent}/1", agent
        reader = next(form for form in AGENTS[agent].formats if not form.is_session_log)
        features = Capabilities(reported_fields=(), models={}, auth=())

    return ReadAgent(load_patterns())


def stored_streams(agent: str, version: str) -> Iterator[tuple[str, bytes]]:
    """Name and content of the stored streams that the real command line wrote."""
    for path in sorted((STORED / agent).glob(f"*-stream-{version}.jsonl")):
        if yaml.safe_load(path.with_suffix(".yaml").read_text())["made"].startswith("real "):
            yield path.stem, path.read_bytes()


def streams_in(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Name and content of the streams in a folder, such as those that the adapter's cases made with another version."""
    for path in sorted(folder.glob("*.jsonl")):
        if not path.name.startswith(NO_SESSION):
            yield path.stem, path.read_bytes()


def call_of(agent: str, version: str, name: str, stdout: bytes) -> RecordedCall:
    item = recording("1" * 40, identity=Identity(pipeline="p", feature="f", phase=name), agent=agent, version=version)
    return item._replace(contents={file: stdout for file in item.contents if file.endswith("stream-json")})


def observed(agent: str, version: str, streams: Iterator[tuple[str, bytes]]) -> ObservedStreams:
    calls = [call_of(agent, version, name, stdout) for name, stdout in streams]
    return observe_streams(calls, adapter_of(agent))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("agent")
    parser.add_argument("version")
    parser.add_argument("--streams", type=Path)
    args = parser.parse_args()
    baseline = load_baselines((built_in_folder(),)).get((args.agent, args.version))
    sources = [stored_streams(args.agent, args.version), *([streams_in(args.streams)] if args.streams else [])]
    for streams in sources:
        baseline = extend_baseline(baseline, observed(args.agent, args.version, streams).shape)
    if baseline is not None:
        print(write_baseline(baseline, REASON, built_in_folder()))


if __name__ == "__main__":
    main()
