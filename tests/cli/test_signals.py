"""Which signals end a run."""

from __future__ import annotations

import os
import signal
from queue import Queue

import pytest
from mz_cli.live.driver import handle_signals


@pytest.mark.parametrize(
    ("hangup", "at_once"), [(signal.SIG_DFL, True), (signal.SIG_IGN, False)], ids=["terminal", "nohup"]
)
def test_a_closed_terminal_ends_agents_at_once_except_under_nohup(hangup: signal.Handlers, at_once: bool) -> None:
    outside, ends = signal.signal(signal.SIGHUP, hangup), Queue[bool]()
    try:
        with handle_signals(ends.put):
            os.kill(os.getpid(), signal.SIGHUP)
            if not at_once:
                os.kill(os.getpid(), signal.SIGINT)
            assert ends.get(timeout=20) is at_once
        assert signal.getsignal(signal.SIGHUP) is hangup
    finally:
        signal.signal(signal.SIGHUP, outside)
