"""What the real CLIs take from a project and from the user's home: instructions, servers, hooks (docs/agents.md)."""

from __future__ import annotations

import json
import re
import sys
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

import pytest
from mz_engine.agents.contract import Adapter
from mz_engine.agents.registry import built_in_adapters
from mz_engine.effects.guidance import skill_files
from mz_engine.model.card import Guidance, Skill
from mz_engine.ports import CallSpec
from mz_events.catalog.call import SkillUse

from tests.support import claude_cli, codex_cli, gemini_cli
from tests.support.endpoint import Answer, Endpoint, Reply, Request, Use
from tests.support.gitrepo import GitRepo

pytestmark = [pytest.mark.cli, pytest.mark.slow]
SERVER = """import json, pathlib, sys
pathlib.Path({touched!r}).touch()
for line in sys.stdin:
    message = json.loads(line)
    tool = {{"name": "t", "description": "MARK-{name}", "inputSchema": {{"type": "object"}}}}
    about = {{"capabilities": {{"tools": {{}}}}, "serverInfo": {{"name": "s", "version": "1"}}}}
    results = {{"initialize": {{"protocolVersion": "2025-06-18", **about}}, "tools/list": {{"tools": [tool]}}}}
    if "id" in message:
        result = results.get(message["method"], {{}})
        print(json.dumps({{"jsonrpc": "2.0", "id": message["id"], "result": result}}), flush=True)
"""
SKILL = "---\nname: {name}\ndescription: MARK-{name}\n---\nbody\n"
SUPPORT: Mapping[str, tuple[Callable[[Path, str], dict[str, str]], Callable[..., CallSpec]]] = {
    "claude-code": (claude_cli.environment, claude_cli.spec),
    "codex": (codex_cli.environment, codex_cli.spec),
    "gemini": (gemini_cli.environment, gemini_cli.spec),
}


class ProjectFiles:
    """A project and a home with everything that an agent may read; what runs leaves a file in `touched`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home, self.touched = folder, folder / "home", folder / "touched"
        for path in (self.home, self.touched):
            path.mkdir()
        self.repo = GitRepo(folder / "repo")
        self.repo.commit(self.files("project"))

    def write_home(self) -> None:
        """Beside the settings that name the scripted endpoint."""
        self.repo.write({f".claude/{name}": text for name, text in {"CLAUDE.md": "MARK-home"}.items()}, cwd=self.home)
        self.repo.write({".codex/AGENTS.md": "MARK-home", ".gemini/GEMINI.md": "MARK-home"}, cwd=self.home)
        self.repo.write({".claude.json": json.dumps({"mcpServers": {"home": self.server("home")}})}, cwd=self.home)
        self.repo.write({".claude/settings.json": json.dumps(self.hooks("home"))}, cwd=self.home)

    def trust(self) -> None:
        """Trust the folder above the repository, as a user trusts the checkout above a worktree."""
        self.repo.write({".gemini/trustedFolders.json": json.dumps({str(self.folder): "TRUST_FOLDER"})}, cwd=self.home)
        with open(self.home / ".codex/config.toml", "a", encoding="utf-8") as settings:
            settings.write(f'\n[projects.{json.dumps(str(self.folder))}]\ntrust_level = "trusted"\n')

    def files(self, name: str) -> dict[str, str]:
        server = self.server(name)
        table = f"[mcp_servers.x]\ncommand = {json.dumps(server['command'])}\nargs = {server['args']}\n"
        return {
            "CLAUDE.md": "MARK-claude-md", "AGENTS.md": "MARK-agents-md", "GEMINI.md": "MARK-gemini-md",
            ".claude/skills/a/SKILL.md": SKILL.format(name="claude-skill"),
            ".agents/skills/b/SKILL.md": SKILL.format(name="agents-skill"),
            ".mcp.json": json.dumps({"mcpServers": {name: server}}),
            ".claude/settings.json": json.dumps({"permissions": {"deny": ["Write"]}, **self.hooks(name)}),
            ".codex/config.toml": table,
            ".gemini/settings.json": json.dumps({"mcpServers": {name: server}, **self.hooks(name)}),
        }  # fmt: skip

    def server(self, name: str) -> dict[str, object]:
        program = self.folder / f"{name}.py"
        program.write_text(SERVER.format(touched=str(self.touched / f"server-{name}"), name=f"server-{name}"))
        return {"command": sys.executable, "args": [str(program)]}

    def hooks(self, name: str) -> dict[str, object]:
        command = {"type": "command", "command": f"touch {self.touched}/hook-{name}"}
        return {"hooks": {"SessionStart": [{"hooks": [command]}]}}


MARKS = {
    "claude-code": {"claude-md", "home", "server-home", "server-project"},
    "codex": {"agents-md", "agents-skill", "home"},
    "gemini": {"gemini-md", "agents-skill", "home"},
}
PROGRAMS = {
    "claude-code": {"hook-home", "hook-project", "server-home", "server-project"},
    "codex": set(),
    "gemini": set(),
}


TRUSTED_PROGRAMS = PROGRAMS | {"gemini": {"hook-project", "server-project"}}
"""If the user trusts a folder above the worktree, such as the checkout; of Codex only the very folder counts."""


@pytest.mark.parametrize(
    ("agent", "is_trusted"), [*((agent, False) for agent in SUPPORT), ("codex", True), ("gemini", True)]
)
def test_what_an_agent_takes_from_a_project(agent: str, is_trusted: bool, tmp_path: Path) -> None:
    project, requests = ProjectFiles(tmp_path), list[str]()

    def model(request: Request) -> Answer:
        requests.append(json.dumps(request.body))
        return Reply("Done.")

    environment, spec = SUPPORT[agent]
    adapter: Adapter = built_in_adapters()[agent]
    with Endpoint(model) as endpoint:
        outside = environment(project.home, endpoint.url)
        project.write_home()
        if is_trusted:
            project.trust()
        call = spec("Say hello.", None if agent == "codex" else "8ba9aa2f-4b0a-4c1e-9d3c-5f0f0c3e6a11")
        result = adapter.run_call(call, outside, claude_cli.plain_spawn(project.repo.root, outside))
    assert adapter.parse_output(result).problem is None, result
    assert set(re.findall(r"MARK-([\w-]+)", requests[0])) == MARKS[agent]
    programs = (TRUSTED_PROGRAMS if is_trusted else PROGRAMS)[agent]
    assert {path.name for path in project.touched.iterdir()} == programs
    if agent == "claude-code":
        assert "Write" not in {tool["name"] for tool in json.loads(requests[0])["tools"]}, "denied by the project"


LOADS: Mapping[str, Callable[[Request, str], Use]] = {
    "claude-code": lambda _, folder: Use("Skill", {"skill": PurePosixPath(folder).name}),
    "codex": lambda request, folder: request.run(f"cat {folder}/SKILL.md"),
    "gemini": lambda _, folder: Use("activate_skill", {"name": PurePosixPath(folder).name}),
}


@pytest.mark.parametrize("agent", SUPPORT)
def test_an_agent_loads_the_skill_that_a_call_is_given(agent: str) -> None:
    """Also where the project has one of the same name. The folder is on the disk, as Codex's sandbox needs it."""
    adapter: Adapter = built_in_adapters()[agent]
    guidance = Guidance(skills=(Skill(name="careful", description="MARK-listed", text="MARK-loaded"),))
    call_folder, texts = skill_files(guidance, (SkillUse(name="careful", form="native"),))
    ((name, text),) = texts.items()
    with TemporaryDirectory() as temporary:
        repo, bodies = GitRepo(Path(temporary, "repo")), list[str]()
        twin = SKILL.format(name="careful").replace("body", "MARK-twin")
        repo.commit({f"{parent}/skills/careful/SKILL.md": twin for parent in (".claude", ".agents")})
        folder = adapter.capabilities().skills.format(call=call_folder) + f"/{name}"
        repo.write({f"{folder}/SKILL.md": text, f"{folder}/.gitignore": "*\n"})

        def model(request: Request) -> Answer:
            bodies.append(json.dumps(request.body))
            return Reply("", uses=(LOADS[agent](request, folder),)) if len(bodies) == 1 else Reply("Done.")

        home = Path(temporary, "home")
        home.mkdir()
        environment, spec = SUPPORT[agent]
        with Endpoint(model) as endpoint:
            outside = environment(home, endpoint.url)
            session = None if agent == "codex" else str(uuid.uuid4())
            call = spec("Say hello.", session, skills=call_folder, tools=("read", "write"))
            result = adapter.run_call(call, outside, claude_cli.plain_spawn(repo.root, outside))
    assert adapter.parse_output(result).problem is None, result
    marks = [set(re.findall(r"MARK-(\w+)", body)) for body in bodies]
    assert marks == [{"listed", "careful"}, {"listed", "careful", "loaded"}]
