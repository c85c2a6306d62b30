"""Reconciliation of the totals at files' ends with the requests that the files show.

A stream of one call often shows only the beginning of each reply, and no side models; at its end it reports totals by
model, and money. What the totals exceed the known requests of the session by, from whichever file, counts as one more
request; it shrinks when another file shows the requests themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec.structs import replace
from mz_engine.pricing.models import common_names, rename_models
from mz_engine.transcripts.read import FORMATS
from mz_engine.transcripts.summary import token_total
from mz_events.catalog.call import Usage
from mz_events.catalog.imported import ImportedCall, ImportedFileRead, ImportedRequest
from mz_projections.imported.model import OUTPUT_OPEN, US_PER_S, CountedRequest, QuarterSum
from mz_projections.usage import TOKEN_FIELDS, add_usage, sum_by_model, with_lifetimes

from mz_recordings.importing.file_reader import modified_us
from mz_recordings.importing.names import request_key
from mz_recordings.importing.other_tools import StatsReader

SESSION_LOG_FORMATS = frozenset(form.name for form in FORMATS if form.is_session_log)
"""Formats whose totals are of the whole session, including calls that have streams of their own."""
SECOND_HAND_FORMATS = frozenset({StatsReader.name})
"""Formats in which another program recorded a call's totals."""


def invocations(files: Iterable[ImportedFileRead]) -> tuple[ImportedFileRead, ...]:
    """Return the files with totals as if each held one call, each call once: of those with a common end, or without ids
    the same first line, the one with the highest totals. A second-hand record of a call is dropped if the call's own
    file is there (the same money, to the nano-dollar). Session logs come last."""
    with_totals = [
        replace(file, reported_totals=call.totals, reported_nanousd=call.nanousd, calls=(call,))
        for file in files
        for call in _calls(file)
    ]
    known_ends, originals = set[str](), list[ImportedFileRead]()
    for file in sorted(with_totals, key=_totals_weight, reverse=True):
        if known_ends.isdisjoint(file.calls[0].ends):
            originals.append(file)
        known_ends.update(file.calls[0].ends)
    unmatched_costs = Counter(file.reported_nanousd for file in originals if file.format not in SECOND_HAND_FORMATS)
    calls = []
    for file in originals:
        if file.format in SECOND_HAND_FORMATS and file.reported_nanousd and unmatched_costs[file.reported_nanousd]:
            unmatched_costs[file.reported_nanousd] -= 1
        else:
            calls.append(file)
    return tuple(sorted(calls, key=lambda file: file.format in SESSION_LOG_FORMATS))


def _calls(file: ImportedFileRead) -> Iterator[ImportedCall]:
    """Yield the calls with totals of a file, with ids of ends."""
    total = ImportedCall(totals=file.reported_totals, nanousd=file.reported_nanousd)
    for number, call in enumerate(file.calls or (total,)):
        if call.totals or call.nanousd is not None:
            yield call if call.ends else replace(call, ends=(f"{file.first_line_sha256} {number}",))


def _totals_weight(file: ImportedFileRead) -> tuple[int, int, int]:
    return sum(map(token_total, file.reported_totals)), file.reported_nanousd or 0, file.lines


def reconcile_totals(
    stream: str,
    files: Sequence[ImportedFileRead],
    sums: Sequence[QuarterSum],
    lookup: Callable[[Iterable[str]], dict[str, CountedRequest]],
) -> Iterator[ImportedRequest]:
    """Yield the requests that are new or changed; totals without a model come last. `files` are those of `invocations`,
    `sums` the session's rows; `lookup` finds requests that were counted before."""
    totals, agent = _totals_by_model(files), stream.split("/")[1]
    model_keys = {model: request_key(agent, f"{stream}\0rest\0{model}") for model in totals}
    cost_keys = [request_key(agent, f"{stream}\0end\0{file.calls[0].ends[0]}") for file in files]
    counted = lookup([*model_keys.values(), *cost_keys])
    changed_us = modified_us(max(file.modified_ns for file in files))
    at_us = max((row.start_s * US_PER_S for row in sums), default=changed_us)
    by_model = _shown_usage(sums, [counted[key] for key in model_keys.values() if key in counted])
    names = common_names(by_model, totals)
    shown = sum_by_model(rename_models(by_model.values(), names))
    for model in sorted(totals, reverse=True):
        total = replace(totals[model], model=names.get(model, model))
        remainder = _difference(total, _take_shown(shown, total))
        earlier = counted.get(model_keys[model])
        if remainder != (earlier.usage if earlier else _zero_usage(total.model)):
            yield _request(model_keys[model], remainder, None, earlier, at_us)
    request_nanousd = sum(row.reported_nanousd or 0 for row in sums)
    request_nanousd -= sum(counted[key].reported_nanousd or 0 for key in cost_keys if key in counted)
    for key, difference in zip(cost_keys, _cost_differences(files, request_nanousd), strict=True):
        earlier = counted.get(key)
        if difference != (earlier.reported_nanousd if earlier else 0):
            yield _request(key, _zero_usage(""), difference, earlier, at_us)


def _totals_by_model(files: Sequence[ImportedFileRead]) -> dict[str, Usage]:
    """Return the totals by model. Calls add up; a session log includes them all, or is not yet as far."""
    totals: dict[str, Usage] = {}
    for file in files:
        for usage in file.reported_totals:
            earlier = totals.get(usage.model)
            if earlier is None:
                totals[usage.model] = usage
            elif file.format in SESSION_LOG_FORMATS:
                totals[usage.model] = max(earlier, usage, key=token_total)
            else:
                totals[usage.model] = add_usage(earlier, usage)
    return totals


def incomplete_reasons(files: Sequence[ImportedFileRead], sums: Sequence[QuarterSum]) -> tuple[str, ...]:
    """Return the codes of notes that say why the files of a session report, or may report, fewer tokens than were used.
    `sums` are the session's rows. Unfinished outputs of a log are resolved by totals at the end of a call or session
    that cover all requests, and by a longer copy of the same log."""
    by_lines = sorted(files, key=lambda file: file.lines)
    longest_by_kind = {(file.format, file.subagent): file for file in by_lines}
    is_open = any(OUTPUT_OPEN in file.incomplete_reasons for file in longest_by_kind.values())
    reasons = {code for file in files for code in file.incomplete_reasons if code != OUTPUT_OPEN}
    return tuple(sorted(reasons | ({OUTPUT_OPEN} if is_open and not _is_covered(files, sums) else set())))


def _is_covered(files: Sequence[ImportedFileRead], sums: Sequence[QuarterSum]) -> bool:
    """Return True if the totals have as much input as the session's requests, by model. A total without a model covers
    the rest."""
    totals, by_model = _totals_by_model(invocations(files)), _shown_usage(sums, ())
    names, reported, shown = common_names(by_model, totals), Counter[str](), Counter[str]()
    for usage in rename_models(totals.values(), names):
        reported[usage.model] += usage.input
    for usage in rename_models(by_model.values(), names):
        shown[usage.model] += usage.input
    return sum(max(shown[model] - reported[model], 0) for model in shown if model) <= reported[""]


def _cost_differences(files: Sequence[ImportedFileRead], request_nanousd: int) -> Iterator[int]:
    """Yield for each file the money that is reported for a whole call minus that of its requests; and for a whole
    session, minus both."""
    covered_nanousd = request_nanousd
    for file in files:
        reported_nanousd = file.reported_nanousd or 0
        if file.format in SESSION_LOG_FORMATS:
            difference = max(reported_nanousd - covered_nanousd, 0)
        else:
            difference = max(reported_nanousd - request_nanousd, 0)
            request_nanousd = max(request_nanousd - reported_nanousd, 0)
        covered_nanousd += difference
        yield difference


def _request(key: str, usage: Usage, nanousd: int | None, before: CountedRequest | None, at_us: int) -> ImportedRequest:
    return ImportedRequest(
        key=key, at_us=before.at_us if before else at_us, dated=False, usage=usage, reported_nanousd=nanousd,
        before=before.usage if before else None, before_nanousd=before.reported_nanousd if before else None,
    )  # fmt: skip


def _zero_usage(model: str) -> Usage:
    return Usage(model=model, input=0, output=0)


def _shown_usage(sums: Sequence[QuarterSum], reconciliations: Iterable[CountedRequest]) -> dict[str, Usage]:
    """Return the sums of the session's requests by model, without earlier reconciliations; no zeros."""
    usage_by_model: dict[str, Usage] = {}
    for row in sums:
        usage = Usage(model=row.model, **{field: getattr(row, field) for field in TOKEN_FIELDS})
        usage_by_model[row.model] = add_usage(usage_by_model.get(row.model, _zero_usage(row.model)), usage)
    for reconciliation in reconciliations:
        name = reconciliation.usage.model
        usage_by_model[name] = add_usage(usage_by_model.get(name, _zero_usage(name)), reconciliation.usage, -1)
    return {name: usage for name, usage in usage_by_model.items() if token_total(usage)}


def _take_shown(shown: dict[str, Usage], total: Usage) -> Usage:
    """Return the known usage of the model, or of all remaining models if none is named. `shown` keeps what this total
    leaves, so that nothing is subtracted twice."""
    names = (total.model,) if total.model else tuple(shown)
    usage = _zero_usage(total.model)
    for name in names:
        usage = add_usage(usage, shown.pop(name, _zero_usage(name)))
    remaining = {field: max(getattr(usage, field) - getattr(total, field), 0) for field in TOKEN_FIELDS}
    shown[names[0] if names else ""] = replace(usage, **remaining)
    return usage


def _difference(total: Usage, shown: Usage) -> Usage:
    """Return what `total` exceeds `shown` by. If the total has no lifetimes of cache writes, those of the shown
    requests apply."""
    total = with_lifetimes(total, shown)
    parts = {field: max(getattr(total, field) - getattr(shown, field), 0) for field in TOKEN_FIELDS}
    cached = parts["cache_read"] + parts["cache_write_5m"] + parts["cache_write_1h"]
    return Usage(model=total.model, **{**parts, "input": max(parts["input"], cached)})
