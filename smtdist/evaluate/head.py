"""What heads have in common: classifiers of representations that are fitted, kept in a file, and applied."""

from __future__ import annotations

import json
import os
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from smtdist.data.fingerprint import array_hash
from smtdist.data.netcdf import Group
from smtdist.data.showing import n_samples
from smtdist.data.source import Source
from smtdist.data.table import as_table
from smtdist.engine.manifest import Facts
from smtdist.errors import DataError, ModelError
from smtdist.evaluate import classes, head_files, stored
from smtdist.evaluate.kernel_ridge import softmax
from smtdist.models import readout, store
from smtdist.models.estimating import Estimator, require_columns
from smtdist.models.provenance import few_versions
from smtdist.settings import ANYTHING, number, setting, several

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]


def penalties(meaning: str, default: Sequence[float]) -> Any:
    """Declare the penalties to choose from, the largest first."""
    several_numbers = several(number(above=0), "positive numbers, at least one", least=1)

    def plain(value: Any) -> Any:
        found = several_numbers.plain(
            tuple(value.ravel().tolist()) if isinstance(value, np.ndarray) else value
        )
        return (
            tuple(sorted(map(float, set(found)), reverse=True)) if several_numbers.accepts(found) else value
        )

    return setting(several_numbers._replace(plain=plain), meaning, default=plain(tuple(default)))


class Head(ClassifierMixin, Estimator):  # type: ignore[misc]
    """A classifier of rows of numbers, one f for each class: the largest wins.

    Labels are whole numbers, strings or booleans. Rows of a file of `smtdist transform`, ("z.h5", "z"), are compared part by
    part, with mirror images, as the file says. A head that was fitted with a file of `smtdist transform` refuses
    such files by another model, or read out otherwise.
    """

    KIND: ClassVar[str]
    STORED_AS: ClassVar[str] = "head"
    layout_: readout.Layout | None
    classes_: NDArray[Any]
    names_: tuple[str, ...] = ()
    n_features_in_: int
    representation_: tuple[str, ...] | None
    path_: list[dict[str, float]]
    audit_: list[dict[str, Any]]
    heat_: float

    layout: Any = setting(
        ANYTHING,
        "which columns are which part of a row, and which are features of mirror images, as `smtdist transform` writes it "
        "(`parts`). None: the row is one part.",
        default=None,
    )

    @abstractmethod
    def decision_function(self, X: Any) -> Float64:
        """Return f (n, c)."""

    def facts(self, source: Source, labels: NDArray[Any], given: dict[str, str] | None = None) -> Facts:
        """Return what the sums of a fit or an update depend on, as a checkpoint folder records it."""
        plain = None if self.seen is None else readout.layout_to_plain(self.seen)
        parts = np.frombuffer(json.dumps(plain).encode(), np.uint8)
        own = {"the labels": array_hash(labels), "the parts of rows": array_hash(parts)}
        return Facts.of(source, self.configuration, {**own, **(given or {})})

    @abstractmethod
    def _numbers(self) -> dict[str, Any]:
        """Return what was chosen in the fit, as plain JSON."""

    @abstractmethod
    def _groups(self) -> Iterator[tuple[str, Group]]:
        """Yield the arrays of the head, by groups of its file."""

    @abstractmethod
    def _restore(self, file: Any, about: head_files.About) -> None:
        """Read the arrays of the head from an open file."""

    @abstractmethod
    def planned_bytes(self, shape: tuple[int, int], n_classes: int) -> int:
        """Return the most memory that a fit of rows (n, F) needs besides the rows, before any is read."""

    @abstractmethod
    def told(self) -> dict[str, Any]:
        """Return figures of the fit, with the names of `smtdist.evaluate.kernel_ridge.KernelEvaluation`."""

    @property
    def mirrored(self) -> bool:
        """Whether the head uses features of mirror images."""
        return self.seen is not None and readout.has_mirrored(self.seen)

    @property
    def seen(self) -> readout.Layout | None:
        """The parts of a row: as given, else as in the file of the fit. None means that a row is one part."""
        return self.layout or getattr(self, "layout_", None)

    @property
    def n_rows(self) -> int:
        """Number of rows that the head was fitted on: those added, without those withdrawn."""
        return n_samples(self.provenance)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class with the largest f for each row."""
        places = self.decision_function(X).argmax(axis=1)
        return np.asarray(self.classes_[places])

    def predict_proba(self, X: Any) -> Float64:
        """Return the soft-max of β f, (n, c): one number β is fitted on rows that were left out (Guo et al. 2017)."""
        return self.probabilities(self.decision_function(X))

    def probabilities(self, decision: Float64) -> Float64:
        """Return the class probabilities of rows with these decision values f."""
        return softmax(self.heat_ * decision)

    @property
    def provenance(self) -> dict[str, Any]:
        """The rows that were added and withdrawn."""
        return {"audit": self.audit_}

    def summary(self) -> dict[str, Any]:
        """Return the figures that a person asks for first, as plain JSON."""
        return {
            "head": self.KIND,
            "n_samples": self.n_rows,
            "n_features": self.n_features_in_,
            "n_classes": len(self.classes_),
            "classes": self.classes_.tolist(),
            "names": head_files.names_of(self.classes_, self.names_),
            "mirrored": self.mirrored,
            "numbers": self._numbers(),
            "path": head_files.finite_path(self.path_),
        }

    def edge(self) -> str:
        """Return the sentence for a penalty that is the first or the last of those that were tried; empty for another."""
        return head_files.edge_sentence(head_files.share_of(self._numbers()), self.path_)

    def stored(self) -> Iterator[tuple[str, Group]]:
        """Yield what its file holds: first what those of all heads have."""
        classes, seen = self.classes_, self.seen
        attributes: dict[str, Any] = {
            **store.version(self.STORED_AS),
            "title": f"Classifier of representations: {self.KIND}",
            "head": self.KIND,
            "configuration": self.configuration.to_json(),
            "numbers": json.dumps(self._numbers()),
            "layout": json.dumps(None if seen is None else readout.layout_to_plain(seen)),
            "class_labels": classes.dtype.kind,
            "n_features": self.n_features_in_,
            "versions": json.dumps(few_versions()),
        }
        if self.representation_ is not None:
            attributes |= dict(zip(stored.ASKED, self.representation_, strict=True))
        labels = classes.astype(np.uint8) if classes.dtype.kind == "b" else classes
        names = np.array(head_files.names_of(classes, self.names_)) if self.names_ else None
        yield "", store.packed(head_files.ROOT, {"label": labels, "name": names}, attributes)
        columns = {name: [candidate[name] for candidate in self.path_] for name in head_files.PATH}
        said = {"long_name": "penalties that were tried, on rows that were left out"}
        yield "path", store.packed(head_files.PATH, columns, said)
        yield "audit", store.audit_group(self.audit_)
        yield from self._groups()

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a head; ModelError for another file, a head of another kind, or a damaged one."""
        head = store.load(path, kind=cls.STORED_AS)
        if not isinstance(head, cls):
            raise ModelError(
                f"{path} holds a head of the kind {head.KIND}, not {cls.KIND}; read it with smtdist.load."
            )
        return head

    @classmethod
    def of_file(cls, file: Any, about: head_files.About) -> Self:
        """Read a head of this kind from an open file."""
        head = cls(**about.settings, layout=about.layout)
        cls.SETTINGS(**about.settings)  # refuses a file whose settings are none
        head.classes_, head.n_features_in_ = about.classes, about.n_features
        head.representation_, head.names_ = about.representation, about.names
        head.path_, head.audit_ = [dict(one) for one in about.path], [dict(one) for one in about.audit]
        head._restore(file, about)
        return head

    def _begun(self, X: Any, y: Any) -> tuple[Source, Int64]:
        """Return the rows to fit and the numbers of their classes, which are known from here on."""
        require_columns(self, X, reset=True)
        source = as_table(X)
        labels = classes.checked(y, source.n_samples)
        self.classes_, places = classes.classes_of(labels)
        self.names_ = stored.names_for(source, labels) or ()
        self.n_features_in_ = source.shape[1]
        self.representation_ = stored.representation_of(source)
        self.layout_ = self.layout
        if self.layout is None and self.representation_ is not None:
            self.layout_ = readout.layout_from(
                json.loads(self.representation_[stored.ASKED.index("parts")])
            )
        return source, places

    @property
    def own_classes(self) -> classes.Named:
        """The classes, and what they mean: names, or numbers with the names that the file of the fit had."""
        if self.classes_.dtype.kind == "U":
            return classes.Named(np.arange(len(self.classes_)), tuple(self.classes_.tolist()), "the head")
        return classes.Named(self.classes_.astype(np.int64), self.names_, "the head")

    def _places(self, source: Source, y: Any) -> Int64:
        """Return the place of each label among the classes; those of a file of representations mean what the file says."""
        labels = classes.checked(y, source.n_samples)
        names = stored.names_for(source, labels)
        if names is None:
            return classes.places_in(self.classes_, labels)
        own = self.own_classes
        found = own.renumbered(classes.Named(labels.astype(np.int64), names, source.name))
        return classes.places_in(own.labels, found.labels, found.names)

    def known(self, X: Any) -> Source:
        """Return rows like those of the fit; DataError for others."""
        check_is_fitted(self)
        require_columns(self, X, reset=False)
        source = as_table(X)
        if source.shape[1] != self.n_features_in_:
            raise DataError(
                f"The rows have {source.shape[1]:,} features, the head was fitted on {self.n_features_in_:,}; give rows like "
                f"those."
            )
        found = stored.representation_of(source)
        if None not in (found, self.representation_) and found != self.representation_:
            raise DataError(
                f"{source.name} was written by another model than the head was fitted with, or with other options; "
                f"transform these data in the same way as those of the fit."
            )
        return source
