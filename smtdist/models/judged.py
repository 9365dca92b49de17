"""Estimators that are judged by labels: `evaluate`, which the layer above defines."""

from __future__ import annotations

from importlib import import_module
from typing import Any


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

        Samples are as in `fit`; labels are class numbers, or None for a (path, group) pair whose file has
        them. Nothing is fitted but the classifier. Memory: as `smtdist evaluate --plan` states it.

        metric : "knn" (soft k-NN), "linear", "svm" or "kernel" (kernel ridge regression).
        others : estimators, models or files whose representations are appended.
        neighbours, temperature, vote : of the k-NN. folds : of the SVM. validation : of the linear classifier.
        mirrored, leading, whiten, features, pool, n_components, drop : see `smtdist.evaluate.judging.Asked`.
        labels, draws : judge by so many labels each, such as labels=[100, 1000]; returns a list.

        Returns an evaluation with `top1`, `interval`, `top5` and `confusion`; of images by "knn" also `raw_pixels`, what
        their pixels have with the same votes, and `advice` where these are no worse. Raises ConfigurationError for
        settings without a meaning, DataError for labels that do not fit.
        """
        # named, not imported: it is a layer above
        judging = import_module("smtdist.evaluate.judging")
        return judging.evaluate(
            self, (X, y), (X_test, y_test), metric=metric, others=tuple(others), **asked
        )
