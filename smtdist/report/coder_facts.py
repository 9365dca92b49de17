"""What files of coders hold: spike-and-slab and its rivals, sparse coding, transforms of video."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from smtdist.errors import counted
from smtdist.kernels import convergence

Facts = dict[str, Any]


def coder_facts(path: Path) -> Facts:
    """Return the facts about a coder of patches, or a manifold transform on one, as plain JSON types."""
    from smtdist.models import coded as learned_codes
    from smtdist.models import store

    found = store.load(path, statistics=False)
    coder: Any = found.coder
    units, pixels = coder.basis.shape
    facts: Facts = {
        "configuration": json.loads(coder.settings.to_json()),
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
            "configuration": learned_codes.named_settings(found),
            "provenance": {**coder.provenance, **store.without_audit(found.provenance)},
            "audit": found.provenance.get("audit", []),
            "embedding": found.settings.to_dict(),
            "n_dead": found.embedding.n_dead,
            "rank": found.embedding.rank,
            "n_components_stored": len(values),
            "eigenvalues": [float(values[0]), float(values[-1])],
        }
    return facts


def coder_readable(facts: Facts) -> list[tuple[str, str]]:
    """Return those that a person wants to see."""
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


def video_facts(path: Path) -> Facts:
    """Return the facts about a transform of video."""
    from smtdist.models import store

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
    return {
        "configuration": json.loads(model.settings.to_json()),
        "provenance": store.without_audit(model.provenance),
        "audit": model.provenance.get("audit", []),
        "layers": layers,
    }


def video_readable(facts: Facts) -> list[tuple[str, str]]:
    """Return those that a person wants to see."""
    rows = []
    for number, layer in enumerate(facts["layers"], 1):
        low, high = layer["eigenvalues"]
        sizes = f"{counted(layer['n_atoms'], 'atom')}, {counted(layer['n_components'], 'component')}"
        rows.append((f"layer {number}", f"{sizes}, eigenvalues {low:.4g} to {high:.4g}"))
        for what, ended in (("dictionary", layer), ("mini-batches", layer["mini_batches"])):
            if ended:
                rows.append((f"{what} {number}", convergence.told(ended)))
    return rows
