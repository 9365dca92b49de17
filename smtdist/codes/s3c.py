"""Spike-and-slab sparse coding of whitened patches, and its rivals OMP-1 and sparse coding: settings, and a fitted coder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Final

import numpy as np

from smtdist.codes.coder import Code, Coder, Float32, Float64, PatchSettings, Record
from smtdist.codes.s3c_steps import GAP, learn
from smtdist.errors import ConfigurationError
from smtdist.kernels import l1, spike_slab
from smtdist.kernels import sparse_codes as quick_codes
from smtdist.kernels.device import array_module, place
from smtdist.kernels.products import ordered_bytes
from smtdist.kernels.spike_slab import Schedule, SpikeSlab
from smtdist.settings import FLAG, NULL, PAIR, Rule, number, one_of, seed, setting, several, shared, whole

ROUNDS: Final = 80
"""Held-out images were classified no better after 200, rather worse: β grows from 23 to 33."""


def _start(rule: Rule, default: float) -> Any:
    return setting(rule, "value of this parameter at the start.", default=default)


def _damping(what: str) -> Any:
    return setting(
        several(number(), "a list of numbers", least=1) | NULL,
        f"step of each iteration of the E-step, for {what}, as a share of the full step; None means those of `damping`.",
        default=None,
    )


def _rate() -> Any:
    return setting(number(0), "step of this parameter, as a share of `rate`.", default=1.0)


def _penalty() -> Any:
    return setting(number(0), "weight of a penalty that keeps this parameter small.", default=0.0)


def _bounds(lowest: float, highest: float) -> Any:
    return setting(PAIR, "lowest and highest value of this parameter.", default=(lowest, highest))


class S3CSettings(PatchSettings):
    """Settings of a patch coder."""

    OF: ClassVar[str] = "patch coders"
    EARLIER: ClassVar[Mapping[str, Any]] = {"damping": "stepped"}

    model: str = setting(
        one_of("s3c", "omp", "sc"),
        "s3c, or one of the two codes that the paper compares it with: omp (OMP-1 dictionary, soft threshold) or sc (sparse "
        "coding).",
        default="s3c",
    )
    n_atoms: int = shared("n_atoms", 1600)
    patch_size: int = shared("patch_size", 6)
    contrast_bias: float = shared("contrast_bias", 10.0 / 255**2)
    whitening_reg: float = shared("whitening_reg", 0.1)
    images: int = shared("images", 1000)
    patches: int = shared("patches", 2)
    whiten_images: int = shared("whiten_images", 0)
    max_iter: int = setting(whole(1), "rounds of learning.", default=ROUNDS, stored="rounds")
    n_init: int = shared("n_init", 1)
    start: str = shared("start", "patches")
    alpha: float = _start(number(above=0), 1.0)
    beta_start: float = setting(number(above=0), "value of β at the start.", default=3.0)
    bias: float = _start(number(), -4.0)
    mu: float = _start(number(), 0.0)
    beta: str = setting(
        one_of("diagonal", "scalar"),
        'β has one entry for each input ("diagonal") or is a single number ("scalar").',
        default="diagonal",
    )
    damping: str = setting(
        one_of("rising", "stepped"),
        'schedule of the E-step: "rising", or "stepped", which ends further from the optimum and is that of models that were '
        'saved before there was this setting. Units learned with "stepped" keep their sign better, which E_Q[h] needs with '
        "few labels. Blocks have a schedule of their own.",
        default="rising",
    )
    h_damping: tuple[float, ...] | None = _damping("h")
    s_damping: tuple[float, ...] | None = _damping("s")
    rho: float = setting(
        number(0),
        "in the E-step, if a slab changes its sign, its new size is at most this share of the old one.",
        default=0.5,
    )
    block: int = setting(
        whole(0),
        "0 for Algorithm 1. With 96, the E-step updates blocks of 96 units in turn. This comes nearer to the optimum in a "
        "third of the time. But with learning, slabs grow wide and μ shrinks, until E_Q[h] no longer tells an atom from its "
        "negative. If you use blocks, start at μ = 1, α = 4, β = 16 and slow these and the bias down: 0.01 "
        "for rate_mu, rate_alpha, rate_beta and rate_bias.",
        default=0,
    )
    m_step: str = setting(
        one_of("gradient", "closed"), '"gradient" for small steps, or the closed form.', default="gradient"
    )
    rate: float = setting(number(0), 'step size of "gradient" in the first round.', default=0.1)
    rate_atoms: float = _rate()
    rate_mu: float = _rate()
    rate_alpha: float = _rate()
    rate_beta: float = _rate()
    rate_bias: float = _rate()
    newton: bool = setting(FLAG, "divide steps by curvatures.", default=True)
    decay: float = shared("decay", 0.0)
    penalty_mu: float = _penalty()
    penalty_alpha: float = _penalty()
    penalty_beta: float = _penalty()
    alpha_bounds: tuple[float, float] = _bounds(1e-3, 1e6)
    beta_bounds: tuple[float, float] = _bounds(0.1, 1e6)
    bias_bounds: tuple[float, float] = _bounds(-30.0, 30.0)
    mu_bounds: tuple[float, float] = _bounds(-1e3, 1e3)
    penalty: float = setting(number(0), 'λ of "sc".', default=1.0)
    threshold: float = setting(number(0), 'threshold of the codes of "omp".', default=0.25)
    pooled_feature: str | None = setting(
        one_of("h", "hs", "both", "signs") | NULL,
        'the code of a patch: "h" (E_Q[h]), "hs" (E_Q[h s]), "both", or "signs" (positive and negative part of E_Q[h s]). '
        'None means "h" for s3c; omp and sc always have "signs".',
        default=None,
        stored="feature",
        aliases=("expectation",),
    )
    pooling_grid: tuple[int, ...] = shared("pooling_grid", (3,))
    pixel_range: tuple[float, float] | None = shared("pixel_range", None)
    augment_flip: bool = shared("augment_flip", False)
    to_grayscale: bool = shared("to_grayscale", False)
    random_state: int = seed()

    def check_together(self) -> None:
        """Refuse bounds of precisions that are none, and what the rivals of spike-and-slab do not have."""
        if min(self.alpha_bounds[0], self.beta_bounds[0]) <= 0:
            raise ConfigurationError("alpha and beta are precisions; their bounds must lie above 0.")
        if not self.spikes and self.pooled_feature not in (None, "signs"):
            raise ConfigurationError(
                f"The features of {self.model} are always split by sign; leave expectation out."
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
        return self.pooled_feature or ("h" if self.spikes else "signs")

    @property
    def width(self) -> int:
        """Features of a position: one or two a unit."""
        return self.n_atoms * (2 if self.resolved_feature in ("both", "signs") else 1)


@dataclass(frozen=True, eq=False)
class PatchCoder(Coder):
    """A fitted coder.

    Attributes
    ----------
    settings, shape, mean, whiten, unwhiten : as of every `smtdist.codes.coder.Coder`.
    parameters : of spike-and-slab sparse coding in float64; of its rivals only the atoms matter.
    trace : of each round, the mean energy functional (rivals: minus the loss) of a patch before its step.
    """

    STORED_AS: ClassVar[str] = "s3c"
    CHANGEABLE: ClassVar = (
        "pooled_feature", "pooling_grid", "threshold", "penalty", "damping", "h_damping", "s_damping", "rho", "block",
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
    def groups(cls) -> Mapping[str, Mapping[str, tuple[str, ...]]]:
        """Return the arrays of its files: `s3c` (of a rival where they started), and `training`."""
        return {
            "s3c": {"mu": ("atom",), "alpha": ("atom",), "bias": ("atom",), "beta": ("pixel",)},
            "training": {"trace": ("round",)},
        }

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
        settings = self.settings.replace(n_atoms=len(few["atoms"]), **damping)
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
            **self.learning("energy" if self.settings.spikes else "objective"),
        }
        if self.settings.spikes:
            parameters = self.parameters
            found |= {
                "prior_active": float((1 / (1 + np.exp(-parameters.bias))).mean()),
                "beta": float(parameters.beta.mean()),
                "alpha": float(np.median(parameters.alpha)),
            }
        return found


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
        *("m_step", "newton", "decay", "rate", "pooled_feature"),
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
        frozenset({"threshold", "penalty"}),
    ),
    "omp": Code(PatchCoder, S3CSettings(model="omp"), idle=_SLABS | {"penalty"}),
    "sc": Code(PatchCoder, S3CSettings(model="sc"), idle=_SLABS | {"threshold"}),
}
