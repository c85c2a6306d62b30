"""What the workflow of `mz init --ci` installs: this mz, and the programs of the commands."""

from __future__ import annotations

import json
import os
from importlib import metadata
from pathlib import Path

import pytest
from mz_engine.errors.diagnostics import MzError
from mz_engine.setup.workflow import installed_requirement, program_installs, public_url
from mz_engine.version import VERSION

from tests.support.gitrepo import GitRepo

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
    assert reason().endswith("mz.whl, which CI does not have")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("git@github.com:ada/mz.git", "https://github.com/ada/mz.git"),
        ("ssh://git@example.org/mz", "https://example.org/mz"),
        ("https://token@example.org/mz", "https://example.org/mz"),
        ("/srv/mz.git", ""),
        ("../mz", ""),
        ("file:///srv/mz", ""),
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
    ],
)
def test_what_commands_need_is_installed(
    setup: tuple[str, ...], commands: tuple[str, ...], installs: tuple[str, ...]
) -> None:
    assert program_installs(setup, commands) == installs


def test_a_program_that_cannot_be_installed_is_refused() -> None:
    with pytest.raises(MzError, match=r"it cannot install `mix`, which `mix deps.get` needs"):
        program_installs(("mix deps.get",), ("mix test",))
