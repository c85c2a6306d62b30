"""Canaries: secrets of many shapes, a program that tells them in every way in which output may hold them, and
a search for them through every byte that a run leaves."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from base64 import b32decode, b64decode
from collections.abc import Iterator, Mapping
from pathlib import Path

import zstandard

from tests.support.gitrepo import GitRepo

PEM_BODY = "\n".join(
    f"MIIEv{number}IBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us{number}" for number in range(4)
)
PEM = f"-----BEGIN PRIVATE KEY-----\n{PEM_BODY}\n-----END PRIVATE KEY-----\n"
ENVIRONMENT = {
    "ANTHROPIC_API_KEY": "canary-of-the-login-3f1c77",
    "GITHUB_TOKEN": "canary-of-the-forge-8a02d1",
    "ACME_LICENSE_KEY": 'canary-license is/passed-along?&é"\\9b',
    "SIGNING_KEY": PEM,
    "TWO_LINES_SECRET": "canary-of-two\nlines-51d0aa",
    "DATABASE_URL": "postgres://shop:canary-in-a-url-77e9@db.example/shop",
}
DOTENV = "canary-of-dotenv-e1b2c3d4"
REMOTE = "canary-of-the-remote-b7c6"
UNKNOWN = "ghp_" + "Canary7Q" * 5
"""In no variable: only its shape tells."""
SECRETS = {
    **{name: value for name, value in ENVIRONMENT.items() if name != "DATABASE_URL"},
    "DATABASE_URL": "canary-in-a-url-77e9",
    "STRIPE_API_KEY": DOTENV,
    "origin": REMOTE,
}
USER = "zoequickfox"

LEAK = """#!{python} -IS
import base64, json, os, subprocess, sys, time, urllib.parse
known = json.loads({known!r})
def forms(value):
    raw = value.encode()
    yield raw
    once = json.dumps(value)[1:-1]
    yield from (once.encode(), json.dumps(value, ensure_ascii=False)[1:-1].encode(), json.dumps(once)[1:-1].encode())
    yield from (urllib.parse.quote(value, safe="").encode(), urllib.parse.quote_plus(value).encode())
    yield urllib.parse.quote(value, safe="").lower().encode() if value.islower() else raw
    yield from (raw.hex().encode(), raw.hex().upper().encode(), base64.b32encode(b"xyz" + raw + b"tail"))
    yield raw[:6] + b"\x1b[01;31m" + raw[6:11] + b"\x1b[m" + raw[11:]
    for before in (b"", b"x", b"xy"):
        yield base64.b64encode(before + raw + b"tail")
        yield base64.urlsafe_b64encode(before + raw + b"tail")
def slow(stream, data):
    for part in (data[: len(data) // 2], data[len(data) // 2 :]):
        os.write(stream, part)
        time.sleep(0.002)
for stream in (1, 2):
    for value in (*known.values(), {unknown!r}):
        for form in forms(value):
            os.write(stream, b"says: " + form + b"\\n")
        slow(stream, b"in pieces: " + value.encode() + b"\\n")
        line = {{"type": "assistant", "message": {{"role": "assistant", "content": [
            {{"type": "text", "text": "told " + value + " as " + urllib.parse.quote(value)}}]}}}}
        slow(stream, json.dumps(line).encode() + b"\\n")
    if "--secrets" in sys.argv:
        continue
    home, here = os.environ["HOME"], os.getcwd()
    for path in (home, os.path.realpath(home), here):
        for word in (path + "/x", json.dumps(path).replace("/", "\\\\/"), "file://" + path + "/y",
                     "?at=" + urllib.parse.quote(path + "/z", safe=""), "at%3D" + urllib.parse.quote(path, safe=""),
                     "/root/.claude/projects/" + "".join(c if c.isalnum() else "-" for c in path) + "/s.jsonl",
                     base64.b64encode(b"in " + path.encode() + b"/w").decode()):
            os.write(stream, (word + "\\n").encode())
    subprocess.run(["git", "remote", "-v"], stdout=stream, stderr=stream)
"""


def leaking(folder: Path) -> Path:
    """The program, in a directory for PATH."""
    program = folder / "leak"
    program.write_text(LEAK.format(python=sys.executable, known=json.dumps(SECRETS), unknown=UNKNOWN))
    program.chmod(0o755)
    return program


def planted(repository: GitRepo) -> None:
    """In a file that git ignores, and in the login to the remote."""
    (repository.root / ".env").write_text(f"export STRIPE_API_KEY='{DOTENV}'\nDEBUG=true\n")
    repository.git("remote", "add", "origin", f"https://bot:{REMOTE}@git.example.invalid/shop.git")


# looking --------------------------------------------------------------------------------------------------------------
def needles() -> dict[str, tuple[bytes, ...]]:
    """Of each canary, what no byte may show: parts of it that look the same however it is written."""
    result = {
        name: tuple(word.encode() for word in re.findall(r"[A-Za-z0-9-]{8,}", value)) for name, value in SECRETS.items()
    }
    return {**result, "SIGNING_KEY": tuple(line.encode() for line in PEM_BODY.splitlines()), "ghp": (UNKNOWN.encode(),)}


def survivors(data: bytes, wanted: Mapping[str, tuple[bytes, ...]]) -> list[str]:
    """Names of the canaries that the data holds, plain or encoded."""
    texts = [data, *_unpacked(data)]
    return [name for name, contents in wanted.items() if any(word in text for word in contents for text in texts)]


def _unpacked(data: bytes) -> Iterator[bytes]:
    yield re.sub(rb"\x1b\[[0-9;]*m", b"", data)
    for run in re.findall(rb"(?:[0-9A-Fa-f]{2}){16,}", data):
        yield bytes.fromhex(run.decode())
    for run in re.findall(rb"[A-Z2-7]{24,}", data):
        for begin in range(8):
            yield b32decode(run[begin : begin + (len(run) - begin) // 8 * 8])
    for run in re.findall(rb"[A-Za-z0-9+/_-]{12,}", data):
        for begin in range(4):
            word = run[begin:].replace(b"-", b"+").replace(b"_", b"/")
            yield b64decode(word[: len(word) // 4 * 4])


def files(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Every file below the place, those of a blob store unpacked."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            data = path.read_bytes()
            yield str(path), data
            if data.startswith(b"\x28\xb5\x2f\xfd"):
                yield f"{path} (unpacked)", zstandard.ZstdDecompressor().decompressobj().decompress(data)


def objects(root: Path) -> Iterator[tuple[str, bytes]]:
    """Every object that git has, and the names of all refs."""
    git = ["git", "-C", str(root)]
    listed = subprocess.run([*git, "cat-file", "--batch-all-objects", "--batch"], capture_output=True, check=True)
    output = io.BytesIO(listed.stdout)
    for line in iter(output.readline, b""):
        oid, kind, size = line.decode().split()
        yield f"{kind} {oid}", output.read(int(size) + 1)
    yield "refs", subprocess.run([*git, "for-each-ref"], capture_output=True, check=True).stdout
