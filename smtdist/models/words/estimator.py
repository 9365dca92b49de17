"""Words embedded by whom they occur near, as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from smtdist.data.text import text_of
from smtdist.models.estimating import TransformEstimator
from smtdist.models.words.fit import fit_words, withdraw_lines
from smtdist.models.words.model import Near, WordModel, WordSettings, rank_correlation
from smtdist.settings import one_of, setting


class WordSMT(TransformEstimator, of=WordSettings):
    """Sparse manifold transform of words, from the words that occur near them (SMT 2023, appendix B).

    X is text: the path of a file (plain or gzipped, one paragraph a line) or several paths. With
    `input="content"` X is a list of documents in memory, one paragraph each. `transform` takes words and
    returns their vectors. The fit has no random choices, so there is no `random_state`.

    Fitted attributes: `model_`, `words_`, `vectors_` (words, n_components), `components_`, `eigenvalues_`,
    `passes_`.

    >>> words = WordSMT(window=2, n_components=2, max_words=64, input="content")
    >>> words.fit(["a cat sat here", "a dog sat there", "a cat ran there", "a dog ran here"] * 20).words_[:2]
    ['a', 'cat']
    >>> words.transform(["cat", "dog"]).shape, words.most_cooccurring("cat", 1)[0].word
    ((2, 2), 'a')
    """

    MODEL = WordModel
    model_: WordModel

    input: str = setting(
        one_of("filename", "content"),
        'what X holds: the names of files ("filename") or documents ("content").',
        default="filename",
    )

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit on text; `y` is ignored."""
        settings = self.configuration
        with text_of(X, content=self._content) as text, self._engine(self.checkpoint) as engine:
            model, records = fit_words(text, settings, engine)
        return self._fitted(model, records)

    def transform(self, X: Iterable[str]) -> NDArray[np.float64]:
        """Return the vectors of words, (n, n_components); ModelError for one that is not in the vocabulary."""
        check_is_fitted(self)
        return np.asarray(self.vectors_[[self.model_.number(word) for word in X]])

    def nearest(self, word: str, count: int = 10) -> list[Near]:
        """Return the words of the largest cosine with a word, the nearest first."""
        check_is_fitted(self)
        return self.model_.nearest(word, count)

    def most_cooccurring(self, word: str, count: int = 10) -> list[Near]:
        """Return the words that are most often near a word."""
        check_is_fitted(self)
        return self.model_.most_cooccurring(word, count)

    def score(self, X: Iterable[tuple[str, str]], y: Sequence[float]) -> float:
        """Return Spearman's correlation of the cosines of pairs of words with human judgements of them.

        Pairs with an unknown word are left out.
        """
        check_is_fitted(self)
        judged = [(one, other, float(value)) for (one, other), value in zip(X, y, strict=True)]
        return rank_correlation(self.vectors_, self.model_.numbers, judged)[0]

    def withdraw(self, X: Any, lines: Sequence[tuple[int, int]] = ()) -> Self:
        """Take text out of the fitted model; with `lines`, only these ranges of lines of one file, counted from 1."""
        check_is_fitted(self)
        if not lines:
            return self._updated(X, withdraw=True)
        with text_of(X, content=self._content) as text, self._engine(self.checkpoint) as engine:
            model, records = withdraw_lines(self.model_, text, list(lines), engine)
        return self._fitted(model, records)

    def _updated(self, X: Any, *, withdraw: bool) -> Self:
        with text_of(X, content=self._content) as text:
            return super()._updated(text, withdraw=withdraw)

    @property
    def _content(self) -> bool:
        return bool(self.checked("input") == "content")

    def _fitted(self, model: WordModel, records: list[dict[str, Any]]) -> Self:
        super()._fitted(model, records)
        self.words_ = list(model.vocabulary.words)
        self.vectors_ = model.vectors()
        self._n_features_out = self.vectors_.shape[1]
        return self
