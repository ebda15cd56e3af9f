"""The tree that java.util.HashMap makes of a bucket with more than 8 keys, for the order in which it is walked.

A red-black tree by hash and then by the keys themselves. It is walked not by the tree but by a chain through its nodes:
a new node comes after its parent in the tree, and whichever node is the root comes first. So the chain's order depends
on the tree's shape, which is kept here as the textbook (and HashMap.TreeNode) keeps it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

UNTREEIFY_THRESHOLD = 6


class _Node:
    __slots__ = ("key", "left", "order", "parent", "red", "right")

    def __init__(self, key: Any, order: tuple[int, Any]) -> None:
        self.key = key
        self.order = order
        self.parent: _Node | None = None
        self.left: _Node | None = None
        self.right: _Node | None = None
        self.red = True


def _comparable(key: Any) -> Any:
    """What `compareTo` goes by: UTF-16 units of strings, the two signed longs of uuids, numbers themselves, the parts
    of a record."""
    if isinstance(key, str):
        return key.encode("utf-16-be", "surrogatepass")
    if isinstance(key, bytes):
        return (int.from_bytes(key[:8], "big", signed=True), int.from_bytes(key[8:], "big", signed=True))
    if isinstance(key, tuple):
        return tuple(map(_comparable, key))
    return key


class TreeBin:
    """`hash_of` gives a key's spread hash, signed."""

    __slots__ = ("_chain", "_hash_of", "_nodes", "_root", "is_too_small")

    def __init__(self, keys: Iterable[Any], hash_of: Callable[[Any], int]) -> None:
        self._hash_of = hash_of
        self._chain = [*keys]
        self._nodes: dict[Any, _Node] = {}
        self._root: _Node | None = None
        self.is_too_small = False
        """Whether the last removal made a list of it again."""
        for key in self._chain:
            self._insert(key)
        self._root_to_front()

    def __len__(self) -> int:
        return len(self._chain)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._chain)

    def append(self, key: Any) -> None:
        """Add a key that isn't there."""
        parent = self._insert(key)
        self._chain.insert(self._chain.index(parent) + 1, key)
        self._root_to_front()

    def part(self, keys: list[Any]) -> TreeBin | list[Any]:
        """What becomes of these keys of it as the table doubles, in their order."""
        if len(keys) <= UNTREEIFY_THRESHOLD:
            return keys
        return self if len(keys) == len(self._chain) else TreeBin(keys, self._hash_of)

    def remove(self, key: Any) -> None:
        self._chain.remove(key)
        root = self._root
        if root is None or root.right is None or root.left is None or root.left.left is None:
            self.is_too_small = True
            return
        self._take_out(self._nodes.pop(key))
        self._root_to_front()

    def _root_to_front(self) -> None:
        if self._root is not None and self._chain[0] != self._root.key:
            self._chain.remove(self._root.key)
            self._chain.insert(0, self._root.key)

    def _insert(self, key: Any) -> Any:
        """Add a leaf; the key of the node above it at that moment."""
        node = _Node(key, (self._hash_of(key), _comparable(key)))
        self._nodes[key] = node
        above = None
        below = self._root
        while below is not None:
            above = below
            below = below.left if node.order < below.order else below.right
        node.parent = above
        if above is None:
            node.red = False
            self._root = node
            return None
        if node.order < above.order:
            above.left = node
        else:
            above.right = node
        self._balance_insertion(node)
        return above.key

    def _rotate(self, node: _Node, to_left: bool) -> None:
        child = node.right if to_left else node.left
        assert child is not None
        inner = child.left if to_left else child.right
        if to_left:
            node.right, child.left = inner, node
        else:
            node.left, child.right = inner, node
        if inner is not None:
            inner.parent = node
        self._replace(node, child)
        node.parent = child

    def _replace(self, node: _Node, by: _Node | None) -> None:
        above = node.parent
        if by is not None:
            by.parent = above
        if above is None:
            self._root = by
        elif above.left is node:
            above.left = by
        else:
            above.right = by

    def _balance_insertion(self, node: _Node) -> None:
        while (above := node.parent) is not None and above.red:
            top = above.parent
            assert top is not None
            on_left = above is top.left
            uncle = top.right if on_left else top.left
            if uncle is not None and uncle.red:
                above.red = uncle.red = False
                top.red = True
                node = top
                continue
            if node is (above.right if on_left else above.left):
                self._rotate(above, on_left)
                node, above = above, node
            above.red = False
            top.red = True
            self._rotate(top, not on_left)
        assert self._root is not None
        self._root.red = False

    def _take_out(self, node: _Node) -> None:
        if node.left is not None and node.right is not None:
            self._swap_with_successor(node)
        child = node.left if node.left is not None else node.right
        if child is not None:
            self._replace(node, child)
            if not node.red:
                self._balance_deletion(child)
        else:
            if not node.red:
                self._balance_deletion(node)
            self._replace(node, None)

    def _swap_with_successor(self, node: _Node) -> None:
        after = node.right
        assert after is not None
        while after.left is not None:
            after = after.left
        node.red, after.red = after.red, node.red
        above, right = after.parent, after.right
        left, node_right = node.left, node.right
        self._replace(node, after)
        after.left = left
        assert left is not None
        left.parent = after
        if above is node:
            after.right = node
            node.parent = after
        else:
            after.right = node_right
            assert node_right is not None
            assert above is not None
            node_right.parent = after
            above.left = node
            node.parent = above
        node.left, node.right = None, right
        if right is not None:
            right.parent = node

    def _balance_deletion(self, node: _Node) -> None:
        while node is not self._root and not node.red:
            above = node.parent
            assert above is not None
            on_left = node is above.left
            other = above.right if on_left else above.left
            assert other is not None
            if other.red:
                other.red = False
                above.red = True
                self._rotate(above, on_left)
                other = above.right if on_left else above.left
                assert other is not None
            near, far = (other.left, other.right) if on_left else (other.right, other.left)
            if not (near is not None and near.red) and not (far is not None and far.red):
                other.red = True
                node = above
                continue
            if far is None or not far.red:
                assert near is not None
                near.red = False
                other.red = True
                self._rotate(other, not on_left)
                other, far = near, other
            other.red = above.red
            if far is not None:
                far.red = False
            above.red = False
            self._rotate(above, on_left)
            break
        else:
            node.red = False
            return
