"""The options that commands share, and the settings they add up to."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from smtdist import configuration
from smtdist.cli.errors import DEBUG, WrongUsage, usage
from smtdist.engine.cluster_choice import ClusterChoice
from smtdist.settings import FLAG, Settings, described

if TYPE_CHECKING:  # a command that needs no data does not wait for what reads them
    from smtdist.data.source import Source
    from smtdist.models.jobs import Job

LARGE = 2**30
"""Data beyond which, with more than two cores, a command starts worker processes without being asked."""

MOST_WORKERS = 8


@dataclass(frozen=True)
class Where:
    """Where the work is done, and what is shown of it, as the user said it.

    A command that takes one has the options `_PLACE`.
    """

    workers: int | None = None
    cluster: ClusterChoice | None = None
    quiet: bool = False
    events: Path | None = None
    memory: str | None = None

    @property
    def is_local(self) -> bool:
        """Tell whether the work is done by this machine's processes, as many as are chosen here."""
        return self.cluster is None or self.cluster.is_local

    def resolved_workers(self, source: Source) -> int | None:
        """Return the number of workers: as told, else 0, for large data half the cores; others know their own size."""
        if self.workers is not None or not self.is_local:
            return self.workers
        from smtdist.engine.executor import available_cores

        cores = available_cores()
        large = cores > 2 and source.n_samples * source.sample_bytes > LARGE
        return min(MOST_WORKERS, max(1, cores // 2)) if large or self.cluster is not None else 0


@dataclass(frozen=True)
class How(Where):
    """Where the work is done, and how it goes on where it was stopped, or where samples cannot be read.

    A command that takes one has the options `_HOW`.
    """

    checkpoint: Path | None = None
    on_bad_chunk: str = "raise"
    solve_on: str = "driver"


@dataclass(frozen=True)
class Wanted:
    """What is to be fitted, as the user said it.

    A command that takes one has the options `_WANTED`.
    """

    data: list[str]
    dataset: str | None
    model: str
    preset: str | None
    set_: list[str] | None
    from_model: Path | None
    below: Path | None
    atoms: Path | None
    clip: list[str] | None
    limit: int | None

    @property
    def inputs(self) -> tuple[Path | None, ...]:
        """Files that are read beside the data, which no output may replace."""
        return self.from_model, self.below, self.atoms

    def job(self, out: Path | None, how: How) -> Job:
        """Open and check what the options name; what has no meaning is wrong usage."""
        from smtdist.models import jobs

        with usage():
            return jobs.job(
                jobs.Request(
                    self.model,
                    tuple(self.data),
                    self.dataset,
                    configuration.parse_settings(self.set_ or []),
                    out,
                    self.preset,
                    self.from_model,
                    self.below,
                    self.atoms,
                    tuple(self.clip or ()),
                    self.limit,
                    how.on_bad_chunk == "skip",
                )
            )


def _debug(value: bool) -> None:
    DEBUG.set() if value else DEBUG.clear()


def _follow(places: list[str] | None) -> None:
    """Let what a file names be read in folders, and behind addresses that begin so; workers of this machine read it, too."""
    if places:
        from smtdist.data import following
        from smtdist.data.remote import is_url

        found = [place if is_url(place) else os.path.abspath(place) for place in places]
        if any("," in place for place in found):
            raise typer.BadParameter("a folder or an address has no comma")
        os.environ[following.ALLOWED] = ",".join([*following.allowed(), *found])


Data = Annotated[
    list[str],
    typer.Argument(
        metavar="DATA...",
        help="HDF5 file, Zarr store or address (https://, s3://) with images; a .npy file or a dataset with rows; text "
        "files; clips; or representations. Many files: list them, or give a quoted pattern, a folder, a list (.txt) "
        "or a manifest (.json).",
    ),
]
ModelFile = Annotated[Path, typer.Argument(metavar="MODEL.h5", help="Model written by smtdist fit.")]
Preset = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Start from the settings of a published experiment; smtdist settings lists them.",
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change one setting, such as seed=1; may be repeated."),
]
SetAfter = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a setting that can change after the fit: pool_size and pool_stride of an embedding; pooling, penalty and "
        "others of a code without an embedding. May be repeated.",
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        min=0,
        metavar="N",
        help="Number of worker processes; 0 does the work in this one. Default: 0; for more than 1 GiB of data half the cores.",
    ),
]
Cluster = Annotated[
    ClusterChoice | None,
    typer.Option(
        parser=ClusterChoice,
        metavar="KIND|ADDRESS",
        help="Where workers run: local, slurm, pbs, sge, lsf, oar, moab, ssh, kubernetes or cuda, or the address of a Dask "
        "scheduler, such as tls://host:8786.",
    ),
]
ClusterConfig = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="YAML file that configures the cluster; deploy/ has an example for each kind.",
    ),
]
Tls = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER", help="Folder with certificates for --cluster, made by smtdist tls init."
    ),
]
Insecure = Annotated[
    bool,
    typer.Option(
        "--insecure",
        help="Allow connections to other machines without encryption, and from other users of this one.",
    ),
]
MaxWorkers = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="N", help="Start more workers while there is work for them, up to this number."
    ),
]
Memory = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE",
        help="Memory of each worker, such as 16GB. Default: an equal share of this machine's.",
    ),
]
Checkpoint = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Keep partial sums in this folder, so that smtdist resume can continue; all workers must see it.",
    ),
]
OnBadChunk = Annotated[
    str | None,
    typer.Option(
        "--on-bad-chunk",
        metavar="raise|skip",
        help="If samples cannot be read or decoded: raise ends the run (the default), skip leaves them out and lists them.",
    ),
]
SolveOn = Annotated[
    str | None,
    typer.Option(
        "--solve-on",
        metavar="driver|workers",
        help="Who multiplies the matrices of a large eigenproblem: the driver (the default), from memory or else from files in "
        "the checkpoint folder; or the workers, which then hold the matrices together.",
    ),
]
Repeats = Annotated[
    bool,
    typer.Option(
        "--allow-repeats", help="Also add samples that are in the sums already; they then count twice."
    ),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the output if it exists.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
Events = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Write the run's events to this file, one JSON object a line; - writes them to standard error, without bars.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]
Debug = Annotated[
    bool,
    typer.Option(
        "--debug",
        callback=_debug,
        is_eager=True,
        expose_value=False,
        help="Show the traceback of an error.",
    ),
]
Follow = Annotated[
    list[str] | None,
    typer.Option(
        "--follow",
        metavar="FOLDER|ADDRESS",
        callback=_follow,
        expose_value=False,
        help="If a manifest or an HDF5 file refers to other files, also read them in this place, and not only in its own folder. "
        "May be repeated.",
    ),
]
NeighboursThatVote = Annotated[
    int | None,
    typer.Option(
        min=1, help="Number of neighbours that vote (knn). Default: the model's setting, else 30."
    ),
]
Limit = Annotated[int | None, typer.Option(min=1, metavar="N", help="Use only the first N samples.")]
With = Annotated[
    list[Path] | None,
    typer.Option(
        "--with",
        metavar="MODEL.h5",
        help="Append the representation by another model, such as one fitted on grey images; may be repeated.",
    ),
]


Atoms = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.npy", help="Use your own atoms: an array (atoms, pixels) of whitened patches."
    ),
]
Clips = Annotated[
    list[str] | None,
    typer.Option("--clip", help="Clip of a file of clips to use; may be repeated. Default: all."),
]


Plan = Annotated[
    bool,
    typer.Option(
        "--plan",
        help="Print what the command would cost: size, memory, disk, and time, measured on a few images. Write nothing.",
    ),
]


FORMATS = ("png", "svg", "pdf")
"""Of pictures that commands draw."""


_OF_CLUSTERS = {
    "max_workers": (MaxWorkers, None),
    "cluster_config": (ClusterConfig, None),
    "tls": (Tls, None),
    "insecure": (Insecure, False),
}
"""What belongs to --cluster: one ClusterChoice says all of it."""
_WANTED = {
    "data": (Data, inspect.Parameter.empty),
    "dataset": (
        Annotated[
            str | None,
            typer.Option(
                help="Where the samples are in the file, such as train: a dataset (samples, ...) or a group. Text, clips and "
                "representations have none."
            ),
        ],
        None,
    ),
    "model": (
        Annotated[
            str,
            typer.Option(
                "--model",
                help="What to fit: smt (the transform of images), l1, s3c, omp or sc (a learned code of patches alone), words, "
                "points, video, concepts, head, or kernel-NAME with contrastive, spectral or autoencoder as NAME.",
            ),
        ],
        "smt",
    ),
    "preset": (Preset, None),
    "set_": (Set, None),
    "from_model": (
        Annotated[
            Path | None,
            typer.Option(
                metavar="MODEL.h5",
                help="Reuse what this model has learned (whitening and dictionary, a code, or a vocabulary); compute only "
                "statistics and the solve.",
            ),
        ],
        None,
    ),
    "below": (
        Annotated[
            Path | None,
            typer.Option(
                metavar="MODEL.h5",
                help="Model of video on which to stack this layer; the output holds all layers.",
            ),
        ],
        None,
    ),
    "atoms": (Atoms, None),
    "clip": (Clips, None),
    "limit": (Limit, None),
}
"""What is fitted: one `Wanted` says all of it."""
_PLACE = {
    "workers": (Workers, None),
    "cluster": (Cluster, None),
    **_OF_CLUSTERS,
    "memory": (Memory, None),
    "quiet": (Quiet, False),
    "events": (Events, None),
}


_HOW = {"checkpoint": (Checkpoint, None), "on_bad_chunk": (OnBadChunk, None), "solve_on": (SolveOn, None)}


NOTHING = dict[str, Any]()
"""No setting is given."""
HERE = Where()
AS_USUAL = How()
"""What options are the parts of; none of them is given."""


@dataclass(frozen=True)
class SettingOptions:
    """Options for declared settings, all of them or those of some names; the command gets those that are given, by name."""

    of: type[Settings]
    names: tuple[str, ...] = ()

    def declared(self) -> dict[str, Field[Any]]:
        """Return the settings that are options, by name."""
        declared = self.of.declared()
        return {name: declared[name] for name in self.names or declared}

    def options(self) -> dict[str, tuple[Any, Any]]:
        """Return the option of each setting, with its default."""
        return {name: (_option_of(name, field), None) for name, field in self.declared().items()}

    def values(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings that options give, by name: flags as they are, texts as their rules have them."""
        rules = {name: field.metadata["setting"].rule for name, field in self.declared().items()}
        return {
            # a word that the rule takes stays one, though "none" or "7" may be read as something else
            name: value if rules[name].accepts(value) else configuration.parse_value(value)
            for name, value in given.items()
            if value is not None
        }

    def renamed(self) -> dict[str, str]:
        """Return the options that other names of the settings make, and what they are now."""
        off = {f"--not-{name}": f"--no-{name}" for name in self.declared()}
        return off | {
            f"--{other.replace('_', '-')}": f"--{name.replace('_', '-')}"
            for name, field in self.declared().items()
            for other in (*field.metadata["setting"].aliases, name.removeprefix("n_"))
            if other != name
        }


def _place(given: dict[str, Any]) -> dict[str, Any]:
    cluster = _chosen(given.pop("cluster"), **{part: given.pop(part) for part in _OF_CLUSTERS})
    return {"cluster": cluster, **given}


def _how(given: dict[str, Any]) -> How:
    bad, place = bad_chunk(given.pop("on_bad_chunk")), solver_place(given.pop("solve_on"))
    return How(**_place(given), on_bad_chunk=bad or "raise", solve_on=place or "driver")


_GROUPS: dict[Any, tuple[dict[str, Any], Callable[[dict[str, Any]], Any]]] = {
    Where: (_PLACE, lambda given: Where(**_place(given))),
    How: (_PLACE | _HOW, _how),
    Wanted: (_WANTED, lambda given: Wanted(**given)),
}
"""What a command may take as one parameter: its options, and what makes one object of their values."""


WIDE = 24
"""Characters of a list of words from which on help names them only in what the option means."""


def _option_of(name: str, field: Field[Any]) -> Any:
    """Return the option of a setting: its words are those of the declaration."""
    (about,) = described({name: field}).values()
    meaning, values = about["meaning"].replace("`", ""), about["values"]
    for nothing in ("null", "None"):  # on the command line an option is left out
        meaning = meaning.replace(f"{nothing}: ", "Default: ")
    words = values.removeprefix("one of ").replace(", ", "|") if values.startswith("one of ") else ""
    number = {"whole": "N", "number": "X", "cosine": "X"}.get(
        values.split()[1] if " " in values else "", "TEXT"
    )
    metavar = (words if len(words) < WIDE else "WORD") if words else number
    if meaning[0].isascii():  # λ stays λ
        meaning = meaning[0].upper() + meaning[1:]
    default = "" if about["default"] in (None, []) else f" Default: {about['default']}."
    option = f"--{name.replace('_', '-')}"
    if values.startswith(FLAG.expected):
        # one that is off needs no word for that
        flag = option if about["default"] is False else f"{option}/--no-{option[2:]}"
        return Annotated[bool | None, typer.Option(flag, help=meaning, show_default=False)]
    return Annotated[
        str | None,
        typer.Option(
            option,
            metavar=metavar,
            help=meaning + default,
        ),
    ]


def with_common_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that takes --follow and --debug too, and a place and settings by an option for each part of them."""
    known = inspect.signature(command).parameters
    if "debug" in known:
        return command
    hints = get_type_hints(command, include_extras=True)
    settings = {
        name: about
        for name, hint in hints.items()
        for about in getattr(hint, "__metadata__", ())
        if isinstance(about, SettingOptions)
    }
    groups = {
        name: _GROUPS[hint] for name, hint in hints.items() if isinstance(hint, type) and hint in _GROUPS
    }
    common = {"follow": (Follow, None), "debug": (Debug, False)}
    options = dict[str, tuple[Any, Any]]()
    for name, parameter in known.items():
        if name in settings:
            options |= settings[name].options()
        else:
            options |= groups[name][0] if name in groups else {name: (hints[name], parameter.default)}
    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in (options | common).items()
    ]

    @functools.wraps(command)
    def whole(**values: Any) -> None:
        for name in common:
            values.pop(name, None)
        for name, about in settings.items():
            values[name] = about.values({setting: values.pop(setting) for setting in about.declared()})
        for name, (parts, whole_of) in groups.items():
            values[name] = whole_of({part: values.pop(part) for part in parts})
        command(**values)

    del whole.__wrapped__  # its annotations are not those of the options
    whole.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    whole.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    whole.renamed = {old: new for about in settings.values() for old, new in about.renamed().items()}  # type: ignore[attr-defined]
    return whole


def _chosen(
    cluster: ClusterChoice | None,
    max_workers: int | None,
    cluster_config: Path | None,
    tls: Path | None,
    insecure: bool,
) -> ClusterChoice | None:
    """Return the cluster with its options, absolute paths and all; what cannot be meant is wrong usage."""
    if cluster is None and not any((max_workers, cluster_config, tls, insecure)):
        return None
    with usage():
        return replace(
            cluster or ClusterChoice(),
            config=cluster_config and cluster_config.absolute(),
            tls=tls and tls.absolute(),
            insecure=insecure,
            max_workers=max_workers,
        ).checked()


def picture_kind(path: Path) -> str:
    """Return the format of a picture by the end of its name; another end is wrong usage."""
    kind = path.suffix.lstrip(".").lower()
    if kind not in FORMATS:
        raise WrongUsage(f"{path} is not a picture name; let it end in .{', .'.join(FORMATS)}.")
    return kind


def bad_chunk(asked: str | None) -> str | None:
    """Return what is done about samples that cannot be read; another word is wrong usage."""
    return _one_of("--on-bad-chunk", asked, ("raise", "skip"))


def solver_place(asked: str | None) -> str | None:
    """Return where a large eigenproblem is solved; another word is wrong usage."""
    return _one_of("--solve-on", asked, ("driver", "workers"))


def _one_of(option: str, asked: str | None, known: tuple[str, ...]) -> str | None:
    if asked is not None and asked not in known:
        raise WrongUsage(f"{option} is {asked!r}; choose {' or '.join(known)}.")
    return asked
