"""Settings: file, environment and flags become one `Config`; what is wrong is said with its place, all at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mz_engine.config.schema import config_schema, list_settings
from mz_engine.decoding.quantity import NANOUSD_PER_USD, Duration, Usd, encode_quantity
from mz_engine.decoding.structs import decode_value
from mz_engine.decoding.yaml import load_yaml
from mz_engine.errors.diagnostics import MzError
from mz_engine.model.config import Command, Config, Settings
from mz_engine.run.settings import load_config

from tests.support.gitrepo import POWERLESS

COMPLETE = """\
pipeline: mine
agent: codex
base: release/1.0
backlog: ./docs//features.md
branch_prefix: bot/feat
autonomy: full_auto
parallel_max: 4
injection_screen: relaxed
models: {cheap: small, premium: big}
commands:
  test: make test
  lint: {run: make lint, timeout: 1h30m}
  build: {run: make, timeout: 90}
workspace: {setup: [npm ci], copy: [.env.test], keep_ignored: [node_modules]}
pull_requests: {strategy: draft, remote: upstream}
budget: {run: "20.00", feature: 2.5}
limits: {task_files_max: 3, wait_max: 90s}
denied_paths: ["*.pem", "!public.pem"]
pass_environment: [CI]
"""


def write(root: Path, text: str) -> Path:
    (root / "mz.yaml").write_text(text)
    return root


def refused(root: Path, text: str = "", **environment: str) -> str:
    with pytest.raises(MzError) as caught:
        load_config(write(root, text), environment, {})
    return str(caught.value)


def test_without_a_file_the_defaults_hold(tmp_path: Path) -> None:
    loaded = load_config(tmp_path, {}, {})
    assert (loaded.config, loaded.file_exists, set(loaded.origins.values())) == (Config(), False, {"default"})


@pytest.mark.parametrize("text", ["", "# nothing\n", "commands:\n  # test: later\nlimits:\n"])
def test_an_empty_file_is_all_defaults(tmp_path: Path, text: str) -> None:
    loaded = load_config(write(tmp_path, text), {}, {})
    assert (loaded.config, loaded.file_exists) == (Config(), True)


def test_every_setting_of_the_file_arrives(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, COMPLETE), {}, {}).config
    assert (config.pipeline, config.agent) == ("mine", "codex")
    assert (config.base, config.backlog) == ("release/1.0", "docs/features.md")
    assert (config.branch_prefix, config.autonomy, config.parallel_max) == ("bot/feat", "full_auto", 4)
    assert (config.injection_screen, config.models.cheap, config.models.mid) == ("relaxed", "small", None)
    assert config.commands == {
        "test": Command(run="make test"),
        "lint": Command(run="make lint", timeout=Duration(5400)),
        "build": Command(run="make", timeout=Duration(90)),
    }
    assert (config.workspace.setup, config.workspace.copy) == (("npm ci",), (".env.test",))
    assert (config.workspace.keep_ignored, config.pull_requests.strategy) == (("node_modules",), "draft")
    assert (config.pull_requests.remote, config.pass_environment) == ("upstream", ("CI",))
    assert (config.budget.run_nanousd, config.budget.feature_nanousd) == (20 * 10**9, 2_500_000_000)
    assert (config.limits.task_files_max, config.limits.wait_max) == (3, 90)
    assert config.denied_paths == ("*.pem", "!public.pem")


def test_flags_win_over_variables_over_the_file_over_defaults(tmp_path: Path) -> None:
    write(tmp_path, "agent: one\nbudget:\n  feature: '1'\n  run: '9'\nparallel_max: 3\n")
    environment = {"MZ_AGENT": "two", "MZ_BUDGET_RUN": "7.25", "MZ_PARALLEL_MAX": " 5 ", "MZ_BASE": ""}
    flags = {"agent": "three", "autonomy": None, "denied_paths": ("a", "b")}
    loaded = load_config(tmp_path, environment, flags)
    assert (loaded.config.agent, loaded.config.parallel_max, loaded.config.base) == ("three", 5, None)
    assert (loaded.config.budget.run_nanousd, loaded.config.budget.feature_nanousd) == (7_250_000_000, 10**9)
    assert loaded.config.denied_paths == ("a", "b")
    texts = {name: origin for name, origin in loaded.origins.items() if origin != "default"}
    assert texts == {
        "agent": "command line",
        "budget.feature": "mz.yaml:3:3",
        "budget.run": "MZ_BUDGET_RUN",
        "denied_paths": "command line",
        "parallel_max": "MZ_PARALLEL_MAX",
    }


def test_a_variable_of_digits_stays_text_where_text_is_wanted(tmp_path: Path) -> None:
    assert load_config(tmp_path, {"MZ_BASE": "2024"}, {}).config.base == "2024"


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    text = (
        "agent: my agent\nbase: -x\nbacklog: ../f.md\nbranch_prefix: a..b\n"
        "commands:\n  'a b': x\n  test: {run: '', timeout: 5x}\n"
        "workspace: {copy: [/etc/passwd], setup: ['']}\npull_requests: {remote: ''}\n"
        "budget: {run: a lot}\nlimits: {wait_max: 8d}\ndenied_paths: ['']\npass_environment: [A-B]\n"
        "tracker: tasks.jsonl\n"
    )
    lines = [line for line in refused(tmp_path, text, MZ_BUDGET_FEATURE="-1").splitlines() if line.startswith("error")]
    name = "is not a name: use at most 64 letters, digits, `_` and `-`, beginning with a letter or digit"
    assert lines == [
        "error[MZ2011] MZ_BUDGET_FEATURE: '-1' is not an amount of dollars",
        f"error[MZ2013] mz.yaml:1:8 `agent`: 'my agent' {name}",
        "error[MZ2013] mz.yaml:2:7 `base`: '-x' is not usable as a branch, tag or remote name",
        "error[MZ2013] mz.yaml:3:10 `backlog`: '../f.md' is not a path inside the repository",
        "error[MZ2013] mz.yaml:4:16 `branch_prefix`: 'a..b' is not usable as a branch, tag or remote name",
        f"error[MZ2013] mz.yaml:6:10 `commands.a b`: 'a b' {name}",
        "error[MZ2013] mz.yaml:7:15 `commands.test.run`: it is empty",
        "error[MZ2009] mz.yaml:7:28 `commands.test.timeout`: '5x' is not a duration",
        "error[MZ2013] mz.yaml:8:20 `workspace.copy[0]`: '/etc/passwd' is not a path inside the repository",
        "error[MZ2013] mz.yaml:8:42 `workspace.setup[0]`: it is empty",
        "error[MZ2013] mz.yaml:9:25 `pull_requests.remote`: '' is not usable as a branch, tag or remote name",
        "error[MZ2010] mz.yaml:10:15 `budget.run`: 'a lot' is not an amount of dollars",
        "error[MZ2009] mz.yaml:11:20 `limits.wait_max`: '8d' is not between a second and a week",
        "error[MZ2013] mz.yaml:12:16 `denied_paths[0]`: it is empty",
        "error[MZ2013] mz.yaml:13:20 `pass_environment[0]`: 'A-B' is not the name of an environment variable",
        "error[MZ2013] mz.yaml:14:10 `tracker`: 'tasks.jsonl' is not a tracker",
    ]


def test_what_has_another_form_hides_nothing_else(tmp_path: Path) -> None:
    text = (
        "parallel_max: two\nbudget: {run: lots, fature: 1}\nlimits: {wait_max: 3 hours}\n"
        "workspace: {setup: [1], copy: [/etc]}\ncommands: {test: {run: 1}, lint: {run: x, timeout: y}}\n"
    )
    lines = [line for line in refused(tmp_path, text, MZ_BASE="-x").splitlines() if line.startswith("error")]
    assert lines == [
        "error[MZ2011] MZ_BASE: '-x' is not usable as a branch, tag or remote name",
        "error[MZ2006] mz.yaml:1:15 `parallel_max`: expected a whole number of at least 1 and at most 64, got 'two'",
        "error[MZ2010] mz.yaml:2:15 `budget.run`: 'lots' is not an amount of dollars",
        "error[MZ2005] mz.yaml:2:21 unknown key `fature` in `budget`",
        "error[MZ2009] mz.yaml:3:20 `limits.wait_max`: '3 hours' is not a duration",
        "error[MZ2006] mz.yaml:4:21 `workspace.setup[0]`: expected text, got 1",
        "error[MZ2013] mz.yaml:4:32 `workspace.copy[0]`: '/etc' is not a path inside the repository",
        "error[MZ2006] mz.yaml:5:24 `commands.test.run`: expected text, got 1",
        "error[MZ2009] mz.yaml:5:52 `commands.lint.timeout`: 'y' is not a duration",
    ]
    assert refused(tmp_path, "- a\n").startswith("error[MZ2006] mz.yaml:1:1 expected a mapping")


def test_a_wrong_value_does_not_hide_errors_across_keys(tmp_path: Path) -> None:
    price = "- {model: m, input: 1, output: 1}\n"
    codex = "{command: [x], output: {form: jsonl, text: {path: words}}, ends: {success: [{kind: done}]}}"
    agents = f"agents:\n  codex: {codex}\n  half: {{command: 1}}\n"
    text = f"parallel_max: two\n{agents}prices:\n{price}{price}"
    lines = [line for line in refused(tmp_path, text, MZ_BASE="-x").splitlines() if line.startswith("error")]
    assert lines == [
        "error[MZ2011] MZ_BASE: '-x' is not usable as a branch, tag or remote name",
        "error[MZ2006] mz.yaml:1:15 `parallel_max`: expected a whole number of at least 1 and at most 64, got 'two'",
        "error[MZ2013] mz.yaml:3:3 `agents.codex`: mz has a built-in agent of that name",
        "error[MZ2007] mz.yaml:4:9 `agents.half` has no key `ends`",
        "error[MZ2006] mz.yaml:4:19 `agents.half.command`: expected a list, got 1",
        "error[MZ2013] mz.yaml:7:11 `prices[1]`: m already has prices in `prices[0]`",
    ]


def test_a_wrong_text_in_a_description_does_not_hide_its_other_errors(tmp_path: Path) -> None:
    agent = "{command: [prog, '{prompt}', '{odd}'], output: {form: jsonl, text: {path: 'a b'}}, ends: {exits: [0]}}"
    lines = [line for line in refused(tmp_path, f"agents:\n  own: {agent}\n").splitlines() if line.startswith("error")]
    assert len(lines) > 1
    assert any("a b" in line for line in lines)
    assert any("prompt" in line or "odd" in line for line in lines)


@pytest.mark.parametrize("path", ["/", "//", "/.", ".", "cache", "../lib", "/srv/../etc", "~other/cache", ""])
@pytest.mark.parametrize("setting", ["read", "write"])
def test_the_sandbox_is_opened_for_absolute_paths_only(tmp_path: Path, setting: str, path: str) -> None:
    actual = refused(tmp_path, f"sandbox: {{{setting}: ['{path}']}}\n")
    assert actual.startswith(f"error[MZ2013] mz.yaml:1:{14 + len(setting)} `sandbox.{setting}[0]`: ")
    assert "hint: write a path such as /srv/cache or ~/.cache" in actual


@pytest.mark.parametrize(
    ("container", "error"),
    [
        ("{engine: podman}", "mz.yaml:1:12 `container` needs `engine` and `image`"),
        ("{image: x}", "mz.yaml:1:12 `container` needs `engine` and `image`"),
        ("{mounts: [/x]}", "mz.yaml:1:12 `container` needs `engine` and `image`"),
        ("{engine: podman, image: x, mounts: [y]}", "`container.mounts[0]`: 'y' is no absolute path"),
        ("{engine: lxc, image: x}", "`container.engine`: 'lxc' is not one of docker, podman"),
    ],
)
def test_a_container_needs_an_engine_and_an_image(tmp_path: Path, container: str, error: str) -> None:
    assert error in refused(tmp_path, f"container: {container}\n")


def test_misspelt_keys_are_told_with_the_nearest(tmp_path: Path) -> None:
    actual = refused(tmp_path, "agnet: x\n")
    assert actual == "error[MZ2005] mz.yaml:1:1 unknown key `agnet`\nhint: did you mean `agent`?"


def test_variables_and_flags_are_checked_like_the_file(tmp_path: Path) -> None:
    output = refused(tmp_path, MZ_PARALLEL_MAX="many", MZ_AUTONOMY="full-auto")
    assert output == (
        "error[MZ2011] MZ_AUTONOMY: 'full-auto' is not one of checkpoint, full_auto, supervised\n"
        "hint: did you mean `full_auto`?\n\n"
        "error[MZ2011] MZ_PARALLEL_MAX: expected a whole number of at least 1 and at most 64, got 'many'\n"
        "hint: its meaning: how many features are worked on at the same time"
    )
    with pytest.raises(MzError, match="command line: expected a whole number"):
        load_config(tmp_path, {}, {"parallel_max": 0})


def test_a_variable_that_is_no_text_is_refused(tmp_path: Path) -> None:
    output = refused(tmp_path, MZ_MODELS_MID="\udcff")
    assert output == "error[MZ2011] MZ_MODELS_MID: it is not UTF-8 text\nhint: set it to UTF-8 text"


def test_a_variable_that_is_nearly_a_setting_is_a_warning(tmp_path: Path) -> None:
    loaded = load_config(tmp_path, {"MZ_PARALEL_MAX": "3", "MZ_KEY": "run/x", "PATH": "/bin"}, {})
    assert [diagnostic.hint for diagnostic in loaded.warnings] == ["did you mean `MZ_PARALLEL_MAX`?"]


@pytest.mark.parametrize("name", ["main", "feature/ü", "release-1.0", "a@b", "v1"])
def test_any_branch_of_git_can_be_the_base(tmp_path: Path, name: str) -> None:
    subprocess.run(["git", "check-ref-format", "--branch", name], check=True, capture_output=True)
    assert load_config(write(tmp_path, f'base: "{name}"\n'), {}, {}).config.base == name


@given(st.text(alphabet="ab/.-@{~^: \\\\[*?\\x7f", max_size=8))
@pytest.mark.slow
def test_no_branch_is_accepted_that_git_refuses(name: str) -> None:
    if not decode_value({"base": name}, msgspec.inspect.type_info(Settings))[1]:
        done = subprocess.run(["git", "check-ref-format", f"refs/heads/{name}"], check=False)
        assert done.returncode == 0, name


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        (600, 600),
        ("600", 600),
        ("90s", 90),
        ("30m", 1800),
        ("2h", 7200),
        ("1h30m", 5400),
        ("1h 5", 3605),
        ("7d", 604800),
    ],
)
def test_durations(written: int | str, seconds: int) -> None:
    assert Duration.parse(written) == seconds


@pytest.mark.parametrize("written", ["", "m", "1.5h", "-1", "30m1h", "1w", "8d", "0", 0, -5, "9" * 50, "１m"])
def test_what_is_no_duration(written: int | str) -> None:
    with pytest.raises(ValueError, match="is not"):
        Duration.parse(written)


@pytest.mark.parametrize(
    ("written", "nanousd"),
    [("5.00", 5 * 10**9), (5, 5 * 10**9), (0.1, 10**8), ("0.000000001", 1), (1e-9, 1), (" 1 ", 10**9)],
)
def test_money_is_exact(written: float | str, nanousd: int) -> None:
    assert Usd.parse(written) == nanousd


NO_MONEY = ["", "5 USD", "-1", "nan", "1e9", "1_0", "１", "1000000.1", "0.0000000001", "1,5", "$5", "1" * 5000]


@pytest.mark.parametrize("written", NO_MONEY)
def test_what_is_no_money(written: str) -> None:
    with pytest.raises(ValueError, match=r"is (not|more)"):
        Usd.parse(written)


@given(st.integers(0, 10**6 * NANOUSD_PER_USD))
def test_money_survives_being_written(nanousd: int) -> None:
    assert Usd.parse(Usd(nanousd).format()) == nanousd
    assert Usd.parse(f"{nanousd // NANOUSD_PER_USD}.{nanousd % NANOUSD_PER_USD:09}") == nanousd


@pytest.mark.slow
def test_the_schema_is_for_draft_7_and_says_what_the_border_says(tmp_path: Path) -> None:
    schema = config_schema()
    jsonschema.Draft7Validator.check_schema(schema)
    validator = jsonschema.Draft7Validator(schema)
    validator.validate(load_yaml(COMPLETE))
    for text in ("agnet: x\n", "parallel_max: 0\n", "autonomy: sometimes\n", "commands: {test: {timeout: 5}}\n"):
        assert list(validator.iter_errors(load_yaml(text)))
        refused(tmp_path, text)


def test_every_setting_is_described() -> None:
    assert [setting_info.name for setting_info in list_settings() if not setting_info.description.endswith(".")] == []


@given(st.integers(1, 7 * 86400))
def test_durations_survive_being_written(seconds: int) -> None:
    assert Duration.parse(Duration(seconds).format()) == seconds


def test_durations_are_written_with_their_units() -> None:
    texts = [Duration(item).format() for item in (30, 90, 3600, 5400, 86461)]
    assert texts == ["30s", "1m30s", "1h", "1h30m", "1d1m1s"]
    assert not [
        setting_info.name
        for setting_info in list_settings()
        if str(loaded_default(setting_info.name)).isdigit() and "wait" in setting_info.name
    ]


def loaded_default(name: str) -> object:
    value: Any = msgspec.to_builtins(Settings(), enc_hook=encode_quantity)
    for part in name.split("."):
        value = value[part]
    return value


def test_values_are_kept_as_they_were_written(tmp_path: Path) -> None:
    loaded = load_config(write(tmp_path, COMPLETE), {"MZ_LIMITS_WAIT_MAX": "2h"}, {})
    assert loaded.values["budget.run"] == "20.00"
    assert loaded.values["limits.wait_max"] == "2h"
    assert loaded.values["commands.test"] == "make test"
    assert loaded.values["commands.lint"] == {"run": "make lint", "timeout": "1h30m"}
    assert (loaded.origins["commands.lint"], str(loaded.location("commands.lint"))) == ("mz.yaml:12:3", "mz.yaml:12:9")
    assert set(loaded.values) <= set(loaded.origins)


def test_a_misspelt_variable_is_told_of_whatever_else_is_wrong(tmp_path: Path) -> None:
    output = "warning[MZ2012] the variable MZ_PARALEL_MAX is not a setting and has no effect"
    assert output in refused(tmp_path, MZ_PARALEL_MAX="3", MZ_AUTONOMY="x")
    assert output in refused(tmp_path, "agnet: x\n", MZ_PARALEL_MAX="3")


@pytest.mark.parametrize("name", ["mz.yml", ".mz.yaml"])
def test_settings_in_another_file_are_not_ignored(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("agent: x\n")
    with pytest.raises(MzError) as error:
        load_config(tmp_path, {}, {})
    assert str(error.value) == f"error[MZ2014] {name} settings in {name} are not read\nhint: rename it to mz.yaml"
    assert refused(tmp_path, "") == (
        f"error[MZ2014] {name} both mz.yaml and {name} exist\nhint: merge the settings into mz.yaml and remove {name}"
    )


@pytest.mark.parametrize(
    ("data", "output"),
    [
        (b"\xef\xbb\xbfagnet: x\r\n", "error[MZ2005] mz.yaml:1:1 unknown key `agnet`"),
        (b"agent: claude-code\r\nparallel_max: many\r\n", "error[MZ2006] mz.yaml:2:15 `parallel_max`: expected a"),
        (b"commands:\n\ttest: x\n", "error[MZ2003] mz.yaml:2:1 not YAML: "),
        (b"agent: a\nagent: b\n", "error[MZ2004] mz.yaml:2:1 duplicate key `agent`, first in line 1"),
        (b"parallel_max: '3'\n", "error[MZ2006] mz.yaml:1:15 `parallel_max`: expected a whole number"),
        (b"agent: 5\n", "error[MZ2006] mz.yaml:1:8 `agent`: expected text, got 5"),
        (b"# " + b"x" * 1_000_000, "error[MZ2008] mz.yaml it has more than 1,000,000 bytes"),
        (b"agent: \xff\n", "error[MZ2002] mz.yaml:1:8 byte 0xff is not UTF-8 text"),
        (b"agent: !!python/name:os.system\n", "error[MZ2006] mz.yaml:1:8 the tag "),
        (b"--- {}\n--- {}\n", "error[MZ2003] mz.yaml:2:1 not YAML: "),
    ],
)
def test_bad_files_are_refused_with_place_and_hint(tmp_path: Path, data: bytes, output: str) -> None:
    (tmp_path / "mz.yaml").write_bytes(data)
    with pytest.raises(MzError) as caught:
        load_config(tmp_path, {}, {})
    assert str(caught.value).startswith(output)
    assert all(diagnostic.hint for diagnostic in caught.value.diagnostics)


def test_a_byte_order_mark_and_crlf_are_no_fault(tmp_path: Path) -> None:
    (tmp_path / "mz.yaml").write_bytes(b"\xef\xbb\xbfagent: x\r\nparallel_max: 3\r\n")
    assert load_config(tmp_path, {}, {}).config.parallel_max == 3


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "mz.yaml").symlink_to("nowhere")
    hint = "\nhint: check that it exists and that you may read it"
    with pytest.raises(MzError) as dangling:
        load_config(tmp_path, {}, {})
    assert str(dangling.value) == f"error[MZ2001] mz.yaml it cannot be read: no such file or directory{hint}"
    (tmp_path / "mz.yaml").unlink()
    (tmp_path / "mz.yaml").mkdir()
    with pytest.raises(MzError, match="it is not a file"):
        load_config(tmp_path, {}, {})


@pytest.mark.slow
def test_a_file_without_permission(tmp_path: Path) -> None:
    write(tmp_path, "agent: x\n").joinpath("mz.yaml").chmod(0)
    script = (
        "import pathlib, sys\nfrom mz_engine.run.settings import load_config\n"
        "try:\n    load_config(pathlib.Path(sys.argv[1]), {}, {})\n"
        "except Exception as error:\n    print(error)\n"
    )
    tmp_path.chmod(0o755)
    done = subprocess.run(
        [*POWERLESS, sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("error[MZ2001] mz.yaml it cannot be read: permission denied\nhint: ")
