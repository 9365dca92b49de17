"""What a transform of video does to clips: how straight trajectories are (SMT 2018, eq. 7), and reconstruction beside PCA."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smtdist.data.video import Clip, PatchSequences
from smtdist.errors import ConfigurationError, DataError
from smtdist.models.functional.inference import PENALTY
from smtdist.models.functional.sgd import participation
from smtdist.models.functional.video import VideoModel
from smtdist.solve.solution import Float64


def snr(signal: Float64, found: Float64, mean: Float64 | float = 0.0) -> float:
    """Return the signal-to-noise ratio in dB: 10 log10 of the signal's energy about `mean` over that of the error.

    >>> round(snr(np.array([10.0, -10.0]), np.array([9.0, -9.0])), 3)
    20.0
    """
    return float(
        10 * np.log10(((signal - mean) ** 2).sum() / max(float(((signal - found) ** 2).sum()), 1e-300))
    )


def pca(rows: Float64, mean: Float64 | float, covariance: Float64, count: int) -> Float64:
    """Return rows rebuilt from their first `count` principal components."""
    _, vectors = np.linalg.eigh(covariance)
    leading = vectors[:, -count:]
    result: Float64 = (rows - mean) @ leading @ leading.T + mean
    return result


def judged_clips(model: VideoModel, clips: tuple[Clip, ...], sequences: int = 1000) -> dict[str, Any]:
    """Return what a transform does to clips, by so many of their sequences at most (`judged`), and each layer to patches."""
    source = model.sequences(clips)
    count = min(sequences, source.n_samples)
    chosen = np.linspace(0, source.n_samples, count, endpoint=False).astype(np.int64)
    rows, raw = (read_samples(one, chosen) for one in (source, model.sequences(clips, raw=True)))
    return judged(model, rows, raw=raw)


def read_samples(source: PatchSequences, chosen: NDArray[np.integer]) -> NDArray[np.float32]:
    """Return samples of a source by number, (n, T, D)."""
    with source.opened() as reader:
        return np.concatenate([reader.read(int(one), int(one) + 1) for one in chosen])


def judged(
    model: VideoModel,
    sequences: NDArray[np.float32],
    *,
    strengths: Sequence[float] = (0.1, 1.0),
    penalties: Sequence[float] = (PENALTY,),
    raw: NDArray[np.float32] | None = None,
) -> dict[str, Any]:
    """Return what a transform does to sequences (n, T, D) as it takes them, in numbers.

    raw : the same sequences of unwhitened frames, where the model takes those of frames whitened whole.
    straightness : of raw and whitened pixels, principal components of the latter scaled to variance 1 as
        rows of P are, codes, embedding, and PCA pooling, of as many components (`straightness`).
    ratios : that of each over that of the embedding: above 1 the embedding is straighter.
    regularised : for each strength of equation 11, straightness of embedding and codes, ratios likewise,
        and SNR of Φ α.
    reconstruction : SNR in dB on the patches, of Φ α, of Φ g(β) for each penalty of equation 6, and of PCA
        with as many coefficients, in raw and in whitened space; about the mean patch, with each patch's own
        mean left out, and with that mean kept as one coefficient more: whitening leaves the mean, most of
        what varies in raw patches, one direction among D, and shrinkage takes it first.
    support : of the functionals.

    Memory: the codes of all sequences, 8 n T K bytes, a few times.
    """
    if sequences.ndim != 3 or len(sequences) == 0:
        raise DataError(f"Sequences are (n, T, D); these have the shape {sequences.shape}.")
    codes = model.codes(sequences)
    pooled = pooling(model.means.covariance, len(model.components))
    pixels = sequences if raw is None else raw
    if pixels.shape != sequences.shape:
        raise DataError(f"The raw sequences have the shape {pixels.shape}, the others {sequences.shape}.")
    white = model.layers[0].whitening(sequences.astype(np.float64))
    spaces: dict[str, Any] = {
        "pixels": pixels,
        "pixels without their mean": pixels - pixels.mean(axis=2, keepdims=True),
        "whitened pixels": white,
        "principal components": principal(model, white),
        "codes": codes,
        "embedding": codes @ model.components.T,
        "PCA pooling": codes @ pooled.T,
    }
    found = {name: vars(straightness(rows)) for name, rows in spaces.items()}
    return {
        "n_sequences": len(sequences),
        "active": float((codes > 0).sum(axis=2).mean()),
        "straightness": found,
        "ratios": _ratios(found, found["embedding"]),
        "regularised": [_regularised(model, sequences, strength, found) for strength in strengths],
        "reconstruction": _reconstruction(model, sequences, codes, penalties),
        "support": float(participation(model.components, model.means.mean).mean()),
    }


def pooling(covariance: Float64, n_components: int) -> Float64:
    """Return the pooling functionals of Hosoya and Hyvärinen (2016): the leading eigenvectors of the codes' covariance, (L, K).

    Strong dimension reduction by PCA of a layer's outputs: what varies together is pooled, whatever follows
    in time. Rows are scaled to variance 1, as those of P are.

    >>> pooling(np.diag([1.0, 4.0]), 1).tolist()
    [[0.0, 0.5]]
    """
    values, vectors = np.linalg.eigh(covariance)
    kept = values[::-1][:n_components]
    if not kept[-1] > 0:
        raise ConfigurationError(
            f"The codes vary in fewer than {n_components} directions; ask for fewer components."
        )
    rows = vectors[:, ::-1][:, :n_components].T / np.sqrt(kept)[:, None]
    signs = np.sign(rows[np.arange(len(rows)), np.abs(rows).argmax(axis=1)])
    result: Float64 = rows * signs[:, None]
    return result


def principal(model: VideoModel, white: Float64) -> Float64:
    """Return the first principal components of whitened patches, of variance 1, as many as the embedding has (at most D).

    What a linear code of as many coefficients in the same scale does: a measure of paths follows how
    directions are weighted, and raw pixels weigh the few that are slow by nature, large patterns and the
    mean, the most.
    """
    # ZCA makes variances nearly equal: they keep the order of those of raw patches
    values, vectors = np.linalg.eigh(_white_covariance(model))
    leading = slice(-min(len(model.components), len(values)), None)
    result: Float64 = white @ (vectors[:, leading] / np.sqrt(np.maximum(values[leading], 1e-300)))
    return result


def _white_covariance(model: VideoModel) -> Float64:
    """Return the covariance (D, D) of whitened patches."""
    lowest = model.layers[0]
    result: Float64 = lowest.whitening.whiten.T @ lowest.covariance @ lowest.whitening.whiten
    return result


def _ratios(found: dict[str, dict[str, float]], own: dict[str, float]) -> dict[str, dict[str, float]]:
    return {
        name: {key: value / max(own[key], 1e-300) for key, value in one.items()}
        for name, one in found.items()
        if name != "embedding"
    }


def _regularised(
    model: VideoModel, sequences: NDArray[np.float32], strength: float, found: dict[str, dict[str, float]]
) -> dict[str, Any]:
    codes = model.regularised(sequences, strength)
    embedding = vars(straightness(codes @ model.components.T))
    raw = sequences.reshape(-1, sequences.shape[2]).astype(np.float64)
    rebuilt = model.decode(codes.reshape(len(raw), -1))
    return {
        "strength": strength,
        "embedding": embedding,
        "ratios": _ratios(found, embedding),
        "codes": vars(straightness(codes)),
        "snr": snr(raw, rebuilt, model.layers[0].whitening.mean),
    }


def _reconstruction(
    model: VideoModel, sequences: NDArray[np.float32], codes: Float64, penalties: Sequence[float]
) -> dict[str, dict[str, float]]:
    middle = sequences.shape[1] // 2
    raw, code = sequences[:, middle].astype(np.float64), codes[:, middle]
    lowest = model.layers[0]
    mean = lowest.whitening.mean
    rebuilt = {
        "codes": model.decode(code),
        "PCA": pca(raw, mean, lowest.covariance, len(model.components)),
        "PCA of whitened patches": lowest.whitening.back(
            pca(lowest.whitening(raw), 0.0, _white_covariance(model), len(model.components))
        ),
    }
    for penalty in penalties:
        rebuilt[f"embedding, λ = {penalty:g}"] = model.recover(code @ model.components.T, penalty)
    plain = raw - raw.mean(axis=1, keepdims=True)
    return {
        name: {
            "snr": snr(raw, rows, mean),
            "snr_without_mean": snr(plain, rows - rows.mean(axis=1, keepdims=True)),
            "snr_with_mean": snr(raw, rows + (raw.mean(axis=1) - rows.mean(axis=1))[:, None], mean),
            "snr_whitened": snr(lowest.whitening(raw), lowest.whitening(rows)),
        }
        for name, rows in rebuilt.items()
    }


@dataclass(frozen=True)
class Straightness:
    """Of sequences: how far points lie from the middle of those before and after them, and how steps turn.

    second_difference : mean of ‖b_t - (b_{t-1} + b_{t+1}) / 2‖² over the variance of b about its mean: 0 on
        a straight steady path, 1.5 for independent points.
    bend : the same over the mean square of a step: 0 on a straight steady path, 3/4 for independent points,
        ½ where one step says nothing of the next, 1 for a point that goes to and fro. What stands still or
        lies far from the mean does not count in its favour.
    angle : mean angle in degrees between one step and the next: 0 on a straight path, 120 for independent
        points.
    """

    second_difference: float
    bend: float
    angle: float


def straightness(sequences: NDArray[np.floating]) -> Straightness:
    """Return the straightness of sequences (n, T, d), T of at least 3; sequences that never move have no angle.

    >>> straightness(np.array([[[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]]])).angle
    90.0
    """
    if sequences.ndim != 3 or sequences.shape[1] < 3 or len(sequences) == 0:
        raise DataError(
            f"Sequences are (n, T, d) with T of at least 3; these have the shape {sequences.shape}."
        )
    rows = sequences.astype(np.float64)
    bent = rows[:, 1:-1] - (rows[:, :-2] + rows[:, 2:]) / 2
    spread = rows - rows.mean(axis=(0, 1))
    variance = float((spread * spread).sum()) / (rows.shape[0] * rows.shape[1])
    if not variance > 0:
        raise DataError("The sequences never change, so they have no straightness; give others.")
    second = float((bent * bent).sum()) / (bent.shape[0] * bent.shape[1])
    steps = np.diff(rows, axis=1)
    lengths = np.linalg.norm(steps, axis=2)
    pace = float((lengths**2).mean())
    both = lengths[:, :-1] * lengths[:, 1:]
    # steps of next to no length have a direction of rounding noise
    moving = both > 1e-12 * variance
    cosine = np.einsum("ijk,ijk->ij", steps[:, :-1], steps[:, 1:])[moving] / both[moving]
    angle = float(np.degrees(np.arccos(np.clip(cosine, -1, 1))).mean()) if moving.any() else 0.0
    return Straightness(second / variance, second / pace if pace > 0 else 0.0, angle)
