"""SHA256SUMS of a cassette, in the format of `sha256sum`.

Reveals a manual change of any byte, also where no other digest covers it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

SUMS = "SHA256SUMS"
LINE = re.compile(r"([0-9a-f]{64})  ([^\x00-\x1f\\]+)")


def write_sums(digests: Mapping[str, str]) -> bytes:
    """Return the file's content from sha256 digests in hexadecimal digits by path relative to the cassette."""
    return "".join(f"{digests[path]}  {path}\n" for path in sorted(digests)).encode()


def parse_sums(data: bytes) -> dict[str, str]:
    """Return the digests by path. Raises ValueError for anything that `write_sums` would not have written."""
    digests: dict[str, str] = {}
    for line in data.decode().split("\n"):
        if line:
            match = LINE.fullmatch(line)
            if match is None:
                raise ValueError(f"{line[:80]!r} is not a digest and a path")
            digests[match[2]] = match[1]
    if write_sums(digests) != data:
        raise ValueError("it was edited or reordered")
    return digests
