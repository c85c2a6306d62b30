"""Wheels of a few bytes, and a package index on this machine that offers them to pip."""

from __future__ import annotations

import contextlib
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread


def make_wheel(folder: Path, name: str, version: str) -> Path:
    """A wheel that holds nothing but its metadata."""
    stem = f"{name.replace('-', '_')}-{version}"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{stem}-py3-none-any.whl"
    texts = {
        "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        "WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "RECORD": "",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for member, text in texts.items():
            archive.writestr(f"{stem}.dist-info/{member}", text)
    return path


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


@contextlib.contextmanager
def package_index(folder: Path, *packages: tuple[str, str]) -> Iterator[str]:
    """The address of an index that has these packages, each a name and a version; for `PIP_INDEX_URL`."""
    for name, version in packages:
        make_wheel(folder / "simple" / name, name, version)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(folder))) as server:
        thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/simple"
        finally:
            server.shutdown()
            thread.join()
