"""What an encoder of another package derives from: whitened patches in, codes out; everything else is there already.

A package names its class as an entry point of the group `smtdist.encoders`; the code NAME of a fit
is it. The page "Extending" of the documentation has an example; `smtdist.testing` checks
that an encoder keeps its promises.
"""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from smtdist.codes.coder import Coder, Float32, Float64, PatchSettings, Record
from smtdist.errors import ConfigurationError, ModelError, called
from smtdist.settings import seed, shared

FILE_KIND: Final = "encoder-"
"""Before the name of an encoder, the kind of its files."""
RESERVED: Final = frozenset(
    {"atoms", "mean", "whiten", "unwhiten", "components", "eigenvalues", "attributes"}
)
"""Names that arrays of an encoder cannot have: files and exports have others under them."""


class EncoderSettings(PatchSettings):
    """Settings of every encoder; a subclass declares its own beside them, with `smtdist.settings.setting`."""

    OF: ClassVar[str] = "an encoder"

    n_atoms: int = shared("n_atoms", 256)
    patch_size: int = shared("patch_size", 6)
    contrast_bias: float = shared("contrast_bias", 10.0 / 255**2)
    whitening_reg: float = shared("whitening_reg", 0.1)
    patches: int = shared("patches", 0)
    images: int = shared("images", 0)
    whiten_images: int = shared("whiten_images", 0)
    start: str = shared("start", "patches")
    pooling_grid: tuple[int, ...] = shared("pooling_grid", (2,))
    pixel_range: tuple[float, float] | None = shared("pixel_range", None)
    augment_flip: bool = shared("augment_flip", False)
    to_grayscale: bool = shared("to_grayscale", False)
    random_state: int = seed()


@dataclass(frozen=True, eq=False)
class PatchEncoder(Coder):
    """A fitted encoder of patches.

    A subclass gives `code`, and `learn` where atoms are more than whitened patches. `NAME` is that of its
    entry point, `Settings` the class of its settings, `ARRAYS` the dimensions of what it learns beside its
    atoms, by name, out of "atom" (K) and "pixel" (numbers of a patch) and others of its own; they lie in
    `arrays`, float64.

    Attributes
    ----------
    atoms : (K, p) unit rows in whitened space.
    """

    NAME: ClassVar[str]
    STORED_AS: ClassVar[str] = "encoder"
    Settings: ClassVar[type[EncoderSettings]] = EncoderSettings
    ARRAYS: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    atoms: Float64
    arrays: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)
    trace: ClassVar[tuple[float, ...]] = ()

    def __post_init__(self) -> None:
        if set(self.arrays) != set(self.ARRAYS):
            raise ConfigurationError(
                f"The encoder {self.NAME} has learned {', '.join(sorted(self.arrays)) or 'no arrays'}, but its ARRAYS name "
                f"{', '.join(sorted(self.ARRAYS)) or 'none'}; they must be the same."
            )
        # as files hold them, so that a model that was read has the bits of the one that was written
        object.__setattr__(self, "atoms", np.asarray(self.atoms, np.float64))
        arrays = {name: np.asarray(values, np.float64) for name, values in self.arrays.items()}
        object.__setattr__(self, "arrays", arrays)
        sizes = dict(zip(("atom", "pixel"), self.atoms.shape, strict=True))
        for name, values in arrays.items():
            named = [one.removesuffix("_") for one in self.ARRAYS[name]]
            if len(named) != values.ndim or any(
                sizes.setdefault(one, length) != length
                for one, length in zip(named, values.shape, strict=True)
            ):
                raise ConfigurationError(
                    f"The encoder {self.NAME} has learned {name} of the shape {values.shape}, but its ARRAYS say "
                    f"{self.ARRAYS[name]}, with {', '.join(f'{length} {one}s' for one, length in sizes.items())}."
                )

    def __call__(self, rows: Float32) -> Any:
        """Return the codes of whitened patches (n, p), (n, K); ConfigurationError where `code` fails or makes no real numbers."""
        found = called(f"{type(self).__name__}.code", self.code, rows)
        kind = getattr(found, "dtype", np.dtype(object))
        if kind.kind not in "fiub":
            raise ConfigurationError(
                f"{type(self).__name__} makes codes of the type {kind}, not of real numbers; fix the encoder."
            )
        return found

    @abstractmethod
    def code(self, rows: Float32) -> Any:
        """Return the codes of whitened patches (n, p), (n, K): the same bits beside whichever others."""

    @classmethod
    def learn(cls, start: Any, settings: Any, engine: Any) -> tuple[dict[str, Any], list[Record]]:
        """Return atoms (K, p) and arrays, and the records of the passes it took: by default the drawn patches.

        start : a `smtdist.models.coders.fit.Start`, with unit atoms and their spares, how patches are
            made, and the images of a round. Passes over the data go through `engine.reduce` and
            `engine.loop` (`smtdist.engine.passes.Engine`).
        """
        return {"atoms": start.atoms[: settings.n_atoms]}, []

    @classmethod
    def kind(cls) -> str:
        """Return the attribute `kind` of its files."""
        return f"{FILE_KIND}{cls.NAME}"

    @classmethod
    def groups(cls) -> Mapping[str, Mapping[str, tuple[str, ...]]]:
        """Return the dimensions of its arrays, which lie in the group `encoder`."""
        return {"encoder": cls.ARRAYS} if cls.ARRAYS else {}

    def written(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return its arrays, and a title."""
        return dict(self.arrays), {"title": f"Encoder: {self.NAME}"}

    @classmethod
    def read(cls, found: Mapping[str, Any], about: Mapping[str, Any]) -> dict[str, Any]:
        """Return settings, atoms and arrays."""
        settings = cls.Settings.from_json(str(about["configuration"]))
        arrays = {name: found[name] for name in cls.ARRAYS}
        return {"settings": settings, "atoms": found["atoms"], "arrays": arrays}

    @classmethod
    def facts(cls, settings: Any) -> dict[str, Any]:
        """Return what a checkpoint of its fit depends on, its name and its source code among it."""
        try:
            source = inspect.getsource(cls)
        except (OSError, TypeError):  # typed in a session
            source = ""
        code = blake2b(source.encode(), digest_size=8).hexdigest()
        return {"encoder": cls.NAME, "source of the encoder": code, **super().facts(settings)}

    def probe(self) -> Float64:
        """Return codes of a few patches, made of the atoms and at random, by which a change of `code` shows."""
        few = self.atoms[:16]
        drawn = np.random.default_rng(0).standard_normal((16, self.atoms.shape[1]))
        found = self(np.concatenate([few, drawn]).astype(np.float32))
        dense = found.toarray() if hasattr(found, "toarray") else found
        return np.asarray(dense, np.float64)[:, :64]

    def require_probe(self, stored: Any, path: str) -> None:
        """Raise ModelError where `code` makes other codes than those that a file was written with."""
        found = self.probe().ravel()
        if np.shape(stored) != found.shape or not np.allclose(
            found, stored, rtol=1e-3, atol=1e-4 * abs(found).max()
        ):
            raise ModelError(
                f"{path} was fitted with other codes than the encoder {self.NAME} of {type(self).__module__} makes now; "
                f"install the version of its package that the model was fitted with, or fit again."
            )

    @property
    def feature(self) -> str:
        """Its name."""
        return self.NAME

    @property
    def held_bytes(self) -> int:
        """Bytes of what it has learnt, twice."""
        return int(2 * self.atoms.nbytes + 2 * sum(one.nbytes for one in self.arrays.values()))

    def learnt(self) -> tuple[Float64, ...]:
        """Return all that it has learnt."""
        return (self.atoms, *(self.arrays[name] for name in sorted(self.arrays)))

    def few(self) -> Self:
        """Return the same with eight atoms: arrays are cut along "atom"."""
        settings: Any = self.settings
        cut = {
            name: values[tuple(slice(8 if one.startswith("atom") else None) for one in self.ARRAYS[name])]
            for name, values in self.arrays.items()
        }
        few = settings.replace(n_atoms=min(8, settings.n_atoms))
        return replace(self, settings=few, atoms=self.atoms[:8], arrays=cut)

    def summary(self) -> dict[str, Any]:
        """Return what is asked of it first, as plain JSON."""
        units, inputs = self.atoms.shape
        return {"encoder": self.NAME, "units": units, "inputs": inputs}


def require_encoder(cls: Any, name: str, taken: Iterable[str]) -> None:
    """Raise ConfigurationError for what cannot be the encoder of a name, in one sentence that says what to mend.

    taken : names of settings that its own cannot have.
    """
    if not (isinstance(cls, type) and issubclass(cls, PatchEncoder)):
        raise ConfigurationError(
            f"The encoder {name} is {cls!r}, no subclass of smtdist.codes.encoder.PatchEncoder; fix or uninstall its package."
        )
    wrong = None
    settings = getattr(cls, "Settings", None)
    if inspect.isabstract(cls):
        wrong = f"does not define {', '.join(sorted(cls.__abstractmethods__))}"
    elif getattr(cls, "NAME", None) != name:
        wrong = f"has the NAME {getattr(cls, 'NAME', None)!r}; give both one name"
    elif not (isinstance(settings, type) and issubclass(settings, EncoderSettings)):
        wrong = "has Settings that are no subclass of smtdist.codes.encoder.EncoderSettings"
    elif plain := settings.undeclared():
        wrong = f"has settings that are not declared with smtdist.settings.setting: {', '.join(plain)}"
    elif clash := settings.declared().keys() & set(taken):
        wrong = f"has settings that the transform has too: {', '.join(sorted(clash))}"
    elif reserved := set(cls.ARRAYS) & RESERVED:
        wrong = f"has arrays with names that files need: {', '.join(sorted(reserved))}"
    elif not all(
        isinstance(dims, tuple) and all(isinstance(one, str) for one in dims)
        for dims in cls.ARRAYS.values()
    ):
        wrong = 'has ARRAYS that are not tuples of names, such as {"gain": ("atom",)}'
    elif not inspect.ismethod(cls.learn) or len(inspect.signature(cls.learn).parameters) != 3:
        wrong = "has a learn that is no class method learn(cls, start, settings, engine)"
    if wrong:
        raise ConfigurationError(f"The encoder {name} of {cls.__module__} {wrong}; fix its package.")
