"""The real ports of one repository."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path

from mz_events.redaction.redactor import Secrets
from mz_events.store import Blobs, Store

from mz_engine.agents.process import AgentProcesses
from mz_engine.agents.registry import AgentRegistry, all_adapters
from mz_engine.artifacts.command_output import output_patterns
from mz_engine.forge.github import GhForge
from mz_engine.git.workspace import GitWorkspace
from mz_engine.model.config import Config
from mz_engine.paths import user_data_directory
from mz_engine.pricing.table import price_table
from mz_engine.processes.commands import ProcessExecutor
from mz_engine.processes.container import container_of
from mz_engine.run.memory import LogMemory, UserMemory
from mz_engine.secrets import project_secrets


class SystemClock:
    """The Clock port."""

    def now_us(self) -> int:
        return time.time_ns() // 1_000


class SystemPorts:
    """Implements `ports.Ports`. Setting `kill` ends every running process."""

    def __init__(self, root: Path, config: Config, store: Store, blobs: Blobs, environment: Mapping[str, str]) -> None:
        output_patterns()
        self.kill = threading.Event()
        self.clock, self.prices, self.blobs = SystemClock(), price_table(config, environment), blobs
        self.secrets = Secrets(project_secrets(root, environment))
        self.workspace = GitWorkspace(root, config.workspace, environment)
        user = UserMemory(user_data_directory(environment))
        self.memory = LogMemory(store, blobs, self.secrets, self.clock, self.workspace.patch, user)
        self.forge = GhForge(root, config.pull_requests.remote, environment)
        passed, sandbox = config.pass_environment, config.sandbox
        self.executor = ProcessExecutor(root, environment, self.secrets, passed=passed, stop=self.kill, sandbox=sandbox)
        processes = AgentProcesses(root, environment, self.secrets, passed=passed, stop=self.kill, sandbox=sandbox)
        processes.container = container_of(config, environment)
        self.agents = AgentRegistry(processes, environment, all_adapters(config.agents, processes.container))
        self.agents.price = lambda usage: self.prices.price(usage, self.clock.now_us()).nanousd
