"""Checks that encoders, contexts and kinds of samples of other packages keep their promises; run them in their tests.

>>> from smtdist.statistics.operators import Window
>>> check_context(lambda sites, columns, order: Window(sites, columns, 2, order))
"""

from __future__ import annotations

import json
import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smtdist.codes.encoder import PatchEncoder
from smtdist.data.array import ArraySource
from smtdist.data.table import as_table
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.passes import Engine
from smtdist.kernels.device import to_host
from smtdist.kernels.features import Landmarks
from smtdist.models import coded, store
from smtdist.models import merge as merging
from smtdist.models.coders import fit, manifold
from smtdist.models.coders.manifold import ManifoldSettings
from smtdist.models.points import sites as point_sites
from smtdist.models.points.contexts import spread_points
from smtdist.models.points.sites import RowsOfSamples, SiteKind
from smtdist.statistics.operators import Factors, Operator
from smtdist.statistics.sites import Group
from smtdist.statistics.values import ValueSums


def check_encoder(cls: type[PatchEncoder], images: NDArray[np.generic], **settings: Any) -> None:
    """Fit an encoder on images (n, H, W[, C]), n >= 20, with settings by name, and check what smtdist relies on.

    - Codes are finite, have the shape (patches, K), and have the same bits whatever other patches are coded
      with them and for any number of threads.
    - It can be pickled, and written and read again, without a change of its codes or of its `identity`.
      With other atoms it has another `identity`.
    - A small encoder (`few`) has codes of its own size.
    - Sums of codes add and subtract exactly: an update of a transform, withdrawn again, leaves it as it was, bit for bit.

    AssertionError says which promise is not kept. Memory: all images twice.
    """
    asked = cls.Settings(**settings)
    encoder, _ = fit.fit_coder(cls, ArraySource(images), asked, Engine(SerialExecutor(1)))
    rows = encoder.rows(images[:3])
    codes = to_host(encoder(rows))
    assert codes.shape == (len(rows), encoder.size), (
        f"codes have the shape {codes.shape}, not {(len(rows), encoder.size)}: patches and settings.width"
    )
    assert np.isfinite(codes).all(), "codes are not finite"
    parts = [to_host(encoder(rows[at : at + 1])) for at in range(min(10, len(rows)))]
    _same(np.concatenate(parts), codes[: len(parts)], "a patch has other codes alone than beside others")
    sent = pickle.loads(pickle.dumps(encoder))
    _same(to_host(sent(rows)), codes, "codes change when the encoder is pickled")
    small = encoder.few()
    assert to_host(small(small.rows(images[:1]))).shape[1] == small.size, "few() has codes of another size"
    with tempfile.TemporaryDirectory() as folder:
        store.save(encoder, Path(folder) / "e.h5")
        with store.opened(Path(folder) / "e.h5", cls.STORED_AS) as file:
            read: Any = coded.restored_as(cls, file, False)
    _same(
        to_host(read(rows)),
        codes,
        "codes change when the encoder is written and read: are all arrays in ARRAYS?",
    )
    assert read.identity() == encoder.identity(), "identity() changes when the encoder is written and read"
    arrays = {name: values + 1 for name, values in encoder.arrays.items()}
    other = cls(
        *(encoder.settings, encoder.shape, encoder.mean, encoder.whiten, encoder.unwhiten),
        encoder.atoms[::-1].copy(),
        arrays,
    )
    assert other.identity() != encoder.identity(), "identity() does not tell other atoms"
    _check_growing(encoder, images)


def _check_growing(encoder: PatchEncoder, images: NDArray[np.generic]) -> None:
    half = len(images) // 2
    wanted = ManifoldSettings(n_components=1, pool_size=1)
    serial, threads = (Engine(SerialExecutor(count)) for count in (1, 2))
    model, _ = manifold.fit_manifold(ArraySource(images[:half]), encoder, wanted, serial)
    again, _ = manifold.fit_manifold(ArraySource(images[:half]), encoder, wanted, threads)
    assert model.statistics is not None and again.statistics is not None  # noqa: PT018
    assert model.statistics.activity.any(), "no patch has a code that is not zero"
    _same_sums(model.statistics, again.statistics, "sums follow the number of threads")
    grown, _ = merging.update(model, ArraySource(images[half:]), serial)
    back, _ = merging.update(grown, ArraySource(images[half:]), serial, withdraw=True)
    _same_sums(model.statistics, back.statistics, "what was added cannot be withdrawn exactly")


def check_context(
    context: Callable[[int, int, int], Operator],
    rows: int = 3,
    columns: int = 4,
    orders: tuple[int, ...] = (1, 2),
) -> None:
    """Check a context over all sites of a lattice, with random integer codes.

    - `factors` returns whole numbers with as many rows each, whose product is symmetric and has no negative eigenvalue.
    - Samples are independent: the product over two samples is the sum of those over each.
    - `own` returns codes that it was given.

    All sites as neighbours, in closed form (`Whole`), keep them by themselves. AssertionError says which promise is not kept.
    """
    sites = rows * columns
    rng = np.random.default_rng(0)
    codes = rng.integers(-9, 10, (2, sites, 5)).astype(np.float64) * (rng.random((2, sites, 1)) < 0.8)
    places = np.tile(np.arange(sites), (2, 1))
    for order in orders:
        operator = context(sites, columns, order)
        if not isinstance(operator, Factors):
            continue

        def summed(which: slice, operator: Factors = operator) -> NDArray[np.float64]:
            some = codes[which]
            group = Group(np.zeros((some.shape[0] * sites, 1)), sites, places=places[which])
            left, right = operator.factors(some, group)
            assert left.shape == right.shape, f"factors have the shapes {left.shape} and {right.shape}"
            assert left.shape[1:] == (5,), (
                f"factors have the shape {left.shape}, not (n, 5): a column an atom"
            )
            assert (left == np.rint(left)).all(), "factors are not whole numbers: round them to the grid"
            assert (right == np.rint(right)).all(), "factors are not whole numbers: round them to the grid"
            return np.asarray(left.T @ right)

        whole = summed(slice(2))
        parts = [summed(slice(at, at + 1)) for at in range(2)]
        _same(whole, parts[0] + parts[1], "samples meet: a sum over two is not that of each")
        _same(whole, whole.T.copy(), "A D Dᵀ Aᵀ is not symmetric")
        least = float(np.linalg.eigvalsh(whole)[0])
        assert least > -1e-9 * max(1.0, float(np.abs(whole).max())), "A D Dᵀ Aᵀ has a negative eigenvalue"
        known = {tuple(code) for code in codes.reshape(-1, 5).tolist()}
        counted = operator.own(codes)
        assert counted.shape[1:] == (5,), (
            f"own() has the shape {counted.shape}, not (n, 5): a column an atom"
        )
        own = {tuple(code) for code in counted.tolist()}
        assert own <= known, "own() returns codes that are not among those given"
        assert operator.scale == int(operator.scale) >= 1, "scale is no whole number"
        numbers = operator.row_numbers(5)
        assert numbers == int(numbers) >= 0, f"row_numbers is {numbers}, no whole number of at least 0"


def check_sites(
    cls: type[SiteKind], samples: NDArray[np.generic], orders: tuple[int, ...] = (1, 2), **settings: Any
) -> None:
    """Check a kind of samples on an array of them (n, ...), n >= 20, with settings by name.

    - Rows are finite, their number is the same for each sample, and they do not depend on the other samples.
    - It can be pickled, and its settings are plain JSON.
    - Its operator keeps the promises of a context (`check_context`), for each order.
    - Sums of its codes add and subtract exactly.

    AssertionError says which promise is not kept. Memory: all samples twice.
    """
    kind = cls(**settings)
    assert json.loads(json.dumps(settings)) == settings, "settings are no plain JSON"
    source = as_table(samples) if samples.ndim == 2 else ArraySource(samples)
    with source.opened() as reader:
        block = reader.read(0, source.n_samples)
    rows = point_sites.rows_of(kind, block)
    for at in range(min(10, len(rows))):
        _same(
            point_sites.rows_of(kind, block[at : at + 1])[0],
            rows[at],
            "a sample has other rows alone than beside others",
        )
    _same(
        point_sites.rows_of(pickle.loads(pickle.dumps(kind)), block), rows, "rows change when it is pickled"
    )
    sites, width = rows.shape[1:]
    check_context(lambda count, columns, order: kind.operator(count, order), 1, sites, orders)
    features = Landmarks(spread_points(rows.reshape(-1, width), min(8, len(rows))))
    half = len(samples) // 2
    for order in orders:
        sums = ValueSums(RowsOfSamples(kind, sites, width), features, kind.operator(sites, order))

        def summed(first: int, last: int, sums: ValueSums = sums) -> Any:
            state = sums.zero()
            sums.update(state, block[first:last], first)
            return state

        whole = summed(0, len(block))
        parts = sums.merge(summed(0, half), summed(half, len(block)))
        for name, values in whole.items():
            _same(values, parts[name], f"sums over parts do not add up ({name})")


def _same(found: Any, expected: Any, otherwise: str) -> None:
    assert np.array_equal(found, expected), otherwise


def _same_sums(one: Any, other: Any, otherwise: str) -> None:
    for name in ("activity", "second_moment", "context_scatter"):
        _same(np.asarray(getattr(one, name)), np.asarray(getattr(other, name)), f"{otherwise} ({name})")
