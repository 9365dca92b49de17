"""The sums every sparse manifold transform is solved from: second moment, context scatter, co-occurrence counts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from smtdist.errors import TooLargeError
from smtdist.kernels import codes as code_kernels
from smtdist.kernels import context, memory, scatter
from smtdist.kernels import positions as lattices
from smtdist.kernels.device import array_module, is_host, like, place, to_host
from smtdist.kernels.gpu.memory import device_batch_bytes
from smtdist.kernels.threads import even_ranges
from smtdist.kernels.triangle import tile_height
from smtdist.kernels.types import Array, Codes, Encoder
from smtdist.statistics import limbs
from smtdist.statistics.base import Layout, State, Statistic
from smtdist.statistics.operators import require_order
from smtdist.statistics.patch_rows import drawn_views

DEVIATION: Final = ("beyond_high", "beyond_low")
DIGITS: Final = ("scatter_high", "scatter_low")
FEW: Final = 130
"""Atoms of a twin that compiles and warms the kernels: so many that codes of one atom count as sparse."""
UNLISTED: Final = 1 << 62
"""Entries to provide for where no list of them is made."""
NEVER: Final = 2**31 - 1
"""More than any product of a patch and an atom on the grid."""


@dataclass(frozen=True)
class CodeSums(Statistic):
    """Raw sums over samples of the binary codes A (K x n) of each, all integers; K x K sums keep the upper triangle.

    With L = D Dᵀ, deg(i) the kept neighbours of position i and deg₀ its largest possible value, the state
    holds

    ============== ============================= ========================= ====================================
    name           sum over samples of           kept when                 gives
    ============== ============================= ========================= ====================================
    activity       A 1                           always                    second moment of one-hot codes
    second_moment  A Aᵀ                          "gq"                      V
    outer          s sᵀ, s = A 1                 whole-image context       cooccurrence = outer - A Aᵀ
    windows        Σ_{j in n(i)} a_i a_jᵀ        context of d pixels       cooccurrence
    deficit        A diag(deg₀ - deg) Aᵀ         order 1, degrees differ   A diag(deg) Aᵀ = deg₀ A Aᵀ - deficit
    scatter        A L Aᵀ                        order 2, d pixels         context_scatter
    deviation      A (L - L of deg = deg₀) Aᵀ    order 2, whole image      context_scatter
    n_views        1, n > 0                      order 2, whole image      whether all n are equal
    n_squares      n²                            order 2, whole image      whether all n are equal
    ============== ============================= ========================= ====================================

    One-hot codes keep the diagonal of `deficit` only. At order 2 L of windows is rounded to multiples of 2^-20, or, where that
    is too coarse (`context.fine_window`), of 2^-30, in two digits: scatter = 2^10 `scatter_high` + `scatter_low`. Of whole images
    A L Aᵀ = n / (n - 1)² (n A Aᵀ - s sᵀ), n the patches that are kept: while all images keep one n it follows exactly from the
    other sums. Else the weight is rounded once for each n, to a multiple of 2^-`weight_bits`, and what images add beyond one of
    which all patches are kept is summed in two limbs, `beyond_high` and `beyond_low`; the images before the first that keeps
    another n are added from the other sums, all at once. `coarse` sums have multiples of 2^-20 in one sum, `deviation`, as in
    files of schemas 1 and 2. Memory: that many K x K arrays of 4 or 8 bytes an entry.

    Of each image only the patches are made that the encoder's sampling chooses: the others are no one's
    neighbours. On a stride s a context of d pixels is one of ⌊d / s⌋ positions of the lattice, so the sums
    run on that. For a draw of m, a whole-image context costs what m patches cost; a window also passes over
    the empty positions of the lattice (8 bytes each), and order 2 weighs their pairs, as many as without a
    draw.

    `mirrored` says that atoms K/2 to K are the mirror images of the others, so that a mirror image has the codes of the
    image, with the halves of the atoms exchanged. Then `flip` needs no second look: the state is that of the images
    alone, and what is finished has both (`Statistics.with_mirrored`). Norms are summed in pixel order, so one
    number in about 10^12 may round otherwise in a mirror image: then the codes are those of the image, exchanged.

    `rows` limits the K x K sums to a tile of their rows, [low, high), of the columns from low on, for
    workers that cannot hold them whole: each tile is a pass of its own, and all tiles together are the same
    numbers (`tiled`).
    """

    encoder: Encoder
    context: int | str
    order: int
    flip: bool
    max_samples: int
    rows: tuple[int, int] | None = None
    mirrored: bool = False
    coarse: bool = False
    on_device = True
    IN_LIMBS = ("beyond",)

    @property
    def n_atoms(self) -> int:
        """Number of atoms, K."""
        return len(self.encoder.atoms)

    @property
    def full_degree(self) -> int:
        """Neighbours of a position that has all of them, deg₀."""
        whitener = self.encoder.whitener
        degree = whitener.drawn - 1 if self._reach is None else (2 * self._reach + 1) ** 2 - 1
        return degree if whitener.sampling.positions is None else min(degree, whitener.drawn - 1)

    @property
    def _pixels(self) -> int | None:
        """The context in pixels, None for the whole image."""
        return None if isinstance(self.context, str) else self.context

    @property
    def _reach(self) -> int | None:
        """The context in positions of the lattice, None for the whole image."""
        return None if self._pixels is None else self._pixels // self.encoder.whitener.sampling.stride

    def layout(self) -> Layout:
        """Return the sums that are kept, each in the smallest type that holds it."""
        n_atoms = self.n_atoms
        one_hot = self.encoder.form == "labels"
        whole = self._reach is None
        # whether every position of every image has a code: then all of a whole image have deg₀ neighbours
        complete = self.encoder.constant_patch != "leave_out" and (
            one_hot or self.encoder.zero_code != "leave_out"
        )
        low, high = self.rows or (0, n_atoms)
        matrix = (high - low, n_atoms - low)
        drawn = self.encoder.whitener.drawn
        patches = self.max_samples * (2 if self.flip else 1) * drawn
        layout: Layout = {
            "n_samples": ((), np.int64),
            "n_positions": ((), np.int64),
            "activity": ((n_atoms,), np.int64),
        }
        if not one_hot:
            layout["second_moment"] = (matrix, smallest_integer(patches))
        if whole:
            layout["outer"] = (matrix, smallest_integer(patches * drawn))
        else:
            layout["windows"] = (matrix, smallest_integer(patches * self.full_degree))
        if self.second_order and not whole:
            smallest_integer(10 * patches << context.COARSE_BITS)  # see `add_second_order`
            fine = self.weight_bits > context.COARSE_BITS
            layout |= dict.fromkeys(DIGITS if fine else ("scatter",), (matrix, np.int64))
        elif self.second_order and self.coarse:
            layout["deviation"] = (matrix, np.int64)
        elif self.second_order:
            smallest_integer(
                4 * patches << self.weight_bits >> 32
            )  # the high limb: |L| sums to 2 n at most
            layout |= dict.fromkeys(("n_views", "n_squares"), ((), np.int64))
            layout |= dict.fromkeys(DEVIATION, (matrix, np.int64))
        elif not (whole and complete):
            layout["deficit"] = (
                ((n_atoms,), np.int64)
                if one_hot
                else (matrix, smallest_integer(patches * self.full_degree))
            )
        return layout

    @property
    def second_order(self) -> bool:
        """Whether codes are compared with the mean of their neighbours, not with each."""
        return require_order(self.order).of_mean

    @property
    def weight_bits(self) -> int:
        """Bits behind the point of the second-order weights."""
        if self.coarse:
            return context.COARSE_BITS
        if self._reach is None:
            return context.weight_bits(self.full_degree + 1)
        fine = context.fine_window(self._reach, self.encoder.whitener.lattice)
        return context.FINE_BITS if fine else context.COARSE_BITS

    @property
    def work_per_sample(self) -> float:
        """Multiplications of patches with atoms that one image costs."""
        whitener = self.encoder.whitener
        return whitener.drawn * whitener.geometry.pixels * self.n_atoms * (2.0 if self._views else 1.0)

    @property
    def _views(self) -> bool:
        """Whether mirror images are coded themselves."""
        return self.flip and not self.mirrored

    @property
    def _paired(self) -> bool:
        """Whether images and mirror images are coded together."""
        return self._views and code_kernels.are_paired(self.encoder.whitener)

    def update(self, state: State, images: NDArray[np.generic], first_sample: int) -> int:
        """Encode a batch of raw images and add its codes to every sum, reading them once."""
        positions = 0
        raw = place(images)
        # a device adds whole images from their bits, and writes no lists
        listed = is_host(raw) or self._reach is not None or self.encoder.form != "bits"
        capacity = self.capacity(len(images)) if listed else UNLISTED
        waiting: list[Array] = []
        for some, view, at in self._coded(raw, images):
            for first, count, codes in code_kernels.encode_pieces(some, self.encoder, view, capacity, at):
                own = None if at is None else at[first : first + count]
                positions += self.add(state, codes, count, own, waiting)
            if is_host(raw):  # a device holds those of both views
                self._add_waiting(state, waiting)
        self._add_waiting(state, waiting)
        state["n_samples"] += len(images)
        return positions

    def _coded(
        self, raw: Array, images: NDArray[np.generic]
    ) -> Iterator[tuple[Array, code_kernels.View, Array | None]]:
        """Yield what is coded at a time of a batch, placed and as read: (images, their view, positions or None for all).

        The host makes pairs of half as many images, so that no more patches are at work.
        """
        together = len(images) // 2 if is_host(raw) else len(images)
        if together and self._paired:
            for start, stop in even_ranges(len(images), together):
                yield raw[start:stop], code_kernels.PAIRS, None
            return
        for mirror, at in drawn_views(self.encoder.whitener, images, self._views):
            yield raw, mirror, at

    def add(
        self,
        state: State,
        codes: Codes,
        images: int,
        at: Array | None,
        waiting: list[Array] | None = None,
    ) -> int:
        """Add the codes of the chosen patches of some images; `at` are their positions, None: all.

        waiting : where the counts of images whose context is all of them are left; their products are still to add then.
        """
        # neighbours are counted on the lattice of the stride, in which a draw leaves holes; for the whole image no place matters
        whitener, near = self.encoder.whitener, codes
        (rows, columns), chosen = whitener.lattice, None
        if whitener.drawn < rows * columns and self._reach is None:
            rows, columns = 1, whitener.drawn
        elif whitener.drawn < rows * columns:
            numbers = like(codes.indptr, lattices.lattice_numbers(at, whitener))
            near = lattices.on_grid(codes, numbers, rows * columns)
            xp = array_module(numbers)
            chosen = (xp.arange(images, dtype=xp.int64)[:, None] * (rows * columns) + numbers).reshape(-1)
        kept = context.kept_mask(near, (images, rows, columns))
        sites = to_host(kept.sum(axis=(1, 2))).astype(np.int64)
        unequal = "n_views" in state and self._differ(state, sites, waiting)
        state["n_positions"] += int(sites.sum())
        scatter.add_activity(state["activity"], codes)
        whole, low = codes, 0 if self.rows is None else self.rows[0]
        codes, near = scatter.from_atom(codes, low), scatter.from_atom(near, low)
        deficit = state.get("deficit")
        if deficit is not None:
            weights = self._missing(kept, sites).reshape(-1)
            weights = weights if chosen is None else weights[chosen]
            if deficit.ndim == 1:
                scatter.add_activity(deficit, whole, weights)
            elif self._reach is not None or weights.any():
                scatter.add_weighted_moment(deficit, codes, weights)
        if "second_moment" in state:
            scatter.add_second_moment(state["second_moment"], codes)
        if self._reach is None:
            counts = scatter.image_counts(codes, images)
            if waiting is None:
                scatter.add_outer_of(state["outer"], counts, most=whitener.drawn)
            else:
                waiting.append(counts)
            if self.coarse and self.second_order:
                usual = self.full_degree + 1
                scatter.add_whole_second_order(state["deviation"], codes, kept, counts, usual)
            elif unequal:
                self._add_beyond(state, codes, kept, counts)
        else:
            context.add_window_cooccurrence(state["windows"], near, kept, self._reach)
            if self.second_order:
                names = DIGITS if DIGITS[0] in state else ("scatter",)
                for name in names:
                    context.add_second_order(state[name], near, kept, self._reach, fine=name == DIGITS[1])
        return int(sites.sum())

    def _missing(self, kept: Array, sites: NDArray[np.int64]) -> Array:
        """Return how many neighbours a kept patch lacks of those it might have; of whole images on the host, by their `sites`.

        A patch that is not kept has no atom: its number does not matter.
        """
        if self._reach is None:
            return np.repeat(self.full_degree + 1 - sites, kept.shape[1] * kept.shape[2])
        weights = (self.full_degree - context.degrees(kept, self._reach)).astype(np.int64)
        weights[~kept] = 0
        return weights

    def _differ(self, state: State, sites: NDArray[np.int64], waiting: list[Array] | None) -> bool:
        """Count the kept patches of images that come next; tell whether they or images before them keep different numbers.

        If these are the first that do, what those before them add beyond the usual is added from the sums.
        """
        before = self._equal_sites(state)
        some = sites[sites > 0]
        same = before is not None and (some == (before or some[:1])).all()
        if before and not same:
            self._add_waiting(state, waiting or [])
            self._add_equal(state, state, before)
        state["n_views"] += len(some)
        state["n_squares"] += int(some @ some)
        return not same

    @staticmethod
    def _equal_sites(state: State) -> int | None:
        """Return the patches that each image of a state keeps, 0 where there is none; None where they differ."""
        views, positions, squares = (int(state[name]) for name in ("n_views", "n_positions", "n_squares"))
        return equal_sites(views, positions, squares) if views else 0

    def _add_waiting(self, state: State, waiting: list[Array]) -> None:
        """Add the products of the counts that wait, all at once: a product reads and writes all of a K x K sum."""
        if waiting:
            counts = array_module(waiting[0]).concatenate(waiting)
            scatter.add_outer_of(state["outer"], counts, most=self.encoder.whitener.drawn)
            waiting.clear()

    def _add_equal(self, out: State, sums: State, sites: int) -> None:
        """Add what images of a state, which all keep so many patches, add to A L Aᵀ beyond the usual."""
        usual = self.full_degree + 1
        if sites != usual:
            activity = sums["activity"][0 if self.rows is None else self.rows[0] :]
            self.add_views(out, sums, activity, sites, 1)
            self.add_views(out, sums, activity, usual, -1)

    def add_views(self, out: State, sums: State, activity: Array, sites: int, sign: int) -> None:
        """Add A L Aᵀ of images that all keep so many patches to the limbs of `out`, or take it away, from other sums of them.

        activity : of the rows of the sums.
        """
        high, low = (out[name] for name in DEVIATION)
        second, outer = sums.get("second_moment"), sums["outer"]
        weight = context.whole_weights(sites, self.weight_bits)[1]
        for start in range(0, len(outer), memory.LIMB_ROWS):
            rows = slice(start, start + memory.LIMB_ROWS)
            panel = -sign * outer[rows, start:].astype(np.int64)
            if second is not None:
                panel += sign * sites * second[rows, start:].astype(np.int64)
            else:
                at = array_module(panel).arange(len(panel))
                panel[at, at] += sign * sites * activity[rows]
            limbs.add_multiple(high[rows, start:], low[rows, start:], panel, weight)

    def _add_beyond(self, state: State, codes: Codes, kept: Array, counts: Array) -> None:
        """Add what whole images add to A L Aᵀ beyond one of which all patches are kept."""
        high, low = (state[name] for name in DEVIATION)
        for first, shift, panel in scatter.whole_second_order(
            codes, kept, counts, self.full_degree + 1, self.weight_bits, len(high)
        ):
            rows = slice(first, first + len(panel))
            limbs.add_multiple(high[rows, first:], low[rows, first:], panel, 1 << shift)
            del panel  # before the next one is made

    def merge(self, left: State, right: State) -> State:
        """Return the sum over both, by adding."""
        if DEVIATION[0] in left:
            sites = [self._equal_sites(state) for state in (left, right)]
            if None in sites or (all(sites) and sites[0] != sites[1]):
                for state, each in zip((left, right), sites, strict=True):
                    if each:
                        self._add_equal(left, state, each)
        return super().merge(left, right)

    def batch_bytes(self, images: int) -> int:
        """Return the workspace of a batch."""
        encoder = self.encoder
        needed = memory.batch_bytes(
            encoder.whitener,
            self.n_atoms,
            encoder.form,
            images,
            context=self._pixels,
            second_order=self.second_order,
        )
        rest = 2 * (2 * self.capacity(images) + 8 * images * encoder.whitener.geometry.positions)
        return max(needed.encoding, needed.scatter + (rest if self.rows and self.rows[0] else 0))

    def device_batch_bytes(self, images: int) -> int:
        """Return the workspace of a batch on a device."""
        coded = images * (2 if self._paired else 1)
        encoder, capacity = self.encoder, self.capacity(coded)
        needed = device_batch_bytes(
            encoder.whitener, self.n_atoms, encoder.form, coded, capacity, self._pixels, self.second_order
        )
        return needed + (
            24 * capacity if self.rows and self.rows[0] else 0
        )  # codes from the tile's first row on

    @property
    def area(self) -> float:
        """Entries of the upper triangle that lie in the rows of the sums."""
        low, high = self.rows or (0, self.n_atoms)
        return (high - low) * (self.n_atoms - (low + high) / 2)

    def swept_bytes(self, images: int) -> int:
        """Return the bytes of the sums that a batch passes over: from the diagonal on, the rows of atoms that occur in it.

        Those are all, but for one-hot codes of few patches.
        """
        occurring = 1.0
        if self.encoder.form == "labels":
            occurring = min(1.0, images * self.encoder.whitener.drawn / self.n_atoms)
        return int(occurring * self.area * sum(self._square_sizes()))

    def strip_bytes(self) -> int:
        """Return the workspace of finishing the sums in strips of rows: a copy of one, and what is made of it in passing."""
        low, high = self.rows or (0, self.n_atoms)
        one_hot, sizes = self.encoder.form == "labels", self._square_sizes()
        passing = 0 if one_hot else 8 if self.second_order else 24
        return (sum(sizes) + passing) * min(high - low, tile_height(self.n_atoms)) * (self.n_atoms - low)

    def _square_sizes(self) -> list[int]:
        """Return the bytes of an entry of each K x K sum."""
        return [np.dtype(dtype).itemsize for shape, dtype in self.layout().values() if len(shape) == 2]

    def merge_bytes(self) -> int:
        """Return the workspace of `merge`, beside the two sums: none."""
        return 0

    def finishing_bytes(self) -> int:
        """Return what `finish` needs beside whole sums, at most.

        That is context_scatter where it may not follow from the others, and a copy in passing: of a panel, or of the quarter
        that is added to its mirror image.
        """
        passing = 8 * min(self.n_atoms, scatter.MIRRORED_ROWS), 2 * self.n_atoms if self.mirrored else 0
        return self.n_atoms * (8 * self.n_atoms * self._has_deficits() + max(passing))

    def _has_deficits(self) -> bool:
        """Tell whether pairs are counted that images lack, from which context_scatter is made."""
        layout = self.layout()
        return "deficit" in layout and len(layout["deficit"][0]) == 2

    def finished_bytes(self) -> int:
        """Return the bytes of the K x K arrays that `finish` makes of the sums, at most."""
        layout = self.layout()
        names = [name for name in ("second_moment", "outer", "windows") if name in layout]
        sizes = [np.dtype(layout[name][1]).itemsize for name in names]
        if self.second_order or self._has_deficits():
            # context_scatter, which does not follow from the others; in two limbs
            sizes.append(16 if layout.keys() & {DEVIATION[0], DIGITS[0]} else 8)
        low, high = self.rows or (0, self.n_atoms)
        return int(sum(sizes)) * (high - low) * (self.n_atoms - low)

    def capacity(self, images: int) -> int:
        """Return the entries to provide for the codes of a batch."""
        whitener = self.encoder.whitener
        return memory.code_capacity(
            whitener.geometry, self.n_atoms, self.encoder.form, images, whitener.sampling
        )

    def miniature(self) -> CodeSums:
        """Return the same sums over few atoms, of which the twin meets all, the best, and none."""
        few = replace(self.encoder, atoms=self.encoder.atoms[:FEW])
        rows = None if self.rows is None else (min(2, self.rows[0]), len(few.atoms))
        return _Rehearsal(
            few, self.context, self.order, self.flip, self.max_samples, rows, coarse=self.coarse
        )

    def tiled(self, count: int) -> tuple[CodeSums, ...]:
        """Return the sums in at most so many tiles of rows, of nearly the same size: together the same numbers."""
        if count == 1:
            return (self,)
        cuts = tile_cuts(self.n_atoms, count)
        if self.mirrored and len(cuts) > 2:  # a tile ends where the mirror images begin
            half = self.n_atoms // 2
            cuts[min(range(1, len(cuts) - 1), key=lambda at: abs(cuts[at] - half))] = half
        return tuple(replace(self, rows=rows) for rows in pairwise(cuts))


class _Rehearsal(CodeSums):
    """Sums that take the ways of many and of few active atoms, whatever the images: kernels differ, and are compiled once."""

    def update(self, state: State, images: NDArray[np.generic], first_sample: int) -> int:
        """Add the images with all atoms active and with none, and blank ones, once with one atom each."""
        positions = 0
        blank, own = np.zeros_like(images), self.encoder.constant_patch
        for cut, constant_patch, some in (
            (-NEVER, own, images),
            (NEVER, own, images),
            (NEVER, own, blank),
            (NEVER, "activate_best", blank),
        ):
            encoder = replace(self.encoder, cut=cut, constant_patch=constant_patch)
            sums = replace(self, encoder=encoder)
            positions += CodeSums.update(sums, state, some, first_sample)
        return positions


def equal_sites(views: int, positions: int, squares: int) -> int | None:
    """Return n where so many views of images have n kept patches each; None where they differ.

    By Cauchy and Schwarz (Σ n)² is at most the number of views times Σ n², and equal to it only where all n are equal.

    >>> equal_sites(3, 12, 48), equal_sites(3, 12, 50)
    (4, None)
    """
    return max(1, positions // max(1, views)) if views * squares == positions**2 else None


def tile_cuts(n_atoms: int, count: int) -> list[int]:
    """Return where tiles of rows begin and end, so that h x (K - low), their size, is about the same for all.

    >>> tile_cuts(100, 2), tile_cuts(100, 3)
    ([0, 38, 100], [0, 23, 53, 100])
    """

    def cut(area: float) -> list[int]:
        cuts = [0]
        while cuts[-1] < n_atoms:
            left = n_atoms - cuts[-1]
            cuts.append(min(n_atoms, cuts[-1] + max(1, math.ceil(area / left))))
        return cuts

    small, large = 0.0, float(n_atoms) ** 2
    for _ in range(50):
        middle = (small + large) / 2
        small, large = (small, middle) if len(cut(middle)) <= count + 1 else (middle, large)
    return cut(large)


def smallest_integer(largest: int) -> type[np.signedinteger]:
    """Return the smallest of int32 and int64 that holds sums up to `largest`; beyond 2^63 nothing is safe."""
    if largest >= 2**63:
        raise TooLargeError(
            f"A sum over these data may reach {largest:.3g}, more than 64 bits hold; use fewer or smaller samples."
        )
    return np.int32 if largest < 2**31 else np.int64
