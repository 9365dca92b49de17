"""The commands by name, and where each lives. A command is imported when it is called."""

from __future__ import annotations

import ast
import gc
import inspect
from collections.abc import Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from copy import copy
from functools import cache
from importlib import import_module
from itertools import pairwise
from keyword import iskeyword
from pathlib import Path
from typing import Any, Final, NamedTuple

import typer
from typer.core import TyperCommand

from smtdist.cli.options import options_of, with_common_options
from smtdist.errors import SmtdistError


class Given(NamedTuple):
    """A command and its options as they were given, by name; nothing where none is under way."""

    verb: str = ""
    options: Mapping[str, Any] = {}  # read only


NOTHING: Final = Given()
GIVEN: ContextVar[Given] = ContextVar("GIVEN", default=NOTHING)
"""The command under way: a checkpoint folder remembers it."""

CHECKPOINT: ContextVar[Path | None] = ContextVar("CHECKPOINT", default=None)
"""The checkpoint folder of the run under way, once `smtdist resume` can go on with it."""


COMMANDS: Final = {
    **{"demo": "demo", "import": "data", "manifest": "data", "plan": "fit", "fit": "fit"},
    **{"resume": "runfile", "watch": "watch", "update": "change", "withdraw": "change", "merge": "change"},
    **{"transform": "use", "evaluate": "use", "tune": "tune", "near": "look", "search": "look"},
    **{"draw": "look", "filters": "look", "export": "use", "report": "look", "tls": "watch"},
    **{"info": "look", "check": "look", "settings": "look"},
}
"""Every command, as help lists them, and the module of its function, which has its name."""
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
        settings = self._settings(args) if "--model" in args else {}
        words, rest = list[str](), iter(args)
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
        models = [after for word, after in pairwise(args) if word == "--model"]
        if not models or not {"--model", "--set"} <= own:
            return {}
        from smtdist.models import jobs

        with suppress(SmtdistError):  # said later
            named = options_of(jobs.declared(models[-1]))
            return {option: name for option, name in named.items() if option not in own}
        return {}

    def invoke(self, ctx: Any) -> Any:
        if not gc.isenabled():  # modules that `main` has loaded stay
            gc.freeze()
            gc.enable()
        GIVEN.set(Given(ctx.info_name, of_the_user(ctx)))
        return super().invoke(ctx)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Show --no-... where others have what they take: in a column of its own it leaves the meanings no room."""
        shown: Any = copy(self)
        shown.params = [copy(one) for one in self.params]
        for one in shown.params:
            if one.secondary_opts:
                one.metavar, one.secondary_opts = one.secondary_opts[0], []
                one.show_default = one.show_default and "on"
        super(_Command, shown).format_help(ctx, formatter)

    def get_params(self, ctx: Any) -> Any:
        found: list[Any] = super().get_params(ctx)
        for one in found:
            # the name of an argument says what it is; Typer from 0.29 on adds a type of Python
            if one.param_type_name == "argument" or one.metavar is None:
                one.display_type_rich = lambda ctx: None
        return found


def _paragraphs(text: str) -> list[str]:
    """Return the paragraphs of a docstring, each in one line, so that the terminal alone says where lines end."""
    return [" ".join(part.split()) for part in inspect.cleandoc(text).split("\n\n")]


def about(name: str) -> str:
    """Return the first paragraph on a command, for which it is not imported."""
    text = Path(__file__).with_name(f"{COMMANDS[name]}.py").read_text("utf-8")
    verbs = {one.name.rstrip("_"): one for one in ast.parse(text).body if isinstance(one, ast.FunctionDef)}
    return _paragraphs(ast.get_docstring(verbs[name]) or "")[0]


@cache
def load(name: str) -> Any:
    """Import a command and return it as the command line needs it, once for all calls in a process."""
    module = import_module(f"smtdist.cli.{COMMANDS[name]}")
    function = getattr(module, f"{name}_" if iskeyword(name) else name)
    app = typer.Typer(
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    *text, example = _paragraphs(function.__doc__)
    app.command(name, cls=_Command, help="\n\n".join(text), epilog=example)(with_common_options(function))
    return typer.main.get_command(app)
