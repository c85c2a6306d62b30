"""The real ports of a repository, put together."""

from __future__ import annotations

import os
import subprocess
import sys

from mz_engine.adapters.machine import secret_values, warm_up

RACE = """
import threading
from mz_engine.adapters.machine import warm_up
from mz_engine.artifacts.output import count_tests, excerpt
warm_up()
start = threading.Barrier(8)
def work():
    start.wait()
    excerpt(b"1 failed"), count_tests(b"1 passed")
threads = [threading.Thread(target=work) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""


def test_feature_threads_find_their_tables_read() -> None:
    """msgspec learns a type at its first conversion; two threads that do so at once can crash the interpreter."""
    from mz_engine.artifacts.load import count_patterns, output_patterns

    output_patterns.cache_clear()
    count_patterns.cache_clear()
    warm_up()
    assert output_patterns.cache_info().currsize == count_patterns.cache_info().currsize == 1
    for _ in range(5):
        subprocess.run([sys.executable, "-c", RACE], check=True, timeout=60)


def test_secrets_are_known_by_the_names_of_their_variables() -> None:
    found = secret_values(
        {
            "ANTHROPIC_API_KEY": "a",
            "DEPLOY_TOKEN": "b",
            "DB_PASSWORD": "c",
            "SSH_AUTH_SOCK": "/run/x",
            "TOKEN_URL": "u",
            "MZ_KEY": "k",
            "PATH": os.environ["PATH"],
        }
    )
    assert sorted(found) == ["ANTHROPIC_API_KEY", "DB_PASSWORD", "DEPLOY_TOKEN"]
