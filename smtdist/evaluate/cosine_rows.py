"""What a kernel on cosines sees of images: parts of unit length side by side, of an image and of its mirror image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from smtdist.data.table import TableRows
from smtdist.errors import ConfigurationError, DataError
from smtdist.kernels import mirror_kernel
from smtdist.kernels.device import array_module, kept, like, to_host
from smtdist.kernels.products import Ordered, in_pieces
from smtdist.kernels.threads import even_ranges
from smtdist.models import readout

Float32 = NDArray[np.float32]

TEMPERATURES: Final = (0.01, 100.0)
"""Below, rounding of the cosines shows in the kernel; above, it is the same for all images."""
BLOCK: Final = 2048
"""Rows whose mean and deviation are summed at a time."""
PIECE: Final = 128
"""Rows that one thread scales."""
LARGEST: Final = 1e38
"""Number that a row may have: it becomes a float32."""


@dataclass(frozen=True, eq=False)
class Part:
    """Features of n images that are compared by their cosines.

    Attributes
    ----------
    rows : (n, F) anything that is sliced by rows, or by ascending numbers of rows. mirrored : the same of the mirror
        images, or None.
    standardise : whether features are brought to mean 0 and deviation 1 of the training images first, as counts
        of codes are, most of which are far from 0.
    """

    rows: Any
    mirrored: Any = None
    standardise: bool = False

    def __len__(self) -> int:
        return len(self.rows)

    def of(self, chosen: NDArray[np.intp]) -> Part:
        """Return the same of some images, whose numbers ascend, in memory."""
        mirrored = None if self.mirrored is None else self.mirrored[chosen]
        return Part(self.rows[chosen], mirrored, self.standardise)


def layout_for(size: int, layout: readout.Layout | None) -> readout.Layout:
    """Return the layout of rows of so many numbers, one part where none is given. Raises DataError for parts beyond them."""
    if layout is None:
        return readout.whole_row(size)
    needed = readout.width(layout)
    if needed > size:
        raise DataError(
            f"The layout has parts up to column {needed:,}, the rows have {size:,}; give the layout of these rows."
        )
    return layout


def parts_of(rows: Any, layout: readout.Layout) -> list[list[Part]]:
    """Return the parts of representations (n, F), anything that is sliced by rows: counts of codes are standardised.

    All parts of the same rows of a file are cut from one reading of them.
    """
    rows = rows if isinstance(rows, np.ndarray) else _LastRead(rows)
    return [
        [
            Part(
                _Cut(rows, one.start, one.block.size),
                None if one.mirrored is None else _Cut(rows, one.mirrored, one.block.size),
                standardise=one.block.counts,
            )
            for one in columns
        ]
        for columns in layout
    ]


class _LastRead:
    """Rows of a file, of which those that were read last stay in memory: a chunk on disk holds whole rows."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows
        self.row_bytes = np.dtype(rows.dtype).itemsize * rows.shape[1]
        self._held: tuple[Any, NDArray[Any]] | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, chosen: tuple[slice | NDArray[np.intp], slice]) -> NDArray[Any]:
        which, columns = chosen
        rows = (which.start, which.stop, which.step) if isinstance(which, slice) else which
        if self._held is None or not np.array_equal(self._held[0], rows):
            self._held = None  # before the next is read
            self._held = rows, np.asarray(self.rows[which])
        return self._held[1][:, columns]


@dataclass(frozen=True, eq=False)
class _Cut:
    """Columns [start, start + size) of rows that may lie in a file."""

    rows: Any
    start: int
    size: int

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.rows), self.size

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, chosen: slice | NDArray[np.intp]) -> NDArray[Any]:
        return np.asarray(self.rows[chosen, self.start : self.start + self.size])

    @property
    def place(self) -> tuple[str, int]:
        """What messages call the rows, and the first column."""
        rows = self.rows.rows if isinstance(self.rows, _LastRead) else self.rows
        return (f"{rows.source.name}, " if isinstance(rows, TableRows) else "Features, "), self.start


@dataclass(frozen=True, eq=False)
class _Kept:
    """Rows on a device, and those they are copies of, which messages name."""

    rows: Any
    source: Any

    @property
    def shape(self) -> tuple[int, int]:
        shape: tuple[int, int] = self.rows.shape
        return shape

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, chosen: slice) -> Any:
        return self.rows[chosen]


def _refuse(view: Any, first: int | None, place: int, row: NDArray[Any]) -> NoReturn:
    """Refuse a row with a number that is not finite or too large, by its place behind the first, where that is known."""
    view, row = (view.source if isinstance(view, _Kept) else view), to_host(row)
    sizes = np.abs(row.astype(np.float64))
    at = int(np.argmax(np.where(np.isfinite(sizes), sizes, np.inf)))
    name, column = view.place if isinstance(view, _Cut) else ("Features, ", 0)
    called = "some row" if first is None else f"row {first + place}"
    raise DataError(
        f"{name}{called}: number {column + at} is {float(row[at]):g}, but every number must be finite and at most {LARGEST:g}; "
        f"repair or leave out that row."
    )


@dataclass(frozen=True, eq=False)
class Scale:
    """Mean and inverse deviation of the features of a part, (F,) each; None for features that stay as they are."""

    mean: Float32 | None = None
    inverse: Float32 | None = None

    @classmethod
    def of(cls, part: Part) -> Scale:
        """Return the scale of training images and their mirror images; features that do not vary become 0.

        Sums are float64 over blocks of `BLOCK` rows in order, so they depend on nothing else.
        """
        if not part.standardise:
            return cls()
        width, views = part.rows.shape[1], [one for one in (part.rows, part.mirrored) if one is not None]
        total, squares, count = np.zeros(width), np.zeros(width), 0
        for view in views:
            for start, stop in even_ranges(len(view), BLOCK):
                block = np.asarray(view[start:stop], np.float64)
                total += block.sum(axis=0)
                squares += np.einsum("nf,nf->f", block, block)
                count += len(block)
                if not squares.max(initial=0.0) <= LARGEST**2:
                    place = int(np.argmax([not np.abs(row).max() <= LARGEST for row in block]))
                    _refuse(view, start, place, block[place])
        return cls.from_sums(total, squares, count)

    @classmethod
    def from_sums(cls, total: NDArray[np.float64], squares: NDArray[np.float64], count: int) -> Scale:
        """Return the scale of `count` rows from Σ x and Σ x² of their features."""
        mean = total / count
        variance = squares / count - mean**2
        varies = variance > 1e-12 * np.maximum(squares / count, 1e-300)
        inverse = np.divide(1.0, np.sqrt(np.abs(variance)), out=np.zeros(len(mean)), where=varies)
        return cls(mean.astype(np.float32), inverse.astype(np.float32))

    def __call__(self, view: Any, chosen: slice) -> Float32:
        """Return chosen rows (m, F) of a view, of unit length; a row of zeros stays zero."""
        given = view[chosen] if isinstance(view, _Kept) else np.asarray(view[chosen])
        xp: Any = array_module(given)
        block: Float32 = xp.empty(given.shape, np.float32)

        def work(start: int, stop: int) -> None:
            piece = block[start:stop]
            with np.errstate(over="ignore"):  # what becomes infinite is refused
                piece[...] = given[start:stop]
            if self.mean is not None and self.inverse is not None:
                piece -= like(piece, self.mean)
                piece *= like(piece, self.inverse)
            lengths = np.sqrt(xp.einsum("nf,nf->n", piece, piece, dtype=np.float64))
            bad = np.flatnonzero(~to_host(np.isfinite(lengths)))
            if len(bad):
                _refuse(view, chosen.start, start + int(bad[0]), given[start + bad[0]])
            lengths[lengths == 0] = 1.0
            piece /= lengths[:, None].astype(np.float32)

        in_pieces(work, len(block), PIECE, block)
        return block


Sets = Sequence[Sequence[Part]]
"""Sets of parts: the cosines of the parts of a set are averaged, the kernels of the sets are added."""
View = tuple[Float32, Float32 | None]
"""Joined unit rows of some images; with mirror images the two halves of both."""
Near = tuple[Ordered, Ordered | None]
"""What multiplies others by such rows: see `near`."""


@dataclass(frozen=True, eq=False)
class Comparer:
    """exp((cosine - 1) / T) between images of the same kinds of features, scaled as the training images say.

    scales : one for each part of each set. temperature : T.
    """

    scales: tuple[tuple[Scale, ...], ...]
    temperature: float

    def __post_init__(self) -> None:
        low, high = TEMPERATURES
        if not low <= self.temperature <= high:
            raise ConfigurationError(
                f"The temperature of the kernel is {self.temperature}; choose one from {low:g} to {high:g}."
            )

    @classmethod
    def of(cls, sets: Sets, temperature: float) -> Comparer:
        """Return what compares with these training images. Raises DataError where parts do not go together."""
        require_alike(sets)
        return cls(tuple(tuple(Scale.of(part) for part in parts) for parts in sets), temperature)

    def views(self, sets: Sets, chosen: slice) -> list[View]:
        """Return the views of some images, one for each set.

        Raises DataError for other features than those of training, and for a row with a number that is not finite or too
        large, by its place.
        """
        require_alike(sets)
        if [len(parts) for parts in sets] != [len(scales) for scales in self.scales]:
            raise DataError(
                f"The images have {[len(parts) for parts in sets]} parts, the training images had "
                f"{[len(scales) for scales in self.scales]}; give features of the same kinds."
            )
        found: list[View] = []
        for parts, scales in zip(sets, self.scales, strict=True):
            own = self._joined([part.rows for part in parts], scales, chosen)
            if parts[0].mirrored is None:
                found.append((own, None))
            else:
                found.append(
                    mirror_kernel.halves(
                        own, self._joined([part.mirrored for part in parts], scales, chosen)
                    )
                )
        return found

    @staticmethod
    def _joined(views: Sequence[Any], scales: Sequence[Scale], chosen: slice) -> Float32:
        blocks = [scale(view, chosen) for view, scale in zip(views, scales, strict=True)]
        if len(blocks) == 1:
            return blocks[0]
        xp: Any = array_module(blocks[0])
        joined: Float32 = xp.concatenate(blocks, axis=1) * np.float32(1 / len(blocks) ** 0.5)
        return joined

    def kernel(self, left: Sequence[View], right: Sequence[View | Near], out: Float32) -> Float32:
        """Write the sum of the kernels of all sets to `out` (n, m), and return it."""
        out[...] = 0
        for (own, odd), (other, other_odd) in zip(left, right, strict=True):
            features = other.shape[0] if isinstance(other, Ordered) else other.shape[1]
            if own.shape[1] != features or (odd is None) != (other_odd is None):
                raise DataError(
                    f"Images have {own.shape[1]:,} features {'without' if odd is None else 'with'} mirror images, and the "
                    f"others "
                    f"{features:,} {'without' if other_odd is None else 'with'} them; give features of the same kinds."
                )
            if odd is None or other_odd is None:
                mirror_kernel.add_cosine_kernel(out, own, other, self.temperature)
            else:
                pairs = (own, odd), (other, other_odd)
                mirror_kernel.add_mirror_kernel(out, *pairs, self.temperature)
        return out


def near(views: Sequence[View]) -> list[Near]:
    """Return views made ready for products in which a row has the same bits whatever rows come with it."""
    return [(Ordered(own.T), None if odd is None else Ordered(odd.T)) for own, odd in views]


def on_device(sets: Sets, step: int) -> Sets:
    """Return copies of the rows on the device, as they are stored, made of `step` rows at a time."""

    def there(view: Any) -> Any:
        return None if view is None else _Kept(kept(view, step), view)

    return [
        [Part(there(part.rows), there(part.mirrored), part.standardise) for part in parts] for parts in sets
    ]


def where(sets: Sets) -> Any:
    """Return an array where the views of these rows are, which says so to `kernels.device.like`."""
    rows = sets[0][0].rows
    return rows.rows if isinstance(rows, _Kept) else np.empty(0)


def stored_bytes(sets: Sets) -> int:
    """Return what the rows take, on a device, where they have the type of the first of them."""
    views = [view for parts in sets for part in parts for view in (part.rows, part.mirrored)]
    return sum(len(one) * np.asarray(one[:1]).nbytes for one in views if one is not None)


def view_bytes(sets: Sets, rows: int, kept: int | None = None) -> int:
    """Return the memory of the views of so many images, while the last of them is made; `kept`: of so many, `rows` at a time."""
    widths = [sum(part.rows.shape[1] for part in parts) for parts in sets]
    return int(8 * (rows if kept is None else kept) * sum(widths) + 16 * rows * max(widths))


def scaling_bytes(sets: Sets) -> int:
    """Return the memory that `Comparer.of` takes: rows that were read, and those of a part in float64."""
    rows = min(BLOCK, require_alike(sets))
    widest = max(int(part.rows.shape[1]) for parts in sets for part in parts)
    return read_bytes(sets, rows) + 24 * rows * widest


def read_bytes(sets: Sets, rows: int) -> int:
    """Return the memory of so many rows that were read last, where they lie in a file."""
    held = (part.rows.rows for parts in sets for part in parts if isinstance(part.rows, _Cut))
    read = {id(one): one.row_bytes for one in held if isinstance(one, _LastRead)}
    return int(rows * sum(read.values()))


def require_alike(sets: Sets) -> int:
    """Return how many images the parts describe; raise DataError where they describe different numbers of them."""
    if not sets or not all(sets):
        raise DataError("There are no features to compare images by; give at least one part.")
    parts = [part for one in sets for part in one]
    lengths = {len(view) for part in parts for view in (part.rows, part.mirrored) if view is not None}
    if len(lengths) > 1:
        raise DataError(
            f"The parts describe {', '.join(f'{n:,}' for n in sorted(lengths))} images; give features of the same images."
        )
    if len({part.mirrored is None for part in parts}) > 1:
        raise DataError(
            "Some parts have mirror images and some have none; give them to all parts or to none."
        )
    return int(lengths.pop())
