"""Second moments of sparse codes beside SciPy's sparse AᵀA, on the same codes.

    python -m benchmarks.peers.sparse_sums --data cifar10_jpeg.h5 --atoms 2048 8192 --json results

SciPy multiplies float32 CSR matrices of a batch, its fastest type; making the matrix, and adding its product to a sum, are
not counted. Ours starts from the same lists and ends in the K x K sum. `whole_seconds` is our whole pass over the same
images, from raw pixels to all sums. SciPy has one thread.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from benchmarks.contest import Side, Work, contest
from benchmarks.encoders import encoder_of
from benchmarks.kernels.pass3 import read_images, seconds
from benchmarks.record import write_record
from benchmarks.rows import row
from smtdist.configuration import Configuration
from smtdist.kernels.codes import encode_pieces
from smtdist.kernels.scatter import add_second_moment
from smtdist.kernels.types import Codes, Encoder
from smtdist.statistics.cooccurrence import CodeSums

FITTED = 256


def setting(data: str | None, images: int, atoms: int) -> tuple[Any, Encoder]:
    """Return images and an encoder for them."""
    batch = read_images(data, max(images, FITTED))
    return batch[:images], encoder_of(batch[:FITTED], Configuration(threshold=0.3), atoms)


def codes_of(data: str | None, images: int, atoms: int) -> Codes:
    """Return the codes of some images."""
    batch, encoder = setting(data, images, atoms)
    ((_, _, codes),) = encode_pieces(batch, encoder, False, 2**40)
    return codes


def ours(data: str | None, images: int, atoms: int, whole_images: int) -> Work:
    """Prepare this project's sum."""
    codes = codes_of(data, images, atoms)
    out = np.zeros((atoms, atoms), np.int32)
    batch, encoder = setting(data, whole_images, atoms)
    sums = CodeSums(encoder, "whole", 1, False, len(batch))
    state = sums.zero()

    def work() -> dict[str, Any]:
        spent = seconds(lambda: add_second_moment(out, codes))
        whole = seconds(lambda: sums.update(state, batch, 0))
        return {
            "seconds": spent,
            "patches": codes.n_patches,
            "active_per_patch": round(len(codes.indices) / codes.n_patches, 1),
            "patches_per_second": codes.n_patches / spent,
            "whole_patches_per_second": len(batch) * encoder.whitener.geometry.positions / whole,
        }

    return work


def scipy_product(data: str | None, images: int, atoms: int) -> Work:
    """Prepare SciPy's product of sparse matrices."""
    import scipy
    from scipy.sparse import csr_array

    codes = codes_of(data, images, atoms)
    entries = np.ones(len(codes.indices), np.float32)
    shape = codes.n_patches, atoms
    matrix = csr_array(
        (entries, codes.indices.astype(np.int32), codes.indptr.astype(np.int32)), shape=shape
    )
    transposed = matrix.T.tocsr()

    def work() -> dict[str, Any]:
        spent = seconds(lambda: transposed @ matrix)
        rate = codes.n_patches / spent
        return {"seconds": spent, "patches_per_second": rate, "version": scipy.__version__}

    return work


def compare(options: argparse.Namespace, atoms: int) -> dict[str, Any]:
    """Run one size; ours takes more images, for it needs some to fill its blocks, and is counted by the patch."""
    here = "benchmarks.peers.sparse_sums"
    given = {"data": options.data, "atoms": atoms}
    sides = {
        "ours": Side(here, "ours", {**given, "images": options.images, "whole_images": options.images}),
        "peer": Side(here, "scipy_product", {**given, "images": options.peer_images}),
    }
    found = contest(sides, options.repeats, threads=options.threads, apart=not options.here)
    share = options.images / options.peer_images
    found["peer"].seconds = [one * share for one in found["peer"].seconds]
    asked = {2048: "5x", 8192: "8x"}.get(atoms, "")
    return row(
        f"second moment of f_gq codes, t = 0.3, colour, K = {atoms:,}",
        found["ours"],
        peer=("SciPy AᵀA", found["peer"]),
        asked=asked and f"at least {asked} SciPy",
        whole_times_peer=found["ours"].facts["whole_patches_per_second"]
        / found["peer"].facts["patches_per_second"],
        peer_images=options.peer_images,
        images=options.images,
    )


def main(arguments: list[str] | None = None) -> list[dict[str, Any]]:
    """Run, print, write JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", help="HDF5 file with train/bytes and train/offsets")
    parser.add_argument("--atoms", type=int, nargs="+", default=[2048, 8192])
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--peer-images", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--here", action="store_true", help="all in this process")
    parser.add_argument("--json", help="folder for the dated result")
    options = parser.parse_args(arguments)
    rows = [compare(options, atoms) for atoms in options.atoms]
    for one in rows:
        print(one, flush=True)
    if options.json:
        write_record(options.json, "sparse-sums", {"rows": rows})
    return rows


if __name__ == "__main__":
    main()
