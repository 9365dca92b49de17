"""Every benchmark runs on small data, so that none can rot, and writes one record; what it prints is not judged here."""

import importlib.util
import inspect
import json
import shlex
import sys

import h5py
import numpy as np
import pytest
from arrays_in_files import write_arrays, write_labelled
from calling import run, sets
from encoding import pillow_bytes, write_encoded
from functional_clips import make_clips
from measured import on_threads
from sklearn.datasets import load_digits, load_iris

from replication.words import semantics
from smtdist.kernels.threads import threads

FAST = sets(rounds=2, patch=3, images=100)
VIDEO = sets(patch=6, length=4, places=2, atoms=30, n_components=6, rounds=1, batch=20, penalty=0.2)
CLIPS = "--data CLIPS --held-out three --levels 0"
QUICK = "rounds=2 patch=3 images=100"
RUNS = {
    "s3c.bound": f"--data DIGITS --images 100 --units 12 --rows 20 --sweeps 30 --repeats 1 {FAST}",
    "s3c.inference": f"--data DIGITS --units 20 --patches 30 {FAST} --plot OUT/pictures",
    "s3c.timing": "--data DIGITS --units 20 --patch 3 --examples 10 --tries 4 --turns 2 --groups 2 --sets 2 --iterations 12 "
    "--set rounds=2 --work OUT/w",
    "s3c.labels": f"--data DIGITS --unlabelled DIGITS --units 12 --pooling 2 --labels 10 40 --draws 2 --thresholds 0.1 {FAST}",
    "s3c.table_1": "--data DIGITS --units 12 --folds 2 --costs 1 --penalties 1 --thresholds 0.25 --scalings each one "
    + FAST,
    "s3c.speed": "--units 64 --inputs 27 --rows 256",
    "s3c.learned": f"--data DIGITS --units 20 --learn 100 --known 60 --asked 40 --labels 20 --draws 2 --settings '{QUICK}' "
    f"'{QUICK} model=sc'",
    "words.semantics": "TEXT --vocabulary 60 --components 4 --sweeps 2 --least 20 --min-count 1",
    "words.speed": "TEXT --vocabulary 50 --components 3 --megabytes 0.05 --words 400 --generated-megabytes 0.2 --repeats 1",
    "words.mnist_glove": "--data DIGITS --dictionary 40 --sweeps 2 --set n_components=8 --seeds 2",
    "functional.video": f"{CLIPS} --folder OUT/v --most 12 --sgd-rounds 2 {VIDEO}",
    "functional.layers": f"{CLIPS} --folder OUT/v --most 8 --atoms 30 20 --components 6 4 {VIDEO}",
    "functional.inverse": "--model VIDEO --data CLIPS --held-out three --most 12",
    "functional.disc": "--landmarks 60 --sequences 400 --functions 2 --seeds 1 --rounds 2 --batch 256 --steps 2 --sparsity 1",
    "kernel_models.starts": "--sets digits --rows 12 --splits 1 --starts 3",
    "kernel_models.figure_1": "--data IRIS --sets circles iris --samples 60 --splits 1 --bandwidths 2",
    "kernel_models.figure_2": "--mnist DIGITS --samples 60 --splits 1 --steps 2 --bandwidths 1",
    "kernel_models.figure_3": "--cifar DIGITS --samples 30 --components 2 --repeats 1 --steps 20 --deviations 0.1 "
    "--ridges 0.1 10 --bandwidths 1",
    "kernel_models.convergence": "--samples 40 --features 16 64 --landmarks 8 --repeats 1 --plot OUT",
    "kernel_models.contrast_pass": "--triplets 5000 --features 64 --inputs 4 --workers 1 --sgemm-share 1",
    "concepts.recovery": "--points 32 --seeds 2 --snr 20 --methods rejection hybrid-present",
    "concepts.optimum": "--parts rejection --seeds 1",
    "concepts.analograms": "--trees 5 --largest 30 --cubes 5 --small",
    "concepts.words": "--data WORDS --concepts 6 12 --rank 8 --sweeps 10 --figures OUT",
    "concepts.mnist": "--data DIGITS --train 300 --test 100 --concepts 12 --rank 20 --raw --sweeps 20",
    "concepts.scale": "iteration --points 6000 --block 32 --workers 0 --rank 6 --scratch OUT",
    "sparse.speed": "--inputs 25 --atoms 80 --rows 20 --steps 3 --repeats 1",
    "sparse.gabors": "--data NATURAL --side 16 --patch 5 --overcomplete 1 --most 5 --set rounds=2 --picture OUT/a.png",
    "sparse.cifar": "--data COLOUR --train 60 --test 20 --units 24 --components 4 --drop-gq 1 --l1 rounds=2",
    "kernels.pass3": "--atoms 64 --images 8 --batch 1 4 --repeats 1 --tiles 2 --samples 50000",
    "kernels.digests": "--images 40 --fitted 8 --coded 4 --atoms 64 --repeats 2",
    "kernels.mirrored": "--data COLOUR --atoms 40 --images 60 --turns 1",
    "kernels.decode": "--images 12 --fitted 8 --atoms 64 --batch 4 --repeats 1",
    "kernels.import_images": "--data JPEGS --images 10 --repeats 1 --folder OUT",
    "solve.eigen": "--atoms 64 --images 40 --components 4 --repeats 2 --peer-repeats 1 --threads 1 --keep OUT",
    "end_to_end.fit": "--images 30 --atoms 64 --components 4 --threads 1 --checkpoint OUT/kept",
    "quality.mnist_vq": "--data DIGITS --set dictionary_rounds=1 choose --train 300 --dictionary 64 --grid ridge=0.1",
    "quality.whitening_each": "--data FOLDER --train 30 --test 10 --atoms 450 --ridges 0.001",
    "quality.tune": "--data DIGITS --train 200 --validation 60 --dictionary 48 --separate 3 --grid ridge=0.01,0.1 "
    "--grid n_components=8,16 --set patch=4",
    "quality.tune_commands": "--data JPEGS --images 50 --dictionary 24 --separate 1 --turns 1 --grid n_components=8,16 "
    "--grid patch=4 --grid ridge=0.1",
    "heads": "--data COLOUR --work OUT/w --images 40 --dictionary 32 --labels 12 --landmarks 10 --draws 2 "
    "--train train --test test --set n_components=6 --set drop=1",
    "when_to_use.__main__": "--data FOLDER --work OUT/w --sets mnist-2000 --images 100 --test 40 --labels 30 --draws 2 "
    "--atoms 12 --dictionary 32 --only raw-knn kmeans-ridge --cpu-seconds 2",
    "scaling.processes": "--data JPEGS --images 40 --turns 1 --repeats 1 --memory-images 60 --memory-workers 1 "
    "--set dictionary=24 --set n_components=6 --set patch=4",
    "scaling.memory_and_disk": "--data DIGITS --samples 280 --workers 1 --set dictionary=64",
}
"""Modules of benchmarks and the words of a small run, with data in the places of capital letters."""


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Data of each kind by name."""
    at, draw = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    names = ["digits", "text", "clips", "video", "iris", "words", "natural", "colour", "jpegs"]
    found = {name.upper(): str(at / f"{name}.h5") for name in names}
    bunch, images = (
        load_digits(),
        np.kron(load_digits().images * 15.9375, np.ones((1, 2, 2))).astype(np.uint8),
    )
    write_labelled(at / "digits.h5", images, bunch.target, {"train": 400, "test": 100})
    kinds = [sorted(words)[:12] for words in semantics.kinds().values()]
    lines = [draw.choice(["the", "of", "in", *kinds[draw.integers(len(kinds))]], 20) for _ in range(400)]
    (at / "text.h5").write_text("\n".join(map(" ".join, lines)))
    make_clips(at / "clips.h5")
    run("fit", at / "clips.h5", "--model video", VIDEO, "--quiet --out", at / "video.h5")
    write_arrays(at / "iris.h5", dict(zip(("iris/X", "iris/y"), load_iris(return_X_y=True), strict=True)))
    names = ["king", "queen", "man", "woman", *(f"w{number}" for number in range(196))]
    with h5py.File(at / "words.h5", "w") as file:
        file["words"], file["vectors"] = names, draw.normal(size=(200, 12)).astype(np.float32)
        file["is_person"], file["wordnet_count"] = np.ones(200, bool), np.arange(200, 0, -1)
    natural = draw.integers(0, 256, (2, 70, 64), dtype=np.uint8)
    write_arrays(at / "natural.h5", {"one": natural[0], "two": natural[1]})
    colour = draw.integers(0, 256, (80, 16, 16, 3), dtype=np.uint8)
    write_labelled(at / "colour.h5", colour, np.arange(80) % 2, {"train": 60, "test": 20})
    write_encoded(at / "jpegs.h5", [pillow_bytes(image) for image in images[:60]], labels=bunch.target[:60])
    (at / "mnist.h5").symlink_to(at / "digits.h5")
    (at / "cifar10_lossless.h5").symlink_to(at / "colour.h5")
    return {**found, "FOLDER": str(at)}


@pytest.fixture(autouse=True)
def threads_as_before():
    with on_threads(threads()):
        yield


@pytest.mark.benchmark
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", RUNS)
def test_runs_tiny(name, places, tmp_path, monkeypatch):
    package = (
        "benchmarks" if importlib.util.find_spec(f"benchmarks.{name.split('.')[0]}") else "replication"
    )
    module = importlib.import_module(f"{package}.{name}")
    words = [places.get(word, word.replace("OUT", str(tmp_path))) for word in shlex.split(RUNS[name])]
    kept = tmp_path / "record"
    kept.mkdir()
    words = ["--json", str(kept), *words] if name == "quality.mnist_vq" else [*words, "--json", str(kept)]
    monkeypatch.setattr(sys, "argv", [name, *words])
    module.main(*[words] if inspect.signature(module.main).parameters else [])
    (record,) = kept.glob("*.json")
    assert json.loads(record.read_text())["result"]
