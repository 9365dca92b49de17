"""Every public estimator and function on small data, typed: a test runs it, and another checks it as a user's mypy would."""

import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import smtdist


def report(name: str, z: NDArray[np.generic], *told: object) -> None:
    print(name, z.shape, *told)


def main(folder: Path) -> None:
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    images: NDArray[np.uint8] = rng.integers(0, 128, (60, 8, 8), dtype=np.uint8) + (40 * y)[
        :, None, None
    ].astype(np.uint8)
    rows: NDArray[np.float64] = images.reshape(60, -1) / 255

    report("digits", *smtdist.datasets.load_digits())
    smt = smtdist.SMT(patch=3, feature="vq", dictionary=16, n_components=4, random_state=1)
    plan = smt.plan(images, calibrate=False)
    z: NDArray[np.floating] = smt.fit(images).transform(images)
    report("SMT", z, plan.driver_bytes, smt.model_, smt.evaluate(images, y, images, y, neighbours=3).top1)
    preset: smtdist.Configuration = smtdist.preset("mnist-vq")
    report("preset", np.zeros(preset.n_components), len(smtdist.PRESETS))

    coded: Iterable[smtdist.SMT | smtdist.SparseCoding | smtdist.SpikeSlabCoder] = (
        smtdist.SMT(feature="sc", patch=3, dictionary=8, n_components=4, settings={"rounds": 2}),
        smtdist.SparseCoding(n_atoms=8, patch=3, rounds=2),
        smtdist.SpikeSlabCoder(n_atoms=8, patch=3, pooling=(2,), rounds=2),
    )
    for coder in coded:
        report(type(coder).__name__, coder.fit(images).transform(images))
    for kernel in (
        smtdist.ContrastiveKernel(n_components=2, noise=0.5),
        smtdist.SpectralContrastiveKernel(n_components=2, noise=0.5),
        smtdist.KernelAutoencoder(n_components=2),
    ):
        report(type(kernel).__name__, kernel.fit(rows).transform(rows))
    points = smtdist.PointSMT(size=20, neighbours=5, n_components=3).fit(rows)
    words = smtdist.WordSMT(window=2, n_components=2, max_words=64, input="content")
    words.fit(["a cat sat here", "a dog sat there", "a cat ran there"] * 20)
    report(
        "points and words",
        points.transform(rows),
        words.transform(["cat", "dog"]),
        words.nearest("cat", 1)[0].cosine,
    )
    video = smtdist.VideoSMT(patch=4, length=4, places=4, atoms=12, rounds=2, batch=8, n_components=3)
    report("video", video.fit(images[:24]).transform(images[:24]), video.score(images[:24]))
    concepts = smtdist.BinaryConcepts(n_concepts=3, candidates=64, sweeps=10).fit(rows)
    report("concepts", concepts.transform(rows), concepts.score())
    for head in (smtdist.KernelHead(), smtdist.RidgeHead()):
        report(type(head).__name__, head.fit(z, y).predict(z))

    tuned = smtdist.tune(smt, {"ridge": [0.01, 0.1]}, images, y, neighbours=3)
    more = smtdist.update(smt, 255 - images, alone=True)
    merged: smtdist.Model = smtdist.refit(smtdist.merge([smt, more]), n_components=3)
    report("tuned and merged", merged.components(), tuned.best_score, tuned.best_params)
    size: int = smtdist.save(merged, folder / "m.h5") + smtdist.export(smt, folder / "m.onnx").bytes
    size += smtdist.write_report(smtdist.load(folder / "m.h5"), folder / "r.html")
    np.savez(folder / "d.npz", images=images, labels=y)
    samples = [one.samples for one in smtdist.import_images(folder / "d.npz", folder / "d.h5").values()]
    try:
        smtdist.save(merged, folder / "m.h5")
    except smtdist.SmtdistError as error:
        print(size, samples, len(smtdist.open_datatree(folder / "m.h5")), str(error))
    run = smtdist.start(smt, images)
    print(run.result(), run.status, smtdist.plot.image_map(smt, images, y), smtdist.__version__)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        main(Path(name))
