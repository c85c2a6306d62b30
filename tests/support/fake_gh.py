"""A stand-in for GitHub's `gh`, a program of its own: it refuses what gh's help does not list.

Keeps its state in the file FAKE_GH_STATE: pull requests, the checks of their heads as a test has planned them, reruns,
logs, and every call. FAKE_GH_FAULT is `FAULT` or `FAULT=COMMAND`, for that command only: `lost-request` and
`lost-reply` die before and after something was changed, once; `login`, `server-error` and `rate-limit` refuse; `hang`
never answers; `nonsense` answers what is no answer; `exit-codes` tells the state of checks by exit code too; `too-old`
is a version that cannot show checks as JSON.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any, NoReturn
from urllib.parse import parse_qsl, urlencode

from tests.support.fake_gh_help import COMMANDS

Arguments = dict[str, str]
State = dict[str, Any]
GREEN = ("SUCCESS", "NEUTRAL", "SKIPPED")
PENDING = ("QUEUED", "IN_PROGRESS", "WAITING", "REQUESTED", "PENDING", "EXPECTED")
RERUN = "rerun"
"""In a plan: it goes on from here when the run was started again."""
MOMENT = "2026-01-05T08:15:30.1234567Z"


def stop(code: int, text: str) -> NoReturn:
    sys.stderr.write(f"{text}\n")
    raise SystemExit(code)


# the command line -----------------------------------------------------------------------------------------------------
def parse(verb: str, args: list[str]) -> tuple[Arguments, list[str]]:
    """Flags by name and the arguments beside them."""
    command, texts = COMMANDS[verb], list(args)
    flags = command.flags()
    text_by_key: Arguments = {}
    arguments: list[str] = []
    while texts:
        word = texts.pop(0)
        if not word.startswith("-") or word == "-":
            arguments.append(word)
            continue
        typed, equals, value = word.partition("=")
        if typed not in flags:
            stop(1, f"unknown flag: {word}\n\nUsage:  gh {verb} [flags]")
        name, takes = flags[typed]
        if takes and not equals:
            value = texts.pop(0) if texts else stop(1, f"flag needs an argument: {typed}")
        text_by_key[name] = value if takes else "true"
    if len(arguments) > command.arguments:
        stop(1, f"accepts at most {command.arguments} arg(s), received {len(arguments)}")
    for field in text_by_key.get("json", "").split(",") if "json" in text_by_key else ():
        if field not in command.fields.split():
            stop(1, f'Unknown JSON field: "{field}"\nAvailable fields:\n  {command.fields}')
    return text_by_key, arguments


# state ----------------------------------------------------------------------------------------------------------------
@contextlib.contextmanager
def kept(file: str) -> Iterator[State]:
    """The state, written back at the end, with everybody else kept out meanwhile."""
    with open(f"{file}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        state = empty()
        with contextlib.suppress(FileNotFoundError), open(file) as old:
            state = json.load(old)
        try:
            yield state
        finally:
            text = json.dumps(state, indent=1)
            with open(file, "w") as new:
                new.write(text)


def empty() -> State:
    return {"calls": [], "pulls": [], "plans": [], "looks": {}, "reruns": [], "logs": {}, "heads": {}, "bare": ""}


def head_of(state: State, branch: str) -> str:
    """The commit that the forge has on a branch: as told, or what was pushed to its bare repository."""
    if not state["bare"]:
        return str(state["heads"].get(branch, "0" * 40))
    import subprocess  # It takes as long to import as all the rest of this program.

    command = ["git", f"--git-dir={state['bare']}", "rev-parse", "--verify", f"refs/heads/{branch}"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or "0" * 40


def look_at(state: State, head: str) -> dict[str, int]:
    """Where the plan of a commit stands: commits take the plans in the order in which they are seen."""
    at = {"plan": min(len(state["looks"]), max(0, len(state["plans"]) - 1)), "next": 0, "shown": 0}
    counts: dict[str, int] = state["looks"].setdefault(head, at)
    return counts


def plan_of(state: State, head: str) -> list[Any]:
    plan: list[Any] = state["plans"][look_at(state, head)["plan"]] if state["plans"] else [[]]
    return plan


def shown(state: State, head: str) -> list[dict[str, Any]]:
    """The checks as they were shown last."""
    look: list[dict[str, Any]] = plan_of(state, head)[look_at(state, head)["shown"]]
    return look


def checks_of_run(state: State, run: str) -> tuple[str, list[dict[str, Any]]]:
    """The newest commit that has such a run, and its checks."""
    for head in reversed(state["looks"]):
        documents = [check for check in shown(state, head) if f"/actions/runs/{run}" in check["link"] + "/"]
        if documents:
            return head, documents
    stop(1, f"failed to get run: HTTP 404: Not Found (https://api.github.com/repos/o/n/actions/runs/{run})")


# commands -------------------------------------------------------------------------------------------------------------
def create(texts: Arguments, state: State) -> str:
    if "body-file" in texts:
        with open(0 if texts["body-file"] == "-" else texts["body-file"]) as body:
            texts["body"] = body.read()
    if not {"title", "body", "head"} <= texts.keys():
        needed = "must provide `--title` and `--body` (or `--fill` or `fill-first` or `--fillverbose`)"
        stop(1, f"{needed} when not running interactively")
    repo, base = texts.get("repo", "owner/name"), texts.get("base", "main")
    for pull in state["pulls"]:
        if (pull["state"], pull["headRefName"], pull["baseRefName"]) == ("OPEN", texts["head"], base):
            stop(1, f'a pull request for branch "{texts["head"]}" into branch "{base}" already exists:\n{pull["url"]}')
    if state["bare"] and head_of(state, texts["head"]) == "0" * 40:
        stop(1, "pull request create failed: GraphQL: Head sha can't be blank, Head ref must be a branch")
    pull = new_pull(state, repo, texts["head"], base)
    pull.update(title=texts["title"], body=texts["body"], isDraft="draft" in texts)
    return f"{pull['url']}\n"


def new_pull(state: State, repo: str, head: str, base: str) -> dict[str, Any]:
    number = 1 + len(state["pulls"])
    host, name = ("github.com", repo) if repo.count("/") == 1 else repo.split("/", 1)
    url = f"https://{host}/{name}/pull/{number}"
    branches = {"headRefName": head, "baseRefName": base, "isCrossRepository": False}
    document = {"title": "", "body": "", "state": "OPEN", "isDraft": False, "mergeCommit": None}
    state["pulls"].append({"number": number, "url": url, **branches, **document})
    result: dict[str, Any] = state["pulls"][-1]
    return result


def fields(texts: Arguments, document: dict[str, Any]) -> dict[str, Any]:
    wanted = texts.get("json") or stop(1, "this stand-in shows JSON only")
    return {field: document[field] for field in wanted.split(",")}


def listed(texts: Arguments, state: State) -> str:
    which = texts.get("state", "open")
    if which not in ("open", "closed", "merged", "all"):
        stop(1, f'invalid argument "{which}" for "-s, --state" flag: valid values are {{open|closed|merged|all}}')
    fieldses = [
        fields(texts, pull)
        for pull in reversed(state["pulls"])
        if which in ("all", pull["state"].lower()) and pull["headRefName"] == texts.get("head", pull["headRefName"])
    ]
    return json.dumps(fieldses[: int(texts.get("limit", "30"))])


def pull_of(texts: Arguments, arguments: list[str], state: State) -> dict[str, Any]:
    if not arguments:
        stop(1, "argument required when using the `--repo` flag" if "repo" in texts else "no pull requests found")
    for pull in state["pulls"]:
        if arguments[0] in (str(pull["number"]), pull["url"], pull["headRefName"]):
            return {**pull, "headRefOid": head_of(state, pull["headRefName"])}
    stop(1, f"GraphQL: Could not resolve to a PullRequest with the number of {arguments[0]}. (repository.pullRequest)")


def checks(texts: Arguments, arguments: list[str], state: State) -> str:
    """One look; the plan goes on with the next one, unless a rerun comes first. An answer that there are none required
    is followed by the question for all, so it is no look."""
    pull = pull_of(texts, arguments, state)
    head = pull["headRefOid"]
    at, plan = look_at(state, head), plan_of(state, head)
    at["shown"] = at["next"]
    look = shown(state, head)
    documents = [check for check in look if check["required"] or "required" not in texts]
    if look and not documents:
        stop(1, f"no required checks reported on the '{pull['headRefName']}' branch")
    if at["next"] + 1 < len(plan) and plan[at["next"] + 1] != RERUN:
        at["next"] += 1
    if not look:
        stop(1, f"no checks reported on the '{pull['headRefName']}' branch")
    return json.dumps([fields(texts, check) for check in documents])


def exit_code(text: str) -> int:
    states = [check["state"] for check in json.loads(text)]
    if any(state not in GREEN + PENDING for state in states):
        return 1
    return 8 if any(state in PENDING for state in states) else 0


def run_state(checks: list[dict[str, Any]]) -> tuple[str, str]:
    states = [check["state"] for check in checks]
    if any(state in PENDING for state in states):
        return "in_progress", ""
    return "completed", "success" if all(state in GREEN for state in states) else "failure"


def rerun(inputs: Arguments, arguments: list[str], state: State) -> str:
    """gh has the same words for whatever GitHub refuses."""
    run = arguments[0] if arguments else stop(1, "`<run-id>` or `--job` required when not running interactively")
    head, documents = checks_of_run(state, run)
    if run_state(documents) != ("completed", "failure"):
        stop(1, f"run {run} cannot be rerun; its workflow file may be broken")
    state["reruns"].append(run)
    at, plan = look_at(state, head), plan_of(state, head)
    if at["next"] + 2 < len(plan) and plan[at["next"] + 1] == RERUN:
        at["next"] += 2
        at["shown"] = at["next"]
    return ""


def run_view(texts: Arguments, arguments: list[str], state: State) -> str:
    if "job" in texts:
        run = next((run for run, job in jobs(state) if job == texts["job"]), None)
        run = run or stop(1, f"failed to get job: HTTP 404: Not Found (/actions/jobs/{texts['job']})")
    else:
        run = arguments[0] if arguments else stop(1, "run or job ID required when not running interactively")
    _, documents = checks_of_run(state, run)
    status, conclusion = run_state(documents)
    if "json" in texts:
        return json.dumps(fields(texts, {"status": status, "conclusion": conclusion}))
    if "log-failed" not in texts:
        stop(1, "this stand-in shows JSON and logs only")
    if status != "completed":
        stop(1, f"run {run} is still in progress; logs will be available when it is complete")
    log = state["logs"].get(texts.get("job") or run)
    lines = stop(1, "log not found") if log is None else log.splitlines()
    return "".join(f"test\tRun tests\t{MOMENT} {line}\n" for line in lines)


def jobs(state: State) -> Iterator[tuple[str, str]]:
    """Runs with their jobs, as the links of all planned checks name them."""
    for plan in state["plans"]:
        for look in plan:
            for check in look if look != RERUN else ():
                yield from re.findall(r"/actions/runs/(\d+)/job/(\d+)", check["link"])


def page(documents: list[Any], query: str) -> list[Any]:
    """One page of a list, as GitHub's REST API cuts it: of 30, or of `per_page`, which is 100 at most."""
    values = dict(part.split("=") for part in query.split("&") if part)
    size, number = min(int(values.get("per_page", "30")), 100), int(values.get("page", "1"))
    return documents[(number - 1) * size : number * size]


def api(texts: Arguments, arguments: list[str], state: State) -> str:
    path = arguments[0] if arguments else stop(1, "accepts 1 arg(s), received 0")
    method = texts.get("method", "GET")
    patched = re.fullmatch(r"repos/[^/]+/[^/]+/pulls/(\d+)", path)
    logged = re.fullmatch(r"repos/[^/]+/[^/]+/actions/jobs/(\d+)/logs", path)
    if patched and method == "PATCH" and texts.get("input") == "-":
        pull = next((pull for pull in state["pulls"] if str(pull["number"]) == patched[1]), None)
        if pull is not None:
            pull.update(json.load(sys.stdin))
            return json.dumps(pull)
    listed = re.fullmatch(r"repos/[^/]+/[^/]+/((?:pulls|issues)/\d+/(?:reviews|comments))(?:\?([\w=&]*))?", path)
    if listed and method == "GET":
        return json.dumps(page((state.get("comments") or {}).get(listed[1], []), listed[2] or ""))
    written = re.fullmatch(r"repos/[^/]+/[^/]+/issues/(?:(\d+)/comments|comments/(\d+))", path)
    if written and method in ("POST", "PATCH") and texts.get("input") == "-":
        return comment(written[1], written[2], json.load(sys.stdin)["body"], state)
    labelled = re.fullmatch(r"repos/([^/]+/[^/]+)/issues\?([\w=&%+.-]*)", path)
    if labelled and method == "GET":
        query = dict(parse_qsl(labelled[2]))
        issues = [shown_issue(issue) for issue in state.get("issues", []) if is_listed(issue, query)]
        if state.get("lag"):
            state["lag"], issues = state["lag"] - 1, []
        issues = issues[::-1] if query.get("direction") == "desc" else issues
        return json.dumps(page(issues, urlencode({name: query[name] for name in ("per_page", "page")})))
    if re.fullmatch(r"repos/[^/]+/[^/]+/issues", path) and method == "POST" and texts.get("input") == "-":
        return json.dumps(shown_issue(new_issue(json.load(sys.stdin), path, state)))
    numbered = re.fullmatch(r"repos/[^/]+/[^/]+/issues/(\d+)", path)
    if numbered and (method == "GET" or (method == "PATCH" and texts.get("input") == "-")):
        return json.dumps(shown_issue(change_issue(int(numbered[1]), method, state)))
    if logged and method == "GET" and logged[1] in state["logs"]:
        lines = state["logs"][logged[1]].splitlines()
        return "".join(f"\ufeff{MOMENT} {line}\n" for line in lines)
    sys.stdout.write('{"message":"Not Found","status":"404"}')
    stop(1, "gh: Not Found (HTTP 404)")


def is_listed(issue: dict[str, Any], query: dict[str, str]) -> bool:
    """Whether an issue has the label, in any case, if one is asked for, and is still there."""
    labels = ("", *map(str.lower, issue["labels"]))
    return query.get("labels", "").lower() in labels and issue["state"] not in ("deleted", "moved")


def shown_issue(issue: dict[str, Any]) -> dict[str, Any]:
    """An issue as GitHub's REST API shows it."""
    return {**issue, "labels": [{"name": name, "color": "ededed"} for name in issue["labels"]]}


def new_issue(issue: dict[str, Any], path: str, state: State) -> dict[str, Any]:
    """Open an issue. Who may not write to the repository gets one without labels."""
    if len(issue["title"]) > 256:
        stop(1, "gh: Validation Failed (HTTP 422)")
    issues = state.setdefault("issues", [])
    number = 1 + max((other["number"] for other in issues), default=0)
    url = f"https://github.com/{path.removeprefix('repos/')}/{number}"
    labels = [] if state.get("read_only") else issue["labels"]
    issues.append({**issue, "number": number, "labels": labels, "state": "open", "html_url": url})
    result: dict[str, Any] = issues[-1]
    return result


def change_issue(number: int, method: str, state: State) -> dict[str, Any]:
    """An issue, changed or not; one that was moved to another repository has another number there."""
    issues: dict[int, dict[str, Any]] = {issue["number"]: issue for issue in state.get("issues", [])}
    issue = issues.get(number) or stop(1, "gh: Not Found (HTTP 404)")
    if issue["state"] == "deleted":
        stop(1, "gh: This issue was deleted (HTTP 410)")
    if method == "PATCH":
        if state.get("read_only"):
            stop(1, "gh: Must have admin rights to Repository. (HTTP 403)")
        issue.update(json.load(sys.stdin))
    return {**issue, "number": number + 1000} if issue["state"] == "moved" else issue


def comment(issue: str | None, number: str | None, body: str, state: State) -> str:
    """Write a new comment on an issue, or another text into one."""
    comments = state.setdefault("comments", {})
    if comments is None:
        stop(1, "gh: Resource not accessible by personal access token (HTTP 403)")
    if issue is not None:
        at = 1 + sum(map(len, comments.values()))
        comments.setdefault(f"issues/{issue}/comments", []).append({"id": at, "user": None, "body": body})
    for written in itertools.chain.from_iterable(comments.values()):
        if str(written.get("id")) == number:
            written["body"] = body
    return "{}"


# ----------------------------------------------------------------------------------------------------------------------
def answer(verb: str, texts: Arguments, arguments: list[str], state: State) -> str:
    match verb:
        case "pr create":
            return create(texts, state)
        case "pr list":
            return listed(texts, state)
        case "pr view":
            return json.dumps(fields(texts, pull_of(texts, arguments, state)))
        case "pr checks":
            return checks(texts, arguments, state)
        case "run view":
            return run_view(texts, arguments, state)
        case "run rerun":
            return rerun(texts, arguments, state)
        case _:
            return api(texts, arguments, state)


def refuse(fault: str, verb: str, texts: Arguments) -> None:
    """What goes wrong before anything is looked at."""
    if fault == "login":
        stop(4, "To get started with GitHub CLI, please run:  gh auth login")
    if fault == "server-error":
        stop(1, "HTTP 502: Bad gateway (https://someone:secret@api.github.com/graphql)")
    if fault == "rate-limit":
        stop(1, "HTTP 403: API rate limit exceeded for user ID 1. (https://api.github.com/graphql)")
    if fault == "too-old" and verb == "pr checks" and "json" in texts:
        stop(1, "unknown flag: --json\n\nUsage:  gh pr checks [<number> | <url> | <branch>] [flags]")
    if fault == "hang":
        time.sleep(3600)
    if fault == "nonsense":
        sys.stdout.write("<html>proxy login</html>")
        raise SystemExit(0)


def die_once(fault: str, state: State) -> bool:
    """Whether this is the time to die of it; it is remembered by whoever writes the state."""
    died: list[str] = state.setdefault("died", [])
    if fault in died:
        return False
    died.append(fault)
    return True


def main(args: list[str]) -> int:
    verb = next((verb for verb in COMMANDS if args[: len(verb.split())] == verb.split()), None)
    if verb is None:
        stop(1, f'unknown command "{" ".join(args[:2])}" for "gh"')
    file = os.environ["FAKE_GH_STATE"]
    texts, arguments = parse(verb, args[len(verb.split()) :])
    fault, _, only = os.environ.get("FAKE_GH_FAULT", "").partition("=")
    fault = fault if only in ("", verb) else ""
    changes = verb in ("pr create", "run rerun") or texts.get("method") in ("PATCH", "POST")
    with kept(file) as state:
        state["calls"].append(args)
    refuse(fault, verb, texts)
    with kept(file) as state:
        dies = changes and fault in ("lost-request", "lost-reply") and die_once(fault, state)
        text = "" if dies and fault == "lost-request" else answer(verb, texts, arguments, state)
    if dies:
        os.kill(os.getpid(), signal.SIGKILL)
    sys.stdout.write(text)
    return exit_code(text) if fault == "exit-codes" and verb == "pr checks" else 0
