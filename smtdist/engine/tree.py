"""The fixed tree that floating-point partial sums meet in: a function of the number of leaves alone.

Node (level, index) covers leaves [index 2^level, (index + 1) 2^level), cut off at the last leaf. Its value
is its left child's merged with its right child's; where the right child has no leaves it is the left child's.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Node:
    """One node of the tree."""

    level: int
    index: int

    @property
    def first(self) -> int:
        """First leaf under the node."""
        return self.index << self.level

    def leaves(self, n_leaves: int) -> tuple[int, int]:
        """Return the range of leaves under the node."""
        return self.first, min((self.index + 1) << self.level, n_leaves)


def promoted(node: Node, n_leaves: int) -> Node:
    """Return the highest node with the same leaves as `node` that is not the right child of a fuller one.

    >>> promoted(Node(0, 4), 5), promoted(Node(0, 3), 5)
    (Node(level=2, index=1), Node(level=0, index=3))
    """
    while node.index % 2 == 0 and ((node.index + 1) << node.level) >= n_leaves and node != root(n_leaves):
        node = Node(node.level + 1, node.index // 2)
    return node


def root(n_leaves: int) -> Node:
    """Return the node over all leaves."""
    return Node((n_leaves - 1).bit_length(), 0)


def sibling(node: Node) -> Node:
    """Return the other child of the node's parent."""
    return Node(node.level, node.index ^ 1)


def parent(node: Node) -> Node:
    """Return the node above."""
    return Node(node.level + 1, node.index // 2)


def nodes_over(first: int, last: int, level: int, n_leaves: int) -> list[Node]:
    """Return the fewest nodes of at most `level` that cover leaves `first` to `last` (excluded), which nodes can cover.

    >>> nodes_over(1, 5, 1, 5)
    [Node(level=0, index=1), Node(level=1, index=1), Node(level=2, index=1)]
    """
    nodes, at = [], first
    while at < last:
        up = min(level, root(n_leaves).level)
        while at % (1 << up) or Node(up, at >> up).leaves(n_leaves)[1] > last:
            up -= 1
        nodes.append(promoted(Node(up, at >> up), n_leaves))
        at = nodes[-1].leaves(n_leaves)[1]
    return nodes
