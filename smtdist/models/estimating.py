"""What estimators of words, points and video share: parameters to settings, an engine, files, data that come and go."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar, Self

from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin
from sklearn.utils.validation import check_is_fitted

from smtdist.engine import folder, session
from smtdist.engine.events import Event, EventStream
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError
from smtdist.models import adding, given
from smtdist.models.parameters import parameters_of, require_columns, settings_in


class TransformEstimator(ClassNamePrefixFeaturesOutMixin, BaseEstimator):  # type: ignore[misc]
    """An estimator whose parameters are the settings of one kind of transform, and where the work is done."""

    _asked: ClassVar[Any]
    _kind: ClassVar[str]
    cluster: Any
    workers: int | None
    checkpoint: str | os.PathLike[str] | None
    on_event: Callable[[Event], None] | None
    model_: Any
    passes_: list[dict[str, Any]]

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], **where: Any) -> Self:
        """Return a fitted estimator from a model's file."""
        model = given.load(path)
        if given.named_kind(model) != cls._kind:
            raise ConfigurationError(
                f"{os.fspath(path)} holds a {type(model).__name__}, which {cls.__name__} does not read."
            )
        settings = {one.name: getattr(model.settings, one.name) for one in fields(cls._asked)}
        return cls(**parameters_of(settings), **where)._fitted(model, [])

    @property
    def configuration(self) -> Any:
        """The settings, checked."""
        return self._asked(**settings_in(self, (one.name for one in fields(self._asked))))

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Add samples to the fitted model, whose codes stay as they are; the first call is `fit`."""
        return self._updated(X, withdraw=False) if hasattr(self, "model_") else self.fit(X)

    def withdraw(self, X: Any) -> Self:
        """Take samples out of the fitted model, as if they had never been added to its sums."""
        check_is_fitted(self)
        return self._updated(X, withdraw=True)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the fitted model to a file."""
        check_is_fitted(self)
        given.save(self.model_, path, overwrite=overwrite)

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
                workers=self.workers,
                checkpoint=folder.of_change(self.checkpoint, self.model_.summary()["fingerprint"]),
            ),
            [],
        )

    @contextmanager
    def _engine(self, *, checkpointed: bool = False) -> Iterator[Engine]:
        events = EventStream(*([self.on_event] if self.on_event else []))
        place = Path(self.checkpoint) if self.checkpoint is not None and checkpointed else None
        with session.executor_for(self.cluster, self.workers) as executor:
            yield Engine(executor, events, place)

    def _fitted(self, model: Any, records: list[dict[str, Any]]) -> Self:
        self.model_ = model
        self.passes_ = records
        self.components_ = model.embedding.components
        self.eigenvalues_ = model.embedding.eigenvalues
        self._n_features_out = len(self.components_)
        return self
