"""Atoms of a video model as needles, their groups in the embedding, and layers on layers (SMT 2018, figures 4 and 5).

    smtdist fit clips.h5 --model video --out video.h5 --set views=8
    python -m examples.video_dictionary video.h5 clips.h5 --out groups.png

The figures are printed as JSON.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from smtdist.data.video import Clip, open_clips
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError
from smtdist.models import store
from smtdist.models.functional.settings import FunctionalSettings
from smtdist.models.functional.video import VideoModel, fit_video
from smtdist.models.functional.video_judge import pca, pooling, read_samples, snr
from smtdist.models.provenance import Record
from smtdist.solve.solution import Float64

PADDED: Final = 4
"""The Fourier amplitude is looked at on a grid so many times as fine as the patch gives."""
HALF_WIDTH: Final = 0.5
"""Share of the envelope's peak above which it counts: what lies below is noise of the whole patch."""


@dataclass(frozen=True)
class Needles:
    """Of K patches of side p, in pixels and radians.

    centre : (K, 2) row and column of the envelope's middle. orientation : (K,) of the stripes, in [0, π), 0
    along columns (to the right), from the peak of the Fourier amplitude, across which they run. length :
    (K,) standard deviation of the envelope along
    its long axis. frequency : (K,) of the peak, in cycles a pixel. fit : (K,) R² of a Gaussian with the
        envelope's moments.
    """

    centre: Float64
    orientation: Float64
    length: Float64
    frequency: Float64
    fit: Float64


def needles(dictionary: Float64) -> Needles:
    """Return the needles of atoms (K, p²), square patches: Gaussian envelope and Fourier peak.

    The envelope is the modulus of the analytic signal along the direction of the peak (half of the Fourier
    plane is kept, and doubled); the Gaussian has the mean and the covariance of its square above half of
    its peak's height.
    """
    count, pixels = dictionary.shape
    side = int(np.sqrt(pixels))
    if side * side != pixels:
        raise ConfigurationError(f"Atoms have {pixels} pixels, which is no square patch; give (K, p²).")
    patches = dictionary.reshape(count, side, side).astype(np.float64)
    spectrum, (down, across) = _spectrum(patches)
    amplitude = np.abs(spectrum).reshape(count, -1)
    amplitude[:, 0] = 0.0  # the mean is no stripe
    peak = amplitude.argmax(axis=1)
    u, v = down.ravel()[peak], across.ravel()[peak]
    envelope = _envelope(spectrum, u, v, down, across)[:, :side, :side]
    centre, covariance = _moments(envelope)
    values = np.linalg.eigvalsh(covariance)
    orientation = np.mod(np.arctan2(u, v) + np.pi / 2, np.pi)
    return Needles(
        centre,
        orientation,
        np.sqrt(np.maximum(values[:, 1], 0.0)),
        np.hypot(u, v),
        _fit(envelope, centre, covariance),
    )


def _spectrum(patches: Float64) -> tuple[NDArray[np.complex128], tuple[Float64, Float64]]:
    side = patches.shape[1]
    spectrum = np.fft.fft2(patches, s=(PADDED * side, PADDED * side))
    frequency = np.fft.fftfreq(PADDED * side)
    down, across = np.meshgrid(frequency, frequency, indexing="ij")
    return spectrum, (down, across)


def _envelope(
    spectrum: NDArray[np.complex128], u: Float64, v: Float64, down: Float64, across: Float64
) -> Float64:
    result = np.empty(spectrum.shape)
    for row, to, first, second in zip(spectrum, result, u, v, strict=True):
        towards = down * first + across * second
        kept = np.where(towards > 0, 2.0, np.where(towards == 0, 1.0, 0.0))
        to[...] = np.abs(np.fft.ifft2(row * kept))
    return result


def _moments(envelope: Float64) -> tuple[Float64, Float64]:
    side = envelope.shape[1]
    peak = envelope.max(axis=(1, 2), keepdims=True)
    weights = np.where(envelope >= HALF_WIDTH * peak, envelope, 0.0) ** 2
    weights /= np.maximum(weights.sum(axis=(1, 2), keepdims=True), 1e-300)
    place = np.arange(side, dtype=np.float64)
    row = np.einsum("kij,i->k", weights, place)
    column = np.einsum("kij,j->k", weights, place)
    away = place[None, :] - row[:, None], place[None, :] - column[:, None]
    covariance = np.empty((len(envelope), 2, 2))
    covariance[:, 0, 0] = np.einsum("kij,ki->k", weights, away[0] ** 2)
    covariance[:, 1, 1] = np.einsum("kij,kj->k", weights, away[1] ** 2)
    covariance[:, 0, 1] = covariance[:, 1, 0] = np.einsum("kij,ki,kj->k", weights, away[0], away[1])
    # a Gaussian cut off at half of its height, squared, has this share of its own variance in every direction: undone here
    return np.stack([row, column], axis=1), covariance / CUT_SHARE


CUT_SHARE: Final = float(0.5 * (1 - 2 * np.log(1 / HALF_WIDTH) * HALF_WIDTH**2 / (1 - HALF_WIDTH**2)))
"""Variance along an axis of exp(-r²) within r² < c = 2 ln 2, in units of that of exp(-r² / 2): ½ (1 - c e^-c / (1 - e^-c))."""


def _fit(envelope: Float64, centre: Float64, covariance: Float64) -> Float64:
    """Return R² of the best multiple of the Gaussian with these moments."""
    side = envelope.shape[1]
    place = np.arange(side, dtype=np.float64)
    ridge = 0.05 * np.eye(2)
    inverse = np.linalg.inv(covariance + ridge)
    away = np.stack(np.meshgrid(place, place, indexing="ij"), axis=-1)[None] - centre[:, None, None]
    gauss = np.exp(-0.5 * np.einsum("kija,kab,kijb->kij", away, inverse, away))
    scale = (envelope * gauss).sum(axis=(1, 2)) / (gauss * gauss).sum(axis=(1, 2))
    rest = ((envelope - scale[:, None, None] * gauss) ** 2).sum(axis=(1, 2))
    spread = ((envelope - envelope.mean(axis=(1, 2), keepdims=True)) ** 2).sum(axis=(1, 2))
    result: Float64 = 1 - rest / np.maximum(spread, 1e-300)
    return result


NEIGHBOURS: Final = 9
BEST: Final = 500


def affinity_groups(
    columns: Float64, count: int = NEIGHBOURS, among: NDArray[np.integer] | None = None
) -> tuple[NDArray[np.int64], Float64]:
    """Return for every atom the `count` others of largest cosine, the nearest first, (K, count), and the cosines.

    columns : (d, K), the columns p_j of P for affinity groups, or atoms as pixels. `among`: the atoms that
    may be neighbours, and the only ones that have any; numbers count all K. Columns of no length are
    nobody's neighbours. Memory: 8 K² bytes.

    >>> affinity_groups(np.array([[1.0, 2.0, 0.0], [0.0, 0.1, 1.0]]), 1)[0].ravel().tolist()
    [1, 0, 1]
    """
    chosen = np.arange(columns.shape[1]) if among is None else np.asarray(among, np.int64)
    lengths = np.linalg.norm(columns[:, chosen], axis=0)
    if not 1 <= count < int((lengths > 0).sum()):
        raise ConfigurationError(
            f"{count} neighbours are asked for among {int((lengths > 0).sum())} atoms that are not zero; ask for fewer."
        )
    unit = columns[:, chosen] / np.where(lengths > 0, lengths, 1.0)
    cosines = unit.T @ unit
    cosines[:, lengths == 0] = -2.0
    np.fill_diagonal(cosines, -3.0)
    order = np.argsort(-cosines, axis=1, kind="stable")[:, :count]
    return chosen[order], np.take_along_axis(cosines, order, axis=1)


def neighbour_differences(
    found: Needles, columns: Float64, best: NDArray[np.integer], count: int = NEIGHBOURS
) -> tuple[float, float]:
    """Return the mean difference in length (pixels) and orientation (degrees) of atoms and their neighbours by cosine."""
    groups, _ = affinity_groups(columns, count, best)
    own = np.asarray(best)[:, None]
    length = float(np.abs(found.length[groups] - found.length[own]).mean())
    turn = np.abs(found.orientation[groups] - found.orientation[own])
    return length, float(np.degrees(np.minimum(turn, np.pi - turn)).mean())


def figure_4b(
    dictionary: Float64,
    components: Float64,
    others: dict[str, Float64] | None = None,
    *,
    best: int = BEST,
    count: int = NEIGHBOURS,
) -> dict[str, Any]:
    """Return Δ length and Δ angle of neighbours in the embedding beside those in pixel space (SMT 2018, figure 4B).

    dictionary : atoms Φ (D, K) as pixels. components : P (L, K). others : further embeddings by name, such
    as `pooling`. Of the atoms that a Gaussian envelope fits best, at most `best`, all of which have a place
    in every embedding; neighbours are among these.
    """
    found = needles(dictionary.T)
    spaces = {"embedding": components, "pixels": dictionary, **(others or {})}
    seen = np.all([np.linalg.norm(columns, axis=0) > 0 for columns in spaces.values()], axis=0)
    order = np.argsort(np.where(seen, -found.fit, np.inf), kind="stable")
    chosen = np.sort(order[: min(best, int(seen.sum()))])
    result: dict[str, Any] = {
        "atoms": len(chosen),
        "neighbours": count,
        "worst_fit": float(found.fit[chosen].min()),
    }
    for name, columns in spaces.items():
        length, angle = neighbour_differences(found, columns, chosen, count)
        result[name] = {"length": length, "angle": angle}
    draw = np.random.default_rng(0).standard_normal((32, dictionary.shape[1]))
    length, angle = neighbour_differences(found, draw, chosen, count)
    result["chance"] = {"length": length, "angle": angle}
    return result


GROUP = 5
"""Neighbours drawn beside an atom, as in Supplementary Figure 3."""


def draw_groups(
    model: VideoModel, path: str, kind: str, groups: int = 12, seed: int = 0
) -> list[list[int]]:
    """Draw some atoms, unwhitened, with their nearest in the embedding, and all groups as needles; return the groups.

    Each row: an atom and the five others of largest cosine in the embedding, then a box with the needles of
    its 30 nearest, darker for larger cosines.
    """
    side = model.settings.patch_size
    atoms = model.white(np.eye(model.coder.size))
    shown = unwhitened(model)
    near, cosines = affinity_groups(model.components, min(30, model.coder.size - 2))
    found = needles(atoms)
    seen = np.flatnonzero(np.linalg.norm(model.components, axis=0) > 0)
    fit = seen[np.argsort(-found.fit[seen], kind="stable")[: max(groups, len(seen) // 2)]]
    chosen = np.sort(np.random.default_rng(seed).choice(fit, min(groups, len(fit)), replace=False))
    figure = Figure(figsize=(9, 1.3 * len(chosen)), layout="constrained")
    axes: Any = figure.subplots(len(chosen), GROUP + 2, squeeze=False)
    result = []
    for line, atom in zip(axes, chosen, strict=True):
        members = [int(atom), *near[atom, :GROUP].tolist()]
        result.append(members)
        for axis, member in zip(line, members, strict=False):
            limit = float(np.abs(shown[member]).max()) or 1.0
            axis.imshow(shown[member].reshape(side, side), cmap="gray", vmin=-limit, vmax=limit)
        box = line[-1]
        for member, cosine in zip(
            [int(atom), *near[atom].tolist()], [1.0, *cosines[atom].tolist()], strict=True
        ):
            row, column = found.centre[member]
            reach = found.length[member]
            along = reach * np.array([np.cos(found.orientation[member]), np.sin(found.orientation[member])])
            shade = float(np.clip(cosine, 0.05, 1.0))
            ends = ([column - along[0], column + along[0]], [row - along[1], row + along[1]])
            box.plot(*ends, color=(0.8, 0.1, 0.1, shade), lw=1.5)
        box.set(xlim=(-0.5, side - 0.5), ylim=(side - 0.5, -0.5), aspect="equal")
        for axis in line:
            axis.set(xticks=[], yticks=[])
    figure.savefig(path, format=kind, dpi=110)
    return result


def unwhitened(model: VideoModel) -> Float64:
    """Return atoms as patches of raw pixels, (K, D): each alone through all inverses, less what no atom gives.

    Of frames that were whitened whole, atoms are shown as the lowest dictionary sees them.
    """
    one = np.eye(model.coder.size)
    if model.settings.whiten == "fourier":
        return model.white(one)
    result: Float64 = model.decode(one) - model.decode(np.zeros((1, model.coder.size)))
    return result


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
    side = model.settings.patch_size
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


def dictionary_topology(model: VideoModel) -> dict[str, Any]:
    """Return figure 4B of a model; neighbours by pixels are those of whitened atoms."""
    return figure_4b(
        model.white(np.eye(model.coder.size)).T,
        model.components,
        {"PCA pooling": pooling(model.means.covariance, len(model.components))},
        best=min(BEST, model.coder.size // 2),
    )


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Measure and draw the dictionary of a model; print the figures as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("clips")
    parser.add_argument("--sequences", type=int, default=1000, help="use at most this many sequences")
    parser.add_argument("--groups", type=int, default=12, help="number of groups to draw")
    parser.add_argument("--out", help="picture of the groups")
    options = parser.parse_args(arguments)
    model = store.load(options.model)
    source = model.sequences(open_clips(options.clips))
    count = min(options.sequences, source.n_samples)
    chosen = np.linspace(0, source.n_samples, count, endpoint=False).astype(np.int64)
    rows = read_samples(source, chosen)
    result: dict[str, Any] = {
        "figure_4b": dictionary_topology(model),
        "layers": judged_layers(model, rows[:, rows.shape[1] // 2].astype(np.float64)),
    }
    if options.out:
        kind = options.out.rsplit(".", 1)[-1]
        result["groups"] = draw_groups(model, options.out, kind, options.groups)
    print(json.dumps(result, indent=1))
    return result


if __name__ == "__main__":
    main()
