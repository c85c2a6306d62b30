"""What differs between the commands of two settings, and since the start of a run."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from mz_engine.decoding.quantity import Duration
from mz_engine.model.config import Command
from mz_engine.model.pins import Commands, decode_pins, encode_pins
from mz_engine.run.process import RunProcess
from mz_events.catalog.run import CommandsChanged
from mz_events.names import run_stream
from mz_qa.simulation import trial

from tests.support.workshop import SETTINGS, Workshop

MAKE = Commands({"test": Command(run="make test")}, ("npm ci",))


@pytest.mark.parametrize(
    ("new", "lines"),
    [
        (MAKE, ()),
        (
            replace(MAKE, commands={"test": Command(run="make\tcheck\n  -k")}),
            ("- commands.test: make test", r"+ commands.test: make\tcheck\n  -k"),
        ),
        (
            replace(MAKE, commands={"test": Command(run="make  test")}),
            ("- commands.test: make test", "+ commands.test: make  test"),
        ),
        (
            replace(MAKE, commands={"test": Command(run="make \\ ü\u2028")}),
            ("- commands.test: make test", r"+ commands.test: make \\ ü\u2028"),
        ),
        (
            replace(MAKE, commands={"test": Command(run="make test", timeout=Duration(1800))}),
            ("- commands.test.timeout: 10m", "+ commands.test.timeout: 30m"),
        ),
        (replace(MAKE, commands={}), ("- commands.test: make test", "- commands.test.timeout: 10m")),
        (
            replace(MAKE, setup=("npm ci", 'echo "ü"')),
            ('- workspace.setup: ["npm ci"]', '+ workspace.setup: ["npm ci","echo \\"ü\\""]'),
        ),
        (
            replace(MAKE, inputs=("deps/**",), read=("~/.npmrc",), pass_environment=("A",)),
            ('+ pass_environment: ["A"]', '+ sandbox.read: ["~/.npmrc"]', '+ workspace.inputs: ["deps/**"]'),
        ),
    ],
)
def test_old_and_new_texts_are_lines_of_a_diff(new: Commands, lines: tuple[str, ...]) -> None:
    assert new.changes_from(MAKE) == lines


def test_pins_know_the_commands_of_the_start_once_others_are_taken_over() -> None:
    pins = trial.pins()
    assert b"first_commands" not in encode_pins(pins)
    corrected = MAKE.apply(replace(MAKE, setup=()).apply(pins))
    assert corrected.first_commands == Commands.of(pins.config)
    assert Commands.of(corrected.config) == MAKE
    assert decode_pins(encode_pins(corrected)) == corrected


def test_the_recorded_change_has_no_secret(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path)
    environment = {**workshop.environment, "MY_TOKEN": "s3cr3t-token-value"}
    with RunProcess(workshop.root, environment, lambda recorded: None) as process:
        process.start({}, ("alpha",))
        assert process.coordinator is not None
        run = process.coordinator.run
        settings = SETTINGS.replace("timeout: 1m", "timeout: 2m").replace('notes"', 's3cr3t-token-value"')
        workshop.repository.write({"mz.yaml": settings})
        process.resume(run)
        events = [recorded.event for recorded in process.store.read(run_stream(run))]
        (changed,) = [event for event in events if isinstance(event, CommandsChanged)]
        assert changed.changes is not None
        text = process.blobs.get(changed.changes).decode()
    assert ("+ commands.check.timeout: 2m" in text, "s3cr3t" in text) == (True, False)
