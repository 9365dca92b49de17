"""Settings that all coders of patches have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from smtdist.settings import FLAG, NULL, PAIR, Settings, number, one_of, setting, several, whole

GRIDS: Final = several(whole(1), "grids such as [3] or [1, 2, 3]", least=1)
_SHARED: Final[dict[str, Any]] = {
    "n_atoms": (whole(1), "number of atoms, K.", "units", "dictionary"),
    "patch_size": (whole(1), "side of a patch in pixels; at most the side of the image.", "patch"),
    "contrast_bias": (
        number(0),
        "number added to the variance of a patch (pixels in [0, 1]) before contrast is normalised.",
    ),
    "whitening_reg": (number(0), "λ of the ZCA whitening.", "ridge"),
    "images": (whole(0), "images in a round; 0 means all."),
    "patches": (whole(0), "patches of each image in a round; 0 means all."),
    "whiten_images": (whole(0), "images from which the whitening is computed; 0 means all."),
    "n_init": (
        whole(1),
        "starts of learning, each from other patches. The one with the lowest mean loss over the last tenth of its rounds is "
        "kept. Each start takes as many passes as one.",
    ),
    "start": (one_of("patches", "random"), 'start from random "patches", or from "random" numbers.'),
    "decay": (number(0), "the step is halved every `decay` rounds; 0 means never."),
    "pooling_grid": (GRIDS, "grids over which codes are pooled, such as [2] for 2 x 2.", "pooling"),
    "pixel_range": (PAIR | NULL, "(black, white) of float images."),
    "augment_flip": (FLAG, "also use the mirror image (left to right) of every image.", "flip"),
    "to_grayscale": (FLAG, "convert colour images to greyscale (luminance) first.", "grey"),
}


def shared(name: str, default: Any) -> Any:
    """Declare a setting that several coders have, with a default of its own."""
    rule, meaning, *others = _SHARED[name]
    stored, *aliases = others or [""]
    return setting(rule, meaning, default=default, stored=stored, aliases=tuple(aliases))


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
