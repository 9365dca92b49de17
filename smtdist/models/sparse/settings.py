"""What sparse coding is asked to be: every setting that changes a result, checked, and as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

from smtdist.errors import ConfigurationError
from smtdist.kernels.l1 import METHODS, Method
from smtdist.models.checks import require_choices, require_whole
from smtdist.models.coders.settings import (
    Settings,
    is_number,
    require_grids,
    require_numbers,
    require_pairs,
)

LEARNINGS: Final = ("gradient", "sums")
FEATURES: Final = ("l1", "omp", "linear")

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
        return self.units * (1 if self.positive and self.feature != "omp" else 2)

    def step(self, number: int) -> float:
        """Return the gradient's step in round `number`."""
        return self.rate * (0.5 ** ((number - 1) / self.decay) if self.decay else 1.0)
