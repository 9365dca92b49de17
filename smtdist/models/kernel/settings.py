"""What a kernel model is asked to be: every setting that changes a result, checked, and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from smtdist.errors import ConfigurationError
from smtdist.kernels.augment import Augmentation
from smtdist.kernels.gram import Kernel
from smtdist.settings import FLAG, NULL, TEXT, Settings, number, one_of, seed, setting, shared, whole

OF_TRIPLETS: Final = {"contrastive": True, "spectral": True, "autoencoder": False}
"""The models, and whether they learn from triplets."""
FEATURES: Final = ("fourier", "relu", "nystroem")
LANDMARKS, RANDOM = 512, 2048
"""Features by default: landmarks, and random ones."""


class KernelSettings(Settings):
    """Settings of a kernel model."""

    OF: ClassVar[str] = "kernel models"
    EARLIER: ClassVar[Mapping[str, Any]] = {"n_init": 0}

    model: str = setting(
        one_of(*OF_TRIPLETS),
        '"contrastive" (Definition 1), "spectral" (Definition 2) or "autoencoder" (Definition 3).',
        default="contrastive",
    )
    n_components: int = shared("n_components", 2, "h, the dimensions of the embedding.")
    kernel: str = setting(
        TEXT,
        'the kernel: "gaussian", "laplacian", "linear", "polynomial", "relu", "ntk", or a name of '
        "`sklearn.metrics.pairwise`; see `smtdist.kernels.gram.Kernel`.",
        default="gaussian",
    )
    bandwidth: float | str = setting(
        number(above=0) | one_of("median"),
        'σ of the gaussian and the laplacian kernel; "median" is the median distance.',
        default="median",
    )
    degree: int = setting(whole(1), "degree of the polynomial kernel.", default=3)
    offset: float = setting(number(0), "number that the polynomial kernel adds to xᵀy.", default=1.0)
    feature_map: str | None = setting(
        one_of(*FEATURES, "auto") | NULL,
        "None for the exact model, whose data must fit in memory; else the explicit features with which the "
        'model is summed over data of any size. "auto" is "nystroem": kernel values of landmarks, drawn from '
        'the data, come nearest to the exact model. A decoder has "fourier" or "relu", which need no '
        "landmarks, since its inputs move.",
        default=None,
        values={"auto": "nystroem"},
        stored="features",
    )
    n_features: int | None = setting(
        whole(1) | NULL,
        'number of explicit features; None means 512 landmarks, or 2,048 features of "fourier" and "relu".',
        default=None,
    )
    noise: float = setting(
        number(0),
        "standard deviation of the noise of positives. An autoencoder learns to remove it.",
        default=0.1,
    )
    random_flip: bool = setting(FLAG, "mirror positives at random.", default=False, stored="flip")
    random_crop: int = setting(
        whole(0),
        "pixels by which positives are shifted at random, at most, each way.",
        default=0,
        stored="crop",
    )
    mask: float = setting(number(0), "share of the numbers of positives that is set to zero.", default=0.0)
    copies: int = setting(whole(1), "triplets of each sample (exact models only).", default=1)
    triplets: str = setting(
        one_of("drawn", "given"),
        '"drawn", or "given" if each sample holds an anchor, a positive and a negative, one after the other.',
        default="drawn",
    )
    negatives: str = setting(
        one_of("all", "one"),
        'of the spectral loss: "all" for the mean over draws, or "one" as in the paper. "one" has no minimum '
        "for universal kernels and a small ridge.",
        default="all",
    )
    negative_pool_size: int = setting(
        whole(2),
        "with features, number of samples from which negatives, landmarks and the median are drawn.",
        default=1024,
        stored="pool",
    )
    alpha: float | str = setting(
        number(0) | one_of("auto"),
        'λ. "auto" is 0.1 for the autoencoder, and half of the h-th eigenvalue of the attraction for the '
        "spectral loss.",
        default="auto",
        stored="ridge",
    )
    nugget: float = setting(number(0), "see `smtdist.models.kernel.autoencoder`.", default=1e-6)
    decoder_kernel: str = setting(TEXT, "kernel of the decoder.", default="gaussian")
    decoder_bandwidth: float = setting(number(above=0), "σ of the decoder's kernel.", default=1.0)
    decoder_features: str = setting(
        one_of(*FEATURES[:2]), "explicit features of the decoder.", default="fourier"
    )
    n_decoder_features: int = setting(whole(1), "number of explicit features of the decoder.", default=512)
    method: str = setting(
        one_of("lbfgs", "gradient"), "solver of the exact models that have no closed form.", default="lbfgs"
    )
    tolerance: float = setting(
        number(above=0), "relative gradient at which that solver stops.", default=1e-5
    )
    max_iter: int = setting(
        whole(1), "steps of that solver, at most.", default=1000, stored="max_iterations"
    )
    n_init: int = setting(
        whole(0), "random starts of the exact autoencoder, of which the best is kept.", default=32
    )
    n_epochs: int = setting(
        whole(1), "with features, rounds of mini-batches.", default=200, stored="rounds"
    )
    batch: int = setting(whole(1), "samples of a mini-batch.", default=1024)
    learning_rate: float = setting(number(0), "step size of the mini-batches.", default=0.01)
    random_state: int = seed()

    def check_together(self) -> None:
        """Refuse a kernel and an augmentation that are none."""
        self.base_kernel(), self.base_decoder()
        if self.resolved_triplets == "drawn":
            self.augmentation()

    @property
    def resolved_triplets(self) -> str:
        """Where triplets come from, "" for a model that learns from none."""
        return self.triplets if OF_TRIPLETS[self.model] else ""

    @property
    def feature_count(self) -> int:
        """Number of explicit features, of landmarks not more than there are to draw from."""
        if self.n_features is not None:
            return self.n_features
        return min(LANDMARKS, self.negative_pool_size) if self.feature_map == "nystroem" else RANDOM

    def base_kernel(self) -> Kernel:
        """Return the encoder's kernel, with a bandwidth of one where it is yet to be found."""
        width = self.bandwidth if not isinstance(self.bandwidth, str) else 1.0
        return Kernel(self.kernel, width, self.degree, self.offset)

    def base_decoder(self) -> Kernel:
        """Return the decoder's kernel."""
        return Kernel(self.decoder_kernel, self.decoder_bandwidth, self.degree, self.offset)

    def augmentation(self) -> Augmentation:
        """Return what makes positives."""
        return Augmentation(self.noise, self.random_flip, self.random_crop, self.mask)

    def corruption(self) -> Augmentation | None:
        """Return what a de-noising autoencoder takes away, or None."""
        return (
            self.augmentation() if self.noise or self.random_flip or self.random_crop or self.mask else None
        )

    def numeric_ridge(self) -> float:
        """Return λ of the autoencoder, 0.1 for "auto"; ConfigurationError for one that is not positive."""
        ridge = 0.1 if isinstance(self.alpha, str) else float(self.alpha)
        if not ridge > 0:
            raise ConfigurationError(
                f"The ridge of the autoencoder is {ridge}; it must be a positive number."
            )
        return ridge
