"""What tells a kernel model's file from others, known without loading kernels."""

from __future__ import annotations

import os
from typing import Final

from smtdist.data import hdf5
from smtdist.errors import DataError

KIND: Final = "kernel"


def is_kernel_model(path: str | os.PathLike[str]) -> bool:
    """Tell whether a file is a kernel model's; what cannot be opened is none."""
    try:
        with hdf5.open_file(str(path)) as file:
            return str(file.attrs.get("kind", "")) == KIND
    except DataError:
        return False
