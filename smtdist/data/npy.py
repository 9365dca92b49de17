"""How long the header of a .npy file says it is, looked at before NumPy reads it whole."""

from __future__ import annotations

import os
from typing import IO, Any, Final, Literal

import numpy as np
import numpy.typing as npt

MOST_HEADER_BYTES: Final = 2**16
"""NumPy itself understands headers of 10,000 bytes at most, but reads one of 4 GiB before it says so."""
_MAGIC: Final = b"\x93NUMPY"


def require_short_header(stream: IO[bytes]) -> None:
    """Raise a ValueError where the array at the start of a stream says that its header is longer; then stand there again."""
    start = stream.read(12)
    stream.seek(0)
    length = int.from_bytes(start[8:12], "little")
    # the length has two bytes in version 1, and four since
    if start.startswith(_MAGIC) and start[6:7] > b"\x01" and length > MOST_HEADER_BYTES:
        raise ValueError(f"its header says that it has {length:,} bytes")


def loaded(path: str | os.PathLike[str], mmap_mode: Literal["r"] | None = None) -> npt.NDArray[Any]:
    """Return what `numpy.load` returns, without pickles; a ValueError also for a header that is too long."""
    with open(path, "rb") as file:
        require_short_header(file)
    return np.load(path, mmap_mode, allow_pickle=False)  # type: ignore[no-any-return]
