"""`fit`."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from smtdist import configuration
from smtdist.cli import options as opt
from smtdist.cli.coders import say_advice
from smtdist.cli.errors import WrongUsage
from smtdist.cli.first_look import FirstLook, first_looks, looked_at, say_first_look
from smtdist.cli.session import engine_for, print_json, result_console
from smtdist.data import locations, opening
from smtdist.data.views import limited
from smtdist.data.writing import check_target
from smtdist.engine.manifest import Facts
from smtdist.engine.memory import readable
from smtdist.engine.passes import Engine
from smtdist.errors import DataError, counted
from smtdist.kernels import convergence
from smtdist.models import model as smt_model
from smtdist.models import plugins, store
from smtdist.models.fit import fit as fit_model
from smtdist.models.fit import fit_joined, joined_facts, run_facts
from smtdist.models.joined import Joined
from smtdist.models.model import Model
from smtdist.models.plan import finished_bytes
from smtdist.monitor import tables


def fit(
    data: opt.Data,
    dataset: opt.Dataset,
    out: Annotated[Path, typer.Option(metavar="MODEL.h5", help="Model file to write.")],
    model: opt.ModelName = opt.SMT,
    preset: opt.Preset = None,
    set_: opt.Set = None,
    from_model: opt.FromModel = None,
    atoms: opt.Atoms = None,
    limit: opt.Limit = None,
    where: opt.Where = opt.HERE,
    checkpoint: opt.Checkpoint = None,
    on_bad_chunk: opt.OnBadChunk = None,
    solve_on: opt.SolveOn = None,
    first_look: FirstLook = True,
    overwrite: opt.Overwrite = False,
    json: opt.Json = False,
) -> None:
    """Fit a model of images: whitening, dictionary, statistics, solve. Each pass reads the data once.

    smtdist settings lists the settings that --set takes.

    With --set code=l1, s3c, omp or sc the fit has two steps. It learns a sparse code of patches, then a
    transform of that code. smtdist settings --code l1 lists the settings of both steps.
    """
    opt.refuse_model(model)
    feature = coded_feature(set_)
    coder = from_model if from_model is not None and store.kind_at(from_model) in store.CODERS else None
    if model != opt.SMT or feature is not None or coder is not None:
        if preset or atoms or solve_on or (from_model and (coder is None or model != opt.SMT)):
            what = f"--model {model}" if model != opt.SMT else f"code={feature}" if feature else "A coder"
            idle = {"--preset": preset, "--atoms": atoms, "--solve-on": solve_on}
            idle |= {} if coder is not None and model == opt.SMT else {"--from-model": from_model}
            raise WrongUsage(
                f"{what} cannot be combined with {', '.join(name for name, one in idle.items() if one)}; leave it out."
            )

        from smtdist.cli import patch_coders

        patch_coders.fit_command(
            model,
            data,
            dataset,
            out,
            set_,
            coder,
            where,
            limit=limit,
            checkpoint=checkpoint,
            on_bad_chunk=opt.bad_chunk(on_bad_chunk) or "raise",
            first_look=first_look,
            overwrite=overwrite,
            json=json,
        )
        return
    check_target(out, overwrite, inputs=(from_model, atoms), data=data)
    base, given = inputs(from_model, atoms)
    asked = opt.settings_from(preset, set_, base, given)
    bad, (first, *_) = opt.bad_chunk(on_bad_chunk) or "raise", asked.values()
    whole = opening.open_source(locations.full_location(data), dataset, first, skip_damaged=bad == "skip")
    source = limited(whole, limit)
    asked = {name: opt.for_images(one, source, preset, set_, base) for name, one in asked.items()}
    for one in asked.values():  # refused before a checkpoint folder is this run's
        smt_model.image_geometry(one, source.shape, source.name)
    settings = next(iter(asked.values()))

    def facts() -> Facts:
        return joined_facts(source, asked) if len(asked) > 1 else run_facts(source, settings, given, base)

    with engine_for(where, source, checkpoint, facts) as engine:
        engine.on_bad_chunk, engine.solve_on = bad, opt.solver_place(solve_on) or "driver"
        stored = sum(
            finished_bytes(source, one, None if given is None else len(given)) for one in asked.values()
        )
        note_room(engine, out, stored)
        found: Model | Joined
        if len(asked) > 1:
            found, records = fit_joined(source, asked, engine)
        else:
            found, records = fit_model(source, settings, engine, atoms=given, base=base)
        written = store.save(found, out, overwrite=overwrite)
        seen = (
            looked_at(found, data, dataset, source, engine, settings.random_state, out)
            if first_look
            else None
        )
    skipped = found.provenance.get("skipped", [])
    about = {"model": str(out.absolute()), "bytes": written, "passes": records, "skipped": skipped}
    _report({**about, **found.summary(), **first_looks(seen)}, json)
    if not json:
        each = [] if base else [part.summary() for part in getattr(found, "parts", (found,))]
        say_advice(*(convergence.advice(one, "dictionary_rounds") for one in each))
        say_first_look(seen)


def note_room(engine: Engine, out: Path, stored: int) -> None:
    """Say so if the disk may be too small for the model, whose sums take so much before they are compressed."""
    free = shutil.disk_usage(out.absolute().parent).free
    if free < stored:
        engine.note(
            f"The model file may take up to {readable(stored)}, and {out.absolute().parent} has room for {readable(free)}. "
            "With --checkpoint a fit is not lost if its file cannot be written."
        )


def coded_feature(assignments: list[str] | None) -> str | None:
    """Return the learned code that --set code= asks for, if it does: one of ours, or of another package."""
    given = [text.partition("=") for text in assignments or []]
    found = [value for name, _, value in given if name in ("code", "feature")]
    if not found or found[-1] in configuration.BINARY:
        return None
    if plugins.is_learned(found[-1]):
        return found[-1]
    raise WrongUsage(
        f"code is {found[-1]!r}; it must be one of {', '.join((*configuration.FEATURES, *configuration.CODED))}, "
        f"or the name of an encoder that an installed package brings."
    )


def inputs(
    from_model: Path | None, atoms: Path | None
) -> tuple[Model | None, NDArray[np.floating[Any]] | None]:
    """Return the model that is reused, and the user's own atoms."""
    if from_model is not None and atoms is not None:
        raise WrongUsage("--from-model brings its own dictionary; leave out --atoms.")
    base = None if from_model is None else store.load(from_model, kind=Model, statistics=False)
    return base, None if atoms is None else read_atoms(atoms)


def read_atoms(path: Path) -> NDArray[np.floating[Any]]:
    """Read the user's atoms, (atoms, pixels), from an .npy file."""
    try:
        array = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise DataError(f"The file {path} does not exist; give the atoms as an .npy file.") from None
    except (OSError, ValueError, EOFError) as error:
        why = "" if "pickle" in str(error) else f" ({error})"  # NumPy advises to load it unsafely
        raise DataError(f"{path} is not a readable .npy file{why}; write it with numpy.save.") from error
    if not isinstance(array, np.ndarray) or array.ndim != 2 or array.dtype.kind != "f":
        raise DataError(
            f"{path} does not hold atoms; give a floating-point array of the shape (atoms, pixels)."
        )
    return array


def _report(result: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(result)
        return
    console = result_console()
    console.print(tables.passes_table(result["passes"]))
    for line in model_lines(result):
        console.print(line, highlight=False, soft_wrap=True)


def model_lines(result: dict[str, Any]) -> list[str]:
    """Return a line about each model of a file that was written."""
    if "models" not in result:
        return [model_line(result)]
    return [
        model_line({**result, **one, "model": f"{result['model']}, {name}"})
        for name, one in result["models"].items()
    ]


def model_line(result: dict[str, Any]) -> str:
    """Return one line about a model that was written."""
    return (
        f"{result['model']}: {tables.size(result['bytes'])}, {counted(result['n_atoms'], 'atom')} "
        f"({result['n_dead']:,} never fire), rank {result['rank']:,}, {counted(result['n_components'], 'component')}"
        + tables.skipped_phrase(result.get("skipped", []))
    )
