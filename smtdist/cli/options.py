"""The options of all verbs: what help says of each, those that verbs share, and what they add up to."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, replace
from functools import cached_property
from pathlib import Path
from types import GenericAlias
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, get_args, get_origin, get_type_hints

import typer

from smtdist import configuration
from smtdist.cli.errors import WrongUsage, as_typed, usage
from smtdist.engine.cluster_choice import ClusterChoice
from smtdist.settings import FLAG, Rule, described, one_of, several, whole

if TYPE_CHECKING:  # a command that needs no data does not wait for what reads them
    from smtdist.data.source import Source
    from smtdist.engine.session import Execution

LARGE = 2**30
"""Data beyond which, with more than two cores, a command starts worker processes without being asked."""
MOST_WORKERS = 8

ARGUMENTS: Final = {
    "data": "DATA...: HDF5 file, Zarr store or address (https://, s3://) with images; a .npy file or a dataset with rows; text "
    "files; clips; or representations. Many files: list them, or give a quoted pattern, a folder, a list (.txt) or a "
    "manifest (.json). Text files are only listed: a .txt file is text itself.",
    "model": "MODEL.h5: Model written by smtdist fit.",
    "evaluate model": "MODEL.h5: A model, training representations (smtdist transform), or a head (smtdist fit --model head).",
    "near model": "MODEL.h5: Model of words, written by smtdist fit --model words.",
    **dict.fromkeys(
        ("search model", "draw model"), "CONCEPTS.h5: Concepts, written by smtdist fit --model concepts."
    ),
    "report model": "FILE.h5: A file written by smtdist.",
    "info model": "[FILE.h5]: A file written by smtdist; without it, this installation.",
    "settings model": "[MODEL]: A model that smtdist fit --model names. Default: the transform of images.",
    "models": "A.h5 [B.h5 ...]: Models whose sums to add.",
    "paths": "FILE...: Files that smtdist has written, and checkpoint folders.",
    "words": "WORD...: Words to look up.",
    "formula": 'FORMULA: Concepts by their numbers, such as "17 and not 4".',
    "points": "POINT...: Points, by name or number.",
    "source": "SOURCE...: A folder of images, or files: .npz, .npy, IDX, CIFAR batches, tar shards, Parquet, video.",
    "resume checkpoint": "CHECKPOINT: Folder that was given as --checkpoint.",
    "where": "CHECKPOINT|ADDRESS: Checkpoint folder of the run, or the address of its Dask scheduler, such as tcp://host:8786.",
    "action": "init: Make certificates.",
    "folder": "FOLDER: Folder to make; it must not exist yet.",
}
"""Arguments by the name of the parameter, after that of the verb where verbs differ: what help calls it, and what it is."""
OPTIONS: Final = {
    # what is read
    "dataset": "TEXT: Where the samples are in the file, such as train: a dataset (samples, ...) or a group. Text, clips, .npy "
    "files and representations have none.",
    "change dataset": "TEXT: Images in the file (a dataset or a group), rows of a table, or a clip. Default for video: all "
    "clips.",
    "manifest dataset": "TEXT: Dataset or group of images to include; may be repeated. Default: all that are found.",
    "clip": "TEXT: Clip of a file of clips to use; may be repeated. Default: all.",
    "limit": "N: Use only the first N samples.",
    "evaluate limit": "N: Use only the first N training images.",
    "tune limit": "N: Use only this many images of the training group, drawn at random.",
    "report limit": "N: Use at most this many images of each group, drawn at random.",
    "import limit": "N: Of video: number of frames to use of each clip; 0 means all.",
    "lengths": "N,N,...: Number of rows of each sequence, for a table in time. Default: one sequence.",
    "withdraw lines": "FIRST-LAST: Only these lines of a text, counted from 1; may be repeated.",
    "train": "GROUP: Group with training images and labels.",
    "test": "GROUP: Group with test images and labels.",
    "test_data": "DATA: Where --test is, if not in DATA. Many files: as for DATA, or repeat it.",
    "validation": "GROUP|SHARE: Held-out images: another group, or a share of the training group, such as 0.2.",
    "sequences": "N: Of a model of video: use at most this many sequences. Default: 1,000.",
    "labels": "N: Use only this many labels, in several draws (svm, kernel). Repeat it for a learning curve.",
    "report data": "DATA.h5: Labelled images, for neighbours and mistakes of a model of images.",
    "names": "FILE.h5:DATASET: Dataset with the names of the points.",
    "follow": "FOLDER|ADDRESS: If a manifest or an HDF5 file refers to other files, also read them in this place, and not only "
    "in its own folder. May be repeated.",
    # what is fitted, and how
    "request model": "TEXT: What to fit: smt (the transform of images), l1, s3c, omp or sc (a learned code of patches alone), "
    "words, points, video, concepts, head, or kernel-NAME with contrastive, spectral or autoencoder as NAME.",
    "preset": "NAME: Start from the settings of a published experiment; smtdist settings lists them.",
    "set_": "KEY=VALUE: Change one setting, such as random_state=1; may be repeated.",
    **dict.fromkeys(
        ("transform set_", "evaluate set_"),
        "KEY=VALUE: Change a setting that can change after the fit: pool_size and pool_stride of an embedding; pooling, penalty "
        "and others of a code without an embedding. May be repeated.",
    ),
    "merge set_": "KEY=VALUE: Change a setting of the solve or the pooling, such as n_components; may be repeated.",
    "grid": "KEY=VALUE,VALUE: Values of one setting to try, such as whitening_reg=0.01,0.1; may be repeated.",
    "from_model": "MODEL.h5: Reuse what this model has learned (whitening and dictionary, a code, or a vocabulary); compute only "
    "statistics and the solve.",
    "below": "MODEL.h5: Model of video on which to stack this layer; the output holds all layers.",
    "atoms": "FILE.npy: Use your own atoms: an array (atoms, pixels) of whitened patches.",
    "with_": "MODEL.h5: Append the representation by another model, such as one fitted on grey images; may be repeated.",
    "subtract": "C.h5: Model whose samples are withdrawn; may be repeated.",
    "update alone": ": Write a model of these samples only, with the codes of MODEL.h5, for a later merge.",
    **dict.fromkeys(
        ("update allow_repeats", "merge allow_repeats"),
        ": Also add samples that are in the sums already; they then count twice.",
    ),
    "metric": "knn|linear: Classifier that compares the settings.",
    "n_neighbors": "N: Number of neighbours that vote (knn). Default: the model's setting, else 30.",
    "mirrored": ": Also write the features of mirror images, after those of the images.",
    "half": ": Write float16, which takes half the space.",
    "csv": ": Of a head: write comma-separated values instead (sample, label, name, probabilities).",
    "format": "onnx|word2vec: onnx: an encoder from images to representations; word2vec: vectors of words as text, which gensim "
    "reads.",
    "levels": "N: Of video: number of times to halve the size, with a steerable pyramid.",
    "seed": "N: Seed of the choice of samples whose content is hashed.",
    "first_look": ": If the samples are images with labels: after the fit, classify up to 500 of them by 1,000 others, with the "
    "model and with raw pixels.",
    "plan first_look": ": Ignored, so that you can use the same arguments as for fit.",
    # where and how the work is done
    "workers": "N: Number of worker processes; 0 does the work in this one. Default: 0; for more than 1 GiB of data half the "
    "cores.",
    "import workers": "N: Processes that decode; 0 means this one. Default: one for each core.",
    "demo workers": "N: Worker processes of the Dask cluster; 0 does the work in this one.",
    "cluster": "KIND|ADDRESS: Where workers run: local, slurm, pbs, sge, lsf, oar, moab, ssh, kubernetes or cuda, or the "
    "address of a Dask scheduler, such as tls://host:8786.",
    "cluster_config": "FILE: YAML with Dask's configuration and a section named as the KIND; for kubernetes a DaskCluster.",
    "tls": "FOLDER: Folder with certificates for --cluster, made by smtdist tls init.",
    "insecure": ": Allow connections to other machines without encryption, and from other users of this one.",
    "max_workers": "N: Start more workers while there is work for them, up to this number.",
    "memory": "SIZE: Memory of each worker, such as 16GB. Default: an equal share of this machine's.",
    "driver_memory": "SIZE: Memory of the machine that starts the fit. Default: that of this machine.",
    "gpu_memory": "SIZE: Memory of each worker's GPU, such as 80GB.",
    "threads": "N: Cores of each worker. Default: an equal share of this machine's.",
    "calibrate": ": Measure for at most ten seconds how fast this machine is. With --no-calibrate the plan has no times.",
    "plan": ": Print what the command would cost: size, memory, disk, and time, measured on a few images. Write nothing.",
    "checkpoint": "DIR: Keep partial sums in this folder, so that smtdist resume can continue; all workers must see it.",
    "on_bad_chunk": "raise|skip: If samples cannot be read or decoded: raise ends the run (the default), skip leaves them out "
    "and lists them.",
    "solve_on": "driver|workers: Who multiplies the matrices of a large eigenproblem: the driver (the default), from memory or "
    "else from files in the checkpoint folder; or the workers, which then hold the matrices together.",
    "days": "N: Number of days for which the certificates are valid.",
    # what is written and shown
    "fit out": "MODEL.h5: Model file to write.",
    "plan out": "MODEL.h5: Ignored, so that you can use the same arguments as for fit.",
    "merge out": "M.h5: Model file to write.",
    **dict.fromkeys(
        ("update out", "withdraw out"), "M.h5: Model file to write. Default: replace MODEL.h5."
    ),
    "demo out": "MODEL.h5: Model file to write. Default: smtdist-demo.h5, which is replaced if it exists.",
    "transform out": "Z.h5: File to write, with the dataset z (sample, feature).",
    "import out": "DATA.h5: File to write. With --shard-samples: a manifest (.json).",
    "manifest out": "DATA.json: Manifest to write. Without --out, the manifest DATA is checked.",
    "tune out": "TUNE.json: Also write all results to this file.",
    "export out": "FILE: File to write.",
    "report out": "REPORT.html: Page to write.",
    "filters out": "FILE.png: Picture to write.",
    "plot": "TUNE.png: Draw the effect of every setting.",
    "figure": "PREFIX: Name of the pictures: PREFIX-analogram.png, PREFIX-projection.png.",
    "most": "N: Draw at most this many atoms.",
    "whitened": ": Draw the atoms of a learned code in whitened space, not converted back to pixels.",
    "run": "FIT.json: Output of smtdist fit --json; the page then compares its memory with the plan.",
    "and_": "FILE.h5: Show another file on the same page; may be repeated.",
    "count": "N: Number of words to show.",
    "code": "NAME: List the settings of a fit with --set code=NAME: gq or vq (the default), l1, s3c, omp, sc, or the name of an "
    "encoder from another package.",
    "all_": ": List advanced settings too, which few fits need.",
    "once": ": Print the present state of the run, and end.",
    "overwrite": ": Replace the output if it exists.",
    "quiet": ": Show no progress; what the command finds, warnings and errors stay.",
    "watch quiet": ": Only wait for the run to end.",
    "events": "FILE: Write the run's events to this file, one JSON object a line; - writes them to standard error, without "
    "bars.",
    "json": ": Print the result as one JSON object.",
    "watch json": ": Print events as they come, one JSON object a line; with --once, the state as one object.",
    "debug": ": Show the traceback of an error.",
}
"""Options, likewise; words divided by | are all that there are. A flag has no value."""
LEAST: Final = {
    **dict.fromkeys(("workers", "levels", "seed", "import limit"), 0),
    **dict.fromkeys(("labels", "report limit", "tune limit"), 2),
}
"""The lowest value of options that are numbers, where it is not 1."""
ALSO: Final = {"n_neighbors": ("--neighbours", "--neighbors"), "code": ("--feature",)}
"""Other names of options, which help does not show."""


@dataclass(frozen=True)
class Where:
    """Where the work is done, and what is shown of it, as the user said it."""

    workers: int | None = None
    cluster: str | None = None
    max_workers: int | None = None
    cluster_config: Path | None = None
    tls: Path | None = None
    insecure: bool = False
    memory: int | None = None
    quiet: bool = False
    events: Path | None = None

    def __post_init__(self) -> None:
        """Refuse a cluster that cannot be meant."""
        _ = self.choice

    @cached_property
    def choice(self) -> ClusterChoice | None:
        """The cluster with its options, absolute paths and all; what cannot be meant is wrong usage."""
        config, tls = (path and path.absolute() for path in (self.cluster_config, self.tls))
        found = ClusterChoice(self.cluster or "local", config, tls, self.insecure, self.max_workers)
        return None if self.cluster is None and found == ClusterChoice() else found.checked()

    @property
    def is_local(self) -> bool:
        """Tell whether the work is done by this machine's processes, as many as are chosen here."""
        return self.choice is None or self.choice.is_local

    def resolved_workers(self, source: Source) -> int | None:
        """Return the number of workers: as told, else 0, for large data half the cores; others know their own size."""
        if self.workers is not None or not self.is_local:
            return self.workers
        from smtdist.kernels.threads import available_cores

        cores = available_cores()
        large = cores > 2 and source.n_samples * source.sample_bytes > LARGE
        return min(MOST_WORKERS, max(1, cores // 2)) if large or self.choice is not None else 0

    def execution(self, source: Source) -> Execution:
        """Return the same as the library takes it."""
        from smtdist.engine.session import Execution

        return Execution(self.choice, self.resolved_workers(source), self.memory)


@dataclass(frozen=True)
class How(Where):
    """Where the work is done, and how it goes on where it was stopped, or where samples cannot be read."""

    checkpoint: Path | None = None
    on_bad_chunk: str | None = None
    solve_on: str | None = None

    def execution(self, source: Source) -> Execution:
        """Return the same as the library takes it."""
        return replace(
            super().execution(source),
            checkpoint=self.checkpoint and self.checkpoint.absolute(),
            on_bad_chunk=self.on_bad_chunk or "raise",
            solve_on=self.solve_on or "driver",
        )


NOTHING = dict[str, Any]()
"""No setting is given."""
HERE = Where()
AS_USUAL = How()
"""What options are the parts of; none of them is given."""


def options_of(declared: Mapping[str, Field[Any]]) -> dict[str, str]:
    """Return the settings by the options that they are, those that other names of them make included."""
    return {
        flag(option): name
        for name, field in declared.items()
        for option in (*field.metadata["setting"].aliases, name.removeprefix("n_"), name)
    }


WIDE = 24
"""Characters of a list of words from which on help names them only in what the option means."""


def _of_setting(name: str, field: Field[Any]) -> tuple[type, Any]:
    """Return the type and the option of a setting as Typer takes it: its words are those of the declaration."""
    (about,) = described({name: field}).values()
    # on the command line an option is left out
    meaning = as_typed(about["meaning"].replace("`", "").replace("None: ", "Default: "))
    values = about["values"].removesuffix(", or None")
    words = values.removeprefix("one of ").replace(", ", "|") if values.startswith("one of ") else ""
    number = {"whole": "N", "number": "X", "cosine": "X"}.get(
        values.split()[1] if " " in values else "", "TEXT"
    )
    metavar = (words if len(words) < WIDE else "WORD") if words else number
    if meaning[0].isascii():  # λ stays λ
        meaning = meaning[0].upper() + meaning[1:]
    default = "" if about["default"] in (None, []) else f" Default: {as_typed(about['default'])}."
    if values.startswith(FLAG.expected):
        # one that is off needs no word for that
        one = flag(name) if about["default"] is False else f"{flag(name)}/--no-{flag(name)[2:]}"
        return bool, typer.Option(one, metavar="", help=meaning, show_default=False)
    return str, typer.Option(flag(name), metavar=metavar, help=meaning + default)


def flag(name: str) -> str:
    """Return the option of a parameter."""
    return f"--{name.strip('_').replace('_', '-')}"


def checked(option: str, rule: Rule, text: Any) -> Any:
    """Return the value of an option; WrongUsage for one that a rule refuses."""
    value = configuration.parse_value(str(text))
    value = rule.plain(tuple(value) if isinstance(value, list) else value)
    if not rule.accepts(value):
        raise WrongUsage(f"{option} is {str(text)!r}; it must be {rule.expected}.")
    return value


def _follow(places: list[str] | None) -> list[str]:
    """Let what a file names be read in folders, and behind addresses that begin so; workers of this machine read it, too.

    Returns them with absolute paths, as a run remembers them.
    """
    found = list[str]()
    if places:
        from smtdist.data import guarded
        from smtdist.data.remote import is_url

        found = [place if is_url(place) else os.path.abspath(place) for place in places]
        if any("," in place for place in found):
            raise WrongUsage(
                "--follow takes a folder or an address without a comma; give others with another --follow."
            )
        os.environ[guarded.ALLOWED] = ",".join([*guarded.allowed(), *found])
    return found


def _of_table(of: tuple[str, ...], name: str, on: bool) -> Any:
    """Return an argument or an option as Typer takes it; None for what no table names.

    of : the verb and what it is a field of. on : whether it is a flag that is set unless it is said not to be.
    """
    keys = [*(f"{one} {name}" for one in of), name]
    key = next((key for key in keys if key in ARGUMENTS or key in OPTIONS), None)
    if key is None:
        return None
    table = ARGUMENTS if key in ARGUMENTS else OPTIONS
    metavar, _, meaning = table[key].partition(": ")
    names, about = [flag(name)], dict[str, Any](metavar=metavar, help=meaning)
    if metavar == "N" or metavar.islower():
        least = next((LEAST[key] for key in keys if key in LEAST), 1)
        rule = whole(least) if metavar == "N" else one_of(*metavar.split("|"))
        about["parser"] = functools.partial(checked, name if table is ARGUMENTS else names[0], rule)
    if name == "follow":
        about["callback"] = _follow
    if table is ARGUMENTS:
        return typer.Argument(**about)
    if on:
        names = [f"{names[0]}/--no-{names[0][2:]}"]
    names += ["-q"] if name == "quiet" else []
    return typer.Option(*names, **about)


def _ranges(texts: list[str]) -> tuple[tuple[int, int], ...]:
    """Return the lines that 12-80 or 12 name."""
    found = list[tuple[int, int]]()
    for text in texts:
        first, dash, last = text.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise WrongUsage(
                f"--lines {text} is not a range of lines; write it as 12-80, or 12 for one line."
            )
        found.append((int(first), int(last or first)))
        if not 1 <= found[-1][0] <= found[-1][1]:
            raise WrongUsage(
                f"--lines {text} is not a range of lines; count from 1, and write the smaller number first."
            )
    return tuple(found)


def _bytes(text: str) -> int:
    from smtdist.engine.memory import size_of

    return size_of(text)


_LENGTHS: Final = several(whole(1), "lengths of sequences, as in 100,250,80")
AS_OPTIONS: Final[dict[str, tuple[str, Any, Callable[[Any], Any]]]] = {
    "files": ("data", list[str], tuple),
    **dict.fromkeys(("settings", "changes"), ("set_", list[str], configuration.parse_settings)),
    "others": ("with_", list[Path], tuple),
    "skip_damaged": ("on_bad_chunk", str, lambda given: given == "skip"),
    "repeats": ("allow_repeats", bool, bool),
    "lines": ("lines", list[str], _ranges),
    "lengths": ("lengths", str, functools.partial(checked, "--lengths", _LENGTHS)),
    **{name: (name, str, _bytes) for name in ("memory", "driver_memory", "gpu_memory")},
}
"""What an option of another name or type gives: its name and type, and what makes the value of its own."""


def _value(rule: Rule, given: Any) -> Any:
    """Return what is given as a setting: a word that its rule takes stays one, though none or 7 may be read as something else."""
    return given if rule.accepts(given) else configuration.parse_value(given)


class _Every(NamedTuple):
    """What every command takes."""

    follow: tuple[str, ...] = ()
    debug: bool = False


def _taken(
    of: tuple[str, ...], part: Any, options: dict[str, inspect.Parameter], renamed: dict[str, str]
) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Add the options of a verb, or of a part of what it takes, and return what makes its parameters of their values.

    What is not given keeps its default.
    """
    declared = part.declared() if hasattr(part, "declared") else {}
    renamed |= {option: flag(name) for option, name in options_of(declared).items()}
    hints, parts = get_type_hints(part, include_extras=True), dict[str, tuple[Any, Any]]()
    makers = dict[str, tuple[str, Callable[[Any], Any] | None]]()
    for name, known in inspect.signature(part).parameters.items():
        kind, default, option, make = hints[name], known.default, name, None
        field = None if default == () else declared.get(name)
        (inner,) = getattr(kind, "__metadata__", (kind,))
        if inner is not kind or hasattr(inner, "_fields") or inner in (Where, How):
            fields = _taken((*of, inner.__name__.lower()), inner, options, renamed)
            parts[name] = kind if inner is kind else dict, fields
            continue
        if name in AS_OPTIONS:
            option, kind, make = AS_OPTIONS[name]
        elif get_origin(kind) is tuple:
            kind, make = GenericAlias(list, get_args(kind)[:1]), tuple
        if field is not None:
            make = functools.partial(_value, field.metadata["setting"].rule)
            kind, how = _of_setting(name, field)
        else:
            how = _of_table(of, option, kind is bool and default is True)
        if how is None:
            continue
        if make is not None and default is not known.empty:
            kind, default = kind | None, None
        found = known.replace(
            name=option, kind=known.KEYWORD_ONLY, default=default, annotation=Annotated[kind, how]
        )
        # one that two parts have is one option, and what a verb says of it binds
        options[option] = found if len(of) == 1 else options.get(option, found)
        makers[name] = option, make

    def fields_of(given: Mapping[str, Any]) -> dict[str, Any]:
        found = {name: kind(**fields(given)) for name, (kind, fields) in parts.items()}
        told = ((name, make, given[option]) for name, (option, make) in makers.items())
        return found | {
            name: make(value) if make else value for name, make, value in told if value is not None
        }

    return fields_of


def with_common_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command as Typer takes it: an option for each parameter, each field of one, and each setting; two for all."""
    of, options, renamed = (command.__name__.strip("_"),), dict[str, inspect.Parameter](), dict[str, str]()
    fields = _taken(of, command, options, renamed)
    _taken(of, _Every, options, renamed)
    renamed |= {other: flag(name) for name in options for other in ALSO.get(name, ())}
    renamed |= {f"--not-{name[2:]}": f"--no-{name[2:]}" for name in map(flag, options)}

    def whole(**given: Any) -> None:
        with usage():
            values = fields(given)
        command(**values)

    whole.__annotations__ = {name: one.annotation for name, one in options.items()}
    whole.__signature__ = inspect.Signature([*options.values()])  # type: ignore[attr-defined]
    whole.renamed = renamed  # type: ignore[attr-defined]
    return whole
