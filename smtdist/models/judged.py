"""Estimators that are judged by labels: `evaluate`, which the layer above defines."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from smtdist.models.estimating import require_columns


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
        Raises ConfigurationError for settings that cannot be combined, DataError for labels that do not
        match, such as names on one side alone. Warns of test classes without a training sample.
        """
        for samples in (X, X_test):
            require_columns(self, samples, reset=False)
        # named, not imported: it is a layer above
        judging = import_module("smtdist.evaluate.judging")
        return judging.evaluate(
            self, (X, y), (X_test, y_test), metric=metric, others=tuple(others), **asked
        )
