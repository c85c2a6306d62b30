"""What an event cites: every digest of its payload, and nothing else."""

from __future__ import annotations

import re

from mz_events.catalog.base import Event, EventKind
from mz_events.catalog.call import AgentFailed, AgentReplied, Problem, ProblemClass
from mz_events.catalog.run import RunStopRequested
from mz_events.codec import CODEC, cited_digests, type_of
from mz_events.names import Digest

from tests.support.samples import TEXTS, sample, samples

DIGEST = TEXTS["Digest"]


def test_every_digest_of_every_type() -> None:
    for event in samples():
        digests = re.findall(f'"{DIGEST}"', CODEC.encode(event)[2].decode())
        assert len(cited_digests(event)) == len(digests), type_of(event)


def test_nested_absent_and_none() -> None:
    problem = Problem(kind=ProblemClass.PHASE, code="x", detail=sample(AgentReplied).stdout)
    failed = sample(AgentFailed)
    assert len(cited_digests(failed)) == 3
    assert cited_digests(RunStopRequested()) == ()
    without = AgentFailed(
        ref=failed.ref, problem=Problem(kind=problem.kind, code="x"), stdout=failed.stdout, stderr=failed.stderr,
        duration_ms=1, tree=failed.tree,
    )  # fmt: skip
    assert cited_digests(without) == (failed.stdout, failed.stderr)


class Several(Event, frozen=True, kw_only=True, tag="test.several"):
    KIND = EventKind.EXTERNAL
    digests: tuple[Digest, ...]
    problems: tuple[Problem, ...] = ()
    names: tuple[str, ...] = ()


def test_lists_of_digests_and_of_what_holds_them() -> None:
    digest, two, three = (Digest(digit * 64) for digit in "123")
    problem = Problem(kind=ProblemClass.PHASE, code="x", detail=three)
    assert cited_digests(Several(digests=(digest, two), problems=(problem,), names=(digest,))) == (digest, two, three)
