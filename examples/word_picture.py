"""Near words and words often beside, drawn as in SMT 2023, figure 5.

    smtdist fit corpus.txt --model words --out w.h5
    python -m examples.word_picture w.h5 february raccoon --out near.png

Every word has a panel of its own."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from smtdist.errors import ModelError
from smtdist.models import store
from smtdist.models.words.model import Near, WordModel

COLUMNS = 2
MOST_WORDS = 24
PANEL = (7.0, 5.5)
ROOM = 0.6
"""Inches kept free on the right for the last labels."""
FONT, LETTER, LINE = 8, 4.6, 9
"""Size of labels, and about how wide a letter and how high a line of them is, in points."""


def draw_words(
    model: WordModel,
    words: Sequence[str],
    path: Any,
    kind: str,
    count: int = 10,
    panel: tuple[float, float] = PANEL,
    common: int = 0,
) -> None:
    """Draw a panel a word: its `count` nearest words and the `count` most often beside it (SMT 2023, figure 5).

    To the right is the cosine in the embedding, upwards how often a word is beside the one asked for, on a
    scale that is linear up to 1 and logarithmic from there, so that 0 has a place. Words that are among
    both have both marks. `path` is a file or its path, `panel` the inches of a panel. `common` most
    frequent words are left out of those beside it.
    """

    if not 1 <= len(words) <= MOST_WORDS:
        raise ModelError(f"A picture has 1 to {MOST_WORDS} words, but {len(words)} were asked for.")
    columns = min(COLUMNS, len(words))
    rows = -(-len(words) // columns)
    figure = Figure(figsize=(panel[0] * columns, panel[1] * rows), dpi=110, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    labelled = []
    for axis, word in zip(axes.flat, words, strict=False):
        kinds = (
            (model.nearest(word, count), "tab:blue", "o", "nearest in the embedding"),
            (model.most_cooccurring(word, count, common), "tab:orange", "x", "most often beside it"),
        )
        for near, colour, mark, label in kinds:
            axis.scatter(
                [one.cosine for one in near],
                [one.times for one in near],
                c=colour,
                marker=mark,
                label=label,
            )
        axis.margins(x=0.15)
        axis.set_yscale("symlog", linthresh=1)
        axis.set_ylim(bottom=-0.4)
        left, right = axis.get_xlim()
        axis.set_xlim(left, right + ROOM / panel[0] * (right - left))
        axis.set_title(word)
        axis.set_xlabel("cosine in the embedding")
        axis.set_ylabel("times beside it")
        axis.legend(loc="best", fontsize=8)
        each = {one.word: one for one in (*kinds[0][0], *kinds[1][0])}
        labelled.append((axis, list(each.values())))
    for axis in axes.flat[len(words) :]:
        axis.set_axis_off()
    FigureCanvasAgg(figure).draw()  # only now it is known where things are
    for axis, near in labelled:
        _label(axis, near, figure.dpi / 72)
    figure.savefig(path, format=kind, dpi=figure.dpi)


def _label(axis: Any, near: Sequence[Near], pixels: float) -> None:
    """Write words beside their marks, one below the other where they would meet, or above it where there is no room.

    pixels : those of a point.
    """
    bottom = axis.bbox.y0 / pixels
    places = axis.transData.transform([(one.cosine, one.times) for one in near])
    taken = list[tuple[float, float, float]]()  # left, right and foot of what is written already, in points
    for number in sorted(range(len(near)), key=lambda at: (-places[at][1], places[at][0])):
        x, y = places[number] / pixels
        left, right, foot = x + 4, x + 6 + LETTER * len(near[number].word), y + 2
        step = -1
        while any(left < end and right > begin and abs(foot - f) < LINE for begin, end, f in taken):
            foot += step
            if foot < bottom + 2:
                foot, step = y + 2, 1
        taken.append((left, right, foot))
        line = {"arrowstyle": "-", "lw": 0.4, "color": "grey"} if abs(y - foot) > LINE else None
        text = axis.annotate(
            near[number].word,
            (near[number].cosine, near[number].times),
            (4, foot - y),
            textcoords="offset points",
            fontsize=FONT,
            arrowprops=line,
        )
        text.set_in_layout(False)


def main(arguments: list[str] | None = None) -> None:
    """Draw the words of a model."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("words", nargs="+")
    parser.add_argument("--out", required=True, help="picture to write")
    parser.add_argument("--count", type=int, default=10, help="number of words near each")
    options = parser.parse_args(arguments)
    kind = options.out.rsplit(".", 1)[-1]
    draw_words(store.load(options.model), options.words, options.out, kind, options.count)


if __name__ == "__main__":
    main()
