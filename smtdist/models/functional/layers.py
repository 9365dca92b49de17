"""Stacked layers: reconstruction per layer, size of atoms, interpolation between them (SMT 2018, figure 5)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from smtdist.data.video import Clip
from smtdist.engine.passes import Engine
from smtdist.models.functional.needles import needles
from smtdist.models.functional.settings import FunctionalSettings
from smtdist.models.functional.video import VideoModel, fit_video
from smtdist.models.functional.video_judge import pca, snr
from smtdist.models.records import Record

Float64 = NDArray[np.float64]


def fit_layers(
    clips: tuple[Clip, ...], settings: list[FunctionalSettings], engine: Engine
) -> tuple[VideoModel, list[Record]]:
    """Fit layers one after another, each on what those below it embed; return the top one and the records of all passes.

    Every pass streams clips through the layers below: no codes are kept. Names of passes begin anew with
    each layer.
    """
    model: VideoModel | None = None
    records: list[Record] = []
    for one in settings:
        model, more = fit_video(clips, one, engine, model)
        records += more
    assert model is not None
    return model, records


def reconstruction_per_layer(model: VideoModel, rows: Float64) -> list[dict[str, float]]:
    """Return for each layer the SNR in dB of raw patches (n, D) rebuilt from its codes, and of PCA of equal code length.

    `active` is the mean number of active codes, `PCA` that of as many coefficients as the layer below hands
    on (the number of its components, D for the first) or as there are active codes, whichever is fewer; a
    code says which atoms are active too. `codes and mean`: with each patch's own mean kept as one
    coefficient more, which whitening and shrinkage lose first.
    """
    lowest = model.layers[0]
    mean = lowest.whitening.mean
    result = []
    for layer in model.layers:
        codes = layer.codes(rows)
        active = float((codes > 0).sum(axis=1).mean())
        count = max(1, min(round(active), layer.coder.dictionary.shape[0]))
        rebuilt = layer.decode(codes)
        shift = (rows.mean(axis=1) - rebuilt.mean(axis=1))[:, None]
        result.append(
            {
                "codes": snr(rows, rebuilt, mean),
                "codes and mean": snr(rows, rebuilt + shift, mean),
                "active": active,
                "PCA": snr(rows, pca(rows, mean, lowest.covariance, count), mean),
                "PCA of the components": snr(
                    rows,
                    pca(rows, mean, lowest.covariance, min(len(layer.components), rows.shape[1])),
                    mean,
                ),
            }
        )
    return result


def atom_lengths(model: VideoModel) -> list[float]:
    """Return for each layer the mean length of its atoms' envelopes in pixels, as the lowest dictionary sees them."""
    found = []
    for layer in model.layers:
        atoms = layer.white(np.eye(layer.coder.size))
        kept = np.linalg.norm(atoms, axis=1) > 1e-9
        found.append(float(needles(atoms[kept]).length.mean()))
    return found


def interpolated(model: VideoModel, first: int, second: int) -> dict[str, Float64]:
    """Return patches (side, side) of two top atoms, of half of each together, and the mean of both pictures (figure 5C)."""
    side = model.settings.patch
    codes = np.zeros((3, model.coder.size))
    codes[0, first] = codes[1, second] = 1.0
    codes[2, [first, second]] = 0.5
    patches = model.white(codes).reshape(3, side, side)
    return {
        "first": patches[0],
        "second": patches[1],
        "between": patches[2],
        "mean": (patches[0] + patches[1]) / 2,
    }


def judged_layers(model: VideoModel, rows: Float64) -> dict[str, Any]:
    """Return reconstruction, and the mean length of atoms, of each layer."""
    return {"reconstruction": reconstruction_per_layer(model, rows), "atom_length": atom_lengths(model)}
