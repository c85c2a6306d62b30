"""Commands `mz skills list`, `install`, `uninstall` and `status`."""

from __future__ import annotations

import os
from pathlib import Path

import click
from mz_engine.cards.skills import load_skills
from mz_engine.errors.diagnostics import Exit, format_diagnostic
from mz_engine.setup.skills import (
    LockedSkill,
    SkillState,
    install_skills,
    read_lock,
    restore_skills,
    skill_states,
    uninstall_skill,
)

from mz_cli.app.help import command_family, format_options
from mz_cli.project.pipelines import BUILT_IN, project_root
from mz_cli.terminal.json import Shape, shape_of
from mz_cli.terminal.table import Table, columns, print_output

FOREIGN = LockedSkill(source="-", sha256="")


class SkillListed(Shape, frozen=True, kw_only=True):
    """One skill that a pipeline may name."""

    name: str
    file: str | None
    """Relative to the repository; null: built in."""
    version: str | None
    description: str | None
    """Null if the skill has errors."""
    errors: int


class SkillList(Shape, frozen=True, kw_only=True):
    """`mz skills list --json`."""

    skills: tuple[SkillListed, ...]


class SkillStatus(Shape, frozen=True, kw_only=True):
    """One skill in the folder `skills`, or in `skills.lock`."""

    name: str
    state: SkillState
    locked: LockedSkill | None
    """As installed; null: foreign."""


class SkillsStatus(Shape, frozen=True, kw_only=True):
    """`mz skills status --json`; with `--locked` the exit code is 1 unless all are current."""

    skills: tuple[SkillStatus, ...]


class ChangedSkills(Shape, frozen=True, kw_only=True):
    """`mz skills install --json`, `mz skills uninstall --json`."""

    skills: tuple[str, ...]
    """Names of those that were copied or removed."""


@command_family(
    "skills",
    examples=(
        ("mz skills list", "the skills that a pipeline can name"),
        ("mz skills install https://example.org/skills.git", "copy those of a git repository"),
    ),
    next_command="name a skill in a pipeline: `agent: {skills: [NAME]}`.",
)
def skills() -> None:
    """List, install and check skills.

    A skill is a file skills/NAME/SKILL.md: advice for a kind of work, which calls of a phase are given as text. Skills
    of the repository take precedence over the built-in ones. mz never executes anything of a skill.
    """


@skills.command(
    "list",
    examples=(("mz skills list", "all skills, with what they are for"),),
    next_command="`mz skills status` compares installed ones with skills.lock.",
)
@format_options("Print one object with the schema mz.skills-list/1.")
def list_(as_json: bool) -> None:
    """List the skills of this repository and the built-in ones."""
    files = load_skills(project_root(Path.cwd())).values()
    listed = tuple(
        shape_of(SkillListed, file, file.skill, file=None if file.built_in else file.file, errors=len(file.diagnostics))
        for file in files
    )
    rows = tuple(
        (skill.name, skill.file or BUILT_IN, skill.version or "-", str(skill.errors), skill.description or "-")
        for skill in listed
    )
    heads = columns("skill", "file", "version", ">errors", "~description")
    notes = (format_diagnostic(diagnostic) for file in files for diagnostic in file.diagnostics)
    table = Table(columns=heads, rows=rows, empty="No skills.")
    print_output(as_json, "skills-list", SkillList(skills=listed), table, notes)


@skills.command(
    "install",
    examples=(
        ("mz skills install ../shared/skills", "all skills of a folder"),
        ("mz skills install https://example.org/skills.git#v2 --skill test-first", "one, at a commit, branch or tag"),
        ("mz skills install --locked", "copy missing ones again, exactly as skills.lock says"),
    ),
    next_command="read the skills, then commit them with skills.lock.",
)
@click.argument("source", required=False)
@click.option("--skill", "names", metavar="NAME", multiple=True, help="Only this skill; repeatable.")
@click.option("--locked", is_flag=True, help="Copy missing skills of skills.lock; refuse any that differ.")
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.skills-install/1.")
def install(source: str | None, names: tuple[str, ...], locked: bool, as_json: bool) -> None:
    """Copy skills from SOURCE, a folder or the URL of a git repository, to skills/.

    skills.lock records source, commit, version and a digest. Refuses links and whatever leads out of a skill's folder,
    and never replaces a skill that was changed or that mz has not installed.
    """
    if locked == (source is not None) or (locked and names):
        raise click.UsageError("name a SOURCE, or give --locked alone")
    root = project_root(Path.cwd())
    if source is None:
        copied = restore_skills(root, os.environ)
    else:
        copied = tuple(install_skills(root, source, names, os.environ))
    lines = (f"installed skills/{name}" for name in copied)
    notes = [] if copied else ["nothing to install"]
    print_output(as_json, "skills-install", ChangedSkills(skills=copied), lines, notes)


@skills.command(
    "uninstall",
    examples=(("mz skills uninstall test-first", "remove the copy and its entry of skills.lock"),),
    next_command="`mz pipelines lint` shows pipelines that still name it.",
)
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print one object with the schema mz.skills-uninstall/1.")
def uninstall(name: str, as_json: bool) -> None:
    """Remove an installed skill. Refuses one that was changed."""
    uninstall_skill(project_root(Path.cwd()), name)
    print_output(as_json, "skills-uninstall", ChangedSkills(skills=(name,)), (f"removed skills/{name}",))


@skills.command(
    "status",
    examples=(
        ("mz skills status", "what became of installed skills"),
        ("mz skills status --locked", "for CI: fail unless all are as installed"),
    ),
    next_command="`mz skills install --locked` copies missing ones again.",
)
@click.option("--locked", is_flag=True, help="Exit with 1 unless every skill is as skills.lock says.")
@format_options("Print one object with the schema mz.skills-status/1.")
def status(locked: bool, as_json: bool) -> int:
    """Compare the folder skills with skills.lock.

    A skill is current, missing, drifted (changed since it was installed) or foreign (not installed by mz).
    """
    root = project_root(Path.cwd())
    lock = read_lock(root)
    listed = tuple(
        SkillStatus(name=name, state=state, locked=lock.skills.get(name))
        for name, state in skill_states(root, lock).items()
    )
    rows = tuple(
        (skill.name, skill.state, entry.source, entry.commit[:12] or "-", entry.version or "-")
        for skill in listed
        for entry in [skill.locked or FOREIGN]
    )
    heads = columns("skill", "state", "source", "commit", "version")
    table = Table(columns=heads, rows=rows, empty="No skills in this repository.")
    print_output(as_json, "skills-status", SkillsStatus(skills=listed), table)
    return int(Exit.VERDICT if locked and any(skill.state != "current" for skill in listed) else Exit.OK)
