"""Installed skills: from a folder or a git repository, with a lock; nothing that does harm or gets lost."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from mz_engine.errors.diagnostics import MzError
from mz_engine.setup.skills import install_skills, read_lock, restore_skills, skill_states, uninstall_skill

SKILL = "---\nname: {name}\ndescription: Careful work.\nversion: '1'\n---\nBe careful.\n"


def write(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    for name in ("careful", "quick"):
        write(folder, f"skills/{name}/SKILL.md", SKILL.format(name=name))
    write(folder, "skills/careful/more/table.md", "| a |\n")
    write(folder, "README.md", "no skill\n")
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


def git(folder: Path, *args: str) -> str:
    command = ("git", "-c", "user.name=a", "-c", "user.email=a@example.org", *args)
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def commit(folder: Path) -> str:
    if not (folder / ".git").exists():
        git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "skills")
    return git(folder, "rev-parse", "HEAD")


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(MzError) as raised:
        call()
    return f"{raised.value.code} {raised.value.message}"


def test_a_folder_is_copied_and_locked(root: Path, source: Path) -> None:
    entries = install_skills(root, str(source), ("careful",), os.environ)
    assert (root / "skills" / "careful" / "more" / "table.md").read_text() == "| a |\n"
    assert not (root / "skills" / "quick").exists()
    assert read_lock(root).skills == entries
    assert (entries["careful"].source, entries["careful"].version) == (str(source), "1")
    assert [path.name for path in (root / "skills").iterdir()] == ["careful"]


def test_every_state_has_a_name(root: Path, source: Path) -> None:
    install_skills(root, str(source), (), os.environ)
    assert skill_states(root, read_lock(root)) == {"careful": "current", "quick": "current"}
    write(root, "skills/own/SKILL.md", SKILL.format(name="own"))
    write(root, "skills/careful/extra.md", "x")
    (root / "skills" / "quick" / "SKILL.md").unlink()
    (root / "skills" / "quick").rmdir()
    assert skill_states(root, read_lock(root)) == {"careful": "drifted", "own": "foreign", "quick": "missing"}


def test_what_would_be_lost_is_refused(root: Path, source: Path) -> None:
    write(root, "skills/careful/SKILL.md", "mine")
    text = refused(lambda: install_skills(root, str(source), (), os.environ))
    assert text == "MZ3029 skills/careful is not installed by mz"
    assert not (root / "skills" / "quick").exists(), "all or nothing"
    install_skills(root, str(source), ("quick",), os.environ)
    write(root, "skills/quick/SKILL.md", SKILL.format(name="quick") + "more\n")
    assert refused(lambda: uninstall_skill(root, "quick")) == "MZ3029 skills/quick was changed since it was installed"
    assert refused(lambda: restore_skills(root, os.environ)).startswith("MZ3029 the skill `quick` was changed")


def test_an_unchanged_copy_is_updated_and_removed(root: Path, source: Path) -> None:
    install_skills(root, str(source), ("quick",), os.environ)
    write(source, "skills/quick/SKILL.md", SKILL.format(name="quick") + "More.\n")
    install_skills(root, str(source), ("quick",), os.environ)
    assert (root / "skills" / "quick" / "SKILL.md").read_text().endswith("More.\n")
    uninstall_skill(root, "quick")
    assert (read_lock(root).skills, list((root / "skills").iterdir())) == ({}, [])
    assert refused(lambda: uninstall_skill(root, "quick")).startswith("MZ3022")


def test_a_repository_is_read_at_a_commit_and_restored_from_there(root: Path, source: Path) -> None:
    first = commit(source)
    write(source, "skills/careful/SKILL.md", SKILL.format(name="careful") + "Later.\n")
    later, url = commit(source), f"file://{source}"
    assert install_skills(root, f"{url}#{first}", ("careful",), os.environ)["careful"].commit == first
    (root / "skills" / "careful").rename(root / "away")
    assert restore_skills(root, os.environ) == ("careful",)
    assert "Later" not in (root / "skills" / "careful" / "SKILL.md").read_text()
    assert install_skills(root, url, (), os.environ)["quick"].commit == later
    assert refused(lambda: install_skills(root, f"{url}#nothing", (), os.environ)).startswith("MZ1003")


def test_a_locked_skill_that_the_source_has_otherwise_is_refused(root: Path, source: Path) -> None:
    install_skills(root, str(source), ("quick",), os.environ)
    (root / "skills" / "quick").rename(root / "away")
    write(source, "skills/quick/SKILL.md", SKILL.format(name="quick") + "Other.\n")
    assert refused(lambda: restore_skills(root, os.environ)).endswith("has another `quick` than skills.lock")


@pytest.mark.parametrize("in_git", [False, True])
@pytest.mark.parametrize("target", ["/etc/passwd", "../../README.md"])
def test_links_are_refused(root: Path, source: Path, target: str, in_git: bool) -> None:
    (source / "skills" / "careful" / "link.md").symlink_to(target)
    if in_git:
        commit(source)
    address = f"file://{source}" if in_git else str(source)
    assert refused(lambda: install_skills(root, address, (), os.environ)).startswith("MZ3028")
    assert not (root / "skills").exists()


def test_a_folder_that_is_a_link_is_refused(root: Path, source: Path) -> None:
    (source / "skills" / "linked").symlink_to(source / "skills" / "careful")
    assert "linked is a link" in refused(lambda: install_skills(root, str(source), (), os.environ))
    (source / "skills" / "linked").unlink()
    (root / "skills").symlink_to(source)
    assert "skills is a link" in refused(lambda: install_skills(root, str(source), ("quick",), os.environ))


@pytest.mark.parametrize("link", ["skills", "skills/quick"])
def test_nothing_is_written_or_removed_behind_a_link(root: Path, source: Path, tmp_path: Path, link: str) -> None:
    install_skills(root, str(source), ("quick",), os.environ)
    outside = tmp_path / "outside"
    (root / link).rename(outside)
    (root / link).symlink_to(outside)
    calls: tuple[Callable[[], object], ...] = (
        lambda: install_skills(root, str(source), ("quick",), os.environ),
        lambda: restore_skills(root, os.environ),
        lambda: uninstall_skill(root, "quick"),
        lambda: skill_states(root, read_lock(root)),
    )
    assert all(refused(call).endswith(f"{link} is a link") for call in calls)
    assert [*outside.rglob("SKILL.md")], "nothing was removed"
    shutil.rmtree(outside)
    outside.mkdir()
    assert refused(lambda: restore_skills(root, os.environ)).endswith(f"{link} is a link")
    assert not [*outside.iterdir()], "nothing was written"


@pytest.mark.parametrize(
    "url", ["https://x:TOKEN@localhost/skills.git", "HTTP://TOKEN@localhost/skills#v2", "ssh://x:TOKEN@localhost/a.git"]
)
def test_a_url_with_a_password_is_refused_without_printing_it(root: Path, url: str) -> None:
    with pytest.raises(MzError) as raised:
        install_skills(root, url, (), os.environ)
    assert raised.value.code == "MZ1003"
    assert "credential helper" in (raised.value.hint or "")
    assert "TOKEN" not in f"{raised.value} {raised.value.message} {raised.value.hint}"
    assert not (root / "skills.lock").exists()
    write(root, "skills.lock", f'version: 1\nskills:\n  a: {{"source": "{url}", "commit": "1", "sha256": "0"}}\n')
    assert "TOKEN" not in refused(lambda: restore_skills(root, os.environ))


def test_the_repository_of_a_source_folder_is_not_installed(root: Path, tmp_path: Path) -> None:
    source = tmp_path / "careful"
    write(source, "SKILL.md", SKILL.format(name="careful"))
    commit(source)
    write(source, "module/.git", "gitdir: elsewhere\n")
    write(source, "module/table.md", "| a |\n")
    install_skills(root, str(source), (), os.environ)
    copied = root / "skills" / "careful"
    assert sorted(path.name for path in copied.rglob("*") if path.is_file()) == ["SKILL.md", "table.md"]
    git(copied, "init", "--quiet")
    assert refused(lambda: uninstall_skill(root, "careful")).startswith("MZ3029"), "a repository here is not lost"


def test_a_folder_is_locked_relative_to_the_root(root: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "below").mkdir()
    monkeypatch.chdir(root / "below")
    entries = install_skills(root, "../../source", ("quick",), os.environ)
    assert entries["quick"].source == "../source"
    shutil.rmtree(root / "skills")
    assert restore_skills(root, os.environ) == ("quick",)


def test_an_install_that_ended_before_its_lock_can_be_repeated(root: Path, source: Path) -> None:
    install_skills(root, str(source), (), os.environ)
    (root / "skills.lock").unlink()
    assert install_skills(root, str(source), (), os.environ) == read_lock(root).skills


def test_a_skill_is_installed_beside_one_that_is_refused(root: Path, source: Path) -> None:
    write(source, "skills/broken/SKILL.md", "no front matter\n")
    assert refused(lambda: install_skills(root, str(source), (), os.environ)).startswith("MZ")
    assert refused(lambda: install_skills(root, str(source), ("broken",), os.environ)).startswith("MZ")
    assert [*install_skills(root, str(source), ("quick",), os.environ)] == ["quick"]


def test_nothing_of_a_repository_is_executed(root: Path, source: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    write(source, ".gitattributes", "* filter=evil\n")
    write(source, "skills/careful/setup.sh", f"touch {trace}\n")
    (source / "skills" / "careful" / "setup.sh").chmod(0o755)
    commit(source)
    for hook in ("post-checkout", "post-merge", "reference-transaction"):
        write(source, f".git/hooks/{hook}", f"#!/bin/sh\ntouch {trace}\n")
        (source / ".git" / "hooks" / hook).chmod(0o755)
    git(source, "update-index", "--add", "--cacheinfo", f"160000,{'a' * 40},skills/careful/module")
    git(source, "commit", "--quiet", "--message", "a submodule", "--no-verify")
    trace.unlink(missing_ok=True)
    write(tmp_path, "home/.gitconfig", f'[filter "evil"]\n\tsmudge = "touch {trace}; cat"\n')
    install_skills(root, f"file://{source}", (), {**os.environ, "HOME": str(tmp_path / "home")})
    assert not trace.exists()
    assert not (root / "skills" / "careful" / "module").exists()
    assert not os.access(root / "skills" / "careful" / "setup.sh", os.X_OK)


@pytest.mark.parametrize(
    "text",
    [
        'version: 1\nskills:\n  ../../x: {"source": "a", "sha256": "0"}\n',
        "version: 2\n",
        "version: 1\nskills: {a: {source: b}}\n",
    ],
)
def test_a_lock_from_outside_is_checked(root: Path, text: str) -> None:
    write(root, "skills.lock", text)
    assert refused(lambda: read_lock(root)).startswith("MZ20")


@pytest.mark.parametrize("source_name", ["nowhere", "README.md"])
def test_a_source_without_skills_is_refused(root: Path, source: Path, source_name: str) -> None:
    assert refused(lambda: install_skills(root, str(source / source_name), (), os.environ)).startswith("MZ1003")
    (source / "empty").mkdir()
    assert refused(lambda: install_skills(root, str(source / "empty"), (), os.environ)).startswith("MZ3028")
    assert refused(lambda: install_skills(root, str(source), ("nothing",), os.environ)).startswith("MZ3022")
