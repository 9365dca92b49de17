"""The public code of the paper's author (the repository Kelarion/repler), as a peer: it lies beside the project, never in it.

`KernelBMF` is its coordinate descent on the kernel, `BiPCA` its binary components with orthogonal weights; they are called with
the settings of its own experiments (temperature 10, cooling 0.8 every second sweep for the kernel, 0.9 for BiPCA).
"""

from __future__ import annotations

import importlib
import sys
import time
import types
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

UNUSED: Final = ("torchvision", "cvxpy", "networkx.drawing.nx_pydot", "tqdm")
"""What its modules import but its searches never touch: replaced by empty modules where it is missing."""

PEERS: Final = {
    "repler-kernel": ("KernelBMF", {"tree_reg": 0.0}, 0.8),
    "repler-kernel-tree": ("KernelBMF", {"tree_reg": 1e-2}, 0.8),
    "repler-bipca": ("BiPCA", {"tree_reg": 0.0, "sparse_reg": 0.0}, 0.9),
}


class _Anything(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything(name)


def load(folder: Path) -> Any:
    """Import `bae_models` from a copy of the repository; its other modules must lie beside it, in src."""
    sys.path.insert(0, str(folder / "src"))
    for name in UNUSED:
        try:
            importlib.import_module(name)
        except ImportError:
            sys.modules[name] = _Anything(name)
            for child in ("transforms",):
                sys.modules[f"{name}.{child}"] = _Anything(child)
    return importlib.import_module("bae_models")


def applies(name: str, x: NDArray[np.float64], b: int) -> bool:
    """Tell whether a peer takes such data: BiPCA's weights are orthogonal, and begin as right singular vectors."""
    return PEERS[name][0] != "BiPCA" or b <= min(x.shape)


def searched(models: Any, name: str, x: NDArray[np.float64], b: int, seed: int) -> tuple[Any, float]:
    """Return the concepts (p, b) that a peer finds and its seconds; its kernels are compiled by an earlier call."""
    kind, arguments, cooling = PEERS[name]
    centred = x - x.mean(0)
    centred /= np.sqrt(np.mean(centred**2))
    np.random.seed(seed)  # noqa: NPY002  # it draws from NumPy's global generator
    started = time.perf_counter()
    model = getattr(models, kind)(b, **arguments)
    model.fit(centred, initial_temp=10, decay_rate=cooling, period=2, verbose=False)
    return (model.S > 0.5).astype(np.uint8), time.perf_counter() - started
