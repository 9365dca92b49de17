"""What data a result was made from: one hash a leaf, taken while the samples pass by."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

DIGEST_BYTES: Final = 16


class LeafHasher:
    """Hashes the raw bytes of a leaf's samples in order, in whatever batches they come.

    >>> whole, pieces = LeafHasher(), LeafHasher()
    >>> samples = np.arange(12, dtype=np.uint8).reshape(3, 2, 2, 1)
    >>> whole.update(samples); pieces.update(samples[:1]); pieces.update(samples[1:])
    >>> whole.hexdigest() == pieces.hexdigest()
    True
    """

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=DIGEST_BYTES)

    def update(self, samples: npt.NDArray[Any]) -> None:
        """Add the next samples of the leaf; bytes count in row-major, little-endian order."""
        little = samples.astype(samples.dtype.newbyteorder("<"), copy=False)
        self._hash.update(np.ascontiguousarray(little).reshape(-1).view(np.uint8).data)

    def hexdigest(self) -> str:
        """Return the hash of everything added so far as 32 hexadecimal digits."""
        return self._hash.hexdigest()


def combine(digests: Iterable[str], shape: Sequence[int], dtype: Any) -> str:
    """Return one hash of the leaves' hashes in leaf order, the shape and the dtype of the data.

    >>> combine(["00" * 16], (1, 2, 2, 1), "uint8") == combine(["00" * 16], (1, 4, 1, 1), "uint8")
    False
    """
    text = json.dumps([[int(length) for length in shape], np.dtype(dtype).name, list(digests)])
    return hashlib.blake2b(text.encode(), digest_size=DIGEST_BYTES).hexdigest()
