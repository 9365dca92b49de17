"""What data a result was made from: one hash a sample, taken while the samples pass by."""

from __future__ import annotations

import hashlib
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from isal import isal_zlib

DIGEST_BYTES: Final = 8
FINGERPRINT_BYTES: Final = 16

Digests = npt.NDArray[np.uint64]
"""One 64-bit hash a sample: among ten million different samples two agree with a probability below 3 in a million."""


def sample_digests(samples: npt.NDArray[Any]) -> Digests:
    """Return the hash of each sample: of its shape, its type and its raw bytes, row-major and little-endian.

    The hash knows the sample alone, not its number or its file, so that a sample is found again wherever it
    was put.

    samples : (m, height, width, channels); rows (m, n) are hashed as (m, 1, 1, n). Returns uint64 (m,).
        Zero, which stands for "no sample", is never a hash.

    >>> one = np.zeros((1, 2, 2, 1), np.uint8)
    >>> bool(sample_digests(one)[0] == sample_digests(np.concatenate([one + 1, one]))[1])
    True
    """
    little = np.ascontiguousarray(samples, samples.dtype.newbyteorder("<"))
    lengths = (1,) * (4 - little.ndim) + little.shape[1:]
    kind = repr((lengths, little.dtype.name)).encode()
    start = hashlib.blake2b(kind, digest_size=DIGEST_BYTES)
    result = np.empty(len(little), np.uint64)
    for number, row in enumerate(little.reshape(len(little), -1).view(np.uint8)):
        digest = start.copy()
        digest.update(row.data)
        result[number] = int.from_bytes(digest.digest(), "little") or 1
    return result


def fingerprint(digests: Digests) -> str:
    """Return one hash of the samples' hashes in order, as 32 hexadecimal digits.

    >>> fingerprint(np.array([1, 2], np.uint64)) == fingerprint(np.array([2, 1], np.uint64))
    False
    """
    return hashlib.blake2b(digests.astype("<u8").tobytes(), digest_size=FINGERPRINT_BYTES).hexdigest()


class Check:
    """A CRC-32 of the bytes of arrays that are added one by one: 12 GB/s and more. It notices changes, not attacks.

    >>> whole, parts = Check(), Check()
    >>> whole.add(np.arange(4)), parts.add(np.arange(3)), parts.add(np.array([3])), whole.value == parts.value
    (None, None, None, True)
    """

    def __init__(self) -> None:
        self.value = 0

    def add(self, array: npt.NDArray[Any]) -> None:
        """Take in a contiguous array."""
        self.value = isal_zlib.crc32(array.reshape(-1).view(np.uint8).data, self.value)


def array_hash(*arrays: npt.NDArray[Any]) -> str:
    """Hash the contents of arrays, in order.

    >>> array_hash(np.zeros(2)) == array_hash(np.zeros(2)), array_hash(np.zeros(2)) == array_hash(np.ones(2))
    (True, False)
    """
    digest = hashlib.blake2b(digest_size=12)
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
