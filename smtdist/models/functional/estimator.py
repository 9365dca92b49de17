"""The sparse manifold transform of video as a scikit-learn estimator."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted

from smtdist.data.video import clips_of
from smtdist.kernels import convergence
from smtdist.models import store
from smtdist.models.estimating import TransformEstimator
from smtdist.models.functional.settings import FunctionalSettings
from smtdist.models.functional.video import VideoModel, fit_video, require_own
from smtdist.models.functional.video_judge import judged_clips, straightness


class VideoSMT(TransformerMixin, TransformEstimator, of=FunctionalSettings):  # type: ignore[misc]
    """Sparse manifold transform of video: codes of patches, and an embedding that straightens their paths (SMT 2018).

    X is clips: the path of an HDF5 file or a list of them (`smtdist.import_videos` writes them), a pair
    (path, names of clips), or an array of frames (time, row, column), uint8, or a list of arrays. Arrays are
    written to a temporary file, which workers on other machines cannot read.

    Fitted attributes: `model_`, `components_` (n_components, atoms), `eigenvalues_`, `passes_`,
    `n_features_in_` (pixels of a patch), `n_iter_` (rounds of the dictionary), `gap_` (relative change of its objective
    over the last tenth of them) and `converged_` (whether that is no more than a hundredth, or the last half shows no
    trend; with `sgd_rounds` those of the mini-batches theirs, too; `model_.ended()` has both).

    >>> frames = np.random.default_rng(0).integers(0, 256, (24, 12, 12), dtype=np.uint8)
    >>> video = VideoSMT(patch=4, length=4, places=4, atoms=12, n_components=3)
    >>> video.fit_transform(frames).shape
    (24, 4, 3)
    """

    MODEL = VideoModel

    def fit(self, X: Any, y: Any = None, *, below: Any = None) -> Self:
        """Fit on clips; `below` is an estimator, a model or a file; the fitted layer is stacked on it. `y` is ignored.

        How sequences are taken and whitened is as in `below`; another value than that or the default is refused.
        """
        settings = self.configuration
        lower = None if below is None else store.model_of(below)
        if lower is not None:
            usual = settings.defaults()
            require_own(settings, [name for name in usual if getattr(settings, name) != usual[name]], lower)
        with clips_of(X) as clips, self._engine(self.checkpoint) as engine:
            model, records = fit_video(clips, settings, engine, lower)
        for sentence in model.advice():
            convergence.warn(sentence)
        return self._fitted(model, records)

    def transform(self, X: Any) -> NDArray[np.float64]:
        """Return the paths of patches through the embedding, (sequences, length, n_components).

        Windows of `length` frames follow one another here; each gives `places` sequences. Memory: all of them.
        """
        check_is_fitted(self)
        with clips_of(X) as clips:
            source = self.model_.sequences(clips)
            with source.opened() as reader:
                parts = [
                    self.model_.embed(reader.read(at, min(at + source.chunk_samples, source.n_samples)))
                    for at in range(0, source.n_samples, source.chunk_samples)
                ]
        return np.concatenate(parts)

    def judge(self, X: Any, sequences: int = 1000) -> dict[str, Any]:
        """Return how straight the paths of clips are in pixels, codes and embedding, and how well patches are reconstructed.

        sequences : use at most this many. See `smtdist.models.functional.video_judge.judged`.
        """
        check_is_fitted(self)
        with clips_of(X) as clips:
            return judged_clips(self.model_, clips, sequences)

    def score(self, X: Any, y: Any = None) -> float:
        """Return how straight the paths of clips are in the embedding: 0 is straight, less is bent."""
        return -float(straightness(self.transform(X)).second_difference)

    def _fitted(self, model: VideoModel, records: list[dict[str, Any]]) -> Self:
        super()._fitted(model, records)
        self.n_features_in_ = model.settings.patch_size**2
        convergence.keep(self, convergence.of_rounds(model.trace))
        if model.ending is not None and not model.ending.converged:
            self.converged_ = False
        return self
