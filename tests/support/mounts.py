"""Runs a command with a small file system of its own, to meet full and read-only disks for real."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

MOUNT = 'mount -t tmpfs -o "size=$1" tmpfs "$2" && cd "$3" && dir="$2" && shift 3 && exec "$@" "$dir"'
"""As root in a mount namespace, or as any user in a user namespace of which that user is root."""


def in_small_filesystem(directory: Path, size: str, argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Runs `argv` with one more argument, `directory`, where an empty file system of `size` (`2m`) is mounted that
    nobody else sees. The command may remount it."""
    directory.mkdir(exist_ok=True)
    unshare = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]
    shell = ["sh", "-c", MOUNT, "sh", size, str(directory), str(Path(__file__).parents[2]), *argv]
    return subprocess.run([*unshare, *shell], capture_output=True, text=True, timeout=120, check=False)
