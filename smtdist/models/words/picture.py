"""Near words and words often beside, drawn as in SMT 2023, figure 5."""

from __future__ import annotations

from collections.abc import Sequence

from smtdist.errors import ModelError
from smtdist.models.words.model import Near, WordModel

COLUMNS = 2
MOST_WORDS = 24


def draw_words(model: WordModel, words: Sequence[str], path: str, kind: str, count: int = 10) -> None:
    """Draw a panel a word: its `count` nearest words and the `count` most often beside it (SMT 2023, figure 5).

    To the right is the cosine in the embedding, upwards how often a word is beside the one asked for, on a scale that is linear
    up to 1 and logarithmic from there, so that 0 has a place. Words that are among both have both marks.
    """
    from matplotlib.figure import Figure  # half a second that other uses need not wait

    if not 1 <= len(words) <= MOST_WORDS:
        raise ModelError(f"A picture has 1 to {MOST_WORDS} words, but {len(words)} were asked for.")
    columns = min(COLUMNS, len(words))
    rows = -(-len(words) // columns)
    figure = Figure(figsize=(7 * columns, 5.5 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis, word in zip(axes.flat, words, strict=False):
        kinds = (
            (model.nearest(word, count), "tab:blue", "o", "nearest in the embedding"),
            (model.most_cooccurring(word, count), "tab:orange", "x", "most often beside it"),
        )
        for near, colour, mark, label in kinds:
            axis.scatter(
                [one.cosine for one in near], [one.times for one in near], c=colour, marker=mark, label=label
            )
        for one in _each_once([*kinds[0][0], *kinds[1][0]]):
            axis.annotate(one.word, (one.cosine, one.times), (4, 3), textcoords="offset points", fontsize=8)
        axis.set_yscale("symlog", linthresh=1)
        axis.set_ylim(bottom=-0.3)
        axis.set_title(word)
        axis.set_xlabel("cosine in the embedding")
        axis.set_ylabel("times beside it")
        axis.legend(loc="best", fontsize=8)
    for axis in axes.flat[len(words) :]:
        axis.set_axis_off()
    figure.savefig(path, format=kind, dpi=110)


def _each_once(near: list[Near]) -> list[Near]:
    return list({one.word: one for one in near}.values())
