"""The commands by name: where each lives, its one line of help and its example. A command is imported when it is called."""

from __future__ import annotations

import gc
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, partial
from importlib import import_module
from keyword import iskeyword
from pathlib import Path
from typing import Any, Final, NamedTuple

import typer
from typer.core import TyperCommand

from smtdist.cli.options import with_common_options

WORDS: ContextVar[tuple[str, ...]] = ContextVar("WORDS", default=())
"""The words of the command line under way, `smtdist` left out: a checkpoint folder remembers them."""

CHECKPOINT: ContextVar[Path | None] = ContextVar("CHECKPOINT", default=None)
"""The checkpoint folder of the run under way, once `smtdist resume` can go on with it."""


class Command(NamedTuple):
    """A command, which is the function of its name in the module of its name, where `module` names no other.

    summary : the first sentence of its docstring. arguments : those of its example. resumed : its commands whose runs `resume`
    goes on with, "" where it has none of its own.
    """

    summary: str
    arguments: str
    resumed: tuple[str, ...] = ()
    module: str = ""


COMMANDS: Final = {
    "demo": Command(
        "Fit a model on scikit-learn's handwritten digits, on a local Dask cluster, and compare it with raw pixels.",
        "--workers 2",
    ),
    "import": Command(
        "Import images from a folder, arrays or archives into an HDF5 file; repeat the command to continue a stopped import.",
        "images/train --out data.h5 --group train",
    ),
    "manifest": Command(
        "Write a manifest of many files, so that they can be used as one; or check the files of a manifest.",
        "train-*.h5 --out train.json",
    ),
    "plan": Command(
        "Print what a fit will cost, pass by pass: tasks, bytes, memory and time.",
        "data.h5 --dataset train --set dictionary=8192 --workers 4 --memory 16GB",
    ),
    "fit": Command(
        "Fit a model of images: whitening, dictionary, statistics, solve.",
        "data.h5 --dataset train --out model.h5 --preset mnist-vq --set dictionary=2048",
        resumed=("",),
    ),
    "resume": Command(
        "Continue a stopped run from its checkpoint folder; the result is the same as without the stop.",
        "checkpoint/",
        module="runfile",
    ),
    "watch": Command(
        "Show a run that was started elsewhere, live, until it ends; this does not change the run.",
        "checkpoint/",
    ),
    "update": Command(
        "Add samples to a model, or withdraw them, and solve again; only these samples are read.",
        "model.h5 more.h5 --dataset train",
        resumed=("",),
        module="merge",
    ),
    "merge": Command(
        "Add the sums of models, subtract those of others, and solve again; no data are read.",
        "a.h5 b.h5 --subtract c.h5 --out m.h5",
    ),
    "transform": Command(
        "Write the representation of every sample to an HDF5 file.",
        "model.h5 data.h5 --dataset test --out z.h5",
    ),
    "evaluate": Command(
        "Classify test images from training images: with soft k-NN, a linear probe, an SVM, or kernel ridge regression.",
        "model.h5 data.h5 --train train --test test --metric knn",
    ),
    "head": Command(
        "Fit a classifier of representations, keep it in a file, apply it, and add or withdraw rows.",
        "fit ztrain.h5 --out head.h5",
        resumed=("fit", "update"),
    ),
    "tune": Command(
        "Try every combination of a grid of settings on held-out images, in far less time than separate fits.",
        "data.h5 --train train --limit 2000 --grid ridge=0.001,0.01,0.1 --grid n_components=64,256",
    ),
    "concepts": Command(
        "Find binary concepts of rows, such as embeddings or word vectors; shared concepts reproduce their similarity.",
        "z.h5 --dataset z --method hybrid --n-concepts 50 --out concepts.h5",
        resumed=("",),
    ),
    "kernel": Command(
        "Fit and apply kernel models: contrastive losses and an autoencoder, exact or with explicit features.",
        "fit data.h5 --dataset train --out k.h5",
        resumed=("fit",),
    ),
    "filters": Command(
        "Draw the atoms of a model as patches.",
        "model.h5 --out atoms.png",
    ),
    "video": Command(
        "Fit and apply the transform of video: sparse codes of patches, and an embedding that straightens their paths.",
        "fit clips.h5 --out video.h5",
        resumed=("fit",),
    ),
    "export": Command(
        "Write a fitted encoder for ONNX Runtime, or vectors of words for gensim.",
        "model.h5 --format onnx --out model.onnx",
    ),
    "words": Command(
        "Embed words by the words that occur near them: a pass for the vocabulary, a pass for the pairs, a sparse solve.",
        "corpus.txt.gz --vocabulary 30000 --window 4 --near february",
        resumed=("",),
    ),
    "points": Command(
        "Embed the rows of a table by their neighbours: nearest rows, noisy copies, local weights, or rows before and after.",
        "fit table.h5 --dataset x --size 50 --out p.h5",
        resumed=("fit",),
    ),
    "report": Command(
        "Write an HTML page that shows what a file holds: settings, spectrum, dictionary, neighbours, mistakes, words, concepts.",
        "model.h5 --data data.h5 --train train --test test --out report.html",
    ),
    "tls": Command(
        "Make certificates for the scheduler, workers and clients of a cluster.",
        "init tls/",
    ),
    "info": Command(
        "Show what a file holds: a model, concepts, representations, a head or images.",
        "model.h5 --json",
    ),
    "check": Command(
        "Read files that smtdist has written, checkpoint folders too, and compare them with their checksums.",
        "model.h5 z.h5 checkpoint/",
        module="info",
    ),
    "settings": Command(
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


TYPES: Final[dict[str, str | None]] = {
    "<bool>": None,  # a flag takes nothing
    **dict.fromkeys(("<int>", "<int range>", "<list[int]>"), "N"),
    "<float>": "X",
    **dict.fromkeys(("<str>", "<list[str]>"), "TEXT"),
    "<path>": "PATH",
}
"""What help calls types, in place of how Typer writes those of Python."""


class _Command(TyperCommand):
    """A command whose help names no types of Python, and that takes other names of settings for options, too."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        present: dict[str, str] = getattr(self.callback, "renamed", {})
        words = [word.partition("=") for word in args]
        return super().parse_args(
            ctx, [present.get(option, option) + equals + value for option, equals, value in words]
        )

    def get_params(self, ctx: Any) -> Any:
        found = super().get_params(ctx)
        for one in found:
            if hasattr(type(one), "display_type_rich"):  # of Typer from 0.29 on
                one.display_type_rich = partial(_type_of, one)  # type: ignore[attr-defined]
        return found


def _type_of(parameter: Any, ctx: Any) -> str | None:
    shown = type(parameter).display_type_rich(parameter, ctx)
    # the name of an argument stands before it anyway
    if shown is None or parameter.param_type_name == "argument":
        return None
    return TYPES.get(shown, shown.strip("<>"))


def _help(function: Callable[..., Any]) -> str:
    """Return a docstring with one line for each paragraph, so that the terminal alone says where lines end."""
    return "\n\n".join(" ".join(part.split()) for part in (inspect.getdoc(function) or "").split("\n\n"))


@cache
def load(name: str) -> Any:
    """Import a command and return it as the command line needs it, once for all calls in a process."""
    known = COMMANDS[name]
    with _uncollected():
        own = f"{name}_" if iskeyword(name) else name
        function = getattr(import_module(f"smtdist.cli.{known.module or own}"), own)
    if isinstance(function, typer.Typer):  # a group of commands of its own
        for inner in function.registered_commands:
            assert inner.callback is not None
            inner.help = _help(inner.callback)
            inner.callback, inner.cls = with_common_options(inner.callback), _Command
        group = typer.main.get_group(function)  # of one command, too
        group.name, group.epilog = name, f"Example: smtdist {name} {known.arguments}"
        return group
    app = typer.Typer(
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.command(
        name, cls=_Command, help=_help(function), epilog=f"Example: smtdist {name} {known.arguments}"
    )(with_common_options(function))
    return typer.main.get_command(app)
