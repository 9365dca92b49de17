"""The commands by name: where each lives, its one line of help and its example. A command is imported when it is called."""

from __future__ import annotations

import gc
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache, partial
from importlib import import_module
from keyword import iskeyword
from pathlib import Path
from typing import Any, Final, NamedTuple

import typer
from typer.core import TyperCommand

from smtdist.cli.options import with_common_options
from smtdist.errors import SmtdistError

GIVEN: ContextVar[dict[str, Any] | None] = ContextVar("GIVEN", default=None)
"""The options of the command under way as they were given, by name, and the command: a checkpoint folder remembers them."""

CHECKPOINT: ContextVar[Path | None] = ContextVar("CHECKPOINT", default=None)
"""The checkpoint folder of the run under way, once `smtdist resume` can go on with it."""


class Command(NamedTuple):
    """A command, which is the function of its name in the module of its name, where `module` names no other.

    summary : the first sentence of its docstring. arguments : those of its example. resumed : whether `resume` goes on with
    its runs.
    """

    summary: str
    arguments: str
    resumed: bool = False
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
        "data.h5 --dataset train --set n_atoms=8192 --workers 4 --memory 16GB",
        module="fit",
    ),
    "fit": Command(
        "Fit a model of any kind: of images, words, the rows of a table, clips, kernels, concepts, or a head.",
        "data.h5 --dataset train --out model.h5 --preset mnist-vq --set n_atoms=2048",
        resumed=True,
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
        "Add samples to a model, and solve again; only these samples are read.",
        "model.h5 more.h5 --dataset train",
        resumed=True,
        module="merge",
    ),
    "withdraw": Command(
        "Withdraw samples from a model, as if they had never been added, and solve again; only these samples are read.",
        "model.h5 more.h5 --dataset train",
        resumed=True,
        module="merge",
    ),
    "merge": Command(
        "Add the sums of models, subtract those of others, and solve again; no data are read.",
        "a.h5 b.h5 --subtract c.h5 --out m.h5",
    ),
    "transform": Command(
        "Write the representation of every sample to an HDF5 file, or the predictions of a head.",
        "model.h5 data.h5 --dataset test --out z.h5",
    ),
    "evaluate": Command(
        "Classify test images from training images: with soft k-NN, a linear probe, an SVM, or kernel ridge regression.",
        "model.h5 data.h5 --train train --test test --metric knn",
    ),
    "tune": Command(
        "Try every combination of a grid of settings on held-out images, in far less time than separate fits.",
        "data.h5 --train train --limit 2000 --grid whitening_reg=0.001,0.01,0.1 --grid n_components=64,256",
    ),
    "near": Command(
        "Show the words nearest to others in a model of words, and the words that co-occur with them most.",
        "words.h5 february raccoon",
        module="ask",
    ),
    "search": Command(
        "List the points whose concepts fulfil a formula.",
        'concepts.h5 "17 and not 4"',
        module="ask",
    ),
    "draw": Command(
        "Draw which concepts separate some points, and where all others lie.",
        "concepts.h5 3 14 --figure points",
        module="ask",
    ),
    "filters": Command(
        "Draw the atoms of a model as patches.",
        "model.h5 --out atoms.png",
        module="ask",
    ),
    "export": Command(
        "Write a fitted encoder for ONNX Runtime, or vectors of words for gensim.",
        "model.h5 --format onnx --out model.onnx",
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
        "List the settings of a model that --set takes, with defaults, and the presets with what they change.",
        "words",
        module="info",
    ),
}


EARLIER: Final = {
    "points fit": "fit --model points",
    "kernel fit": "fit",
    "kernel plan": "plan",
    "video fit": "fit --model video",
    "video import": "import --kind video",
    "video judge": "evaluate",
    "head fit": "fit --model head",
    "head predict": "transform",
    "head update": "update",
    **dict.fromkeys(("points transform", "kernel transform"), "transform"),
    "kernel evaluate": "evaluate",
}
"""Earlier spellings of commands, and what they are now."""
KERNEL: Final = "kernel-contrastive"
"""The model that `kernel fit` fitted where none was named."""


def present(words: Sequence[str]) -> list[str]:
    """Return a command line in the present spelling: files of runs, and people, may have an earlier one.

    >>> " ".join(present(["words", "a.txt", "--out", "w.h5"])), " ".join(present(["update", "m.h5", "x.h5", "--withdraw"]))
    ('fit --model words a.txt --out w.h5', 'withdraw m.h5 x.h5')
    """
    now = list(words)
    begun = EARLIER.get(" ".join(now[:2]))
    if begun is not None:
        named = begun != "fit" or any(word.startswith("--model") for word in now)
        now = [*begun.split(), *([] if named else ["--model", KERNEL]), *now[2:]]
    elif now[:1] == ["words"] and "--model" in now[1:-1]:  # a file, to which text was added
        at = now.index("--model")
        now = ["update", now[at + 1], *now[1:at], *now[at + 2 :]]
    elif now[:1] in (["words"], ["concepts"]):
        now = ["fit", "--model", *now]
    for flag, before, after in (("--withdraw", "update", "withdraw"), ("--plan", "fit", "plan")):
        if now[:1] == [before] and flag in now:
            now = [after, *(word for word in now[1:] if word != flag)]
    return now


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
    """A command whose help names no types of Python, that takes other names of settings for options, too, and remembers."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        present: dict[str, str] = getattr(self.callback, "renamed", {})
        words = [word.partition("=") for word in args]
        args = [present.get(option, option) + equals + value for option, equals, value in words]
        return super().parse_args(ctx, self._with_settings(args))

    def _with_settings(self, args: list[str]) -> list[str]:
        """Return words in which options that are settings of the model that is fitted are given by --set, as before."""
        own = {word for option in self.params for word in (*option.opts, *option.secondary_opts)}
        if not {"--model", "--set"} <= own or "--model" not in args[:-1]:
            return args
        from smtdist.models import jobs

        with suppress(SmtdistError):  # said later
            settings = jobs.declared(args[args.index("--model") + 1])
            changed, words = list[str](), iter(args)
            for word in words:
                option, equals, value = word.partition("=")
                name = option.removeprefix("--").replace("-", "_")
                known = [
                    now
                    for now, about in settings.items()
                    if name in (now, now.removeprefix("n_"), *about.metadata["setting"].aliases)
                ]
                if option in own or not option.startswith("--") or not known:
                    changed.append(word)
                else:
                    changed += ["--set", f"{known[0]}={value if equals else next(words, '')}"]
            return changed
        return args

    def invoke(self, ctx: Any) -> Any:
        given = {
            name: value
            for name, value in ctx.params.items()
            if ctx.get_parameter_source(name).name == "COMMANDLINE"
        }
        GIVEN.set({"verb": ctx.info_name, "options": given})
        return super().invoke(ctx)

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
