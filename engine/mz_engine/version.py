"""The version of `mz`, as runs record it."""

VERSION = "0.1.0"
