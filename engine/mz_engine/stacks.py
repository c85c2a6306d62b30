"""Detection of a project's test, lint, build and set-up commands, where its files are unambiguous.

The project's own scripts (package.json, Makefile, justfile) come before the defaults of its language. Runs nothing, and
ignores files that cannot be read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from mz_engine.errors import MzError
from mz_engine.pythonstack import python_stack
from mz_engine.stack import COMMAND_NAMES, Stack, has_file, has_matching_file, read_text_or_empty

NPM_PLACEHOLDER = "no test specified"
"""Part of the test script that `npm init` writes."""

NodeManager = tuple[str, str, str]
NODE_MANAGERS: tuple[NodeManager, ...] = (
    ("pnpm-lock.yaml", "pnpm", "pnpm install --frozen-lockfile"),
    ("bun.lock", "bun", "bun install --frozen-lockfile"),
    ("bun.lockb", "bun", "bun install --frozen-lockfile"),
    ("yarn.lock", "yarn", "yarn install --frozen-lockfile"),
    ("package-lock.json", "npm", "npm ci"),
    ("npm-shrinkwrap.json", "npm", "npm ci"),
)
"""Lock file, program, command that installs the locked versions."""
YARN_BERRY = "yarn install --immutable"


class DefaultCommands(msgspec.Struct, frozen=True):
    """Default commands of a project with a marker file."""

    marker: str
    """A file name, or a pattern of names."""
    stack: Stack


MAVEN = {"test": "mvn -B test", "build": "mvn -B -DskipTests package"}
GRADLE = {"test": "gradle test", "build": "gradle assemble"}
DOTNET = {"test": "dotnet test", "build": "dotnet build"}

DEFAULT_COMMANDS: tuple[DefaultCommands, ...] = (
    DefaultCommands("Cargo.toml", Stack("rust", {"test": "cargo test", "build": "cargo build"}, keep=("target",))),
    DefaultCommands("go.mod", Stack("go", {"test": "go test ./...", "lint": "go vet ./...", "build": "go build ./..."})),
    DefaultCommands("mvnw", Stack("java", {name: line.replace("mvn", "./mvnw") for name, line in MAVEN.items()})),
    DefaultCommands("pom.xml", Stack("java", MAVEN, keep=("target",))),
    DefaultCommands("gradlew", Stack("java", {name: f"./gradlew{line[6:]}" for name, line in GRADLE.items()})),
    DefaultCommands("build.gradle", Stack("java", GRADLE, keep=("build", ".gradle"))),
    DefaultCommands("build.gradle.kts", Stack("java", GRADLE, keep=("build", ".gradle"))),
    DefaultCommands("mix.exs", Stack("elixir", {"test": "mix test"}, ("mix deps.get",), ("deps", "_build"))),
    DefaultCommands("Package.swift", Stack("swift", {"test": "swift test", "build": "swift build"}, keep=(".build",))),
    DefaultCommands("*.sln", Stack("dotnet", DOTNET)),
    DefaultCommands("*.csproj", Stack("dotnet", DOTNET)),
)


def find_stacks(root: Path) -> tuple[Stack, ...]:
    """Return the detected stacks, the most certain first; several may define the same command."""
    finders: Iterable[Callable[[Path], Stack | None]] = (_node_stack, _deno_stack, _make_stack, _just_stack, _ruby_stack, _php_stack)
    stacks = [finder(root) for finder in finders]
    stacks += [default.stack for default in DEFAULT_COMMANDS if has_matching_file(root, default.marker)]
    stacks.append(python_stack(root))
    return tuple(stack for stack in stacks if stack is not None)


def _node_stack(root: Path) -> Stack | None:
    package = _read_json(root, "package.json")
    if package is None:
        return None
    scripts = package.get("scripts")
    project_scripts = {name: scripts.get(name) for name in COMMAND_NAMES} if isinstance(scripts, dict) else {}
    lock = next((manager for manager in NODE_MANAGERS if has_file(root, manager[0])), None)
    manager = lock[1] if lock else "npm"
    commands = {
        name: "npm test" if (manager, name) == ("npm", "test") else f"{manager} run {name}"
        for name, script in project_scripts.items()
        if isinstance(script, str) and script.strip() and NPM_PLACEHOLDER not in script
    }
    return Stack("node", commands, _node_setup(root, package, lock), ("node_modules",))


def _node_setup(root: Path, package: dict[str, Any], lock: NodeManager | None) -> tuple[str, ...]:
    if lock is not None:
        return (YARN_BERRY if lock[1] == "yarn" and has_file(root, ".yarnrc.yml") else lock[2],)
    needs = any(package.get(key) for key in ("dependencies", "devDependencies"))
    return ("npm install --no-package-lock",) if needs else ()


def _deno_stack(root: Path) -> Stack | None:
    for name in ("deno.json", "deno.jsonc"):
        if has_file(root, name):
            tasks = (_read_json(root, name) or {}).get("tasks")
            commands = {task: f"deno task {task}" for task in COMMAND_NAMES if isinstance(tasks, dict) and task in tasks}
            return Stack("deno", {"test": "deno test", "lint": "deno lint", **commands})
    return None


def _make_stack(root: Path) -> Stack | None:
    text = next((text for name in ("GNUmakefile", "makefile", "Makefile") if (text := read_text_or_empty(root, name))), "")
    return _target_stack(text, "make", r"^{name}\s*:(?!=)")


def _just_stack(root: Path) -> Stack | None:
    text = next((text for name in ("justfile", "Justfile", ".justfile") if (text := read_text_or_empty(root, name))), "")
    return _target_stack(text, "just", r"^@?{name}\s*:(?!=)")


def _target_stack(text: str, program: str, pattern: str) -> Stack | None:
    targets = [name for name in COMMAND_NAMES if re.search(pattern.format(name=name), text, re.MULTILINE)]
    return Stack(program, {name: f"{program} {name}" for name in targets}) if targets else None


def _ruby_stack(root: Path) -> Stack | None:
    gems = read_text_or_empty(root, "Gemfile")
    if not gems:
        return None
    commands = {}
    if has_file(root, ".rspec") or re.search(r"""gem ["']rspec""", gems):
        commands["test"] = "bundle exec rspec"
    elif has_file(root, "bin/rails") and (root / "test").is_dir():
        commands["test"] = "bin/rails test"
    elif re.search(r"TestTask|task :test\b", read_text_or_empty(root, "Rakefile")):
        commands["test"] = "bundle exec rake test"
    if has_file(root, ".rubocop.yml"):
        commands["lint"] = "bundle exec rubocop"
    return Stack("ruby", commands, ("bundle install",), ("vendor/bundle",))


def _php_stack(root: Path) -> Stack | None:
    composer = _read_json(root, "composer.json")
    if composer is None:
        return None
    scripts = composer.get("scripts")
    commands = {name: f"composer run {name}" for name in COMMAND_NAMES if isinstance(scripts, dict) and name in scripts}
    if has_file(root, "phpunit.xml") or has_file(root, "phpunit.xml.dist"):
        commands.setdefault("test", "vendor/bin/phpunit")
    return Stack("php", commands, ("composer install --no-interaction",), ("vendor",))


def _read_json(root: Path, name: str) -> dict[str, Any] | None:
    with suppress(ValueError, MzError):
        value = json.loads(read_text_or_empty(root, name) or "null")
        return value if isinstance(value, dict) else None
    return None
