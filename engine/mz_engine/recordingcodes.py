"""Facts: the error codes about recordings, MZ6nnn. A code is never used twice, and never for something else."""

from __future__ import annotations

from mz_engine.errorcode import ErrorCode
from mz_engine.exits import Exit

RECORDINGS = (
    ErrorCode(
        "MZ6001",
        Exit.RECORDING,
        "there is nothing to replay",
        "A replay without recordings proves nothing, so it fails. A cassette is a folder with a cassette.yaml; a "
        "library is a folder of cassettes, `recordings/` unless `recordings:` in mz.yaml names another. `mz record` "
        "makes a cassette of a run.",
    ),
    ErrorCode(
        "MZ6002",
        Exit.RECORDING,
        "there is a cassette already",
        "Recordings are never replaced silently. Name another place with --to, or say --replace; what git knows can be "
        "had again from it.",
    ),
    ErrorCode(
        "MZ6003",
        Exit.RECORDING,
        "the run cannot be recorded",
        "Only what can happen again is recorded: features that have come to rest, by what their agents and people did. "
        "The message says of each feature why it is not among them.",
    ),
    ErrorCode(
        "MZ6004",
        Exit.SECRET,
        "a secret would be recorded",
        "A prompt, a patch, an artifact or a person's note holds a secret. These are never rewritten, so nothing was "
        "recorded. Take the secret out of the project and run again; consider it known and replace it.",
    ),
    ErrorCode(
        "MZ6005",
        Exit.NOT_COMPARABLE,
        "the cassette cannot be used",
        "It is damaged, was changed by hand, or a newer mz wrote it; or the folder holds something else. The message "
        "names the file. Restore it from git, or record it again.",
    ),
    ErrorCode(
        "MZ6010",
        Exit.NOT_COMPARABLE,
        "the past run cannot be replayed",
        "A past run is replayed by what it was started with: its pipeline, rules, templates and settings, which its "
        "log keeps. They were erased, or another version of mz wrote them in a form that this one cannot read.",
    ),
    ErrorCode(
        "MZ6020",
        Exit.RECORDING,
        "noise.yaml hides too much",
        "An entry of noise.yaml is refused, since it would hide more than noise, or the file cannot be read. An entry "
        "has `class` (ARTIFACT, COST or WIRE), `path` (such as `prd.text`, `usage.output`, or a pattern of lines from "
        "`^` to `$`) and `reason`; of COST also `within`, in per cent, up to 50. `cassette` and `until` narrow it.",
    ),
    ErrorCode(
        "MZ6021",
        Exit.NOT_COMPARABLE,
        "a baseline of streams cannot be read",
        "The file says what an agent's stream looks like; it is damaged or of another form. Restore it from git, or "
        "remove it and write it anew with `mz drift --update-wire --reason TEXT`.",
    ),
    ErrorCode(
        "MZ6030",
        Exit.INVALID,
        "not a transcript",
        "Nothing in the file can only be what an agent writes: it is empty, something else, or of a format that mz "
        "does not know. docs/transcripts.md lists those that it reads. With `--agent` only files of that agent are "
        "taken.",
    ),
)
