"""Which of two ways to count pairs of atoms is cheaper at the density at hand: arithmetic, and the rates it assumes.

Both count exactly, so the choice never changes a bit. The rates are those of one H100 (80 GB, HBM3). On another
card a wrong one costs time where both ways take about as long, nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

INT8_OPERATIONS: Final = 1.8e15
"""Multiplications and additions of int8 a second on tensor cores, in panels of 4,096 rows."""
FLOAT32_OPERATIONS: Final = 3.3e13
"""The same of float32 outside them."""
FLOAT64_OPERATIONS: Final = 5.8e13
"""The same of float64 on tensor cores."""
CACHE: Final = 40 << 20
"""Bytes of sums that stay in the cache of the device, of 50 MiB."""
ATOMICS_NEAR: Final = 7e10
"""Atomic additions a second to sums that stay there."""
ATOMICS_FAR: Final = 1.5e10
"""The same to larger sums: each moves a sector of 32 bytes to the chip and back."""
BYTES: Final = 1.7e12
"""Bytes a second that a kernel reads and writes in order."""


@dataclass(frozen=True)
class Work:
    """What is to be counted: the pairs of active atoms of some patches, into `rows` rows of the upper triangle.

    pairs : Σ_i l_i (l_i + 1) / 2 over patches of l_i active atoms, those with one atom twice included.
    entry_bytes : of the sums.
    """

    patches: int
    atoms: int
    rows: int
    pairs: int
    entry_bytes: int = 4


def area(atoms: int, rows: int, panel: int) -> int:
    """Return the entries of row panels of the upper triangle, each as wide as its first row.

    >>> area(4, 4, 1), area(4, 4, 4), area(4, 2, 1)
    (10, 16, 7)
    """
    return sum(min(panel, rows - start) * (atoms - start) for start in range(0, rows, panel))


def dense_seconds(work: Work, operations: float, block: int, panel: int) -> float:
    """Return the time that products of dense blocks of `block` patches would take, in row panels.

    2 x patches x area operations; codes written once as 1 byte an entry; each block's panels written, read
    and added to a sum that is read and written: at most 24 bytes an entry.
    """
    size = area(work.atoms, work.rows, panel)
    blocks = -(-work.patches // max(1, block))
    moved = work.patches * work.atoms + 24 * blocks * size
    return 2 * work.patches * size / operations + moved / BYTES


def sparse_seconds(work: Work) -> float:
    """Return the time that one atomic addition a pair would take."""
    near = work.entry_bytes * work.rows * work.atoms <= CACHE
    return work.pairs / (ATOMICS_NEAR if near else ATOMICS_FAR)


def sparse_is_cheaper(work: Work, operations: float, block: int, panel: int) -> bool:
    """Return whether atomic additions are the cheaper way; where both take as long, products are taken.

    >>> few, many = (Work(32768, 8192, 8192, 32768 * n * (n + 1) // 2) for n in (20, 208))
    >>> [sparse_is_cheaper(work, INT8_OPERATIONS, 32768, 1024) for work in (few, many)]
    [True, False]
    """
    return sparse_seconds(work) < dense_seconds(work, operations, block, panel)
