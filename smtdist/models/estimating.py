"""What estimators share: parameters that follow from declared settings, an engine, files, data that come and go.

    class WordSMT(TransformEstimator, of=WordSettings):
        input: str = setting(one_of("filename", "content"), "what X holds.", default="filename")

has the settings of words as its parameters, then its own, then those of `Running` that `run` names. The constructor,
`get_params`, `clone`, the docstring and `configuration` follow.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import Field
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Final, Self

from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from smtdist.engine import folder
from smtdist.engine.events import EventStream
from smtdist.engine.passes import Engine
from smtdist.engine.session import Execution
from smtdist.errors import ConfigurationError, counted
from smtdist.models import adding, store
from smtdist.settings import (
    ANYTHING,
    NULL,
    Settings,
    default_of,
    documented,
    named,
    one_of,
    require,
    setting,
    whole,
)


class Running(Settings):
    """Where and how the work of an estimator is done. Results do not depend on it."""

    OF: ClassVar[str] = "an estimator"

    cluster: Any = setting(
        ANYTHING,
        'None or "local" for this machine, the address of a scheduler, a `distributed.Client`, or a cluster of Dask\'s.',
        default=None,
    )
    n_workers: int | None = setting(
        whole(0) | NULL,
        "processes of a local cluster; 0 is this process.",
        default=None,
        aliases=("workers",),
    )
    folder: Any = setting(ANYTHING, "where scores larger than 256 MiB lie.", default=None)
    checkpoint: Any = setting(
        ANYTHING, "a folder, seen by all workers, from which a stopped fit continues.", default=None
    )
    on_bad_chunk: str = setting(
        one_of("raise", "skip"),
        'what to do with samples that cannot be read or decoded: "raise" an error, or "skip" them (they are left out of '
        "every sum and are NaN in a representation).",
        default="raise",
    )
    solve_on: str = setting(
        one_of("driver", "workers"),
        'with "workers", workers hold the matrices of a large eigenproblem.',
        default="driver",
    )
    on_event: Any = setting(ANYTHING, "called with each progress event.", default=None)


USUAL: Final = ("cluster", "n_workers", "checkpoint", "on_event")


class Estimator(BaseEstimator):  # type: ignore[misc]
    """An estimator whose parameters are settings, kept as they are given and checked where they are used."""

    SETTINGS: ClassVar[type[Settings]]
    PARAMETERS: ClassVar[Mapping[str, Field[Any]]] = {}
    DEFAULTS: ClassVar[dict[str, Any]] = {}
    OWN: ClassVar[Mapping[str, Field[Any]]] = {}
    model_: Any
    passes_: list[dict[str, Any]]

    def __init_subclass__(
        cls,
        *,
        of: type[Settings] | None = None,
        names: Sequence[str] = (),
        defaults: Mapping[str, Any] | None = None,
        run: Sequence[str] = USUAL,
        by_place: int = 0,
        **keywords: Any,
    ) -> None:
        """Make the parameters of an estimator.

        of, names : the settings that are parameters, by default all of the class. defaults : those that differ. run : the
        settings of `Running` that are parameters, too. by_place : how many parameters may be given without a name.
        """
        super().__init_subclass__(**keywords)
        own = {name: field for name, field in vars(cls).items() if isinstance(field, Field)}
        for name in own:
            delattr(cls, name)
        cls.OWN = {**cls.OWN, **own}
        if of is None:
            return
        settings, running = of.declared(), Running.declared()
        cls.SETTINGS = of
        cls.PARAMETERS = {
            **{name: settings[name] for name in names or settings},
            **cls.OWN,
            **{name: running[name] for name in run},
        }
        # a table could be changed in place, by all that share it
        usual = {name: default_of(field) for name, field in cls.PARAMETERS.items()}
        usual = {name: None if isinstance(value, dict) else value for name, value in usual.items()}
        cls.DEFAULTS = usual | dict(defaults or {})
        cls.__doc__ = documented(cls.__doc__, "Parameters", cls.PARAMETERS)
        kinds = inspect.Parameter
        parameters = [
            kinds(
                name, kinds.POSITIONAL_OR_KEYWORD if at < by_place else kinds.KEYWORD_ONLY, default=default
            )
            for at, (name, default) in enumerate(cls.DEFAULTS.items())
        ]

        def __init__(self: Estimator, *places: Any, **given: Any) -> None:
            if len(places) > by_place:
                raise TypeError(
                    f"{cls.__name__} takes {by_place or 'no'} parameters by place, {len(places)} were given; name them."
                )
            by_name = named(
                {**dict(zip(cls.PARAMETERS, places, strict=False)), **given}, cls.PARAMETERS, cls.__name__
            )
            # as they are: scikit-learn's clone compares them by identity
            for name, value in (cls.DEFAULTS | by_name).items():
                setattr(self, name, value)

        first = kinds("self", kinds.POSITIONAL_OR_KEYWORD)
        __init__.__signature__ = inspect.Signature([first, *parameters])  # type: ignore[attr-defined]
        cls.__init__ = __init__  # type: ignore[method-assign,assignment]

    def set_params(self, **params: Any) -> Self:
        """Change parameters, by their names or other names for them."""
        nested = {name: value for name, value in params.items() if "__" in name}
        plain = {name: value for name, value in params.items() if name not in nested}
        super().set_params(**nested, **named(plain, self.PARAMETERS, type(self).__name__))
        return self

    @classmethod
    def parameters_of(cls, settings: Settings) -> dict[str, Any]:
        """Return the parameters that settings are."""
        return {name: getattr(settings, name) for name in settings.declared() if name in cls.PARAMETERS}

    def given(self) -> dict[str, Any]:
        """Return the settings among the parameters by name, without those that are None to mean the setting's own default."""
        found = {name: getattr(self, name) for name in self.SETTINGS.declared() if name in self.PARAMETERS}
        usual = self.SETTINGS.defaults()
        follow = {name for name in found if self.DEFAULTS[name] is None and usual[name] is not None}
        return {name: value for name, value in found.items() if value is not None or name not in follow}

    @property
    def configuration(self) -> Any:
        """The settings, checked."""
        return self.SETTINGS(**self.given())

    def checked(self, name: str) -> Any:
        """Return the value of a parameter that is no setting of the model; ConfigurationError where its rule refuses it."""
        value = getattr(self, name)
        require(name, value, self.PARAMETERS[name])
        return value

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> int:
        """Write what was fitted to a file and return its size in bytes; an existing file is refused unless `overwrite`."""
        check_is_fitted(self)
        return store.save(self, path, overwrite=overwrite)

    @contextmanager
    def _engine(self, checkpoint: str | os.PathLike[str] | None = None) -> Iterator[Engine]:
        """Connect to where the work is done."""
        report = getattr(self, "on_event", None)
        how = {name: getattr(self, name) for name in ("on_bad_chunk", "solve_on") if hasattr(self, name)}
        place = None if checkpoint is None else Path(checkpoint)
        events = EventStream(*([report] if report else []))
        execution = Execution(self.cluster, self.n_workers, checkpoint=place, **how)
        with execution.engine(events, model=type(self).__name__) as engine:
            yield engine


def require_columns(estimator: Any, X: Any, *, reset: bool) -> None:
    """Keep the names of the columns of a table with `reset`, in a fit; else raise a ValueError for other names or another order.

    They are `feature_names_in_`, as in scikit-learn. Samples without names of columns pass.
    """
    validate_data(estimator, X, reset=reset, skip_check_array=True, ensure_2d=False)


def require_label_each(y: Any, n_samples: int) -> None:
    """Refuse labels of another number than samples before a fit begins, though it ignores them: what follows it needs them."""
    count, *_ = (len(y),) if isinstance(y, Sequence) else getattr(y, "shape", None) or (None,)
    if isinstance(count, int) and count != n_samples:  # Dask may not know it
        raise ConfigurationError(
            f"There are {counted(n_samples, 'sample')}, and y has {counted(count, 'label')}; give one label for each sample, or "
            f"none."
        )


class TransformEstimator(ClassNamePrefixFeaturesOutMixin, Estimator):  # type: ignore[misc]
    """An estimator whose fitted model is a transform with sums, which data are added to and withdrawn from."""

    MODEL: ClassVar[type[Any]]

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], **where: Any) -> Self:
        """Return a fitted estimator from a model's file."""
        model = store.load(path)
        if not isinstance(model, cls.MODEL):
            raise ConfigurationError(
                f"{os.fspath(path)} holds a {type(model).__name__}, which {cls.__name__} does not read."
            )
        return cls(**cls.parameters_of(model.settings), **where)._fitted(model, [])

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Add samples to the fitted model, whose codes stay as they are; the first call is `fit`."""
        return self._updated(X, withdraw=False) if hasattr(self, "model_") else self.fit(X, y)

    def withdraw(self, X: Any) -> Self:
        """Take samples out of the fitted model, as if they had never been added to its sums.

        Raises ModelError for samples that are not in the model, and for samples that supplied an atom.
        """
        check_is_fitted(self)
        return self._updated(X, withdraw=True)

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit on samples."""
        raise NotImplementedError

    def _updated(self, X: Any, *, withdraw: bool) -> Self:
        require_columns(self, X, reset=False)
        return self._fitted(
            adding.update(
                self.model_,
                X,
                withdraw=withdraw,
                cluster=self.cluster,
                n_workers=self.n_workers,
                checkpoint=folder.of_change(self.checkpoint, self.model_.fingerprint),
            ),
            [],
        )

    def _fitted(self, model: Any, records: list[dict[str, Any]]) -> Self:
        self.model_ = model
        self.passes_ = records
        self.components_ = model.embedding.components
        self.eigenvalues_ = model.embedding.eigenvalues
        self._n_features_out = len(self.components_)
        return self


class Evaluates:
    """An estimator with `transform` whose representations are judged by how well they tell classes apart."""

    def evaluate(
        self,
        X: Any,
        y: Any = None,
        X_test: Any = None,
        y_test: Any = None,
        *,
        metric: str = "knn",
        others: Any = (),
        **asked: Any,
    ) -> Any:
        """Classify test samples by training samples, with the settings that `smtdist evaluate` has.

        Samples are as in `fit`. Labels are numbers or names of classes, or None for a (path, group) pair whose
        file has them; names are compared with the names that a file gives its numbers. Nothing is
        fitted but the classifier. Memory: as the plan of `smtdist evaluate` states it.

        metric : "knn" (soft k-NN), "linear", "svm" or "kernel" (kernel ridge regression).
        others : estimators, models or files whose representations are appended.
        neighbours, temperature, vote : settings of k-NN. folds : of the SVM. validation : of the linear classifier.
        mirrored, leading, whiten, features, pool, n_components, drop : see `smtdist.evaluate.judging.Asked`.
        labels, draws : use only this many labels, such as labels=[100, 1000], each in several draws; returns a list.

        Returns an evaluation with `top1`, `interval`, `top5` and `confusion`. For images it also has
        `raw_pixels`, what the same classifier finds by raw pixels, and `advice` if that is no worse; not with
        "svm", nor with "kernel" and more than 10,000 training images.
        Raises ConfigurationError for what cannot be combined or is in another order, DataError for labels that do not
        match, such as names on one side alone. Warns of test classes without a training sample.
        """
        pairs = [one for one in (X, X_test) if isinstance(one, tuple) and len(one) == 2]
        sides = {side for one in (y, y_test) for side in getattr(one, "shape", ())[1:]}
        if X_test is None or sides - {1} or any(not isinstance(name, str) for _, name in pairs):
            raise ConfigurationError(
                "evaluate takes training samples, their labels, test samples and their labels, one after another; write "
                "evaluate(X, y, X_test, y_test), with None for labels that lie in the file of a (path, group) pair."
            )
        for samples in (X, X_test):
            require_columns(self, samples, reset=False)
        # named, not imported: it is a layer above
        judging = import_module("smtdist.evaluate.judging")
        return judging.evaluate(
            self, (X, y), (X_test, y_test), metric=metric, others=tuple(others), **asked
        )
