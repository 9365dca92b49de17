"""What a kernel model is asked to be: every setting that changes a result, checked, and as JSON."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any, Final

from smtdist.codes import checks
from smtdist.errors import ConfigurationError
from smtdist.kernels.augment import Augmentation
from smtdist.kernels.gram import Kernel

MODELS: Final = ("contrastive", "spectral", "autoencoder")
FEATURES: Final = ("fourier", "relu", "nystroem")
LANDMARKS, RANDOM = 512, 2048
"""Features by default: landmarks, and random ones."""
TRIPLETS: Final = ("drawn", "given")
NEGATIVES: Final = ("all", "one")
METHODS: Final = ("lbfgs", "gradient")

_CHOICES: Final[dict[str, tuple[Any, ...]]] = {
    "model": MODELS,
    "features": (None, *FEATURES, "auto"),
    "decoder_features": FEATURES[:2],
    "triplets": TRIPLETS,
    "negatives": NEGATIVES,
    "method": METHODS,
}
_WHOLE: Final = {
    "n_components": 1, "n_features": 1, "degree": 1, "crop": 0, "copies": 1, "pool": 2, "max_iterations": 1, "n_init": 0,
    "rounds": 1, "batch": 1, "n_decoder_features": 1, "seed": 0,
}  # fmt: skip
_NUMBERS: Final = ("offset", "noise", "mask", "nugget", "tolerance", "learning_rate", "decoder_bandwidth")


@dataclass(frozen=True)
class KernelSettings:
    """Settings of a kernel model.

    Attributes
    ----------
    model : "contrastive" (Definition 1), "spectral" (Definition 2) or "autoencoder" (Definition 3).
    n_components : h, the dimensions of the embedding.
    kernel, bandwidth, degree, offset : the kernel; see `smtdist.kernels.gram.Kernel`. bandwidth "median" is
        the median distance.
    features, n_features : None for the exact model, whose data must fit in memory. Else the explicit features
        with which the model is summed over data of any size, and their number. "auto" is "nystroem": kernel values of
        landmarks, drawn from the data, come nearest to the exact model. n_features None means 512 landmarks, or 2,048
        features of "fourier" and "relu", which need no landmarks: the decoder has them, since its inputs move.
    noise, flip, crop, mask : the augmentation that makes positives. An autoencoder learns to remove it; its
        default is none.
    copies : triplets of each sample (exact models only).
    triplets : "drawn", or "given" if each sample holds an anchor, a positive and a negative, one after the
        other.
    negatives : of the spectral loss: "all" for the mean over draws, or "one" as in the paper. "one" has no
        minimum for universal kernels and a small ridge.
    pool : with features, number of samples from which negatives, landmarks and the median are drawn.
    ridge : λ. "auto" is 0.1 for the autoencoder, and half of the h-th eigenvalue of the attraction for the
        spectral loss.
    nugget : see `smtdist.models.kernel.autoencoder`.
    decoder_kernel, decoder_bandwidth, decoder_features, n_decoder_features : kernel and features of the
        decoder.
    method, tolerance, max_iterations : solver of the exact models that have no closed form.
    n_init : random starts of the exact autoencoder, of which the best is kept.
    rounds, batch, learning_rate : mini-batches, with features.
    seed : seed of every random choice.
    """

    model: str = "contrastive"
    n_components: int = 2
    kernel: str = "gaussian"
    bandwidth: float | str = "median"
    degree: int = 3
    offset: float = 1.0
    features: str | None = None
    n_features: int | None = None
    noise: float = 0.1
    flip: bool = False
    crop: int = 0
    mask: float = 0.0
    copies: int = 1
    triplets: str = "drawn"
    negatives: str = "all"
    pool: int = 1024
    ridge: float | str = "auto"
    nugget: float = 1e-6
    decoder_kernel: str = "gaussian"
    decoder_bandwidth: float = 1.0
    decoder_features: str = "fourier"
    n_decoder_features: int = 512
    method: str = "lbfgs"
    tolerance: float = 1e-5
    max_iterations: int = 1000
    n_init: int = 32
    rounds: int = 200
    batch: int = 1024
    learning_rate: float = 0.01
    seed: int = 0

    def __post_init__(self) -> None:
        checks.require_choices(self, _CHOICES)
        if self.features == "auto":
            object.__setattr__(self, "features", "nystroem")
        checks.require_whole(self, {k: v for k, v in _WHOLE.items() if getattr(self, k) is not None})
        for name in _NUMBERS:
            _number(name, getattr(self, name))
        for name, word in (("bandwidth", "median"), ("ridge", "auto")):
            if getattr(self, name) != word:
                _number(name, getattr(self, name), word)
        if self.tolerance == 0:
            raise ConfigurationError(
                "tolerance is 0, which no descent reaches; give a small number above 0."
            )
        if self.model != "autoencoder" and self.triplets == "drawn":
            self.augmentation()

    @property
    def feature_count(self) -> int:
        """Number of explicit features, of landmarks not more than there are to draw from."""
        if self.n_features is not None:
            return self.n_features
        return min(LANDMARKS, self.pool) if self.features == "nystroem" else RANDOM

    def base_kernel(self) -> Kernel:
        """Return the encoder's kernel, with a bandwidth of one where it is yet to be found."""
        width = self.bandwidth if not isinstance(self.bandwidth, str) else 1.0
        return Kernel(self.kernel, width, self.degree, self.offset)

    def base_decoder(self) -> Kernel:
        """Return the decoder's kernel."""
        return Kernel(self.decoder_kernel, self.decoder_bandwidth, self.degree, self.offset)

    def augmentation(self) -> Augmentation:
        """Return what makes positives."""
        return Augmentation(self.noise, self.flip, self.crop, self.mask)

    def corruption(self) -> Augmentation | None:
        """Return what a de-noising autoencoder takes away, or None."""
        return self.augmentation() if self.noise or self.flip or self.crop or self.mask else None

    def numeric_ridge(self) -> float:
        """Return λ of the autoencoder: 0.1 for "auto"."""
        return 0.1 if isinstance(self.ridge, str) else float(self.ridge)

    def replace(self, **changes: Any) -> KernelSettings:
        """Return settings with changes; an unknown name is a ConfigurationError."""
        known = {field.name for field in dataclasses.fields(self)}
        for name in changes:
            if name not in known:
                raise ConfigurationError(
                    f"There is no setting {name!r}; the settings of kernel models are {', '.join(sorted(known))}."
                )
        return dataclasses.replace(self, **changes)

    def to_json(self) -> str:
        """Return the settings as JSON."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> KernelSettings:
        """Read settings from JSON; ConfigurationError for what is none."""
        try:
            return cls().replace(**{"n_init": 0} | json.loads(text))
        except (ValueError, TypeError) as error:
            raise ConfigurationError(f"These are not settings of a kernel model ({error}).") from error


def _number(name: str, value: Any, word: str = "") -> None:
    if not (checks.is_number(value) and value >= 0):
        also = f', or "{word}"' if word else ""
        raise ConfigurationError(f"{name} is {value!r}; it must be a number of at least 0{also}.")
