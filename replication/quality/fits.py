"""Fits of the tables, each made once, and the components that a cell asks of them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from benchmarks.steps import Steps
from replication.quality.cells import SOLVED, Fit, Part
from replication.quality.images import read, without_scaling
from smtdist.engine.events import EventStream
from smtdist.engine.executor import Executor
from smtdist.engine.passes import Engine
from smtdist.models.fit import fit
from smtdist.models.merge import refit
from smtdist.models.model import Model
from smtdist.models.store import load, save

RANK: Final = 1e-10
"""Directions of V below this share of its largest eigenvalue are rounding, and left out of whitened codes."""


def fitted(work: Steps, asked: Fit, components: int, data: Path, executor: Executor) -> Model:
    """Return the model of a fit with at least so many components, with its sums; from its file if it was fitted before."""
    path = work.path(f"models/{asked.key}.h5")
    model: Model
    if not path.exists() and _solved_again(work, asked, components, path):
        model = load(path)
        return model
    if not path.exists():
        work.heed()
        settings = without_scaling(asked.settings).replace(n_components=components, drop=0)
        images = read(data, asked, "train", asked.n_train)
        checkpoint = work.folder / f"models/{asked.key}.checkpoint"
        key = f"{asked.key} {components}"
        engine = Engine(executor, EventStream(), checkpoint, key, work.stop)
        model, passes = fit(images.source, settings, engine)
        save(model, path)
        work.keep(f"models/{asked.key}.json", {"passes": passes, "settings": asked.settings.to_dict()})
        work.keep(f"models/{asked.sums}-sums.json", asked.key)
        work.forget(f"models/{asked.key}.checkpoint")
        return model
    model = load(path)
    if model.embedding is None or len(model.embedding.components) < components:
        work.heed()
        model = refit(model, n_components=components, drop=0)
        save(model, path, overwrite=True)
    return model


def _solved_again(work: Steps, asked: Fit, components: int, path: Path) -> bool:
    """Make a model of the sums of another, where one has them; return whether there was one."""
    if not work.done(f"models/{asked.sums}-sums.json"):
        return False
    work.heed()
    other = work.facts(f"models/{asked.sums}-sums.json", str)
    started = time.perf_counter()
    model = load(work.path(f"models/{other}.h5"))
    changes = {name: value for name, value in asked.settings.to_dict().items() if name in SOLVED}
    save(refit(model, **changes, n_components=components, drop=0), path)
    # the passes are the other's, but for the solve
    known = work.facts(f"models/{other}.json", dict)["passes"]
    passes = [
        {**one, "seconds": time.perf_counter() - started} if one["name"] == "solve" else one
        for one in known
    ]
    work.keep(f"models/{asked.key}.json", {"passes": passes, "settings": asked.settings.to_dict()})
    return True


def passes_of(work: Steps, asked: Fit) -> list[dict[str, Any]]:
    """Return the records of a fit's passes."""
    found: list[dict[str, Any]] = work.facts(f"models/{asked.key}.json", lambda: {"passes": []})["passes"]
    return found


def wanted_components(parts: list[Part]) -> int:
    """Return the spectral components that the parts of one fit need."""
    needed = [part.drop + part.n_components for part in parts if part.is_spectral]
    return max(needed, default=2)


def components_of(work: Steps, model: Model, part: Part) -> NDArray[np.float32]:
    """Return what a part multiplies codes with, transposed: (K, components), those to be dropped among them.

    "codes" are the codes themselves; "pca" takes the eigenvectors of V with the largest eigenvalues, "pca-whitened" brings them
    to unit variance (SMT 2023, appendix E). With a ridge, V + ridge (mean of V's diagonal) I stands in place of V.
    """
    n_atoms = len(model.dictionary.grid)
    if part.solve == "codes":
        return np.eye(n_atoms, dtype=np.float32)
    if part.ridge:
        return _with_ridge(work, model, part)
    if part.is_spectral:
        assert model.embedding is not None
        return np.ascontiguousarray(
            model.embedding.components[: part.drop + part.n_components].T, np.float32
        )
    values, vectors = _eigen(work, model, part.fit)
    kept = int((values > RANK * values[0]).sum())
    last = min(part.drop + part.n_components, kept) if part.n_components else kept
    found = vectors[:, :last]
    if part.solve != "pca":
        found = found / np.sqrt(values[:last])
    return np.ascontiguousarray(found, np.float32)


def _with_ridge(work: Steps, model: Model, part: Part) -> NDArray[np.float32]:
    """Return the solutions w of A D Dᵀ Aᵀ w = μ (V + ridge I) w with the smallest μ, as columns."""
    assert model.statistics is not None
    values, vectors = _eigen(work, model, part.fit)
    whitening = vectors / np.sqrt(np.maximum(values, 0) + part.ridge * values.mean())
    scatter = np.asarray(model.statistics.context_scatter, np.float64)
    count = part.drop + part.n_components
    found = scipy.linalg.eigh(whitening.T @ scatter @ whitening, subset_by_index=(0, count - 1))[1]
    return np.ascontiguousarray(whitening @ found, np.float32)


def _eigen(work: Steps, model: Model, asked: Fit) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the eigenvalues of V, the largest first, and the eigenvectors as columns."""

    def make() -> NDArray[np.float64]:
        assert model.statistics is not None
        second = np.asarray(model.statistics.second_moment)
        second = np.diag(second) if second.ndim == 1 else second
        values, vectors = scipy.linalg.eigh(second / model.statistics.n_positions, driver="evd")
        return np.concatenate([values[None, ::-1], vectors[:, ::-1]])

    found = work.array(f"models/{asked.key}-moment", make)
    return found[0], found[1:]
