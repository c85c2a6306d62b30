"""Wheels of a few bytes, and a package index on this machine that offers them to pip."""

from __future__ import annotations

import contextlib
import os
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit


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


INDEX = "http://index.example/simple"


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass

    def translate_path(self, path: str) -> str:
        return super().translate_path(urlsplit(path).path)  # A proxy gets whole addresses.


@contextlib.contextmanager
def package_index(folder: Path, *packages: tuple[str, str]) -> Iterator[dict[str, str]]:
    """The variables with which pip uses an index that has these packages, each a name and a version. Its address is no
    loopback: the server is a proxy for a host that does not exist."""
    for name, version in packages:
        make_wheel(folder / "simple" / name, name, version)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(folder))) as server:
        thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            proxy = f"http://127.0.0.1:{server.server_port}"
            own = {"PIP_INDEX_URL": INDEX, "PIP_TRUSTED_HOST": "index.example", "PIP_CONFIG_FILE": os.devnull}
            yield {**own, "PIP_PROXY": proxy, "no_proxy": "", "NO_PROXY": ""}
        finally:
            server.shutdown()
            thread.join()
