"""Cards and skills of a phase: what heads its prompts, what limits them, what the log says, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from mz_engine.cards.load import load_cards
from mz_engine.cards.skills import BUILT_IN_SKILLS, load_skills, parse_skill
from mz_engine.errors.diagnostics import MzError
from mz_engine.model.pins import Pins, decode_pins, encode_pins
from mz_engine.pipelines.lint import lint_pipeline
from mz_engine.pipelines.lint_phase import PipelineFiles
from mz_engine.pipelines.load import PipelineSource, load_pipeline_files, pin_files
from mz_engine.ports import CallSpec, FeatureWorktree
from mz_events.catalog.base import Event
from mz_events.catalog.call import AgentRequested, ContextComposed, ContextPart, SkillUse
from mz_events.names import FeatureId, feature_stream
from mz_events.names import Path as TreePath
from mz_qa.simulation import trial
from mz_qa.simulation.driver import drive_run
from mz_qa.simulation.world import Files, ScriptedReply, SimulatedAdapter, SimulatedWorkspace, World
from mz_recordings.record.recorder import requested_spec

PIPELINE = """\
pipeline: guided
version: 1
phases:
- phase: build
  agent: {role: iris, skills: [careful]}
  prompt: do.md.j2
  context: {include: ["*.txt"], tokens_max: 100}
  outputs: [{artifact: note, path: "notes/{feature}.md", rules: note}]
- phase: check
  agent: {not_as: build, needs: [run_sql]}
  prompt: do.md.j2
  outputs: [{artifact: letter, path: "letters/{feature}.md", rules: note}]
- phase: ship
  agent: {}
  prompt: do.md.j2
  outputs: [{artifact: report, path: "reports/{feature}.md", rules: note}]
  deliver: [push, open_pr]
"""
CARD = """\
identity: {name}
domain: data
capabilities: [run_sql]
state: {{persona: persona.md}}
budget: {{max_tokens: 30}}
"""
SKILLS_PATH = "{call}/.x/skills"
SKILL = "---\nname: {name}\ndescription: How to be careful.\nversion: '2'\n{more}---\nBe careful with {name}.\n"


def write(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("iris", "orion"):
        write(tmp_path, f"agents/{name}/.agent", CARD.format(name=name))
        write(tmp_path, f"agents/{name}/persona.md", f"You are {name}.\n")
    write(tmp_path, "skills/careful/SKILL.md", SKILL.format(name="careful", more=""))
    own = "when: [{rolled_back: 1}]\n"
    write(tmp_path, "agents/iris/skills/again/SKILL.md", SKILL.format(name="again", more=own))
    return tmp_path


def pins_of(root: Path, text: str = PIPELINE) -> Pins:
    pipeline, _ = PipelineSource(name="guided.yaml", text=text).parse()
    material, base = load_pipeline_files(root), trial.pins()
    pinned = pin_files(pipeline, material, base.config)
    template = "Do {{ phase }}.{% for file in context %} {{ file.path }}{% endfor %}"
    return replace(pinned, rules=base.rules, templates={"do.md.j2": template})


def run(pinned: Pins, watch: Callable[[CallSpec], None] = lambda spec: None) -> World:
    """Run a feature."""

    def script(spec: CallSpec, _: Files) -> ScriptedReply:
        watch(spec)
        folder = {"build": "notes", "check": "letters", "ship": "reports"}[spec.key.split("/")[2]]
        return ScriptedReply(files={f"{folder}/b.md": "A note about b."})

    world = World({**trial.FILES, "long.txt": "x" * 80, "short.txt": "x"}, script, trial.commands)
    trial.begin(world, pinned, {"b": ()})
    drive_run(world, trial.RUN, pinned, 1)
    return world


def events_of(world: World) -> list[Event]:
    return [item.event for item in world.store.read(feature_stream(trial.RUN, FeatureId("b")))]


def ledger(pinned: Pins) -> tuple[ContextPart, ...]:
    """Run a feature; return the parts of its first prompt."""
    return next(event.parts for event in events_of(run(pinned)) if isinstance(event, ContextComposed))


def requests(pinned: Pins) -> dict[str, tuple[AgentRequested, str]]:
    """Run a feature; return the first request of each phase, and its prompt."""
    world = run(pinned)
    made = [event for event in events_of(world) if isinstance(event, AgentRequested)]
    return {event.ref.phase: (event, world.blobs.get(event.prompt).decode()) for event in reversed(made)}


def test_persona_and_skills_head_the_prompt_and_the_log_names_them(root: Path) -> None:
    made = requests(decode_pins(encode_pins(pins_of(root))))
    request, prompt = made["build"]
    assert (
        prompt == "You are iris.\n\n---\n\n# Skill: careful\n\nBe careful with careful.\n\n---\n\nDo build. short.txt\n"
    )
    assert request.card == "iris"
    assert request.skills == (
        SkillUse(name="again", version="2", form="left-out"), SkillUse(name="careful", version="2", form="text"),
    )  # fmt: skip
    request, prompt = made["check"]
    assert (request.card, prompt) == ("orion", "You are orion.\n\n---\n\nDo check.\n"), "not the card that it checks"
    request, prompt = made["ship"]
    assert (request.card, request.skills, prompt) == ("", (), "Do ship.\n")


@pytest.mark.parametrize(
    ("skills_path", "folder"), [(SKILLS_PATH, r"\.mz/skills/[0-9a-f]{8}/\.x/skills"), (".x/skills", r"\.x/skills")]
)
def test_an_agent_that_loads_skills_is_given_files(
    skills_path: str, folder: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provided = dict[TreePath, bytes]()

    def provide(port: SimulatedWorkspace, worktree: FeatureWorktree, files: dict[TreePath, bytes]) -> None:
        provided.update(files)

    pinned = decode_pins(encode_pins(pins_of(root)))
    native = replace(pinned, config=replace(pinned.config, skills="native"))
    monkeypatch.setattr(SimulatedWorkspace, "provide", provide)
    assert requests(native)["build"][0].skills[-1].form == "text", "no agent that can load one"
    assert not any("skills" in path for path in provided)
    monkeypatch.setattr(SimulatedAdapter, "skills", skills_path)
    assert requests(pinned)["build"][0].skills[-1].form == "text", "the settings do not say so"
    request, prompt = requests(native)["build"]
    assert request.skills == (
        SkillUse(name="again", version="2", form="left-out"), SkillUse(name="careful", version="2", form="native"),
    )  # fmt: skip
    (ignored, path) = sorted(path for path in provided if "skills" in path)
    match = re.fullmatch(rf"{folder}/(careful-[0-9a-f]{{8}})/SKILL\.md", path)
    assert match
    head = f"You are iris.\n\n---\n\nLoad and follow the skill `{match[1]}`.\n\n---\n\n"
    assert prompt == f"{head}Do build. short.txt\n"
    assert parse_skill(provided[path].decode(), match[1], "").text == "Be careful with careful."
    assert (ignored, provided[ignored]) == (path.replace("SKILL.md", ".gitignore"), b"*\n"), "git and captures skip it"


@pytest.mark.parametrize("name", [".x", ".x/skills"])
def test_where_a_project_has_a_file_or_link_in_place_of_the_folder_skills_are_text(
    name: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pinned = pins_of(root)
    native = replace(pinned, config=replace(pinned.config, skills="native"))
    monkeypatch.setattr(SimulatedAdapter, "skills", ".x/skills")
    assert requests(native)["build"][0].skills[-1].form == "native"
    monkeypatch.setitem(trial.FILES, name, "elsewhere")
    assert requests(native)["build"][0].skills[-1].form == "text"


def test_a_phase_without_tools_has_nothing_to_load_a_skill_with(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pinned = pins_of(root, PIPELINE.replace("skills: [careful]}", "skills: [careful], tools: []}"))
    native = replace(pinned, config=replace(pinned.config, skills="native"))
    monkeypatch.setattr(SimulatedAdapter, "skills", SKILLS_PATH)
    assert requests(native)["build"][0].skills[-1].form == "text"


def test_a_recording_names_the_folder_of_the_skills(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimulatedAdapter, "skills", SKILLS_PATH)
    pinned = pins_of(root)
    pinned = replace(pinned, config=replace(pinned.config, skills="native"))
    specs = list[CallSpec]()
    world = run(pinned, specs.append)
    made = [event for event in events_of(world) if isinstance(event, AgentRequested)]
    folders = [requested_spec(request, "b", pinned, world.blobs).skills for request in made]
    assert folders == [spec.skills for spec in specs]
    assert folders[0].startswith(".mz/skills/")


def test_a_skill_is_given_when_its_condition_holds(root: Path) -> None:
    write(root, "skills/careful/SKILL.md", SKILL.format(name="careful", more="when: [{rule: money}]\n"))
    checks = "checks: {money: {kind: request, pattern: Please}}\nphases:\n"
    made = requests(pins_of(root, PIPELINE.replace("phases:\n", checks, 1)))
    assert made["build"][0].skills[-1] == SkillUse(name="careful", version="2", form="text")
    made = requests(pins_of(root, PIPELINE.replace("phases:\n", checks.replace("Please", "payment"), 1)))
    assert made["build"][0].skills[-1] == SkillUse(name="careful", version="2", form="left-out")


def test_the_budget_of_a_card_caps_the_context(root: Path) -> None:
    assert "long.txt" not in requests(pins_of(root))["build"][1]
    write(root, "agents/iris/.agent", CARD.format(name="iris").replace("30", "60"))
    assert "long.txt" in requests(pins_of(root))["build"][1]


def test_a_pipeline_without_cards_has_pins_as_before(root: Path) -> None:
    text = PIPELINE.replace("{role: iris, skills: [careful]}", "{}").replace("{not_as: build, needs: [run_sql]}", "{}")
    assert pins_of(root, text).guidance == {}
    assert b"guidance" not in encode_pins(pins_of(root, text))


def test_a_kept_session_is_told_its_persona_once(root: Path) -> None:
    write(root, "agents/iris/persona.md", "You are iris, and you look at the data before you speak.\n")
    pinned = pins_of(root, PIPELINE.replace("- phase: ship\n  agent: {}", "- phase: ship\n  agent: {role: iris}"))
    fresh = requests(pinned)
    kept = requests(replace(pinned, config=replace(pinned.config, sessions="continue")))
    assert kept["build"][1] == fresh["build"][1]
    assert fresh["ship"][1].startswith("You are iris")
    assert (kept["ship"][0].resumes, kept["ship"][1]) == (True, "Do ship.\n")


def test_the_ledger_lists_persona_and_skills(root: Path) -> None:
    write(root, "agents/iris/persona.md", "You are iris, and you look at the data before you speak.\n")
    write(root, "skills/careful/SKILL.md", SKILL.format(name="careful", more="") + "Look twice. " * 20)
    parts = {(part.source, part.name): part.tokens for part in ledger(pins_of(root))}
    assert parts[("persona", "iris")] > 0
    assert parts[("skill", "careful")] > 50


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        ("{role: irs}", ["5:17 MZ3022 there is no card `irs`"]),
        ("{role: broken}", ["5:17 MZ3022 the card `broken` has errors"]),
        ("{needs: [fly]}", ["5:18 MZ3022 no card has the capabilities fly"]),
        ("{role: iris, needs: [run_sql]}", ["5:30 MZ3022 `needs` chooses a card, so there can be no `role`"]),
        ("{skills: [careful, carful]}", ["5:29 MZ3022 there is no skill `carful`"]),
        ("{role: orion}", []),
    ],
)
def test_what_does_not_exist_is_refused_with_its_place(root: Path, use: str, expected: list[str]) -> None:
    write(root, "agents/broken/.agent", "identity: other\n")
    assert findings(root, PIPELINE.replace("{role: iris, skills: [careful]}", use)) == expected


def test_the_card_of_the_phase_that_is_checked_is_refused(root: Path) -> None:
    text = PIPELINE.replace("{not_as: build, needs: [run_sql]}", "{not_as: build, role: iris}")
    assert findings(root, text) == ["10:32 MZ3024 the card `iris` is that of `build` too, which `not_as` excludes"]


def findings(root: Path, text: str) -> list[str]:
    pipeline, document = PipelineSource(name="p.yaml", text=text).parse()
    base = trial.pins()
    material = PipelineFiles(
        templates={"do.md.j2": ""}, rules=base.rules, files=(), cards=load_cards(root), skills=load_skills(root)
    )
    result = lint_pipeline(pipeline, material, base.config, document)
    return [
        f"{item.location.line}:{item.location.column} {item.code} {item.message}" for item in result if item.location
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Be careful.\n", "s.md:1:1 it has no front matter"),
        ("---\nname: a\n", "s.md:1:1 it has no front matter"),
        ("---\nname: a\n---\nx", "s.md:2:1 the key `description` is missing"),
        ("---\nname: b\ndescription: x\n---\nx", "s.md:2:7 `name` is b, but the folder is called a"),
        ("---\nname: a\ndescription: x\ncolour: red\n---\nx", "s.md:4:1 unknown key `colour`"),
        ("---\nname: a\ndescription: x\n---\n\n", "s.md:5:1 the skill has no text"),
        (
            "---\nname: a\ndescription: x\nwhen: [{rule: 1}]\n---\nx",
            "s.md:4:15 `when[0].rule`: expected text or nothing, got 1",
        ),
    ],
)
def test_what_is_wrong_with_a_skill_has_its_place(text: str, expected: str) -> None:
    with pytest.raises(MzError) as raised:
        parse_skill(text, "a", "s.md")
    assert f"{raised.value.location} {raised.value.message}".startswith(expected)


def test_a_skill_of_another_tool_can_be_read() -> None:
    text = "---\nname: a\ndescription: x\nlicense: MIT\nallowed-tools: Read\nmetadata: {version: 1}\n---\nText.\n"
    assert parse_skill(text, "a", "s.md").text == "Text."


def test_a_link_is_no_skill(root: Path) -> None:
    write(root, "secret.md", SKILL.format(name="linked", more=""))
    (root / "skills" / "linked").mkdir()
    (root / "skills" / "linked" / "SKILL.md").symlink_to(root / "secret.md")
    assert [item.code for item in load_skills(root)["linked"].diagnostics] == ["MZ3028"]
    with pytest.raises(MzError, match="never a link"):
        pins_of(root, PIPELINE.replace("[careful]", "[linked]"))


def test_built_in_skills_are_valid_and_short(tmp_path: Path) -> None:
    skills = load_skills(tmp_path)
    assert {*skills} == {folder.name for folder in BUILT_IN_SKILLS.iterdir()}
    for file in skills.values():
        assert file.skill
        assert (file.built_in, file.diagnostics) == (True, ())
        assert len(file.skill.text.splitlines()) < 60
