"""The commands by name: where each lives, its one line of help and its example. A command is imported when it is called."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple

import typer

from smtdist.cli.options import with_common_options

WORDS: ContextVar[tuple[str, ...]] = ContextVar("WORDS", default=())
"""The words of the command line under way, `smtdist` left out: a checkpoint folder remembers them."""

CHECKPOINT: ContextVar[Path | None] = ContextVar("CHECKPOINT", default=None)
"""The checkpoint folder of the run under way, once `smtdist resume` can go on with it."""


class Command(NamedTuple):
    """`function` lives in `smtdist.cli.<module>`; `summary` is the first sentence of its docstring."""

    module: str
    function: str
    summary: str
    arguments: str


COMMANDS: Final = {
    "demo": Command(
        "demo",
        "demo",
        "Fit and judge a model on scikit-learn's handwritten digits, on a Dask cluster of this machine.",
        "--workers 2",
    ),
    "import": Command(
        "import_",
        "import_",
        "Bring images from a folder, arrays or archives into an HDF5 file; a stopped import goes on when repeated.",
        "images/train --out data.h5 --group train",
    ),
    "manifest": Command(
        "manifest",
        "manifest",
        "Write what many files hold to one manifest, which is DATA in their place; or check the files of a manifest.",
        "train-*.h5 --out train.json",
    ),
    "plan": Command(
        "plan",
        "plan",
        "Say what a fit will cost, pass by pass: tasks, bytes, memory and time.",
        "data.h5 --dataset train --set dictionary=8192 --workers 4 --memory 16GB",
    ),
    "fit": Command(
        "fit",
        "fit",
        "Fit a model: whitening, dictionary, statistics, solve.",
        "data.h5 --dataset train --out model.h5 --preset mnist-vq --set dictionary=2048",
    ),
    "resume": Command(
        "resume",
        "resume",
        "Go on with a run that was stopped, from its checkpoint folder; the result is the same as without the stop.",
        "checkpoint/",
    ),
    "watch": Command(
        "watch",
        "watch",
        "Watch a run that was started elsewhere, until it ends; the run does not notice.",
        "checkpoint/",
    ),
    "update": Command(
        "merge",
        "update",
        "Add samples to a model, or withdraw them: one pass over them alone, then a solve.",
        "model.h5 more.h5 --dataset train",
    ),
    "merge": Command(
        "merge",
        "merge",
        "Add the sums of models, withdraw those of others, and solve again; no data are read.",
        "a.h5 b.h5 --subtract c.h5 --out m.h5",
    ),
    "transform": Command(
        "transform",
        "transform",
        "Write the representation of every image to an HDF5 file, reading and writing piece by piece.",
        "model.h5 data.h5 --dataset test --out z.h5",
    ),
    "evaluate": Command(
        "evaluate",
        "evaluate",
        "Classify test images by training images: nearest ones (soft k-NN), linearly, by an SVM, or by kernel ridge regression.",
        "model.h5 data.h5 --train train --test test --metric knn",
    ),
    "head": Command(
        "head",
        "head",
        "Classifiers of representations that are kept: fitted, applied to other data, and changed by rows that come and go.",
        "fit ztrain.h5 --out head.h5",
    ),
    "tune": Command(
        "tune",
        "tune",
        "Try every combination of a grid of settings on held-out images, at a fraction of the cost of separate fits.",
        "data.h5 --train train --limit 2000 --grid ridge=0.001,0.01,0.1 --grid n_components=64,256",
    ),
    "concepts": Command(
        "concepts",
        "concepts",
        "Find binary concepts whose memberships reproduce the similarities of rows, such as embeddings or word vectors.",
        "z.h5 --dataset z --method hybrid --n-concepts 50 --out concepts.h5",
    ),
    "kernel": Command(
        "kernel",
        "kernel",
        "Representations by kernels: contrastive losses and an autoencoder, exact or in explicit features.",
        "fit data.h5 --dataset train --out k.h5",
    ),
    "filters": Command(
        "filters",
        "filters",
        "Draw the atoms of a model as patches.",
        "model.h5 --out atoms.png",
    ),
    "video": Command(
        "video",
        "video",
        "The sparse manifold transform of video: sparse codes of patches, and an embedding that straightens their paths.",
        "fit clips.h5 --out video.h5",
    ),
    "export": Command(
        "export",
        "export",
        "Write a fitted encoder for ONNX Runtime or PyTorch, or its arrays for Zarr or NumPy.",
        "model.h5 --format onnx --out model.onnx",
    ),
    "words": Command(
        "words",
        "words",
        "Embed words by whom they occur near: a pass for the vocabulary, a pass for the pairs, a sparse solve.",
        "corpus.txt.gz --vocabulary 30000 --window 4 --near february",
    ),
    "points": Command(
        "points",
        "points",
        "Tables of points embedded by who is near whom: neighbours, noise, local weights or time.",
        "fit table.h5 --dataset x --size 50 --out p.h5",
    ),
    "spirals": Command(
        "spirals",
        "spirals",
        "Tell two spirals apart by noisy copies of their points, and show what the components are.",
        "--out spirals.png",
    ),
    "disc": Command(
        "disc",
        "disc",
        "Find the functionals that straighten a point's paths on the unit disc, and recover sparse functions from them.",
        "--out disc.png",
    ),
    "report": Command(
        "report",
        "report",
        "Write a page that shows what a file holds: settings, spectrum, dictionary, neighbours, mistakes, words, concepts.",
        "model.h5 --data data.h5 --train train --test test --out report.html",
    ),
    "tls": Command(
        "tls",
        "tls",
        "Certificates that let scheduler, workers and clients of one cluster know one another.",
        "init tls/",
    ),
    "info": Command(
        "info",
        "info",
        "Show what a file holds: a model of images, words, points or kernels, concepts, representations, a head or images.",
        "model.h5 --json",
    ),
    "check": Command(
        "check",
        "check",
        "Read files that smtdist has written, checkpoint folders too, and compare them with their checksums.",
        "model.h5 z.h5 checkpoint/",
    ),
    "settings": Command(
        "settings",
        "settings",
        "List the settings that --set takes, with defaults, and the presets with what they change.",
        "--json",
    ),
}


@contextmanager
def _uncollected() -> Iterator[None]:
    """Import without looking for garbage, nor later in what was imported: modules stay, and it takes a fifth of a start."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if not gc.get_freeze_count():  # once: what a caller of many commands drops is still found
            gc.freeze()
        if before:
            gc.enable()


def load(name: str) -> Any:
    """Import a command and return it as the command line needs it."""
    known = COMMANDS[name]
    with _uncollected():
        function = getattr(import_module(f"smtdist.cli.{known.module}"), known.function)
    if isinstance(function, typer.Typer):  # a group of commands of its own
        for inner in function.registered_commands:
            inner.callback = inner.callback and with_common_options(inner.callback)
        group = typer.main.get_command(function)
        group.name, group.epilog = name, f"Example: smtdist {name} {known.arguments}"
        return group
    app = typer.Typer(
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.command(name, epilog=f"Example: smtdist {name} {known.arguments}")(with_common_options(function))
    return typer.main.get_command(app)
