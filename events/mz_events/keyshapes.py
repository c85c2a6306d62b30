"""Facts: what the keys of well-known services look like. A shape is anchored: it begins with letters that its service
puts there so that keys can be found."""

from __future__ import annotations

import msgspec


class Shape(msgspec.Struct, frozen=True):
    """A pattern for one kind of key."""

    name: str
    pattern: bytes
    """Regular expression over bytes, without a line break. It begins with a literal, which makes the search fast."""
    certain: bool = True
    """False: text of this shape is often no secret; it is removed from output, but does not stop a call."""


START = rb"(?:(?<![A-Za-z0-9]%b)|(?<=\\[nrtbf]%b))"
"""After a prefix: no letter or digit stood before it, unless as part of a JSON escape."""


def _starting(prefix: bytes) -> bytes:
    return prefix + START % (prefix, prefix)


SHAPES: tuple[Shape, ...] = (
    Shape("anthropic-key", rb"sk-ant-[a-z]{2,8}\d{2}-[A-Za-z0-9_-]{20,}"),
    Shape("openai-key", _starting(b"sk-") + rb"(?:(?:proj|svcacct|admin)-[A-Za-z0-9_-]{32,}|[A-Za-z0-9]{32,})"),
    Shape("github-token", rb"gh[pousr]_[A-Za-z0-9]{36,}"),
    Shape("github-token", rb"github_pat_[A-Za-z0-9_]{36,}"),
    Shape("gitlab-token", rb"glpat-[A-Za-z0-9_-]{20,}"),
    Shape("aws-key-id", _starting(b"AKIA") + rb"(?!IOSFODNN7EXAMPLE)[A-Z0-9]{16}(?![A-Za-z0-9])"),
    Shape("aws-key-id", _starting(b"ASIA") + rb"[A-Z0-9]{16}(?![A-Za-z0-9])"),
    Shape("google-key", rb"AIza[A-Za-z0-9_-]{35}"),
    Shape("slack-token", rb"xox[abeoprs]-[A-Za-z0-9-]{10,}"),
    Shape("jwt", rb"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}", certain=False),
)

PEM_NAME = "private-key"
PEM_BEGIN = rb"-----BEGIN [A-Z0-9 ]{0,32}PRIVATE KEY(?: BLOCK)?-----"
PEM_END = rb"-----END [A-Z0-9 ]{0,32}PRIVATE KEY(?: BLOCK)?-----"
PEM_BODY = rb"[A-Za-z0-9+/=:,. \t-]|\\+[nrt]"
"""A piece of the block: base64, header lines, escaped line breaks."""
PEM_BYTES_MAX = 1 << 16
"""A block without an end is given up here; the longest real keys have some 13,000 bytes."""
