"""Where things are. Each top-level folder holds one package and says what it is for; the tests mirror the packages."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.tree import PACKAGES, ROOT, kept_files, modules

TOP = {
    "action.yml",
    *(".ci", ".gitattributes", ".github", ".gitignore", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile"),
    *("ARCHITECTURE.md", "README.md", "docs", "pyproject.toml", "scripts", "tests"),
    *("mz.yaml", "pipelines", "tools"),
    *PACKAGES,
}
BESIDE_THE_PACKAGE = {"recordings": {"library"}}
TESTS_BESIDE_THE_PACKAGES = {"cases", "support", "e2e", "tools"}
FILE_BYTES_MAX = 2_000_000


def children(folder: str) -> set[str]:
    """Names of what git keeps directly in a folder."""
    return {path.parts[1] for path in kept_files() if path.parts[0] == folder and len(path.parts) > 1}


def test_the_top_holds_what_it_should() -> None:
    assert {path.parts[0] for path in kept_files()} <= TOP


@pytest.mark.parametrize("name", ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE"])
def test_the_project_introduces_itself(name: str) -> None:
    assert (ROOT / name).read_text("utf-8").strip()


@pytest.mark.parametrize("package", PACKAGES)
def test_a_folder_holds_one_package_and_a_page_about_itself(package: str) -> None:
    assert children(package) == {f"mz_{package}", "README.md"} | (
        BESIDE_THE_PACKAGE.get(package, set()) & children(package)
    )
    assert len((ROOT / package / "README.md").read_text("utf-8").split()) > 50
    assert Path(package, f"mz_{package}", "py.typed") in kept_files()


def test_every_package_begins_empty() -> None:
    """A re-export would load what its reader never asked for."""
    assert not [str(path) for path in kept_files() if path.name == "__init__.py" and (ROOT / path).stat().st_size]


def test_every_folder_of_modules_is_a_package() -> None:
    folders = {path.parent for path in kept_files() if path.suffix == ".py" and is_code(path)}
    assert not [str(folder) for folder in folders if not (ROOT / folder / "__init__.py").is_file()]


def is_code(path: Path) -> bool:
    """Not data that happens to be Python, such as a sample project or a test case."""
    return path.parts[0] in (*PACKAGES, "tests", "tools") and not {"bundled", "cases"} & set(path.parts)


def test_tests_mirror_the_packages() -> None:
    folders = {name for name in children("tests") if (ROOT / "tests" / name).is_dir()}
    assert folders == set(PACKAGES) | (TESTS_BESIDE_THE_PACKAGES & folders)
    for package in {path.parts[0] for path in modules(*PACKAGES)}:
        assert any(path.name.startswith("test_") for path in modules("tests") if path.parts[1] == package), package


def test_files_are_small() -> None:
    assert not [str(path) for path in kept_files() if (ROOT / path).stat().st_size > FILE_BYTES_MAX]
