"""Layers on layers: reconstruction per layer beside PCA of equal code length, and the length of atoms (SMT 2018, figure 5).

python -m replication.functional.layers --data video.h5 --folder /tmp/video --atoms 1024 512 256 --json results
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import write_record
from examples.video_dictionary import judged_layers
from replication.functional.common import engine, rows_of, small_clips, split
from smtdist.configuration import parse_settings
from smtdist.models import store
from smtdist.models.functional.settings import FunctionalSettings
from smtdist.models.functional.video import fit_video


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Run the benchmark; layers that the folder holds already are not fitted again."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--held-out", nargs="+", default=["carphone_pristine", "cockatoo"])
    # slow pans over still photographs: what stands still is straight already, and would be all that is learned
    parser.add_argument("--leave-out", nargs="*", default=["nasa_13013"])
    parser.add_argument("--levels", type=int, default=1)
    parser.add_argument("--atoms", type=int, nargs="+", default=[1024, 512, 256])
    parser.add_argument("--components", type=int, nargs="+", default=[128, 64, 32])
    parser.add_argument("--most", type=int, default=300)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--json")
    options = parser.parse_args(arguments)
    folder = Path(options.folder)
    folder.mkdir(parents=True, exist_ok=True)
    base = FunctionalSettings().replace(**parse_settings(options.set))
    train, test = split(
        small_clips(options.data, folder, options.levels), options.held_out, options.leave_out
    )
    model, seconds = None, []
    for number, (atoms, components) in enumerate(zip(options.atoms, options.components, strict=True), 1):
        stored = folder / f"layers-{base.whiten}-{base.patch_size}-{number}-{atoms}.h5"
        taken = stored.with_suffix(".json")
        started = time.perf_counter()
        if stored.exists():
            model = store.load(stored)
        else:
            model, _ = fit_video(train, base.replace(atoms=atoms, n_components=components), engine(), model)
            store.save(model, stored)
            taken.write_text(json.dumps(time.perf_counter() - started))
        seconds.append(json.loads(taken.read_text()))
    assert model is not None
    source = model.sequences(test)
    sequences = rows_of(source)[:: max(1, source.n_samples // options.most)]
    rows = sequences[:, sequences.shape[1] // 2].astype(np.float64)
    result = {
        "settings": base.to_json(),
        "atoms": options.atoms,
        "components": options.components,
        "sequences": model.sequences(train).n_samples,
        "layers": judged_layers(model, rows),
        "fit_seconds": seconds,
    }
    if options.json:
        write_record(options.json, f"functional-layers-{base.whiten}", result)
    return result


if __name__ == "__main__":
    print(json.dumps(main(), indent=1))
