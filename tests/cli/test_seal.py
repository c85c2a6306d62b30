"""`mz seal` and `mz verify --against`: what the hash chain alone cannot show, a seal does."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from mz_events.catalog.run import RunFinished

from tests.cli.damage import Rows, make_anew, tamper
from tests.cli.drive import Mz
from tests.cli.stored_run import RUN, StoredRun
from tests.support.gitrepo import GitRepo

LOGIN = f"run/{RUN}/login"
OTHER = "20260302-080000-ffff"


@pytest.fixture
def log(stored_run: StoredRun, monkeypatch: pytest.MonkeyPatch) -> StoredRun:
    """A log in a repository of a person without settings."""
    stored_run.close()
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    GitRepo(stored_run.home).commit({"README.md": "x"})
    return stored_run


@pytest.fixture
def seal(log: StoredRun, mz: Mz) -> Path:
    """Of the complete log, not signed."""
    assert mz("seal", "--out", "seal.txt").exit == 0
    return log.home / "seal.txt"


def findings(mz: Mz, *args: str) -> list[str]:
    """`KIND EVENT_REF MESSAGE` of each finding of a verification."""
    answer = mz("verify", *args, "--json")
    report: Any = msgspec.json.decode(answer.out)
    assert answer.exit == (0 if report["intact"] else 1)
    return [f"{finding['kind']} {finding['event_ref']} {finding['message']}" for finding in report["findings"]]


def make_key(folder: Path, name: str) -> Path:
    command = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(folder / name))
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    return folder / name


def signers(folder: Path, *keys: Path) -> str:
    file = folder / "signers"
    file.write_text("".join(f"{key.name} {key.with_suffix('.pub').read_text()}" for key in keys))
    return str(file)


def test_a_log_that_grew_fits(log: StoredRun, mz: Mz, seal: Path) -> None:
    newer = StoredRun(log.home, run=OTHER).begin("login")
    newer.to_run(*(recorded.event for recorded in log.recorded[-1:]))
    newer.close()
    assert findings(mz, "--against", str(seal)) == []
    shown = mz("audit", "--verify", "--against", str(seal))
    assert (shown.exit, "not signed: it proves nothing unless" in shown.err) == (0, True)


def test_a_seal_says_what_it_is_worth(log: StoredRun, mz: Mz) -> None:
    printed = mz("seal", RUN)
    assert printed.out.startswith("mz-seal 1\nrepository ")
    assert f"\nrun {RUN}\nstream {LOGIN.rpartition('/')[0]} " in printed.out
    assert "not signed: it proves nothing unless you keep a copy" in printed.err


def changed(rows: Rows) -> Rows:
    return [{**row, "payload": row["payload"].replace(b"prd", b"prx")} for row in rows]


FORGERIES: dict[str, tuple[Callable[[Rows], Rows], str]] = {
    "a dropped stream": (
        lambda rows: [row for row in rows if row["stream"] != LOGIN], f"{LOGIN}@43 seal SEAL: the stream is missing",
    ),
    "a cut tail": (
        lambda rows: [row for row in rows if (row["stream"], row["version"]) != (LOGIN, 43)],
        f"{LOGIN}@43 seal SEAL: the stream was cut: it ends at version 42",
    ),
    "a chain made anew": (changed, f"{LOGIN}@43 seal SEAL: the chain up to this event was made anew"),
    "an event left out": (
        lambda rows: [row for row in rows if (row["stream"], row["version"]) != (LOGIN, 20)],
        f"{LOGIN}@43 seal SEAL: the stream was cut",
    ),
    "two events swapped": (
        lambda rows: [*rows[:9], rows[10], rows[9], *rows[11:]],
        f"{LOGIN}@43 seal SEAL: the chain up to this event was made anew",
    ),
}  # fmt: skip


@pytest.mark.parametrize("forgery", FORGERIES)
def test_what_no_chain_shows(log: StoredRun, mz: Mz, seal: Path, forgery: str) -> None:
    change, expected = FORGERIES[forgery]
    make_anew(log.home, change)
    assert [finding for finding in findings(mz) if not finding.startswith("blob")] == []
    name = mz("seal").out  # The forged log has a seal of its own.
    assert name != seal.read_text()
    root = seal.read_text().rpartition("root ")[2][:12]
    assert f"seal {expected.replace('SEAL', root)}" in " ".join(findings(mz, "--against", str(seal)))


def test_an_untouched_log_made_anew_is_the_same(log: StoredRun, mz: Mz, seal: Path) -> None:
    """The forger of these tests makes what mz makes, or they would show nothing."""
    make_anew(log.home)
    assert findings(mz, "--against", str(seal)) == []


def test_a_changed_event_breaks_the_chain_below_the_seal(log: StoredRun, mz: Mz, seal: Path) -> None:
    """Its link is still the sealed one, so both checks are needed."""
    tamper(log.home, "UPDATE event SET payload = replace(CAST(payload AS TEXT), 'prd', 'prx') WHERE position = 8")
    (finding,) = findings(mz, "--against", str(seal))
    assert finding.startswith(f"chain {LOGIN}@2 ")
    tamper(log.home, f"UPDATE event SET chain = zeroblob(32) WHERE position = (SELECT max(position) FROM event WHERE "
                     f"stream_id = (SELECT id FROM stream WHERE name = '{LOGIN}'))")  # fmt: skip
    kinds = [text.partition(" ")[0] for text in findings(mz, "--against", str(seal))]
    assert {*kinds} == {"chain", "seal"}


def test_an_edited_seal(log: StoredRun, mz: Mz, seal: Path) -> None:
    seal.write_text(seal.read_text().replace(f"stream {LOGIN} 43", f"stream {LOGIN} 42"))
    answer = mz("verify", "--against", str(seal))
    assert (answer.exit, answer.out) == (1, "")
    assert f"error[MZ5013] {seal}: the seal was edited: its root is not the digest of its lines" in answer.err


def test_a_seal_of_another_run(log: StoredRun, mz: Mz) -> None:
    newer = StoredRun(log.home, run=OTHER).begin("login")
    newer.close()
    assert mz("seal", OTHER, "--out", "other.txt").exit == 0
    assert findings(mz, "--against", "other.txt") == []
    (finding,) = findings(mz, RUN, "--against", "other.txt")
    assert finding.endswith(f"it is of run {OTHER}, not of {RUN}")


def test_signatures(log: StoredRun, mz: Mz, tmp_path_factory: pytest.TempPathFactory) -> None:
    keys = tmp_path_factory.mktemp("keys")
    own, other = make_key(keys, "ada"), make_key(keys, "mallory")
    assert "signed with" in mz("seal", "--sign", str(own), "--out", "seal.txt").err
    trusted = signers(keys, own)
    assert findings(mz, "--against", "seal.txt", "--signers", trusted) == []
    assert "signed by ada SHA256:" in mz("verify", "--against", "seal.txt", "--signers", trusted).err
    assert "signed by a key that no allowed signer has: SHA256:" in mz("verify", "--against", "seal.txt").err
    # Another log, sealed by whoever made it: with their own key, without a key, or under the old signature.
    make_anew(log.home, changed)
    mz("seal", "--sign", str(other), "--out", "wrong-key.txt")
    mz("seal", "--out", "no-key.txt")
    signature = Path("seal.txt").read_text().partition("-----BEGIN")[2]
    Path("old-signature.txt").write_text(f"{Path('no-key.txt').read_text()}-----BEGIN{signature}")
    for name, message in (
        ("wrong-key", "no allowed signer has"), ("no-key", "not signed"), ("old-signature", "not of this text")
    ):  # fmt: skip
        (finding,) = findings(mz, "--against", f"{name}.txt", "--signers", trusted)
        assert message in finding


def test_the_key_of_the_settings(log: StoredRun, mz: Mz, tmp_path_factory: pytest.TempPathFactory) -> None:
    keys = tmp_path_factory.mktemp("keys")
    own, other = make_key(keys, "ada"), make_key(keys, "mallory")
    repo = GitRepo(log.home)
    repo.git("config", "user.signingKey", str(own))
    assert mz("seal", "--out", "unsigned.txt").exit == 0
    repo.git("config", "gpg.format", "ssh")
    assert mz("seal", "--out", "git.txt").exit == 0
    (log.home / "mz.yaml").write_text(f"seal_key: {other}\n")
    assert mz("seal", "--out", "settings.txt").exit == 0
    trusted = signers(keys, own)
    results = {
        name: findings(mz, "--against", f"{name}.txt", "--signers", trusted) for name in ("unsigned", "git", "settings")
    }
    assert {name: bool(result) for name, result in results.items()} == {
        "unsigned": True,
        "git": False,
        "settings": True,
    }


def test_commits_and_roots(log: StoredRun, mz: Mz, seal: Path) -> None:
    """A pull request names a root; its seal is in a note."""
    repo, text = GitRepo(log.home), seal.read_text()
    commit = repo.head()
    root = text.rpartition("root ")[2].strip()
    (log.home / "body.md").write_text(f"What was done.\n\nMz-Seal: {root}\n")
    squashed = repo.commit({"a": "a"}, f"Squashed\n\nMz-Seal: {root}")
    missing = mz("verify", "--against", "body.md")
    assert (missing.exit, f"no git note has the seal with the root {root}" in missing.err) == (1, True)
    repo.git("notes", "--ref=refs/notes/mz-seal", "add", "-F", str(seal), commit)
    for source in ("body.md", root, commit, squashed[:12], "main"):
        assert findings(mz, "--against", source) == []
    make_anew(log.home, changed)
    for source in ("body.md", root, commit, squashed[:12], "main"):
        assert "made anew" in findings(mz, "--against", source)[0]


def test_no_note_and_no_setting_hides_the_others(log: StoredRun, mz: Mz, seal: Path) -> None:
    repo = GitRepo(log.home)
    head, root = repo.head(), seal.read_text().rpartition("root ")[2].strip()
    seal.write_bytes(b"\0\n" + seal.read_bytes())
    repo.git("notes", "--ref=refs/notes/mz-seal", "add", "-F", str(seal), head)
    other = repo.commit({"b": "b"})
    repo.git("notes", "--ref=refs/notes/mz-seal", "add", "-m", "mz-seal 2 future", other)
    for name in ("lineNumber", "column", "fullName"):
        repo.git("config", f"grep.{name}", "true")
    assert findings(mz, "--against", root) == []
    answer = mz("audit", "--json")
    assert msgspec.json.decode(answer.out)["record"]["findings"] == []
    assert f"the git note of {other[:12]} was left out: the seal was edited or cut" in answer.err


def test_what_is_no_seal(log: StoredRun, mz: Mz) -> None:
    for source in ("README.md", "main", "nothing-like-it"):
        answer = mz("verify", "--against", source)
        assert (answer.exit, "MZ5013" in answer.err) == (1, True)
    answer = mz("seal", "--sign", "no-such-key")
    assert (answer.exit, answer.out, "MZ5014" in answer.err) == (11, "", True)
    assert mz("audit", "--against", "README.md").exit == 2


def test_the_audit_finds_notes(log: StoredRun, mz: Mz) -> None:
    """The stored run delivered a commit that is none here, so its note is at one that is."""
    repo = GitRepo(log.home)
    assert "seal\tnone in git notes; `mz seal" in mz("audit").out
    head = repo.head()
    make_anew(
        log.home, lambda rows: [{**row, "payload": row["payload"].replace(b"c" * 40, head.encode())} for row in rows]
    )
    newer = StoredRun(log.home, run=OTHER).begin("login")
    newer.close()
    for run in (RUN, OTHER):
        assert mz("seal", run, "--out", "seal.txt").exit == 0
        repo.git("notes", "--ref=refs/notes/mz-seal", "append", "-F", "seal.txt", head)
    assert "63 events, not signed" in mz("audit", RUN).out
    grown = StoredRun(log.home)
    grown.to_run(RunFinished())
    grown.close()
    assert mz("seal", RUN, "--out", "newer.txt").exit == 0
    older = repo.git("notes", "--ref=refs/notes/mz-seal", "show", head)
    (log.home / "both.txt").write_text(f"{(log.home / 'newer.txt').read_text()}\n{older}\n")
    repo.git("notes", "--ref=refs/notes/mz-seal", "add", "-f", "-F", "both.txt", head)
    assert "64 events, not signed" in mz("audit", RUN).out, "the newest, wherever it is"
    make_anew(log.home, changed)
    report = msgspec.json.decode(mz("audit", RUN, "--json").out)
    assert (report["verdict"], report["record"]["findings"][0]["kind"]) == ("no", "seal")
