"""Deliveries to a forge that fails, in the simulated world."""

from __future__ import annotations

from typing import Any

import pytest
from mz_engine.ports import PullRequest, RemoteError
from mz_events.catalog.delivery import DeliveryFailed, PullRequestOpened
from mz_events.catalog.run import FeatureOutcome
from mz_qa.simulation.world import SimulatedForge

from tests.engine.test_delivery import Bench, status


def test_a_pull_request_whose_reply_was_lost_is_looked_up_before_anybody_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    open_pull_request, lost = SimulatedForge.open, [True]

    def lose_reply(self: SimulatedForge, *arguments: Any) -> PullRequest:
        opened = open_pull_request(self, *arguments)
        if lost and lost.pop():
            raise RemoteError("`gh pr create` failed: killed")
        return opened

    monkeypatch.setattr(SimulatedForge, "open", lose_reply)
    bench = Bench()
    assert status(bench.run()) is FeatureOutcome.DELIVERED
    assert not lost
    assert bench.kinds()["DeliveryFailed"] == 0
    assert [event.url for event in bench.events() if isinstance(event, PullRequestOpened)] == ["forge/1"]


@pytest.mark.parametrize(
    "message",
    [
        "`gh pr create` failed: HTTP 422: Validation Failed",
        "`gh pr create` failed: GraphQL: Could not resolve to a Repository with the name 'a/b'. (repository)",
        "`gh pr create` failed: GraphQL: No commits between main and feat/b (createPullRequest)",
    ],
)
def test_a_pull_request_that_was_not_opened_is_a_question(monkeypatch: pytest.MonkeyPatch, message: str) -> None:
    def refuse(self: SimulatedForge, *arguments: Any) -> PullRequest:
        raise RemoteError(message)

    monkeypatch.setattr(SimulatedForge, "open", refuse)
    bench = Bench()
    assert status(bench.run()) is FeatureOutcome.WAITING
    [failure] = [event for event in bench.events() if isinstance(event, DeliveryFailed)]
    assert (failure.code, bench.world.blobs.get(failure.detail)) == ("pull-request-refused", message.encode())


@pytest.mark.parametrize(
    "message",
    [
        "`gh pr create` failed: HTTP 502: Bad Gateway (https://api.github.com/graphql)",
        "`gh pr create` failed: HTTP 403: API rate limit exceeded for user ID 1. (https://api.github.com/graphql)",
        "`gh pr create` failed: error connecting to api.github.com\ncheck your internet connection",
        "`gh pr create` did not end within 120 s",
        "`git push` failed: fatal: unable to access 'https://github.com/a/b/': Could not resolve host: github.com",
        "`git fetch` failed: ssh: connect to host github.com port 22: Network is unreachable",
        "`git fetch` failed: ssh: connect to host github.com port 22: Connection timed out",
    ],
)
def test_a_forge_that_fails_for_a_time_is_waited_for_and_nobody_is_asked(
    monkeypatch: pytest.MonkeyPatch, message: str
) -> None:
    open_pull_request, failures = SimulatedForge.open, [True, True]

    def fail_twice(self: SimulatedForge, *arguments: Any) -> PullRequest:
        if failures:
            failures.pop()
            raise RemoteError(message)
        return open_pull_request(self, *arguments)

    monkeypatch.setattr(SimulatedForge, "open", fail_twice)
    bench = Bench()
    assert status(bench.run()) is FeatureOutcome.DELIVERED
    kinds = bench.kinds()
    assert (kinds["DeliveryFailed"], kinds["HumanRequested"]) == (2, 0)
