"""A fitted patch coder: whitening, parameters, and the features of an image."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from smtdist.kernels.device import place, to_host
from smtdist.kernels.l1 import solver_bytes, sparse_codes
from smtdist.kernels.sparse_codes import soft_threshold, split_signs
from smtdist.kernels.spike_slab import PARAMETERS, SpikeSlab, infer
from smtdist.models.coders.coder import Coder, Float32, Float64
from smtdist.models.s3c.settings import S3CSettings

GAP = 1e-3
"""Relative duality gap of sparse coding."""


@dataclass(frozen=True, eq=False)
class PatchCoder(Coder):
    """A fitted coder.

    Attributes
    ----------
    settings, shape, mean, whiten, unwhiten : as of every `smtdist.models.coders.coder.Coder`.
    parameters : of spike-and-slab sparse coding in float64; of its rivals only the atoms matter.
    trace : of each round, the mean energy functional (rivals: minus the loss) of a patch before its step.
    """

    settings: S3CSettings
    parameters: SpikeSlab
    trace: tuple[float, ...] = ()
    provenance: dict[str, Any] = field(default_factory=dict)

    @property
    def basis(self) -> Float64:
        """The columns of W as rows, (N, p)."""
        return np.asarray(self.parameters.atoms)

    @property
    def sparse(self) -> bool:  # type: ignore[override]
        """Whether most entries of a code are exactly zero: expectations under Q never are."""
        return self.settings.model != "s3c"

    def learnt(self) -> tuple[Float64, ...]:
        """Return all parameters."""
        return tuple(np.asarray(getattr(self.parameters, name)) for name in PARAMETERS)

    def few(self) -> PatchCoder:
        """Return the same with few units and iterations."""
        few = {name: getattr(self.parameters, name)[:8] for name in PARAMETERS if name != "beta"}
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
        """Bytes of the atoms, and of what the solver of sparse coding makes of them."""
        atoms = self.parameters.atoms
        return int(atoms.nbytes) + (solver_bytes(*atoms.T.shape) if self.settings.model == "sc" else 0)

    def code(self, rows: Float32) -> Any:
        """Return the features of whitened patches (n, p), (n, width), where they are placed."""
        settings, model, placed = self.settings, self._fast, place(rows)
        feature = settings.resolved_feature
        if settings.model == "omp":
            return split_signs(soft_threshold(placed, model.atoms, settings.threshold))
        if settings.model == "sc":
            # the paper's penalty goes with whole squares
            found = sparse_codes(model.atoms.T, placed, settings.penalty / 2, positive=False, gap=GAP)
            return split_signs(found[0])
        posterior = infer(placed, model.on(placed), settings.schedule())
        if feature == "h":
            return posterior.h
        if feature == "hs":
            return posterior.mean
        if feature == "signs":
            return split_signs(posterior.mean)
        return np.concatenate([to_host(posterior.h), to_host(posterior.mean)], axis=1)

    def summary(self) -> dict[str, Any]:
        """Return what is asked of a fitted coder first, as plain JSON."""
        found: dict[str, Any] = {
            "model": self.settings.model,
            "units": self.parameters.n_units,
            "inputs": self.parameters.n_inputs,
            "rounds": len(self.trace),
        }
        name = "energy" if self.settings.model == "s3c" else "objective"
        if self.trace:
            tenth = max(1, len(self.trace) // 10)
            found[f"{name}_first"] = self.trace[0]
            found[name] = float(np.mean(self.trace[-tenth:]))
        if self.settings.model == "s3c":
            parameters = self.parameters
            found |= {
                "prior_active": float((1 / (1 + np.exp(-parameters.bias))).mean()),
                "beta": float(parameters.beta.mean()),
                "alpha": float(np.median(parameters.alpha)),
            }
        return found
