"""The sparse manifold transform as a scikit-learn estimator."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Self, TypeVar, cast, overload

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted

from smtdist import configuration
from smtdist.configuration import Configuration
from smtdist.data.array import as_source
from smtdist.data.source import Source
from smtdist.engine import folder
from smtdist.errors import ConfigurationError, DataError, ModelError, command, equals, option
from smtdist.kernels import convergence
from smtdist.models import coded, image_jobs, loading, plugins, readout, rehearsal
from smtdist.models.estimating import Evaluates, TransformEstimator, require_columns, require_label_each
from smtdist.models.forecast import FitPlan, Place, in_bytes
from smtdist.models.jobs import Job
from smtdist.models.merge import refit, update
from smtdist.models.model import Model
from smtdist.models.transform import represented
from smtdist.settings import ANYTHING, setting

Method = TypeVar("Method", bound=Callable[..., Any])


def _shared(code: str) -> set[str]:
    """Return the settings of a learned code and its embedding that are parameters of `SMT`: a threshold is another one."""
    return (coded.declared(code).keys() & set(configuration.FIELDS)) - {"threshold"}


class ImageError(DataError, ValueError):
    """Images that the estimator cannot take: a DataError, and a ValueError, which scikit-learn's tools expect."""


class MismatchError(ModelError, ValueError):
    """Images or components that the fitted estimator does not have: a ModelError, and a ValueError likewise."""


def _with_value_errors(method: Method) -> Method:
    """Let a method that takes images fail as scikit-learn's do, with the same sentences."""

    @wraps(method)
    def checked(self: Any, X: Any, *arguments: Any, **options: Any) -> Any:
        if issparse(X):
            raise ImageError(
                "Images are dense arrays, but a sparse matrix was given; call its toarray() first."
            )
        try:
            return method(self, X, *arguments, **options)
        except DataError as error:
            raise ImageError(error.sentence) from error
        except ModelError as error:
            raise MismatchError(error.sentence) from error

    return cast(Method, checked)


class SMT(
    Evaluates,
    TransformerMixin,  # type: ignore[misc]
    TransformEstimator,
    of=Configuration,
    defaults=dict.fromkeys(configuration.GREY),
    run=("cluster", "n_workers", "checkpoint", "on_bad_chunk", "solve_on", "on_event"),
):
    """Sparse manifold transform of images (SMT 2023, section 2): β = P f(x), pooled over the image.

    If `context_size`, `subtract_mean`, `whitening_reg` or `n_components` is None, its value depends on the images: for grey
    images of at least 16 x 16 pixels they are 3, "level", 0.03 and 128, else the defaults of `Configuration`.

    Images have the shape (samples, height, width[, channels]). They can be any of these; the same pixels give the same bits:

    - a NumPy array, or anything that NumPy converts to one. Up to four channels may come before rows and
      columns; where more than one reading of a shape fits, it asks. A masked array with masked pixels is refused;
    - an xarray DataArray with any kind of array inside. The names of its dimensions say which is which
      (sample, y, x, channel or similar names, in any order);
    - a Dask array. Workers compute its parts, a few at a time; it is never collected in one place;
    - an `h5py.Dataset` or a `zarr.Array`, which workers read from its file or folder;
    - a list of arrays of one shape, or of PIL images, which can have several sizes with `resize` and `center_crop`;
    - rows of pixels (a 2-D array or a pandas table) with `image_shape`, or a pandas column of arrays;
    - the path of a folder of images, with the folders below it, or a list of paths of images;
    - a pair (path, name), which is streamed: a dataset or a group of encoded images in an HDF5 file, or an
      array in a Zarr store. The path can be an address (`https://`, `s3://`).

    Pixels are uint8, bool (read as 0 and 255), other integers, or floats; see `pixel_range`.

    `code` may also be a learned code ("l1", "s3c", "omp" or "sc") or the encoder of another package. Then
    the code is learned first, and its embedding after it. Leave parameters that such a code does not have as
    they are.

    Fitted attributes: `model_`, `components_` (n_components, K), `eigenvalues_`, `passes_` (time and memory
    of each pass), `n_features_out_`, and where the dictionary is learned (k-means or a learned code) `n_iter_`,
    rounds of learning, `gap_`, the relative change of the objective over the last tenth of them, and
    `converged_`, whether that is no more than a hundredth, or no atom moved, or the last half shows no trend.
    There is no `n_features_in_`, because images have a shape (`model_.geometry`). `feature_names_in_` has the columns of a
    table; other columns, or another order, are refused after the fit.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> images = rng.integers(0, 256, (40, 8, 8), dtype=np.uint8)
    >>> smt = SMT(patch_size=3, code="vq", n_atoms=16, n_components=4, pool_size=2)
    >>> smt.fit_transform(images).shape
    (40, 36)
    >>> learned = SMT(code="l1", patch_size=3, n_atoms=12, n_components=4, settings={"max_iter": 20})
    >>> learned.fit_transform(images).shape
    (40, 64)
    """

    settings: Any = setting(
        ANYTHING,
        'settings of a learned code that are no parameters, such as {"penalty": 0.5, "max_iter": 20}; '
        f"`{command('settings', 'code', 'l1')}` lists them.",
        default=None,
    )
    atoms: Any = setting(
        ANYTHING, "atoms of your own, (K, patch, patch[, channels]), used as they are.", default=None
    )
    image_shape: Any = setting(
        ANYTHING,
        "the shape (height, width[, channels]) of images that come as rows of pixels; of other arrays it tells which axis is "
        "which where their shape leaves that open.",
        default=None,
    )

    @classmethod
    def from_preset(cls, name: str, **changes: Any) -> Self:
        """Return an estimator with the settings of a published experiment."""
        settings = configuration.preset(name)
        followed = {key: getattr(settings, key) for key in configuration.GREY}
        return cls(**{**followed, **configuration.PRESETS[name], **changes})

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], **where: Any) -> Self:
        """Return a fitted estimator from a model file."""
        model = loading.load_transform(path)
        if not model.learned:
            return cls(**{**cls.parameters_of(model.settings), **where})._fitted(model, [])
        others = coded.named_settings(model)
        given = {name: others.pop(name) for name in ("code", *_shared(others["code"]))}
        return cls(**{**given, "settings": others, **where})._fitted(model, [])

    @property
    def configuration(self) -> Configuration:
        """The settings, checked. Those that depend on the images have their values for colour images."""
        return self._settings(Configuration())

    def settings_for(self, source: Source, base: Model | None = None) -> Configuration:
        """Return the settings of a fit of these images, also those that depend on them; with `base`, those of `base`."""
        defaults = (
            configuration.defaults_for(source.shape, self.to_grayscale) if base is None else base.settings
        )
        return self._settings(defaults)

    @property
    def is_learned(self) -> bool:
        """Whether the code is learned, so that `given_settings` are the settings, and there is no `configuration`."""
        return plugins.is_learned(self.code)

    def given_settings(self) -> dict[str, Any]:
        """Return the settings of a learned code and its embedding, by the names that the settings of a fit have.

        Raises ConfigurationError for parameters that a learned code does not have and that are not as they are by default.
        """
        usual, names = Configuration.defaults(), _shared(self.code)
        given = {
            name: value for name, value in self.given().items() if name != "code" and value is not None
        }
        idle = [name for name, value in given.items() if name not in names and value != usual[name]]
        if idle:
            raise ConfigurationError(
                f"{', '.join(idle)} is no setting of SMT with {equals('code', self.code)}; leave it out, or give a setting of "
                f"the code in `settings` ({command('settings', 'code', self.code)} lists them)."
            )
        shared = {name: value for name, value in given.items() if name in names}
        return {"code": self.code, **shared, **(self.settings or {})}

    def _settings(self, defaults: Configuration) -> Configuration:
        """Return the settings, with these where none are given."""
        if self.settings is not None:
            raise ConfigurationError(
                f"`settings` is for learned codes only, and the settings of {equals('code', self.code)} are parameters; leave "
                f"`settings` out."
            )
        follow = {name: getattr(defaults, name) for name in configuration.GREY}
        return Configuration(**follow | self.given())

    @overload
    def fit(
        self, X: Any, y: Any = None, *, base: Model | None = None, block: Literal[True] = True
    ) -> Self: ...

    @overload
    def fit(self, X: Any, y: Any = None, *, base: Model | None = None, block: Literal[False]) -> Any: ...

    @_with_value_errors
    def fit(self, X: Any, y: Any = None, *, base: Model | None = None, block: bool = True) -> Any:
        """Fit on images; `base` reuses the whitening and dictionary of a fitted model.

        With `block=False` it returns a handle at once, as `smtdist.start` does. The `result()` of the
        handle is this estimator, fitted.
        """
        if not block:
            # named, not imported: handles are a layer above
            return import_module("smtdist").start(self, X, y, base=base)
        require_columns(self, X, reset=True)
        job = self._job(X, base)
        require_label_each(y, job.source.n_samples)
        with self._engine(self.checkpoint) as engine:
            model, records = job.fit(engine)
        for sentence in job.advice(model):
            convergence.warn(sentence)
        return self._fitted(model, records)

    def _job(self, X: Any, base: Any) -> Job:
        """Return the fit of images, ready to be run or planned."""
        if not self.is_learned:
            source = as_source(X, self.configuration, image_shape=self.image_shape)
            return image_jobs.binary_job(source, {"": self.settings_for(source, base)}, self.atoms, base)
        if base is not None:
            raise ConfigurationError(
                f"With {equals('code', self.code)} whitening and dictionary are learned, too; leave out {option('base')}."
            )
        if self.atoms is not None:
            raise ConfigurationError(
                f"With {equals('code', self.code)} atoms are learned; leave out {option('atoms')}, or choose another code."
            )
        settings = coded.coded_settings(**self.given_settings())
        return image_jobs.coded_job(as_source(X, image_shape=self.image_shape), settings)

    @_with_value_errors
    def plan(
        self,
        X: Any,
        *,
        base: Model | None = None,
        memory: int | str | None = None,
        driver_memory: int | str | None = None,
        gpu_memory: int | str | None = None,
        threads: int | None = None,
        calibrate: bool = True,
    ) -> FitPlan:
        """Return what `fit` would cost: passes, memory, traffic and time. Nothing is fitted.

        memory, driver_memory, gpu_memory, threads : memory of each worker, of this process and of each
            worker's GPU, in bytes or as text such as "16GB", and cores of each worker, if the fit will run
            elsewhere. Default: this machine.
        calibrate : measure the speed on a few samples, for ten seconds at most. Without it the plan has no times.

        Raises MemoryBudgetError if there is too little memory; it says what would fit.
        """
        checkpoint = None if self.checkpoint is None else Path(self.checkpoint)
        place = Place(
            self.n_workers,
            threads,
            in_bytes(memory, driver_memory, gpu_memory),
            checkpoint,
            calibrate,
            connected=None if self.cluster in (None, "local") else lambda: self._engine(checkpoint),
        )
        return rehearsal.plans(self._job(X, base), place)[""]

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Add images to the fitted model with its whitening and dictionary; the first call is `fit`.

        The result is bit-identical to one fit of all images with that whitening and dictionary.
        """
        model = getattr(self, "model_", None)
        if model is None or self.is_learned or model.learned:
            return super().partial_fit(X, y)
        given = self._settings(model.settings)
        given = given.with_atoms(given.n_atoms if self.atoms is None else len(self.atoms))
        for name in configuration.FIELDS:
            value, present = getattr(given, name), getattr(model.settings, name)
            if name not in configuration.VOTING and value != present:  # what is added would not follow it
                raise ConfigurationError(
                    f"{name} is {value!r}, and the model was fitted with {present!r}; call fit again, or refit for a setting of "
                    f"the solve."
                )
        return super().partial_fit(X)

    def refit(self) -> Self:
        """Solve again from the sums alone, with the present n_components, drop_components, second_moment and pooling."""
        check_is_fitted(self)
        if self.is_learned:
            given = self.given_settings()
        else:
            present = self.model_.settings
            given = vars(self._settings(present).with_atoms(present.n_atoms))
        changes = {name: given[name] for name in self.model_.free if name in given}
        return self._fitted(refit(self.model_, **changes), self.passes_)

    @_with_value_errors
    def _updated(self, X: Any, *, withdraw: bool) -> Self:
        model = self.model_
        require_columns(self, X, reset=False)
        source = as_source(X, model.scaling, fitted=True, image_shape=self.image_shape)
        with self._engine(folder.of_change(self.checkpoint, model.fingerprint)) as engine:
            model, records = update(model, source, engine, withdraw=withdraw)
        return self._fitted(model, records)

    @_with_value_errors
    def transform(
        self,
        X: Any,
        *,
        n_components: int | None = None,
        drop_components: int | None = None,
        features: str | None = None,
        pool: int | None = None,
        mirrored: bool = False,
        half: bool = False,
    ) -> NDArray[np.floating[Any]]:
        """Return representations (samples, features) in memory; `smtdist transform` writes them out of core.

        n_components, drop_components : use other components than the fit, among those stored; this costs nothing.
            features : "embedding" (default), "codes" (square roots of how often each atom is active in each
            quarter of an image) or "both", one after the other.
        pool : pool the embedding over pool x pool windows. mirrored : append the features of the mirror
            image. half : return float16.
        """
        check_is_fitted(self)
        require_columns(self, X, reset=False)
        model = readout.with_readout(
            self.model_,
            features,
            pool,
            n_components=n_components,
            drop=drop_components,
            mirrored=mirrored,
            half=half,
        )
        source = as_source(X, self.model_.scaling, fitted=True, image_shape=self.image_shape)
        with self._engine() as engine, engine.run(("transform",)):
            result = represented(model, source, engine)
        return result.reshape(len(result), -1)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Return names smt_row_column_component."""
        check_is_fitted(self)
        rows, columns, count = self.model_.representation_shape()
        names = [f"smt_{r}_{c}_{k}" for r in range(rows) for c in range(columns) for k in range(count)]
        return np.array(names, dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.three_d_array = False, True
        tags.transformer_tags.preserves_dtype = [self.dtype]
        return tags

    def _fitted(self, model: Any, records: list[dict[str, Any]]) -> Self:
        self.model_ = model
        self.passes_ = records
        self.components_ = model.components().T
        assert model.embedding is not None
        self.eigenvalues_ = model.embedding.eigenvalues
        self.n_features_out_ = int(np.prod(model.representation_shape()))
        convergence.keep(self, model.ending)
        return self
