"""docs/transactions.md shows what a broker does today."""

from __future__ import annotations

from tests.node.transaction_walk import DOCUMENT, names, renewed, walked


async def test_the_document_shows_the_behaviour_of_a_transaction() -> None:
    """`python -m tests.node.transaction_walk` renews it."""
    document = DOCUMENT.read_text("utf-8")
    blocks = await walked()
    assert sorted(names(document)) == sorted(blocks)
    assert renewed(document, blocks) == document
