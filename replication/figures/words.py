"""Figure 5: words near in the embedding, and words often beside."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from examples.word_picture import draw_words
from replication.figures.work import Work, with_engine
from smtdist.data.text import TextSource
from smtdist.models import store
from smtdist.models.words.fit import fit_words
from smtdist.models.words.model import WordSettings

TEXTS: Final = ("text/corpus.txt.gz", "text/wikitext2_valid.txt", "text/wikitext2_test.txt")
ASKED: Final[tuple[str, ...]] = ("wolf", "february", "paris", "fever")
"""An animal, a month, a city and, as there is no aspirin in old books, an illness."""
COMMON: Final = 100
"""Most frequent words, which are beside every word and not shown."""
PANEL: Final = (4.45, 4.0)
NEAREST: Final = 10


def figure_5(work: Work) -> tuple[NDArray[np.uint8], dict[str, Any]]:
    """Return the picture, and the nearest words of each word."""
    settings = WordSettings(
        vocabulary=work.sizes.vocabulary,
        min_count=work.sizes.min_count,
        n_components=work.sizes.word_components,
        second_moment="degree",
    )

    def fit(path: Path) -> None:
        source = TextSource.open([str(work.file(name)) for name in TEXTS])
        store.save(with_engine(lambda engine: fit_words(source, settings, engine)[0]), path)

    model = store.load(
        work.kept(f"words-{settings.vocabulary}-{settings.min_count}-{settings.n_components}.h5", fit)
    )
    common = min(COMMON, len(model.vocabulary) // 4)
    asked = [word for word in ASKED if word in model.numbers] or list(model.vocabulary.words[:4])
    room = io.BytesIO()
    draw_words(model, asked, room, "png", min(NEAREST, len(model.vocabulary) - 1), PANEL, common)
    facts = {
        word: {
            "nearest": [near.word for near in model.nearest(word, NEAREST)],
            "beside": [near.word for near in model.most_cooccurring(word, NEAREST, common)],
        }
        for word in asked
    }
    with Image.open(room) as picture:
        return np.asarray(picture.convert("RGB")), facts
