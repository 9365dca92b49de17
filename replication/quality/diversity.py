"""How different whitened patches are from each other, and what compression takes of that.

    python -m replication.quality.diversity --data DATA --json results

Of 131,072 random patches of 1,000 images and their mirror images, as many are taken as keep a cosine of at most 0.38 to each
other: a dictionary as a public re-implementation of SMT 2023 draws it, which finds 8,192 atoms among the 1,458,000 patches of
1,000 PNG images of CIFAR-10. The images are lossless ones, compressed here, and a copy of CIFAR-10 that is JPEG.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks.record import write_record
from replication.quality.cells import Fit
from replication.quality.images import read
from smtdist.configuration import Configuration, preset
from smtdist.data.array import ArraySource
from smtdist.engine.passes import Engine
from smtdist.engine.session import executor_for
from smtdist.kernels.pixels import pixel_scale
from smtdist.kernels.whitening import whitening_matrices
from smtdist.models.dictionary import apart
from smtdist.models.model import Whitening, image_geometry, unwhitened, whitened
from smtdist.statistics.candidates import Candidates
from smtdist.statistics.covariance import PatchMoment, covariance

QUALITIES: Final = (0, 95, 75, 50)
RIDGES: Final = (1e-3, 1e-4)


def apart_of(
    source: ArraySource, settings: Configuration, engine: Engine, options: argparse.Namespace
) -> Iterator[tuple[float, int]]:
    """Yield for each ridge how many of the random patches of some images keep their distance."""
    first = unwhitened(
        settings, image_geometry(settings, source.shape, source.name), pixel_scale(source.dtype, None)
    )
    partial, _ = engine.reduce("whitening", PatchMoment(first, settings.augment_flip), source)
    moment, mean = covariance(partial.state, first)
    for ridge in RIDGES:
        whitener = whitened(first, Whitening(moment, *whitening_matrices(moment, ridge), mean))
        sketch = Candidates(whitener, settings.augment_flip, options.patches, settings.random_state)
        drawn, _ = engine.reduce("dictionary", sketch, source)
        yield ridge, len(apart(drawn.state["vector"], options.cosine, options.patches))


def main(arguments: list[str] | None = None) -> list[dict[str, Any]]:
    """Parse the command line, measure, and return a row for each data set, quality and ridge."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True, help="folder with the data files")
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--patches", type=int, default=131072)
    parser.add_argument("--cosine", type=float, default=0.38)
    parser.add_argument("--json", help="folder for the dated result")
    options = parser.parse_args(arguments)
    settings, rows = preset("cifar10-gq"), []
    with executor_for(workers=0) as executor:
        for data, qualities in (("cifar10", QUALITIES), ("cifar10-jpeg", (0,))):
            for quality in qualities:
                fit = Fit(data, options.images, settings, quality)
                source = read(Path(options.data), fit, "train", options.images).source
                for ridge, kept in apart_of(source, settings, Engine(executor), options):
                    rows.append({"data": data, "quality": quality, "ridge": ridge, "apart": kept})
                    print(rows[-1], flush=True)
    if options.json:
        write_record(options.json, f"diversity-{options.patches}", {"rows": rows})
    return rows


if __name__ == "__main__":
    main()
