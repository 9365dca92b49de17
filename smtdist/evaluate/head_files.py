"""What files of all heads have in common, and of their predictions; `smtdist.models.store` writes and reads them.

The root has the classes, and as attributes the settings as JSON, what the rows are (`identity`, `parts`), and
versions. `/path` has the penalties that were tried, `/audit` the rows that came and went; the rest is of each kind of head.
"""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smtdist.data.netcdf import Group
from smtdist.data.writing import whole_file
from smtdist.evaluate.cosine_rows import Comparer, Scale
from smtdist.models import readout, store
from smtdist.models.store import Array, alike

_LABELS: Final = ("i", "u", "f", "b", "U")
"""Types of labels: numbers, booleans and strings."""
ROOT: Final = {"label": Array(("class",)), "name": Array(("class",), optional=True)}
PREDICTIONS: Final = {"label": Array(("sample",)), "probability": Array(("sample", "class"), dtype="f8")}
Pieces = Iterable[tuple[int, NDArray[Any], NDArray[np.float64]]]
"""(first row, labels (m,), probabilities (m, c)), in order."""
PATH: Final = alike(("penalty", "error", "top1"), "candidate", dtype="f8")


@dataclass(frozen=True, eq=False)
class About:
    """What a file says of a head, whatever its kind.

    Attributes
    ----------
    kind : "ridge" or "kernel". settings : its parameters, plain JSON. numbers : what was chosen in the fit, plain JSON.
    layout : where parts of a row are, or None. classes : (c,). n_features : of a row. representation : what rows depend on
        (`smtdist.evaluate.stored`), or None. path : of each penalty its error and top-1 share. audit : rows added and
        withdrawn. versions : of what wrote the file. names : what numbers of classes mean, by these numbers; () for nothing.
    """

    kind: str
    settings: dict[str, Any]
    numbers: dict[str, Any]
    layout: readout.Layout | None
    classes: NDArray[Any]
    n_features: int
    representation: tuple[str, ...] | None
    path: Sequence[Mapping[str, float]]
    audit: Sequence[Mapping[str, Any]]
    versions: Mapping[str, str]
    names: tuple[str, ...] = ()

    @property
    def mirrored(self) -> bool:
        """Whether the head sees features of mirror images."""
        return self.layout is not None and readout.has_mirrored(self.layout)


def share_of(numbers: Mapping[str, Any]) -> float:
    """Return the share of the penalty that was chosen; 0 of a head that has none."""
    return float(numbers.get("share", numbers.get("penalty", 0.0)))


def chosen(
    numbers: Mapping[str, Any], path: Sequence[Mapping[str, Any]], audit: Sequence[Any]
) -> tuple[float, float | None]:
    """Return the share of the penalty that was chosen, and its top-1 on rows that were left out, where that is known.

    Where rows have come or gone since, it is not.
    """
    share = share_of(numbers)
    if len(audit) > 1:
        return share, None
    return share, next((tried["top1"] for tried in path if tried["penalty"] == share), None)


def finite_path(path: Sequence[Mapping[str, float]]) -> list[dict[str, float | None]]:
    """Return the penalties that were tried as plain JSON: an error that is not finite is none."""
    return [
        {name: value if math.isfinite(value) else None for name, value in tried.items()} for tried in path
    ]


def edge_sentence(share: float, path: Sequence[Mapping[str, Any]]) -> str:
    """Say so where the penalty of a head that was chosen is the first or the last of those that were tried.

    >>> edge_sentence(0.1, [{"penalty": 0.1}, {"penalty": 1.0}])[:49]
    'The penalty, 0.1, is the smallest that was tried.'
    """
    word, other = edge(share, [one["penalty"] for one in path])
    return word and (
        f"The penalty, {share:g}, is the {word} that was tried. A head can try {other} ones: transform, "
        f"then fit a head with other penalties."
    )


def edge(chosen: float, tried: Sequence[float]) -> tuple[str, str]:
    """Return "smallest" and "smaller" or "largest" and "larger", where what was chosen is that of several; else nothing."""
    for word, other, edge in (("smallest", "smaller", min), ("largest", "larger", max)):
        if len(tried) > 1 and chosen == edge(tried):
            return word, other
    return "", ""


def names_of(classes: NDArray[Any], names: Sequence[str]) -> list[str]:
    """Return the names of classes that are numbers, by names of numbers; [] where there are none.

    >>> names_of(np.array([0, 2]), ("ape", "bee", "cat"))
    ['ape', 'cat']
    """
    by_number = dict(enumerate(names))
    return [by_number.get(number, "") for number in classes.tolist()] if names else []


def about_of(file: Any) -> About:
    """Return what an open file says of its head."""
    attributes = file.attrs
    kind = str(attributes["class_labels"])
    if kind not in _LABELS:
        raise ValueError(f"there are no labels of kind {kind!r}")
    labels = file["label"]
    classes = np.array(labels.asstr()[()].tolist()) if kind == "U" else labels[()]
    classes = classes.astype(bool) if kind == "b" else classes
    if classes.ndim != 1 or len(classes) < 2 or classes.dtype.kind != kind:
        raise ValueError("its classes are not what was written")
    named = [""] * (int(classes.max()) + 1 if "name" in file else 0)
    if "name" in file:
        for label, text in zip(classes.tolist(), file["name"].asstr()[()].tolist(), strict=True):
            named[label] = text
    layout = json.loads(attributes["layout"])
    columns = [file["path"][name][()].tolist() for name in PATH]
    asked = tuple(str(attributes[name]) for name in ("identity", "parts") if name in attributes)
    return About(
        str(attributes["head"]),
        json.loads(attributes["configuration"]),
        json.loads(attributes["numbers"]),
        None if layout is None else readout.layout_from(layout),
        classes,
        store.number(file, "n_features"),
        asked or None,
        [dict(zip(PATH, row, strict=True)) for row in zip(*columns, strict=True)],
        store.read_audit(file["audit"]),
        json.loads(attributes["versions"]),
        tuple(named),
    )


def scales_group(comparer: Comparer) -> Group:
    """Return how features are scaled before they are compared: mean and inverse deviation of each part that is."""
    variables: dict[str, Any] = {}
    for place, name, scale in _named(comparer.scales):
        if scale.mean is not None and scale.inverse is not None:
            variables[f"mean_{name}"] = (f"feature_{place}", scale.mean)
            variables[f"inverse_{name}"] = (
                f"feature_{place}",
                scale.inverse,
                {"long_name": "1 / deviation"},
            )
    return Group(variables)


def read_comparer(group: Any, layout: readout.Layout, temperature: float) -> Comparer:
    """Read what `scales_group` wrote."""
    found: list[list[Scale]] = [[] for _ in layout]
    for number, columns in enumerate(layout):
        for part, one in enumerate(columns):
            name = f"{number}_{part}"
            if not one.block.counts:
                found[number].append(Scale())
                continue
            names = f"mean_{name}", f"inverse_{name}"
            arrays = alike(names, "feature")
            store.require(group, {"": arrays}, feature=one.block.size)
            found[number].append(Scale(*store.arrays_in(group, arrays).values()))
    return Comparer(tuple(tuple(scales) for scales in found), temperature)


def _named(scales: Sequence[Sequence[Scale]]) -> Iterator[tuple[int, str, Scale]]:
    place = 0
    for number, row in enumerate(scales):
        for part, scale in enumerate(row):
            yield place, f"{number}_{part}", scale
            place += 1


def save_predictions(
    path: str | os.PathLike[str],
    pieces: Pieces,
    n_samples: int,
    classes: NDArray[Any],
    attributes: dict[str, Any],
    *,
    names: Sequence[str] = (),
    overwrite: bool = False,
) -> int:
    """Write `label(sample)` and `probability(sample, class)` piece by piece; return the file's bytes. Memory: one piece.

    names : what labels mean that are numbers, by these numbers; they become `classes`, as in files of images.
    """
    kind = "" if classes.dtype.kind == "U" else classes.dtype.str
    return store.save_rows(
        path,
        {**PREDICTIONS, "label": PREDICTIONS["label"]._replace(dtype=kind)},
        {"sample": np.arange(n_samples), "class": classes},
        pieces,
        {**store.version("predictions"), **attributes},
        names=names,
        overwrite=overwrite,
    )


def save_csv(
    path: str | os.PathLike[str],
    pieces: Pieces,
    classes: NDArray[Any],
    *,
    names: Sequence[str] = (),
    overwrite: bool = False,
) -> int:
    """Write a line for each row: its number, its label, and the probability of each class; return the file's bytes.

    names : what labels mean that are numbers, by these numbers; they follow the label, and head the probabilities.
    """
    plain, called = classes.tolist(), names_of(classes, names)
    cells: list[tuple[Any, ...]] = (
        list(zip(plain, called, strict=True)) if called else [(label,) for label in plain]
    )
    by_label = dict(zip(plain, cells, strict=True))
    with whole_file(path, overwrite) as temporary, open(temporary, "w", newline="") as file:
        lines = csv.writer(file)
        headings = (f"probability_{cell[-1] or cell[0]}" for cell in cells)
        lines.writerow(["sample", *("label", "name")[: len(cells[0])], *headings])
        for first, labels, shares in pieces:
            rows = zip(labels.tolist(), shares.tolist(), strict=True)
            lines.writerows(
                [place, *by_label[label], *share] for place, (label, share) in enumerate(rows, first)
            )
    return Path(path).stat().st_size
