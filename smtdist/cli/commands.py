"""The commands by name: where each lives, and its one line of help. A command is imported when it is called."""

from __future__ import annotations

import gc
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from importlib import import_module
from keyword import iskeyword
from pathlib import Path
from typing import Any, Final

import typer
from typer.core import TyperCommand

from smtdist.cli.options import flag, other_names, with_common_options
from smtdist.errors import SmtdistError

GIVEN: ContextVar[dict[str, Any] | None] = ContextVar("GIVEN", default=None)
"""The options of the command under way as they were given, by name, and the command: a checkpoint folder remembers them."""

CHECKPOINT: ContextVar[Path | None] = ContextVar("CHECKPOINT", default=None)
"""The checkpoint folder of the run under way, once `smtdist resume` can go on with it."""


COMMANDS: Final = {
    "demo": "Fit a model on scikit-learn's handwritten digits, on a local Dask cluster, and compare it with raw pixels.",
    "import": "Import images from a folder, arrays or archives into an HDF5 file; repeat the command to continue a stopped "
    "import.",
    "manifest": "Write a manifest of many files, so that they can be used as one; or check the files of a manifest.",
    "plan": "Print what a fit will cost, pass by pass: tasks, bytes, memory and time.",
    "fit": "Fit a model of any kind: of images, words, the rows of a table, clips, kernels, concepts, or a head.",
    "resume": "Continue a stopped run from its checkpoint folder; the result is the same as without the stop.",
    "watch": "Show a run that was started elsewhere, live, until it ends; this does not change the run.",
    "update": "Add samples to a model, and solve again; only these samples are read.",
    "withdraw": "Withdraw samples from a model, as if they had never been added, and solve again; only these samples are read.",
    "merge": "Add the sums of models, subtract those of others, and solve again; no data are read.",
    "transform": "Write the representation of every sample to an HDF5 file, or the predictions of a head.",
    "evaluate": "Classify test images from training images: with soft k-NN, a linear probe, an SVM, or kernel ridge regression.",
    "tune": "Try every combination of a grid of settings on held-out images, in far less time than separate fits.",
    "near": "Show the words nearest to others in a model of words, and the words that co-occur with them most.",
    "search": "List the points whose concepts fulfil a formula.",
    "draw": "Draw which concepts separate some points, and where all others lie.",
    "filters": "Draw the atoms of a model as patches.",
    "export": "Write a fitted encoder for ONNX Runtime, or vectors of words for gensim.",
    "report": "Write an HTML page that shows what a file holds: settings, spectrum, dictionary, neighbours, mistakes, words, "
    "concepts.",
    "tls": "Make certificates for the scheduler, workers and clients of a cluster.",
    "info": "Show what a file holds: a model, concepts, representations, a head or images.",
    "check": "Read files that smtdist has written, checkpoint folders too, and compare them with their checksums.",
    "settings": "List the settings of a model that --set takes, with defaults, and the presets with what they change.",
}
"""Every command by name, with the first sentence of its docstring."""
MODULES: Final = {
    **dict.fromkeys(("import", "manifest"), "data"),
    **dict.fromkeys(("plan", "fit"), "fit"),
    **dict.fromkeys(("update", "withdraw", "merge"), "change"),
    **dict.fromkeys(("transform", "evaluate", "export"), "use"),
    **dict.fromkeys(("near", "search", "info", "check", "settings"), "look"),
    **dict.fromkeys(("draw", "filters", "report"), "output"),
    **dict.fromkeys(("watch", "tls"), "watch"),
    **{"demo": "demo", "resume": "runfile", "tune": "tune"},
}
"""Where the function of a command is, which has its name."""
RESUMED: Final = ("fit", "update", "withdraw")
"""Commands whose runs `resume` goes on with."""


EARLIER: Final = {
    "words": "fit --model words",
    "concepts": "fit --model concepts",
    "points fit": "fit --model points",
    "kernel fit": "fit --model kernel-contrastive",
    "kernel plan": "plan --model kernel-contrastive",
    "video fit": "fit --model video",
    "video import": "import --kind video",
    "video judge": "evaluate",
    "head fit": "fit --model head",
    "head predict": "transform",
    "head update": "update",
    **dict.fromkeys(("points transform", "kernel transform"), "transform"),
    "kernel evaluate": "evaluate",
}
"""Earlier spellings of commands, and what they are now; of a model that is named again the last name holds."""


def present(words: Sequence[str]) -> list[str]:
    """Return a command line in the present spelling: files of runs, and people, may have an earlier one.

    >>> " ".join(present(["words", "a.txt", "--out", "w.h5"])), " ".join(present(["update", "m.h5", "x.h5", "--withdraw"]))
    ('fit --model words a.txt --out w.h5', 'withdraw m.h5 x.h5')
    """
    now = list(words)
    if now[:1] == ["words"] and "--model" in now[1:-1]:  # a file, to which text was added
        at = now.index("--model")
        now = ["update", now[at + 1], *now[1:at], *now[at + 2 :]]
    for count in (1, 2):
        if begun := EARLIER.get(" ".join(now[:count])):
            now = [*begun.split(), *now[count:]]
    for switch, before, after in (("--withdraw", "update", "withdraw"), ("--plan", "fit", "plan")):
        if now[:1] == [before] and switch in now:
            now = [after, *(word for word in now[1:] if word != switch)]
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


def of_the_user(ctx: Any) -> dict[str, Any]:
    """Return the options that the user gave, in this call or in the one that began its run."""
    return {
        name: value
        for name, value in ctx.params.items()
        if ctx.get_parameter_source(name).name in ("COMMANDLINE", "DEFAULT_MAP")
    }


class _Command(TyperCommand):
    """A command whose help names no types of Python, that takes other names of settings for options, too, and remembers."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        renamed: dict[str, str] = getattr(self.callback, "renamed", {})
        settings, words, rest = self._settings(args), list[str](), iter(args)
        for word in rest:
            option, equals, value = word.partition("=")
            if option in settings:
                words += ["--set", f"{settings[option]}={value if equals else next(rest, '')}"]
            else:
                words.append(renamed.get(option, option) + equals + value)
        return super().parse_args(ctx, words)

    def _settings(self, args: list[str]) -> dict[str, str]:
        """Return settings of the model that is fitted by the options that they were."""
        own = {word for option in self.params for word in (*option.opts, *option.secondary_opts)}
        if not {"--model", "--set"} <= own or "--model" not in args[:-1]:
            return {}
        from smtdist.models import jobs

        with suppress(SmtdistError):  # said later
            last = max(at for at, word in enumerate(args[:-1]) if word == "--model")
            declared = jobs.declared(args[last + 1])
            named = {flag(name): name for name in declared} | other_names(declared)
            return {option: name for option, name in named.items() if option not in own}
        return {}

    def invoke(self, ctx: Any) -> Any:
        GIVEN.set({"verb": ctx.info_name, "options": of_the_user(ctx)})
        return super().invoke(ctx)

    def get_params(self, ctx: Any) -> Any:
        found: list[Any] = super().get_params(ctx)
        for (
            one
        ) in found:  # the name of an argument says what it is; Typer from 0.29 on adds a type of Python
            if one.param_type_name == "argument" or one.metavar is None:
                one.display_type_rich = lambda ctx: None
        return found


def _paragraphs(function: Callable[..., Any]) -> list[str]:
    """Return the paragraphs of a docstring, each in one line, so that the terminal alone says where lines end."""
    return [" ".join(part.split()) for part in (inspect.getdoc(function) or "").split("\n\n")]


@cache
def load(name: str) -> Any:
    """Import a command and return it as the command line needs it, once for all calls in a process."""
    with _uncollected():
        module = import_module(f"smtdist.cli.{MODULES[name]}")
    function = getattr(module, f"{name}_" if iskeyword(name) else name)
    app = typer.Typer(
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    *text, example = _paragraphs(function)
    app.command(name, cls=_Command, help="\n\n".join(text), epilog=example)(with_common_options(function))
    return typer.main.get_command(app)
