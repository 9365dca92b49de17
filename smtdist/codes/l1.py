"""L1 sparse coding of whitened patches, positive or signed (SMT 2018, eq. 9 and 10): settings, dictionary, how it is learned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from smtdist.codes.coder import Code, Coder, Float32, Float64, PatchSettings, Record
from smtdist.errors import ConfigurationError
from smtdist.kernels import l1
from smtdist.kernels import sparse_codes as quick_codes
from smtdist.kernels.device import place
from smtdist.kernels.l1 import Method
from smtdist.kernels.threads import single_blas
from smtdist.settings import FLAG, number, one_of, seed, setting, shared, whole
from smtdist.statistics.base import State
from smtdist.statistics.l1_codes import L1Sums

FLOOR: Final = 0.01
"""Share of the mean curvature below which an atom's own does not shorten its divisor."""
ONE_SIGN: Final = ("l1", "linear")
"""Features that have one sign where codes are positive; those of a pursuit always have two."""


class SparseSettings(PatchSettings):
    """Settings of sparse coding."""

    OF: ClassVar[str] = "sparse coding"

    n_atoms: int = shared("n_atoms", 1024)
    patch_size: int = shared("patch_size", 8)
    contrast_bias: float = shared("contrast_bias", 10.0 / 255**2)
    whitening_reg: float = shared("whitening_reg", 0.1)
    penalty: float = setting(number(above=0), "λ of the L1 norm, for whitened patches.", default=1.0)
    positive: bool = setting(
        FLAG,
        "true for codes that are not negative (equation 10), false for codes of both signs (9).",
        default=True,
    )
    method: Method = setting(one_of(*l1.METHODS), "the solver of the codes.", default="coordinate")
    gap: float = setting(number(above=0), "relative duality gap at which the solver stops.", default=1e-3)
    learning: str = setting(
        one_of("gradient", "sums"),
        'how atoms are learned: "gradient", one step a round with a diagonal Hessian; or "sums", Φ in closed form from '
        "Σ a aᵀ and Σ x aᵀ.",
        default="gradient",
    )
    images: int = shared("images", 256)
    patches: int = shared("patches", 16)
    whiten_images: int = shared("whiten_images", 0)
    max_iter: int = setting(
        whole(0), "rounds of learning; 0 leaves the atoms as they start.", default=100, stored="rounds"
    )
    n_init: int = shared("n_init", 1)
    rate: float = setting(number(above=0), 'step size of "gradient" in the first round.', default=0.5)
    decay: float = shared("decay", 50.0)
    memory: float = setting(
        number(0, below=1),
        "share of the earlier rounds' sums, or Hessian, that a round keeps.",
        default=0.9,
    )
    sweeps: int = setting(
        whole(1), 'number of times that "sums" goes over all atoms in a round.', default=1
    )
    idle: int = setting(
        whole(1),
        "an atom that no code used for this many rounds in a row is replaced by a random patch.",
        default=10,
    )
    start: str = shared("start", "patches")
    pooled_feature: str = setting(
        one_of("l1", "omp", "linear"),
        'the code of a patch: "l1", "omp" (`k` atoms by matching pursuit) or "linear" (above `threshold`).',
        default="l1",
        stored="feature",
    )
    k: int = setting(whole(1), 'number of active atoms of "omp".', default=5)
    threshold: float = setting(number(0), 'threshold of "linear".', default=0.25)
    pooling_grid: tuple[int, ...] = shared("pooling_grid", (2,))
    pixel_range: tuple[float, float] | None = shared("pixel_range", None)
    augment_flip: bool = shared("augment_flip", False)
    to_grayscale: bool = shared("to_grayscale", False)
    random_state: int = seed()

    def check_together(self) -> None:
        """Refuse several starts without rounds."""
        if self.n_init > 1 and not self.max_iter:
            raise ConfigurationError(
                "Without rounds nothing tells starts apart; leave out n_init, or raise max_iter."
            )

    @property
    def width(self) -> int:
        """Features of a position: one an atom, or two where codes have signs."""
        return self.n_atoms * (1 if self.positive and self.pooled_feature in ONE_SIGN else 2)

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
    trace : of each round, the mean objective of a patch before its step. active : atoms of a patch in the
        last round.
    """

    STORED_AS: ClassVar[str] = "sparse"
    CHANGEABLE: ClassVar = ("pooled_feature", "k", "threshold", "penalty", "pooling_grid", "method", "gap")

    ordered = True

    settings: SparseSettings
    atoms: Float64
    trace: tuple[float, ...] = ()
    active: float = 0.0
    provenance: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def learn(
        cls, start: Any, settings: SparseSettings, engine: Any
    ) -> tuple[dict[str, Any], list[Record]]:
        """Learn the dictionary in passes `round-1`, `round-2`, ... over chunk rows drawn by (seed, round).

        All sums are floating point and meet along the fixed tree: the same bits for any number of workers,
        after losses and after a resume. Memory on a worker: 8 K (D + 2) bytes a sum, and 8 K² more with
        learning "sums"; stated before each pass.
        """
        units = settings.n_atoms
        spares = start.atoms[units:]

        def make(state: Learned, number: int) -> tuple[L1Sums, Any]:
            statistic = L1Sums(
                start.patches,
                state.atoms.astype(np.float32),
                settings.penalty,
                settings.positive,
                settings.method,
                settings.gap,
                number + 1,
                settings.learning == "sums",
            )
            return statistic, start.images(number)

        def update(state: Learned, sums: State, number: int) -> Learned:
            with single_blas():
                return learned(state, sums, settings, number, spares)

        first = Learned(start.atoms[:units].copy(), np.zeros(units, np.int64))
        end, records = engine.loop("round", first, make, update, settings.max_iter)
        return {"atoms": end.atoms, "trace": end.trace, "active": end.active}, records

    @classmethod
    def groups(cls) -> Mapping[str, Mapping[str, tuple[str, ...]]]:
        """Return the arrays of its files: the group `training` has the mean objective of each round."""
        return {"training": {"trace": ("round",)}}

    def written(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the trace, and the atoms that are active."""
        return {"trace": self.trace}, {"title": "Sparse coding", "active": self.active}

    @classmethod
    def read(cls, found: Mapping[str, Any], about: Mapping[str, Any]) -> dict[str, Any]:
        """Return settings, atoms, trace and the atoms that are active."""
        return {
            "settings": SparseSettings.from_json(str(about["configuration"])),
            "atoms": found["atoms"],
            "trace": tuple(found["trace"].tolist()),
            "active": float(np.ravel(about["active"])[0]),
        }

    @classmethod
    def entries(cls, settings: SparseSettings) -> int:
        """Return K: a transform embeds L1 codes as they are, with their signs, whatever features are pooled."""
        return settings.n_atoms

    @property
    def feature(self) -> str:
        """l1, whatever features are pooled."""
        return "l1"

    def __call__(self, rows: Float32) -> Any:
        """Return L1 codes of whitened patches (n, p), (n, K)."""
        wanted = self.settings
        return l1.sparse_codes(
            self.dictionary, place(rows), wanted.penalty, positive=wanted.positive, method=wanted.method,
            gap=wanted.gap,
        )[0]  # fmt: skip

    def few(self) -> SparseCoder:
        """Return the same with few atoms."""
        atoms = self.atoms[:8]
        return replace(self, settings=self.settings.replace(n_atoms=len(atoms)), atoms=atoms)

    @cached_property
    def dictionary(self) -> Float32:
        """Φ, (p, K) float32."""
        return np.ascontiguousarray(self.atoms.T, np.float32)

    @property
    def held_bytes(self) -> int:
        """Bytes of the atoms, and of ΦᵀΦ while coding."""
        return int(2 * self.atoms.nbytes + 4 * len(self.atoms) ** 2)

    def code(self, rows: Float32) -> Any:
        """Return the features of whitened patches (n, p), (n, width); both signs side by side where codes have signs."""
        return _FEATURES[self.settings.pooled_feature](self, rows)

    def summary(self) -> dict[str, Any]:
        """Return what is asked of a fitted coder first, as plain JSON."""
        units, inputs = self.atoms.shape
        found: dict[str, Any] = {
            "units": units,
            "inputs": inputs,
            "overcompleteness": units / inputs,
            **self.learning(),
        }
        return found | ({"active": self.active} if self.trace else {})


def _l1(coder: SparseCoder, rows: Float32) -> Any:
    found = coder(rows)
    return found if coder.settings.positive else quick_codes.split_signs(found)


def _pursuit(coder: SparseCoder, rows: Float32) -> Any:
    return quick_codes.split_signs(quick_codes.omp_codes(coder.dictionary, place(rows), coder.settings.k))


def _linear(coder: SparseCoder, rows: Float32) -> Any:
    wanted = coder.settings
    found = quick_codes.linear_features(
        coder.dictionary, place(rows), wanted.threshold, positive=wanted.positive
    )
    return found if wanted.positive else quick_codes.split_signs(found)


_FEATURES: Final = {"l1": _l1, "omp": _pursuit, "linear": _linear}


@dataclass(frozen=True)
class Learned:
    """Between two rounds: atoms (K, D), the sums remembered of rounds before, and how long each atom has not been used."""

    atoms: Float64
    idle: NDArray[np.int64]
    taken: int = 0
    trace: tuple[float, ...] = ()
    active: float = 0.0
    square: Float64 | None = None  # (K,) running mean of a²
    second: Float64 | None = None
    cross: Float64 | None = None


def learned(state: Learned, sums: State, settings: SparseSettings, number: int, spares: Float64) -> Learned:
    """Return what a round's sums make of the atoms: a step, then spares in place of atoms that have long been idle."""
    n = int(sums["n"])
    trace = (*state.trace, float(sums["loss"]) / n)
    active = float(sums["uses"].sum()) / n
    square = second = cross = None
    if settings.learning == "gradient":
        fresh = sums["square"] / n
        square = (
            fresh
            if state.square is None
            else settings.memory * state.square + (1 - settings.memory) * fresh
        )
        atoms = gradient_step(state.atoms, sums["pull"] / n, square, settings.step(number))
    else:
        second, cross = sums["second"], sums["cross"]
        if state.second is not None and state.cross is not None:
            second = second + settings.memory * state.second
            cross = cross + settings.memory * state.cross
        atoms = quick_codes.dictionary_step(state.atoms, second, cross, settings.sweeps)
    idle = np.where(sums["uses"] > 0, 0, state.idle + 1)
    dead = np.flatnonzero(idle >= settings.idle)
    if len(dead) and len(spares):
        atoms[dead] = spares[(state.taken + np.arange(len(dead))) % len(spares)]
        idle[dead] = 0
        for kept in (square, second, cross):
            if kept is not None:
                kept[dead] = 0
        if second is not None:
            second[:, dead] = 0
    return Learned(atoms, idle, state.taken + len(dead), trace, active, square, second, cross)


def gradient_step(atoms: Float64, pull: Float64, square: Float64, rate: float) -> Float64:
    """Return unit atoms φ_j + rate ⟨a_j r⟩ / ⟨a_j²⟩: down ½ ‖x - Φ a‖² with the diagonal of its Hessian.

    pull : (K, D) means of a_j r. square : (K,) means of a_j², raised to a hundredth of their own mean, so
    that atoms that are rarely used do not jump.
    """
    floor = max(FLOOR * float(square.mean()), 1e-300)
    moved = atoms + rate * pull / np.maximum(square, floor)[:, None]
    return np.asarray(moved / np.maximum(np.linalg.norm(moved, axis=1, keepdims=True), 1e-12))


CODES: Final = {"l1": Code(SparseCoder, SparseSettings(), idle=frozenset({"pooled_feature"}))}
