"""Puts the stand-in for `gh` on the PATH of what a test runs, tells it what to say, and looks at what it was
asked."""

from __future__ import annotations

import os
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

from tests.support.fake_gh import RERUN, kept, new_pull
from tests.support.tree import ROOT

PROGRAM = f"""#!{sys.executable} -SE
import sys
sys.path[0] = {str(ROOT)!r}
from tests.support.fake_gh import main
raise SystemExit(main(sys.argv[1:]))
"""
"""Begins in a few milliseconds; another package `tests` where it is called does not matter."""

STATES = {"pending": "IN_PROGRESS", "green": "SUCCESS", "red": "FAILURE"}
Look = str | Sequence[dict[str, Any]]
"""`pending`, `green` or `red` for the one check `CI / test`; or all checks, as `check` makes them."""


def check(
    name: str = "test",
    state: str = "SUCCESS",
    *,
    workflow: str = "CI",
    run: int | None = 100,
    job: int | None = None,
    required: bool = True,
    link: str = "",
) -> dict[str, Any]:
    """One check as GitHub has it. `run` and `job` of GitHub Actions, or a `link` to whoever else runs it."""
    if run is not None and not link:
        link = f"https://github.com/ada/engine/actions/runs/{run}/job/{job or run * 10}"
    return {"name": name, "state": state, "workflow": workflow, "link": link, "required": required}


class FakeGh:
    """A directory with `gh` in it, and all that it knows."""

    def __init__(self, directory: pathlib.Path) -> None:
        self._state = str(directory / "state.json")
        self._commands = directory / "commands"
        self._commands.mkdir(parents=True)
        gh = self._commands / "gh"
        gh.write_text(PROGRAM)
        gh.chmod(0o755)

    def environment(self, fault: str = "") -> dict[str, str]:
        """For the process that is to find this `gh`; faults: see the stand-in."""
        own = {"FAKE_GH_STATE": self._state, "FAKE_GH_FAULT": fault}
        return {**os.environ, **own, "PATH": f"{self._commands}{os.pathsep}{os.environ['PATH']}"}

    # what it was asked ------------------------------------------------------------------------------------------------
    @property
    def pulls(self) -> list[dict[str, Any]]:
        return self._read("pulls")

    @property
    def calls(self) -> list[list[str]]:
        return self._read("calls")

    @property
    def reruns(self) -> list[str]:
        """Ids of the runs that were started again."""
        return self._read("reruns")

    def _read(self, what: str) -> list[Any]:
        with kept(self._state) as state:
            result: list[Any] = state.get(what, [])
            return result

    # what it is to say ------------------------------------------------------------------------------------------------
    def plan(self, *heads: Sequence[Look]) -> None:
        """The checks of the first commit that is looked at, of the second, ...; the last plan is that of all others. Of
        one commit, each look shows the next entry, and the last one stays. `rerun` waits until a run was started
        again."""
        with kept(self._state) as state:
            state["plans"] = [[_look(look) for look in looks] for looks in heads]
            state["looks"] = {}

    def log(self, job: int, text: str) -> None:
        """What a job (or a run) has printed."""
        with kept(self._state) as state:
            state["logs"][str(job)] = text

    def opened(self, branch: str) -> None:
        """There is a pull request from this branch already."""
        with kept(self._state) as state:
            new_pull(state, "ada/engine", branch, "main")

    def push(self, branch: str, commit: str) -> None:
        """The forge has noticed a commit."""
        with kept(self._state) as state:
            state["heads"][branch] = commit

    def follow(self, bare: pathlib.Path) -> None:
        """The forge knows the branches of this bare repository."""
        with kept(self._state) as state:
            state["bare"] = str(bare)

    def comment(self, list_name: str, **document: Any) -> None:
        """Somebody writes a review (`pulls/1/reviews`) or a comment (`pulls/1/comments`, `issues/1/comments`)."""
        with kept(self._state) as state:
            state.setdefault("comments", {}).setdefault(list_name, []).append(document)

    def comments(self, list_name: str) -> list[dict[str, Any]]:
        with kept(self._state) as state:
            listed: list[dict[str, Any]] = state.get("comments", {}).get(list_name, [])
            return listed

    def refuse_comments(self) -> None:
        """Nobody may comment any more."""
        with kept(self._state) as state:
            state["comments"] = None

    def issue(self, number: int, title: str, body: str, labels: Sequence[str], state: str = "open") -> None:
        """Somebody opens an issue of `acme/tally`."""
        url = f"https://github.com/acme/tally/issues/{number}"
        with kept(self._state) as kept_state:
            kept_state.setdefault("issues", []).append(
                {
                    "number": number,
                    "title": title,
                    "body": body,
                    "labels": list(labels),
                    "state": state,
                    "html_url": url,
                }
            )

    @property
    def issues(self) -> list[dict[str, Any]]:
        return self._read("issues")

    def change_issue(self, number: int, **values: object) -> None:
        """As a person on the site would; the state may be `deleted` or `moved`."""
        with kept(self._state) as state:
            next(issue for issue in state["issues"] if issue["number"] == number).update(values)

    def lag(self, answers: int) -> None:
        """The next lists of issues have none yet."""
        with kept(self._state) as state:
            state["lag"] = answers

    def refuse_writing(self, read_only: bool = True) -> None:
        """Nobody may set labels or change issues any more."""
        with kept(self._state) as state:
            state["read_only"] = read_only

    def delete_comments(self, list_name: str) -> None:
        with kept(self._state) as state:
            del state["comments"][list_name]

    def close_all(self) -> None:
        """As a person on the site would."""
        self.change(state="CLOSED")

    def merge(self, branch: str, commit: str) -> None:
        """As a person on the site would."""
        self.change(branch, state="MERGED", mergeCommit={"oid": commit})

    def change(self, branch: str = "", **values: object) -> None:
        """What a pull request is, or all of them."""
        with kept(self._state) as state:
            for pull in state["pulls"]:
                if branch in ("", pull["headRefName"]):
                    pull.update(values)


def _look(look: Look) -> Any:
    if look == RERUN:
        return look
    return [check(state=STATES[look])] if isinstance(look, str) else list(look)
