"""What a transform of video does to clips: straightness, reconstruction beside PCA, its dictionary's topology."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smtdist.errors import DataError
from smtdist.models.functional.inverse import PENALTY
from smtdist.models.functional.sgd import participation
from smtdist.models.functional.straightness import straightness
from smtdist.models.functional.topology import BEST, figure_4b, pooling
from smtdist.models.functional.video import VideoModel

Float64 = NDArray[np.float64]


def snr(signal: Float64, found: Float64, mean: Float64 | float = 0.0) -> float:
    """Return the signal-to-noise ratio in dB: 10 log10 of the signal's energy about `mean` over that of the error.

    >>> round(snr(np.array([10.0, -10.0]), np.array([9.0, -9.0])), 3)
    20.0
    """
    return float(
        10 * np.log10(((signal - mean) ** 2).sum() / max(float(((signal - found) ** 2).sum()), 1e-300))
    )


def pca(rows: Float64, mean: Float64, covariance: Float64, count: int) -> Float64:
    """Return rows rebuilt from their first `count` principal components."""
    _, vectors = np.linalg.eigh(covariance)
    leading = vectors[:, -count:]
    result: Float64 = (rows - mean) @ leading @ leading.T + mean
    return result


def judged(
    model: VideoModel,
    sequences: NDArray[np.float32],
    *,
    strengths: Sequence[float] = (0.1, 1.0),
    penalties: Sequence[float] = (PENALTY,),
    best: int = BEST,
) -> dict[str, Any]:
    """Return what a transform does to raw sequences (n, T, D), in numbers.

    straightness : of raw and whitened pixels, codes, embedding, and PCA pooling of as many components (`straightness`).
    ratios : that of each over that of the embedding: above 1 the embedding is straighter.
    regularised : for each strength of equation 11, straightness of embedding and codes, and SNR of Φ α.
    reconstruction : SNR in dB on raw patches, of Φ α, of Φ g(β) for each penalty of equation 6, and of PCA with as many
        coefficients; about the mean patch, and with each patch's own mean left out.
    figure_4b : see `topology.figure_4b`; neighbours by pixels are those of whitened atoms. support : of the functionals.
    Memory: the codes of all sequences, 8 n T K bytes, a few times.
    """
    if sequences.ndim != 3 or len(sequences) == 0:
        raise DataError(f"Sequences are (n, T, D); these have the shape {sequences.shape}.")
    codes = model.codes(sequences)
    pooled = pooling(model.sums.covariance, len(model.components))
    spaces: dict[str, Any] = {
        "pixels": sequences,
        "pixels without their mean": sequences - sequences.mean(axis=2, keepdims=True),
        "whitened pixels": model.layers[0].whitening(sequences.astype(np.float64)),
        "codes": codes,
        "embedding": codes @ model.components.T,
        "PCA pooling": codes @ pooled.T,
    }
    found = {name: straightness(rows).to_dict() for name, rows in spaces.items()}
    own = found["embedding"]
    result: dict[str, Any] = {
        "n_sequences": len(sequences),
        "active": float((codes > 0).sum(axis=2).mean()),
        "straightness": found,
        "ratios": {
            name: {key: value / max(own[key], 1e-300) for key, value in one.items()}
            for name, one in found.items()
            if name != "embedding"
        },
        "regularised": [_regularised(model, sequences, strength) for strength in strengths],
        "reconstruction": _reconstruction(model, sequences, codes, penalties),
        "support": float(participation(model.components, model.sums.mean).mean()),
    }
    result["figure_4b"] = figure_4b(
        model.white(np.eye(model.coder.size)).T,
        model.components,
        {"PCA pooling": pooled},
        best=min(best, model.coder.size // 2),
    )
    return result


def _regularised(model: VideoModel, sequences: NDArray[np.float32], strength: float) -> dict[str, Any]:
    codes = model.regularised(sequences, strength)
    raw = sequences.reshape(-1, sequences.shape[2]).astype(np.float64)
    rebuilt = model.decode(codes.reshape(len(raw), -1))
    return {
        "strength": strength,
        "embedding": straightness(codes @ model.components.T).to_dict(),
        "codes": straightness(codes).to_dict(),
        "snr": snr(raw, rebuilt, _mean(model)),
    }


def _reconstruction(
    model: VideoModel, sequences: NDArray[np.float32], codes: Float64, penalties: Sequence[float]
) -> dict[str, dict[str, float]]:
    middle = sequences.shape[1] // 2
    raw, code = sequences[:, middle].astype(np.float64), codes[:, middle]
    rebuilt = {
        "codes": model.decode(code),
        "PCA": pca(raw, _mean(model), model.layers[0].covariance, len(model.components)),
    }
    for penalty in penalties:
        rebuilt[f"embedding, λ = {penalty:g}"] = model.recover(code @ model.components.T, penalty)
    plain = raw - raw.mean(axis=1, keepdims=True)
    return {
        name: {
            "snr": snr(raw, rows, _mean(model)),
            "snr_without_mean": snr(plain, rows - rows.mean(axis=1, keepdims=True)),
        }
        for name, rows in rebuilt.items()
    }


def _mean(model: VideoModel) -> Float64:
    return model.layers[0].whitening.mean
