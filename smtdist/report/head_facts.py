"""What files of heads and of their predictions hold."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from smtdist.data.showing import n_samples
from smtdist.errors import counted
from smtdist.evaluate import head_files, predictions
from smtdist.models import store
from smtdist.monitor import tables

if TYPE_CHECKING:
    from smtdist.evaluate.probe import LinearEvaluation

Facts = dict[str, Any]
LISTED: Final = 20
"""Classes that are named in a table."""


def head_facts(path: Path) -> Facts:
    """Return the facts about a head as plain JSON types; of its arrays only the shapes are looked at."""
    with store.opened(path, "head") as file:
        about = head_files.about_of(file)
        facts: Facts = {
            "configuration": about.settings,
            "provenance": {"versions": dict(about.versions)},
            "audit": [dict(entry) for entry in about.audit],
            "head": about.kind,
            "n_samples": n_samples({"audit": about.audit}),
            "n_features": about.n_features,
            "n_classes": len(about.classes),
            "classes": about.classes.tolist(),
            "names": head_files.names_of(about.classes, about.names),
            "mirrored": about.mirrored,
            "numbers": about.numbers,
            "path": head_files.finite_path(about.path),
        }
        if about.representation is not None:
            facts["provenance"]["identity"] = about.representation[0]
        if "training" in file:
            rows = file["training"]["rows"]
            facts["training"] = {"shape": list(rows.shape), "dtype": rows.dtype.name, "bytes": rows.nbytes}
        landmarks = file.get("landmarks")
        if landmarks is not None:
            facts["n_landmarks"] = int(landmarks["rows"].shape[0])
        return facts


def head_readable(facts: Facts) -> list[tuple[str, str]]:
    """Return those that a person wants to see."""
    numbers, names = facts["numbers"], [str(one) for one in facts["names"] or facts["classes"]]
    share, top = head_files.chosen(facts["numbers"], facts["path"], facts["audit"])
    rows = [
        ("head", head_named(facts)),
        ("rows", f"{facts['n_samples']:,} of {facts['n_features']:,} numbers"),
    ]
    if facts["mirrored"]:
        rows.append(("mirror images", "inside the kernel"))
    more = f" and {len(names) - LISTED:,} more" if len(names) > LISTED else ""
    rows.append(("classes", f"{len(names):,}: {' '.join(names[:LISTED])}{more}"))
    if facts["path"]:
        judged = "" if top is None else f", with top-1 of {tables.percent(top)} on rows left out"
        unit = "mean diagonal of the kernel" if facts["head"] == "kernel" else "mean eigenvalue"
        rows.append(("penalty", f"{share:g} of the {unit}{judged}"))
        rows.append(("probabilities", f"soft-max of {numbers['heat']:.3g} f, fitted on rows left out"))
    if "training" in facts:
        training = facts["training"]
        rows.append(("training rows", f"{training['dtype']}, {tables.size(training['bytes'])} of the file"))
    versions = facts["provenance"]["versions"]
    rows.append(("written with", ", ".join(f"{name} {number}" for name, number in versions.items())))
    return rows


def linear_edge_sentence(found: LinearEvaluation) -> str:
    """Say the same of the C of a linear classifier, and which function can try others.

    >>> import numpy as np
    >>> from smtdist.evaluate.svm import evaluate_svm
    >>> z = np.repeat(np.eye(2), 10, axis=0)
    >>> linear_edge_sentence(evaluate_svm(z, [0] * 10 + [1] * 10, z, [0] * 10 + [1] * 10, C=[0.1, 1.0]))
    'C, 0.1, is the smallest that was tried. In Python, evaluate_svm of smtdist.evaluate.svm can try smaller ones.'
    """
    word, other = head_files.edge(found.C, [one["C"] for one in found.path])
    return word and (
        f"C, {found.C:g}, is the {word} that was tried. In Python, evaluate_{found.metric} of {type(found).__module__} can "
        f"try {other} ones."
    )


def head_named(facts: Facts) -> str:
    """Return what a head is, in words."""
    if "temperature" not in facts["configuration"]:  # the head of a package
        return str(facts["head"])
    kernel = f"with exp((cosine - 1) / {facts['configuration']['temperature']:g})"
    if facts["head"] == "kernel":
        return f"exact kernel ridge regression {kernel}"
    if "n_landmarks" in facts:
        return f"ridge regression through {counted(facts['n_landmarks'], 'landmark')} {kernel}, from exact sums"
    return "ridge regression, from exact sums"


def prediction_facts(path: Path) -> Facts:
    """Return the facts about predictions as plain JSON types."""
    with store.opened(path, "predictions") as file:
        sizes, about = store.require(file, {"": predictions.ARRAYS}), file.attrs
        return {
            "configuration": {},
            "provenance": {name: str(about[name]) for name in ("head", "source") if name in about},
            "audit": [],
            "n_samples": sizes["sample"],
            "n_classes": sizes["class"],
        }


def prediction_readable(facts: Facts) -> list[tuple[str, str]]:
    """Return those that a person wants to see."""
    rows = [
        ("predictions", f"{counted(facts['n_samples'], 'sample')}, {counted(facts['n_classes'], 'class')}")
    ]
    return rows + [(name, value) for name, value in facts["provenance"].items()]
