"""Pure: what files tell at their ends, beyond the requests that they show.

A stream of one call often shows only the beginning of each answer, and nothing of side models; at its end it tells sums
by model, and money. What the sums have more than the requests of the session that are known, from whichever file,
counts as one request more; it shrinks when another file shows the requests themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace
from mz_events.catalog.call import Usage
from mz_events.catalog.session import Request
from mz_projections.imported import File, Known, Sum

from mz_recordings.importing.names import request_key

FIELDS = ("input", "output", "cache_read", "cache_write_5m", "cache_write_1h", "reasoning")


def invocations(files: Iterable[File]) -> tuple[File, ...]:
    """The files that tell something at their end, calls once: of those with one first line the one that tells most, of
    those that tell the same money, to the nano-dollar, the one that names models."""
    found: dict[str, File] = {}
    for each in files:
        if each.told or each.reported_nanousd is not None:
            other = found.get(each.head)
            if other is None or _weight(each) > _weight(other):
                found[each.head] = each
    same: dict[int, File] = {}
    for each in found.values():
        nanousd = each.reported_nanousd or 0
        other = same.get(nanousd)
        if not nanousd or other is None or _detail(each) > _detail(other):
            same[nanousd or -1 - len(same)] = each
    return tuple(same.values())


def _detail(file: File) -> int:
    """Models that it names."""
    return sum(bool(usage.model) for usage in file.told)


def _weight(file: File) -> tuple[int, int]:
    return sum(usage.input + usage.output for usage in file.told), file.reported_nanousd or 0


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
    """The requests that are new or other than before. `files` as `invocations` gives them, `sums` the session's rows,
    `at_us`: when the session was last heard of."""
    told: dict[str, Usage] = {}
    for file in files:
        for usage in file.told:
            other = told.get(usage.model)
            told[usage.model] = usage if other is None else _plus(other, usage)
    for model, usage in told.items():
        before = known.get(_rest(agent, stream, model))
        shown = _shown(model, sums, before)
        rest = _beyond(usage, shown)
        if rest != (before.usage if before else _nothing(model)):
            yield _request(_rest(agent, stream, model), rest, None, before, at_us)
    yield from _money(agent, stream, files, sums, known, at_us)


def _money(
    agent: str, stream: str, files: Sequence[File], sums: Sequence[Sum], known: dict[str, Known], at_us: int
) -> Iterator[Request]:
    """What is reported for a whole call, less what is reported for its requests one by one."""
    ends = [known[key] for file in files if (key := _end(agent, stream, file)) in known]
    single = sum(each.reported_nanousd or 0 for each in sums) - sum(end.reported_nanousd or 0 for end in ends)
    for file in files:
        if file.reported_nanousd is None:
            continue
        beyond, single = max(file.reported_nanousd - single, 0), max(single - file.reported_nanousd, 0)
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


def _shown(model: str, sums: Sequence[Sum], rest: Known | None) -> Usage:
    """What the session's requests to the model (to all of them, where none is named) add up to, without what was
    settled before."""
    found = _nothing(model)
    for each in sums:
        if not model or bare(each.model) == bare(model):
            found = _plus(found, Usage(model=model, **{field: getattr(each, field) for field in FIELDS}))
    return found if rest is None else _plus(found, rest.usage, -1)


def bare(model: str) -> str:
    """Sums name a model with the mark of its context window, lines without."""
    return model.partition("[")[0]


def _plus(first: Usage, second: Usage, sign: int = 1) -> Usage:
    return replace(first, **{field: getattr(first, field) + sign * getattr(second, field) for field in FIELDS})


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
