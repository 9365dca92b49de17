"""Settings of a sparse manifold transform of video."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from smtdist.errors import ConfigurationError
from smtdist.settings import FLAG, Settings, number, one_of, seed, setting, shared, whole


class FunctionalSettings(Settings):
    """Settings of a transform of video (SMT 2018); see `fit_video`."""

    OF: ClassVar[str] = "video"
    EARLIER: ClassVar[Mapping[str, Any]] = {"overlap": False}

    patch_size: int = setting(whole(1), "side of a patch in pixels.", default=16, stored="patch")
    length: int = setting(whole(1), "frames of a sequence.", default=8)
    overlap: bool = setting(
        FLAG,
        "windows of `length` frames share frames, so that every difference in time of a shot is used once. "
        "Without it those between windows are left out, as in models that were saved before there was this "
        "setting.",
        default=True,
    )
    places: int = setting(
        whole(1), "patches that are cut from each window of frames, each at its own place.", default=32
    )
    views: int = setting(
        whole(1),
        "views of each window that a fit learns from, each with its own places. 1: as it is; 2: mirrored too; "
        "4: upside down too; 8: with rows and columns exchanged too. A few clips have few orientations and "
        "motions, and without views P overfits them.",
        default=1,
    )
    whiten: str = setting(
        one_of("zca", "fourier"),
        '"zca" whitens patches; "fourier" whitens whole frames before patches are cut.',
        default="zca",
    )
    low_pass: float = setting(
        number(above=0), "r₀ of the Fourier whitening, in units of the Nyquist frequency.", default=0.75
    )
    whitening_reg: float = setting(
        number(0), "λ of the ZCA whitening, as a share of the mean variance.", default=1e-2, stored="ridge"
    )
    n_atoms: int = setting(whole(1), "number of atoms K.", default=1024, stored="atoms")
    penalty: float = setting(number(above=0), "λ of the codes (equation 10).", default=0.25)
    max_iter: int = setting(whole(0), "rounds of dictionary learning.", default=20, stored="rounds")
    batch: int = setting(whole(1), "sequences in each round of dictionary learning.", default=1000)
    difference_order: int = shared("difference_order", 2, "order of the differences in time, 1 or 2.")
    second_moment: str = shared("second_moment", "centred")
    n_components: int = shared("n_components", 64)
    n_epochs: int = setting(
        whole(0),
        "rounds of mini-batches after the eigensolve (supplement C); 0 means none.",
        default=0,
        stored="sgd_rounds",
    )
    sgd_batch: int = setting(whole(1), "sequences of a mini-batch.", default=256)
    sgd_steps: int = setting(whole(1), "steps of a mini-batch, each on the same sums.", default=20)
    sparsity: float = setting(
        number(0), "γ₁ over γ₀ of supplement C: how much mini-batches make P sparse.", default=0.05
    )
    random_state: int = seed()

    def check_together(self) -> None:
        """Refuse windows without a difference, and more components than atoms."""
        if self.length <= self.difference_order:
            raise ConfigurationError(
                f"length is {self.length}; for differences of order {self.difference_order} it "
                f"must be at least {self.difference_order + 1}."
            )
        if self.n_components > self.n_atoms:
            raise ConfigurationError(
                f"n_components is {self.n_components}; it must be at most n_atoms, which is {self.n_atoms}."
            )
