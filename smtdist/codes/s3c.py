"""Spike-and-slab sparse coding of whitened patches, and its rivals OMP-1 and sparse coding: settings, and a fitted coder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Final

import numpy as np

from smtdist.codes.checks import require_whole
from smtdist.codes.coder import Code, Coder, Float32, Float64, Layout, Record
from smtdist.codes.s3c_steps import GAP, learn
from smtdist.codes.settings import PatchSettings, require_numbers, require_pairs
from smtdist.errors import ConfigurationError
from smtdist.kernels import convergence, l1, spike_slab
from smtdist.kernels import sparse_codes as quick_codes
from smtdist.kernels.device import array_module, place
from smtdist.kernels.products import ordered_bytes
from smtdist.kernels.spike_slab import SpikeSlab
from smtdist.kernels.spike_slab_schedule import Schedule
from smtdist.settings import is_number

SC_PENALTIES: Final = (0.5, 0.75, 1.0, 1.25, 1.5)
"""Grid of sparse coding penalties; the paper prints 1.25 twice, and the second is taken for 1.5."""
OMP_THRESHOLDS: Final = (0.1, 0.25, 0.5, 1.0)

ROUNDS: Final = 80
"""Held-out images were classified no better after 200, rather worse: β grows from 23 to 33 (`docs/few_labels.md`)."""

_NUMBERS: Final = (
    "rho", "rate", "rate_atoms", "rate_mu", "rate_alpha", "rate_beta", "rate_bias",
    "penalty_mu", "penalty_alpha", "penalty_beta", "alpha", "beta_start", "penalty", "threshold", "decay",
)  # fmt: skip


@dataclass(frozen=True)
class S3CSettings(PatchSettings):
    """Settings of a patch coder.

    Attributes
    ----------
    model : s3c, or one of the two codes that the paper compares it with: omp (OMP-1 dictionary, soft
        threshold) or sc (sparse coding).
    units : number of atoms N.
    patch : side of a patch in pixels; at most the side of the image.
    contrast_bias : number added to the variance of a patch (pixels in [0, 1]) before contrast is normalised.
    ridge : λ of the ZCA whitening.
    images : images in a round; 0 means all.
    patches : patches of each image in a round; 0 means all.
    whiten_images : images from which the whitening is computed; 0 means all.
    rounds : rounds of learning.
    n_init : starts of learning, each from other patches. The one with the lowest mean loss over the last tenth of its rounds
        is kept. Each start takes as many passes as one.
    start : start from random "patches", or from "random" numbers.
    alpha, bias, mu : value of this parameter at the start.
    beta_start : value of β at the start.
    beta : β has one entry for each input ("diagonal") or is a single number ("scalar").
    damping : schedule of the E-step: "rising", or "stepped", which ends further from the optimum and is that of models
        that were saved before there was this setting. Units learned with "stepped" keep their sign better, which E_Q[h] needs
        with few labels. Blocks have a schedule of their own.
    h_damping, s_damping : step of each iteration of the E-step, for h or for s, as a share of the full step;
        null means those of `damping`.
    rho : in the E-step, if a slab changes its sign, its new size is at most this share of the old one.
    block : 0 for Algorithm 1. With 96, the E-step updates blocks of 96 units in turn. This comes nearer to
        the optimum in a third of the time. But with learning, slabs grow wide and μ shrinks, until E_Q[h] no
        longer tells an atom from its negative. If you use blocks, start at μ = 1, α = 4, β = 16 and slow
        these and the bias down (rate_mu=0.01, ...; see `docs/few_labels.md`).
    m_step : "gradient" for small steps, or the closed form.
    rate : step size of "gradient" in the first round.
    rate_atoms, rate_mu, rate_alpha, rate_beta, rate_bias : step of this parameter, as a share of `rate`.
    newton : divide steps by curvatures.
    decay : the step is halved every `decay` rounds; 0 means never.
    penalty_mu, penalty_alpha, penalty_beta : weight of a penalty that keeps this parameter small.
    alpha_bounds, beta_bounds, bias_bounds, mu_bounds : lowest and highest value of this parameter.
    penalty : λ of "sc".
    threshold : threshold of the codes of "omp".
    feature : the code of a patch: "h" (E_Q[h]), "hs" (E_Q[h s]), "both", or "signs" (positive and negative
        part of E_Q[h s]). null means "h" for s3c; omp and sc always have "signs".
    pooling : grids over which codes are pooled, such as [3] for 3 x 3, or [1, 2, 3].
    pixel_range : (black, white) of float images.
    flip : also use the mirror image (left to right) of every image.
    grey : convert colour images to greyscale (luminance) first.
    seed : seed of every random choice.
    """

    OF: ClassVar[str] = "patch coders"
    BEFORE: ClassVar[dict[str, Any]] = {"damping": "stepped"}
    CHOICES: ClassVar[dict[str, tuple[Any, ...]]] = {
        "model": ("s3c", "omp", "sc"),
        "m_step": ("gradient", "closed"),
        "beta": ("diagonal", "scalar"),
        "feature": (None, "h", "hs", "both", "signs"),
        "damping": ("rising", "stepped"),
        **PatchSettings.CHOICES,
    }

    model: str = "s3c"
    units: int = 1600
    patch: int = 6
    contrast_bias: float = 10.0 / 255**2
    ridge: float = 0.1
    images: int = 1000
    patches: int = 2
    whiten_images: int = 0
    rounds: int = ROUNDS
    n_init: int = 1
    start: str = "patches"
    alpha: float = 1.0
    beta_start: float = 3.0
    bias: float = -4.0
    mu: float = 0.0
    beta: str = "diagonal"
    damping: str = "rising"
    h_damping: tuple[float, ...] | None = None
    s_damping: tuple[float, ...] | None = None
    rho: float = 0.5
    block: int = 0
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
    alpha_bounds: tuple[float, float] = (1e-3, 1e6)
    beta_bounds: tuple[float, float] = (0.1, 1e6)
    bias_bounds: tuple[float, float] = (-30.0, 30.0)
    mu_bounds: tuple[float, float] = (-1e3, 1e3)
    penalty: float = 1.0
    threshold: float = 0.25
    feature: str | None = None
    pooling: tuple[int, ...] = (3,)
    pixel_range: tuple[float, float] | None = None
    flip: bool = False
    grey: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole(self, {"rounds": 1, "n_init": 1, "block": 0})
        require_numbers(self, _NUMBERS)
        if not all(is_number(value) for value in (self.bias, self.mu)) or not isinstance(self.newton, bool):
            raise ConfigurationError("bias and mu must be numbers, newton true or false.")
        require_pairs(self, ("alpha_bounds", "beta_bounds", "bias_bounds", "mu_bounds"))
        if min(self.alpha, self.beta_start, self.alpha_bounds[0], self.beta_bounds[0]) <= 0:
            raise ConfigurationError("alpha and beta are precisions; start and bounds must lie above 0.")
        if not self.spikes and self.feature not in (None, "signs"):
            raise ConfigurationError(
                f"The features of {self.model} are always split by sign; leave feature out."
            )
        if not self.spikes and self.penalty <= 0:
            raise ConfigurationError("The penalty of sparse coding must lie above 0.")
        self.schedule()

    @property
    def spikes(self) -> bool:
        """Whether it is spike-and-slab sparse coding; its rivals have atoms alone."""
        return self.model == "s3c"

    def schedule(self) -> Schedule:
        """Return how the E-step is damped: as told, or as `Schedule` has it for all units at once and for blocks."""
        usual = Schedule.rising() if self.damping == "rising" else Schedule.stepped()
        usual = Schedule.in_blocks(block=self.block) if self.block else usual
        return Schedule(self.h_damping or usual.h, self.s_damping or usual.s, self.rho, self.block)

    def step(self, number: int) -> float:
        """Return the step of round `number`."""
        return self.rate * (0.5 ** ((number - 1) / self.decay) if self.decay else 1.0)

    @property
    def resolved_feature(self) -> str:
        """The feature by name: E_Q[h] of the model, signs of its rivals, unless told otherwise."""
        return self.feature or ("h" if self.spikes else "signs")

    @property
    def width(self) -> int:
        """Features of a position: one or two a unit."""
        return self.units * (2 if self.resolved_feature in ("both", "signs") else 1)


@dataclass(frozen=True, eq=False)
class PatchCoder(Coder):
    """A fitted coder.

    Attributes
    ----------
    settings, shape, mean, whiten, unwhiten : as of every `smtdist.codes.coder.Coder`.
    parameters : of spike-and-slab sparse coding in float64; of its rivals only the atoms matter.
    trace : of each round, the mean energy functional (rivals: minus the loss) of a patch before its step.
    """

    CHANGEABLE: ClassVar = (
        "feature", "pooling", "threshold", "penalty", "damping", "h_damping", "s_damping", "rho", "block",
    )  # fmt: skip

    settings: S3CSettings
    parameters: SpikeSlab
    trace: tuple[float, ...] = ()
    provenance: dict[str, Any] = field(default_factory=dict)

    @property
    def ordered(self) -> bool:  # type: ignore[override]  # a field of the base class, computed here
        """Whether codes have the same bits on any processor: ĥ starts from exponentials and logarithms of NumPy."""
        return not self.settings.spikes

    @classmethod
    def learn(cls, start: Any, settings: S3CSettings, engine: Any) -> tuple[dict[str, Any], list[Record]]:
        """Learn in passes `round-1`, `round-2`, ... over chunk rows drawn by (seed, round): E-step, sums, M-step.

        All sums are floating point and meet along the fixed tree: the same bits for any number of workers,
        after losses and after a resume. Memory on a worker: the plan's, stated before each pass.
        """
        parameters, trace, records = learn(start, settings, engine)
        return {"parameters": parameters, "trace": tuple(trace)}, records

    @classmethod
    def loss(cls, learnt: Mapping[str, Any]) -> float:
        """Return what starts are compared by: minus the energy functional, or the loss of a rival, as `Coder.loss` has it."""
        return -super().loss(learnt)

    @classmethod
    def layout(cls) -> Layout:
        """Return the layout of its files.

        Groups: `s3c` (mu, alpha, bias, beta; of a rival where they started), and `training` (trace).
        """
        groups = {
            "s3c": {"mu": ("atom",), "alpha": ("atom",), "bias": ("atom",), "beta": ("pixel",)},
            "training": {"trace": ("round",)},
        }
        return Layout("s3c", "s3c_schema", "patch coder", "smtdist fit --model s3c", groups)

    def written(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the parameters and the trace, and a title."""
        arrays = {name: getattr(self.parameters, name) for name in spike_slab.PARAMETERS} | {
            "trace": self.trace
        }
        return arrays, {"title": f"Patch coder: {self.settings.model}"}

    @classmethod
    def read(cls, found: Mapping[str, Any], about: Mapping[str, Any]) -> dict[str, Any]:
        """Return settings, parameters and trace."""
        return {
            "settings": S3CSettings.from_json(str(about["configuration"])),
            "parameters": SpikeSlab(**{name: found[name] for name in spike_slab.PARAMETERS}),
            "trace": tuple(found["trace"].tolist()),
        }

    @property
    def feature(self) -> str:
        """The model: s3c, omp or sc."""
        return self.settings.model

    @property
    def basis(self) -> Float64:
        """The columns of W as rows, (N, p)."""
        return np.asarray(self.parameters.atoms)

    @property
    def sparse(self) -> bool:  # type: ignore[override]
        """Whether most entries of a code are exactly zero: expectations under Q never are."""
        return not self.settings.spikes

    def learnt(self) -> tuple[Float64, ...]:
        """Return all parameters."""
        return tuple(np.asarray(getattr(self.parameters, name)) for name in spike_slab.PARAMETERS)

    def few(self) -> PatchCoder:
        """Return the same with few units and iterations."""
        few = {name: getattr(self.parameters, name)[:8] for name in spike_slab.PARAMETERS if name != "beta"}
        schedule = self.settings.schedule()
        damping = {"h_damping": schedule.h[:1], "s_damping": schedule.s[:1]}
        settings = self.settings.replace(units=len(few["atoms"]), **damping)
        return replace(self, settings=settings, parameters=SpikeSlab(**few, beta=self.parameters.beta))

    @cached_property
    def _fast(self) -> SpikeSlab:
        return self.parameters.astype(np.float32)

    @property
    def row_numbers(self) -> int:
        """Numbers that coding a patch takes beside the patch: ĥ, ŝ, products and features."""
        return 3 * self.parameters.n_units + self.settings.width

    @property
    def held_bytes(self) -> int:
        """Bytes of the atoms, and of what solvers make of them."""
        atoms = self.parameters.atoms
        if self.settings.model == "sc":
            return int(atoms.nbytes) + l1.solver_bytes(*atoms.T.shape)
        return int(atoms.nbytes) + 5 * ordered_bytes(*atoms.T.shape)

    def code(self, rows: Float32) -> Any:
        """Return the features of whitened patches (n, p), (n, width), where they are placed."""
        return _FEATURES[self.settings.model](self.settings, self._fast, place(rows))

    def summary(self) -> dict[str, Any]:
        """Return what is asked of a fitted coder first, as plain JSON."""
        found: dict[str, Any] = {
            "model": self.settings.model,
            "units": self.parameters.n_units,
            "inputs": self.parameters.n_inputs,
            "rounds": len(self.trace),
        }
        name = "energy" if self.settings.spikes else "objective"
        if self.trace:
            tenth = max(1, len(self.trace) // 10)
            found[f"{name}_first"] = self.trace[0]
            found[name] = float(np.mean(self.trace[-tenth:]))
        if self.settings.spikes:
            parameters = self.parameters
            found |= {
                "prior_active": float((1 / (1 + np.exp(-parameters.bias))).mean()),
                "beta": float(parameters.beta.mean()),
                "alpha": float(np.median(parameters.alpha)),
            }
        return found | convergence.facts_of(convergence.of_rounds(self.trace))


def _posterior_features(settings: S3CSettings, model: SpikeSlab, rows: Any) -> Any:
    """What is asked of the posterior: E_Q[h], E_Q[h s], both, or the positive and negative parts of the latter."""
    posterior = spike_slab.infer(rows, model.on(rows), settings.schedule())
    feature = settings.resolved_feature
    if feature == "h":
        return posterior.h
    if feature == "hs":
        return posterior.mean
    if feature == "signs":
        return quick_codes.split_signs(posterior.mean)
    return array_module(posterior.h).concatenate([posterior.h, posterior.mean], axis=1)


def _thresholded(settings: S3CSettings, model: SpikeSlab, rows: Any) -> Any:
    """OMP-1's products above a threshold, by sign."""
    return quick_codes.split_signs(quick_codes.soft_threshold(rows, model.atoms, settings.threshold))


def _sparse_codes(settings: S3CSettings, model: SpikeSlab, rows: Any) -> Any:
    """Sparse codes, by sign; the paper's penalty goes with whole squares."""
    found = l1.sparse_codes(model.atoms.T, rows, settings.penalty / 2, positive=False, gap=GAP)
    return quick_codes.split_signs(found[0])


_FEATURES: Final = {"s3c": _posterior_features, "omp": _thresholded, "sc": _sparse_codes}
_SLABS: Final = frozenset(
    {
        *("alpha", "beta", "beta_start", "bias", "mu", "damping", "h_damping", "s_damping", "rho", "block"),
        *("m_step", "newton", "decay", "rate"),
        *(f"rate_{one}" for one in ("atoms", "mu", "alpha", "beta", "bias")),
        *(f"penalty_{one}" for one in ("mu", "alpha", "beta")),
        *(f"{one}_bounds" for one in ("mu", "alpha", "beta", "bias")),
    }
)
"""Settings of slabs and of how they are learned, which its rivals have not."""
CODES: Final = {
    "s3c": Code(
        PatchCoder,
        S3CSettings(),
        {"dictionary": "units", "expectation": "feature"},
        frozenset({"threshold", "penalty"}),
    ),
    "omp": Code(PatchCoder, S3CSettings(model="omp"), idle=_SLABS | {"penalty"}),
    "sc": Code(PatchCoder, S3CSettings(model="sc"), idle=_SLABS | {"threshold"}),
}
