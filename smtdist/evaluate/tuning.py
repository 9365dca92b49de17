"""Settings chosen by trying them on held-out samples, for the command and for estimators."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from smtdist import configuration
from smtdist.configuration import Configuration
from smtdist.data.showing import Shown, html_table
from smtdist.data.source import Source
from smtdist.engine.memory import memory_limit
from smtdist.engine.passes import Engine
from smtdist.engine.session import Execution
from smtdist.errors import ConfigurationError, DataError, option, rendered
from smtdist.evaluate import judging, knn, run
from smtdist.evaluate.run import Labelled
from smtdist.models.image_jobs import for_images, learned_code
from smtdist.models.tuning import grid as grids
from smtdist.models.tuning import split as splitting
from smtdist.models.tuning import tune as trying
from smtdist.models.tuning.tune import Trial, learnt_trials, tune_learnt

if TYPE_CHECKING:  # a command that tunes needs no scikit-learn
    from smtdist.models.smt import SMT


@dataclass(frozen=True)
class Tuned(Shown):
    """What was tried, the best first; `to_dict` is what `smtdist tune` prints as JSON.

    trials : each with `changes`, `top1`, `interval` and `within` (the interval of the best). grid : what varied.
    configuration : what did not. n_train, n_validation : samples. mirrored : whether mirror images of those to learn from
    vote, too. seconds : of the whole run.
    """

    metric: str
    n_train: int
    mirrored: bool
    n_validation: int
    grid: dict[str, list[Any]]
    trials: tuple[Trial, ...]
    configuration: dict[str, Any]
    seconds: float

    @property
    def best_params(self) -> dict[str, Any]:
        """The values of the grid that were best: `SMT(**tuned.best_params)`."""
        return self.trials[0].changes

    @property
    def best_score(self) -> float:
        """The share of held-out samples whose class was found with them."""
        return self.trials[0].top1

    def line(self) -> str:
        """Return the best values and their accuracy."""
        best = self.trials[0]
        return f"best of {len(self.trials):,}: {rendered(grids.as_text(best.changes))}, top-1 {100 * best.top1:.1f} %"

    def _repr_html_(self) -> str:
        rows = [
            (
                *(grids.value_text(one.changes[name]) for name in self.grid),
                f"{100 * one.top1:.1f} %",
                " to ".join(f"{100 * bound:.1f}" for bound in one.interval),
            )
            for one in self.trials
        ]
        return html_table(f"Tuned: {self.line()}", (*self.grid, "top-1", "95 % interval"), rows)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain JSON types."""
        trials = [row.to_dict() for row in self.trials]
        return {**vars(self), "best": trials[0], "trials": trials}


@dataclass(frozen=True)
class Trials:
    """What is tried: all combinations of a grid with the settings they make, of codes that are learned or not.

    base : settings that do not vary. votes : how neighbours vote. atoms : the user's own.
    """

    grid: dict[str, list[Any]]
    combinations: Sequence[tuple[dict[str, Any], Any]]
    base: dict[str, Any]
    votes: Configuration
    atoms: NDArray[np.floating[Any]] | None = None
    learnt: bool = False

    @classmethod
    def of(
        cls,
        settings: Configuration,
        grid: dict[str, list[Any]],
        atoms: NDArray[np.floating[Any]] | None = None,
    ) -> Trials:
        """Return all combinations of settings of the transform."""
        found = grids.combinations(settings, grid, None if atoms is None else len(atoms))
        return cls(grid, found, settings.to_dict(), settings, atoms)

    @classmethod
    def of_learnt(cls, settings: Mapping[str, Any], grid: dict[str, list[Any]]) -> Trials:
        """Return all combinations of settings of a transform of learned codes."""
        return cls(grid, learnt_trials(settings, grid), dict(settings), Configuration(), learnt=True)

    @classmethod
    def asked(
        cls,
        settings: Mapping[str, Any],
        grid: Sequence[str],
        preset: str | None,
        atoms: NDArray[np.floating[Any]] | None,
    ) -> Trials:
        """Return all combinations of a grid as it is written, of learned codes where it or the settings ask for them."""
        learnt = _asks_for_learned(settings, grid)
        if learnt and (preset or atoms is not None):
            raise ConfigurationError(
                f"Learned codes are tuned without a preset and {option('atoms')}; leave them out."
            )
        values = grids.parse_grid(grid, learnt=learnt)
        if learnt:
            return cls.of_learnt(settings, values)
        changes = Configuration.named(settings)
        if atoms is not None:
            changes.setdefault("dictionary_method", "given")
        start = configuration.preset(preset) if preset else Configuration()
        return cls.of(start.replace(**changes), values, atoms)

    def suited(self, source: Source, settings: Mapping[str, Any]) -> Trials:
        """Return the same with the defaults that images have, where neither settings nor the grid say them."""
        if self.learnt:
            return self
        named = Configuration.named(settings).keys() | self.grid.keys()
        return Trials.of(for_images(self.votes, source, named), self.grid, self.atoms)

    def tried(
        self,
        known: Labelled,
        asked: Labelled,
        engine: Engine,
        metric: str,
        neighbours: int | None,
        started: float,
    ) -> Tuned:
        """Fit every combination on samples and judge it on others."""
        budget = memory_limit() // run.MEMORY_SHARE
        votes = knn.SoftNeighbours.of(self.votes, neighbours)
        nearest = replace(votes, block_bytes=min(knn.BLOCK_BYTES, budget))
        classify: trying.Classifier = nearest if metric == "knn" else _probe
        # blocks of the k-NN side by side; the linear probe takes all threads and the memory for itself
        at_once = max(1, budget // knn.BLOCK_BYTES) if metric == "knn" else 1
        mirrored = metric == "knn" and self.votes.mirrored_votes
        both = (known.source, known.labels), (asked.source, asked.labels)
        if self.learnt:
            rows = tune_learnt(self.combinations, *both, classify, engine)
        else:
            rows = trying.tune(
                self.combinations,
                *both,
                classify,
                engine,
                atoms=self.atoms,
                at_once=at_once,
                mirrored=mirrored,
            )
        n_train, n_validation = known.source.n_samples, asked.source.n_samples
        seconds = time.perf_counter() - started
        return Tuned(metric, n_train, mirrored, n_validation, self.grid, tuple(rows), self.base, seconds)

    def require_neighbours(self, known: Labelled, metric: str, neighbours: int | None) -> None:
        """Refuse more neighbours than there are samples to learn from."""
        if metric == "knn":
            run.require_neighbours(knn.SoftNeighbours.of(self.votes, neighbours), known.source.n_samples)


def _asks_for_learned(settings: Mapping[str, Any], grid: Sequence[str]) -> bool:
    """Tell whether settings or a grid ask for learned codes; both kinds in one grid are refused."""
    varied = [text.partition("=") for text in grid]
    codes = {
        str(one).strip()
        for name, values in [*settings.items(), *((name, words) for name, _, words in varied)]
        if name in ("code", "feature")
        for one in str(values).split(",")
    }
    learnt = {one for one in codes if learned_code({"code": one})}
    if learnt and codes - learnt:
        raise ConfigurationError(
            f"{', '.join(sorted(learnt))} and {', '.join(sorted(codes - learnt))} have settings of their own; tune them one "
            f"after the other."
        )
    return bool(learnt)


def _probe(train_z: Any, train_y: Any, test_z: Any, test_y: Any) -> run.Found:
    return run.judged(run.Data(train_z, train_y, test_z, test_y), run.Linear())


def tune(
    estimator: SMT,
    grid: Mapping[str, Sequence[Any]],
    X: Any,
    y: Any = None,
    *,
    validation: float | tuple[Any, Any] = 0.2,
    limit: int | None = None,
    metric: str = "knn",
    neighbours: int | None = None,
) -> Tuned:
    """Try every combination of a grid of settings on held-out images, in far less time than separate fits.

    estimator : its parameters are the settings that do not vary, and where the work is done. It is not fitted.
    grid : values to try by the name of the setting, such as {"whitening_reg": [0.001, 0.01]}.
    X, y : images and the numbers or names of their classes; y is None for a (path, group) pair whose file has them.
    validation : share of the images that is held out, or other images and labels (X, y).
    limit : use only this many images, drawn at random. metric : "knn" or "linear"; neighbours : of the k-NN.

    Raises ConfigurationError for an unknown setting or value, before an image is read.

    >>> images = np.random.default_rng(0).integers(0, 256, (80, 8, 8), dtype=np.uint8)
    >>> from smtdist.models.smt import SMT
    >>> smt = SMT(patch_size=3, code="vq", n_atoms=16, n_components=4, pool_size=2)
    >>> found = tune(smt, {"whitening_reg": [0.01, 0.1]}, images, np.arange(80) % 2, neighbours=5)
    >>> len(found.trials), list(found.best_params)
    (2, ['whitening_reg'])
    """

    learnt = estimator.is_learned
    started = time.perf_counter()
    judging.refuse_idle(metric, n_neighbors=neighbours)
    if metric not in ("knn", "linear"):
        raise ConfigurationError(f"The metric is {metric!r}; choose knn or linear.")
    values = grids.checked_grid(grid, learnt=learnt)
    shape = estimator.image_shape
    if learnt:
        trials, scaling = Trials.of_learnt(estimator.given_settings(), values), None
        whole = judging.labelled(X, y, scaling, shape)
    else:
        scaling = estimator.configuration
        Trials.of(scaling, values, estimator.atoms)  # refused before an image is read
        whole = judging.labelled(X, y, scaling, shape)
        trials = Trials.of(estimator.settings_for(whole.source), values, estimator.atoms)
    judge = (
        validation if isinstance(validation, float | int) else judging.labelled(*validation, scaling, shape)
    )
    known, asked = parts(whole, judge, limit, trials.votes.random_state)
    trials.require_neighbours(known, metric, neighbours)
    with Execution(estimator.cluster, estimator.n_workers).engine() as engine:
        return trials.tried(known, asked, engine, metric, neighbours, started)


def parts(
    whole: Labelled, validation: float | Labelled, limit: int | None, seed: int
) -> tuple[Labelled, Labelled]:
    """Return samples to learn from and samples to judge by: a share of them, or others."""
    if isinstance(validation, Labelled):
        other, source = validation.source, whole.source
        if other.shape[1:] != source.shape[1:]:
            raise DataError(
                f"{other.name} has images of {other.shape[1:]}, but {source.name} has {source.shape[1:]} (height, width, "
                f"channels); use images of the same shape."
            )
        some = splitting.limited(source, limit, seed)
        learnt = Labelled(some.source, whole.labels[some.samples], names=whole.names)
        return learnt, learnt.matched(validation)
    known, asked = splitting.split(whole.source, validation, limit, seed)
    return tuple(Labelled(one.source, whole.labels[one.samples]) for one in (known, asked))  # type: ignore[return-value]
