"""Word models as open HDF5/NetCDF4 files, and their vectors in word2vec's text format.

Groups `/vocabulary`, `/statistics` (pairs as CSR: the pairs of word i are `column[start[i]:start[i + 1]]`,
all >= i), `/embedding` and `/audit` open with `xarray.open_dataset(path, group=..., engine="h5netcdf")`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smtdist.data.netcdf import Group, write_netcdf
from smtdist.data.writing import whole_file
from smtdist.errors import ModelError
from smtdist.models import groups as file_groups
from smtdist.models import layouts
from smtdist.models.words.model import WordModel, WordSettings
from smtdist.statistics.origin import Origin
from smtdist.statistics.vocabulary import Vocabulary
from smtdist.statistics.word_pairs import WordSums

SCHEMA: Final = 1
DOCUMENT: Final = "document"
"""A further column of the audit where part of a file was withdrawn: which bytes of which file."""
_STATISTICS: Final[layouts.Arrays] = {
    **dict.fromkeys(("n_samples", "n_positions"), ()),
    "activity": ("word",),
    "start": ("edge",),
    **dict.fromkeys(("column", "count"), ("pair",)),
}


def save_words(model: WordModel, path: str | os.PathLike[str], *, overwrite: bool = False) -> int:
    """Write a model to one file and return its bytes; an existing file is refused unless `overwrite`."""
    about = file_groups.without_audit(model.provenance)
    root = Group(
        attributes={
            "smtdist_words_schema": SCHEMA,
            "title": "Words embedded by the sparse manifold transform",
            "configuration": model.settings.to_json(),
            "provenance": json.dumps(about),
            "fingerprint": about.get("fingerprint", ""),
        }
    )
    return write_netcdf(path, root, _groups(model), overwrite=overwrite, squeezed=_long)


def _long(values: NDArray[Any]) -> bool:
    return values.size > 10**4


def load_words(path: str | os.PathLike[str], *, statistics: bool = True) -> WordModel:
    """Read a model; without `statistics` the pairs stay on disk. Raises ModelError for anything else or damaged."""
    with file_groups.reading(path, "model of words") as file:
        if "smtdist_words_schema" not in file.attrs:
            raise ModelError(f"{path} is not a model of words; give one written by smtdist words.")
        file_groups.require_schema(file, path, "smtdist_words_schema", SCHEMA)
        return _read(file, statistics)


def write_word2vec(model: WordModel, path: str | os.PathLike[str], *, overwrite: bool = False) -> int:
    """Write the vectors as word2vec text: "K L", then a word and its L numbers a line; return the bytes.

    Words that take no part are left out. Memory: the vectors. Tokens hold no white space, so that every
    line parts.
    """
    vectors, words = model.vectors(), model.vocabulary.words
    kept = np.flatnonzero(np.any(vectors != 0, axis=1))
    with whole_file(path, overwrite) as temporary, open(temporary, "w", encoding="utf-8") as file:
        file.write(f"{len(kept)} {vectors.shape[1]}\n")
        for number in kept:
            file.write(words[number] + " " + " ".join(f"{value:.9g}" for value in vectors[number]) + "\n")
    return Path(path).stat().st_size


def _groups(model: WordModel) -> Iterator[tuple[str, Group]]:
    words, counts = np.array(model.vocabulary.words, object), model.vocabulary.counts
    about = {"long_name": "in the text it was chosen from"}
    yield "vocabulary", Group({"words": ("word", words), "counts": ("word", counts, about)})
    if model.statistics is not None:
        yield "statistics", _statistics(model.statistics)
        origin = model.statistics.origin
        if origin is not None:
            yield "audit", file_groups.audit_group(origin.audit, basis=origin.basis)
    if model.embedding is not None:
        yield "embedding", file_groups.solution_group(model.embedding, "word")


def _statistics(sums: WordSums) -> Group:
    row, column = sums.upper()
    start = np.searchsorted(row, np.arange(sums.n_words + 1))
    variables: dict[str, Any] = {
        "n_samples": ((), sums.n_samples),
        "n_positions": ((), sums.n_positions),
        "activity": ("word", sums.activity),
        "start": ("edge", start.astype(np.int64)),
        "column": ("pair", column.astype(np.int32)),
        "count": ("pair", sums.count, {"long_name": "pairs of near positions, each counted once"}),
    }
    if sums.origin is not None:
        about = {"long_name": "hash of the block of text"}
        variables["sample_digest"] = ("sample", sums.origin.samples, about)
    return Group(variables)


def _read(file: Any, statistics: bool) -> WordModel:
    settings = WordSettings.from_json(str(file.attrs["configuration"]))
    provenance = json.loads(file.attrs["provenance"])
    _require_layout(file)
    group = file["vocabulary"]
    vocabulary = Vocabulary(tuple(group["words"].asstr()[()].tolist()), group["counts"][()])
    embedding = file_groups.read_solution(file["embedding"]) if "embedding" in file else None
    sums = None
    if "audit" in file:
        provenance["audit"] = file_groups.read_audit(file["audit"])
    if statistics and "statistics" in file:
        basis = str(file["audit"].attrs["basis"]) if "audit" in file else None
        sums = _read_statistics(file["statistics"], basis, provenance.get("audit", []))
    return WordModel(settings, vocabulary, sums, embedding, provenance)


def _require_layout(file: Any) -> None:
    """Refuse a file whose arrays are missing or do not fit together."""
    layout = {"vocabulary": dict.fromkeys(("words", "counts"), ("word",))}
    words = file["vocabulary"].get("words")
    sizes = {"edge": len(words) + 1} if getattr(words, "shape", None) else {}
    file_groups.require_arrays(file, layout, "word", _STATISTICS, **sizes)


def _read_statistics(group: Any, basis: str | None, audit: list[dict[str, Any]]) -> WordSums:
    start, column, count = (group[name][()].astype(np.int64) for name in ("start", "column", "count"))
    activity = group["activity"][()]
    n_words = len(activity)
    _require(
        start[0] == 0 and bool(np.all(np.diff(start) >= 0)) and bool(start[-1] == len(column)),
        "pairs are missing",
    )
    row = np.repeat(np.arange(n_words), np.diff(start))
    pair: NDArray[np.int64] = row * n_words + column
    _require(
        bool(np.all(np.diff(pair) > 0)) and bool(np.all((row <= column) & (column < n_words))),
        "pairs are out of order",
    )
    origin = None
    if basis is not None and "sample_digest" in group:
        origin = Origin(basis, group["sample_digest"][()], np.zeros(0, np.uint64), tuple(audit))
    n_samples, n_positions = (int(group[name][()]) for name in ("n_samples", "n_positions"))
    return WordSums(n_samples, n_positions, activity, pair, count, origin)


def _require(fine: bool, otherwise: str) -> None:
    if not fine:
        raise ValueError(otherwise)
