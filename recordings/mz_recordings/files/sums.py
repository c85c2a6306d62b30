"""Pure: the list of a cassette's files with their digests, in the form of `sha256sum`, which can check it too.

It is what makes a change by hand of any byte known, also where nothing else cites that byte.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

SUMS = "SHA256SUMS"
LINE = re.compile(r"([0-9a-f]{64})  ([^\x00-\x1f\\]+)")


def write_sums(digests: Mapping[str, str]) -> bytes:
    """`digests`: by path relative to the cassette, sha256 in hexadecimal digits."""
    return "".join(f"{digests[path]}  {path}\n" for path in sorted(digests)).encode()


def parse_sums(data: bytes) -> dict[str, str]:
    """The digests by path. Raises ValueError for anything that `write_sums` would have written otherwise."""
    found: dict[str, str] = {}
    for line in data.decode().split("\n"):
        if line:
            parts = LINE.fullmatch(line)
            if parts is None:
                raise ValueError(f"{line[:80]!r} is no digest and path")
            found[parts[2]] = parts[1]
    if write_sums(found) != data:
        raise ValueError("it is not as it was written")
    return found
