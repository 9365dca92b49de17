"""What files of models of images hold: groups `/whitening`, `/dictionary`, `/statistics`, `/embedding`, `/audit`.

The root's attributes hold the configuration as JSON, the geometry, provenance and versions. A file of models side by side has a
group for each, with all of that in it. Written and read by `smtdist.models.store`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smtdist.configuration import Configuration
from smtdist.data.netcdf import Group, Streamed, chunks_of
from smtdist.engine.memory import memory_limit, readable, resident_bytes
from smtdist.errors import MemoryBudgetError
from smtdist.kernels import convergence
from smtdist.kernels import whitening as whitening_kernels
from smtdist.kernels.context import COARSE_BITS
from smtdist.kernels.triangle import UpperTiles
from smtdist.kernels.types import Geometry, PixelScale
from smtdist.models import store
from smtdist.models.dictionary import Dictionary
from smtdist.models.joined import Joined
from smtdist.models.model import Model, Whitening, code_sums
from smtdist.models.store import Array, alike, number
from smtdist.statistics.origin import Origin
from smtdist.statistics.sums import LIMBS, Statistics

FULL_UP_TO: Final = 4096
"""Up to so many atoms the statistics that follow from others are in the file too, for readers without this package."""

STRIP_BYTES: Final = 256 << 20
"""Rows of a matrix that are held at a time while it is written from tiles, as int64."""

_MATRIX: Final = ("atom", "atom_")
_MATRICES: Final = ("second_moment", "context_scatter", "cooccurrence")
_VIEWS: Final = ("n_views", "n_squares")
_PIXELS: Final = ("pixel", "pixel_")
_WHITENING: Final = {
    "covariance": Array(_PIXELS, units="squared share of the pixel range"),
    "whiten": Array(_PIXELS, "(ridge I + covariance)^(-1/2)"),
    "unwhiten": Array(_PIXELS, "(ridge I + covariance)^(1/2)"),
    "mean": Array(("pixel",), units="share of the pixel range", optional=True),
}
_OF_ATOMS: Final = {
    "counts": Array(("atom",), "patches nearest to the atom in the last k-means round"),
    "source_sample": Array(("atom",), "sample the atom was taken from, or -1"),
    "source_position": Array(("atom",)),
    "source_view": Array(("atom",), "1 if taken from the mirrored sample"),
    # files of the first schema have no hashes
    "source_digest": Array(("atom",), "hash of that sample, or 0", optional=True),
}
_SUMS: Final = {**alike(("n_samples", "n_positions")), "activity": Array(("atom",))}


def stored(model: Any) -> Iterator[tuple[str, Group]]:
    """Yield what the file of a model holds, or that of models side by side."""
    if model.names:
        about = {"title": "Models side by side", "models": json.dumps(model.names)}
        yield "", Group(attributes={**store.version(model.STORED_AS), **about})
    parts = zip(model.names, model.parts, strict=True) if model.names else (("", model),)
    for name, part in parts:
        second = part.settings.difference_order == 2
        root = {
            **({"weight_bits": code_sums(part, 1).weight_bits} if second else {}),
            **store.root_of(part, "Sparse manifold transform"),
            "geometry": json.dumps(part.geometry._asdict()),
            "pixel_scale": json.dumps(part.scale._asdict()),
        }
        yield name, Group(attributes=root)
        inside = f"{name}/" if name else ""
        whitening, dictionary = part.whitening, part.dictionary
        mean = None if whitening.mean is None else whitening.mean * part.scale.unit
        about = {"mean_mode": part.settings.subtract_mean, "ridge": part.settings.whitening_reg}
        yield f"{inside}whitening", store.packed(_WHITENING, {**vars(whitening), "mean": mean}, about)
        ending = convergence.written(dictionary.ending)
        values = {place: getattr(dictionary, place) for place in _OF_ATOMS}
        group = store.packed(_OF_ATOMS, values, ending)
        scale = whitening_kernels.grid_scale(dictionary.grid.shape[1])
        said = {"long_name": "atoms in whitened space", "grid_scale": scale}
        atoms = {"atoms": (("atom", "pixel"), dictionary.atoms, said)}
        yield f"{inside}dictionary", replace(group, variables={**atoms, **group.variables})
        for place, solved in store.solved_groups(part, part.embedding, _statistics_group):
            yield f"{inside}{place}", solved


def restored(file: Any, statistics: bool) -> Model | Joined:
    """Read what `stored` yielded, also in an earlier version; without `statistics` the K x K sums stay on disk."""
    if store.kind_in(file) != Joined.STORED_AS:
        return _read(file, statistics)
    names = tuple(json.loads(file.attrs["models"]))
    if not names:
        raise ValueError("it names no models")
    for name in names:
        store.require_schema(file[name], file.filename, Model.STORED_AS)
    return Joined(tuple(_read(file[name], statistics) for name in names), names)


def _read(file: Any, statistics: bool) -> Model:
    """Read the model in an open file, or in a group of one."""
    settings = Configuration.from_json(str(file.attrs["configuration"]))
    geometry = Geometry(**json.loads(file.attrs["geometry"]))
    scale = PixelScale(**json.loads(file.attrs["pixel_scale"]))
    provenance = json.loads(file.attrs["provenance"])
    # arrays that are missing or do not belong together are refused first: kernels trust their shapes
    expected = _WHITENING["mean"]._replace(optional=settings.subtract_mean != "global")
    declared = {
        "whitening": {**_WHITENING, "mean": expected},
        "dictionary": {"atoms": Array(("atom", "pixel")), **_OF_ATOMS},
    }
    sums = _declared_sums(file["statistics"]) if "statistics" in file else {}
    store.require_all(file, declared, "atom", sums, pixel=geometry.pixels)
    provenance = store.with_audit(file, provenance)
    json.dumps(
        provenance, ensure_ascii=False
    ).encode()  # damaged text may be no Unicode, which files cannot hold
    embedding = store.read_solution(file["embedding"]) if "embedding" in file else None
    arrays = store.arrays_in(file["whitening"], _WHITENING)
    mean = arrays.pop("mean", None)
    pixels = None if mean is None else np.rint(mean / scale.unit).astype(np.int64)
    whitening = Whitening(**arrays, mean=pixels)
    atoms = store.finite(group := file["dictionary"], "atoms")
    grid = np.rint(atoms * whitening_kernels.grid_scale(atoms.shape[1])).astype(np.float32)
    ending = convergence.read(group.attrs)
    dictionary = Dictionary(grid, **store.arrays_in(group, _OF_ATOMS), ending=ending)
    model = Model(settings, geometry, scale, whitening, dictionary, None, embedding, provenance)
    if settings.difference_order == 2:
        bits = COARSE_BITS if number(file, "smtdist_schema") < 3 else number(file, "weight_bits")
        model = replace(model, coarse=bits != code_sums(model, 1).weight_bits)
    if statistics and "statistics" in file:
        model = replace(model, statistics=_read_statistics(file["statistics"], model))
    return model


def _declared_sums(group: Any) -> store.Arrays:
    """Return the arrays that sums have to have: matrices that follow from others may lack."""
    derived = json.loads(group.attrs["derived"])
    declared = dict(_SUMS)
    declared |= {name: Array(_MATRIX, optional=name in derived) for name in _MATRICES}
    in_limbs = any(name in group for name in LIMBS)
    if in_limbs:
        declared |= alike(LIMBS, *_MATRIX)
    if any(name in group for name in _VIEWS):
        declared |= alike(_VIEWS)
    # the diagonal of what follows from co-occurrences, unless all degrees are equal
    lacking = "context_scatter" in derived and not in_limbs and number(group, "equal_degree") < 0
    return {**declared, "degree_activity": Array(("atom",), optional=not lacking)}


def _statistics_group(statistics: Statistics, codes: str) -> Group:
    origin = statistics.origin
    values = {**vars(statistics), "sample_digest": None if origin is None else origin.samples}
    arrays = {
        **_SUMS,
        **alike(() if statistics.n_views is None else _VIEWS),
        "degree_activity": Array(("atom",), "sum of deg(i) a_i", optional=True),
        "sample_digest": Array(("sample",), "hash of the sample", optional=True),
    }
    for name, matrix in statistics.matrices.items():
        arrays[name] = Array(_MATRIX, dtype="int")
        values[name] = _in_strips(matrix) if isinstance(matrix, UpperTiles) else matrix
    attributes: dict[str, Any] = {
        "derived": json.dumps(statistics.derived),
        "one_hot": int(statistics.one_hot),
        "order": statistics.order,
        "scatter_scale": statistics.scatter_scale,
        "equal_degree": -1 if statistics.equal_degree is None else statistics.equal_degree,
    }
    if len(statistics.activity) <= FULL_UP_TO:
        for name in statistics.derived:
            values[name] = np.asarray(getattr(statistics, name))
            arrays[name] = Array(_MATRIX, dtype="" if values[name].dtype.kind == "f" else "int")
    return store.packed(arrays, values, attributes)


def _in_strips(matrix: UpperTiles) -> Streamed:
    """Return a matrix that may lie in files as strips of full rows: whole it would not fit into the memory."""
    dtype = store.smallest_type(*((int(tile.min()), int(tile.max())) for tile in matrix.tiles))
    rows = chunks_of(matrix.shape, dtype.itemsize)[0]
    step = rows * max(1, STRIP_BYTES // (8 * len(matrix) * rows))

    def strips() -> Iterator[tuple[int, NDArray[Any]]]:
        for first in range(0, len(matrix), step):
            yield first, matrix.rows(first, min(first + step, len(matrix))).astype(dtype, copy=False)

    return Streamed(matrix.shape, dtype, strips, squeezed=True)


def _read_statistics(group: Any, model: Model) -> Statistics:
    derived = json.loads(group.attrs["derived"])
    names = [name for name in (*_MATRICES, *LIMBS) if name in group and name not in derived]
    needed = sum(group[name].size * group[name].dtype.itemsize for name in names)
    room = memory_limit() - resident_bytes()
    if needed > room:  # of 65,536 atoms they take 51 GB
        raise MemoryBudgetError(
            f"The sums in {group.file.filename} take {readable(needed)}, but this process has {readable(max(0, room))}; "
            "use a machine with more memory, or leave the sums in the file (statistics=False), as transform and evaluate do."
        )
    equal = number(group, "equal_degree")
    origin = None
    if "sample_digest" in group:
        samples, audit = group["sample_digest"][()], tuple(model.provenance["audit"])
        origin = Origin(model.basis, samples, model.dictionary.samples, audit)
    counts = int(group["n_samples"][()]), int(group["n_positions"][()])
    views = {name: int(group[name][()]) for name in _VIEWS if name in group}
    activity, matrices = group["activity"][()], {name: group[name][()] for name in names}
    squares = (matrices[name].diagonal() for name in names if name != "cooccurrence")
    store.require_counts(*counts, activity)
    if any(one.min(initial=0) < 0 for one in squares):
        raise ValueError("its sums hold negative squares")
    sums = code_sums(model, 1)
    found = Statistics(
        n_samples=counts[0],
        n_positions=counts[1],
        activity=activity,
        matrices=matrices,
        one_hot=bool(number(group, "one_hot")),
        order=number(group, "order"),
        full_degree=sums.full_degree,
        equal_degree=None if equal < 0 else equal,
        degree_activity=group["degree_activity"][()] if "degree_activity" in group else None,
        origin=origin,
        weight_bits=sums.weight_bits if sums.second_order else 0,
        **views,
    )
    exact = "n_views" in sums.layout()
    if exact != bool(views) or (exact and (found.equal_sites is None) != (LIMBS[0] in matrices)):
        raise ValueError("its second-order sums do not say how many patches its images keep")
    return found
