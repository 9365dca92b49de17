"""What a model is asked to be: every setting that changes a result, and nothing that does not."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, ClassVar, Final, NamedTuple

from smtdist import settings as declarations
from smtdist.errors import ConfigurationError, command, equals, option
from smtdist.settings import FLAG, NULL, PAIR, Settings, number, one_of, seed, setting, shared, whole

FEATURES: Final = ("gq", "vq")
_OTHER_WORDS: Final = {"threshold": "gq", "nearest": "vq"}
BINARY: Final = (*FEATURES, *_OTHER_WORDS)  # codes of bits, by every word for them
CODED: Final = {
    "l1": "smtdist.codes.l1",
    "s3c": "smtdist.codes.s3c",
    "omp": "smtdist.codes.s3c",
    "sc": "smtdist.codes.s3c",
}
"""Learned codes of patches, whose values are no bits, and the module whose `CODES` has each: `smtdist.models.coded`."""
CODES: Final = (
    f"one of {', '.join((*FEATURES, *CODED))}, or the name of an encoder that an installed package brings"
)
_NUMBER: Final = re.compile(r"[+-]?(\d+\.?|\d*\.\d+)(e[+-]?\d+)?", re.IGNORECASE)
POLICIES: Final = ("keep", "leave_out", "activate_best")
VOTES: Final = ("exp", "linear", "hard")
VOTING: Final = ("n_neighbors", "temperature", "vote", "mirrored_votes")
"""Settings that say how `evaluate` judges: nothing that is fitted depends on them."""


_RANGE: Final = whole(1, what="a whole number of pixels") | one_of("whole")
_BLACK_AND_WHITE: Final = PAIR._replace(expected="two numbers, black before white, as in 0,4095")


class Configuration(Settings):
    """All settings of a sparse manifold transform. Two equal configurations on equal data give the same bits."""

    OF: ClassVar[str] = "a transform of images"
    SORTED: ClassVar[bool] = True

    patch_size: int = shared("patch_size", 6)
    code: str = setting(
        one_of(*FEATURES)._replace(expected=CODES),
        'the code of a patch: "vq", also "nearest" (one active atom, the nearest), or "gq", also "threshold" (every atom whose '
        "cosine reaches `threshold`).",
        default="gq",
        values=_OTHER_WORDS,
        stored="feature",
    )
    threshold: float = setting(
        number(above=0, most=1, what="a cosine"),
        'cosine t of the "gq" code. A decimal fraction is taken exactly as it is written.',
        default=0.3,
    )
    context_size: int | str = setting(
        _RANGE,
        'which patches are neighbours: those within this many pixels, or "whole" for all patches of the '
        "image. Learned codes take other contexts, too.",
        default="whole",
        stored="context",
    )
    difference_order: int = shared("difference_order", 1)
    subtract_mean: str = setting(
        one_of("context", "level", "patch", "channel", "global"),
        'what is subtracted from a patch: "context" (the mean patch of the neighbourhood, itself included), '
        '"level" (the mean pixel of those patches, one number), "patch" (its own mean, one number), "channel" '
        '(its own mean of each channel), "global" (the mean patch of the data).',
        default="context",
        advanced=True,
        stored="mean",
    )
    mean_context: int | str | None = setting(
        _RANGE | NULL,
        "neighbourhood of the contextual mean, as in `context_size`; None means the same as `context_size`.",
        default=None,
        advanced=True,
    )
    whitening_reg: float = setting(
        number(above=0),
        "λ of the whitening (λI + Σ)^(-1/2), for pixels in [0, 1].",
        default=1e-3,
        advanced=True,
        stored="ridge",
    )
    whitening_covariance: str = setting(
        one_of("data", "image"),
        'whose Σ that is: "data" (of the patches of all images), "image" (for each image, of its own patches).',
        default="data",
        advanced=True,
    )
    min_contrast: float = setting(
        number(0, what="a number of grey levels"),
        "a patch is constant if, after subtraction of the mean, its root mean square is below this many grey "
        "levels.",
        default=1.0,
        advanced=True,
    )
    constant_patch: str = setting(
        one_of(*POLICIES),
        'what to do with constant patches. "leave_out": ignore them. "keep": count them as patches without an '
        'active atom. "activate_best": give them the atom that a zero patch activates.',
        default="leave_out",
        advanced=True,
    )
    zero_code: str = setting(
        one_of(*POLICIES),
        'what to do with a patch that no atom reaches ("gq"). "keep", as in the paper: it counts, and is a '
        'neighbour, with a = 0. "leave_out": ignore it. "activate_best": its best atom is active.',
        default="keep",
        advanced=True,
    )
    n_atoms: int = setting(whole(1, 65536), "number of atoms K.", default=2048, stored="dictionary")
    dictionary_method: str = setting(
        one_of("random", "diverse", "kmeans", "spherical", "given"),
        'how atoms are chosen: "random" patches, "diverse" patches (random, but not too similar), "kmeans" '
        '(Euclidean), "spherical" k-means, or "given" by you.',
        default="random",
    )
    dictionary_cosine: float = setting(
        number(above=-1, most=1, what="a cosine"),
        'largest cosine between two atoms of a "diverse" dictionary.',
        default=0.9,
        advanced=True,
    )
    dictionary_rounds: int = setting(whole(1), "rounds of the k-means methods.", default=10, advanced=True)
    dictionary_n_init: int = setting(
        whole(1),
        "starts of the k-means methods, each from other random patches. The one with the lowest mean squared "
        "distance in the last tenth of its rounds is kept. Each start takes as many passes as one.",
        default=1,
        advanced=True,
    )
    dictionary_samples: int = setting(
        whole(0),
        'images in each mini-batch round of the k-means methods; 0 means all of them (Lloyd). Of a "diverse" '
        "dictionary, the random patches that it is chosen from; 0 means 16 for each atom.",
        default=0,
        advanced=True,
    )
    dictionary_mirrored: bool = setting(
        FLAG,
        "close the dictionary under mirroring: half of the atoms are drawn, the other half are their mirror "
        "images. With it a fit with `augment_flip` codes no mirror images and solves two problems of half the size, "
        'so it takes about half the time. It needs augment_flip=true, code="gq", a "random" or "diverse" '
        'dictionary of an even number of atoms, and no policy "activate_best".',
        default=False,
        advanced=True,
    )
    augment_flip: bool = shared("augment_flip", False)
    to_grayscale: bool = shared("to_grayscale", False)
    resize: int | None = setting(
        whole(1) | NULL,
        "scale encoded images so that the shorter side has this many pixels; None means no scaling.",
        default=None,
        advanced=True,
    )
    center_crop: int | None = setting(
        whole(1) | NULL,
        "side of the square that is cut from the middle of encoded images, in pixels; None means `resize`, or "
        "the whole image without `resize`.",
        default=None,
        advanced=True,
        stored="crop",
    )
    channels: int | None = setting(
        one_of(1, 3) | NULL,
        "decode encoded images to 1 or 3 channels; None means 3 unless the first images are all grey.",
        default=None,
        advanced=True,
    )
    patch_stride: int = setting(
        whole(1),
        "use only patches whose row and column are multiples of this number, in fit and transform. The others "
        "are ignored, except in contextual means. It must not exceed `context_size`.",
        default=1,
        advanced=True,
        stored="stride",
    )
    positions: int | None = setting(
        whole(1) | NULL,
        "number of patches of an image that a fit uses, drawn at random from those that `patch_stride` leaves. The "
        "draw depends only on the seed and the content of the image; a mirror image has a draw of its own, or "
        "with `dictionary_mirrored` the same patches, mirrored. None, or 0, means all patches. Random dictionaries "
        "and `transform` always use all.",
        default=None,
        values={0: None},
        advanced=True,
    )
    second_moment: str = shared("second_moment", "second", advanced=True)
    n_components: int = shared(
        "n_components",
        384,
        'dimensions of the embedding. A number above `n_atoms` - `drop_components` is lowered to that with "gq" and "vq".',
    )
    drop_components: int = shared("drop_components", 0)
    pool_size: int | None = shared("pool_size", None)
    pool_stride: int | None = shared("pool_stride", None)
    dtype: str = setting(
        one_of("float32", "float16"),
        "number type of representations in files.",
        default="float32",
        advanced=True,
    )
    pixel_range: tuple[float, float] | None = setting(
        _BLACK_AND_WHITE | NULL,
        "(black, white) of the pixels. None means 0 to 255 for uint8, the whole range of the type for other "
        "integers of 8 or 16 bits, and 0 to 1 for floats; wider integers need it. Give the range that the "
        "data use: 12-bit pixels in uint16 need (0, 4095), or almost all of them are dark. Integers with (0, "
        "255) are read as uint8.",
        default=None,
    )
    null_tolerance: float | None = setting(
        number(above=0, below=1) | NULL,
        "eigenvalues of V below this share of the largest count as zero; None means K eps.",
        default=None,
        advanced=True,
    )
    keep_statistics: bool = setting(
        FLAG,
        "keep the K x K sums in the model file, so that models can be merged and solved again.",
        default=True,
        advanced=True,
    )
    n_neighbors: int = setting(
        whole(1),
        "number of training images that vote on a test image in `evaluate`. This setting and the next three "
        "are only defaults for the options of `evaluate`; the fit does not depend on them.",
        default=30,
        advanced=True,
        stored="neighbours",
    )
    temperature: float = setting(
        number(above=0), "T of the vote exp(cosine / T).", default=0.03, advanced=True
    )
    vote: str = setting(
        one_of(*VOTES),
        'weight of a neighbour: "exp" (exp(cosine / T)), "linear" (the cosine) or "hard" (one).',
        default="exp",
        advanced=True,
    )
    mirrored_votes: bool = setting(
        FLAG, "also use mirrored training images as neighbours.", default=False, advanced=True
    )
    random_state: int = seed()

    def __post_init__(self) -> None:
        if self.code in CODED:
            raise ConfigurationError(
                f"{equals('code', self.code)} is a learned code, which has a fit of its own: "
                f"{command('fit', 'set', f'code={self.code}')}, or in Python smtdist.SMT(code={self.code!r})."
            )
        super().__post_init__()

    def check_together(self) -> None:
        """Refuse what a mirrored dictionary does not go with: codes of mirror images would not follow from codes of images."""
        if not self.dictionary_mirrored:
            return
        wanted = {
            "augment_flip": self.augment_flip,
            'code="gq"': not self.one_hot,
            'dictionary_method="random" or "diverse"': self.dictionary_method in ("random", "diverse"),
            "an even n_atoms": self.n_atoms % 2 == 0,
            'constant_patch and zero_code other than "activate_best"': "activate_best"
            not in (self.constant_patch, self.zero_code),
        }
        lacking = [name for name, there in wanted.items() if not there]
        if lacking:
            raise ConfigurationError(
                f"dictionary_mirrored needs {' and '.join(lacking)}; change that, or leave dictionary_mirrored out."
            )

    @property
    def resolved_mean_context(self) -> int | str:
        """Range of the contextual mean: its own, else that of the context."""
        return self.context_size if self.mean_context is None else self.mean_context

    @property
    def one_hot(self) -> bool:
        """Whether a code has one active atom at most."""
        return self.code == "vq"

    @property
    def diagonal_moment(self) -> bool:
        """Whether V is diagonal: each patch has one active atom, and no mean is subtracted."""
        return self.one_hot and self.second_moment == "second"

    def with_atoms(self, n_atoms: int) -> Configuration:
        """Return the settings with this number of atoms, and with no more components than these atoms give.

        Raises ConfigurationError if none is left.

        >>> Configuration(n_components=384, drop_components=2).with_atoms(256).n_components
        254
        """
        if n_atoms <= self.drop_components:
            raise ConfigurationError(
                f"drop_components is {self.drop_components}, and {n_atoms} atoms give no more components; "
                f"lower drop_components or raise n_atoms."
            )
        most = min(self.n_components, n_atoms - self.drop_components)
        return self.replace(dictionary=n_atoms, n_components=most)

    def digest(self) -> str:
        """Return a short hash that two configurations share only when they are equal."""
        return hashlib.blake2b(self.to_json().encode(), digest_size=8).hexdigest()


FIELDS: Final = tuple(Configuration.declared())
LATER: Final[Mapping[str, Any]] = {"whitening_covariance": "data"}
"""Settings that came when there were checkpoints and records already: what does not name them has these values."""

# chosen on digits and on natural images in grey, 1,000 and 2,000 of them to learn from
GREY: Final[Mapping[str, Any]] = {
    "context_size": 3,
    "subtract_mean": "level",
    "whitening_reg": 0.03,
    "n_components": 128,
}
"""Defaults for grey images of `LEAST_GREY` pixels or more a side, where they differ from those of `Configuration`."""
LEAST_GREY: Final = 16


def defaults_for(shape: tuple[int, ...], grey: bool = False) -> Configuration:
    """Return the defaults for images (n, height, width, channels), which are turned to grey first or not.

    `SMT`, `smtdist fit`, `plan` and `tune` use them for what is not given; presets name all they need.

    >>> defaults_for((100, 28, 28, 1)).context_size, defaults_for((100, 28, 28, 3)).context_size
    (3, 'whole')
    """
    height, width, channels = shape[1:]
    return (
        Configuration(**GREY)
        if (grey or channels == 1) and min(height, width) >= LEAST_GREY
        else Configuration()
    )


def described() -> dict[str, dict[str, Any]]:
    """Return every setting with its default, the values it may have, and what it means.

    >>> described()["drop_components"]["values"], described()["drop_components"]["meaning"]
    ('a whole number of at least 0', 'number of leading dimensions that are left out.')
    """
    found = declarations.described(Configuration.declared())
    for name, value in GREY.items():
        found[name]["meaning"] += (
            f" For grey images of at least {LEAST_GREY} x {LEAST_GREY} pixels the default is {value}; presets have their own."
        )
    return found


_OUR_VOTES: Final = {"n_neighbors": 50, "temperature": 0.06, "mirrored_votes": True}
_WINDOWS: Final = {"pool_size": 4, "pool_stride": 2}
_MNIST_VQ: Final = {
    "code": "vq", "context_size": 3, "n_atoms": 16384, "dictionary_method": "spherical", "dictionary_samples": 2000,
    "n_components": 32, **_WINDOWS,
}  # fmt: skip
_CIFAR10_GQ: Final = {
    "code": "gq", "threshold": 0.3, "context_size": "whole", "n_atoms": 8192, "n_components": 384, "augment_flip": True,
    **_WINDOWS,
}  # fmt: skip
_GRAY: Final = {"threshold": 0.45, "to_grayscale": True}
PRESETS: Final[dict[str, dict[str, Any]]] = {
    "mnist-vq": _MNIST_VQ
    | {
        "subtract_mean": "patch",
        "constant_patch": "activate_best",
        "drop_components": 1,
        "whitening_reg": 0.3,
    },
    "cifar10-gq": {
        **_CIFAR10_GQ,
        "subtract_mean": "level",
        "whitening_covariance": "image",
        "drop_components": 32,
        **_OUR_VOTES,
    },
    "cifar10-gq-gray": {
        **_CIFAR10_GQ,
        **_GRAY,
        "whitening_covariance": "image",
        "drop_components": 16,
        **_OUR_VOTES,
    },
    # as SMT 2023 prints them (section 3, appendices C, D and J)
    "paper-mnist-vq": _MNIST_VQ,
    "paper-cifar10-gq": {**_CIFAR10_GQ, "drop_components": 16},
    "paper-cifar10-gq-gray": {**_CIFAR10_GQ, **_GRAY},
}


class JoinedPreset(NamedTuple):
    """A preset of several models of the same images: the settings of another preset, changed, and what each model changes."""

    base: str
    changes: dict[str, Any]
    models: dict[str, dict[str, Any]]

    def __str__(self) -> str:
        each = ", ".join(
            name if not own else f"{name} ({_given(own)})" for name, own in self.models.items()
        )
        return f"the settings of {self.base} with {_given(self.changes)}, for {len(self.models)} models side by side: {each}"


def _given(changes: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in changes.items())


JOINED: Final = {
    "cifar10-gq-joined": JoinedPreset(
        "cifar10-gq",
        {"n_atoms": 2048, "whitening_covariance": "data"},
        {"colour": {}, "grey": {"to_grayscale": True}},
    )
}

PRESET_NOTES: Final[dict[str, str]] = {
    # record 2026-11-27-tune-mnist
    "mnist-vq": "The last four settings are our choices. On 2,000 held-out training images, 8,000 to learn from, K = 2,048, "
    "whitening_reg=0.3 is 0.85 points better than 0.001 (97.75 and 96.9 %); the mean of each patch and the paper's contextual "
    "mean differ by less than chance (97.75 and 97.95 %).",
    # records 2026-11-2*-quality-recipe-train8000-test2000*, 2026-11-25-quality-6-*, 2026-11-27-paired-* and 2026-11-30-tune-tiny
    "cifar10-gq": "The mean, the Σ, the votes and how many components are dropped are our choices. On 2,000 held-out training "
    "images, 8,000 to learn from, K = 8,192, whitening_covariance=image is 2.7 points better than data (0.85 to 4.45). On other "
    "images try both: on Tiny ImageNet at 32 x 32 data is 2.9 points better (18.1 and 15.2 %). With data "
    "and our votes, subtract_mean=level is 1.5 points better than the paper's contextual mean (1.05, "
    "1.85 and 1.7 with three dictionaries), and drop_components=32 is 0.6 points better than the paper's 16 (0.65, 0.3 and "
    "0.85). With 32,000 to learn from and 16 dropped the two means differ little. 50 neighbours at T = 0.06 with flipped images "
    "among them are 2.0 points better than 30 at T = 0.03 without (8,000 to learn from, 10,000 held-out images). With 32,000 to "
    "learn from, 30 at T = 0.03 with flipped images are as good as ours, and n_components=500 is 0.45 points better with them. "
    "pool_size=5, pool_stride=3 has 2.25 times fewer numbers, and an accuracy that differs by less than chance.",
    # records 2026-11-27-tune-grey and 2026-11-30-paired-e93213cc367f-2000-fc74615c6035-2000
    "cifar10-gq-gray": "The votes, the number of components that are dropped, and the whitening are our choices. Each image "
    "is whitened by its own covariance, as in cifar10-gq: with the paper's votes and flipped images that is 1.65 points better "
    "(-0.05 to 3.3; 8,000 images to learn from, 2,000 held-out ones, K = 8,192). With the covariance of all "
    "images, on 2,000 other training images, 8,000 to learn from, all drawn at random, drop_components=16 has 68.65 %, 32 has "
    "68.35 %, and 0 has 65.95 %. The paper's "
    "threshold and contextual mean are the best we tried: subtract_mean=level has 68.3 %, and threshold=0.3 67.55 %. The votes "
    "are those of cifar10-gq.",
    # records 2026-11-25-heads and 2026-11-26-heads-2
    "cifar10-gq-joined": "For smtdist fit. Colour and grey together have 79.6 % (77.0 to 82.0), colour alone 77.6 % (74.9 to "
    "80.1), with the kernel classifier on 10,000 images (smtdist evaluate; 1,000 test images).",
    "paper-mnist-vq": "As SMT 2023 prints it (section 3, appendices C and D), but for dictionary_samples, of which it says "
    "nothing.",
    "paper-cifar10-gq": "As SMT 2023 prints it (section 3, appendices C and J): the contextual mean, 30 neighbours at T = 0.03. "
    "But a neighbour's weight is exp(cosine / T), as the default is. The paper prints the cosine, with which T has no effect "
    "(vote=linear).",
    "paper-cifar10-gq-gray": "As SMT 2023 prints it (section 3, appendices C and J); votes as in paper-cifar10-gq.",
}
"""What a preset takes from the paper, and what it changes by how many points."""


def preset(name: str) -> Configuration:
    """Return the configuration of a published experiment by its name."""
    if name in JOINED:
        base, changes, models = JOINED[name]
        each = " or ".join(f"{_given({**changes, **own})} ({model})" for model, own in models.items())
        raise ConfigurationError(
            f"The preset {name} is of several models ({', '.join(models)}), and one is needed; fit them together by "
            f"`{command('fit', 'preset', name)}`, or one of them from the preset {base} with {each}."
        )
    if name not in PRESETS:
        raise ConfigurationError(
            f"There is no preset {name!r}; choose one of {', '.join((*PRESETS, *JOINED))}."
        )
    return Configuration(**PRESETS[name])


MOST_CHANGES: Final = 4
"""Settings in which a model may differ from a preset that it is called by."""


def nearest_preset(settings: Mapping[str, Any]) -> str:
    """Return the preset that settings are those of, with up to four that are others; nothing where there is none.

    >>> nearest_preset(preset("paper-cifar10-gq").replace(n_atoms=2048).to_dict())
    'paper-cifar10-gq with n_atoms=2048'
    >>> nearest_preset(preset("cifar10-gq").with_atoms(128).to_dict())
    'cifar10-gq with n_atoms=128'
    """
    found, settings = {}, Configuration.named(settings)
    for name in PRESETS:
        usual = Configuration.named(preset(name).to_dict())
        # fewer atoms give fewer components by themselves: see `with_atoms`
        given = usual | settings
        usual["n_components"] = min(usual["n_components"], given["n_atoms"] - given["drop_components"])
        found[name] = {key: value for key, value in settings.items() if usual.get(key) != value}
    name = min(found, key=lambda one: len(found[one]))
    changes = found[name]
    if len(changes) > MOST_CHANGES:
        return ""
    return f"{name} with {_given(changes)}" if changes else name


def presets(name: str) -> dict[str, Configuration]:
    """Return the configurations of a preset: each of its models by name; of a preset of one model that, by no name.

    >>> {name: one.to_grayscale for name, one in presets("cifar10-gq-joined").items()}
    {'colour': False, 'grey': True}
    """
    if name not in JOINED:
        return {"": preset(name)}
    base, changes, models = JOINED[name]
    return {model: preset(base).replace(**changes, **own) for model, own in models.items()}


def preset_facts() -> dict[str, Any]:
    """Return the presets, those of several models side by side, and what is said of each, as plain JSON types."""
    several = {name: one._asdict() for name, one in JOINED.items()}
    return {"presets": PRESETS, "joined_presets": several, "preset_notes": PRESET_NOTES}


def preset_lines() -> dict[str, str]:
    """Return the settings of every preset, as a line of text."""
    return {name: _given(changes) for name, changes in PRESETS.items()} | {
        name: str(one) for name, one in JOINED.items()
    }


_WORDS: Final = {"none": None, "true": True, "false": False}


def parse_value(text: str) -> Any:
    """Read a value of the command line: JSON, a value as Python writes it, several numbers with commas, or else a string.

    >>> parse_value("3"), parse_value(".25"), parse_value("1."), parse_value("none"), parse_value("whole")
    (3, 0.25, 1.0, None, 'whole')
    >>> parse_value("False"), parse_value("true")
    (False, True)
    >>> parse_value("(0, 255)"), parse_value("0,4095"), parse_value("-1., 1")
    ([0, 255], [0, 4095], [-1.0, 1])
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        if text.lower() in _WORDS:
            return _WORDS[text.lower()]
        if _NUMBER.fullmatch(text):
            return float(text)
    inner = text[1:-1] if (text[:1], text[-1:]) in (("(", ")"), ("[", "]")) else text
    several = [parse_value(part.strip()) for part in inner.split(",")] if "," in inner else []
    return several if several and all(isinstance(one, int | float) for one in several) else text


def parse_settings(assignments: list[str]) -> dict[str, Any]:
    """Read name=value texts of the command line, whatever the names, as `parse_value` does.

    >>> parse_settings(["noise=0.2", "kernel=relu", "features=null"])
    {'noise': 0.2, 'kernel': 'relu', 'features': None}
    """
    changes = {}
    for text in assignments:
        name, sign, value = text.partition("=")
        if not sign:
            raise ConfigurationError(f"{option('a parameter')} takes key=value, not {text!r}.")
        changes[name] = parse_value(value)
    return changes
