"""What a patch coder is asked to be: every setting that changes a result, checked, and as JSON."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from typing import Any, Final, Protocol

from smtdist.errors import ConfigurationError
from smtdist.kernels.spike_slab import H_DAMPING, S_DAMPING, Schedule
from smtdist.models.checks import require_choices, require_whole
from smtdist.models.s3c.mstep import Bounds, Rates

MODELS: Final = ("s3c", "omp", "sc")
M_STEPS: Final = ("gradient", "closed")
BETAS: Final = ("diagonal", "scalar")
FEATURES: Final = ("h", "hs", "both", "signs")
STARTS: Final = ("patches", "random")

SC_PENALTIES: Final = (0.5, 0.75, 1.0, 1.25, 1.5)
"""Grid of sparse coding penalties; the paper prints 1.25 twice, and the second is taken for 1.5."""
OMP_THRESHOLDS: Final = (0.1, 0.25, 0.5, 1.0)

_CHOICES: Final[dict[str, tuple[Any, ...]]] = {
    "model": MODELS,
    "m_step": M_STEPS,
    "beta": BETAS,
    "feature": (None, *FEATURES),
    "start": STARTS,
}
_WHOLE: Final = {
    "units": 1,
    "patch": 1,
    "patches": 0,
    "images": 0,
    "whiten_images": 0,
    "rounds": 1,
    "seed": 0,
}
_NUMBERS: Final = (
    "contrast_bias", "ridge", "rho", "rate", "rate_atoms", "rate_mu", "rate_alpha", "rate_beta", "rate_bias",
    "penalty_mu", "penalty_alpha", "penalty_beta", "alpha", "beta_start", "penalty", "threshold", "decay",
)  # fmt: skip
_PAIRS: Final = ("alpha_bounds", "beta_bounds", "bias_bounds", "mu_bounds")


class PatchSettings(Protocol):
    """How patches are made: what every coder of patches is told."""

    @property
    def patch(self) -> int: ...  # noqa: D102
    @property
    def contrast_bias(self) -> float: ...  # noqa: D102
    @property
    def seed(self) -> int: ...  # noqa: D102
    @property
    def pixel_range(self) -> tuple[float, float] | None: ...  # noqa: D102


class StartSettings(PatchSettings, Protocol):
    """How a fit begins: its whitening, and the patches that atoms start from."""

    @property
    def units(self) -> int: ...  # noqa: D102
    @property
    def ridge(self) -> float: ...  # noqa: D102
    @property
    def patches(self) -> int: ...  # noqa: D102
    @property
    def whiten_images(self) -> int: ...  # noqa: D102
    @property
    def start(self) -> str: ...  # noqa: D102


@dataclass(frozen=True)
class S3CSettings:
    """Settings of a patch coder.

    model : s3c, or a rival: omp (OMP-1 dictionary, soft threshold), sc (sparse coding). units : N. patch : side in pixels; the
    whole image where it is that large. contrast_bias : added to the variance of a patch in [0, 1]. ridge : of ZCA. images,
    patches : of a round, images (0: all) and patches of each (0: all). whiten_images : of the passes before, 0 for all. rounds.
    start : atoms from patches, or random. alpha, beta_start, bias, mu : where these parameters start; beta : diagonal or scalar.
    h_damping, s_damping, rho : the schedule of Algorithm 1. m_step : small gradient steps, or closed form. rate, rate_... : step
    size and shares of it; newton : divided by curvatures; decay : rounds after which the step is halved, 0 for never.
    penalty_..., ..._bounds : of the parameters. penalty, threshold : of the rivals.
    feature : h, hs or both of E_Q[h] and E_Q[h s], signs for positive and negative parts of E_Q[h s] (rivals: always). pooling :
    grids, such as [3] or [1, 2, 3]. pixel_range : (black, white) of float images.
    """

    model: str = "s3c"
    units: int = 1600
    patch: int = 6
    contrast_bias: float = 10.0 / 255**2
    ridge: float = 0.1
    images: int = 1000
    patches: int = 2
    whiten_images: int = 0
    rounds: int = 200
    start: str = "patches"
    alpha: float = 1.0
    beta_start: float = 3.0
    bias: float = -4.0
    mu: float = 0.0
    beta: str = "diagonal"
    h_damping: tuple[float, ...] = H_DAMPING
    s_damping: tuple[float, ...] = S_DAMPING
    rho: float = 0.5
    m_step: str = "gradient"
    rate: float = 0.1
    rate_atoms: float = 1.0
    rate_mu: float = 1.0
    rate_alpha: float = 1.0
    rate_beta: float = 1.0
    rate_bias: float = 1.0
    newton: bool = True
    decay: float = 0.0
    penalty_mu: float = 0.0
    penalty_alpha: float = 0.0
    penalty_beta: float = 0.0
    alpha_bounds: tuple[float, float] = Bounds.alpha
    beta_bounds: tuple[float, float] = Bounds.beta
    bias_bounds: tuple[float, float] = Bounds.bias
    mu_bounds: tuple[float, float] = Bounds.mu
    penalty: float = 1.0
    threshold: float = 0.25
    feature: str | None = None
    pooling: tuple[int, ...] = (3,)
    pixel_range: tuple[float, float] | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        require_choices(self, _CHOICES)
        require_whole(self, _WHOLE)
        for name in _NUMBERS:
            value = getattr(self, name)
            if not _is_number(value) or value < 0:
                raise ConfigurationError(f"{name} is {value!r}; it must be a number of at least 0.")
        if not all(_is_number(value) for value in (self.bias, self.mu)) or not isinstance(self.newton, bool):
            raise ConfigurationError("bias and mu must be numbers, newton true or false.")
        for name in (*_PAIRS, "pixel_range"):
            value = getattr(self, name)
            if value is not None and not (
                len(value) == 2 and all(map(_is_number, value)) and value[0] < value[1]
            ):
                raise ConfigurationError(f"{name} is {value!r}; it must be two numbers, the lower one first.")
        if min(self.alpha, self.beta_start, self.alpha_bounds[0], self.beta_bounds[0]) <= 0:
            raise ConfigurationError("alpha and beta are precisions; start and bounds must lie above 0.")
        if not self.pooling or not all(isinstance(grid, int) and grid >= 1 for grid in self.pooling):
            raise ConfigurationError(f"pooling is {self.pooling!r}; give grids such as [3] or [1, 2, 3].")
        if self.model != "s3c" and self.feature not in (None, "signs"):
            raise ConfigurationError(
                f"The features of {self.model} are always split by sign; leave feature out."
            )
        if self.model != "s3c" and self.penalty <= 0:
            raise ConfigurationError("The penalty of sparse coding must lie above 0.")
        self.schedule()

    def schedule(self) -> Schedule:
        """Return how the E-step is damped."""
        return Schedule(self.h_damping, self.s_damping, self.rho)

    def rates(self, number: int) -> Rates:
        """Return the step of round `number`."""
        shares = {name: getattr(self, f"rate_{name}") for name in ("atoms", "mu", "alpha", "beta", "bias")}
        penalties = {name: getattr(self, name) for name in ("penalty_mu", "penalty_alpha", "penalty_beta")}
        rate = self.rate * (0.5 ** ((number - 1) / self.decay) if self.decay else 1.0)
        return Rates(rate=rate, newton=self.newton, **shares, **penalties)

    def bounds(self) -> Bounds:
        """Return where parameters are kept."""
        return Bounds(self.alpha_bounds, self.beta_bounds, self.bias_bounds, self.mu_bounds)

    @property
    def resolved_feature(self) -> str:
        """The feature by name: E_Q[h] of the model, signs of its rivals, unless told otherwise."""
        return self.feature or ("h" if self.model == "s3c" else "signs")

    @property
    def width(self) -> int:
        """Features of a position: one or two a unit."""
        return self.units * (2 if self.resolved_feature in ("both", "signs") else 1)

    def replace(self, **changes: Any) -> S3CSettings:
        """Return settings with changes; an unknown name is a ConfigurationError."""
        known = {field.name for field in dataclasses.fields(self)}
        for name, value in changes.items():
            if name not in known:
                raise ConfigurationError(
                    f"There is no setting {name!r}; the settings of patch coders are {', '.join(sorted(known))}."
                )
            if isinstance(value, list):
                changes[name] = tuple(value)
        if isinstance(changes.get("pooling"), int):
            changes["pooling"] = (changes["pooling"],)
        return dataclasses.replace(self, **changes)

    def to_json(self) -> str:
        """Return the settings as JSON."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> S3CSettings:
        """Read settings from JSON; ConfigurationError for what is none."""
        try:
            return cls().replace(**json.loads(text))
        except (ValueError, TypeError) as error:
            raise ConfigurationError(f"These are no settings of a patch coder ({error}).") from error


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
