"""The documents can be read: proselint finds nothing in them (`make lint`), and their sentences are short."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])

MOST_WORDS = 40
STIFF = re.compile(
    r"\b(respectively|the former|the latter|thereof|therein|whereby|hereby|aforementioned|e\.g\.|i\.e\.)(?!\w)"
    r"|(?:^|[.:] )(?:Of (?!course)|Who )[^.?\n]*\.",
    re.MULTILINE,
)
"""Legal words, and sentences that don't begin with their subject."""


def prose(text: str) -> str:
    """Return the text without blocks, tables and comments. A link's text stays, and code becomes one word."""
    text = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"^\|.*$", "\n", text, flags=re.MULTILINE)
    text = re.sub(r"`[^`]*`", "code", text)
    return re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)


def sentences(text: str) -> list[str]:
    blocks = re.split(r"\n\s*\n|^\s*(?:[-#]+|\d+\.) ", prose(text), flags=re.MULTILINE)
    return [
        " ".join(sentence.split())
        for block in blocks
        for sentence in re.split(r"(?<=[.?!:;])\s+", block)
        if sentence
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_sentence_is_longer_than_one_breath(page: Path) -> None:
    long = [each for each in sentences(page.read_text("utf-8")) if len(each.split()) > MOST_WORDS]
    assert long == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_sentence_reads_like_a_statute(page: Path) -> None:
    assert [found[0] for found in STIFF.finditer(prose(page.read_text("utf-8")))] == []


def test_sentences_are_separated() -> None:
    text = (
        "# A title\n\nOne `x. y` [two](a.md). Three\nfour!\n\n```sh\nNone.\n```\n- five\n| six |\n\nEight.\n"
    )
    assert sentences(text) == ["A title", "One code two.", "Three four!", "five", "Eight."]
    assert STIFF.search("Who comes early waits.")
    assert not STIFF.search("Who comes early?")
