"""The M-step of spike-and-slab sparse coding: in closed form, or a small gradient step; from sums alone."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from smtdist.codes.s3c import Bounds, Rates
from smtdist.errors import ConfigurationError, DataError
from smtdist.kernels.spike_slab import SpikeSlab, sigmoid
from smtdist.kernels.threads import single_blas
from smtdist.statistics.base import State

Float64 = NDArray[np.float64]

FLOOR: Final = 1e-4


def slab_variances(model: SpikeSlab, sums: State) -> Float64:
    """Return Σ Var_Q(h_i s_i), (N,): Σ ĥ (ŝ² + 1/γ) - Σ x²."""
    return np.asarray(sums["square"] + sums["h"] / model.gamma - sums["cross"])


def slab_deviations(model: SpikeSlab, sums: State, mu: Float64) -> Float64:
    """Return Σ ĥ E_Q (s_i - μ_i)², (N,), of active slabs, for a new μ under the Q of `model`."""
    return np.asarray(sums["square"] - 2 * mu * sums["x"] + mu**2 * sums["h"] + sums["h"] / model.gamma)


def closed_form(
    model: SpikeSlab, sums: State, *, scalar_beta: bool, bounds: Bounds | None = None
) -> SpikeSlab:
    """Return the parameters that maximise Σ E_Q log p(v, h, s) over all of them, atoms brought to unit length.

    W = Σ v xᵀ (Σ E_Q[(h∘s)(h∘s)ᵀ])⁻¹, μ = Σ x / Σ ĥ, 1/α = Σ ĥ E_Q (s - μ)² / Σ ĥ, σ(b) = mean ĥ, 1/β = mean
    E_Q (v - W(h∘s))². A slab whose spike is off touches nothing and is left out of the complete data: counted in, its
    variance would be the old 1/α, and α of a unit that is rarely active would move by that share of the way only.
    Unit length is no constraint on the likelihood: `SpikeSlab.rescaled` moves it into μ and α. Units that are never active
    keep their parameters.
    """
    n = int(sums["n"])
    _require_sums(sums)
    if "xx" not in sums:
        raise ConfigurationError("The M-step in closed form needs Σ x xᵀ; sum with second=True.")
    spread = slab_variances(model, sums)
    second = sums["xx"] + np.diag(spread)
    with single_blas():
        # Σ v xᵀ from the residuals, v = r + Wx
        both = sums["rx"] + sums["xx"] @ model.atoms
        dead = second.diagonal() <= 1e-12 * max(float(second.diagonal().max()), 1e-300)
        second[dead, dead] = 1.0
        atoms = np.linalg.solve(second, both)
        atoms[dead] = model.atoms[dead]
        change = atoms - model.atoms
        # Σ E (v - W'(h∘s))² = Σ r² - 2 Δ·Σ x r + Δᵀ Σ xxᵀ Δ + W'ᵀ Var W'
        noise = sums["rr"] - 2 * (change * sums["rx"]).sum(axis=0)
        noise = noise + (change * (sums["xx"] @ change)).sum(axis=0) + spread @ (atoms * atoms)
    active = np.maximum(sums["h"], 1e-300)
    mu = np.where(sums["h"] > 1e-9 * n, sums["x"] / active, model.mu)
    deviations = slab_deviations(model, sums, mu)
    alpha = np.where(sums["h"] > 1e-9 * n, sums["h"] / np.maximum(deviations, 1e-300), model.alpha)
    share = np.clip(sums["h"] / n, 1e-12, 1 - 1e-12)
    bias = np.log(share) - np.log1p(-share)
    noise = np.full_like(noise, noise.mean()) if scalar_beta else noise
    beta = n / np.maximum(noise, 1e-12 * n)
    return (bounds or Bounds()).keep(SpikeSlab(atoms, mu, alpha, bias, beta).rescaled())


def gradients(model: SpikeSlab, sums: State) -> dict[str, Float64]:
    """Return the derivatives of the mean of E_Q log p(v, h, s), Q held fixed, by each parameter."""
    _require_sums(sums)
    n = int(sums["n"])
    spread = slab_variances(model, sums)
    noise = sums["rr"] + spread @ (model.atoms * model.atoms)
    found = {
        "atoms": (sums["rx"] - spread[:, None] * model.atoms) * model.beta,
        "mu": model.alpha * (sums["x"] - model.mu * sums["h"]),
        "alpha": (sums["h"] / model.alpha - slab_deviations(model, sums, model.mu)) / 2,
        "bias": sums["h"] - n * sigmoid(model.bias),
        "beta": (n / model.beta - noise) / 2,
    }
    return {name: np.asarray(value / n) for name, value in found.items()}


def gradient_step(
    model: SpikeSlab, sums: State, rates: Rates, *, scalar_beta: bool, bounds: Bounds | None = None
) -> SpikeSlab:
    """Return the model after one small step up the mean of E_Q log p(v, h, s), atoms brought back to unit length.

    With `rates.newton` every slope is divided by its own curvature, β̄ Σ E_Q (h_i s_i)² / n for W_i, so that units which are
    seldom active learn as fast as frequent ones, and a rate of 1 is the maximum of each alone; without, it is the plain
    gradient of section 4, that of an atom along the sphere: what would change its length would, by `SpikeSlab.rescaled`, move α
    and μ at the rate of the atoms.
    """
    slope = gradients(model, sums)
    int(sums["n"])
    slope["mu"] -= rates.penalty_mu * model.mu
    slope["alpha"] -= rates.penalty_alpha
    slope["beta"] -= rates.penalty_beta
    if scalar_beta:
        slope["beta"] = np.full_like(slope["beta"], slope["beta"].mean())
    slope["alpha"] *= model.alpha
    slope["beta"] *= model.beta
    if rates.newton:
        curvatures = _curvatures(model, sums)
        slope = {name: slope[name] / curvatures[name] for name in slope}
    else:
        outwards = (slope["atoms"] * model.atoms).sum(axis=1, keepdims=True)
        slope["atoms"] = slope["atoms"] - outwards * model.atoms
    rate = rates.rate
    moved = SpikeSlab(
        model.atoms + rate * rates.atoms * slope["atoms"],
        model.mu + rate * rates.mu * slope["mu"],
        model.alpha * np.exp(np.clip(rate * rates.alpha * slope["alpha"], -0.5, 0.5)),
        model.bias + rate * rates.bias * slope["bias"],
        model.beta * np.exp(np.clip(rate * rates.beta * slope["beta"], -0.5, 0.5)),
    )
    return (bounds or Bounds()).keep(moved.rescaled())


def _curvatures(model: SpikeSlab, sums: State) -> dict[str, Float64]:
    """Return minus the second derivatives of each unit alone; α and β by their logarithms.

    A unit that is hardly ever active has neither slope nor curvature: a floor keeps it where it is.
    """
    n = int(sums["n"])
    active = np.maximum(sums["h"] / n, FLOOR)
    power = np.maximum((sums["square"] + sums["h"] / model.gamma) / n, FLOOR)
    prior = sigmoid(model.bias)
    return {
        "atoms": (model.beta.mean() * power)[:, None],
        "mu": model.alpha * active,
        "alpha": active / 2,
        "bias": np.maximum(prior * (1 - prior), FLOOR),
        "beta": np.full(model.n_inputs, 0.5),
    }


def _require_sums(sums: State) -> None:
    if int(sums["n"]) < 1 or not all(np.isfinite(value).all() for value in sums.values()):
        raise DataError(
            "The sums of the E-step are empty or not finite; lower the learning rate, or check the patches."
        )
