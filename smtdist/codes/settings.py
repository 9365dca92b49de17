"""Settings that all coders of patches have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smtdist.settings import Settings


class PatchSettings(Settings):
    """What every coder of patches is told; each declares it, in the order of its files."""

    if TYPE_CHECKING:
        n_atoms: int
        patch_size: int
        contrast_bias: float
        whitening_reg: float
        patches: int
        images: int
        whiten_images: int
        start: str
        pooling_grid: tuple[int, ...]
        pixel_range: tuple[float, float] | None
        augment_flip: bool
        to_grayscale: bool
        random_state: int

    @property
    def width(self) -> int:
        """Entries of a code, K."""
        return self.n_atoms
