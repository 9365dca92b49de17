"""How spike-and-slab sparse coding and its rivals learn: rounds of sums, and steps from the sums alone.

The M-step of spike-and-slab sparse coding is in closed form, or a small gradient step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smtdist.codes.coder import Record
from smtdist.errors import ConfigurationError, DataError
from smtdist.kernels import sparse_codes as quick_codes
from smtdist.kernels import spike_slab
from smtdist.kernels.spike_slab import SpikeSlab
from smtdist.kernels.threads import single_blas
from smtdist.statistics.base import State, Statistic
from smtdist.statistics.l1_codes import L1Sums, OmpSums, SpikeSlabSums

Float64 = NDArray[np.float64]

GAP: Final = 1e-3
"""Relative duality gap of sparse coding."""
FORGET: Final = 0.9
"""What a round leaves of the sums of those before it, in sparse coding (Mairal et al. 2009)."""
FLOOR: Final = 1e-4


def slab_variances(model: SpikeSlab, sums: State) -> Float64:
    """Return Σ Var_Q(h_i s_i), (N,): Σ ĥ (ŝ² + 1/γ) - Σ x²."""
    return np.asarray(sums["square"] + sums["h"] / model.gamma - sums["cross"])


def slab_deviations(model: SpikeSlab, sums: State, mu: Float64) -> Float64:
    """Return Σ ĥ E_Q (s_i - μ_i)², (N,), of active slabs, for a new μ under the Q of `model`."""
    return np.asarray(sums["square"] - 2 * mu * sums["x"] + mu**2 * sums["h"] + sums["h"] / model.gamma)


def closed_form(model: SpikeSlab, sums: State, settings: Any) -> SpikeSlab:
    """Return the parameters that maximise Σ E_Q log p(v, h, s) over all of them, atoms brought to unit length.

    W = Σ v xᵀ (Σ E_Q[(h∘s)(h∘s)ᵀ])⁻¹, μ = Σ x / Σ ĥ, 1/α = Σ ĥ E_Q (s - μ)² / Σ ĥ, σ(b) = mean ĥ, 1/β = mean
    E_Q (v - W(h∘s))². A slab whose spike is off touches nothing and is left out of the complete data:
    counted in, its variance would be the old 1/α, and α of a unit that is rarely active would move by that
    share of the way only. Unit length is no constraint on the likelihood: `SpikeSlab.rescaled` moves it
    into μ and α. Units that are never active keep their parameters.
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
    noise = np.full_like(noise, noise.mean()) if settings.beta == "scalar" else noise
    beta = n / np.maximum(noise, 1e-12 * n)
    return _kept(SpikeSlab(atoms, mu, alpha, bias, beta).rescaled(), settings)


def _kept(model: SpikeSlab, settings: Any) -> SpikeSlab:
    """Return a model within the bounds of its settings."""
    kept = {
        name: np.clip(getattr(model, name), *getattr(settings, f"{name}_bounds"))
        for name in ("alpha", "beta", "bias", "mu")
    }
    return SpikeSlab(atoms=model.atoms, **kept)


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
        "bias": sums["h"] - n * spike_slab.sigmoid(model.bias),
        "beta": (n / model.beta - noise) / 2,
    }
    return {name: np.asarray(value / n) for name, value in found.items()}


def gradient_step(model: SpikeSlab, sums: State, settings: Any, number: int = 1) -> SpikeSlab:
    """Return the model after the step of round `number` up the mean of E_Q log p(v, h, s), atoms brought back to unit length.

    α and β take their steps in the logarithm, which keeps them positive and makes a step relative.
    Penalties are ½ c μ², c α and c β, summed over their entries. With `newton` every slope is divided by its
    own curvature, β̄ Σ E_Q (h_i s_i)² / n for W_i, so that units which are seldom active learn as fast as
    frequent ones, and a rate of 1 is the maximum of each alone; without, it is the plain gradient of section
    4, that of an atom along the sphere: what would change its length would, by `SpikeSlab.rescaled`, move α
    and μ at the rate of the atoms.
    """
    slope = gradients(model, sums)
    slope["mu"] -= settings.penalty_mu * model.mu
    slope["alpha"] -= settings.penalty_alpha
    slope["beta"] -= settings.penalty_beta
    if settings.beta == "scalar":
        slope["beta"] = np.full_like(slope["beta"], slope["beta"].mean())
    slope["alpha"] *= model.alpha
    slope["beta"] *= model.beta
    if settings.newton:
        curvatures = _curvatures(model, sums)
        slope = {name: slope[name] / curvatures[name] for name in slope}
    else:
        outwards = (slope["atoms"] * model.atoms).sum(axis=1, keepdims=True)
        slope["atoms"] = slope["atoms"] - outwards * model.atoms
    rate = settings.step(number)
    moved = SpikeSlab(
        model.atoms + rate * settings.rate_atoms * slope["atoms"],
        model.mu + rate * settings.rate_mu * slope["mu"],
        model.alpha * np.exp(np.clip(rate * settings.rate_alpha * slope["alpha"], -0.5, 0.5)),
        model.bias + rate * settings.rate_bias * slope["bias"],
        model.beta * np.exp(np.clip(rate * settings.rate_beta * slope["beta"], -0.5, 0.5)),
    )
    return _kept(moved.rescaled(), settings)


def _curvatures(model: SpikeSlab, sums: State) -> dict[str, Float64]:
    """Return minus the second derivatives of each unit alone; α and β by their logarithms.

    A unit that is hardly ever active has neither slope nor curvature: a floor keeps it where it is.
    """
    n = int(sums["n"])
    active = np.maximum(sums["h"] / n, FLOOR)
    power = np.maximum((sums["square"] + sums["h"] / model.gamma) / n, FLOOR)
    prior = spike_slab.sigmoid(model.bias)
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


@dataclass(frozen=True)
class _Learned:
    """Between two rounds: the objective of each so far, parameters, and what sparse coding remembers of its sums."""

    trace: tuple[float, ...]
    model: SpikeSlab
    second: Float64 | None = None
    cross: Float64 | None = None


def learn(start: Any, settings: Any, engine: Any) -> tuple[SpikeSlab, tuple[float, ...], list[Record]]:
    """Learn in rounds of a pass and a step; return parameters, the objective before each step, and records."""
    summed, stepped = _ROUNDS[settings.model]

    def make(state: _Learned, number: int) -> tuple[Statistic, Any]:
        return summed(start, settings, state.model, number + 1), start.images(number)

    def update(state: _Learned, sums: State, number: int) -> _Learned:
        with single_blas():
            objective, *learned = stepped(start, settings, state, sums, number)
        return _Learned((*state.trace, objective / int(sums["n"])), *learned)

    atoms = start.atoms[: settings.n_atoms].copy()
    mu, alpha, bias = (
        np.full(len(atoms), float(getattr(settings, one))) for one in ("mu", "alpha", "bias")
    )
    first = SpikeSlab(atoms, mu, alpha, bias, np.full(atoms.shape[1], float(settings.beta_start)))
    end, records = engine.loop("round", _Learned((), first), make, update, settings.max_iter)
    return end.model, end.trace, records


def _slab_sums(start: Any, settings: Any, model: SpikeSlab, view: int) -> Statistic:
    closed = settings.m_step == "closed"
    return SpikeSlabSums(start.patches, model.astype(np.float32), settings.schedule(), view, closed)


def _slab_step(start: Any, settings: Any, state: _Learned, sums: State, number: int) -> tuple[Any, ...]:
    # the sums were made with the rounded parameters
    here = state.model.astype(np.float32).astype(np.float64)
    if settings.m_step == "closed":
        return float(sums["energy"]), closed_form(here, sums, settings)
    return float(sums["energy"]), gradient_step(here, sums, settings, number)


def _omp_sums(start: Any, settings: Any, model: SpikeSlab, view: int) -> Statistic:
    return OmpSums(start.patches, model.atoms.astype(np.float32), view)


def _omp_step(start: Any, settings: Any, state: _Learned, sums: State, number: int) -> tuple[Any, ...]:
    lengths = np.sqrt((sums["sums"] ** 2).sum(axis=1))
    used = (sums["counts"] > 0) & (lengths > 0)
    fresh = np.where(used[:, None], sums["sums"] / np.where(used, lengths, 1)[:, None], state.model.atoms)
    dead, spares = np.flatnonzero(~used), start.atoms[settings.n_atoms :]
    # the spares take turns, a different part of them each round
    if len(dead) and len(spares):
        fresh[dead] = spares[(np.arange(len(dead)) + (number - 1) * len(dead)) % len(spares)]
    return -float(sums["loss"]), replace(state.model, atoms=fresh)


def _sparse_sums(start: Any, settings: Any, model: SpikeSlab, view: int) -> Statistic:
    atoms, penalty = model.atoms.astype(np.float32), settings.penalty / 2  # of half the squares
    return L1Sums(start.patches, atoms, penalty, False, "coordinate", GAP, view, True)


def _sparse_step(start: Any, settings: Any, state: _Learned, sums: State, number: int) -> tuple[Any, ...]:
    second, cross = sums["second"], sums["cross"]
    if state.second is not None and state.cross is not None:
        second, cross = second + FORGET * state.second, cross + FORGET * state.cross
    fresh = quick_codes.dictionary_step(state.model.atoms, second, cross)
    return -2 * float(sums["loss"]), replace(state.model, atoms=fresh), second, cross


_ROUNDS: Final[dict[str, tuple[Callable[..., Statistic], Callable[..., tuple[Any, ...]]]]] = {
    "s3c": (_slab_sums, _slab_step),
    "omp": (_omp_sums, _omp_step),
    "sc": (_sparse_sums, _sparse_step),
}
"""The sums of a round, and the step from them to minus the loss and what is learned; by the name of the model."""
