"""Where a model comes from: its samples, what was added and withdrawn, what could not be read, versions of what made it."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

import numpy as np

from smtdist.data import retry
from smtdist.data.fingerprint import Digests, fingerprint
from smtdist.data.source import Source
from smtdist.engine.partial import Partial
from smtdist.engine.passes import Engine
from smtdist.statistics.origin import Origin

PACKAGES: Final = ("smtdist", "numpy", "scipy", "h5py", "dask", "distributed")
LISTED_RANGES: Final = 1000
"""Skipped ranges that a model file lists: attributes hold 64 KiB. Their numbers are always right."""
NO_ATOMS: Final = np.zeros(0, np.uint64)
"""Of a dictionary that no single sample supplied an atom of."""


def ordered_digests(partial: Partial) -> Digests:
    """Return the hashes of all samples of a pass, in order; those that were skipped have 0."""
    digests = partial.counters.digests
    return np.concatenate([digests[leaf] for leaf in sorted(digests)])


def origin_of(basis: str, samples: Digests, name: str, atom_samples: Digests = NO_ATOMS) -> Origin:
    """Return the origin of sums over samples that were just added, of a source of a name."""
    samples = samples[samples != 0]  # what was skipped has no hash
    added = {
        "action": "added",
        "fingerprint": fingerprint(samples),
        "n_samples": len(samples),
        "source": name,
    }
    return Origin(basis, samples, atom_samples, (added,))


def traced(
    provenance: dict[str, Any],
    origin: Origin | None,
    source: dict[str, Any] | None = None,
    skipped: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the provenance of a model with new sums: its own, those of its sums, and what could not be read this time."""
    about: dict[str, Any] = {"source": source or provenance.get("source", {}), "versions": versions()}
    if origin is not None:
        about["fingerprint"] = origin.fingerprint
        about["audit"] = list(origin.audit)
    left_out = [*provenance.get("skipped", []), *([skipped] if skipped else [])]
    if left_out:
        about["skipped"] = left_out
    return about


def left_out(source: Source, engine: Engine) -> dict[str, Any] | None:
    """Return which samples of a source the passes have skipped, as a model file lists them; None where all were read."""
    ranges = engine.skipped.get((source.name, source.n_samples), ())
    if not ranges:
        return None
    listed = [list(piece) for piece in ranges[:LISTED_RANGES]]
    return {
        "source": source.name,
        "n_samples": retry.count(ranges),
        "n_ranges": len(ranges),
        "ranges": listed,
    }


def few_versions() -> dict[str, str]:
    """Return the versions of what a coder or a kernel model is made with."""
    return {"smtdist": version("smtdist"), "numpy": np.__version__, "python": platform.python_version()}


def versions() -> dict[str, str]:
    """Return the versions of what a model is made with: a fit in one process does without Dask, where that is not installed."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
