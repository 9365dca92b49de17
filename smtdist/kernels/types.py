"""The shapes that flow between kernels: geometry of the patches, the encoder's parameters, sparse codes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

Array = Any
"""A NumPy or CuPy array; kernels pick their way from the array they are given."""


class Geometry(NamedTuple):
    """Every T x T patch of an image at stride 1; positions run row, column; pixels run row, column, channel."""

    height: int
    width: int
    channels: int
    patch: int

    @property
    def rows(self) -> int:
        """Rows of positions."""
        return self.height - self.patch + 1

    @property
    def columns(self) -> int:
        """Columns of positions."""
        return self.width - self.patch + 1

    @property
    def positions(self) -> int:
        """Patches in one image, n."""
        return self.rows * self.columns

    @property
    def pixels(self) -> int:
        """Numbers in one patch, p."""
        return self.patch * self.patch * self.channels

    def reach(self, context: int | str) -> int:
        """Return how many rows and columns away a context of so many pixels, or "whole", reaches."""
        return max(self.rows, self.columns) if context == "whole" else int(context)


class Sampling(NamedTuple):
    """Which patches of an image are coded: those on a lattice, and in a fit a seeded random few of them.

    The others keep their place on the grid of positions but have no code, as patches that are left out have
    none. Contextual means are taken over all patches of the image nevertheless. A draw of more than there
    are takes all.
    """

    stride: int = 1  # the lattice: every so many rows and columns, from the first on
    positions: int | None = None  # in a fit, so many of the lattice an image and view; None: all
    seed: int = 0
    mirrored: bool = (
        False  # whether a mirrored image has the image's patches, mirrored, and no draw of its own
    )

    @property
    def undrawn(self) -> Sampling:
        """All of the lattice: what a transform codes, and what atoms are taken from."""
        return self._replace(positions=None)

    def lattice(self, geometry: Geometry) -> tuple[int, int]:
        """Rows and columns of the lattice."""
        return -(-geometry.rows // self.stride), -(-geometry.columns // self.stride)

    def drawn(self, geometry: Geometry) -> int:
        """Patches of one image that a fit codes, m.

        >>> Sampling(2).drawn(Geometry(9, 8, 1, 3)), Sampling(2, 5).drawn(Geometry(9, 8, 1, 3))
        (12, 5)
        """
        rows, columns = self.lattice(geometry)
        return rows * columns if self.positions is None else min(self.positions, rows * columns)


ALL_POSITIONS: Final = Sampling()


class PixelScale(NamedTuple):
    """How raw pixels become integers: unit = one integer step as a share of the range [0, 1].

    uint8: integer = 256 x value, unit = 1 / (255 x 256), so one grey level is 256 units.
    Floats and other whole numbers (`is_float`): integer = rint(2^16 (value - black) / (white - black)),
    unit = 2^-16, one grey level is 65536 / 255 units. Whole numbers of at most 16 bits keep each a point of
    their own.
    """

    black: float
    white: float
    is_float: bool

    def __str__(self) -> str:
        return f"from {self.black:g} to {self.white:g}{'' if self.is_float else ' as uint8'}"

    @property
    def raw_bytes(self) -> int:
        """Bytes of a stored number: one of uint8, at most eight of others."""
        return 8 if self.is_float else 1

    @property
    def unit(self) -> float:
        """Size of one integer step when the whole range is 1."""
        return 2.0**-16 if self.is_float else 1.0 / (255 * 256)

    @property
    def grey_level(self) -> float:
        """Integer steps in one of 255 grey levels."""
        return 65536 / 255 if self.is_float else 256.0


class Codes:
    """Sparse binary codes of N patches over K atoms, patch by patch; a patch that is left out has no entry.

    The atoms of patch i are `indices[indptr[i]:indptr[i + 1]]`, strictly ascending. The N patches are whole
    images: N = images x rows x columns, in that order. Codes that are kept as `bits`
    (`smtdist.kernels.cpu.marked`) write their lists once someone reads them, 2 bytes an entry. `sites`
    tells which patches count as sites and as neighbours of others, for a patch may have no active atom and
    still be one; None: the patches with an active atom.
    """

    def __init__(
        self,
        indptr: Array | None,
        indices: Array | None,
        n_atoms: int,
        bits: Any = None,
        sites: Array | None = None,
    ) -> None:
        self._indptr = indptr  # (N + 1,) int64, from 0; None: as the counts of `bits` say
        self.n_atoms = n_atoms
        self.bits = bits
        self.sites = sites  # (N,) bool
        self._indices = indices

    @property
    def indptr(self) -> Array:
        """Where the atoms of each patch begin and end among all, (N + 1,) int64."""
        if self._indptr is None:
            self._indptr = self.bits.indptr()
        return self._indptr

    @property
    def active(self) -> Array:
        """Atoms of each patch, (N,) int64."""
        return self.bits.active() if self._indptr is None else self._indptr[1:] - self._indptr[:-1]

    @property
    def indices(self) -> Array:
        """Active atoms of all patches, (entries,) uint16."""
        if self._indices is None:
            self._indices = self.bits.lists(self.indptr)
        return self._indices

    @property
    def anchor(self) -> Array:
        """An array that lies where the codes are."""
        return self.bits.words if self._indptr is None else self._indptr

    @property
    def n_patches(self) -> int:
        """Patches, those left out included."""
        return int(self.bits.n_patches) if self._indptr is None else len(self._indptr) - 1

    @property
    def entries(self) -> int:
        """Active atoms, all patches together."""
        return int(self.indptr[-1])


@dataclass(frozen=True)
class Whitener:
    """What turns an image into unit patches on the integer grid; everything in it is fixed before the pass."""

    geometry: Geometry
    scale: PixelScale
    grey: bool
    mean: str
    mean_context: int | str
    global_mean: Array | None  # (p,) int64 in pixel units, for mean = "global"
    min_contrast: float  # grey levels, root mean square
    whiten: (
        Array | None
    )  # (p, p) float64 with integer values, from `integer_whitening`; None: not whitened yet
    sampling: Sampling = ALL_POSITIONS
    ridge: float | None = (
        None  # λ in squared steps, where each image is whitened by its own Σ instead of by `whiten`
    )

    @property
    def own_ridge(self) -> float | None:
        """λ where patches are whitened, each image's by their own Σ; None where they are not, or by `whiten`."""
        return None if self.whiten is None else self.ridge

    @property
    def undrawn(self) -> Whitener:
        """The same, without a draw of patches."""
        return replace(self, sampling=self.sampling.undrawn)

    @property
    def lattice(self) -> tuple[int, int]:
        """Rows and columns of the positions on the stride."""
        return self.sampling.lattice(self.geometry)

    @property
    def drawn(self) -> int:
        """Patches of one image that a fit codes, m."""
        return self.sampling.drawn(self.geometry)


FORMS: Final = {"gq": "bits", "vq": "labels"}
"""The form of a code, by the name of its feature."""


@dataclass(frozen=True)
class Encoder:
    """What turns an image into sparse codes."""

    whitener: Whitener
    atoms: Array  # (K, p) float32 with integer values: the dictionary on the grid
    feature: str  # "gq" | "vq"
    cut: int  # "gq": smallest integer dot product of an active atom
    euclidean: bool  # "vq": nearest by distance (atoms need not be unit vectors) instead of by cosine
    constant_patch: str
    zero_code: str

    @property
    def form(self) -> str:
        """What a code is: "bits", any number of atoms, or "labels", one atom or none."""
        return FORMS[self.feature]
