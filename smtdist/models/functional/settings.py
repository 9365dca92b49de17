"""Settings of a sparse manifold transform of video."""

from __future__ import annotations

import dataclasses
import difflib
import json
from dataclasses import dataclass
from typing import Any, Final

from smtdist.codes.checks import require_kinds
from smtdist.errors import ConfigurationError

_CHOICES: Final = {"whiten": ("zca", "fourier"), "moment": ("centred", "second"), "order": (1, 2)}
_COUNTS: Final = ("patch", "length", "places", "atoms", "batch", "n_components", "sgd_batch", "sgd_steps")


@dataclass(frozen=True)
class FunctionalSettings:
    """Settings of a transform of video (SMT 2018); see `fit_video`.

    Attributes
    ----------
    patch : side of a patch in pixels.
    length : frames of a sequence.
    overlap : windows of `length` frames share frames, so that every difference in time of a shot is used once. Without
        it those between windows are left out, as in models that were saved before there was this setting.
    places : patches that are cut from each window of frames, each at its own place.
    views : views of each window that a fit learns from, each with its own places. 1: as it is; 2: mirrored
        too; 4: upside down too; 8: with rows and columns exchanged too. A few clips have few orientations and
        motions, and without views P overfits them.
    whiten : "zca" whitens patches; "fourier" whitens whole frames before patches are cut.
    low_pass : r₀ of the Fourier whitening, in units of the Nyquist frequency.
    ridge : λ of the ZCA whitening, as a share of the mean variance.
    atoms : number of atoms K.
    penalty : λ of the codes (equation 10).
    rounds, batch : rounds of dictionary learning, and sequences in each.
    order : order of the differences in time, 1 or 2.
    moment : V is the "centred" or the "second" moment.
    n_components : rows of P.
    sgd_rounds : rounds of mini-batches after the eigensolve (supplement C); 0 means none.
    sgd_batch, sgd_steps, sparsity : see `SgdSettings`.
    seed : seed of every random choice.
    """

    patch: int = 16
    length: int = 8
    overlap: bool = True
    places: int = 32
    views: int = 1
    whiten: str = "zca"
    low_pass: float = 0.75
    ridge: float = 1e-2
    atoms: int = 1024
    penalty: float = 0.25
    rounds: int = 20
    batch: int = 1000
    order: int = 2
    moment: str = "centred"
    n_components: int = 64
    sgd_rounds: int = 0
    sgd_batch: int = 256
    sgd_steps: int = 20
    sparsity: float = 0.05
    seed: int = 0

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                allowed = " or ".join(str(choice) for choice in choices)
                raise ConfigurationError(f"{name} is {getattr(self, name)!r}; choose {allowed}.")
        require_kinds(self)
        for name in _COUNTS:
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} is {getattr(self, name)}; it must be at least 1.")
        for name in ("rounds", "sgd_rounds", "sparsity", "ridge", "seed"):
            if not getattr(self, name) >= 0:
                raise ConfigurationError(f"{name} is {getattr(self, name)}; it must be at least 0.")
        if not (self.penalty > 0 and self.low_pass > 0):
            raise ConfigurationError(
                f"penalty is {self.penalty} and low_pass {self.low_pass}; both must be above 0."
            )
        if self.length <= self.order or self.n_components > self.atoms:
            raise ConfigurationError(
                f"length is {self.length} for differences of order {self.order}, n_components {self.n_components} for "
                f"{self.atoms} atoms; length must be larger than order, and n_components at most atoms."
            )

    def replace(self, **changes: Any) -> FunctionalSettings:
        """Return the settings with changes; an unknown name is an error that tells the nearest known one.

        >>> FunctionalSettings().replace(atoms=256).atoms
        256
        """
        known = [field.name for field in dataclasses.fields(self)]
        for name in changes:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean {near[0]}?" if near else f"they are {', '.join(known)}."
                raise ConfigurationError(f"There is no setting {name!r} of video; {hint}")
        return dataclasses.replace(self, **changes)

    def to_json(self) -> str:
        """Return the settings as JSON."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> FunctionalSettings:
        """Return settings from JSON; windows of older files do not overlap."""
        return cls().replace(**{"overlap": False} | json.loads(text))
