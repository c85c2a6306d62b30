"""Facts read from agents' own session files: what was asked of models without `mz`, and what that came to.

They lie in the log of a user, not of a repository: `session/<agent>/<id>`. Nothing that a person or an agent wrote is
kept, and paths only as blobs, so that they can be erased.
"""

from __future__ import annotations

from mz_events.catalog.base import Event, Fact, Role
from mz_events.catalog.call import Usage
from mz_events.names import Digest, StreamId


class Request(Fact, frozen=True, kw_only=True):
    """One request to a model, counted for the session whose stream holds it unless it names another. Without tokens it
    only says what money was reported."""

    key: str
    """32 hexadecimal digits of the sha256 over agent and id: the same wherever the request is told of."""
    at_us: int
    dated: bool = True
    """False: no file tells when it was made, and the time is that of the line before or of the file."""
    usage: Usage
    reported_nanousd: int | None = None
    """By the agent, for this request."""
    before: Usage | None = None
    """What was counted for it until now: this sighting knows of more tokens, or of its time, and takes its place."""
    before_nanousd: int | None = None
    """What was reported for it until now."""
    before_at_us: int | None = None
    """When it was thought to be made until now, if that was another time."""
    session: StreamId = StreamId("")
    """Where it was first seen, and is counted, when that is another session."""


class PricedSum(Fact, frozen=True, kw_only=True):
    """Money of requests of one quarter of an hour, one model and one part of a session."""

    session: StreamId = StreamId("")
    """As in `Request`."""
    start_s: int
    """Seconds since the epoch, UTC, at which the quarter begins."""
    model: str
    part: str
    nanousd: int
    """Below zero where a correction lowers what was counted before."""
    unpriced: int
    """Requests more that have no price; below zero where a correction has one."""


class SessionOpened(Event, frozen=True, kw_only=True, tag="session.opened"):
    """A session file was met for the first time, or tells more of its session than was known."""

    ROLE = Role.FACT
    agent: str
    session: str
    """As the agent names it; `sha256-...` where that is no name."""
    version: str = ""
    """Of the agent's program."""
    project: Digest | None = None
    """Blob: the directory that the session worked in."""
    parent: str = ""
    """Session that this one was branched from."""
    by_mz: bool = False
    """The directory is a worktree of a run: the same calls are in that repository's own log."""


class SessionRead(Event, frozen=True, kw_only=True, tag="session.read"):
    """What one file tells from one byte to another. Requests that were counted before are not in it."""

    ROLE = Role.FACT
    MEASURED = frozenset({"modified_ns", "inode", "paths"})
    file: str
    """sha256 of its path."""
    paths: Digest
    """Blob: the paths of all files that were read together, each ending with a zero byte; this one's is among them."""
    format: str
    """Name of the reader, such as claude-session."""
    part: str = ""
    """Of the sub-agent whose file this is."""
    size: int
    """Bytes of the file, when it was looked at."""
    modified_ns: int
    """0: more of the file was to be read when this was appended."""
    inode: int
    start: int
    """Byte at which reading began; 0: the file is new, or was replaced, and what was counted of its lines is void."""
    upto: int
    """Byte behind the last whole line."""
    mark: str
    """sha256 over the first and the last bytes of what was read: a file that was replaced no longer fits it."""
    requests: tuple[Request, ...] = ()
    seen: int = 0
    """Requests that were counted before, here or elsewhere."""
    undated: int = 0
    """Requests without a time of their own, counted at that of the line before or of the file."""
    ahead: int = 0
    """Requests that lie in the future."""
    prompts: int = 0
    tools: dict[str, int] = {}
    """Calls, by tool."""
    failed: int = 0
    """Tool calls that failed."""
    lines: int = 0
    bad: int = 0
    """Lines that cannot be decoded."""
    unknown: dict[str, int] = {}
    """Lines of types that the reader does not know."""
    carry: str = ""
    """JSON of what the reader remembers for the next line: names and numbers. Empty: it cannot be kept, and a file that
    has grown is read from its beginning."""
    head: str = ""
    """sha256 of its first line, or of the document that it begins with: copies of a file have the same."""
    told: tuple[Usage, ...] = ()
    """Sums that the file tells at its end, by model, up to here."""
    reported_nanousd: int | None = None
    """Money that the file tells at its end, up to here."""
    lacks: tuple[str, ...] = ()
    """Why the file may tell fewer tokens than were used: codes of notes. `output-open` is of the file up to here, all
    else of these lines. Empty: nothing says so."""


class SessionSettled(Event, frozen=True, kw_only=True, tag="session.settled"):
    """What the session's files tell at their ends beyond the requests that they show: tokens of requests that no line
    is about, and money for the whole."""

    ROLE = Role.DERIVED
    requests: tuple[Request, ...]


class SessionPriced(Event, frozen=True, kw_only=True, tag="session.priced"):
    """The requests of the event before it in the stream, by the prices then in force."""

    ROLE = Role.DERIVED
    sums: tuple[PricedSum, ...] = ()
    unpriced: tuple[str, ...] = ()
    """Models without a price."""
    prices: str = ""
    """Name, version and digest of the price table."""
