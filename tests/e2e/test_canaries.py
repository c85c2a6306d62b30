"""Canaries in every input of a real run are nowhere in what it leaves: log, blobs, spools, git's objects, recordings,
reports, temporary files, or what `mz` prints. A secret in a file that an agent hands over stops the run instead."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from mz_recordings.cassette.files import load

from tests.cli.drive import Result, fork
from tests.support import preloaded
from tests.support.canaries import ENVIRONMENT, SECRETS, USER, files, leaking, needles, objects, planted, survivors
from tests.support.workshop import BACKLOG, SETTINGS, Workshop

pytestmark = pytest.mark.slow

GATE = "leak --secrets; ! grep -rh broken notes"
SCRIPT: dict[str, object] = {
    "alpha.write.1.1": {"write": {"notes/alpha.md": "short"}, "run": "leak"},
    "alpha.write.1.2": {"write": {"notes/alpha.md": "# Alpha\nThis is broken, and long enough.\n"}, "run": "leak"},
    "alpha.write.1.3": {"write": {"notes/alpha.md": "# Alpha\nThis is long enough.\n"}, "run": "leak"},
    "alpha.sign.1.1": {"write": {"letters/alpha.md": "# Letter\nabout alpha\n"}},
}
BODY = "Please. Mind {GITHUB_TOKEN}, {ACME_LICENSE_KEY} and\n{SIGNING_KEY}\n{STRIPE_API_KEY} of {origin}."


class Scene:
    """A project with canaries in all that a run takes in, and everything that `mz` printed."""

    def __init__(self, folder: Path, trace: dict[str, object]) -> None:
        self.workshop = Workshop(folder, trace)
        self.root, self.temporary = self.workshop.root, folder / "tmp"
        self.temporary.mkdir()
        (folder / "home").rmdir()
        (folder / "people" / "home" / USER).mkdir(parents=True)
        (folder / "home").symlink_to(folder / "people" / "home" / USER)
        leaking(folder / "bin")
        settings = SETTINGS.replace('"! grep -rh broken notes"', json.dumps(GATE))
        settings += (
            "pass_environment: [ACME_LICENSE_KEY]\nworkspace: {setup: [leak], copy: [.env]}\nautonomy: supervised\n"
        )
        first, _, _ = BACKLOG.replace("Please.", BODY.format(**SECRETS), 1).partition("## [FEAT] beta")
        self.workshop.repository.commit({"mz.yaml": settings, ".gitignore": ".env\n.mz/\n"})
        (self.root / "features.md").write_text(first)  # Not committed: what is in git is the user's, and stays.
        planted(self.workshop.repository)
        outside = preloaded.read_at_start(os.environ)
        self.environment = {
            **self.workshop.environment, **outside, **ENVIRONMENT, "USER": USER, "TMPDIR": str(self.temporary),
        }  # fmt: skip
        self.printed: list[tuple[str, bytes]] = []

    def mz(self, *args: str) -> Result:
        done = fork(self.root, args, self.environment)
        self.printed += [(f"mz {' '.join(args)}: {name}", text.encode())
                         for name, text in (("stdout", done.out), ("stderr", done.err))]  # fmt: skip
        return done

    def left(self) -> Iterator[tuple[str, bytes]]:
        """All but the inputs themselves."""
        inputs = {self.root / name for name in (".env", "features.md", ".git/config")}
        yield from ((name, data) for name, data in files(self.root) if Path(name) not in inputs)
        yield from files(self.temporary)
        yield from files(self.workshop.folder / "people")
        yield from ((name, data) for name, data in objects(self.root))
        yield from self.printed


def test_no_canary_survives_a_run(tmp_path: Path) -> None:
    scene = Scene(tmp_path, SCRIPT)
    ran = scene.mz("run")
    assert ran.exit == 21, ran.err
    worktree = next((scene.root / ".mz" / "worktrees").glob("*/alpha/.env"))
    worktree.unlink()  # A copy that the settings asked for, of a file that is the user's.
    note = "now with {GITHUB_TOKEN} and {STRIPE_API_KEY}, {origin}".format(**SECRETS)
    assert scene.mz("review", "approve", "alpha", "-m", note).exit == 0
    assert scene.mz("resume").exit == 0
    for args in ("audit", "log", "status", "cost", "runs", "show alpha", "verify", "review list", "doctor"):
        assert scene.mz(*args.split(), "--json").exit == 0, args
    assert scene.mz("log").exit == 0
    made = scene.mz("record", "--to", "recordings/leaky")
    assert made.exit == 0, made.err
    reports = ("--junit", "junit.xml", "--sarif", "drift.sarif", "--html", "replay.html")
    played = scene.mz("replay", "--json", *reports)
    assert played.exit == 0, played.out + played.err
    assert scene.mz("recordings", "lint").exit == 0
    assert scene.mz("recordings", "list", "--json").exit == 0

    wanted = needles()
    left = list(scene.left())
    result = {name: hits for name, data in left if (hits := survivors(data, wanted))}
    assert result == {}
    content = b"".join(data for name, data in left if "unpacked" in name)
    assert content.count(b"says: <redacted>") > 50, "the canaries were there, and were taken out"

    assert places_in(scene) == {}
    for call in load(scene.root / "recordings" / "leaky").calls:
        stdout = call.recording.find("stdout")
        assert stdout is not None
        lines = call.contents[stdout.name].splitlines()
        assert sum(line.startswith(b"{") and bool(json.loads(line)) for line in lines) >= 2


def places_in(scene: Scene) -> dict[str, list[str]]:
    """What of this machine stands in the recording."""
    home = scene.workshop.folder
    wanted = {
        "user": (USER.encode(),),
        "home": (str(home / "home").encode(), str(home / "people").encode()),
        "repository": (str(scene.root).encode(), str(scene.root).replace("/", "%2F").encode()),
        "slug": (str(home / "home").replace("/", "-").encode(),),
    }
    kept = [(name, data) for name, data in files(scene.root / "recordings") if not name.endswith("repository.bundle")]
    return {name: hits for name, data in kept if (hits := survivors(data, wanted))}


def test_a_secret_that_is_handed_over_stops_the_run_and_is_not_recorded(tmp_path: Path) -> None:
    """What an agent leaves in the tree is never rewritten: a person is asked, and no recording is made of it."""
    output = f"# Alpha\nThis is long enough: {SECRETS['STRIPE_API_KEY']}\n"
    scene = Scene(tmp_path, {**SCRIPT, "alpha.write.1.1": {"write": {"notes/alpha.md": output}}})
    assert scene.mz("run").exit == 21
    (requested,) = json.loads(scene.mz("review", "list", "--json").out)["questions"]
    assert (requested["question_kind"], requested["code"]) == ("secret", "notes/alpha.md")
    made = scene.mz("record")
    assert (made.exit, "MZ6004" in made.err) == (5, True)
    assert "STRIPE_API_KEY" in made.err
    assert not (scene.root / "recordings").exists()
    wanted = needles()
    kept = {name for name, data in scene.left() if survivors(data, wanted)}
    assert all(name.startswith("blob ") or "worktrees" in name or "/.git/" in name for name in kept), kept
