"""What the environment of a command has of the project besides the worktree, and what commands see of the checkout."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from mz_engine.ports import CommandResult, OutsideLink
from mz_engine.processes import guard, supervise
from mz_engine.processes.commands import ProcessExecutor
from mz_engine.processes.environment import in_worktree
from mz_engine.processes.links import environment_links
from mz_events.redaction.redactor import Secrets

from tests.support.processes import WORKTREE, fresh_key, repository

EDITABLE_URL = json.dumps({"url": "file://{checkout}", "dir_info": {"editable": True}})
COPY_URL = json.dumps({"url": "file://{checkout}", "dir_info": {}})


class Checkout:
    """A repository with a worktree, and a virtual environment outside of both."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "project"
        self.worktree = repository(self.root)
        self.environment = folder / "env"
        self.site = make_environment(self.environment)
        (self.root / "src" / "prices").mkdir(parents=True)
        (self.root / "src" / "prices" / "__init__.py").write_text("VALUE = 1\n")
        self.variables = {"PATH": f"{self.environment / 'bin'}:/usr/bin:/bin", "HOME": str(folder / "home")}

    def links(self, **variables: str) -> list[str]:
        environment = in_worktree({**self.variables, **variables}, self.worktree)
        return [str(link) for link in environment_links(self.worktree, self.root, environment)]

    def run(self, command: str) -> CommandResult:
        return ProcessExecutor(self.root, self.variables, Secrets({})).run(WORKTREE, command, 30, fresh_key())


def make_environment(folder: Path) -> Path:
    """Make what marks a virtual environment; return its folder of packages."""
    site = folder / "lib" / "python3.11" / "site-packages"
    site.mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text("include-system-site-packages = false\n")
    (folder / "bin").mkdir()
    for name in ("python", "python3"):
        (folder / "bin" / name).write_text("#!/bin/sh\necho python\n")
        (folder / "bin" / name).chmod(0o755)
    return site


@pytest.mark.parametrize(
    ("file", "text", "target"),
    [
        ("__editable__.prices-1.pth", "{checkout}/src\n", "leads to {checkout}/src"),
        ("prices.pth", "{checkout}", "leads to {checkout}"),
        ("__editable___prices_1_finder.py", "MAPPING = {{'prices': '{checkout}/prices'}}\n",
         "leads to {checkout}/prices"),
        ("prices.egg-link", "{checkout}/src\n../", "leads to {checkout}/src"),
        ("prices-1.dist-info/direct_url.json", '{{"dir_info": {{"editable": true}}, "url": "file://{checkout}"}}',
         "leads to {checkout}"),
        ("prices-1.dist-info/direct_url.json", '{{"dir_info": {{}}, "url": "file://{checkout}"}}',
         "holds a copy of {checkout}"),
        ("prices-1.dist-info/direct_url.json", '{{"dir_info": {{}}, "url": "file://{worktree}"}}',
         "holds a copy of {worktree}"),
        ("prices-1.dist-info/direct_url.json", '{{"dir_info": {{"editable": true}}, "url": "file://{worktree}"}}', ""),
        ("__editable__.prices-1.pth", "{worktree}/src\n", ""),
        ("__editable__.prices-1.pth", "{checkout}/.mz/worktrees/r1/other/src\n",
         "leads to {checkout}/.mz/worktrees/r1/other/src"),
        ("other.pth", "{checkout}-of-another/src\n", ""),
        ("numpy-1.dist-info/direct_url.json", '{{"url": "https://example.org/numpy.whl"}}', ""),
    ],
)  # fmt: skip
def test_installations_of_python_projects(tmp_path: Path, file: str, text: str, target: str) -> None:
    checkout = Checkout(tmp_path)
    places = {"checkout": checkout.root, "worktree": checkout.worktree}
    (checkout.site / file).parent.mkdir(exist_ok=True)
    (checkout.site / file).write_text(text.format(**places))
    assert checkout.links() == ([f"{checkout.site / file} {target.format(**places)}"] if target else [])
    assert checkout.links(PATH="/usr/bin:/bin") == [], "it is not the environment that the command uses"


def test_a_linked_package_of_python(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path)
    (checkout.site / "prices").symlink_to(checkout.root / "src" / "prices")
    assert checkout.links() == [f"{checkout.site / 'prices'} leads to {checkout.root / 'src' / 'prices'}"]


def test_the_environment_of_the_worktree_comes_first(tmp_path: Path) -> None:
    """Also if another one is active."""
    checkout = Checkout(tmp_path)
    (checkout.site / "prices.pth").write_text(f"{checkout.root}/src")
    assert checkout.links(VIRTUAL_ENV=str(checkout.environment))
    own = make_environment(checkout.worktree / ".venv")
    assert checkout.links(VIRTUAL_ENV=str(checkout.environment)) == []
    variables = in_worktree({**checkout.variables, "VIRTUAL_ENV": str(checkout.environment)}, checkout.worktree)
    assert variables["VIRTUAL_ENV"] == str(checkout.worktree / ".venv")
    assert variables["PATH"] == f"{checkout.worktree}/.venv/bin:/usr/bin:/bin"
    (own / "prices.pth").write_text(f"{checkout.root}/src")
    assert len(checkout.links()) == 1


def test_variables_that_name_the_checkout(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path)
    assert checkout.links(PYTHONPATH=f"/opt/x:{checkout.root}/src") == [f"PYTHONPATH leads to {checkout.root}/src"]
    assert checkout.links(PYTHONPATH=f"{checkout.worktree}/src") == []


def test_links_of_node_packages(tmp_path: Path) -> None:
    """Workspaces link to packages of the worktree; the user's own dependencies are above it, where Node looks next."""
    checkout = Checkout(tmp_path)
    library, dependencies = checkout.root / "packages" / "lib", checkout.root / "node_modules"
    library.mkdir(parents=True)
    (dependencies / "@acme").mkdir(parents=True)
    (dependencies / "@acme" / "lib").symlink_to("../../packages/lib")
    (dependencies / ".pnpm" / "left-pad").mkdir(parents=True)
    (dependencies / "left-pad").symlink_to(".pnpm/left-pad")
    assert checkout.links() == [], "it is no project of Node"
    (checkout.worktree / "package.json").write_text("{}")
    assert checkout.links() == [f"{dependencies}/@acme/lib leads to {library}"]
    own = checkout.worktree / "node_modules" / "@acme"
    own.mkdir(parents=True)
    (checkout.worktree / "packages" / "lib").mkdir(parents=True)
    (own / "lib").symlink_to("../../packages/lib")
    assert checkout.links() == []
    (own / "lib").unlink()
    (own / "lib").symlink_to(library)
    assert checkout.links() == [f"{own}/lib leads to {library}"]


@pytest.mark.skipif(not supervise.can_hide(), reason="no mount namespaces here")
def test_commands_do_not_see_the_checkout(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path)
    (checkout.root / "setup.py").write_text("")
    for folder in (".venv/bin", "node_modules/left-pad"):
        (checkout.root / folder).mkdir(parents=True)
    (checkout.root / ".venv" / "pyvenv.cfg").write_text("")
    (checkout.root / "tools").mkdir()
    checkout.variables["PATH"] += f":{checkout.root}/tools"
    (checkout.site / "prices.pth").write_text(f"{checkout.root}/src")
    root = checkout.root
    script = f"cd {root}; ls src node_modules .venv; test -f setup.py || echo hidden; ls -d tools; ls .git >/dev/null"
    result = checkout.run(script)
    lines = [".venv:", "bin", "pyvenv.cfg", "hidden", "tools"]
    assert [line for line in result.output.decode().splitlines() if "ls:" not in line] == lines
    text = f"{checkout.site}/prices.pth leads to {root}/src"
    assert result.outside_links == (OutsideLink(text=text, is_hidden=True),)
    assert (root / "src" / "prices" / "__init__.py").exists()


def test_without_mount_namespaces_a_link_can_be_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout = Checkout(tmp_path)
    (checkout.site / "prices.pth").write_text(f"{checkout.root}/src")
    monkeypatch.setattr(supervise, "best_level", lambda: guard.SUBREAPER)
    (link,) = checkout.run("true").outside_links
    assert not link.is_hidden


def test_a_pipe_in_the_place_of_a_file_hangs_nothing(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path)
    os.mkfifo(checkout.site / "evil.pth")
    assert checkout.links() == []
