"""`mz import`, and what reads the user's own log: in any directory, the same numbers everywhere."""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from mz_cli.app.period import Period, parse_period
from mz_cli.app.user_log import open_imported_log, short_names
from mz_cli.usage.costs import imported_costs, imported_table
from mz_engine.paths import user_data_directory
from mz_recordings.importing.importer import LOCK

from tests.cli.drive import MZ, Mz, on_terminal, spawn
from tests.support.sessionfiles import MODEL, OTHER, SESSION, prompt, request, write

LATE = "2026-03-01T23:30:00.000Z"


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log of our own, seen from a directory that is no repository."""
    monkeypatch.setenv("MZ_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "QWEN_RUNTIME_DIR", "QWEN_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "data"


@pytest.fixture
def sessions(tmp_path: Path) -> Path:
    folder = tmp_path / "home/.claude/projects/-home-dev-app"
    write(folder / f"{SESSION}.jsonl", [prompt(), request(1), request(2, at=LATE)])
    write(folder / f"{SESSION}/subagents/agent-a1.jsonl", [request(3, agent="a1")])
    write(folder / f"{OTHER}.jsonl", [request(1, session=OTHER), request(4, session=OTHER, model="claude-unheard-of")])
    for number, path in enumerate(sorted(folder.rglob("*.jsonl"))):
        os.utime(path, (1_772_000_000 + number, 1_772_000_000 + number))
    return folder


def test_what_agents_did_is_taken_in_once(data: Path, sessions: Path, mz: Mz) -> None:
    first = mz("import", "--json")
    summary = json.loads(first.out)
    assert first.exit == 0
    assert summary["schema"] == "mz.import/1"
    assert summary["log"] == str(data)
    assert (summary["files_read"], summary["new_requests"], summary["already_counted_requests"]) == (3, 4, 1)
    assert summary["unpriced"] == [{"model": "claude-unheard-of", "requests": 1}]
    again = json.loads(mz("import", "--json").out)
    assert (again["files_read"], again["unchanged_files"], again["new_requests"]) == (0, 3, 0)
    assert summary["computed_usd"] == "0.00774"


@pytest.mark.slow
def test_an_import_without_anything_new_loads_no_more_than_it_needs(data: Path, sessions: Path) -> None:
    """Prices take longer to load than such an import takes."""
    script = (
        "import sys; from mz_cli.main import mz\n"
        "mz.main(['import'], standalone_mode=False)\n"
        "print('mz_engine.pricing.data' in sys.modules)"
    )

    def loaded() -> str:
        return subprocess.run([MZ[0], "-c", script], capture_output=True, text=True, check=True).stdout.splitlines()[-1]

    assert loaded() == "True"
    assert loaded() == "False"


CASES = Path(__file__).parents[1] / "cases/transcripts"
KEPT = {
    "home/.claude/projects/-app": "claude-code/works-session-2.1.197.jsonl",
    "home/.codex/sessions/2026/11/21": "codex/resumed-rollout-0.169.0.jsonl",
    "home/.codex/archived_sessions": "codex/resumed-rollout-0.104.0.jsonl",
    "home/.gemini/tmp/app/chats": "gemini/session-0.61.0.jsonl",
    "home/.qwen/projects/-app/chats": "qwen/session-0.15.10.jsonl",
}
"""By the directory in which an agent keeps its sessions: one of them."""
MOVED = {
    "CLAUDE_CONFIG_DIR": "home/.claude", "CODEX_HOME": "home/.codex", "GEMINI_CLI_HOME": "home",
    "QWEN_RUNTIME_DIR": "home/.qwen",
}  # fmt: skip
"""What names these directories in another home."""


@pytest.mark.parametrize("moved", [{}, MOVED, {**MOVED, "QWEN_RUNTIME_DIR": "", "QWEN_HOME": "home/.qwen"}])
def test_sessions_are_found_where_their_agents_keep_them(
    moved: dict[str, str], data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    mz: Mz,
) -> None:  # fmt: skip
    if moved:
        monkeypatch.setenv("HOME", str(tmp_path / "elsewhere"))
    for name, directory in moved.items():
        monkeypatch.setenv(name, str(tmp_path / directory) if directory else "")
    for text, case in KEPT.items():
        (tmp_path / text).mkdir(parents=True)
        (tmp_path / text / Path(case).name).write_bytes((CASES / case).read_bytes())
    summary = json.loads(mz("import", "--json").out)
    assert (summary["files_read"], summary["skipped_paths"]) == (len(KEPT), [])


def test_an_empty_path_is_no_directory(data: Path, sessions: Path, mz: Mz) -> None:
    """As a variable without a value gives one; the current directory is named by a dot."""
    answer = mz("import", "")
    assert answer.exit == 2
    assert "a PATH is empty" in answer.err
    assert not data.exists()


def test_names_of_files_may_be_no_text(data: Path, tmp_path: Path, mz: Mz) -> None:
    folder = tmp_path / "f"
    folder.mkdir()
    for name, content in ((b"\xff.jsonl", request(1)), (b"\xfe.json", b"{}")):
        (folder / os.fsdecode(name)).write_bytes(content)
    result = mz("import", str(folder), "--json")
    assert result.exit == 0
    assert json.loads(result.out)["skipped_paths"] == [str(folder / "\ufffd.json")]
    report = json.loads(mz("audit", "--imported", "--json").out)
    assert [file["path"] for item in report["sessions"] for file in item["files"]] == [str(folder / "\ufffd.jsonl")]
    refused = mz("transcript", str(folder / os.fsdecode(b"\xfe.json")), "--json")
    assert json.loads(refused.err)["code"] == "MZ6030"


@pytest.mark.slow
def test_people_are_told_in_words(data: Path, sessions: Path, tmp_path: Path) -> None:
    shown = on_terminal(tmp_path, "import", env={"MZ_DATA": str(data), "HOME": str(tmp_path / "home")})
    assert "3 files read, 0 unchanged: 2 sessions" in shown
    assert "4 new requests, 1 already counted, 0 corrected: $0.0077 at the prices of their days" in shown
    assert "no price for claude-unheard-of: 1 request not in the total" in shown
    assert "skipped" not in shown


@pytest.mark.slow
def test_sessions_that_tell_too_few_tokens_are_counted_wherever_their_money_is(
    data: Path, tmp_path: Path, mz: Mz
) -> None:
    write(tmp_path / "f/whole.jsonl", [request(1, session=OTHER)])
    (tmp_path / "f/short.jsonl").write_bytes((CASES / "claude-code/works-session-2.1.29.jsonl").read_bytes())
    result = mz("import", str(tmp_path / "f"))
    assert "1 session may report fewer tokens than were used; list them with: mz audit --imported" in result.err
    assert "incomplete_sessions\t1\n" in result.out
    again = json.loads(mz("import", str(tmp_path / "f"), "--json").out)
    assert (again["sessions"], again["incomplete_sessions"]) == (0, 0)
    cost = mz("cost", "--imported", "--by", "session")
    assert "1 of 2 sessions may report fewer tokens than were used: the cost may be more" in cost.err
    document = json.loads(mz("cost", "--imported", "--by", "session", "--json").out)
    assert document["incomplete_sessions"] == 1
    actual = sorted((element["sessions"], element["incomplete_sessions"]) for element in document["groups"])
    assert actual == [(1, 0), (1, 1)]
    audit = mz("audit", "--imported")
    assert "1 of 2 sessions may report fewer tokens than were used, such as claude-code/" in audit.err
    report = json.loads(mz("audit", "--imported", "--json").out)
    assert sorted(entry["incomplete_reasons"] for entry in report["sessions"]) == [[], ["output-open"]]
    (short,) = (item["session"] for item in report["sessions"] if item["incomplete_reasons"])
    shown = on_terminal(tmp_path, "audit", "--imported", short, env={"MZ_DATA": str(data), "COLUMNS": "200"})
    assert "missing      tokens: output tokens of some messages are those at their start" in shown


def test_what_is_passed_over_is_named(data: Path, sessions: Path, mz: Mz) -> None:
    for number in range(7):
        (sessions / f"notes-{number}.md").write_text("just words")
    answer = mz("import")
    names = ", ".join(str(sessions / f"notes-{number}.md") for number in range(5))
    assert f"skipped, unsupported format: {names} and 2 more" in answer.err
    assert answer.exit == 0


def test_requests_without_a_model_are_said_to_be_so(data: Path, tmp_path: Path, mz: Mz) -> None:
    write(tmp_path / "f/a.jsonl", [request(1, model="")])
    assert "unknown model: 1 request not in the total" in mz("import", str(tmp_path / "f")).err


def test_a_log_without_sessions_says_so(data: Path, tmp_path: Path, mz: Mz) -> None:
    (tmp_path / "f").mkdir()
    mz("import", str(tmp_path / "f"))
    answer = mz("cost", "--day")
    assert answer.out.count("\n") == 1
    assert "Nothing imported yet" in answer.err


STREAM = Path(__file__).parents[1] / "cases/transcripts/claude-code/works-stream-2.1.197.jsonl"


def test_what_only_the_end_of_a_stream_tells_is_counted_alike(data: Path, sessions: Path, mz: Mz) -> None:
    summary = json.loads(mz("import", "--json", str(STREAM), str(sessions)).out)
    answer = mz("cost", "--imported", "--by", "model", "--json")
    report = json.loads(answer.out)
    assert summary["reconciled_requests"] > 0
    assert report["total"]["requests"] == summary["new_requests"] + summary["reconciled_requests"]
    money = {group["name"]: group["reported_usd"] for group in report["groups"]}
    assert "(not told)" not in money
    assert [name for name, reported in money.items() if reported] == [MODEL]
    assert any("`reported` covers 1 of 3 sessions" in remark for remark in report["notes"])


@pytest.mark.parametrize(
    ("others", "names"),
    [
        ((), [MODEL]),
        (("claude-sonnet-4-5-20260101",), ["claude-sonnet-4-5", MODEL, "claude-sonnet-4-5-20260101"]),
        (("claude-sonnet-4-6",), [MODEL, "claude-sonnet-4-6"]),
    ],
)
def test_a_model_without_its_date_is_the_only_dated_one(
    data: Path, tmp_path: Path, mz: Mz, others: tuple[str, ...], names: list[str]
) -> None:
    """A result alone names the model as it was asked for; the requests of another session have the dated name."""
    used = {"inputTokens": 100, "outputTokens": 5, "cacheReadInputTokens": 0, "cacheCreationInputTokens": 0}
    result = {"type": "result", "subtype": "success", "num_turns": 1, "session_id": OTHER, "total_cost_usd": 0.01,
              "modelUsage": {"claude-sonnet-4-5": used}}  # fmt: skip
    write(tmp_path / "result.jsonl", [json.dumps(result).encode()])
    write(tmp_path / "log.jsonl", [request(at, model=model) for at, model in enumerate((MODEL, *others))])
    mz("import", "result.jsonl", "log.jsonl")
    report = json.loads(mz("cost", "--imported", "--by", "model", "--json").out)
    assert sorted(group["name"] for group in report["groups"]) == names
    assert sum(group["requests"] for group in report["groups"]) == report["total"]["requests"] == 2 + len(others)


def test_money_of_a_call_to_several_models_is_no_single_ones(data: Path, tmp_path: Path, mz: Mz) -> None:
    session = json.loads(STREAM.read_bytes().splitlines()[0])["session_id"]
    write(tmp_path / "f/a.jsonl", [request(1, session=session, model="claude-haiku-4-5-20251001")])
    mz("import", str(STREAM), str(tmp_path / "f"))
    report = json.loads(mz("cost", "--imported", "--by", "model", "--json").out)
    (full,) = (group for group in report["groups"] if group["reported_usd"])
    assert (full["name"], full["computed_usd"]) == ("(full calls)", None)
    assert not any("but no requests" in remark for remark in report["notes"]), "they stand in other groups"


@pytest.mark.slow
def test_people_get_short_ids_and_no_columns_of_nothing(data: Path, sessions: Path, tmp_path: Path) -> None:
    environment = {"MZ_DATA": str(data), "HOME": str(tmp_path / "home")}
    spawn(tmp_path, "import", **environment)
    by_session = on_terminal(tmp_path, "cost", "--imported", "--by", "session", env=environment)
    assert f"{SESSION[:8]} " in by_session
    assert SESSION not in by_session
    assert "claude-sonnet-4-5 " in by_session
    for absent in ("write 1h", "not reported", "claude-code/"):
        assert absent not in by_session
    assert "models" not in on_terminal(tmp_path, "cost", "--imported", "--by", "model", env=environment)
    audit = on_terminal(tmp_path, "audit", "--imported", env=environment)
    assert f"{SESSION[:8]} " in audit
    assert "session/" not in audit


def test_short_ids_tell_sessions_apart() -> None:
    streams = ["session/a/01234567-89ab-1", "session/a/01234567-89ab-2", "session/b/01234567-9", "session/b/x",
               "session/a/same", "session/b/same", "session/a/12345678-123456789"]  # fmt: skip
    assert short_names(streams) == {
        "session/a/01234567-89ab-1": "01234567-89ab-1", "session/a/01234567-89ab-2": "01234567-89ab-2",
        "session/b/01234567-9": "01234567-9", "session/b/x": "x", "session/a/same": "a/same",
        "session/b/same": "b/same", "session/a/12345678-123456789": "12345678",
    }  # fmt: skip


def test_short_digests_are_not_too_short() -> None:
    actual = short_names([f"session/a/sha256-{digit * 64}" for digit in "12"])
    assert actual == {f"session/a/sha256-{digit * 64}": f"sha256-{digit * 8}" for digit in "12"}


@pytest.mark.slow
def test_events_of_imported_sessions_have_date_and_zone(data: Path, sessions: Path, tmp_path: Path) -> None:
    environment = {"MZ_DATA": str(data), "HOME": str(tmp_path / "home")}
    spawn(tmp_path, "import", **environment)
    lines = on_terminal(tmp_path, "log", "--imported", columns=200, env=environment).splitlines()
    assert lines
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC  session/", line) for line in lines)


@pytest.mark.slow
def test_an_audit_has_the_times_of_requests(data: Path, sessions: Path, tmp_path: Path) -> None:
    environment = {"MZ_DATA": str(data), "HOME": str(tmp_path / "home")}
    spawn(tmp_path, "import", **environment)
    shown = on_terminal(tmp_path, "audit", "--imported", SESSION, env=environment)
    assert "time         2026-03-01 12:00:00Z to 2026-03-01 23:30:00Z" in shown
    assert "computed, nothing reported" in shown


def test_nothing_to_import_is_said(data: Path, mz: Mz) -> None:
    answer = mz("import")
    assert answer.exit == 0
    assert "nothing to import" in answer.err


def test_a_path_that_is_not_there_is_named_and_the_others_are_read(data: Path, sessions: Path, mz: Mz) -> None:
    assert mz("import", "/no/such/place", "/nor/such").exit == 2
    assert not data.exists()
    answer = mz("import", "/no/such/place", str(sessions))
    assert answer.exit == 1
    assert "not read: /no/such/place: No such file or directory" in answer.err
    assert "new_requests\t4" in answer.out


def test_what_cannot_be_read_ends_with_1(data: Path, sessions: Path, mz: Mz) -> None:
    (sessions / "x.jsonl").symlink_to(sessions / "x.jsonl")
    answer = mz("import")
    assert answer.exit == 1
    assert f"not read: {sessions / 'x.jsonl'}: " in answer.err
    (sessions / "notes.txt").write_text("just words")
    answer = mz("import", str(sessions / "notes.txt"))
    assert answer.exit == 1
    assert "notes.txt" in answer.err
    assert "it begins with 'just words'" in answer.err


def test_a_known_place_that_cannot_be_looked_at_is_named(data: Path, sessions: Path, tmp_path: Path, mz: Mz) -> None:
    codex = tmp_path / "home/.codex"
    codex.symlink_to(codex)
    answer = mz("import")
    assert answer.exit == 1
    assert f"not read: {codex / 'sessions'}: " in answer.err
    assert "new_requests\t4" in answer.out
    assert mz("import", str(codex / "sessions/x.jsonl")).exit == 1


def test_one_at_a_time(data: Path, sessions: Path, mz: Mz) -> None:
    data.mkdir()
    with open(data / LOCK, "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        answer = mz("import")
    assert answer.exit == 16
    assert "another process is importing" in answer.err


def test_without_a_log_the_way_to_one_is_named(data: Path, mz: Mz) -> None:
    for args in (("log", "--imported"), ("audit", "--imported"), ("verify", "--imported")):
        answer = mz(*args)
        assert answer.exit == 2
        assert "`mz import`" in answer.err
    assert not data.exists()


def test_the_log_audit_and_check_of_imported_sessions(data: Path, sessions: Path, mz: Mz) -> None:
    mz("import")
    lines = mz("log", "--imported", SESSION[:4]).out.splitlines()
    assert [line.split("\t")[2] for line in lines] == [
        "imported.session-found", "imported.file-read", "imported.priced", "imported.file-read", "imported.priced",
    ]  # fmt: skip
    assert json.loads(mz("log", "--imported", "--json").out.splitlines()[0])["schema"] == "mz.log/1"
    report = json.loads(mz("audit", "--imported", SESSION, "--json").out)
    assert report["intact"] is True
    (session,) = report["sessions"]
    assert (session["requests"], session["subagents"], session["prompts"]) == (3, ["a1"], 1)
    assert session["project"] == "/home/dev/app"
    assert {file["path"] for file in session["files"]} == {
        str(sessions / f"{SESSION}.jsonl"), str(sessions / f"{SESSION}/subagents/agent-a1.jsonl"),
    }  # fmt: skip
    assert len(mz("audit", "--imported").out.splitlines()) == 3
    verified = mz("audit", "--verify", "--imported")
    assert verified.exit == 0
    assert "log intact" in verified.err
    blob = next(path for path in (data / "blobs").rglob("*") if path.is_file())
    blob.unlink()
    assert mz("audit", "--verify", "--imported").exit == 1
    assert mz("audit", "--imported").exit == 1


def test_a_session_is_found_by_the_beginning_of_its_id(data: Path, sessions: Path, mz: Mz) -> None:
    mz("import")
    for name in (SESSION, f"claude-code/{SESSION}", "aaaa", "claude-code/aa"):
        assert mz("log", "--imported", name).out.count("\n") == 5
    answer = mz("log", "--imported", "zzzz")
    assert answer.exit == 2
    assert "no session 'zzzz' was imported" in answer.err
    assert "2 sessions begin with 'claude'" in mz("audit", "--imported", "claude").err
    assert mz("log", "r1", "--imported", "aaaa").exit == 2


@pytest.mark.slow
def test_an_audit_for_people_says_what_is_missing(data: Path, sessions: Path, tmp_path: Path) -> None:
    with open(sessions / f"{OTHER}.jsonl", "ab") as file:
        file.write(b"{broken\n" + request(9)[:50])
    environment = {"MZ_DATA": str(data), "HOME": str(tmp_path / "home")}
    spawn(tmp_path, "import", **environment)
    shown = on_terminal(tmp_path, "audit", "--imported", OTHER, env=environment)
    assert "missing      a price for 1 request" in shown
    assert "missing      1 line that cannot be decoded" in shown
    assert "incomplete line" in shown


# costs ----------------------------------------------------------------------------------------------------------------
def test_days_are_those_of_the_time_zone(data: Path, sessions: Path, mz: Mz) -> None:
    mz("import")
    with open_imported_log() as log:
        berlin = imported_costs(log, "day", zone=ZoneInfo("Europe/Berlin"))
        utc = imported_costs(log, "day", zone=ZoneInfo("UTC"))
    assert [(group.name, group.requests) for group in utc.groups] == [("2026-03-01", 4)]
    assert [(group.name, group.requests) for group in berlin.groups] == [("2026-03-01", 3), ("2026-03-02", 1)]
    assert berlin.total == utc.total


@pytest.mark.parametrize(
    ("by", "names"),
    [
        ("month", ["2026-03"]),
        ("week", ["2026-W09"]),
        ("session", [f"claude-code/{SESSION}", f"claude-code/{OTHER}"]),
        ("project", ["/home/dev/app"]),
        ("agent", ["claude-code"]),
        ("model", ["claude-sonnet-4-5-20250929", "claude-unheard-of"]),
        ("part", ["(main conversation)", "a1"]),
    ],
)
def test_groups_add_up(data: Path, sessions: Path, mz: Mz, by: str, names: list[str]) -> None:
    mz("import")
    with open_imported_log() as log:
        report = imported_costs(log, by, zone=ZoneInfo("UTC"))  # type: ignore[arg-type]  # a parameter is a str
    assert [group.name for group in report.groups] == names
    for field in ("requests", "input_tokens", "output_tokens", "unpriced_requests", "total_tokens"):
        assert sum(getattr(group, field) for group in report.groups) == getattr(report.total, field)
    assert (report.total.computed_nanousd, report.total.unpriced_requests) == (7_740_000, 1)
    assert len(imported_table(report, {}, "").rows) == len(names) + 1


def test_what_has_no_price_is_not_zero(data: Path, sessions: Path, mz: Mz) -> None:
    mz("import")
    with open_imported_log() as log:
        costs = imported_costs(log, "model")
    table = imported_table(costs, {}, "")
    assert [row[-1] for row in table.rows] == ["$0.0077", "unpriced", "$0.0077"]
    assert costs.notes == ("1 request without a price: the cost may be more than `computed` says",)


def test_what_has_no_tokens_is_not_zero_either(data: Path, tmp_path: Path, mz: Mz) -> None:
    """Two sessions without requests: one tells money, the other only a prompt. A third has all."""
    paid = b'{"type":"result","subtype":"success","session_id":"p1","total_cost_usd":0.25,"num_turns":1}\n'
    begun = b'{"type":"system","subtype":"init","session_id":"p1","model":"claude-sonnet-4-5","cwd":"/","tools":[]}\n'
    (tmp_path / "paid.jsonl").write_bytes(begun + paid)
    write(tmp_path / "begun.jsonl", [prompt()])
    write(tmp_path / "whole.jsonl", [request(1, session=OTHER)])
    mz("import", *(str(tmp_path / f"{name}.jsonl") for name in ("paid", "begun", "whole")))
    report = json.loads(mz("cost", "--imported", "--by", "session", "--json").out)
    assert {group["name"]: (group["computed_usd"], group["reported_usd"]) for group in report["groups"]} == {
        "claude-code/p1": (None, "0.25"), f"claude-code/{OTHER}": (report["total"]["computed_usd"], None),
    }  # fmt: skip
    assert report["notes"] == [
        "`reported` covers 1 of 2 sessions: the others report no money; `computed` covers those with requests",
        "1 session with reported money but no requests: the cost may be more than `computed` says",
        "not in these sums: 1 session without requests or money (mz audit --imported)",
    ]
    audit = json.loads(mz("audit", "--imported", "--json").out)
    assert sorted(item["requests"] for item in audit["sessions"] if item["computed_usd"] is None) == [0, 0]
    rows = [line.split("\t") for line in mz("audit", "--imported").out.splitlines()]
    assert sorted(row[-2] for row in rows[1:])[:2] == ["-", "-"]


def test_a_period_is_cut_out(data: Path, sessions: Path, mz: Mz) -> None:
    mz("import")
    with open_imported_log() as log:
        assert (
            imported_costs(log, "day", parse_period("2026-03-01T23:00", None, 0, ZoneInfo("UTC"))).total.requests == 1
        )
        empty = imported_costs(log, "day", Period(0, 1))
    assert empty.groups == ()
    assert empty.total.requests == 0


def test_worktrees_of_runs_count_for_their_repository(data: Path, tmp_path: Path, mz: Mz) -> None:
    write(tmp_path / "f/a.jsonl", [request(1, cwd="/home/dev/app/.mz/worktrees/r1/login")])
    mz("import", str(tmp_path / "f"))
    with open_imported_log() as log:
        costs = imported_costs(log, "project")
    assert [group.name for group in costs.groups] == ["/home/dev/app"]
    assert "driven by mz" in costs.notes[0]


def test_where_the_log_lies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert user_data_directory({"MZ_DATA": str(tmp_path / "x")}) == tmp_path / "x"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    assert user_data_directory({}) == tmp_path / "share/mz"


def test_the_command_shows_them_by_day(data: Path, sessions: Path, mz: Mz) -> None:
    mz("import")
    args = ("cost", "--imported", "--timezone", "UTC", "--json")
    report = json.loads(mz(*args).out)
    assert report["schema"] == "mz.cost-imported/1"
    assert (report["by"], [group["name"] for group in report["groups"]]) == ("day", ["2026-03-01"])
    (group,) = report["groups"]
    assert group["uncached_input_tokens"] == 40
    assert (group["cache_write_5m_tokens"], group["cache_read_tokens"]) == (800, 4000)
    assert group["computed_usd"] == "0.00774"
    assert mz("cost", "--day", "--timezone", "UTC").out.splitlines()[1].startswith("2026-03-01\t")
    assert mz("cost", "--imported", "--by", "part").out.splitlines()[0].startswith("part\tmodels\t")
    assert mz("cost", "--imported", "--since", "2026-03-02", "--timezone", "UTC").out.count("\n") == 1


def test_options_that_make_no_sense_together(data: Path, mz: Mz) -> None:
    for args in (("r1", "--imported"), ("--imported", "--all"), ("--imported", "--by", "phase"), ("--by", "project"),
                  ("--day", "--by", "month"), ("--imported", "--since", "soon")):  # fmt: skip
        assert mz("cost", *args).exit == 2, args
