"""What `gh` takes on its command line, by subcommand: the stand-in refuses everything else.

From gh's own help (`gh pr create --help` and so on, published as https://cli.github.com/manual): flags with a value,
flags without one, how many arguments may stand beside them, and the fields of `--json`.
"""

from __future__ import annotations

from typing import NamedTuple


class Command(NamedTuple):
    """Flags by name, with `/` and the letter where there is a short form."""

    values: str
    switches: str
    arguments: int = 0
    fields: str = ""

    def flags(self) -> dict[str, tuple[str, bool]]:
        """As they are typed, with their name and whether a value follows."""
        result = {}
        for text, takes in ((self.values, True), (self.switches, False)):
            for word in text.split():
                name, _, short = word.partition("/")
                result[f"--{name}"] = (name, takes)
                if short:
                    result[f"-{short}"] = (name, takes)
        return result


PULL_FIELDS = (
    "additions assignees author autoMergeRequest baseRefName baseRefOid body changedFiles closed closedAt "
    "closingIssuesReferences comments commits createdAt deletions files fullDatabaseId headRefName headRefOid "
    "headRepository headRepositoryOwner id isCrossRepository isDraft labels latestReviews maintainerCanModify "
    "mergeCommit mergeStateStatus mergeable mergedAt mergedBy milestone number potentialMergeCommit projectCards "
    "projectItems reactionGroups reviewDecision reviewRequests reviews state statusCheckRollup title updatedAt url"
)

COMMANDS = {
    "pr create": Command(
        "assignee/a base/B body/b body-file/F head/H label/l milestone/m project/p recover reviewer/r template/T "
        "title/t repo/R",
        "draft/d dry-run editor/e fill/f fill-first fill-verbose no-maintainer-edit web/w help",
    ),
    "pr list": Command(
        "app assignee/a author/A base/B head/H jq/q json label/l limit/L search/S state/s template/t repo/R",
        "draft/d web/w help",
        fields=PULL_FIELDS,
    ),
    "pr view": Command("jq/q json template/t repo/R", "comments/c web/w help", arguments=1, fields=PULL_FIELDS),
    "pr checks": Command(
        "interval/i jq/q json template/t repo/R",
        "fail-fast required watch web/w help",
        arguments=1,
        fields="bucket completedAt description event link name startedAt state workflow",
    ),
    "run view": Command(
        "attempt/a job/j jq/q json template/t repo/R",
        "exit-status log log-failed verbose/v web/w help",
        arguments=1,
        fields="attempt conclusion createdAt databaseId displayTitle event headBranch headSha jobs name number "
        "startedAt status updatedAt url workflowDatabaseId workflowName",
    ),
    "run rerun": Command("job/j repo/R", "debug/d failed help", arguments=1),
    "api": Command(
        "cache field/F header/H hostname input jq/q method/X preview/p raw-field/f template/t",
        "include/i paginate silent slurp verbose help",
        arguments=1,
    ),
}
