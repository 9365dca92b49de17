"""Fits and changes of any kind of model, from what a person names: opened and checked, ready to be run.

The row of a kind in `smtdist.models.kinds.KINDS` says by which names its models are fitted, what beside data and settings such
a fit takes, and which module has the function `job` that makes a `Job` of a `Request`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import Field, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from smtdist.data.source import Source
from smtdist.errors import ConfigurationError, ModelError, UnsuitableError, option
from smtdist.models import plugins
from smtdist.models.kinds import KINDS, OF_IMAGES, Kind

if TYPE_CHECKING:  # a command that needs no fit does not wait for what only fits need
    from smtdist.configuration import Configuration
    from smtdist.engine.forecast import PassCost
    from smtdist.engine.manifest import Facts
    from smtdist.engine.passes import Engine
    from smtdist.models.provenance import Record
    from smtdist.models.transform import TransformPlan

VERBS: Final = (
    *("plan", "fit", "resume", "watch", "update", "withdraw", "merge"),
    *("transform", "evaluate", "tune", "export", "report", "info", "check"),
)
"""What can be done with models; which a kind has follows from its row."""
SMT: Final = "smt"
"""The model that is fitted where no other is asked for."""


class Request(NamedTuple):
    """What a fit is asked for.

    data, dataset : the samples. model : by name. settings : by their names. out : where the model will be written.
    What follows only some kinds take: preset, from_model (a model whose parts stay), below (a model to stack a layer on), atoms
    (a file with atoms), clip (names of clips), limit (so many samples), skip_damaged (leave samples out that cannot be read).
    """

    data: tuple[str, ...]
    dataset: str | None = None
    model: str = SMT
    settings: Mapping[str, Any] = {}  # read only
    out: Path | None = None
    preset: str | None = None
    from_model: Path | None = None
    below: Path | None = None
    atoms: Path | None = None
    clip: tuple[str, ...] = ()
    limit: int | None = None
    skip_damaged: bool = False


TAKEN: Final = ("dataset", "preset", "from_model", "below", "atoms", "clip", "limit", "skip_damaged")
"""What only fits of some kinds take."""


class Change(NamedTuple):
    """What a model is asked to add or to withdraw.

    data, dataset : the samples. withdraw : take them out. alone : make a model of these samples only, with the codes of the
    model. repeats : add samples that are there already, too. lines : of a text, the first and last of each range, counted
    from 1. lengths : of the sequences of a table in time. skip_damaged : leave samples out that cannot be read.
    """

    data: tuple[str, ...]
    dataset: str | None = None
    withdraw: bool = False
    alone: bool = False
    repeats: bool = False
    lines: tuple[tuple[int, int], ...] = ()
    lengths: tuple[int, ...] = ()
    skip_damaged: bool = False


@dataclass(frozen=True)
class Job:
    """A fit, or a change of a model, that is ready.

    source : what it reads. fit : does it with an engine. facts : what a checkpoint depends on. components : those that are
    solved for, which a plan needs. about : what a plan says of it. costs : states its passes, where these are not found by a
    rehearsal. unplanned : why there is no plan, "" where there is one. alone : why no other process can help, likewise.
    pictured : whether its samples are images, of which a first look can be taken. seed : of that look.
    stored_bytes : of the sums in the file, at most; 0 where that is little. each : settings of transforms with binary codes by
    name, "" for one alone, of which a plan knows more. lines : what else is said of the model. advice :
    sentences on what to do where a fit fell short, empty ones where it did not.
    """

    source: Source
    fit: Callable[[Engine], tuple[Any, list[Record]]]
    facts: Callable[[], Facts]
    components: int = 0
    about: Mapping[str, Any] = field(default_factory=dict)
    costs: Callable[[Engine], list[PassCost]] | None = None
    unplanned: str = ""
    alone: str = ""
    pictured: bool = False
    seed: int = 0
    stored_bytes: int = 0
    each: Mapping[str, Configuration] = field(default_factory=dict)
    lines: Callable[[Any], Iterable[str]] = lambda model: ()
    advice: Callable[[Any], Iterable[str]] = lambda model: ()


class Seen(NamedTuple):
    """Samples that a model transforms, images or rows of a table for example.

    source : what is read. write : writes a file of it, replacing one where it may, and returns its bytes. about : what is said
    once that is done. plan : returns what it would take, and bytes on the disk; None where nothing is planned.
    """

    source: Source
    write: Callable[[Engine, Path, bool], int]
    about: Mapping[str, Any]
    plan: Callable[[Engine], tuple[TransformPlan, int]] | None = None


class Look(NamedTuple):
    """What a model is asked to transform: its file, files of data, a dataset in them, and whether as lines of text.

    Only models of images take more than one file, and what follows: read_out (settings of a read-out), changes (of settings
    that may change after the fit), others (files of models whose representations follow), mirrored (features of mirror images,
    too), half (float16), limit (so many samples), skip_damaged (leave samples out that cannot be read).
    """

    model: Path
    files: tuple[str, ...]
    dataset: str | None = None
    csv: bool = False
    read_out: Mapping[str, Any] = {}  # read only
    changes: Mapping[str, Any] = {}
    others: tuple[Path, ...] = ()
    mirrored: bool = False
    half: bool = False
    limit: int | None = None
    skip_damaged: bool = False

    @property
    def data(self) -> str:
        """The file of data, or the first of them."""
        return self.files[0]


def names() -> list[str]:
    """Return the names of all models that can be fitted; encoders that packages bring are codes of the first."""
    own = (name for kind in KINDS.values() for name in kind.names)
    return [*dict.fromkeys([*own, *plugins.names(plugins.MODELS)])]


def kind_of(model: str) -> Kind:
    """Return the kind of the models of a name; ConfigurationError for a name that no model has."""
    if not (known := _fitted_as(model)):
        plugins.brought(plugins.MODELS, model, "STORED_AS")  # its module adds a row to the table
        known = _fitted_as(model)
    if known:
        return known[0]
    near = difflib.get_close_matches(model, names(), n=1)
    hint = f"did you mean {near[0]}?" if near else f"choose {', '.join(sorted(names()))}."
    raise ConfigurationError(f"There is no model {model!r}; {hint}")


def _fitted_as(model: str) -> list[Kind]:
    every = KINDS.values()
    own = [kind for kind in every if model in kind.fits]
    return own or [kind for kind in every if kind.brought and plugins.is_brought(kind.brought, model)]


def job(request: Request) -> Job:
    """Open and check what a request names.

    Raises ConfigurationError for settings that make no sense and for what such a fit does not take, DataError for data.
    """
    kind = kind_of(request.model)
    idle = [option(name) for name in TAKEN if getattr(request, name) and name not in kind.takes]
    if idle:
        raise ConfigurationError(
            f"A fit of {request.model} takes no {' and no '.join(idle)}; leave it out."
        )
    made: Job = kind.imported(kind.fitted_by).job(request)
    return made


def verbs(name: str) -> set[str]:
    """Return the verbs that a kind has.

    >>> sorted(set(VERBS) - verbs("words")), sorted(set(VERBS) - verbs("head"))
    (['evaluate', 'transform', 'tune'], ['export', 'merge', 'plan', 'tune'])
    """
    kind, of_images = KINDS[name], name in OF_IMAGES
    has = {
        **dict.fromkeys(("fit", "resume", "watch"), bool(kind.fits)),
        "plan": bool(kind.fits) and not kind.unplanned,
        **dict.fromkeys(("update", "withdraw"), bool(kind.updated_by)),
        "transform": of_images or bool(kind.transformed_by),
        "evaluate": of_images or bool(kind.evaluated_by),
        **dict.fromkeys(("report", "info", "check", *kind.also), True),
    }
    return {verb for verb, is_there in has.items() if is_there}


LACKING: Final = {
    "update": "takes no more samples; fit it again on all data",
    "withdraw": "gives no samples back; fit it again on the rest of the data",
    "merge": "cannot be merged with others; fit it again on all data",
    "transform": "cannot transform samples; smtdist info says what it holds",
    "evaluate": "tells no classes apart; give a model of images, a kernel model, a model of video, a head or representations",
    "export": "has no format of other programs; smtdist export takes transforms with the codes gq and vq, and models of words",
}
"""What is said of a kind that lacks a verb."""


def require_verb(name: str, verb: str) -> Kind:
    """Return a kind; ModelError where it lacks a verb."""
    kind = KINDS[name]
    if verb not in verbs(name):
        raise ModelError(f"A {kind.called} {LACKING[verb]}.")
    return kind


def update_job(model: Any, change: Change) -> Job:
    """Open and check samples that are added to a model, or withdrawn from it.

    Raises ModelError for a model of a kind to which nothing can be added.
    """
    kind = require_verb(model.STORED_AS, "withdraw" if change.withdraw else "update")
    if change.lines and "lines" not in kind.takes:
        raise ConfigurationError(f"A {kind.called} has no lines; leave out {option('lines')}.")
    made: Job = kind.imported(kind.updated_by).update_job(model, change)
    return made


@contextmanager
def suiting() -> Iterator[None]:
    """Say of a setting that is refused here that it is these data which it does not suit."""
    try:
        yield
    except ConfigurationError as error:
        raise UnsuitableError(error.sentence) from error


def seen(model: Any, look: Look) -> Seen:
    """Open samples that a model of no images transforms; ModelError for a kind of models that transforms nothing."""
    kind = require_verb(model.STORED_AS, "transform")
    if look != Look(look.model, look.files[:1], look.dataset, look.csv):
        raise ConfigurationError(
            "A model of no images has one representation, of one file; leave out the options of images, and of what is "
            "written of them."
        )
    if look.csv and "csv" not in kind.takes:
        raise ConfigurationError(f"A {kind.called} writes no CSV; leave that out.")
    opened: Seen = kind.imported(kind.transformed_by).seen(model, look)
    return opened


def declared(model: str) -> Mapping[str, Field[Any]]:
    """Return the settings of the models of a name, as they are declared."""
    home: Any = (kind := kind_of(model)).imported(kind.settings)
    known: Mapping[str, Field[Any]] = home.declared() if hasattr(home, "declared") else home(model)
    return known
