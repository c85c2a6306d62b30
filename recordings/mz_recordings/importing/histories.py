"""Read the histories that Mage and Monozukuri keep, as imported runs. What a file does not tell stays unknown, and what
cannot be read is counted."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from msgspec.structs import replace
from mz_engine.agents.reading.json_lines import Json, count, decode_object, mapping, nanousd, objects, string, time_us
from mz_engine.decoding.text_file import read_text
from mz_engine.decoding.yaml import parse_yaml
from mz_engine.errors.diagnostics import MzError
from mz_engine.git.process import NO_USER_CONFIG, run_git, safe_environment
from mz_engine.ports import RepositoryUnusable
from mz_events.catalog.imported import ImportedRecord, ImportedRunRead
from mz_events.names import Commit

from mz_recordings.importing.names import sanitize_label, sanitize_name
from mz_recordings.importing.other_tools import CALLERS, CLAUDE, MAGE, MEASURE, MONOZUKURI, invocation_records

FILE_BYTES_MAX = 64_000_000
ENTRIES_MAX = 20_000
"""Folders that are read in one, and records of a run; more are counted as damaged."""
GENERATION_TAG = re.compile(r"refs/tags/(.+)-(start|finished|merged|abandoned)\Z")
STATES = ("merged", "abandoned", "finished")
"""Tags that say how a generation ended; the first that it has counts."""
GENERATION_TIME = re.compile(r"\d{4}(?:-\d\d){5}\Z")
ISSUES = ".beads/issues.jsonl"
HISTORIES = ("history", ".cobbler/history")


class HistoryFiles:
    """The files of a folder. What cannot be read is noted in `damaged`, as a path, or a path and a line."""

    def __init__(self, root: Path) -> None:
        self.root, self.damaged = root, list[str]()

    def note(self, path: Path, line: int | None = None) -> None:
        self.damaged.append(str(path.relative_to(self.root)) + (f":{line}" if line else ""))

    def text(self, path: Path) -> str:
        """Return the text of a file; empty if it is missing or cannot be read."""
        try:
            return read_text(path, str(path), FILE_BYTES_MAX) if os.path.lexists(path) else ""
        except MzError:
            self.note(path)
            return ""

    def document(self, path: Path) -> Json:
        """Return the object in a JSON file; empty if it is missing or cannot be read."""
        text = self.text(path)
        document = decode_object(text.encode()) if text else {}
        if document is None:
            self.note(path)
        return document or {}

    def entries(self, path: Path, kind: Callable[[os.DirEntry[str]], bool]) -> list[Path]:
        """Return what a folder has of a kind, sorted; nothing if it is missing."""
        try:
            with os.scandir(path) as scanned:
                names = sorted(entry.name for entry in scanned if kind(entry))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError:
            self.note(path)
            return []
        if len(names) > ENTRIES_MAX:
            self.note(path)
        return [path / name for name in names[:ENTRIES_MAX]]

    def folders(self, path: Path) -> list[Path]:
        return self.entries(path, lambda entry: entry.is_dir(follow_symlinks=False))


def imported_history(files: HistoryFiles, system: str) -> tuple[ImportedRunRead, ...]:
    """Return the runs of a system in a folder, each with something in it."""
    runs = list[ImportedRunRead]()
    for run in SYSTEMS[system](files):
        if run.items or run.records:
            name, items, records = sanitize_name(f"{system}-{run.run}"), list(run.items.items()), run.records
            damaged = run.damaged + len(items[ENTRIES_MAX:]) + len(records[ENTRIES_MAX:])
            items, records = items[:ENTRIES_MAX], records[:ENTRIES_MAX]
            runs.append(replace(run, run=name, items=dict(items), records=records, damaged=damaged))
    return tuple(runs)


def _status(value: object) -> str:
    return sanitize_label(string(value)[:255])


def _numbered(records: Iterable[ImportedRecord]) -> tuple[ImportedRecord, ...]:
    """Return the records in the order of their time, those of one item and phase numbered."""
    numbers, numbered = Counter[tuple[str, str]](), list[ImportedRecord]()
    for record in sorted(records, key=lambda record: record.started_us):
        numbers[record.item, record.phase] += 1
        numbered.append(replace(record, attempt=numbers[record.item, record.phase]))
    return tuple(numbered)


# Monozukuri -----------------------------------------------------------------------------------------------------------
def _monozukuri_runs(files: HistoryFiles) -> Iterator[ImportedRunRead]:
    """Yield the runs in a repository, its `.monozukuri`, or a run's own folder."""
    if any((files.root / name).exists() for name in ("manifest.json", "report.json")):
        yield _monozukuri_run(files, files.root)
        return
    for top in (files.root / ".monozukuri", files.root):
        for folder in (*files.folders(top / "runs"), top / "state"):
            yield _monozukuri_run(files, folder)


def _monozukuri_run(files: HistoryFiles, folder: Path) -> ImportedRunRead:
    earlier = len(files.damaged)
    manifest, report = files.document(folder / "manifest.json"), files.document(folder / "report.json")
    rows = dict[str, Json]()
    for row in (*objects(report.get("features")), *objects(manifest.get("features"))):
        name = string(row.get("feat_id")) or string(row.get("id"))
        rows[name] = {**rows.get(name, {}), **row}
    items, records = dict[str, str](), list[ImportedRecord]()
    folders = {path.name: path for path in files.folders(folder)}
    for name in filter(None, dict.fromkeys((*rows, *folders))):
        state, cost = rows.get(name, {}), dict[str, object]()
        if path := folders.get(name):
            parts = [files.document(path / f"{part}.json") for part in ("results", "status", "state")]
            cost = {**files.document(path / "cost.json")}
            if not (state or cost or any(parts)):
                continue
            for part in parts:
                state = {**state, **part}
        items[sanitize_name(name)] = _status(state.get("status"))
        begin_us = time_us(state.get("created_at")) or time_us(cost.get("created_at"))
        for phase in objects(cost.get("phases")):
            started_us = time_us(phase.get("recorded_at")) or begin_us
            if started_us is None:
                files.note(folder / name / "cost.json")
                continue
            record = ImportedRecord(
                item=sanitize_name(name), phase=_status(phase.get("phase")) or "unknown", attempt=1,
                started_us=started_us, tokens=count(phase.get("actual_tokens")),
                estimated_tokens=count(phase.get("estimated_tokens")),
                estimated_nanousd=nanousd(phase.get("estimated_usd")),
            )  # fmt: skip
            records.append(record)
    return ImportedRunRead(
        run=string(manifest.get("run_id")) or string(report.get("run_id")) or folder.name,
        system=MONOZUKURI,
        status=_status(manifest.get("status")),
        started_us=time_us(manifest.get("started_at")) or time_us(report.get("started_at")),
        items=items,
        records=_numbered(records),
        damaged=len(files.damaged) - earlier,
    )


# Mage -----------------------------------------------------------------------------------------------------------------
def _mage_runs(files: HistoryFiles) -> Iterator[ImportedRunRead]:
    """Yield the generations of a repository, by its tags and branches; without any, what its files have as one run."""
    stats = list(_mage_stats(files))
    generations = dict(sorted(_generations(files.root).items()))
    if not generations:
        text = files.text(files.root / ISSUES)
        yield _mage_run(files, files.root.resolve().name, text, stats, {})
    for name, refs in generations.items():
        ref = next((refs[state] for state in ("", *STATES) if state in refs), "")
        size = _git(files.root, "cat-file", "-s", f"{ref}:{ISSUES}") if ref else ""
        is_readable = size.strip().isdigit() and int(size) <= FILE_BYTES_MAX
        if size and not is_readable:
            files.note(files.root / ISSUES)
        text = _git(files.root, "cat-file", "blob", f"{ref}:{ISSUES}") if is_readable else ""
        yield _mage_run(files, name, text, [stat for stat in stats if _generation(stat, generations) == name], refs)


def _generations(root: Path) -> dict[str, dict[str, str]]:
    """Return commits by generation and tag; by "" that of its branch."""
    generations, branches = dict[str, dict[str, str]](), dict[str, str]()
    if _git(root, "rev-parse", "--show-prefix").strip():
        return {}  # A folder in a repository: what is tagged there is another thing.
    shown = _git(root, "for-each-ref", "--format=%(refname)\t%(objectname)\t%(*objectname)", "refs/heads", "refs/tags")
    for row in shown.splitlines():
        name, commit, peeled = row.split("\t")
        if match := GENERATION_TAG.match(name):
            generations.setdefault(match[1], {})[match[2]] = peeled or commit
        branches[name.removeprefix("refs/heads/")] = commit
    for name, refs in generations.items():
        refs |= {"": branches[name]} if name in branches else {}
    return generations


def _generation(stats: Json, generations: Iterable[str]) -> str:
    """Return the last generation that began before a call: both have the local time of one machine."""
    time = re.sub("[T:]", "-", string(stats.get("started_at"))[:19])
    begun = {name: match[0] for name in generations if (match := GENERATION_TIME.search(name)) and match[0] <= time}
    return max(begun, key=lambda name: begun[name], default="")


def _mage_stats(files: HistoryFiles) -> Iterator[Json]:
    """Yield the `stats` of calls."""
    for folder in HISTORIES:
        for path in files.entries(files.root / folder, lambda entry: "stats" in entry.name and entry.is_file()):
            try:
                stats = mapping(parse_yaml(files.text(path), path.name).value)
            except MzError:
                stats = {}
            if string(stats.get("caller")) in CALLERS and time_us(stats.get("started_at")) is not None:
                yield stats
            else:
                files.note(path)


def _mage_run(
    files: HistoryFiles, name: str, issues: str, stats: Iterable[Json], refs: Mapping[str, str]
) -> ImportedRunRead:
    earlier, items, records = len(files.damaged), dict[str, str](), list[ImportedRecord]()
    for number, line in enumerate(issues.split("\n"), start=1):
        issue = decode_object(line.encode()) if line.strip() else {}
        identity = string((issue or {}).get("id"))
        if issue is None or (line.strip() and not identity):
            files.note(files.root / ISSUES, number)
        if not issue or not identity:
            continue
        if string(issue.get("issue_type")) in ("", "task"):
            items[sanitize_name(identity)] = _status(issue.get("status"))
        dated = (entry for entry in invocation_records(issue) if time_us(entry.get("started_at")))
        records += [_mage_record(entry, identity) for entry in dated]
    records += [_mage_record(entry, str(entry.get("task_id", ""))) for entry in stats]
    numbered = _numbered({(record.item, record.phase, record.started_us): record for record in records}.values())
    state = next((state for state in STATES if state in refs), "running" if "" in refs else "")
    return ImportedRunRead(
        run=name, system=MAGE, status=state,
        base_commit=Commit(refs["start"]) if "start" in refs else None,
        head=next((Commit(refs[key]) for key in ("merged", "finished", "", "abandoned") if key in refs), None),
        started_us=numbered[0].started_us if numbered else None,
        items=items, records=numbered, damaged=len(files.damaged) - earlier,
    )  # fmt: skip


def _mage_record(record: Json, item: str) -> ImportedRecord:
    """Return a record of a call. That of a `measure` is on each issue which it made, and belongs to none."""
    caller = string(record.get("caller"))
    tokens, before, after = (mapping(record.get(key)) for key in ("tokens", "loc_before", "loc_after"))
    duration_s, diff = count(record.get("duration_s")), mapping(record.get("diff"))
    read, written = count(tokens.get("cache_read")), count(tokens.get("cache_creation"))
    uncached = count(tokens.get("input"))
    return ImportedRecord(
        item="" if caller == MEASURE else sanitize_name(item), phase=caller, attempt=1, agent=CLAUDE,
        status=_status(record.get("status")), started_us=time_us(record.get("started_at")) or 0,
        duration_ms=None if duration_s is None else duration_s * 1000,
        input=None if uncached is None else uncached + (read or 0) + (written or 0), output=count(tokens.get("output")),
        cache_read=read, cache_write=written, reported_nanousd=nanousd(str(record.get("cost_usd"))),
        code_before=count(before.get("production")), code_after=count(after.get("production")),
        tests_before=count(before.get("test")), tests_after=count(after.get("test")),
        files=count(diff.get("files")),
        insertions=count(diff.get("insertions")), deletions=count(diff.get("deletions")),
    )  # fmt: skip


def _git(root: Path, *args: str) -> str:
    """Return what git prints in a folder; empty if it is in no repository, or git does not have it."""
    try:
        result = run_git(args, root, {**safe_environment(os.environ), **NO_USER_CONFIG})
    except RepositoryUnusable:
        return ""
    return "" if result.exit_code else result.stdout.decode("utf-8", "replace")


SYSTEMS: Mapping[str, Callable[[HistoryFiles], Iterator[ImportedRunRead]]] = {
    MAGE: _mage_runs,
    MONOZUKURI: _monozukuri_runs,
}
