"""What a model is asked to be: every setting that changes a result, and nothing that does not."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from smtdist.errors import ConfigurationError

FEATURES: Final = ("gq", "vq")
MEANS: Final = ("context", "patch", "channel", "global")
POLICIES: Final = ("leave_out", "activate_best")
DICTIONARY_METHODS: Final = ("random", "diverse", "kmeans", "spherical", "given")
MOMENTS: Final = ("second", "centred")
DTYPES: Final = ("float32", "float16")


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """All settings of a sparse manifold transform; two equal configurations on equal data give equal bits.

    Attributes
    ----------
    patch : side T of the square patches, in pixels.
    feature : "vq" (one active atom, the nearest) or "gq" (every atom whose cosine reaches `threshold`).
    threshold : cosine t of the "gq" code, read as the decimal fraction it is written as.
    context : range d of the neighbourhood in pixels, or "whole" for every patch of the image.
    order : 1 for differences of neighbours, 2 for a point minus the mean of its neighbours.
    mean : what is taken off a patch: "context" (mean patch of the neighbourhood, itself included), "patch" (one
        scalar), "channel" (one scalar per channel), "global" (mean patch of the data).
    mean_context : range of the contextual mean; None means the same as `context`.
    ridge : λ of the whitening (λI + Σ)^(-1/2), for pixels in [0, 1].
    min_contrast : patches whose root mean square after the mean is below this many grey levels are constant.
    constant_patch : "leave_out" constant patches, or "activate_best" (they share the atom a zero patch activates).
    zero_code : what "gq" does with a patch that no atom reaches: "leave_out" or "activate_best".
    dictionary : number of atoms K.
    dictionary_method : "random", "diverse", "kmeans" (Euclidean), "spherical" or "given".
    dictionary_cosine : largest signed cosine between two atoms of a "diverse" dictionary.
    dictionary_rounds : rounds of the k-means methods.
    dictionary_samples : images in a mini-batch round of the k-means methods; 0 takes them all (Lloyd).
    flip : also use every image mirrored left to right.
    grey : turn colour into luminance first.
    moment : V is the "second" moment of the codes (SMT 2023) or "centred" (SMT 2018).
    n_components, drop : dimensions kept, after leaving out the first `drop`.
    pool_size, pool_stride : average pooling of the patch embeddings, in positions.
    dtype : of the representation on disk.
    pixel_range : (black, white) of float pixels; None is allowed for uint8 and for floats in [0, 1].
    null_tolerance : eigenvalues of V below this share of the largest are its null space; None means K eps.
    keep_statistics : keep the K x K sums in the model, so that it can be merged and refitted.
    seed : of every random choice.
    """

    patch: int = 6
    feature: str = "gq"
    threshold: float = 0.3
    context: int | str = "whole"
    order: int = 1
    mean: str = "context"
    mean_context: int | str | None = None
    ridge: float = 1e-3
    min_contrast: float = 1.0
    constant_patch: str = "leave_out"
    zero_code: str = "leave_out"
    dictionary: int = 2048
    dictionary_method: str = "random"
    dictionary_cosine: float = 0.9
    dictionary_rounds: int = 10
    dictionary_samples: int = 0
    flip: bool = False
    grey: bool = False
    moment: str = "second"
    n_components: int = 384
    drop: int = 0
    pool_size: int = 4
    pool_stride: int = 2
    dtype: str = "float32"
    pixel_range: tuple[float, float] | None = None
    null_tolerance: float | None = None
    keep_statistics: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        if self.pixel_range is not None:  # JSON has lists only
            object.__setattr__(self, "pixel_range", tuple(self.pixel_range))
        for name in ("patch", "dictionary", "n_components", "pool_size", "pool_stride", "dictionary_rounds"):
            _require(
                _is_int(getattr(self, name)) and getattr(self, name) >= 1,
                name,
                getattr(self, name),
                "a whole number of at least 1",
            )
        for name in ("drop", "dictionary_samples"):
            _require(
                _is_int(getattr(self, name)) and getattr(self, name) >= 0,
                name,
                getattr(self, name),
                "a whole number of at least 0",
            )
        _require(
            _is_int(self.seed) and 0 <= self.seed < 2**63,
            "seed",
            self.seed,
            "a whole number from 0 to 2^63 - 1",
        )
        _require(self.dictionary <= 65536, "dictionary", self.dictionary, "at most 65,536 atoms")
        _require(self.feature in FEATURES, "feature", self.feature, _one_of(FEATURES))
        _require(0 < self.threshold <= 1, "threshold", self.threshold, "a cosine in (0, 1]")
        _require(self.order in (1, 2), "order", self.order, "1 or 2")
        _require(self.mean in MEANS, "mean", self.mean, _one_of(MEANS))
        for name in ("constant_patch", "zero_code"):
            _require(getattr(self, name) in POLICIES, name, getattr(self, name), _one_of(POLICIES))
        _require(self.ridge > 0, "ridge", self.ridge, "a positive number")
        _require(
            self.min_contrast >= 0,
            "min_contrast",
            self.min_contrast,
            "zero or a positive number of grey levels",
        )
        _require(
            self.dictionary_method in DICTIONARY_METHODS,
            "dictionary_method",
            self.dictionary_method,
            _one_of(DICTIONARY_METHODS),
        )
        _require(
            -1 < self.dictionary_cosine <= 1,
            "dictionary_cosine",
            self.dictionary_cosine,
            "a cosine in (-1, 1]",
        )
        _require(self.moment in MOMENTS, "moment", self.moment, _one_of(MOMENTS))
        _require(self.dtype in DTYPES, "dtype", self.dtype, _one_of(DTYPES))
        for name, value in (("context", self.context), ("mean_context", self.mean_context)):
            good = (
                value == "whole"
                or (isinstance(value, int) and _is_int(value) and value >= 1)
                or (name == "mean_context" and value is None)
            )
            _require(good, name, value, 'a whole number of pixels of at least 1, or "whole"')
        if self.pixel_range is not None:
            good = len(self.pixel_range) == 2 and self.pixel_range[0] < self.pixel_range[1]
            _require(good, "pixel_range", self.pixel_range, "two numbers, black before white")
        if self.null_tolerance is not None:
            _require(0 < self.null_tolerance < 1, "null_tolerance", self.null_tolerance, "a number in (0, 1)")

    @property
    def resolved_mean_context(self) -> int | str:
        """Range of the contextual mean: its own, else that of the context."""
        return self.context if self.mean_context is None else self.mean_context

    def replace(self, **changes: Any) -> Configuration:
        """Return a copy with some settings changed; unknown names are refused with the list of known ones."""
        return dataclasses.replace(self, **_known(changes))

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain JSON types."""
        plain = dataclasses.asdict(self)
        if self.pixel_range is not None:
            plain["pixel_range"] = list(self.pixel_range)
        return plain

    def to_json(self) -> str:
        """Return the settings as one line of JSON with sorted keys."""
        return json.dumps(self.to_dict(), sort_keys=True)

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> Configuration:
        """Build a configuration from plain settings; unknown names are refused with the list of known ones."""
        return cls(**_known(settings))

    @classmethod
    def from_json(cls, text: str) -> Configuration:
        """Build a configuration from the JSON that `to_json` writes."""
        return cls.from_dict(json.loads(text))

    def digest(self) -> str:
        """Return a short hash that two configurations share only when they are equal."""
        return hashlib.blake2b(self.to_json().encode(), digest_size=8).hexdigest()


FIELDS: Final = tuple(field.name for field in dataclasses.fields(Configuration))

PRESETS: Final[dict[str, dict[str, Any]]] = {
    # ridge, mean, constant_patch and drop chosen on the last 2,000 of 10,000 training images at K = 2,048: 97.6 %, where the
    # contextual mean of the paper gave 97.0 % (benchmarks/quality/mnist_vq.py, choose)
    "mnist-vq": {
        "feature": "vq", "context": 3, "dictionary": 16384, "dictionary_method": "spherical", "dictionary_samples": 2000,
        "mean": "patch", "constant_patch": "activate_best", "n_components": 32, "drop": 1, "ridge": 0.3,
    },
    "cifar10-gq": {
        "feature": "gq", "threshold": 0.3, "context": "whole", "dictionary": 8192, "n_components": 384, "drop": 16, "flip": True,
    },
    "cifar10-gq-gray": {
        "feature": "gq", "threshold": 0.45, "context": "whole", "dictionary": 8192, "n_components": 384, "drop": 0, "flip": True,
        "grey": True,
    },
}  # fmt: skip


def preset(name: str) -> Configuration:
    """Return the configuration of a published experiment by its name."""
    if name not in PRESETS:
        raise ConfigurationError(f"There is no preset {name!r}; choose one of {', '.join(PRESETS)}.")
    return Configuration.from_dict(PRESETS[name])


def parse_setting(text: str) -> tuple[str, Any]:
    """Read one `key=value` of the command line; values are JSON, and bare words are strings.

    >>> parse_setting("context=3"), parse_setting("context=whole"), parse_setting("flip=true")
    (('context', 3), ('context', 'whole'), ('flip', True))
    """
    key, separator, value = text.partition("=")
    if not separator:
        raise ConfigurationError(f"--set takes key=value, not {text!r}.")
    _known({key: None})
    try:
        return key, json.loads(value)
    except json.JSONDecodeError:
        return key, value


def _known(settings: Mapping[str, Any]) -> dict[str, Any]:
    unknown = sorted(set(settings) - set(FIELDS))
    if unknown:
        raise ConfigurationError(
            f"Unknown setting {', '.join(unknown)}; the settings are {', '.join(FIELDS)}."
        )
    return dict(settings)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _one_of(names: tuple[str, ...]) -> str:
    return f"one of {', '.join(names)}"


def _require(good: object, name: str, value: object, expected: str) -> None:
    if not good:
        raise ConfigurationError(f"The setting {name} is {value!r}; it must be {expected}.")
