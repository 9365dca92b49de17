"""A classifier on features that are written, in a process of its own; it prints what it got right as JSON.

    python -m replication.when_to_use.judges ridge DATA.h5 FEATURES.h5 --labels 100 --draws 3

What a classifier needs is chosen by labelled training images alone, anew in each draw of labels: neighbours and
temperature by leaving each out in turn (1,000 of them at most), the penalty of ridge and SVM by five folds, or where more
than 2,000 have labels by a fifth that is held out, and that of the kernel as smtdist does. The temperature of the kernel
is chosen by the first 2,000 labelled images, each left out.
"""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path
from typing import Any, Final

import h5py
import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import GridSearchCV, StratifiedKFold, StratifiedShuffleSplit
from sklearn.svm import LinearSVC

from replication.when_to_use.sets import found, labelled, read_labels
from smtdist.evaluate.cosine_rows import Comparer, Part
from smtdist.evaluate.few_labels import in_span, standardised
from smtdist.evaluate.kernel_ridge import fit_kernel_ridge
from smtdist.evaluate.knn import nearest, vote

Int64 = NDArray[np.int64]

NEIGHBOURS: Final = (1, 3, 5, 10, 20, 50)
VOTES: Final = (0.01, 0.03, 0.06, 0.1)
ALPHAS: Final = (1e-4, 1e-3, 0.01, 0.1, 1.0, 10.0, 100.0)
COSTS: Final = (0.1, 1.0, 10.0, 100.0)
LOSSES: Final = (0.1, 1.0, 10.0, 100.0, 1000.0)
"""C of logistic regression, on rows whose norm is about 1."""
TEMPERATURES: Final = (0.1, 0.2, 0.5, 1.0)
MANY: Final = 2000


class Judge:
    """Features of all training and test images, and of their mirror images if there are any."""

    def __init__(self, views: list[tuple[Any, Any]], y: Int64, seed: int) -> None:
        self.views, self.y, self.seed = views, y, seed
        self.classes = int(y.max()) + 1

    def knn(self, rows: Int64) -> tuple[Int64, Any]:
        """Soft k-NN on cosines."""
        train, test = (one.reshape(len(one), -1) for one in self.views[0])
        near, y = train[rows], self.y[rows]
        judged = np.random.default_rng(self.seed).permutation(len(rows))[: MANY // 2]
        most = min(max(NEIGHBOURS), len(rows) - 1)
        cosines, places = nearest(near[judged], near, most + 1)
        # an image is its own nearest neighbour, or has a twin; either way one row goes
        own = (places == judged[:, None]) & ((places == judged[:, None]).cumsum(axis=1) == 1)
        own[~own.any(axis=1), -1] = True
        cosines, places = (one[~own].reshape(len(judged), most) for one in (cosines, places))
        tried = list(itertools.product([k for k in NEIGHBOURS if k <= most], VOTES))
        right = [
            int((self._votes(cosines[:, :k], y[places[:, :k]], heat) == y[judged]).sum())
            for k, heat in tried
        ]
        k, heat = tried[int(np.argmax(right))]
        cosines, places = nearest(test, near, k)
        return self._votes(cosines, y[places], heat), {"neighbours": k, "temperature": heat}

    def _votes(self, cosines: Any, labels: Int64, heat: float) -> Int64:
        return np.asarray(vote(cosines, labels, self.classes, temperature=heat).argmax(axis=1))

    def ridge(self, rows: Int64) -> tuple[Int64, Any]:
        """Ridge regression on ±1 for each class."""
        return self._searched(RidgeClassifier(), {"alpha": ALPHAS}, rows)

    def svm(self, rows: Int64) -> tuple[Int64, Any]:
        """Linear SVM, one class against the rest."""
        return self._searched(LinearSVC(random_state=self.seed), {"C": COSTS}, rows)

    def logistic(self, rows: Int64) -> tuple[Int64, Any]:
        """Multinomial logistic regression; its gradients are as small as features of rows whose norm is about 1."""
        return self._searched(LogisticRegression(max_iter=1000, tol=1e-5), {"C": LOSSES}, rows)

    def _searched(self, model: Any, grid: dict[str, Any], rows: Int64) -> tuple[Int64, Any]:
        if not hasattr(self, "scaled"):
            self.scaled = standardised(*self.views[0])
        train: Any = self.scaled[0][rows]
        test: Any = self.scaled[1]
        if len(rows) <= min(MANY, train.shape[1]):
            train, test = in_span(train, test)  # all that a penalty on squares sees, in fewer numbers
        y = self.y[rows]
        fewest = int(np.unique(y, return_counts=True)[1].min())
        split = (
            StratifiedKFold(min(5, fewest), shuffle=True, random_state=self.seed)
            if len(rows) <= MANY
            else StratifiedShuffleSplit(1, test_size=0.2, random_state=self.seed)
        )
        search = GridSearchCV(model, grid, cv=split).fit(train, y)
        return search.predict(test), search.best_params_

    def kernel(self, rows: Int64) -> tuple[Int64, Any]:
        """smtdist's kernel ridge regression on cosines, mirror images inside the kernel."""
        first, *rest = self.views
        mirrored = rest[0] if rest else (None, None)
        known, asked = ([[Part(first[group], mirrored[group], standardise=True)]] for group in (0, 1))
        few = [[known[0][0].of(rows)]]
        some = [[known[0][0].of(rows[:MANY])]]
        compared = Comparer.of(known, TEMPERATURES[0])
        errors = []
        for heat in TEMPERATURES:
            fitted = fit_kernel_ridge(some, self.y[rows[:MANY]], comparer=Comparer(compared.scales, heat))
            errors.append(min(one["error"] for one in fitted.path))
        heat = TEMPERATURES[int(np.argmin(errors))]
        fitted = fit_kernel_ridge(
            few, self.y[rows], comparer=Comparer(compared.scales, heat), seed=self.seed
        )
        return fitted.predict(asked), {"temperature": heat, "penalty": fitted.penalty}


def read(path: Path) -> tuple[Any, Any]:
    """Return the features of training and test images."""
    with h5py.File(path) as file:
        return file["train"][:], file["test"][:]


def main() -> None:
    """Judge, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("judge", choices=["knn", "ridge", "logistic", "svm", "kernel"])
    parser.add_argument("data", type=Path)
    parser.add_argument(
        "features", type=Path, nargs="+", help="of images, and of mirror images for the kernel"
    )
    parser.add_argument("--labels", type=int, default=0, help="labels in all; 0: all")
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    y, test_y = (read_labels(arguments.data, group) for group in ("train", "test"))
    judge = Judge([read(path) for path in arguments.features], y, arguments.seed)
    hits, chosen = [], []
    for rows in labelled(y, arguments.labels, arguments.draws, arguments.seed):
        predicted, how = getattr(judge, arguments.judge)(rows)
        hits.append(predicted == test_y)
        chosen.append(how)
    width = judge.views[0][0].shape[1]
    print(json.dumps({**found(hits, chosen), "row_bytes": 4 * width * len(judge.views)}))


if __name__ == "__main__":
    main()
