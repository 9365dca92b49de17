"""What files hold: models of images, words, points, video and kernels, coders, concepts, representations, heads, images.

And what this installation has.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

import h5py
import numpy as np

from smtdist.configuration import CODED, nearest_preset
from smtdist.data import hdf5, look, opening
from smtdist.data.encoded import EncodedLook
from smtdist.data.locations import is_zarr
from smtdist.data.showing import n_samples
from smtdist.engine.manifest import NAME as RECORD
from smtdist.errors import DataError, ModelError, counted
from smtdist.evaluate import head_files
from smtdist.kernels import convergence, products
from smtdist.kernels.cpu.dictionary import in_use
from smtdist.kernels.device import device_name
from smtdist.kernels.gpu import card
from smtdist.kernels.threads import available_cores
from smtdist.models import coded, jobs, kinds, store, transform
from smtdist.models.coders.manifold import ManifoldSettings
from smtdist.models.provenance import versions
from smtdist.monitor import tables
from smtdist.settings import SHARED

Facts = dict[str, Any]
MOST_GROUPS = 100
"""Groups of images that are looked at in a file that has more."""
LISTED: Final = 20
"""Classes of a head that are named in a table."""
MOST_OBJECTS = 1000
"""Objects of a file among which images are looked for below its top."""


class Kind(NamedTuple):
    """A kind of file: its facts as plain JSON, and those that a person wants to see.

    sections : the function of `smtdist.report.sections` that returns what a report shows beside them; it draws.
    """

    described: Callable[[Path], Facts]
    readable: Callable[[Facts], list[tuple[str, str]]]
    sections: str = ""


def installation() -> tuple[Facts, list[tuple[str, str]]]:
    """Return versions, cores, and how this processor multiplies: as plain JSON, and as a person reads it."""
    facts = {"versions": versions(), "cores": available_cores(), "gpu": device_name(), **in_use()}
    facts["gpu_missing"] = card.missing()
    facts |= {"code_products": products.ORDERED, "library": products.library()}
    return facts, [
        *facts["versions"].items(),
        ("cores", str(facts["cores"])),
        ("GPU", facts["gpu"] or f"no: {facts['gpu_missing']}"),
        ("products", facts["products"]),
        ("processor", " ".join(facts["cpu_flags"])),
        ("products of codes", "ours, in one order: the same bits on any processor"),
        ("other products", facts["library"]),
    ]


def kind_of(path: Path) -> str:
    """Return which kind of file it is, a name in `kinds.KINDS` or "images"; ModelError where it is neither HDF5 nor Zarr."""
    if is_zarr(path) and path.is_dir():
        return "images"
    if (path / RECORD).is_file():
        raise ModelError(
            f"{path} is the checkpoint folder of a run; smtdist watch shows the run, smtdist resume goes on with it, and smtdist "
            f"check reads its files."
        )
    if path.is_dir():
        raise ModelError(
            f"{path} is a folder; give one file. smtdist import brings a folder of images into a file."
        )
    if not path.is_file():
        raise ModelError(f"There is no file {path}; check the name.")
    hdf5.require_content(path, ModelError)
    try:
        with hdf5.open_file(str(path)) as file, hdf5.damage_named(path):
            return store.kind_in(file)
    except DataError as error:
        raise ModelError(
            f"{path} is not a readable HDF5 file; give one written by smtdist, or copy it again in full."
        ) from error


def facts_of(path: Path) -> Facts:
    """Return the facts about a file as plain JSON types: name, `kind`, `bytes`, `configuration`, `audit`, and its kind's own."""
    kind = kind_of(path)
    inside = [one for one in path.rglob("*") if one.is_file()] if path.is_dir() else [path]
    name, size = str(path.absolute()), sum(one.stat().st_size for one in inside)
    facts = {"file": name, "kind": kind, "bytes": size, **looks_of(kind).described(path)}
    try:
        json.dumps(facts, allow_nan=False, default=float)
        looks_of(kind).readable(facts)
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        raise ModelError(
            f"{path} says of itself what no file of smtdist says ({hdf5.reason_of(error)}); make it again."
        ) from error
    return facts


def looks_of(kind: str) -> Kind:
    """Return how files of a kind are described; a kind of another package in plain words."""
    if kind == "images":
        return IMAGES
    named = kinds.KINDS[kind].facts
    return globals()[named] if named else Kind(_other, _other_readable)


def _other(path: Path) -> Facts:
    model = store.load(path, statistics=False)
    return {**_told(model), **model.summary()}


def _other_readable(facts: Facts) -> list[tuple[str, str]]:
    said = {name: _said(value) for name, value in facts.items() if name not in ("file", "bytes")}
    return [(name.replace("_", " "), text) for name, text in said.items() if text]


def _said(value: Any) -> str:
    """Return a value, or a list of them, as text; nothing for what is neither.

    >>> _said(1200), _said([0.123456, 2.0]), _said({})
    ('1,200', '0.1235, 2', '')
    """
    if isinstance(value, list):
        return ", ".join(filter(None, map(_said, value)))
    plain = isinstance(value, str | int | float)
    return format(value, {int: ",", float: ".4g"}.get(type(value), "")) if plain else ""


def _told(model: Any) -> Facts:
    """Return what is said of a model of any kind."""
    return {
        "configuration": {} if model.settings is None else model.settings.shown(),
        "provenance": store.without_audit(model.provenance),
        "audit": model.provenance.get("audit", []),
    }


def _named_today(stored: Facts) -> Facts:
    """Return settings of a file that does not say whose they are under their names of today, those of a model that has all.

    >>> _named_today({"patch": 3, "dictionary": 64}), _named_today({"size": 300, "of_sites": {}})
    ({'patch_size': 3, 'n_atoms': 64}, {'n_atoms': 300, 'of_sites': {}})
    """
    codes = (coded.code_of(code).settings.declared() | ManifoldSettings.declared() for code in CODED)
    models = (jobs.declared(model) for kind in reversed(kinds.KINDS.values()) for model in kind.fits)
    known = (
        {field.metadata["setting"].stored or name: name for name, field in one.items()}
        for one in chain(models, codes)
    )
    # an encoder of a package has names that others share
    others = {one.stored: name for name, one in SHARED.items() if one.stored}
    names = next((one for one in known if stored.keys() <= one.keys()), others)
    return {names.get(name, name): value for name, value in stored.items()}


def _model(path: Path) -> Facts:
    return _of_model(store.load(path, statistics=False), path)


def _joined(path: Path) -> Facts:
    found = store.load(path, statistics=False)
    models = {name: _of_model(one, path) for name, one in zip(found.names, found.parts, strict=True)}
    return {"configuration": {}, "audit": next(iter(models.values()))["audit"], "models": models}


def _joined_readable(facts: Facts) -> list[tuple[str, str]]:
    return [
        (f"{model}: {name}", value)
        for model, of_it in facts["models"].items()
        for name, value in _model_readable(of_it)
    ]


def _of_model(model: Any, path: Path) -> Facts:
    model.require_ready(path)
    embedding = model.embedding
    values = embedding.eigenvalues
    provenance = {
        name: value for name, value in model.provenance.items() if name not in ("leaf_digests", "audit")
    }
    return {
        "configuration": model.settings.shown(),
        "geometry": model.geometry._asdict(),
        "provenance": provenance,
        "audit": model.provenance.get("audit", []),
        "n_atoms": len(model.dictionary.grid),
        "n_dead": embedding.n_dead,
        **convergence.facts_of(model.ending),
        "rank": embedding.rank,
        "n_components_stored": len(values),
        "spectrum": {
            "smallest": float(values[0]),
            "median": float(values[len(values) // 2]),
            "largest": float(values[-1]),
            "worst_residual": float(embedding.residuals.max()),
        },
    }


def _components(stored: int, drop: int) -> str:
    """Return how many components represent an image, and how many come before them.

    >>> _components(416, 32), _components(384, 0)
    ('384, after 32 that are dropped', '384')
    """
    return f"{stored - drop:,}, after {drop:,} that are dropped" if drop else f"{stored:,}"


def _votes(settings: dict[str, Any]) -> str:
    """Return how `evaluate` lets neighbours vote on a model with these settings."""
    weights = {
        "exp": f"exp(cosine / {settings['temperature']:g})",
        "linear": "the cosine",
        "hard": "one vote",
    }
    mirrored = "; mirrored training images vote too" if settings["mirrored_votes"] else ""
    return f"{counted(settings['n_neighbors'], 'neighbour')}, {weights[settings['vote']]} each{mirrored}"


def _model_readable(facts: Facts) -> list[tuple[str, str]]:
    geometry = facts["geometry"]
    provenance = facts["provenance"]
    spectrum = facts["spectrum"]
    source = provenance.get("source", {})
    shape = " x ".join(f"{length:,}" for length in source.get("shape", []))
    versions = provenance.get("versions", {})
    first = f"the first {source['first']:,} of " if "first" in source else ""
    return [
        (
            "fitted on",
            f"{first}{source.get('path') or 'an array'}:{source.get('dataset')}, {source.get('dtype')} {shape}",
        ),
        ("fingerprint", str(provenance.get("fingerprint", ""))),
        (
            "images",
            f"{geometry['height']} x {geometry['width']} x {geometry['channels']}, "
            f"patches of {geometry['patch']}",
        ),
        *(
            [("skipped", skipped.removeprefix("; "))]
            if (skipped := tables.skipped_phrase(provenance.get("skipped", [])))
            else []
        ),
        ("atoms", f"{facts['n_atoms']:,}, of which {facts['n_dead']:,} never fire"),
        *([("dictionary", convergence.told(facts))] if "n_iter" in facts else []),
        ("rank", f"{facts['rank']:,}"),
        (
            "components",
            _components(facts["n_components_stored"], facts["configuration"]["drop_components"]),
        ),
        (
            "eigenvalues",
            f"{spectrum['smallest']:.4g} to {spectrum['largest']:.4g}, median {spectrum['median']:.4g}",
        ),
        ("worst residual", f"{spectrum['worst_residual']:.1e}"),
        *([("preset", name)] if (name := nearest_preset(facts["configuration"])) else []),
        ("judged by", _votes(facts["configuration"])),
        ("written with", ", ".join(f"{name} {number}" for name, number in versions.items())),
    ]


def _words(path: Path) -> Facts:
    model = store.load(path, statistics=False)
    with hdf5.open_file(str(path)) as file, hdf5.damage_named(path):
        sums = file.get("statistics")
        counts = (
            {} if sums is None else {name: int(sums[name][()]) for name in ("n_samples", "n_positions")}
        )
        pairs = 0 if sums is None else int(sums["column"].shape[0])
    facts: Facts = {
        **_told(model),
        "n_words": len(model.vocabulary),
        "most_frequent": list(model.vocabulary.words[:10]),
        "n_pairs": pairs,
        **counts,
    }
    if model.embedding is not None:
        values = model.embedding.eigenvalues
        facts |= {
            "rank": int(model.embedding.rank),
            "n_dead": int(model.embedding.dead.sum()),
            "n_components_stored": len(values),
            "eigenvalues": [float(values[0]), float(values[-1])],
        }
    return facts


def _words_readable(facts: Facts) -> list[tuple[str, str]]:
    rows = [
        ("words", f"{facts['n_words']:,}, the most frequent: {' '.join(facts['most_frequent'])}"),
        (
            "counts",
            f"{facts['n_pairs']:,} different pairs within {facts['configuration']['window']} tokens",
        ),
    ]
    if "n_samples" in facts:
        rows.append(
            (
                "text",
                f"{facts['n_samples']:,} blocks, {facts['n_positions']:,} tokens that are among the words",
            )
        )
    if "rank" in facts:
        low, high = facts["eigenvalues"]
        rows += [
            (
                "components",
                f"{facts['n_components_stored']:,} stored, {facts['n_dead']:,} words take no part",
            ),
            ("eigenvalues", f"{low:.4g} to {high:.4g}"),
        ]
    return rows


def _kernel_readable(facts: Facts) -> list[tuple[str, str]]:
    rows = [
        ("model", facts["model"]),
        ("samples", " x ".join(str(length) for length in facts["shape"])),
        ("decoder", "yes" if facts["has_decoder"] else "none"),
    ]
    known = ("rank", "n_positive", "n_negative", "ridge", "loss", "n_iter", "converged", "gradient_norm")
    names = (
        {"gradient_norm": "change in the last tenth of rounds"}
        if facts["configuration"].get("feature_map")
        else {}
    )
    return rows + [
        (names.get(name, name.replace("_", " ")), str(facts[name]))
        for name in known
        if facts.get(name) is not None
    ]


def _concepts(path: Path) -> Facts:
    model = store.load(path)
    return {
        **_told(model),
        "n_points": model.points,
        "n_concepts": model.n_concepts,
        "n_dense": int(model.dense.sum()),
        "members": {
            "fewest": int(model.members.min()) if model.n_concepts else 0,
            "median": float(np.median(model.members)) if model.n_concepts else 0.0,
            "most": int(model.members.max(initial=0)),
        },
        "cka": model.cka,
        "loss": model.loss,
        "sweeps": len(model.history),
        **({} if model.ending is None else vars(model.ending)),
    }


def _concepts_readable(facts: Facts) -> list[tuple[str, str]]:
    members, ended = facts["members"], "converged"
    if not facts.get("converged", True):
        gap = facts["gap"]
        ended = f"not converged: the last sweep lowered the objective by {gap:.1g} of it; raise max_iter"
    return [
        (
            "concepts",
            f"{facts['n_concepts']:,} of {counted(facts['n_points'], 'point')}, {facts['n_dense']:,} of them dense",
        ),
        ("members", f"{members['fewest']:,} to {members['most']:,}, median {members['median']:,.0f}"),
        ("alignment", f"{facts['cka']:.4f}"),
        ("loss", f"{facts['loss']:.4g} after {facts.get('n_iter', facts['sweeps']):,} sweeps"),
        *([("search", ended)] if "converged" in facts else []),
    ]


def _coder(path: Path) -> Facts:
    """Return the facts about a coder of patches, or a manifold transform on one, as plain JSON types."""
    found = store.load(path, statistics=False)
    coder: Any = found.coder
    units, pixels = coder.basis.shape
    facts: Facts = {
        "configuration": coder.settings.shown(),
        "provenance": coder.provenance,
        "audit": [],
        "shape": list(coder.shape),
        "n_units": int(units),
        "n_pixels": int(pixels),
        "rounds": len(coder.trace),
        "objective": [float(coder.trace[0]), float(coder.trace[-1])] if coder.trace else [],
        **convergence.facts_of(coder.ending),
    }
    if hasattr(coder, "active"):
        facts["active"] = coder.active
    if found is not coder and found.embedding is not None:
        values = found.embedding.eigenvalues
        facts |= {
            "configuration": coded.named_settings(found),
            "provenance": {**coder.provenance, **store.without_audit(found.provenance)},
            "audit": found.provenance.get("audit", []),
            "embedding": found.settings.shown(),
            "n_dead": found.embedding.n_dead,
            "rank": found.embedding.rank,
            "n_components_stored": len(values),
            "eigenvalues": [float(values[0]), float(values[-1])],
        }
    return facts


def _coder_readable(facts: Facts) -> list[tuple[str, str]]:
    rows = [
        ("images", " x ".join(str(length) for length in facts["shape"])),
        ("units", f"{facts['n_units']:,} over {facts['n_pixels']:,} values of a patch"),
        ("rounds", f"{facts['rounds']:,}"),
    ]
    if facts["objective"]:
        first, last = facts["objective"]
        rows.append(("objective of a patch", f"{first:.4g} to {last:.4g}"))
        rows.append(("learning", convergence.told(facts)))
    if "active" in facts:
        rows.insert(2, ("active", f"{facts['active']:.1f} atoms a patch"))
    if "eigenvalues" in facts:
        low, high = facts["eigenvalues"]
        rows += [
            ("fingerprint", str(facts["provenance"].get("fingerprint", "not kept"))),
            ("dead", f"{facts['n_dead']:,} units never fire"),
            # files of earlier versions do not say it
            *([("rank", f"{facts['rank']:,}")] if facts["rank"] else []),
            ("components", f"{facts['n_components_stored']:,} stored, eigenvalues {low:.4g} to {high:.4g}"),
        ]
    return rows


def _video(path: Path) -> Facts:
    model = store.load(path)
    layers = [
        {
            "n_atoms": int(layer.components.shape[1]),
            "n_components": int(layer.components.shape[0]),
            "eigenvalues": [float(layer.eigenvalues[0]), float(layer.eigenvalues[-1])],
            **layer.ended(),
        }
        for layer in model.layers
    ]
    return {**_told(model), "layers": layers}


def _video_readable(facts: Facts) -> list[tuple[str, str]]:
    rows = []
    for number, layer in enumerate(facts["layers"], 1):
        low, high = layer["eigenvalues"]
        sizes = f"{counted(layer['n_atoms'], 'atom')}, {counted(layer['n_components'], 'component')}"
        rows.append((f"layer {number}", f"{sizes}, eigenvalues {low:.4g} to {high:.4g}"))
        for what, ended in (("dictionary", layer), ("mini-batches", layer["mini_batches"])):
            if ended:
                rows.append((f"{what} {number}", convergence.told(ended)))
    return rows


def _representation(path: Path) -> Facts:
    with store.opened(path, "representation") as file:
        sizes, about = store.require(file, {"": transform.ARRAYS}), file.attrs
        stored = json.loads(about.get("configuration", "{}"))
        # a transform of a learned code has those of both steps
        stored = stored.get("coder", {}) | stored.get("embedding", {}) or stored
        return {
            "configuration": _named_today(stored) if stored else {},
            "provenance": {
                name: str(about[name]) for name in ("model", "model_fingerprint", "source") if name in about
            },
            "audit": [],
            "n_samples": sizes["sample"],
            "n_features": sizes["feature"],
            "feature_shape": np.ravel(about["feature_shape"]).tolist(),
            "dtype": file["z"].dtype.name,
        }


def _representation_readable(facts: Facts) -> list[tuple[str, str]]:
    shape = " x ".join(f"{length:,}" for length in facts["feature_shape"])
    return [
        (
            "representation",
            f"{counted(facts['n_samples'], 'sample')} x {facts['n_features']:,} features ({shape})",
        ),
        ("type", facts["dtype"]),
        *((name.replace("_", " "), value) for name, value in facts["provenance"].items()),
    ]


def _head(path: Path) -> Facts:
    """Return the facts about a head as plain JSON types; of its arrays only the shapes are looked at."""
    with store.opened(path, "head") as file:
        about = head_files.about_of(file)
        facts: Facts = {
            "configuration": _named_today(about.settings),
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


def _head_readable(facts: Facts) -> list[tuple[str, str]]:
    numbers, names = facts["numbers"], [str(one) for one in facts["names"] or facts["classes"]]
    share, top = head_files.chosen(facts["numbers"], facts["path"], facts["audit"])
    rows = [
        ("head", _head_named(facts)),
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


def _head_named(facts: Facts) -> str:
    """Return what a head is, in words."""
    if "temperature" not in facts["configuration"]:  # the head of a package
        return str(facts["head"])
    kernel = f"with exp((cosine - 1) / {facts['configuration']['temperature']:g})"
    if facts["head"] == "kernel":
        return f"exact kernel ridge regression {kernel}"
    if "n_landmarks" in facts:
        return f"ridge regression through {counted(facts['n_landmarks'], 'landmark')} {kernel}, from exact sums"
    return "ridge regression, from exact sums"


def _predictions(path: Path) -> Facts:
    with store.opened(path, "predictions") as file:
        sizes, about = store.require(file, {"": head_files.PREDICTIONS}), file.attrs
        return {
            "configuration": {},
            "provenance": {name: str(about[name]) for name in ("head", "source") if name in about},
            "audit": [],
            "n_samples": sizes["sample"],
            "n_classes": sizes["class"],
        }


def _predictions_readable(facts: Facts) -> list[tuple[str, str]]:
    rows = [
        ("predictions", f"{counted(facts['n_samples'], 'sample')}, {counted(facts['n_classes'], 'class')}")
    ]
    return rows + [(name, value) for name, value in facts["provenance"].items()]


def _images(path: Path) -> Facts:
    meant = {} if is_zarr(path) else _groups_in(path)
    broken: dict[str, str] = {}
    sets, rows = look.sets_in(path, broken, MOST_OBJECTS)
    names = [*meant, *(name.removesuffix("/images") for name in sets)]
    told = {name: meant.get(name, False) for name in list(dict.fromkeys(names))[:MOST_GROUPS]}
    groups = [found for name in told if (found := _group(path, name, told[name])) is not None]
    if not groups and not rows:
        why = hdf5.said_of_links(broken) or "give a file written by smtdist"
        raise ModelError(f"{path} holds neither a model nor images or rows that smtdist reads; {why}.")
    return {
        "configuration": {},
        "provenance": {},
        "audit": [],
        "groups": groups,
        "tables": rows[:MOST_GROUPS],
    }


def _groups_in(path: Path) -> dict[str, bool]:
    """Return what at the top of an HDF5 file may be images, and whether it is meant to be, as what may not be read may be."""
    meant = {}
    with hdf5.open_file(str(path)) as file:
        for name in list(file)[:MOST_GROUPS]:
            try:
                item = file.get(name)
            except DataError:
                meant[name] = True
                continue
            if isinstance(item, h5py.Dataset):
                meant[name] = False
            elif isinstance(item, h5py.Group) and (look.is_encoded(item) or "images" in item):
                meant[name] = True
    return meant


def _group(path: Path, name: str, meant: bool) -> Facts | None:
    """Return the facts about images, None for labels and other data; what is `meant` to be images is told of if it is damaged."""
    problem = None
    try:
        shape, dtype, size = _looked_at(path, name)
    except DataError as error:
        if not meant:
            return None
        problem, (shape, dtype, size) = _several_sizes(path, name) or str(error), _sound(path, name)
    labelled = False
    with contextlib.suppress(DataError):
        labelled = look.has_labels(path, name)
    return {
        "name": name,
        "shape": shape,
        "dtype": dtype,
        "bytes": size,
        "labelled": labelled,
        "problem": problem,
    }


def _looked_at(path: Path, name: str, skip_damaged: bool = False) -> tuple[list[int], str, int]:
    source = opening.open_source(path, name, skip_damaged=skip_damaged)
    return [int(length) for length in source.shape], str(source.dtype), int(source.stored_bytes)


def _sound(path: Path, name: str) -> tuple[list[int], str, int]:
    """Return shape, type and bytes of images with which something is wrong, as far as they can be told."""
    with contextlib.suppress(DataError):
        return _looked_at(path, name, skip_damaged=True)
    with contextlib.suppress(DataError):  # images of several sizes
        encoded = EncodedLook.at(path, name, skip_damaged=True)
        return [encoded.samples], "uint8", encoded.stored
    return [], "", 0


def _several_sizes(path: Path, name: str) -> str | None:
    """Say that encoded images have several sizes, which is no damage; None where that is not what is wrong."""
    try:
        headers = EncodedLook.at(path, name).headers.values()
    except DataError:
        return None
    sizes = sorted({(one.width * one.height, one.width, one.height) for one in headers})
    if len(sizes) < 2:
        return None
    (_, *small), (_, *large) = sizes[0], sizes[-1]
    return (
        f"of several sizes, such as {small[0]} x {small[1]} and {large[0]} x {large[1]}: a fit needs resize=N, which "
        f"scales and cuts them to N x N"
    )


def _images_readable(facts: Facts) -> list[tuple[str, str]]:
    rows = []
    for group in facts["groups"]:
        problem = f"; {group['problem']}" if group["problem"] else ""
        shape = " x ".join(f"{length:,}" for length in group["shape"])
        shape += " images" if len(group["shape"]) == 1 else f" {group['dtype']}"
        labelled = "labelled" if group["labelled"] else "no labels"
        told = f"{shape}, {tables.size(group['bytes'])}, {labelled}"
        rows.append((group["name"], (told if group["shape"] else "images that cannot be read") + problem))
    for table in facts["tables"]:
        n_rows, n_columns = table["shape"]
        rows.append(
            (table["name"], f"{counted(n_rows, 'row')} of {counted(n_columns, 'number')}, {table['dtype']}")
        )
    return rows


# by their names in `smtdist.models.kinds.KINDS`
WORDS: Final = Kind(_words, _words_readable, "of_words")
KERNEL: Final = Kind(_other, _kernel_readable, "of_kernel")
CONCEPTS: Final = Kind(_concepts, _concepts_readable, "of_concepts")
CODERS: Final = Kind(_coder, _coder_readable, "of_coder")
VIDEO: Final = Kind(_video, _video_readable, "of_video")
HEAD: Final = Kind(_head, _head_readable)
PREDICTIONS: Final = Kind(_predictions, _predictions_readable)
REPRESENTATION: Final = Kind(_representation, _representation_readable)
IMAGES: Final = Kind(_images, _images_readable)
JOINED: Final = Kind(_joined, _joined_readable, "of_joined")
TRANSFORMS: Final = Kind(_model, _model_readable, "of_images")
