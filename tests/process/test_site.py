"""The book as a site: it builds without a warning, and a link that leads nowhere is an error."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mkdocs", reason="needs MkDocs, of the extra docs")

from docs.site_pages import linked

ROOT = Path(__file__).parents[2]


def built(checkout: Path, into: Path) -> subprocess.CompletedProcess[str]:
    """Build the site as `make site` does."""
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(into)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a copy of the checkout's documents, which a test may spoil."""
    shutil.copytree(ROOT / "docs", tmp_path / "copy" / "docs")
    for file in (*ROOT.glob("*.md"), ROOT / "mkdocs.yml"):
        shutil.copy(file, tmp_path / "copy")
    return tmp_path / "copy"


def test_the_site_is_built_with_every_document(tmp_path: Path) -> None:
    done = built(ROOT, tmp_path)
    assert done.returncode == 0, done.stderr
    for document in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")):
        name = document.relative_to(ROOT / "docs" if "docs" in document.parts[-3:] else ROOT).with_suffix("")
        page = tmp_path / (name.parent if name.name in ("index", "README") else name) / "index.html"
        assert page.exists(), page


@pytest.mark.parametrize("link", ["[there](nowhere.md)", "[there](start.md#nowhere)"])
def test_a_link_that_leads_nowhere_is_an_error(copy: Path, tmp_path: Path, link: str) -> None:
    with (copy / "docs" / "compared.md").open("a") as page:
        page.write(f"\n{link}\n")
    done = built(copy, tmp_path / "site")
    assert done.returncode != 0
    assert "nowhere" in done.stderr


def test_links_lead_to_pages_or_into_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = {"README.md", "GAPS.md", "start.md", "decisions/index.md", "pictures/a.png"}
    monkeypatch.delenv("PROJECT_URL", raising=False)
    assert linked("[g](../GAPS.md#a)", "docs", "", pages) == "[g](GAPS.md#a)"
    assert linked("[g](../../GAPS.md)", "docs/decisions", "decisions", pages) == "[g](../GAPS.md)"
    assert linked("![p](docs/pictures/a.png)", "", "", pages) == "![p](pictures/a.png)"
    assert linked("[m](Makefile)", "", "", pages) == "m"
    monkeypatch.setenv("PROJECT_URL", "https://example.org/us/barnabas/")
    assert (
        linked("[m](../Makefile)", "docs", "", pages)
        == "[m](https://example.org/us/barnabas/blob/main/Makefile)"
    )
    assert linked("[w](https://a.org) [h](#here)", "docs", "", pages) == "[w](https://a.org) [h](#here)"
