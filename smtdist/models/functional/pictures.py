"""Affinity groups and needles as a picture (SMT 2018, figure 4A)."""

from __future__ import annotations

from typing import Any

import numpy as np

from smtdist.models.functional.needles import needles
from smtdist.models.functional.topology import affinity_groups
from smtdist.models.functional.video import VideoModel
from smtdist.solve.solution import Float64

GROUP = 5
"""Neighbours drawn beside an atom, as in Supplementary Figure 3."""


def draw_groups(
    model: VideoModel, path: str, kind: str, groups: int = 12, seed: int = 0
) -> list[list[int]]:
    """Draw some atoms, unwhitened, with their nearest in the embedding, and all groups as needles; return the groups.

    Each row: an atom and the five others of largest cosine in the embedding, then a box with the needles of
    its 30 nearest, darker for larger cosines.
    """
    from matplotlib.figure import Figure  # half a second that other uses need not wait

    side = model.settings.patch
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
