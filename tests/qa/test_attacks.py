"""No attack of a hostile agent does harm where there are mount namespaces, and what does harm is seen."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from mz_engine.processes import guard, supervise
from mz_qa.attacks import Attack, attacks, harm_of, main

from tests.support.processes import levels

HARMFUL_BELOW = ("config", "cloud-login", "commit-in-the-checkout", "change", "blobs", "gitconfig", "signal")
"""Names of attacks that succeed where nothing is mounted, and that concern nothing but what is made for them."""
IN_THE_AGENTS_FOLDERS = ("home/delete", "reading/everything")
"""What does harm there where they are the user's."""


HARMFUL_AT: dict[str, set[str]] = {
    guard.USER_NAMESPACE: set(),
    guard.BUBBLEWRAP: {"sockets/abstract", *IN_THE_AGENTS_FOLDERS},
    guard.LANDLOCK: {"checkout/mode", "sockets/temporary", "sockets/runtime", *IN_THE_AGENTS_FOLDERS},
}


def harmful_at(level: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return the attacks that do harm there: of each third, and of those that may; but for those on an agent's own
    folders alone."""
    monkeypatch.setattr(supervise, "best_level", lambda: level)
    others = {f"{attack.target}/{attack.name}": attack for attack in attacks() if attack.target != "agent"}
    tried = {*list(others)[::3], *HARMFUL_AT[level]}
    return {name for name in tried if harm_of(others[name], folder)}


@pytest.mark.slow
@pytest.mark.skipif(not supervise.can_hide(), reason="no mount namespaces here")
def test_no_attack_does_harm(tmp_path: Path) -> None:
    harm = {f"{attack.target}/{attack.name}": harm_of(attack, tmp_path) for attack in attacks()}
    assert len(harm) >= 99
    assert {name: changed for name, changed in harm.items() if changed} == {}


@pytest.mark.slow
@pytest.mark.skipif(guard.USER_NAMESPACE not in levels(), reason="no user namespaces here")
def test_namespaces_of_a_user_keep_what_those_of_root_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert harmful_at(guard.USER_NAMESPACE, tmp_path, monkeypatch) == HARMFUL_AT[guard.USER_NAMESPACE]


@pytest.mark.slow
@pytest.mark.skipif(guard.BUBBLEWRAP not in levels(), reason="no bubblewrap here")
def test_bubblewrap_keeps_all_but_abstract_sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    harmful = harmful_at(guard.BUBBLEWRAP, tmp_path, monkeypatch)
    assert harmful <= HARMFUL_AT[guard.BUBBLEWRAP], "newer ones keep those too"


@pytest.mark.slow
@pytest.mark.skipif(guard.LANDLOCK not in levels(), reason="no Landlock here")
def test_landlock_keeps_files_but_not_modes_and_sockets(on_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert harmful_at(guard.LANDLOCK, on_disk, monkeypatch) == HARMFUL_AT[guard.LANDLOCK]


def test_the_command_tries_them_at_a_level_that_holds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Below those it refuses, as does the machine's own if it is one: what it tries would be done."""
    tried = list(attacks())[:2]
    monkeypatch.setattr("mz_qa.attacks.attacks", lambda: iter(tried))
    for level in (guard.SUBREAPER, guard.MARKER, "none"):
        monkeypatch.setattr(supervise, "best_level", lambda level=level: level)
        for arguments in ([], ["--level", level]):
            with pytest.raises(SystemExit, match="2"):
                main(arguments)
            assert f"at the level {level} attacks would harm this machine" in capsys.readouterr().err
    for level in {*levels()} & {guard.USER_NAMESPACE, guard.LANDLOCK}:
        assert main(["--level", level]) == 0
        assert capsys.readouterr().out.endswith(f"level {level}, user {os.geteuid()}: 2 attacks, 0 did harm\n")


def test_an_attack_that_cannot_begin_proves_nothing(tmp_path: Path) -> None:
    assert harm_of(Attack("system", "too-long", "#" * 1_000_000), tmp_path) == ["did not begin"]


@pytest.mark.slow
@pytest.mark.parametrize("name", HARMFUL_BELOW)
def test_without_mounts_harm_is_done_and_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(supervise, "best_level", lambda: guard.SUBREAPER)
    attack = next(attack for attack in attacks() if attack.name == name)
    assert isinstance(attack, Attack)
    assert harm_of(attack, tmp_path)
