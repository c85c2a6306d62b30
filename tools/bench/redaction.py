"""What redaction costs, in megabytes of agent output a second, against zlib's compression of the same bytes.

The output is what recorded agents wrote, over and over, in chunks as a pipe gives them; eight secrets are known.
"""

from __future__ import annotations

import random
import string
import zlib
from importlib.resources import files
from itertools import cycle, islice

from mz_events.redaction.redactor import Redactor, Secrets

from tools.bench.clock import alternate, rate
from tools.bench.figure import Figure, compare

MEGABYTES = 8
ROUNDS = 5
CHUNK_BYTES = 16_384
RATE_MIN = 0.4
CASSETTE = "monozukuri-claude-code"
SUFFIX = ".stream-json"


def output(size_bytes: int) -> bytes:
    """Output of the agent in a bundled cassette, repeated to this size."""
    cassette = files("mz_recordings") / "bundled" / CASSETTE
    names = ("month-filter", "month-compare", "group-thousands")
    streams = [
        entry.read_bytes()
        for name in names
        for entry in sorted((cassette / name).iterdir(), key=lambda entry: entry.name)
        if entry.name.endswith(SUFFIX)
    ]
    count = size_bytes // sum(map(len, streams)) + 1
    return b"".join(islice(cycle(streams), count * len(streams)))[:size_bytes]


def redaction(*, megabytes: int = MEGABYTES, rounds: int = ROUNDS) -> tuple[Figure, ...]:
    data = output(megabytes * 1_000_000)
    chunks = [data[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES)]
    letters = random.Random(1).choices(string.ascii_letters + string.digits, k=8 * 30)
    secrets = Secrets({f"KEY_{at}_TOKEN": "".join(letters[at * 30 : at * 30 + 30]) for at in range(8)})

    def redact() -> None:
        redactor = Redactor(secrets)
        size = sum(len(redactor.feed(chunk)) for chunk in chunks) + len(redactor.finish())
        assert size == len(data), "nothing is redacted"

    def compress() -> None:
        compressor = zlib.compressobj()
        for chunk in chunks:
            compressor.compress(chunk)
        compressor.flush()

    redact()  # Expressions are compiled.
    values = alternate(
        rounds, {"redact": lambda: rate(megabytes, redact), "compress": lambda: rate(megabytes, compress)}
    )
    reference = "zlib, compressing the same output"
    return (compare("redaction.rate", values["redact"], "MB/s", reference, values["compress"], at_least=RATE_MIN),)
