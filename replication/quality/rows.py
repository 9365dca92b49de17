"""Rows of representations in several files."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(eq=False)
class Rows:
    """Rows that lie in several files, sliced as one array."""

    parts: list[NDArray[Any]] = field(default_factory=list)

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows, features."""
        return (sum(map(len, self.parts)), *self.parts[0].shape[1:])

    @property
    def dtype(self) -> Any:
        """Of the values."""
        return self.parts[0].dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        start, stop, _ = rows.indices(len(self))
        edges = [0, *itertools.accumulate(map(len, self.parts))]
        found = [
            part[max(0, start - first) : max(0, stop - first)]
            for part, first in zip(self.parts, edges, strict=False)
        ]
        return np.concatenate([one for one in found if len(one)] or [self.parts[0][:0]])
