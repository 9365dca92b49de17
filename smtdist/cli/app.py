"""The application: its commands, and how errors become sentences and exit codes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from smtdist.cli.demo import demo
from smtdist.cli.errors import WrongUsage
from smtdist.cli.evaluate import evaluate
from smtdist.cli.export import export
from smtdist.cli.fit import fit, plan, resume
from smtdist.cli.import_ import import_
from smtdist.cli.info import info
from smtdist.cli.kernel import kernel
from smtdist.cli.merge import merge, update
from smtdist.cli.options import DEBUG
from smtdist.cli.settings import settings
from smtdist.cli.transform import transform
from smtdist.cli.tune import tune
from smtdist.errors import InterruptedRun, SmtdistError

FAILED, USAGE = 1, 2

HELP = (
    "Learn representations of images from data larger than memory, with the sparse manifold transform.\n\n"
    "Results go to standard output, progress and errors to standard error. "
    "Exit code 0: done; 1: failed; 2: wrong usage; 130 and 143: stopped by Ctrl-C and SIGTERM."
)


class _Group(TyperGroup):
    """Ends every command that fails with one sentence; `--debug` lets the traceback through."""

    def invoke(self, ctx: Any) -> Any:
        with sentences():
            return super().invoke(ctx)


@contextlib.contextmanager
def sentences() -> Iterator[None]:
    """Turn what can go wrong in a run into one line on standard error and an exit code."""
    try:
        yield
    except (SmtdistError, OSError, MemoryError, KeyboardInterrupt) as error:
        if DEBUG.is_set() or isinstance(error, BrokenPipeError):
            raise
        message, code = _sentence(error)
        typer.echo(f"smtdist: {message}", err=True)
        raise typer.Exit(code) from None


def _sentence(error: BaseException) -> tuple[str, int]:
    if isinstance(error, KeyboardInterrupt):
        return "Stopped.", 130
    if isinstance(error, MemoryError):
        return f"Out of memory ({error}); use a smaller dictionary, or a machine with more.", FAILED
    sentence = " ".join(str(error).split())
    if isinstance(error, InterruptedRun):
        return sentence, error.exit_code
    return sentence, USAGE if isinstance(error, WrongUsage) else FAILED


app = typer.Typer(
    name="smtdist",
    cls=_Group,
    help=HELP,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

for _command, _arguments in (
    (demo, "--workers 2"),
    (import_, "images/train --out data.h5 --group train"),
    (plan, "data.h5 --dataset train/images --set dictionary=8192 --workers 4"),
    (fit, "data.h5 --dataset train/images --out model.h5 --preset mnist-vq --set dictionary=2048"),
    (resume, "checkpoint/"),
    (update, "model.h5 more.h5 --dataset train/images"),
    (merge, "a.h5 b.h5 --subtract c.h5 --out m.h5"),
    (transform, "model.h5 data.h5 --dataset test/images --out z.h5"),
    (evaluate, "model.h5 data.h5 --train train --test test --metric knn"),
    (tune, "data.h5 --train train --limit 2000 --grid ridge=0.001,0.01,0.1 --grid n_components=64,256"),
    (export, "model.h5 --format onnx --out model.onnx"),
    (info, "model.h5 --json"),
    (settings, "--json"),
):
    _name = _command.__name__.rstrip("_")  # import is a word of the language
    app.command(_name, epilog=f"Example: smtdist {_name} {_arguments}")(_command)
app.add_typer(kernel, name="kernel", epilog="Example: smtdist kernel fit data.h5 --dataset x --out k.h5")


def _version(value: bool) -> None:
    if value:
        typer.echo(version("smtdist"))
        raise typer.Exit


@app.callback()
def _root(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line."""
    app()
