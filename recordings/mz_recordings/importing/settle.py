"""Reconciliation of the totals at files' ends with the requests that the files show.

A stream of one call often shows only the beginning of each reply, and no side models; at its end it reports totals by
model, and money. What the totals exceed the known requests of the session by, from whichever file, counts as one more
request; it shrinks when another file shows the requests themselves.
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

LOGS = frozenset(form.name for form in FORMATS if form.log)
"""Formats whose totals are of the whole session, including calls that have streams of their own."""
SECOND_HAND = frozenset({StatsReader.format})
"""Formats in which another program recorded a call's totals."""


def invocations(files: Iterable[File]) -> tuple[File, ...]:
    """Return the files with totals, each call once. Of files with the same beginning the one with the highest totals
    counts; a second-hand record of a call is dropped if the call's own file is there (the same money, to the
    nano-dollar). Session logs come last."""
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
    """Return the keys of all requests that `reconcile_totals` may make, for the lookup."""
    models = {usage.model for file in files for usage in file.told}
    return (*(_rest(agent, stream, model) for model in sorted(models)), *(_end(agent, stream, file) for file in files))


def _rest(agent: str, stream: str, model: str) -> str:
    return request_key(agent, f"{stream}\0rest\0{model}")


def _end(agent: str, stream: str, file: File) -> str:
    return request_key(agent, f"{stream}\0end\0{file.head}")


def settled(
    agent: str, stream: str, files: Sequence[File], sums: Sequence[Sum], known: dict[str, Known], at_us: int
) -> Iterator[Request]:
    """Yield the requests that are new or changed; totals without a model come last. `files` are those of `invocations`,
    `sums` the session's rows, `at_us` the time of the session's last activity."""
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
    """Return the totals by model. Calls add up; a session log includes them all, or is not yet as far."""
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
    """Return the codes of notes that say why the files of a session report, or may report, fewer tokens than were used.
    `sums` are the session's rows. Unfinished outputs of a log are resolved by totals at the end of a call or session
    that cover all requests, and by a longer copy of the same log."""
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
    """Return True if the totals have as much input as the session's requests, by model. A total without a model covers
    the rest."""
    told, shown = Counter[str](), Counter[str]()
    for usage in _told(invocations(files)).values():
        told[bare(usage.model)] += usage.input
    for each in sums:
        shown[bare(each.model)] += each.input
    return sum(max(shown[model] - told[model], 0) for model in shown if model) <= told[""]


def _money(
    agent: str, stream: str, files: Sequence[File], sums: Sequence[Sum], known: dict[str, Known], at_us: int
) -> Iterator[Request]:
    """Yield a request for the money that is reported for a whole call minus that of its requests; and for a whole
    session, minus both."""
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
    """Return the sums of the session's requests by model, without earlier reconciliations."""
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
    """Return the known usage of the model, or of all remaining models if none is named. `shown` keeps what this total
    leaves, so that nothing is subtracted twice."""
    names = (bare(told.model),) if told.model else tuple(shown)
    found = _nothing(told.model)
    for name in names:
        found = plus(found, shown.pop(name, _nothing(name)))
    left = {field: max(getattr(found, field) - getattr(told, field), 0) for field in NUMBERS}
    shown[names[0] if names else ""] = replace(found, **left)
    return found


def bare(model: str) -> str:
    """Return the model name without the mark of its context window, which totals have and lines have not."""
    return model.partition("[")[0]


def _beyond(told: Usage, shown: Usage) -> Usage:
    """Return what `total` exceeds `shown` by. Totals have no lifetimes of cache writes: those of the shown requests
    apply."""
    written = max(told.cache_write_5m + told.cache_write_1h - shown.cache_write_5m - shown.cache_write_1h, 0)
    long = told.cache_write_1h > 0 or shown.cache_write_1h > shown.cache_write_5m
    read = max(told.cache_read - shown.cache_read, 0)
    return Usage(
        model=told.model,
        input=max(told.input - shown.input, read + written), output=max(told.output - shown.output, 0),
        cache_read=read, cache_write_5m=0 if long else written, cache_write_1h=written if long else 0,
        reasoning=max(told.reasoning - shown.reasoning, 0),
    )  # fmt: skip
