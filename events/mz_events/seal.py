"""Seals: the head of every stream of a log, or of one run, at one moment, and one root over them.

A log may grow after it was sealed, but event number `length` of each stream still has the sealed link; in a chain that
somebody made anew it has another. The seal, or its root, must be kept where whoever changes the log cannot write.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping

import msgspec

from mz_events.names import StreamId
from mz_events.store import Head

TRAILER = "Mz-Seal"
WHOLE_LOG = "-"
ROOT_LINE = re.compile(rf"^[ \t]*{TRAILER}:[ \t]*([0-9a-f]{{64}})[ \t]*$", re.MULTILINE)
STREAM_LINE = re.compile(r"stream ([\w/-]+) ([1-9][0-9]{0,17}) ([0-9a-f]{64})\n", re.ASCII)
FIRST_LINE = re.compile(r"^mz-seal ", re.MULTILINE)
SEAL = re.compile(
    rf"^(mz-seal 1\nrepository \S+\nrun (\S+)\n((?:{STREAM_LINE.pattern})+))root ([0-9a-f]{{64}})\n"
    r"(-----BEGIN SSH SIGNATURE-----\n(?:[\w+/=]+\n)+-----END SSH SIGNATURE-----\n)?",
    re.MULTILINE | re.ASCII,
)


class InvalidSeal(Exception):
    """A text that begins like a seal and is none."""


class Seal(msgspec.Struct, frozen=True, kw_only=True):
    run: str | None
    """None: the whole log."""
    lines: str
    """What the root is the digest of."""
    signature: str = ""
    """Made by `ssh-keygen -Y sign` over the statement; empty: none."""

    @property
    def root(self) -> str:
        return hashlib.sha256(self.lines.encode()).hexdigest()

    @property
    def statement(self) -> str:
        return f"{self.lines}root {self.root}\n"

    @property
    def text(self) -> str:
        return self.statement + self.signature

    @property
    def heads(self) -> dict[StreamId, Head]:
        rows = STREAM_LINE.findall(self.lines)
        return {StreamId(name): Head(int(length), bytes.fromhex(chain)) for name, length, chain in rows}


def seal_of(heads: Mapping[StreamId, Head], repository: str, run: str | None) -> Seal:
    """Return the seal of these streams; `repository` is the log's id, `run` None for the whole log."""
    streams = (f"stream {name} {head.version} {head.chain.hex()}\n" for name, head in sorted(heads.items()))
    return Seal(run=run, lines=f"mz-seal 1\nrepository {repository}\nrun {run or WHOLE_LOG}\n{''.join(streams)}")


def parse_seals(text: str) -> tuple[tuple[Seal, ...], tuple[str, ...]]:
    """Return the seals in a text, and the roots that `Mz-Seal` lines name; anything may be around them. Raises
    InvalidSeal."""
    text = "".join(f"{line.strip()}\n" for line in text.splitlines())
    seals = []
    for match in SEAL.finditer(text):
        seals.append(Seal(run=None if match[2] == WHOLE_LOG else match[2], lines=match[1], signature=match[8] or ""))
        if seals[-1].root != match[7]:
            raise InvalidSeal("the seal was edited: its root is not the digest of its lines")
    if len(seals) != len(FIRST_LINE.findall(text)):
        raise InvalidSeal("the seal was edited or cut, or is of a newer mz: a line is missing or unknown")
    return tuple(seals), tuple(dict.fromkeys(ROOT_LINE.findall(text)))


def differences(seal: Seal, links: Mapping[StreamId, Mapping[int, bytes]]) -> Iterator[tuple[str, str]]:
    """Yield event ref and message of each difference of a log from what was sealed. `links`: by stream and version,
    those of the sealed ends and of the last event; the chains up to there are verified apart."""
    for stream, sealed in seal.heads.items():
        version = max(links.get(stream, (0,)))
        message = "the chain up to this event was made anew: it is not the sealed one"
        if version == 0:
            message = f"the stream is missing; {sealed.version} events of it were sealed"
        elif version < sealed.version:
            message = f"the stream was cut: it ends at version {version}, {sealed.version} events were sealed"
        elif links[stream].get(sealed.version) == sealed.chain:
            continue
        yield f"{stream}@{sealed.version}", message
