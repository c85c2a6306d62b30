"""`mz skills`: what there is, and what became of what was installed."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tests.cli.drive import Mz, decoded

SKILL = "---\nname: careful\ndescription: Careful work.\nversion: '1'\n---\nBe careful.\n"


def give(folder: Path) -> Path:
    (folder / "careful").mkdir(parents=True)
    (folder / "careful" / "SKILL.md").write_text(SKILL)
    return folder


def test_a_skill_is_installed_listed_and_removed(home: Path, tmp_path: Path, mz: Mz) -> None:
    source = give(tmp_path / "shared")
    assert decoded(mz("skills", "install", str(source), "--json"))["skills"] == ["careful"]
    listed = {skill["name"]: skill for skill in decoded(mz("skills", "list", "--json"))["skills"]}
    assert (listed["careful"]["file"], listed["test-first"]["file"]) == ("skills/careful/SKILL.md", None)
    assert f"careful\tcurrent\t{source}\t-\t1" in mz("skills", "status").out
    assert mz("skills", "status", "--locked").exit == 0
    assert mz("skills", "uninstall", "careful").out == "removed skills/careful\n"
    assert mz("skills", "status").out.count("careful") == 0


def test_locked_refuses_drift(home: Path, tmp_path: Path, mz: Mz) -> None:
    mz("skills", "install", str(give(tmp_path / "shared")))
    (home / "skills" / "careful" / "SKILL.md").write_text(SKILL + "More.\n")
    result = mz("skills", "status", "--locked", "--json")
    assert (result.exit, msgspec.json.decode(result.out)["skills"][0]["state"]) == (1, "drifted")
    refused = mz("skills", "install", "--locked")
    assert (refused.exit, "MZ3029" in refused.err) == (1, True)
    assert mz("skills", "install").exit == 2


def test_a_skill_with_errors_is_listed_with_its_place(home: Path, mz: Mz) -> None:
    (give(home / "skills") / "careful" / "SKILL.md").write_text("Be careful.\n")
    result = mz("skills", "list")
    assert "skills/careful/SKILL.md:1:1" in result.err
