"""The application: its commands, and how errors become sentences and exit codes."""

from __future__ import annotations

import atexit
import contextlib
import difflib
import errno
import gc
import io
import os
import resource
import shlex
import sys
import warnings
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from smtdist.cli.commands import CHECKPOINT, COMMANDS, GIVEN, NOTHING, about, load, present
from smtdist.cli.errors import UsageError, WrongUsage, in_shell, of_usage
from smtdist.errors import (
    PLAIN,
    DataError,
    InterruptedRun,
    MemoryBudgetError,
    OutputExistsError,
    SmtdistError,
    device_faults,
    masked,
    rendered,
    sentence_of,
    visible,
)

FAILED, USAGE = 1, 2
PATIENCE = "18"
"""OpenBLAS's threads look for work for 2^18 cycles, a tenth of a millisecond, and then sleep. Left to themselves they look for
2^26, and take the cores of whoever else computes: beside two busy processes on two cores an eigensolve of 2,048 rows took 1.3
times as long, and 1.5 times the CPU time."""
TIGHT = 2**28
"""Bytes of the address space without which libraries, or what they compile, may not find room."""

HELP = (
    "Learn representations of images from data larger than memory, with the sparse manifold transform.\n\n"
    "Results go to standard output, progress and errors to standard error. "
    "Exit code 0: done; 1: failed; 2: wrong usage; 130: stopped by Ctrl-C; 143: stopped by SIGTERM."
)


class _Group(TyperGroup):
    """Loads a command when it is called, and ends one that fails with a sentence; `--debug` lets the traceback through."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return what help needs of a command."""
        return TyperCommand(cmd_name, help=about(cmd_name)) if cmd_name in COMMANDS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, *rest = present(args)
        if name not in COMMANDS:
            near = difflib.get_close_matches(name, COMMANDS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"the commands are {', '.join(COMMANDS)}."
            raise WrongUsage(f"There is no command {name!r}; {hint}")
        if (
            room := _address_space()
        ):  # libraries would end this process in words of their own, or by a signal
            raise MemoryBudgetError(room)
        return name, load(name), rest

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Begin anew: nothing is known of a command yet."""
        GIVEN.set(NOTHING)
        CHECKPOINT.set(None)
        ctx.obj = "--debug" in args
        with sentences(ctx.obj):  # help and the version are printed here
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        with sentences(ctx.obj):
            return super().invoke(ctx)


@contextlib.contextmanager
def sentences(debug: bool = False) -> Iterator[None]:
    """Turn what can go wrong in a run into one line on standard error and an exit code; `debug` shows its traceback instead.

    Wrong usage quotes words, which may be names of files or addresses, without control characters and credentials.
    """
    shown, warnings.showwarning = warnings.showwarning, _show
    try:
        with device_faults():
            yield
    except UsageError as error:
        if "NoArgs" in type(error).__name__:  # which shows the help
            raise
        typer.echo(f"smtdist: {visible(masked(of_usage(error)))}", err=True)
        raise typer.Exit(USAGE) from None
    except (
        SmtdistError,
        OSError,
        MemoryError,
        KeyboardInterrupt,
        ImportError,
        RuntimeError,
        UnicodeEncodeError,
    ) as error:
        # unless a library, or a thread, finds no room
        faulty = isinstance(error, ImportError | RuntimeError)
        short = isinstance(error, MemoryError | ImportError) or "can't start new thread" in str(error)
        short = short or (isinstance(error, OSError) and error.errno in (None, errno.ENOMEM))
        room = _address_space() if short else ""
        if debug or isinstance(error, BrokenPipeError) or (faulty and not room):
            raise
        message, code = (room, FAILED) if room else _sentence(error)
        typer.echo(f"smtdist: {visible(masked(message))}", err=True)
        raise typer.Exit(code) from None
    finally:
        warnings.showwarning = shown


def _show(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any, **_others: Any
) -> None:
    """Show a warning of data or a GPU as a sentence, any other as Python does."""
    if category.__module__ == DataError.__module__:
        typer.echo(visible(masked(str(message))), err=True)
    else:
        typer.echo(warnings.formatwarning(message, category, filename, lineno), err=True, nl=False)


def _address_space() -> str:
    """Return the sentence on a limit of the address space which leaves a library, or an array, no room; "" where none does."""
    try:
        mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except OSError:
        return ""
    for limit, _ in map(resource.getrlimit, (resource.RLIMIT_AS, resource.RLIMIT_DATA)):
        if limit != resource.RLIM_INFINITY and limit - mapped < TIGHT:
            return (
                f"This process may map {limit / 2**20:,.0f} MiB (ulimit -v or -d, or h_vmem of a batch system), too little for "
                f"the libraries that it loads; raise that limit to 2 GiB or more."
            )
    return ""


def _sentence(error: BaseException) -> tuple[str, int]:
    if isinstance(error, KeyboardInterrupt):
        return _with_way_on("Stopped.", "continue with {resume}"), 130
    if isinstance(error, UnicodeEncodeError):  # a name in a file cannot be what a name of a file can
        return f"{error.object!r} is not in UTF-8; give a name that is.", FAILED
    if isinstance(error, MemoryError):
        return f"Out of memory ({error}); use a smaller dictionary, or a machine with more memory.", FAILED
    sentence = rendered(sentence_of(error), in_shell)
    if not isinstance(error, SmtdistError):  # a library's, in lines
        sentence = " ".join(sentence.split())
    if isinstance(error, InterruptedRun):
        return _with_way_on(sentence, "continue with {resume}"), error.exit_code
    if isinstance(error, OutputExistsError):
        return _with_way_on(sentence, "the run is kept, and {resume} --overwrite replaces the file"), FAILED
    return sentence, USAGE if isinstance(error, WrongUsage) else FAILED


def _with_way_on(sentence: str, way: str) -> str:
    """Say how to go on with a run that has a checkpoint, in place of what a run without one is told."""
    if (folder := CHECKPOINT.get()) is None:
        return sentence
    way = way.format(resume=f"smtdist resume {shlex.quote(str(folder))}")
    return f"{sentence.partition(';')[0].rstrip('.')}; {way}."


app = typer.Typer(
    name="smtdist",
    cls=_Group,
    help=HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Output(io.RawIOBase):
    """Standard output or standard error of a run, which fails because of neither where it has something else to leave.

    The first failure of standard output ends a command that prints its result; whatever comes after it is dropped.
    """

    def __init__(self, stream: Any, name: str) -> None:
        self._stream = stream  # it closes the file when it goes
        self._raw, self._name, self._failed = getattr(stream.buffer, "raw", stream.buffer), name, False

    @classmethod
    def replace(cls, name: str) -> None:
        """Take the place of a stream of `sys`; what its encoding lacks is written in plain letters."""
        stream = getattr(sys, name)
        output = cls(stream, name)
        how = {"line_buffering": stream.line_buffering, "write_through": stream.write_through}
        setattr(sys, name, io.TextIOWrapper(io.BufferedWriter(output), stream.encoding, PLAIN, **how))

    def writable(self) -> bool:
        """Return True."""
        return True

    def fileno(self) -> int:
        """Return the number of the file."""
        return int(self._raw.fileno())

    def isatty(self) -> bool:
        """Tell whether it is a terminal."""
        return bool(self._raw.isatty())

    def write(self, data: Any) -> int | None:
        """Write bytes."""
        if not self._failed:
            try:
                return self._raw.write(data)  # type: ignore[no-any-return]  # None where a pipe is full
            except OSError as error:
                self._failed = True
                if self._name == "stdout":
                    leaves = "out" in GIVEN.get().options
                    if isinstance(error, BrokenPipeError):
                        if not leaves:
                            raise
                    else:
                        what = f"Standard output cannot be written ({error.strerror})"
                        if not leaves:
                            raise SmtdistError(f"{what}; send it elsewhere.") from error
                        typer.echo(f"smtdist: {what}.", err=True)
        return len(data)


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


def _speak_utf8() -> None:
    """Start this process again in Python's UTF-8 mode where the locale says that names of files are in another encoding.

    Files keep names in UTF-8, and a name must be the same wherever it is read. What is printed stays in the encoding that
    the locale asks for.
    """
    if "utf" not in sys.getfilesystemencoding() and "utf8" not in sys._xoptions:
        if sys.stdout is not None:
            os.environ.setdefault("PYTHONIOENCODING", sys.stdout.encoding)
        os.environ["PYTHONUTF8"] = "1"  # of processes that this one starts
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])


def main() -> None:
    """Run the command line.

    Looking for garbage in modules as they are loaded takes a fifth of a start, and in a process that ends as long as importing
    NumPy.
    """
    _speak_utf8()
    gc.disable()  # until a command is called
    atexit.register(gc.freeze)
    for name in ("stdin", "stdout", "stderr"):  # closed by who started us: files would get their numbers
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: SIM115
    for name in ("stdout", "stderr"):
        Output.replace(name)
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", PATIENCE)
    app(prog_name="smtdist")
