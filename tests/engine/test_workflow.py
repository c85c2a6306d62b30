"""What the workflow of `mz init --ci` installs: this mz, and the programs of the commands."""

from __future__ import annotations

import json
import os
import subprocess
from importlib import metadata
from pathlib import Path

import pytest
from mz_engine.errors.diagnostics import MzError
from mz_engine.git.process import ProgramResult
from mz_engine.setup import workflow
from mz_engine.setup.workflow import checked_requirement, installed_requirement, program_installs, public_url
from mz_engine.version import VERSION

from tests.support.gitrepo import GitRepo
from tests.support.package_index import INDEX, make_wheel, package_index

URL = "https://example.org/mz"


class Installed:
    """An installed package with this `direct_url.json`."""

    def __init__(self, origin: object) -> None:
        self.origin = origin

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return None if self.origin is None else json.dumps(self.origin)


def requirement(monkeypatch: pytest.MonkeyPatch, origin: object) -> str:
    monkeypatch.setattr(metadata, "distribution", lambda name: Installed(origin))
    return installed_requirement(os.environ)


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        (None, f"mz-engine=={VERSION}"),
        ({"url": URL, "vcs_info": {"vcs": "git", "commit_id": "abc"}}, f"mz-engine @ git+{URL}@abc"),
        (
            {"url": URL, "vcs_info": {"vcs": "git", "commit_id": "abc"}, "subdirectory": "python"},
            f"mz-engine @ git+{URL}@abc#subdirectory=python",
        ),
        ({"url": f"{URL}.whl", "archive_info": {}}, f"mz-engine @ {URL}.whl"),
        ({"url": f"{URL}.whl", "archive_info": {"hashes": {"sha256": "0a"}}}, f"mz-engine @ {URL}.whl#sha256=0a"),
    ],
)
def test_what_is_installed_is_pinned(monkeypatch: pytest.MonkeyPatch, origin: object, expected: str) -> None:
    assert requirement(monkeypatch, origin) == expected


def test_a_checkout_is_installed_from_its_remote(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    repo = GitRepo(tmp_path / "mz clone")
    commit = repo.commit({"a": "1"})
    origin = {"url": repo.root.as_uri(), "dir_info": {"editable": True}}

    def reason() -> str:
        with pytest.raises(MzError, match="MZ2021") as caught:
            requirement(monkeypatch, origin)
        return caught.value.message

    assert reason().endswith("whose commit is on no remote that CI can reach")
    repo.git("remote", "add", "origin", "git@example.org:ada/mz.git")
    repo.git("update-ref", "refs/remotes/origin/main", commit)
    assert requirement(monkeypatch, origin) == f"mz-engine @ git+https://example.org/ada/mz.git@{commit}"
    repo.write({"a": "2"})
    assert reason().endswith("which has uncommitted changes")
    repo.commit({"a": "3"})
    assert reason().endswith("whose commit is on no remote that CI can reach")
    origin["url"] = (tmp_path / "mz.whl").as_uri()
    assert reason().endswith(f"CI does not have {origin['url']}")


# what --install names -------------------------------------------------------------------------------------------------
def reported(monkeypatch: pytest.MonkeyPatch, origin: object, name: str = "mz_engine") -> None:
    """Pip would install this."""
    entry = {"download_info": origin, "metadata": {"name": name, "version": "1.2"}}
    result = ProgramResult(0, json.dumps({"install": [entry] if name else []}).encode(), "")
    monkeypatch.setattr(workflow, "run_program", lambda *args: result)


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        ({"url": "https://files.pythonhosted.org/packages/0a/mz.whl"}, "mz-engine==1.2"),
        ({"url": f"{URL}.whl", "archive_info": {"hashes": {"sha256": "0a"}}}, f"mz-engine @ {URL}.whl#sha256=0a"),
        ({"url": URL, "vcs_info": {"vcs": "git", "commit_id": "abc"}}, f"mz-engine @ git+{URL}@abc"),
        ({"url": "https://localhost.example.org/mz"}, "mz-engine @ https://localhost.example.org/mz"),
        ({"url": "https://127.example.org/mz"}, "mz-engine @ https://127.example.org/mz"),
    ],
)
def test_what_is_named_is_pinned(monkeypatch: pytest.MonkeyPatch, origin: object, expected: str) -> None:
    reported(monkeypatch, origin)
    assert checked_requirement("SPEC", Path(), {}) == expected


def refused(requirement: str, root: Path, environment: dict[str, str] | None = None) -> str:
    with pytest.raises(MzError, match="MZ2021") as caught:
        checked_requirement(requirement, root, environment or dict(os.environ))
    return caught.value.message


def test_what_ci_cannot_get_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for requirement in ("git+ssh://git@example.org/mz", "mz-engine @ https://token@example.org/mz.whl"):
        assert "needs a user or password of yours" in refused(requirement, tmp_path)
        assert "token" not in refused(requirement, tmp_path)
    reported(monkeypatch, {"url": "ssh://example.org/mz", "vcs_info": {"vcs": "git", "commit_id": "abc"}})
    assert refused("git+ssh://example.org/mz", tmp_path).endswith("CI does not have ssh://example.org/mz")
    for host in ("localhost", "LOCALHOST.", "mz.localhost:80", "127.0.0.1", "127.8.9.1:8080", "127.1", "[::1]:80"):
        for vcs in ({}, {"vcs_info": {"vcs": "git", "commit_id": "abc"}}):
            reported(monkeypatch, {"url": f"http://{host}/mz", **vcs})
            assert refused("SPEC", tmp_path).endswith(f"CI does not have http://{host}/mz")
    for name, outcome in (("other", "installs other, not mz-engine"), ("", "installs nothing, not mz-engine")):
        reported(monkeypatch, {"url": f"{URL}.whl"}, name=name)
        assert refused("SPEC", tmp_path).endswith(outcome)


def test_a_pip_that_does_not_end_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def hang(*args: object) -> ProgramResult:
        raise subprocess.TimeoutExpired("pip", 300)

    monkeypatch.setattr(workflow, "run_program", hang)
    assert refused("mz-engine", tmp_path).endswith("pip cannot install mz-engine: it did not end within 300 s")


@pytest.mark.slow
def test_a_wheel_of_the_repository_is_installed_from_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    repo = GitRepo(tmp_path / "work")
    make_wheel(repo.root / "vendor", "mz-engine", "1.2")
    (repo.root / "pip.py").write_text("raise SystemExit('not the real pip')")
    monkeypatch.chdir(repo.root / "vendor")
    wheel = "./mz_engine-1.2-py3-none-any.whl"
    assert refused(wheel, repo.root).endswith(f"CI does not have {(repo.root / 'vendor' / wheel).as_uri()}")
    repo.git("add", ".")
    assert checked_requirement(wheel, repo.root, os.environ) == f"./vendor/{wheel[2:]}"
    monkeypatch.chdir(repo.root)
    other = make_wheel(tmp_path, "other", "1")
    assert refused(str(other), repo.root).endswith("installs other, not mz-engine")


@pytest.mark.slow
def test_what_an_index_does_not_have_is_refused(tmp_path: Path) -> None:
    with package_index(tmp_path / "index", ("mz-engine", "1.2")) as variables:
        environment = {**os.environ, **variables}
        pinned = checked_requirement("mz-engine>=1", tmp_path, environment)
        reason = refused("mz-engine==1.3", tmp_path, environment)
    assert pinned.startswith(f"mz-engine @ {INDEX}/mz-engine/mz_engine-1.2-py3-none-any.whl#sha256=")
    expected = "Could not find a version that satisfies the requirement mz-engine==1.3 (from versions: 1.2)"
    assert reason.endswith(f"pip cannot install mz-engine==1.3: {expected}")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("git@github.com:ada/mz.git", "https://github.com/ada/mz.git"),
        ("ssh://git@example.org/mz", "https://example.org/mz"),
        ("https://token@example.org/mz", "https://example.org/mz"),
        ("/srv/mz.git", ""),
        ("../mz", ""),
        ("file:///srv/mz", ""),
        ("http://localhost:3000/ada/mz", ""),
        ("git@127.0.0.1:ada/mz.git", ""),
    ],
)
def test_the_address_of_a_remote_for_everybody(url: str, expected: str) -> None:
    assert public_url(url) == expected


@pytest.mark.parametrize(
    ("setup", "commands", "installs"),
    [
        ((), ("npm test", "./mvnw -B test", "cargo test"), ()),
        (("uv sync",), ("uv run python -m pytest -q",), ("python -m pip install uv",)),
        ((), ("python3 -m pytest -q", "ruff check ."), ("python -m pip install pytest", "python -m pip install ruff")),
        (("python3 -m venv .venv && .venv/bin/pip install -e .[test]",), ("python3 -m pytest -q",), ()),
        (("pnpm install --frozen-lockfile",), ("CI=1 pnpm run test", ""), ("npm install --global pnpm",)),
        (("yarn install --frozen-lockfile",), ("yarn run test",), ()),
        (("YARN_ENABLE_GLOBAL_CACHE=false yarn install --immutable",), ("yarn run test",), ("corepack enable",)),
        (("yarn install --no-immutable",), ("yarn run test",), ("corepack enable",)),
    ],
)
def test_what_commands_need_is_installed(
    setup: tuple[str, ...], commands: tuple[str, ...], installs: tuple[str, ...]
) -> None:
    assert program_installs(setup, commands) == installs


def test_a_program_that_cannot_be_installed_is_refused() -> None:
    with pytest.raises(MzError, match=r"it cannot install `mix`, which `mix deps.get` needs"):
        program_installs(("mix deps.get",), ("mix test",))
