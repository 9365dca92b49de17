"""The pipeline as one writes it in PyTorch, on the CPU, beside ours: raw pixels to sums, and raw pixels to a representation.

    python -m benchmarks.peers.torch_pipeline --data cifar10_jpeg.h5 --json results

Both whiten patches of 6 x 6 in colour with the contextual mean of the whole image, code by a threshold on the cosine, and
sum A Aᵀ and s sᵀ; PyTorch in float32, codes as a dense matrix of 0 and 1, batches of images. End to end both fit
(flips included), solve for all eigenvectors asked, and pool the embedding of the same images.
Needs the extra "torch".
"""

from __future__ import annotations

import argparse
from typing import Any

from benchmarks.contest import Side, Work, contest
from benchmarks.encoders import encoder_of
from benchmarks.kernels.pass3 import read_images
from benchmarks.record import write_record
from benchmarks.rows import row
from smtdist.configuration import Configuration

FITTED = 256
BATCH = 32
SETTINGS = Configuration(
    threshold=0.3, augment_flip=True, n_components=64, drop_components=16, whitening_reg=1e-3
)


class Pipeline:
    """The sparse manifold transform in plain PyTorch."""

    def __init__(self, atoms: int, components: int, drop: int, ridge: float, threshold: float) -> None:
        self.n_atoms, self.components, self.drop = atoms, components, drop
        self.ridge, self.threshold = ridge, threshold
        self.whiten = self.dictionary = self.projection = None

    def patches(self, images: Any) -> Any:
        """Return patches less the mean patch of their image, (B, n, p)."""
        import torch

        pixels = torch.as_tensor(images).permute(0, 3, 1, 2).float() / 255
        found = torch.nn.functional.unfold(pixels, 6).transpose(1, 2)
        return found - found.mean(dim=1, keepdim=True)

    def unit(self, images: Any) -> Any:
        """Return whitened patches of length 1."""
        import torch

        return torch.nn.functional.normalize(self.patches(images) @ self.whiten, dim=2)

    def views(self, images: Any) -> Any:
        """Yield batches and their mirror images."""
        for start in range(0, len(images), BATCH):
            batch = images[start : start + BATCH]
            yield batch
            yield batch[:, :, ::-1].copy()

    def learn(self, images: Any) -> None:
        """Whitening from the covariance, and random patches as atoms."""
        import torch

        total, count = 0, 0
        for batch in self.views(images):
            flat = self.patches(batch).reshape(-1, 108)
            total, count = total + flat.T @ flat, count + len(flat)
        values, vectors = torch.linalg.eigh(total / count)
        self.whiten = (vectors * (values.clamp(min=0) + self.ridge) ** -0.5) @ vectors.T
        torch.manual_seed(0)
        some = self.unit(images[:BATCH]).reshape(-1, 108)
        self.dictionary = some[torch.randperm(len(some))[: self.n_atoms]].T.contiguous()

    def codes(self, images: Any) -> Any:
        """Return (B, n, K) of 0 and 1."""
        return (self.unit(images) @ self.dictionary >= self.threshold).float()

    def sums(self, images: Any, views: bool) -> tuple[Any, Any]:
        """Return A Aᵀ and Σ s sᵀ."""
        import torch

        second = torch.zeros(self.n_atoms, self.n_atoms)
        outer = torch.zeros_like(second)
        for batch in self.views(images) if views else _batches(images):
            codes = self.codes(batch)
            flat, counts = codes.reshape(-1, self.n_atoms), codes.sum(dim=1)
            second.addmm_(flat.T, flat)
            outer.addmm_(counts.T, counts)
        return second, outer

    def solve(self, second: Any, outer: Any, positions: int) -> None:
        """Smallest eigenvectors of the context scatter in the metric of the second moment."""
        import torch

        values, vectors = torch.linalg.eigh(second.double())
        keep = values > values[-1] * 1e-9
        root = vectors[:, keep] * values[keep] ** -0.5
        scatter = positions * second.double() - outer.double()
        _, rotation = torch.linalg.eigh(root.T @ scatter @ root)
        chosen = rotation[:, self.drop : self.drop + self.components]
        self.projection = (root @ chosen).float()

    def represent(self, images: Any) -> Any:
        """Return pooled, normalised embeddings."""
        import torch

        found = []
        for batch in _batches(images):
            codes = self.codes(batch)
            z = torch.nn.functional.normalize(codes @ self.projection, dim=2)
            side = round(z.shape[1] ** 0.5)
            pooled = torch.nn.functional.avg_pool2d(z.transpose(1, 2).reshape(len(z), -1, side, side), 4, 2)
            found.append(torch.nn.functional.normalize(pooled, dim=1).reshape(len(z), -1))
        return torch.cat(found)


def _batches(images: Any) -> Any:
    return (images[start : start + BATCH] for start in range(0, len(images), BATCH))


def _torch(threads: int) -> Any:
    import torch

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    return torch


def _plain(atoms: int) -> Pipeline:
    return Pipeline(
        atoms, SETTINGS.n_components, SETTINGS.drop_components, SETTINGS.whitening_reg, SETTINGS.threshold
    )


def torch_sums(data: str | None, images: int, atoms: int, threads: int) -> Work:
    """Prepare the sums of PyTorch."""
    torch = _torch(threads)
    batch = read_images(data, max(images, FITTED))
    pipeline = _plain(atoms)
    pipeline.learn(batch[:FITTED])

    def work() -> dict[str, Any]:
        second, _ = pipeline.sums(batch[:images], views=False)
        active = second.trace().item() / (images * 27 * 27)
        return {"active_per_patch": round(active, 1), "version": torch.__version__}

    return work


def our_sums(data: str | None, images: int, atoms: int, threads: int) -> Work:
    """Prepare the sums of this project."""
    from smtdist.statistics.cooccurrence import CodeSums

    batch = read_images(data, max(images, FITTED))
    sums = CodeSums(encoder_of(batch[:FITTED], SETTINGS, atoms, threads), "whole", 1, False, len(batch))
    state = sums.zero()

    def work() -> dict[str, Any]:
        before = int(state["activity"].sum()), int(state["n_positions"])
        sums.update(state, batch[:images], 0)
        active, patches = int(state["activity"].sum()) - before[0], int(state["n_positions"]) - before[1]
        return {"active_per_patch": round(active / patches, 1)}

    return work


def torch_end_to_end(data: str | None, images: int, atoms: int, threads: int) -> Work:
    """Prepare a fit and a transform in PyTorch."""
    _torch(threads)
    batch = read_images(data, images)

    def work() -> None:
        pipeline = _plain(atoms)
        pipeline.learn(batch)
        pipeline.solve(*pipeline.sums(batch, views=True), 27 * 27)
        pipeline.represent(batch)

    return work


def our_end_to_end(data: str | None, images: int, atoms: int, threads: int) -> Work:
    """Prepare a fit and a transform with this project."""
    from smtdist.data.array import as_source
    from smtdist.engine.executor import SerialExecutor
    from smtdist.engine.passes import Engine
    from smtdist.models.fit import fit
    from smtdist.models.transform import represented

    batch, settings = read_images(data, images), SETTINGS.replace(dictionary=atoms)

    def work() -> None:
        engine = Engine(SerialExecutor(threads))
        model, _ = fit(as_source(batch), settings, engine)
        represented(model, as_source(batch), engine)

    return work


def main(arguments: list[str] | None = None) -> list[dict[str, Any]]:
    """Run, print, write JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", help="HDF5 file with train/bytes and train/offsets")
    parser.add_argument("--atoms", type=int, default=2048)
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--here", action="store_true", help="all in this process")
    parser.add_argument("--json", help="folder for the dated result")
    options = parser.parse_args(arguments)
    names = ("data", "images", "atoms", "threads")
    settings = {name: getattr(options, name) for name in names}
    rows = []
    for what, mine, theirs in (
        ("statistics", "our_sums", "torch_sums"),
        ("fit with flips, and transform", "our_end_to_end", "torch_end_to_end"),
    ):
        here = "benchmarks.peers.torch_pipeline"
        sides = {"ours": Side(here, mine, settings), "peer": Side(here, theirs, settings)}
        found = contest(sides, options.repeats, threads=options.threads, apart=not options.here)
        rows.append(
            row(
                f"{what}, {options.images} colour images, f_gq, t = 0.3, K = {options.atoms:,}",
                found["ours"],
                peer=("PyTorch", found["peer"]),
                asked="at least 2x PyTorch",
                patches=options.images * 27 * 27,
            )
        )
        print(rows[-1], flush=True)
    if options.json:
        write_record(options.json, f"torch-pipeline-K{options.atoms}", {"rows": rows})
    return rows


if __name__ == "__main__":
    main()
