"""A whole fit, pass by pass: seconds and peaks of the statistics and the solve, on the GPU where there is one.

    python -m benchmarks.end_to_end.fit --data cifar10_jpeg.h5 --images 50000 --atoms 8192 --gpu --json results
    python -m benchmarks.end_to_end.fit --data cifar10_jpeg.h5 --images 50000 --atoms 65536 --gpu --checkpoint FOLDER ...

Colour f_gq, t = 0.3, whole-image context, each image beside its mirror image. With `--checkpoint` a run that was stopped goes on
where it was, and the seconds are those of the last piece. Without `--data` images are smooth random ones.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from benchmarks.kernels.pass3 import read_images
from benchmarks.record import write_record
from benchmarks.rows import row
from smtdist.configuration import Configuration
from smtdist.data.array import as_source
from smtdist.data.views import chunk_subset
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.memory import device_memory
from smtdist.engine.passes import Engine
from smtdist.kernels.device import gpu_available
from smtdist.models.fit import fit


def main(arguments: list[str] | None = None) -> list[dict[str, Any]]:
    """Run, print, write JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data")
    parser.add_argument("--dataset", default="train")
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--atoms", type=int, default=8192)
    parser.add_argument("--components", type=int, default=384)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--checkpoint", type=Path)
    parser.add_argument("--gpu", action="store_true", help="refuse to run where there is no CUDA device")
    parser.add_argument("--json", help="folder for the dated result")
    options = parser.parse_args(arguments)
    if options.gpu and not gpu_available():
        raise SystemExit("There is no CUDA device that CuPy sees; leave --gpu out.")
    settings = Configuration(n_atoms=options.atoms, n_components=options.components, augment_flip=True)
    if options.data is None:
        source = as_source(read_images(None, options.images))
    else:
        source = chunk_subset(as_source((options.data, options.dataset)), options.images, 0)
    engine = Engine(
        SerialExecutor(options.threads),
        checkpoint=options.checkpoint,
    )
    model, records = fit(source, settings, engine)
    assert model.embedding is not None
    facts = {
        "images": source.n_samples,
        "atoms": options.atoms,
        "components": options.components,
        "device_bytes": device_memory() if gpu_available() else None,
        "largest_residual": float(model.embedding.residuals.max()),
    }
    rows = []
    for record in records:
        made = row(
            f"{record['name']}, {source.n_samples:,} images and their mirror images, K = {options.atoms:,}",
            record["seconds"],
            **facts,
            **{key: record[key] for key in ("way", "resumed_leaves", "rounds") if key in record},
        )
        rows.append({**made, "ours_peak_bytes": record["peak_bytes"]})
        print(f"{record['name']:>12} {record['seconds']:>8.1f} s {record.get('way', '')}")
    if options.json:
        device = "gpu" if gpu_available() else "cpu"
        write_record(options.json, f"fit-{options.atoms}-{source.n_samples}-{device}", {"rows": rows})
    return rows


if __name__ == "__main__":
    main()
