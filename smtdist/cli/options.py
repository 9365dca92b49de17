"""The options that commands share, and the settings they add up to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smtdist.cli.errors import DEBUG, WrongUsage
from smtdist.configuration import Configuration, parse_setting, preset
from smtdist.errors import ConfigurationError, ModelError

if TYPE_CHECKING:  # a command that needs no model does not wait for one
    from smtdist.models.model import Model

FROZEN = (
    "patch",
    "mean",
    "mean_context",
    "ridge",
    "min_contrast",
    "grey",
    "pixel_range",
    "resize",
    "crop",
    "channels",
    "dictionary",
    "dictionary_method",
    "dictionary_cosine",
    "dictionary_rounds",
    "dictionary_samples",
)
"""Settings that whitening and dictionary were made with, and that --from-model therefore keeps."""


def _debug(value: bool) -> None:
    DEBUG.set() if value else DEBUG.clear()


Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA", help="HDF5 file, Zarr store or address (https://, s3://) with the images."
    ),
]
ModelFile = Annotated[Path, typer.Argument(metavar="MODEL.h5", help="Model written by smtdist fit.")]
Dataset = Annotated[
    str,
    typer.Option(
        help="Images in the file: a dataset (samples, height, width[, channels]), or a group of plain or encoded ones."
    ),
]
Preset = Annotated[
    str | None, typer.Option(metavar="NAME", help="Settings of a published experiment, to start from.")
]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change one setting; may be repeated.")
]
FromModel = Annotated[
    Path | None,
    typer.Option(
        metavar="MODEL.h5", help="Reuse this model's whitening and dictionary; sum statistics only."
    ),
]
Atoms = Annotated[
    Path | None,
    typer.Option(metavar="FILE.npy", help="Atoms of your own, (atoms, pixels), in whitened space."),
]
Workers = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="Worker processes; 0 works in this one. Default: 0; half the cores for more than 1 GiB of data.",
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(metavar="KIND|ADDRESS", help="local, or the address of a Dask scheduler, tcp://host:8786."),
]
Checkpoint = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Folder for partial sums, visible to all workers.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an output that exists.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
Events = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Write the run's events, one JSON object a line; - is standard error, without bars.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]
Debug = Annotated[
    bool,
    typer.Option(
        "--debug", callback=_debug, is_eager=True, expose_value=False, help="Show the traceback of an error."
    ),
]
Components = Annotated[
    int | None,
    typer.Option(
        "--components", min=1, help="Components to use, of those stored. Default: as the model was fitted."
    ),
]
Drop = Annotated[
    int | None, typer.Option(min=0, help="Leading components to leave out. Default: as the model was fitted.")
]
With = Annotated[
    list[Path] | None,
    typer.Option(
        "--with",
        metavar="MODEL.h5",
        help="Append the representation of another model, such as one fitted with grey=true; may be repeated.",
    ),
]


def other_models(paths: list[Path] | None) -> list[Model]:
    """Return the models whose representations are appended."""
    from smtdist.models import files

    return [need_embedding(files.load(path, statistics=False), path) for path in paths or []]


def settings_from(
    preset_name: str | None, assignments: list[str] | None, base: Model | None, atoms: Any
) -> Configuration:
    """Return the settings that the options add up to; what has no meaning is wrong usage."""
    try:
        changes = dict(parse_setting(text) for text in assignments or [])
        if atoms is not None:
            changes.setdefault("dictionary_method", "given")
        if base is not None:
            return _settings_of_base(base, preset_name, changes)
        start = preset(preset_name) if preset_name else Configuration()
        return _solvable(start.replace(**changes), None if atoms is None else len(atoms))
    except (ConfigurationError, TypeError) as error:
        # a value of another type, such as patch=six, fails in a comparison
        raise WrongUsage(str(error)) from error


def _solvable(settings: Configuration, n_atoms: int | None) -> Configuration:
    """Refuse before any work what the solve would refuse at its end: more components than atoms."""
    asked, atoms = settings.n_components + settings.drop, n_atoms or settings.dictionary
    if asked > atoms:
        raise ConfigurationError(
            f"n_components + drop is {asked}, more than the {atoms} atoms; ask for fewer."
        )
    return settings


def _settings_of_base(base: Model, preset_name: str | None, changes: dict[str, Any]) -> Configuration:
    if preset_name:
        raise WrongUsage("--from-model brings its own settings; leave out --preset.")
    fixed = sorted(set(changes) & set(FROZEN))
    if fixed:
        raise WrongUsage(
            f"--from-model keeps whitening and dictionary, so {', '.join(fixed)} cannot be set; leave it out."
        )
    # a mean that follows the context must not follow it to another one
    settings = base.settings.replace(mean_context=base.settings.resolved_mean_context, **changes)
    return _solvable(settings, len(base.dictionary.grid))


def need_embedding(model: Model, path: Path) -> Model:
    """Return the model, or say that it cannot represent anything yet."""
    if model.embedding is None:
        raise ModelError(f"{path} holds whitening and dictionary only; fit it first.")
    return model
