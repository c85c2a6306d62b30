"""What agents and commands see of HOME and of folders for temporary files: tools, caches, what settings name, and
nothing else."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from mz_engine.git.workspace import GitWorkspace
from mz_engine.model.config import SandboxSettings, WorkspaceSettings
from mz_engine.ports import FeatureWorktree
from mz_engine.processes import guard, supervise
from mz_engine.processes import home as home_module
from mz_engine.processes.commands import ProcessExecutor
from mz_engine.processes.home import confine, hidden_paths
from mz_engine.processes.supervise import Launch, Mount, can_hide
from mz_events.redaction.redactor import Secrets

from tests.support.gitrepo import GitRepo
from tests.support.processes import levels

FILES = (
    ".ssh/id_rsa", ".netrc", ".aws/credentials", ".config/gh/hosts.yml", ".config/git/config",
    ".config/git/credentials", ".cargo/credentials.toml", ".cargo/bin/cargo", ".cache/pip/x", ".local/bin/own",
    ".local/share/keyrings/login", ".local/share/uv/python/bin/python", ".gitconfig", "code/project/README.md",
    "code/other/.env", "go/bin/gofmt", "apps/tool/bin/tool", "apps/tool/lib/tool.so", "apps/private",
    "notes.txt", ".agent/login", ".rvm/rubies/bin/ruby", ".rbenv/shims/ruby", ".gem/ruby/x", ".fnm/node", ".nvm/nvm.sh",
    ".local/share/gem/ruby/x", ".local/share/gem/credentials", ".volta/bin/node", ".asdf/shims/node", ".tool-versions",
    ".local/share/mise/shims/node",
)  # fmt: skip
ALWAYS = {
    ".ssh", ".netrc", ".aws", ".config/gh", ".config/git/credentials", ".cargo/credentials.toml",
    ".local/share/gem/credentials", ".local/share/keyrings", "code/other", "notes.txt",
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


def test_of_states_only_that_of_the_program_is_seen(home: Path) -> None:
    """A manager of versions may have links there, one for each shell."""
    for name in ("node/bin/node", "shell/history"):
        (home / ".local/state" / name).parent.mkdir(parents=True)
        (home / ".local/state" / name).write_text("x\n")
    assert hidden(home) == {*ALWAYS, "apps", ".agent", ".local/state"}
    assert hidden(home, path=".local/state/node/bin") == {*ALWAYS, "apps", ".agent", ".local/state/shell"}


def test_what_a_link_of_a_mount_leads_to_is_seen(home: Path) -> None:
    (home / "dots").mkdir()
    (home / ".agent").rename(home / "dots/agent")
    (home / ".agent").symlink_to("dots/agent")
    (home / ".gitconfig").rename(home / "dots/gitconfig")
    (home / ".gitconfig").symlink_to("dots/gitconfig")
    (home / "dots/secret").touch()
    assert hidden(home, mounts=("code/project", ".agent")) == {*ALWAYS, "apps", "dots/secret"}


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


@pytest.mark.skipif(not can_hide(), reason="no mount namespaces here")
def test_the_table_of_mounts_does_not_show_where_own_folders_are(on_disk: Path) -> None:
    """Codex looks there for other paths of a folder, which its sandbox then must cover."""
    repo = GitRepo(on_disk / "project")
    repo.commit({"README.md": "x"})
    (repo.root / ".mz/worktrees/r/f").mkdir(parents=True)
    executor = ProcessExecutor(repo.root, {"HOME": str(on_disk / "home"), "PATH": os.environ["PATH"]}, Secrets({}))
    table = """awk '$5 == "/tmp" { print $4 }' /proc/self/mountinfo | sort -u"""
    script = f"{table}; mkfifo /tmp/a; mv /tmp/a /tmp/b; test -p /tmp/b && echo moved"
    result = executor.run(FeatureWorktree(run="r", feature="f", branch="f"), script, 30, "r/f/command")
    assert result.output.decode().split() == ["/", "moved"]


@pytest.mark.parametrize("level", [level for level in levels() if level in (*guard.MOUNTING, guard.LANDLOCK)])
def test_git_works_where_settings_include_a_hidden_file(
    on_disk: Path, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    monkeypatch.setattr(supervise, "best_level", lambda: level)
    home, repo = on_disk / "home", GitRepo(on_disk / "project")
    worktree = FeatureWorktree(run="r", feature="f", branch="f")
    head = repo.commit({"README.md": "x"})
    repo.write({".gitconfig": "[Include]\n\tpath = ~/.dotfiles/git\n\tpath = ~/.gitconfig-work\n"}, cwd=home)
    repo.write({".dotfiles/git": "[alias]\n", ".gitconfig-work": "[alias]\n"}, cwd=home)
    environment = {"HOME": str(home), "PATH": os.environ["PATH"]}
    GitWorkspace(repo.root, WorkspaceSettings(), environment).open(worktree, (head,))
    result = ProcessExecutor(repo.root, environment, Secrets({})).run(worktree, "git status --short", 30, "r/f/command")
    assert (result.exit, result.output) == (0, b"")


@pytest.mark.skipif(not can_hide(), reason="no mount namespaces here")
def test_hidden_documents_are_empty_ones(tmp_path: Path) -> None:
    names = (".m2/settings.xml", ".composer/auth.json", ".nuget/NuGet/NuGet.Config", ".cargo/credentials.toml")
    for name in names:
        (tmp_path / "home" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "home" / name).write_text("secret")
    repo = GitRepo(tmp_path / "project")
    repo.commit({"README.md": "x"})
    (repo.root / ".mz/worktrees/r/f").mkdir(parents=True)
    executor = ProcessExecutor(repo.root, {"HOME": str(tmp_path / "home"), "PATH": os.environ["PATH"]}, Secrets({}))
    script = f"cd; cat {' '.join(names)}; (echo x > {names[0]}) 2>/dev/null || echo refused"
    result = executor.run(FeatureWorktree(run="r", feature="f", branch="f"), script, 30, "r/f/command")
    assert result.output.decode().split("\n") == ["<settings/>", "{}", "<configuration/>", "refused", ""]


# folders of its own ---------------------------------------------------------------------------------------------------
TOOLS = (
    "tool/bin/tool", "env/bin/python", "env/lib/site.py", "web/node_modules/.bin/tsc", "web/node_modules/tsc/run.js",
    "scripts/one", "other/secret", "work/README.md",
)  # fmt: skip


def seen_below(folder: Path, *, path: str = "", read: str = "", own: str = "", mounts: str = "") -> dict[str, str]:
    """The mounts at and below a folder for temporary files that has TOOLS."""
    for name in TOOLS:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x\n")
    launch = Launch(
        argv=("sh",),
        env={"TMPDIR": str(folder), "PATH": ":".join(["/usr/bin", *(str(folder / name) for name in path.split())])},
        cwd=folder / "work",
        mounts=tuple(Mount(folder / name, "write") for name in ("work", *mounts.split())),
    )
    there = confine(
        launch, [folder / name for name in read.split()], [Mount(folder / name, "kept") for name in own.split()]
    )
    targets = {mount.target: mount.kind for mount in there.mounts}
    assert targets[Path("/tmp")] == targets[Path("/run").resolve()] == "own"
    return {str(path.relative_to(folder)): kind for path, kind in targets.items() if path.is_relative_to(folder)}


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({}, {}),
        ({"path": "tool/bin"}, {"tool": "read", "tool/bin": "read"}),
        ({"path": "gone/bin"}, {"gone": "read", "gone/bin": "read"}),
        ({"path": "scripts"}, {"scripts": "read"}),
        ({"path": "web/node_modules/.bin"}, {"web": "read", "web/node_modules/.bin": "read"}),
        ({"read": "other/secret"}, {"other/secret": "read"}),
        ({"own": "agent", "read": "agent/part"}, {"agent": "kept"}),
        ({"path": "work/tools", "mounts": "work"}, {}),
    ],
)  # fmt: skip
def test_of_temporary_folders_programs_and_what_settings_name_are_seen(
    tmp_path: Path, change: dict[str, str], wanted: dict[str, str]
) -> None:
    assert seen_below(tmp_path, **change) == {".": "own", "work": "write", **wanted}


def test_a_link_among_programs_shows_the_installation_that_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts/python").symlink_to(tmp_path / "env/bin/python")
    assert seen_below(tmp_path, path="scripts") == {
        ".": "own", "work": "write", "scripts": "read", "env": "read",
    }  # fmt: skip


def test_the_file_that_names_the_resolvers_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "service").mkdir()
    (tmp_path / "service/stub.conf").touch()
    (tmp_path / "resolv.conf").symlink_to(tmp_path / "service/stub.conf")
    monkeypatch.setattr(home_module, "RESOLVER", tmp_path / "resolv.conf")
    assert seen_below(tmp_path) == {".": "own", "work": "write", "service/stub.conf": "read"}


def test_certificates_and_tools_that_variables_name_are_seen_but_not_all_of_home(tmp_path: Path) -> None:
    home = tmp_path / "home"
    for name in ("certs/ca.pem", "certs/key.pem", "golang/pkg", ".cargo/credentials.toml", "notes"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).touch()
    variables = {"SSL_CERT_FILE": f"{home}/certs/ca.pem", "GOPATH": f"{home}:{home}/golang", "GOROOT": "relative"}
    launch = Launch(
        argv=("sh",), env={**variables, "HOME": str(home), "CARGO_HOME": f"{home}/.cargo", "PATH": "/usr/bin"},
        cwd=tmp_path / "work", mounts=(Mount(home, "overlay"),),
    )  # fmt: skip
    hidden = {str(path.relative_to(home)) for path in confine(launch, (), ()).hidden}
    assert hidden == {"certs/key.pem", ".cargo/credentials.toml", "notes"}


@pytest.mark.parametrize(
    ("value", "kept"), [("{there}", True), ("{there}/none", False), ("relative", False), ("", False)]
)
def test_a_folder_for_temporary_files_that_is_not_there_is_none(tmp_path: Path, value: str, kept: bool) -> None:
    launch = Launch(
        argv=("sh",), env={"TMPDIR": value.format(there=tmp_path), "PATH": "/usr/bin"}, cwd=Path("/srv/work")
    )
    assert ("TMPDIR" in confine(launch, (), ()).env) == kept


@pytest.mark.skipif(not can_hide(), reason="no mount namespaces here")
def test_temporary_files_and_sockets_of_others_are_not_there(tmp_path: Path) -> None:
    repo = GitRepo(tmp_path / "project")
    repo.commit({"README.md": "x"})
    (repo.root / ".mz/worktrees/r/f").mkdir(parents=True)
    for name in ("runtime", "temporary"):
        (tmp_path / name).mkdir()
    (tmp_path / "temporary/notes").write_text("mine\n")
    environment = {
        "HOME": str(tmp_path / "home"), "PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": str(tmp_path / "runtime"),
        "TMPDIR": str(tmp_path / "temporary"),
    }  # fmt: skip
    connect = "python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"bus\")'"
    script = f"ls $TMPDIR /tmp /dev/shm | grep -c notes; echo x > $TMPDIR/new; cd $XDG_RUNTIME_DIR; {connect}"
    with socket.socket(socket.AF_UNIX) as service:
        opened = os.open(tmp_path / "runtime", os.O_PATH)
        service.bind(f"/proc/self/fd/{opened}/bus")
        os.close(opened)
        service.listen()
        for settings, exit_code, count in (
            (SandboxSettings(), 1, b"0"),
            (SandboxSettings(read=(str(tmp_path / "runtime/bus"), str(tmp_path / "temporary/notes"))), 0, b"1"),
        ):
            executor = ProcessExecutor(repo.root, environment, Secrets({}), sandbox=settings)
            result = executor.run(FeatureWorktree(run="r", feature="f", branch="f"), script, 30, "r/f/command")
            assert (result.exit, result.output.split()[0]) == (exit_code, count), result.output
    assert [path.name for path in (tmp_path / "temporary").iterdir()] == ["notes"]
