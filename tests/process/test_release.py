"""The page of a release: its links lead somewhere, and its labels exist."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("hatchling")

from hatch_build import CustomMetadataHook, page, urls
from tests.support.house import FLOORS, sources

ROOT = Path(__file__).parents[2]
URL = "https://example.org/us/barnabas"


def metadata() -> dict[str, object]:
    found: dict[str, object] = {}
    CustomMetadataHook(str(ROOT), {}).update(found)
    return found


def test_every_link_of_the_page_is_absolute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROJECT_URL", URL + "/")
    made = metadata()
    assert isinstance(made["readme"], dict)
    text = made["readme"]["text"]
    targets = re.findall(r"\]\(([^)]+)\)", text)
    assert targets
    assert [target for target in targets if not target.startswith(("https://", "#"))] == []
    assert f"]({URL}/blob/main/GAPS.md)" in text
    assert f"]({URL}/raw/main/docs/flights-delays.png)" in text
    assert made["urls"] == urls(URL)


def test_links_that_are_whole_stay_as_they_are() -> None:
    text = "[a](https://a.org/b) [c](#c) [d](d.md#e) ![f](f.png)"
    assert page(text, URL) == (
        f"[a](https://a.org/b) [c](#c) [d]({URL}/blob/main/d.md#e) ![f]({URL}/raw/main/f.png)"
    )


def test_without_an_address_the_page_is_the_readme(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PROJECT_URL", raising=False)
    text = (ROOT / "README.md").read_text("utf-8")
    assert metadata() == {"readme": {"content-type": "text/markdown", "text": text}, "urls": {}}


def test_the_labels_are_ones_that_there_are() -> None:
    classifiers = pytest.importorskip("trove_classifiers").classifiers
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["classifiers"]
    assert set(project["classifiers"]) <= classifiers


def test_quick_tests_have_the_floors_imports() -> None:
    """`tests/unit` imports every module, and `make quick` is a newcomer's first command."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    asked = [*extras["quick"]]
    for extra in re.findall(r"\w+", re.search(r"barnabas\[(.*?)\]", " ".join(asked))[1]):  # type: ignore[index]
        asked += extras[extra]
    installed = {re.split(r"[\[>=<;~ ]", each)[0].replace("-", "_") for each in asked} | {"crc32c", "uvloop"}
    imported = {
        name
        for source in sources("protocol", "storage", "coordinator", "broker")
        for node in source.tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [each.name for each in node.names] if isinstance(node, ast.Import) else [node.module or ""]
        )
    }
    theirs = {name.partition(".")[0] for name in imported} - {
        *sys.stdlib_module_names,
        *FLOORS,
        "cli",
        "barnabas",
    }
    assert "h11" in theirs
    assert theirs <= installed
