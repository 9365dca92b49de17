"""What an evaluation is asked, in Python and on the command line: a classifier, and how it sees a model's representations."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from smtdist import configuration
from smtdist.configuration import Configuration
from smtdist.data.array import ArraySource, as_source
from smtdist.data.source import Source
from smtdist.data.views import EncodedSettings
from smtdist.engine import plan as pass_plan
from smtdist.engine.events import EventStream
from smtdist.engine.passes import Engine
from smtdist.engine.session import Execution
from smtdist.errors import ConfigurationError, DataError, MemoryBudgetError, option
from smtdist.evaluate import knn, run
from smtdist.evaluate.classes import Named
from smtdist.models import joined, loading, readout
from smtdist.models.readout import ImageTransform, OnAnother, ReadoutSettings
from smtdist.models.represent import Representer
from smtdist.settings import ANYTHING, FLAG, NULL, number, one_of, setting, several, whole

Found = TypeVar("Found", bound=run.Found)

METRICS: Final = ("knn", "linear", "svm", "kernel")
DRAWS: Final = 5
RAW_KERNEL_SAMPLES: Final = 10_000
"""Training samples up to which the kernel judges raw pixels, too: they would take half of the time again."""
_OF_METRICS: Final = {
    "n_neighbors": ("knn",),
    "temperature": ("knn", "kernel"),
    "vote": ("knn",),
    "folds": ("svm",),
    "validation": ("linear",),
}

BATCH: Final = 256  # images whose raw pixels are taken at once


class Asked(ReadoutSettings):
    """What an evaluation is asked, beside the data. Raises ConfigurationError for what has no meaning, alone or together."""

    OF: ClassVar[str] = "an evaluation"

    metric: str = setting(
        one_of(*METRICS),
        "the classifier: soft k-NN (knn), a linear probe (linear), a linear SVM (svm), or kernel ridge regression (kernel).",
        default="knn",
    )
    n_neighbors: int | None = setting(
        whole(1) | NULL,
        "number of neighbours that vote (knn); None: as the model says, else 30.",
        default=None,
        aliases=("neighbours",),
    )
    temperature: float | None = setting(
        number(above=0) | NULL,
        "T of the votes exp(cosine / T) of knn (None: as the model says), or of the kernel (None: 0.5).",
        default=None,
    )
    vote: str | None = setting(
        one_of(*configuration.VOTES) | NULL,
        "weight of a neighbour (knn): exp(cosine / T), the cosine (linear), or 1 (hard). None: as the model says.",
        default=None,
    )
    folds: int | None = setting(
        whole(2) | NULL,
        f"folds of the cross-validation that chooses the penalty (svm). None: {run.Svm.folds}.",
        default=None,
    )
    validation: float | None = setting(
        number(above=0, below=1) | NULL,
        f"share of the training samples that is held out to choose the penalty (linear). None: {run.Linear.validation}.",
        default=None,
    )
    mirrored: bool | None = setting(
        FLAG | NULL,
        "also use mirrored training images. None: as the model says (knn), no (linear, svm), yes (kernel).",
        default=None,
    )
    leading: int | None = setting(
        whole(1) | NULL,
        "compare only in this many leading principal components of the training representations.",
        default=None,
    )
    whiten: float | None = setting(
        number(0, 1) | NULL,
        "whitening of the components of `leading`: 0 keeps their variances, 1 makes them equal. "
        f"None: {run.Directions.whiten}.",
        default=None,
    )
    others: tuple[Any, ...] = setting(
        ANYTHING, "models, estimators or files whose representations are appended.", default=()
    )
    labels: tuple[int, ...] = setting(
        several(whole(2), "numbers of labels, each at least 2"),
        "use only this many labels, in several draws (svm, kernel); several numbers make a learning curve.",
        default=(),
    )
    draws: int | None = setting(
        whole(1) | NULL, f"draws for each number of labels. None: {DRAWS}.", default=None
    )

    def check_together(self) -> None:
        """Refuse what another metric would heed, and what has no meaning together."""
        refuse_idle(self.metric, **{name: getattr(self, name) for name in _OF_METRICS})
        if self.whiten is not None and self.leading is None:
            raise ConfigurationError(f"{option('whiten')} needs {option('leading')}; give it too.")
        if self.leading is not None and self.metric == "kernel":
            raise ConfigurationError(
                f"{option('metric', 'kernel')} uses all features; leave out {option('leading')}, or choose another metric."
            )
        if self.labels and (self.metric in ("knn", "linear") or self.leading):
            raise ConfigurationError(
                f"{option('labels')} needs {option('metric', 'svm')} or kernel, and cannot be combined with {option('leading')}."
            )
        if self.labels and self.metric == "svm" and (self.mirrored or self.others):
            raise ConfigurationError(
                f"{option('metric', 'svm')} with {option('labels')} cannot be combined with {option('mirrored', True)} or "
                f"{option('others')}."
            )
        if self.draws is not None and not self.labels:
            raise ConfigurationError(f"{option('draws')} needs {option('labels')}; give it too.")

    @property
    def directions(self) -> run.Directions | None:
        """The directions to compare in; None for all that there is."""
        if self.leading is None:
            return None
        return run.Directions(self.leading, run.Directions.whiten if self.whiten is None else self.whiten)

    def settings(self, votes: Configuration) -> run.Settings:
        """Return the settings of the classifier: as asked, else as a model with these settings says."""
        if self.metric == "knn":
            return knn.SoftNeighbours.of(votes, self.n_neighbors, self.temperature, self.vote)
        if self.metric == "kernel":
            return run.Kernel(self.temperature or run.Kernel.temperature)
        if self.metric == "svm":
            return run.Svm(folds=self.folds or run.Svm.folds)
        return run.Linear(self.validation or run.Linear.validation)

    def of_images(self, model: ImageTransform) -> Seen:
        """Return what the classifier sees of images by a model, with the representations of others appended."""
        kernel = self.metric == "kernel"
        mirrored = self.mirrored
        if mirrored is None:
            mirrored = kernel or (self.metric == "knn" and model.votes.mirrored_votes)
        # the kernel has mirror images in it, and sees both parts of binary codes; for others they are images of their own
        together = joined.side_by_side(model, [loading.encoder_of(one) for one in self.others])

        def read_out(one: ImageTransform) -> ImageTransform:
            both = self.features is None and kernel and one.code_places is not None
            features = "both" if both else self.features
            return readout.with_readout(
                one,
                features,
                self.pool,
                n_components=self.n_components,
                drop=self.drop_components,
                mirrored=bool(mirrored) and kernel,
            )

        seen: ImageTransform = together.each(read_out)
        settings = self.settings(seen.votes)
        if isinstance(settings, run.Kernel):
            settings = run.Kernel(settings.temperature, readout.layout_of(seen))
        return Seen(seen, settings, mirrored)

    def swept(self, engine: Engine, settings: run.Settings, data: run.Data) -> list[dict[str, Any]]:
        """Classify representations by few labelled ones, several draws of them; of the kernel they may lie in a file."""
        from smtdist.evaluate import few_labels

        needed = run.judging_bytes(settings, data, self.labels)
        draws, n_classes = self.draws or DRAWS, len(np.unique(data.train_y))
        for count in (one for one in self.labels if one < n_classes):
            engine.note(
                f"With {count:,} labels {n_classes - count:,} of the {n_classes:,} classes have none, so none of their "
                f"samples can be classified correctly"
            )
        with run.in_pass(engine, "few labels", len(data.train), run.projected(needed)):
            if isinstance(settings, run.Kernel):
                data = data._replace(train=settings.sets(data.train), test=settings.sets(data.test))
                return few_labels.kernel_sweep(
                    *data, self.labels, temperature=settings.temperature, draws=draws
                )
            folds = settings.folds if isinstance(settings, run.Svm) else run.Svm.folds
            return few_labels.label_sweep(*data, self.labels, draws=draws, folds=folds)


@dataclass(frozen=True)
class Seen:
    """A model as a classifier sees it, its settings, and whether mirror images are learned from too."""

    model: ImageTransform
    settings: run.Settings
    mirrored: bool

    def taken(self, known: run.Labelled) -> run.Labelled:
        """Return the samples to learn from, mirror images too where they are samples of their own."""
        if self.mirrored and not isinstance(self.settings, run.Kernel):
            known = known.and_mirrored()
        run.require_neighbours(self.settings, len(known.labels))
        return known

    def compared(self, known: run.Labelled, asked: run.Labelled, how: Asked) -> run.Comparison:
        """Return what is compared; labels that no draw has are refused before an image is coded."""
        if how.labels:
            from smtdist.evaluate import few_labels

            few_labels.draw_labelled(known.labels, max(how.labels), 0, 0)
        return run.Comparison(self.model, known, asked, self.settings, how.directions, how.labels)


def refuse_idle(metric: str, **given: object) -> None:
    """Refuse options that another metric would heed; one that was not given is None."""
    for name, value in given.items():
        if value is not None and metric not in _OF_METRICS[name]:
            raise ConfigurationError(
                f"{name} is for the metric {' or '.join(_OF_METRICS[name])}, not for {metric}; leave {name} out."
            )


def judged(
    seen: Seen, known: run.Labelled, asked: run.Labelled, engine: Engine, how: Asked
) -> run.Found | list[dict[str, Any]]:
    """Represent both groups and classify the second by the first; with `labels` by few of them: a list, a number each.

    What a classifier finds has raw pixels beside it, but for the SVM and for kernels of many images.
    """
    compared = seen.compared(known, asked, how)
    if same_samples(known.source, asked.source):
        engine.note(
            f"{known.source.name} is evaluated on its own samples, which says nothing about new ones; give another group to "
            f"judge by"
        )
    if not how.labels:
        return with_pixels(compared.found(engine), compared, engine, mirrored=seen.mirrored)
    costs = compared.planned(engine)
    costs.require_room()
    with compared.represented(costs, engine) as (near, far):
        return how.swept(engine, seen.settings, run.Data(near, known.labels, far, asked.labels))


def same_samples(known: Source, asked: Source) -> bool:
    """Tell whether two sources are the same samples of a file, or one array."""
    if isinstance(known, ArraySource) and isinstance(asked, ArraySource):
        one, other = known.array.__array_interface__, asked.array.__array_interface__
        return bool(one["data"] == other["data"] and one["shape"] == other["shape"])
    return known.name == asked.name and known.n_samples == asked.n_samples


def with_pixels(
    found: Found, compared: run.Comparison, engine: Engine, *, mirrored: bool | None = False
) -> Found:
    """Return what a classifier found with what it finds by raw pixels beside it, where that takes little beside the rest."""
    source, settings = compared.known.source, compared.settings
    raw: ImageTransform = RawPixels(compared.model, source.shape[1:])
    if isinstance(settings, run.Svm):
        return found
    if isinstance(settings, run.Kernel):
        if source.n_samples > RAW_KERNEL_SAMPLES:
            return found
        raw = readout.with_readout(raw, None, mirrored=bool(mirrored))
        settings = run.Kernel(settings.temperature, readout.layout_of(raw))
    engine.note("The same with raw pixels")
    with suppress(MemoryBudgetError):  # what was asked for is there
        pixels = replace(compared, model=raw, settings=settings, directions=None)
        return replace(found, raw_pixels=pixels.found(engine))
    return found


def evaluate(
    estimator: Any, train: tuple[Any, Any], test: tuple[Any, Any], **asked: Any
) -> run.Found | list[dict[str, Any]]:
    """Judge a fitted estimator by samples with labels: those of `test` classified by those of `train`.

    Each is a pair of samples and labels; labels are None for a (path, group) pair whose file has them.
    `asked` is as in `Asked`. Estimators whose models do not represent images are judged by what `transform`
    returns. Returns a list with `labels`, one entry a number.
    """
    how = Asked(**{**asked, "labels": asked.get("labels") or ()})
    model = loading.encoder_of(estimator)
    on_event = getattr(estimator, "on_event", None)
    events = EventStream(*([on_event] if on_event else []))
    with Execution(estimator.cluster, estimator.n_workers).engine(events) as engine:
        if not hasattr(model, "representer"):
            near, far = (estimator.transform(X) for X, _ in (train, test))
            ours = Named.of(train[1], len(near), "the training samples")
            theirs = ours.matched(Named.of(test[1], len(far), "the test samples"))
            settings = how.settings(Configuration())
            run.require_neighbours(settings, len(near))
            return run.classified(run.Data(near, ours.labels, far, theirs.labels), engine, settings)
        seen, shape = how.of_images(model), getattr(estimator, "image_shape", None)
        known, far_images = (labelled(*part, seen.model.scaling, shape) for part in (train, test))
        return judged(seen, seen.taken(known), known.matched(far_images), engine, how)


def labelled(
    X: Any, y: Any, settings: EncodedSettings | None = None, image_shape: tuple[int, ...] | None = None
) -> run.Labelled:
    """Return samples and their classes; without `y` those of the file of a (path, group) pair."""
    if y is None:
        if not (isinstance(X, tuple) and len(X) == 2):
            raise DataError("Samples in memory need labels beside them; give y and y_test.")
        return run.Labelled.open(*X, settings)
    source = as_source(X, settings, fitted=True, image_shape=image_shape)
    found = Named.of(y, source.n_samples, source.name)
    return run.Labelled(source, found.labels, names=found.names)


@dataclass(frozen=True)
class FlatPixels(Representer):
    """Images (B, H, W, C) as rows (B, H W C) of their values in float32."""

    def __call__(self, images: NDArray[np.generic]) -> NDArray[np.floating[Any]]:
        """Return the pixels of a batch."""
        return images.reshape(len(images), -1).astype(np.float32)


@dataclass(frozen=True)
class RawPixels(OnAnother):
    """What represents images of this shape (height, width, channels) by their pixels; neighbours vote as those of a model do.

    Cosines of images do not depend on the range of their pixels, so values stay as they are.
    """

    model: ImageTransform
    shape: tuple[int, ...]
    asked = "raw pixels"
    fingerprint = ""
    dtype = "float32"
    positions = 1

    def require_images(self, source: Source) -> None:
        """Do nothing: all images of a source have one shape."""

    def representation_shape(self) -> tuple[int, ...]:
        """Return how many pixels there are."""
        return (math.prod(self.shape),)

    def representer(self, source: Source, engine: Engine) -> FlatPixels:
        """Return what reads a batch and flattens it."""
        block = pass_plan.block_samples(source)
        reading = block * source.sample_bytes + source.reader_bytes
        threads = engine.executor.threads()
        needed = reading + threads * source.thread_bytes + 8 * BATCH * math.prod(self.shape)
        return FlatPixels(batch=BATCH, threads=threads, working_bytes=needed)
