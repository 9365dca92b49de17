"""`info`: what a file holds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from smtdist.cli import options as opt
from smtdist.cli.facts import KINDS, kind_of
from smtdist.cli.session import print_json, result_console
from smtdist.errors import ModelError
from smtdist.models import files
from smtdist.models.model import Model
from smtdist.monitor import tables

AnyFile = Annotated[Path, typer.Argument(metavar="FILE.h5", help="A file written by smtdist.")]


def info(model: AnyFile, json: opt.Json = False, debug: opt.Debug = False) -> None:
    """Show what a file holds: a model of images, words, points or kernels, concepts, representations or images."""
    if not model.is_file():
        raise ModelError(f"There is no file {model}; check the name.")
    kind = kind_of(model)
    if kind == "smt":
        facts = described(opt.need_embedding(files.load(model, statistics=False), model))
        readable: Callable[[dict[str, Any]], list[tuple[str, str]]] = _readable
    else:
        facts, readable = KINDS[kind].described(model), KINDS[kind].readable
    facts = {"file": str(model.absolute()), "kind": kind, "bytes": model.stat().st_size, **facts}
    if json:
        print_json(facts)
        return
    console = result_console()
    console.print(tables.facts_table(str(model), [("file", tables.size(facts["bytes"])), *readable(facts)]))
    if facts["audit"]:
        console.print(tables.audit_table(facts["audit"]))
    settings = sorted((name, str(value)) for name, value in facts["configuration"].items())
    if settings:
        console.print(tables.facts_table("\nSettings", settings))


def described(model: Model) -> dict[str, Any]:
    """Return the facts about a model as plain JSON."""
    embedding = model.embedding
    assert embedding is not None
    values = embedding.eigenvalues
    provenance = {
        name: value for name, value in model.provenance.items() if name not in ("leaf_digests", "audit")
    }
    return {
        "configuration": model.settings.to_dict(),
        "geometry": model.geometry._asdict(),
        "provenance": provenance,
        "audit": model.provenance.get("audit", []),
        "n_atoms": len(model.dictionary.grid),
        "n_dead": embedding.n_dead,
        "rank": embedding.rank,
        "n_components_stored": len(values),
        "spectrum": {
            "smallest": float(values[0]),
            "median": float(values[len(values) // 2]),
            "largest": float(values[-1]),
            "worst_residual": float(embedding.residuals.max()),
        },
    }


def _skipped(provenance: dict[str, Any]) -> str:
    return tables.skipped_phrase(provenance.get("skipped", []))


def _readable(facts: dict[str, Any]) -> list[tuple[str, str]]:
    geometry, provenance, spectrum = facts["geometry"], facts["provenance"], facts["spectrum"]
    source = provenance.get("source", {})
    shape = " x ".join(f"{length:,}" for length in source.get("shape", []))
    versions = provenance.get("versions", {})
    return [
        (
            "fitted on",
            f"{source.get('path') or 'an array'}:{source.get('dataset')}, {source.get('dtype')} {shape}",
        ),
        ("fingerprint", str(provenance.get("fingerprint", ""))),
        (
            "images",
            f"{geometry['height']} x {geometry['width']} x {geometry['channels']}, "
            f"patches of {geometry['patch']}",
        ),
        *([("skipped", skipped.removeprefix("; "))] if (skipped := _skipped(provenance)) else []),
        ("atoms", f"{facts['n_atoms']:,}, of which {facts['n_dead']:,} never fire"),
        ("rank", f"{facts['rank']:,}"),
        ("components", f"{facts['n_components_stored']:,} stored"),
        (
            "eigenvalues",
            f"{spectrum['smallest']:.4g} to {spectrum['largest']:.4g}, median {spectrum['median']:.4g}",
        ),
        ("worst residual", f"{spectrum['worst_residual']:.1e}"),
        ("written with", ", ".join(f"{name} {number}" for name, number in versions.items())),
    ]
