"""What agents and commands see of HOME: tools, caches, what settings name, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from mz_engine.model.config import SandboxSettings
from mz_engine.ports import FeatureWorktree
from mz_engine.processes.commands import ProcessExecutor
from mz_engine.processes.home import hidden_paths
from mz_engine.processes.supervise import Launch, Mount, can_hide
from mz_events.redaction.redactor import Secrets

from tests.support.gitrepo import GitRepo

FILES = (
    ".ssh/id_rsa", ".netrc", ".aws/credentials", ".config/gh/hosts.yml", ".config/git/config",
    ".config/git/credentials", ".cargo/credentials.toml", ".cargo/bin/cargo", ".cache/pip/x", ".local/bin/own",
    ".local/share/keyrings/login", ".local/share/uv/python/bin/python", ".gitconfig", "code/project/README.md",
    "code/other/.env", "go/bin/gofmt", "apps/tool/bin/tool", "apps/tool/lib/tool.so", "apps/private",
    "notes.txt", ".agent/login",
)  # fmt: skip
ALWAYS = {
    ".ssh", ".netrc", ".aws", ".config/gh", ".config/git/credentials", ".cargo/credentials.toml",
    ".local/share/keyrings", "code/other", "notes.txt",
}  # fmt: skip


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for name in FILES:
        (tmp_path / "home" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "home" / name).write_text("x\n")
    return tmp_path / "home"


def hidden(home: Path, *read: str, path: str = "", mounts: tuple[str, ...] = ("code/project",)) -> set[str]:
    launch = Launch(
        argv=("sh",),
        env={"HOME": str(home), "PATH": ":".join(["/usr/bin", *(str(home / name) for name in path.split())])},
        cwd=home / "code/project/.mz/worktrees/r/f",
        mounts=(Mount(home, "overlay"), *(Mount(home / name, "write") for name in mounts)),
    )
    paths = hidden_paths(launch, [home / name for name in read])
    return {str(path.relative_to(home.resolve())) for path in paths}


def test_tools_and_caches_are_seen_and_nothing_else(home: Path) -> None:
    assert hidden(home) == {*ALWAYS, "apps", ".agent"}


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"path": "apps/tool/bin"}, {*ALWAYS, "apps/private", ".agent"}),
        ({"path": "apps/tool"}, {*ALWAYS, "apps/private", ".agent"}),
        ({"path": ".agent/bin"}, {*ALWAYS, "apps"}),
        ({"mounts": ("code/project", ".agent")}, {*ALWAYS, "apps"}),
        ({"mounts": ("code",)}, {*ALWAYS, "apps", ".agent"} - {"code/other"}),
        ({"mounts": ("code/project", "code/project/.mz/worktrees/r/f")}, {*ALWAYS, "apps", ".agent"}),
    ],
)
def test_programs_on_path_and_mounts_are_seen(home: Path, change: dict[str, object], wanted: set[str]) -> None:
    assert hidden(home, **change) == wanted  # type: ignore[arg-type]


def test_what_settings_name_is_seen(home: Path) -> None:
    assert hidden(home, ".netrc", ".config/gh", ".cargo/credentials.toml", "apps/private") == {
        *(ALWAYS - {".netrc", ".config/gh", ".cargo/credentials.toml"}), "apps/tool", ".agent",
    }  # fmt: skip
    assert hidden(home, "") == set(), "all of it"


def test_what_a_link_in_a_folder_of_programs_leads_to_is_seen(home: Path) -> None:
    (home / ".local/bin/tool").symlink_to(home / "apps/tool/bin/tool")
    (home / ".local/share/claude/versions").mkdir(parents=True)
    (home / ".local/bin/claude").symlink_to(home / ".local/share/claude/versions/1")
    assert hidden(home, path=".local/bin") == {*ALWAYS, "apps/private", ".agent"}


def test_links_stay_and_what_they_lead_to_is_hidden(home: Path) -> None:
    (home / ".ssh").rename(home / "dotfiles")
    (home / ".ssh").symlink_to("dotfiles")
    assert hidden(home) == {*ALWAYS, "apps", ".agent", "dotfiles"} - {".ssh"}


def test_a_home_that_is_a_link_is_as_good(home: Path) -> None:
    home.with_name("link").symlink_to(home)
    assert hidden(home.with_name("link")) == {*ALWAYS, "apps", ".agent"}


@pytest.mark.parametrize("value", ["", "/", "relative"])
def test_without_a_home_nothing_is_hidden(value: str) -> None:
    launch = Launch(argv=("sh",), env={"HOME": value, "PATH": "/bin"}, cwd=Path("/"))
    assert hidden_paths(launch, ()) == ()


@pytest.mark.skipif(not can_hide(), reason="no mount namespaces here")
def test_commands_see_it_so(home: Path) -> None:
    repo = GitRepo(home / "code/project")
    repo.commit({"README.md": "x"})
    worktree = FeatureWorktree(run="r", feature="f", branch="f")
    (repo.root / ".mz/worktrees/r/f").mkdir(parents=True)
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin"}
    script = (
        "cat ~/.ssh/id_rsa ~/code/other/.env ~/.agent/login 2>/dev/null; echo new > ~/.cache/pip/x; cat ~/.cache/pip/x"
    )
    for settings, output in ((SandboxSettings(), "new\n"), (SandboxSettings(read=("~",)), "x\nx\nx\nnew\n")):
        executor = ProcessExecutor(repo.root, environment, Secrets({}), sandbox=settings)
        assert executor.run(worktree, script, 30, "r/f/command").output.decode() == output
    assert (home / ".cache/pip/x").read_text() == "x\n"
