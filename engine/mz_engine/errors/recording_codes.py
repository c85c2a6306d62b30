"""The error codes of recordings, MZ6nnn. A code is never reused."""

from __future__ import annotations

from mz_engine.errors.error_code import ErrorCode
from mz_engine.errors.exits import Exit

RECORDING_CODES = (
    ErrorCode(
        "MZ6001",
        Exit.RECORDING,
        "there is nothing to replay",
        "A replay without recordings proves nothing, so it fails. A cassette is a folder with a cassette.yaml; a "
        "library is a folder of cassettes, by default `recordings/` (`recordings:` in mz.yaml). `mz record` makes a "
        "cassette from a run.",
    ),
    ErrorCode(
        "MZ6002",
        Exit.RECORDING,
        "the cassette already exists",
        "Recordings are never replaced silently. Choose another path with --to, or use --replace; committed recordings "
        "can be restored from git.",
    ),
    ErrorCode(
        "MZ6003",
        Exit.RECORDING,
        "the run cannot be recorded",
        "Only stopped features can be recorded, with the replies of their agents and the decisions of people. The "
        "message names the reason for each feature.",
    ),
    ErrorCode(
        "MZ6004",
        Exit.SECRET,
        "a secret would be recorded",
        "A prompt, a patch, an artifact or a person's note contains a secret. These are never rewritten, so nothing "
        "was recorded. Remove the secret from the project and run again; rotate it.",
    ),
    ErrorCode(
        "MZ6005",
        Exit.NOT_COMPARABLE,
        "the cassette cannot be used",
        "The cassette is damaged, was changed by hand, or was written by a newer mz; or the folder is no cassette. The "
        "message names the file. Restore it from git, or record it again.",
    ),
    ErrorCode(
        "MZ6010",
        Exit.NOT_COMPARABLE,
        "the past run cannot be replayed",
        "A past run is replayed with the pipeline, rules, templates and settings that its log stores. They were "
        "erased, or another version of mz wrote them in a format that this one cannot read.",
    ),
    ErrorCode(
        "MZ6020",
        Exit.RECORDING,
        "noise.yaml hides too much",
        "An entry of noise.yaml is rejected because it would hide more than noise, or the file cannot be read. An "
        "entry has `class` (ARTIFACT, COST or STREAM), `path` (such as `prd.text`, "
        "`usage.output`, or a pattern of lines "
        "from `^` to `$`) and `reason`; of COST also `within`, in per cent, up to 50. `cassette` and `until` limit it.",
    ),
    ErrorCode(
        "MZ6021",
        Exit.NOT_COMPARABLE,
        "a baseline of streams cannot be read",
        "The file describes the shape of an agent's stream; it is damaged or has another format. Restore it from git, "
        "or remove it and write it again with `mz drift --update-baseline -m TEXT`.",
    ),
    ErrorCode(
        "MZ6030",
        Exit.INVALID,
        "not a transcript",
        "The file is empty, is not written by an agent, or has a format that mz does not know; docs/transcripts.md "
        "lists the known ones. With `--agent` only files of that agent are accepted.",
    ),
)
