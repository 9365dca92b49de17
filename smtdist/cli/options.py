"""The options that commands share, and the settings they add up to."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Sequence
from dataclasses import Field, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from smtdist import configuration
from smtdist.cli.errors import DEBUG, WrongUsage, usage
from smtdist.configuration import Configuration
from smtdist.engine.cluster_choice import ClusterChoice
from smtdist.settings import Settings, described

if TYPE_CHECKING:  # a command that needs no model does not wait for one
    from smtdist.data.source import Source
    from smtdist.models.model import Model

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


FROZEN = (
    "patch_size",
    "subtract_mean",
    "mean_context",
    "whitening_reg",
    "min_contrast",
    "to_grayscale",
    "pixel_range",
    "resize",
    "center_crop",
    "channels",
    "n_atoms",
    "dictionary_method",
    "dictionary_cosine",
    "dictionary_rounds",
    "dictionary_n_init",
    "dictionary_samples",
    "dictionary_mirrored",
)
"""Settings that whitening and dictionary were made with, and that --from-model therefore keeps."""


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


DataFile = Annotated[
    str,
    typer.Argument(
        metavar="DATA", help="HDF5 file, Zarr store or address (https://, s3://) with the images."
    ),
]
Data = Annotated[
    list[str],
    typer.Argument(
        metavar="DATA...",
        help="HDF5 file, Zarr store or address (https://, s3://) with the images. Many files: list them, or give a quoted "
        "pattern, a folder, a list (.txt) or a manifest (.json).",
    ),
]
ModelFile = Annotated[Path, typer.Argument(metavar="MODEL.h5", help="Model written by smtdist fit.")]
Dataset = Annotated[
    str,
    typer.Option(
        help="Where the images are in the file, such as train: a dataset (samples, height, width[, channels]) or a group."
    ),
]
Preset = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Start from the settings of a published experiment; smtdist settings lists them.",
    ),
]
ModelOut = Annotated[
    Path | None,
    typer.Option("--out", metavar="MODEL.h5", help="Model file to write; with --plan there is none."),
]
PlanOnly = Annotated[
    bool,
    typer.Option(
        "--plan", help="Print what the fit would cost on this machine, pass by pass, and do not fit."
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
FromModel = Annotated[
    Path | None,
    typer.Option(
        metavar="MODEL.h5",
        help="Reuse the whitening and dictionary of this model; compute only statistics and the solve.",
    ),
]
SMT = "smt"
"""The model that is fitted where no other is asked for."""
ModelName = Annotated[
    str,
    typer.Option(
        "--model",
        help="What to fit: the sparse manifold transform (smt); only a learned code of patches (l1, s3c, omp or sc), which "
        "--from-model can embed later; or kernel-NAME with contrastive, spectral or autoencoder as NAME, as smtdist kernel "
        "fit does.",
    ),
]
Atoms = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.npy", help="Use your own atoms: an array (atoms, pixels) of whitened patches."
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


FORMATS = ("png", "svg", "pdf")
"""Of pictures that commands draw."""


_OF_CLUSTERS = {
    "max_workers": (MaxWorkers, None),
    "cluster_config": (ClusterConfig, None),
    "tls": (Tls, None),
    "insecure": (Insecure, False),
}
"""What belongs to --cluster: one ClusterChoice says all of it."""
_PLACE = {
    "workers": (Workers, None),
    "cluster": (Cluster, None),
    **_OF_CLUSTERS,
    "memory": (Memory, None),
    "quiet": (Quiet, False),
    "events": (Events, None),
}


NOTHING = dict[str, Any]()
"""No setting is given."""
HERE = Where()
"""The place that options are the parts of; none of them is given."""


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

    def renamed(self) -> dict[str, str]:
        """Return the options that other names of the settings make, and what they are now."""
        return {
            f"--{other.replace('_', '-')}": f"--{name.replace('_', '-')}"
            for name, field in self.declared().items()
            for other in (*field.metadata["setting"].aliases, name.removeprefix("n_"))
            if other != name
        }


WIDE = 24
"""Characters of a list of words from which on help names them only in what the option means."""


def _option_of(name: str, field: Field[Any]) -> Any:
    """Return the option of a setting: its words are those of the declaration."""
    (about,) = described({name: field}).values()
    meaning, values = about["meaning"].replace("`", ""), about["values"]
    words = values.removeprefix("one of ").replace(", ", "|") if values.startswith("one of ") else ""
    number = {"whole": "N", "number": "X", "cosine": "X"}.get(
        values.split()[1] if " " in values else "", "TEXT"
    )
    metavar = (words if len(words) < WIDE else "WORD") if words else number
    if meaning[0].isascii():  # λ stays λ
        meaning = meaning[0].upper() + meaning[1:]
    default = "" if about["default"] in (None, []) else f" Default: {about['default']}."
    return Annotated[
        str | None,
        typer.Option(
            f"--{name.replace('_', '-')}",
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
    places = [name for name, hint in hints.items() if hint is Where]
    common = {"follow": (Follow, None), "debug": (Debug, False)}
    options = dict[str, tuple[Any, Any]]()
    for name, parameter in known.items():
        if name in settings:
            options |= settings[name].options()
        else:
            options |= _PLACE if name in places else {name: (hints[name], parameter.default)}
    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in (options | common).items()
    ]

    @functools.wraps(command)
    def whole(**values: Any) -> None:
        for name in common:
            values.pop(name, None)
        for name, about in settings.items():
            texts = {one: values.pop(one) for one in about.declared()}
            values[name] = {
                one: configuration.parse_value(text) for one, text in texts.items() if text is not None
            }
        for name in places:
            given = {one: values.pop(one) for one in _PLACE}
            cluster = _chosen(given.pop("cluster"), **{one: given.pop(one) for one in _OF_CLUSTERS})
            values[name] = Where(cluster=cluster, **given)
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


def target(
    out: Path | None, plan: bool, overwrite: bool, *, inputs: Sequence[Path | None] = (), data: Any = ()
) -> Path:
    """Return the file to write, which may be written; with `plan` none is, and none need be named."""
    from smtdist.data.writing import check_target

    if plan:
        return Path()
    if out is None:
        raise WrongUsage("Missing option --out; name the file to write.")
    check_target(out, overwrite, inputs=inputs, data=data)
    return out


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


def refuse_model(name: str) -> None:
    """Refuse a --model that there is not; the command is handed on where it names a kernel model."""
    if name not in (SMT, *configuration.CODED):
        raise WrongUsage(
            f"There is no model {name!r}; leave out --model for the transform, or choose {', '.join(configuration.CODED)}, "
            f"kernel-contrastive, kernel-spectral or kernel-autoencoder."
        )


def settings_from(
    preset_name: str | None, assignments: list[str] | None, base: Model | None, atoms: Any
) -> dict[str, Configuration]:
    """Return the settings that the options add up to, of each model that a preset has; what has no meaning is wrong usage.

    Settings of one model have no name: {"": settings}.
    """
    # a value of another type, such as patch=six, fails in a comparison
    with usage(TypeError):
        changes = Configuration.named(configuration.parse_settings(assignments or []))
        if atoms is not None:
            changes.setdefault("dictionary_method", "given")
        if base is not None:
            return {"": _settings_of_base(base, preset_name, changes)}
        starts = configuration.presets(preset_name) if preset_name else {"": Configuration()}
        found = {name: start.replace(**changes) for name, start in starts.items()}
        if atoms is not None and len(found) > 1:
            raise WrongUsage(
                f"The models of --preset {preset_name} have an own dictionary each; leave out --atoms."
            )
        return {
            name: one.with_atoms(one.n_atoms if atoms is None else len(atoms))
            for name, one in found.items()
        }


def for_images(
    settings: Configuration,
    source: Source,
    preset_name: str | None,
    assignments: list[str] | None,
    base: Model | None,
) -> Configuration:
    """Return the settings with the defaults that these images have, but for a preset, a model, and what was set."""
    if preset_name or base is not None:
        return settings
    given = {configuration.parse_setting(text)[0] for text in assignments or []}
    defaults = configuration.defaults_for(source.shape, settings.to_grayscale)
    follow = {name: getattr(defaults, name) for name in configuration.GREY if name not in given}
    changed = settings.replace(**follow)
    return changed.with_atoms(settings.n_atoms)


def _settings_of_base(base: Model, preset_name: str | None, changes: dict[str, Any]) -> Configuration:
    if preset_name:
        raise WrongUsage("--from-model brings its own settings; leave out --preset.")
    fixed = sorted(set(changes) & set(FROZEN))
    if fixed:
        raise WrongUsage(
            f"--from-model keeps whitening and dictionary, so other settings ({', '.join(fixed)}) cannot be set; leave them "
            f"out."
        )
    # a mean that follows the context must not follow it to another one
    settings = base.settings.replace(mean_context=base.settings.resolved_mean_context, **changes)
    return settings.with_atoms(len(base.dictionary.grid))


def sequence_lengths(text: str | None) -> tuple[int, ...]:
    """Return the lengths that --lengths lists; none for no list."""
    if text is None:
        return ()
    parts = text.split(",")
    if not all(part.strip().isdecimal() for part in parts):
        raise WrongUsage(f"--lengths {text} is not a list of lengths; write it as 100,250,80.")
    return tuple(int(part) for part in parts)
