"""Usual projects, from `mz init` to a delivered feature, with the real Claude Code; a bug in each is refused. Those
whose set-up leaves files in the worktree are replayed too."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.cli.drive import Result, fork
from tests.support import claude_cli, preloaded
from tests.support.endpoint import Answer, Endpoint, Reply, Request
from tests.support.gitrepo import GitRepo
from tests.support.workshop import RULES

pytestmark = [pytest.mark.cli, pytest.mark.slow]

PIPELINE = """\
pipeline: change
version: 1
phases:
- phase: change
  agent: {tier: mid, tools: [read, write]}
  prompt: change.md.j2
  outputs: [{artifact: note, path: "notes/{feature}.md", rules: note}]
  writable: ["**"]
  gates: [{run: test}]
  deliver: [push, open_pr]
"""
TEMPLATE = "Change {{ title }}.\n{% if rework %}AGAIN {{ rework.messages | join('; ') }}\n{% endif %}"
BACKLOG = "# Backlog\n\n## [FEAT] totals: The totals\n\nPlease.\n"
NOTE = "# Totals\nThey are right now.\n"
BACKEND = '''\
"""A build backend without dependencies: an editable wheel, as PEP 660 describes it."""

import os, zipfile

NAME = "prices-1"


def get_requires_for_build_editable(config_settings=None):
    return []


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    file = f"{NAME}-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(wheel_directory, file), "w") as wheel:
        wheel.writestr("__editable__.prices-1.pth", os.path.abspath("src"))
        wheel.writestr(f"{NAME}.dist-info/METADATA", "Metadata-Version: 2.1\\nName: prices\\nVersion: 1\\n")
        wheel.writestr(f"{NAME}.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(f"{NAME}.dist-info/RECORD", "")
    return file
'''
TESTS = """\
import unittest
from prices import total


class TotalTest(unittest.TestCase):
    def test_total(self):
        self.assertEqual(total([1, 2]), 3)
"""
PYTHON = "def total(prices):\n    return {}\n"
NODE = "exports.total = (prices) => {};\n"
NODE_TEST = """\
const test = require('node:test');
const assert = require('node:assert');
const { total } = require('@acme/prices');
test('total', () => assert.strictEqual(total([1, 2]), 3));
"""


class Project(NamedTuple):
    files: dict[str, str]
    source: str
    """The file that the feature changes."""
    text: str
    """Its text, with a place for the value that is returned."""
    values: tuple[str, str, str]
    """On the base, with a bug, and as it is delivered."""
    setup: tuple[str, ...]
    """What `mz init` writes."""


PIP = ("python3 -m venv .venv", ".venv/bin/python -m pip install --quiet -e .")
SOURCES = {
    "src": Project(
        {
            "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["build"]\n'
            '[project]\nname = "prices"\nversion = "1"\n',
            "build/backend.py": BACKEND,
            "tests/test_total.py": TESTS,
            ".gitignore": ".venv/\n__pycache__/\n",
        },
        "src/prices/__init__.py",
        PYTHON,
        ("sum(prices)", "'BROKEN'", "sum(prices, 0)"),
        PIP,
    ),
    "flat": Project(
        {"tests/__init__.py": "", "tests/test_total.py": TESTS, ".gitignore": "__pycache__/\n"},
        "prices.py",
        PYTHON,
        ("sum(prices)", "'BROKEN'", "sum(prices, 0)"),
        (),
    ),
    "node": Project(
        {
            "package.json": json.dumps(
                {
                    "name": "shop",
                    "private": True,
                    "workspaces": ["packages/*"],
                    "scripts": {"test": "node --test packages"},
                }
            ),
            "packages/prices/package.json": json.dumps({"name": "@acme/prices", "version": "1.0.0"}),
            "packages/shop/package.json": json.dumps({"name": "@acme/shop", "version": "1.0.0"}),
            "packages/shop/total.test.js": NODE_TEST,
            ".gitignore": "node_modules/\n",
        },
        "packages/prices/index.js",
        NODE,
        ("prices[0] + prices[1]", "'BROKEN'", "prices.reduce((a, b) => a + b, 0)"),
        ("npm install --no-package-lock",),
    ),
    "yarn": Project(
        {
            "package.json": json.dumps(
                {
                    "name": "shop",
                    "private": True,
                    "scripts": {"test": "node --test"},
                    "dependencies": {"adder": "file:./adder"},
                }
            ),
            "adder/package.json": json.dumps({"name": "adder", "version": "1.0.0"}),
            "adder/index.js": "exports.add = (a, b) => a + b;\n",
            "total.test.js": NODE_TEST.replace("@acme/", "./"),
            ".yarnrc.yml": "enableTelemetry: false\n",
            ".gitignore": ".yarn/\n.pnp.*\n",
        },
        "prices.js",
        "const {{ add }} = require('adder');\n" + NODE,
        ("add(prices[0], prices[1])", "'BROKEN'", "prices.reduce(add, 0)"),
        ("YARN_ENABLE_GLOBAL_CACHE=false yarn install --immutable",),
    ),
}


class Model:
    """Breaks the function, and mends it when the tests are said to fail."""

    def __init__(self, project: Project) -> None:
        self.project = project

    def __call__(self, request: Request) -> Answer:
        _, broken, right = self.project.values
        text = self.project.text.format(right if "AGAIN" in request.prompt else broken)
        steps = (
            lambda: request.read(self.project.source),
            lambda: request.write(self.project.source, text),
            lambda: request.write("notes/totals.md", NOTE),
        )
        done = len(request.results())
        return Reply("", (steps[done](),)) if done < len(steps) else Reply("Done.")


def mz(root: Path, environment: Mapping[str, str], *arguments: str) -> Result:
    done = fork(root, arguments, {**environment, **preloaded.read_at_start(os.environ)}, seconds=300)
    assert done.exit == 0, f"{arguments} gave {done.exit}\n{done.out}\n{done.err}"
    return done


def install_in_checkout(root: Path, environment: dict[str, str], name: str) -> None:
    """Do what the user of the project did: install it in an environment that is active, or in `node_modules`."""
    if name == "src":
        active = root.parent / "env"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(active)], check=True)
        (site,) = active.glob("lib/python3*/site-packages")
        (site / "__editable__.prices-1.pth").write_text(f"{root / 'src'}\n")
        environment |= {"VIRTUAL_ENV": str(active), "PATH": f"{active / 'bin'}:{environment['PATH']}"}
    if name == "node":
        subprocess.run(["npm", "install", "--no-package-lock", "--offline"], cwd=root, check=True, capture_output=True)
    if name == "yarn":
        subprocess.run(["yarn", "install"], cwd=root, env=environment, check=True, capture_output=True)
        for path in (root / ".yarn", root.parent / "home" / ".yarn"):  # The cache would help the tests.
            shutil.rmtree(path)
        (root / ".pnp.cjs").unlink()  # What is ignored would be committed here.


@pytest.mark.parametrize("name", SOURCES)
def test_a_project_is_delivered_without_its_bug(tmp_path: Path, name: str) -> None:
    if not all(map(claude_cli.installed, ("claude", "yarn"))):
        pytest.skip("`make clis` installs it")
    project, repository = SOURCES[name], GitRepo(tmp_path / "project")
    home, programs = tmp_path / "home", tmp_path / "bin"
    for folder in (home, programs):
        folder.mkdir()
    for program in ("claude", "yarn"):  # `mz init` asks every agent on the path.
        (programs / program).symlink_to(claude_cli.CLIS / program)
    root = repository.root
    repository.commit({**project.files, project.source: project.text.format(project.values[0])})
    with Endpoint(Model(project)) as endpoint:
        environment = {**claude_cli.environment(home, endpoint.url), "NO_COLOR": "1"}
        environment["PATH"] = f"{programs}{os.pathsep}{os.environ['PATH']}"
        install_in_checkout(root, environment, name)
        mz(root, environment, "init")
        settings = (root / "mz.yaml").read_text()
        for line in project.setup:
            assert json.dumps(line) in settings
        # The shared packages spare the copy of pip that every environment gets.
        settings = settings.replace("venv .venv", "venv --without-pip --system-site-packages .venv")
        (root / "mz.yaml").write_text(settings.replace("monozukuri", "change").replace("checkpoint", "full_auto"))
        repository.write(
            {
                "features.md": BACKLOG,
                "pipelines/change.yaml": PIPELINE,
                "pipelines/rules/note.yaml": RULES,
                "pipelines/templates/change.md.j2": TEMPLATE,
            }
        )
        repository.commit()
        mz(root, environment, "run")
        assert endpoint.complaints == []
    events = [json.loads(line) for line in mz(root, environment, "log", "--json").out.splitlines()]
    assert [event["event"]["passed"] for event in of_type(events, "gate.checked")] == [False, True]
    assert "BROKEN" in repository.git("log", "-p", "--all") or "BROKEN" in str(of_type(events, "gate.checked"))
    delivered = repository.git("show", f"feat/totals:{project.source}")
    assert delivered + "\n" == project.text.format(project.values[2])
    assert repository.git("status", "--porcelain") == ""
    if name in ("src", "yarn"):
        mz(root, environment, "record")
        assert "2 commands answered" in mz(root, environment, "replay").out


def of_type(events: list[dict[str, Any]], type_: str) -> list[dict[str, Any]]:
    return [event for event in events if event["type"] == type_]
