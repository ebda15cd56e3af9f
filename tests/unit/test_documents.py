"""What the documents say about the code is true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
OF_THE_WHEEL = ("barnabas/server/",)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_file_that_a_document_links_to_exists(document: Path) -> None:
    links = re.findall(r"\]\((?!\w+:)([^)#]+)", document.read_text("utf-8"))
    assert [link for link in links if not (document.parent / link).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_heading_that_a_document_links_to_exists(document: Path) -> None:
    for path, anchor in re.findall(r"\]\((?!\w+:)([^)#]*)#([^)]+)\)", document.read_text("utf-8")):
        text = (document.parent / path if path else document).read_text("utf-8")
        headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
        assert anchor in {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_file_of_the_checkout_that_a_document_names_exists(document: Path) -> None:
    """A document names a path from the root, or the beginning of one."""
    folders = "|".join(path.name for path in ROOT.iterdir() if path.is_dir() and path.name.isalpha())
    named = re.findall(rf"`((?:{folders})/[\w/.-]*)", document.read_text("utf-8"))
    assert [
        path for path in named if path not in OF_THE_WHEEL and not [*ROOT.glob(f"{path.rstrip('/')}*")]
    ] == []


def test_every_make_target_that_a_document_names_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    named = {
        target
        for document in DOCUMENTS
        for target in re.findall(r"`make ([a-z-]+)", document.read_text("utf-8"))
    }
    assert named
    assert named <= targets


def test_the_way_of_a_new_api_leads_through_every_registry() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    way = text.partition("## Where a new API goes")[2].partition("\n## ")[0]
    for registry in (
        "protocol/messages/",
        "protocol/apis.py",
        "broker/handlers/__init__.py",
        "tests/compare/scripts/",
    ):
        assert registry in way
        assert (ROOT / registry).exists()
