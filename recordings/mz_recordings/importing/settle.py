"""Pure: what files tell at their ends, beyond the requests that they show.

A stream of one call often shows only the beginning of each answer, and nothing of side models; at its end it tells sums
by model, and money. What the sums have more than the requests of the session that are known, from whichever file,
counts as one request more; it shrinks when another file shows the requests themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace
from mz_events.catalog.call import Usage
from mz_events.catalog.session import Request
from mz_projections.imported import OPEN, File, Known, Sum
from mz_projections.usage import NUMBERS, plus

from mz_recordings.importing.gather import total
from mz_recordings.importing.names import request_key
from mz_recordings.importing.records import StatsReader
from mz_recordings.transcripts.formats import FORMATS

LOGS = frozenset(each.name for each in FORMATS if each.log)
"""What their files tell at the end is of the whole session, the calls that have streams of their own included."""
SECOND_HAND = frozenset({StatsReader.format})
"""Files in which somebody else wrote down what a call told."""


def invocations(files: Iterable[File]) -> tuple[File, ...]:
    """The files that tell something at their end, calls once: of those with one beginning the one that tells most, and
    no record of a call (the same money, to the nano-dollar) whose own file is there. Logs of whole sessions last."""
    found: dict[str, File] = {}
    for each in files:
        if each.told or each.reported_nanousd is not None:
            other = found.get(each.head)
            if other is None or _weight(each) > _weight(other):
                found[each.head] = each
    spare = Counter(each.reported_nanousd for each in found.values() if each.format not in SECOND_HAND)
    calls = []
    for each in found.values():
        if each.format in SECOND_HAND and each.reported_nanousd and spare[each.reported_nanousd]:
            spare[each.reported_nanousd] -= 1
        else:
            calls.append(each)
    return tuple(sorted(calls, key=lambda each: each.format in LOGS))


def _weight(file: File) -> tuple[int, int]:
    return sum(map(total, file.told)), file.reported_nanousd or 0


def keys(agent: str, stream: str, files: Sequence[File]) -> tuple[str, ...]:
    """Of all requests that `settled` may make, so that they can be looked up."""
    models = {usage.model for file in files for usage in file.told}
    return (*(_rest(agent, stream, model) for model in sorted(models)), *(_end(agent, stream, file) for file in files))


def _rest(agent: str, stream: str, model: str) -> str:
    return request_key(agent, f"{stream}\0rest\0{model}")


def _end(agent: str, stream: str, file: File) -> str:
    return request_key(agent, f"{stream}\0end\0{file.head}")


def settled(
    agent: str, stream: str, files: Sequence[File], sums: Sequence[Sum], known: dict[str, Known], at_us: int
) -> Iterator[Request]:
    """The requests that are new or other than before; sums that name no model come last. `files` as `invocations` gives
    them, `sums` the session's rows, `at_us`: when the session was last heard of."""
    told = _told(files)
    before = {model: known.get(_rest(agent, stream, model)) for model in told}
    shown = _shown(sums, filter(None, before.values()))
    for model in sorted(told, reverse=True):
        rest = _beyond(told[model], _taken(shown, told[model]))
        earlier = before[model]
        if rest != (earlier.usage if earlier else _nothing(model)):
            yield _request(_rest(agent, stream, model), rest, None, earlier, at_us)
    yield from _money(agent, stream, files, sums, known, at_us)


def _told(files: Sequence[File]) -> dict[str, Usage]:
    """By model: what calls tell adds up; a log of the whole session has it all, or is not yet as far."""
    told: dict[str, Usage] = {}
    for file in files:
        for usage in file.told:
            other = told.get(usage.model)
            if other is None:
                told[usage.model] = usage
            elif file.format in LOGS:
                told[usage.model] = max(other, usage, key=total)
            else:
                told[usage.model] = plus(other, usage)
    return told


def lacking(files: Sequence[File], sums: Sequence[Sum]) -> tuple[str, ...]:
    """Why the files of one session tell fewer tokens than were used, or may do so; empty: nothing says so. `sums`: the
    session's rows. Outputs that a log leaves open are told by sums at the end of a call, or of the session, that cover
    all requests; and by a longer copy of the same log, as far as that has them."""
    longest: dict[tuple[str, str], File] = {}
    for each in files:
        other = longest.get((each.format, each.part))
        if other is None or each.lines > other.lines:
            longest[each.format, each.part] = each
    found = {code for each in files for code in each.lacks if code != OPEN}
    if any(OPEN in each.lacks for each in longest.values()) and not _covered(files, sums):
        found.add(OPEN)
    return tuple(sorted(found))


def _covered(files: Sequence[File], sums: Sequence[Sum]) -> bool:
    """Whether the sums that files tell have as much input as the session's requests, by model; a sum that names none is
    of those that the others leave."""
    told, shown = Counter[str](), Counter[str]()
    for usage in _told(invocations(files)).values():
        told[bare(usage.model)] += usage.input
    for each in sums:
        shown[bare(each.model)] += each.input
    return sum(max(shown[model] - told[model], 0) for model in shown if model) <= told[""]


def _money(
    agent: str, stream: str, files: Sequence[File], sums: Sequence[Sum], known: dict[str, Known], at_us: int
) -> Iterator[Request]:
    """What is reported for a whole call, less what is reported for its requests one by one; and for a whole session,
    less what is reported for both."""
    ends = [known[key] for file in files if (key := _end(agent, stream, file)) in known]
    single = sum(each.reported_nanousd or 0 for each in sums) - sum(end.reported_nanousd or 0 for end in ends)
    covered = single
    for file in files:
        if file.reported_nanousd is None:
            continue
        if file.format in LOGS:
            beyond = max(file.reported_nanousd - covered, 0)
        else:
            beyond, single = max(file.reported_nanousd - single, 0), max(single - file.reported_nanousd, 0)
        covered += beyond
        before = known.get(_end(agent, stream, file))
        if beyond != (before.reported_nanousd if before else 0):
            yield _request(_end(agent, stream, file), _nothing(""), beyond, before, at_us)


def _request(key: str, usage: Usage, nanousd: int | None, before: Known | None, at_us: int) -> Request:
    return Request(
        key=key, at_us=before.at_us if before else at_us, dated=False, usage=usage, reported_nanousd=nanousd,
        before=before.usage if before else None, before_nanousd=before.reported_nanousd if before else None,
    )  # fmt: skip


def _nothing(model: str) -> Usage:
    return Usage(model=model, input=0, output=0)


def _shown(sums: Sequence[Sum], rests: Iterable[Known]) -> dict[str, Usage]:
    """What the session's requests add up to, by model, without what was settled before."""
    found: dict[str, Usage] = {}
    for each in sums:
        name = bare(each.model)
        usage = Usage(model=name, **{field: getattr(each, field) for field in NUMBERS})
        found[name] = plus(found.get(name, _nothing(name)), usage)
    for rest in rests:
        name = bare(rest.usage.model)
        found[name] = plus(found.get(name, _nothing(name)), rest.usage, -1)
    return found


def _taken(shown: dict[str, Usage], told: Usage) -> Usage:
    """What is shown of the model, or of all that no sum before was about, where none is named; in `shown` stays what
    this sum leaves, so that nothing is held against two."""
    names = (bare(told.model),) if told.model else tuple(shown)
    found = _nothing(told.model)
    for name in names:
        found = plus(found, shown.pop(name, _nothing(name)))
    left = {field: max(getattr(found, field) - getattr(told, field), 0) for field in NUMBERS}
    shown[names[0] if names else ""] = replace(found, **left)
    return found


def bare(model: str) -> str:
    """Sums name a model with the mark of its context window, lines without."""
    return model.partition("[")[0]


def _beyond(told: Usage, shown: Usage) -> Usage:
    """What `told` has more. Sums tell no lifetimes of cache writes: they have those of the requests that are shown."""
    written = max(told.cache_write_5m + told.cache_write_1h - shown.cache_write_5m - shown.cache_write_1h, 0)
    long = told.cache_write_1h > 0 or shown.cache_write_1h > shown.cache_write_5m
    read = max(told.cache_read - shown.cache_read, 0)
    return Usage(
        model=told.model,
        input=max(told.input - shown.input, read + written), output=max(told.output - shown.output, 0),
        cache_read=read, cache_write_5m=0 if long else written, cache_write_1h=written if long else 0,
        reasoning=max(told.reasoning - shown.reasoning, 0),
    )  # fmt: skip
