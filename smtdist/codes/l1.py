"""L1 sparse coding of whitened patches, positive or signed (SMT 2018, eq. 9 and 10): settings, and a fitted dictionary."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Final

import numpy as np

from smtdist.codes.checks import require_choices, require_whole
from smtdist.codes.coder import Coder, Float32, Float64
from smtdist.codes.settings import Settings, is_number, require_grids, require_numbers, require_pairs
from smtdist.errors import ConfigurationError
from smtdist.kernels.device import place
from smtdist.kernels.l1 import METHODS, Method, sparse_codes
from smtdist.kernels.pursuit import linear_features, omp_codes
from smtdist.kernels.sparse_codes import split_signs

LEARNINGS: Final = ("gradient", "sums")
FEATURES: Final = ("l1", "omp", "linear")
ONE_SIGN: Final = ("l1", "linear")
"""Features that have one sign where codes are positive; those of a pursuit always have two."""

_CHOICES: Final[dict[str, tuple[Any, ...]]] = {
    "learning": LEARNINGS,
    "method": METHODS,
    "feature": FEATURES,
    "start": ("patches", "random"),
    "positive": (True, False),
    "flip": (True, False),
    "grey": (True, False),
}
_WHOLE: Final = {
    "units": 1, "patch": 1, "patches": 0, "images": 0, "whiten_images": 0, "rounds": 0, "idle": 1, "sweeps": 1, "k": 1, "seed": 0,
}  # fmt: skip
_ABOVE: Final = ("penalty", "gap", "rate")
_AT_LEAST: Final = ("contrast_bias", "ridge", "threshold", "decay")


@dataclass(frozen=True)
class SparseSettings(Settings):
    """Settings of sparse coding.

    Attributes
    ----------
    units : K atoms; 10 to 20 times the numbers of a patch in the paper.
    patch : side of a patch in pixels.
    contrast_bias : added to the variance of a patch in [0, 1] before it is brought to unit contrast.
    ridge : of the ZCA whitening.
    penalty : λ of the L1 norm, for whitened patches.
    positive : codes of one sign (equation 10); false: of both (9).
    method : the solver of the codes.
    gap : relative duality gap at which a code is good enough.
    learning : "gradient", a step a round with a diagonal Hessian, or "sums", Φ in closed form from Σ a aᵀ and Σ x aᵀ.
    images : of a round; 0 takes all.
    patches : of each image of a round; 0 takes all.
    whiten_images : images of the passes before the rounds; 0 takes all.
    rounds : of learning; 0 keeps the patches that atoms start from.
    rate : the step of "gradient".
    decay : rounds after which the step is halved; 0 for never.
    memory : what a round keeps of the sums, or of the Hessian, of those before it.
    sweeps : times that "sums" goes over all atoms in a round.
    idle : rounds in a row without a use after which an atom is replaced by a drawn patch.
    start : atoms start from patches, or at random.
    feature : l1, omp of `k` atoms, or linear above `threshold`.
    k : atoms of an omp feature.
    threshold : of a linear feature.
    pooling : grids, such as [2].
    pixel_range : (black, white) of float images.
    flip : see every image mirrored left to right too.
    grey : turn colour into luminance first.
    seed : of every random choice.
    """

    OF: ClassVar[str] = "sparse coding"
    CHOICES: ClassVar[dict[str, tuple[Any, ...]]] = _CHOICES

    units: int = 1024
    patch: int = 8
    contrast_bias: float = 10.0 / 255**2
    ridge: float = 0.1
    penalty: float = 1.0
    positive: bool = True
    method: Method = "coordinate"
    gap: float = 1e-3
    learning: str = "gradient"
    images: int = 256
    patches: int = 16
    whiten_images: int = 0
    rounds: int = 100
    rate: float = 0.5
    decay: float = 50.0
    memory: float = 0.9
    sweeps: int = 1
    idle: int = 10
    start: str = "patches"
    feature: str = "l1"
    k: int = 5
    threshold: float = 0.25
    pooling: tuple[int, ...] = (2,)
    pixel_range: tuple[float, float] | None = None
    flip: bool = False
    grey: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        require_choices(self, _CHOICES)
        require_whole(self, _WHOLE)
        require_numbers(self, _ABOVE, above=True)
        require_numbers(self, _AT_LEAST)
        if not is_number(self.memory) or not 0 <= self.memory < 1:
            raise ConfigurationError(f"memory is {self.memory!r}; it must be at least 0 and below 1.")
        require_grids(self.pooling)
        require_pairs(self, ("pixel_range",))

    @property
    def width(self) -> int:
        """Features of a position: one an atom, or two where codes have signs."""
        return self.units * (1 if self.positive and self.feature in ONE_SIGN else 2)

    def step(self, number: int) -> float:
        """Return the gradient's step in round `number`."""
        return self.rate * (0.5 ** ((number - 1) / self.decay) if self.decay else 1.0)


@dataclass(frozen=True, eq=False)
class SparseCoder(Coder):
    """A fitted sparse coder.

    Attributes
    ----------
    settings, shape, mean, whiten, unwhiten : as of every `smtdist.codes.coder.Coder`.
    atoms : (K, p) unit rows in whitened space: the columns of Φ.
    trace : of each round, the mean objective of a patch before its step. active : atoms of a patch in the last round.
    """

    settings: SparseSettings
    atoms: Float64
    trace: tuple[float, ...] = ()
    active: float = 0.0
    provenance: dict[str, Any] = field(default_factory=dict)

    @property
    def basis(self) -> Float64:
        """The columns of Φ as rows, (K, p)."""
        return self.atoms

    @property
    def size(self) -> int:  # type: ignore[override]  # a field of the base class, computed here
        """Atoms K: a transform embeds L1 codes as they are, with their signs, whatever features are pooled."""
        return len(self.atoms)

    def __call__(self, rows: Float32) -> Any:
        """Return L1 codes of whitened patches (n, p), (n, K)."""
        return self.infer(rows)[0]

    def few(self) -> SparseCoder:
        """Return the same with few atoms."""
        atoms = self.atoms[:8]
        return replace(self, settings=self.settings.replace(units=len(atoms)), atoms=atoms)

    @cached_property
    def dictionary(self) -> Float32:
        """Φ, (p, K) float32."""
        return np.ascontiguousarray(self.atoms.T, np.float32)

    @property
    def row_numbers(self) -> int:
        """Numbers that coding a patch takes beside the patch."""
        return 4 * self.settings.width

    @property
    def held_bytes(self) -> int:
        """Bytes of the atoms, and of ΦᵀΦ while coding."""
        return int(2 * self.atoms.nbytes + 4 * len(self.atoms) ** 2)

    def infer(self, rows: Float32, start: Any = None) -> tuple[Any, Any, Any]:
        """Return L1 codes of whitened patches (n, p), their relative duality gaps and iterations, where they are placed."""
        wanted = self.settings
        return sparse_codes(
            self.dictionary, place(rows), wanted.penalty, positive=wanted.positive, method=wanted.method,
            gap=wanted.gap, start=start,
        )  # fmt: skip

    def code(self, rows: Float32) -> Any:
        """Return the features of whitened patches (n, p), (n, width); both signs side by side where codes have signs."""
        return _FEATURES[self.settings.feature](self, rows)

    def summary(self) -> dict[str, Any]:
        """Return what is asked of a fitted coder first, as plain JSON."""
        units, inputs = self.atoms.shape
        found: dict[str, Any] = {
            "units": units,
            "inputs": inputs,
            "overcompleteness": units / inputs,
            "rounds": len(self.trace),
        }
        if self.trace:
            tenth = max(1, len(self.trace) // 10)
            found |= {
                "objective_first": self.trace[0],
                "objective": float(np.mean(self.trace[-tenth:])),
                "active": self.active,
            }
        return found


def _l1(coder: SparseCoder, rows: Float32) -> Any:
    found = coder.infer(rows)[0]
    return found if coder.settings.positive else split_signs(found)


def _pursuit(coder: SparseCoder, rows: Float32) -> Any:
    return split_signs(omp_codes(coder.dictionary, place(rows), coder.settings.k))


def _linear(coder: SparseCoder, rows: Float32) -> Any:
    wanted = coder.settings
    found = linear_features(coder.dictionary, place(rows), wanted.threshold, positive=wanted.positive)
    return found if wanted.positive else split_signs(found)


_FEATURES: Final = {"l1": _l1, "omp": _pursuit, "linear": _linear}
