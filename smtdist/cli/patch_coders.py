"""The commands of coders of patches, L1 and spike-and-slab: one body for each, whatever the coder."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from smtdist.cli.coders import asked_for, changed, require_room
from smtdist.cli.errors import WrongUsage
from smtdist.cli.fit import summary
from smtdist.cli.session import Where, engine_for, print_json, result_console
from smtdist.data.locations import Location
from smtdist.data.opening import open_source
from smtdist.data.writing import check_target
from smtdist.engine.manifest import Facts
from smtdist.errors import ConfigurationError
from smtdist.evaluate.few_labels import label_sweep
from smtdist.evaluate.run import Labelled
from smtdist.models.coded import (
    CODES,
    CodedSettings,
    changeable,
    coded_facts,
    coded_settings,
    fit_coded,
    format_of,
    load_coded,
    require_pooled,
)
from smtdist.models.coders.coder import Coder
from smtdist.models.coders.manifold import Manifold, ManifoldSettings, fit_manifold, require_pools
from smtdist.models.coders.start import require_pooling
from smtdist.models.kernel.settings import parse_settings
from smtdist.models.transform import represented
from smtdist.monitor import tables

Model = Coder | Manifold


def fit_coder_command(
    kind: str,
    data: Location,
    dataset: str,
    out: Path,
    assignments: list[str] | None,
    where: Where,
    *,
    checkpoint: Path | None,
    overwrite: bool,
    json: bool,
) -> None:
    """Fit a coder of a kind, "l1", "s3c", "omp" or "sc", write it and say so."""
    check_target(out, overwrite, data=data)
    code = CODES[kind]
    settings = asked_for(code.settings, assignments)
    source = open_source(data, dataset)
    require_pooling(source, settings, settings.pooling)
    with engine_for(where, source, checkpoint, lambda: Facts.of(source, asdict(settings))) as engine:
        coder, records = code.fit(source, settings, engine)
    size = code.format.save(coder, out, overwrite=overwrite)
    result = {**coder.summary(), "out": str(out.absolute()), "bytes": size, "passes": records}
    figures = ", ".join(f"{name} {value}" for name, value in coder.summary().items())
    _say(result, records[:3], figures, json)


def fit_coded_command(
    data: Location,
    dataset: str,
    out: Path,
    assignments: list[str] | None,
    where: Where,
    *,
    checkpoint: Path | None,
    overwrite: bool,
    json: bool,
) -> None:
    """Fit a manifold transform on a code of floats, coder and all, write it and say so."""
    check_target(out, overwrite, data=data)
    try:
        settings: CodedSettings = coded_settings(**parse_settings(assignments or []))
    except (ConfigurationError, TypeError) as error:
        raise WrongUsage(str(error)) from error
    source = open_source(data, dataset)
    require_pooled(source, settings)
    with engine_for(where, source, checkpoint, lambda: coded_facts(source, settings)) as engine:
        model, records = fit_coded(source, settings, engine)
    _save_manifold(model, out, records, overwrite, json)


def embed_command(
    path: Path,
    data: Location,
    dataset: str,
    out: Path,
    assignments: list[str] | None,
    where: Where,
    *,
    checkpoint: Path | None,
    overwrite: bool,
    json: bool,
) -> None:
    """Fit a manifold transform on the codes of the coder that lies at `path`, write it and say so.

    Where a transform lies there, its settings stay but for those that are given.
    """
    check_target(out, overwrite, inputs=(path,), data=data)
    found = load_coded(path)
    base, coder = (
        (found.settings, found.coder) if isinstance(found, Manifold) else (ManifoldSettings(), found)
    )
    settings = asked_for(base, assignments)
    source = open_source(data, dataset)
    require_pools(coder.patches, settings)
    with engine_for(where, source, checkpoint, lambda: Manifold(coder, settings).facts(source)) as engine:
        model, records = fit_manifold(source, coder, settings, engine)
    _save_manifold(model, out, records, overwrite, json)


def _save_manifold(
    model: Manifold, out: Path, records: list[dict[str, Any]], overwrite: bool, json: bool
) -> None:
    size = format_of(model).save(model, out, overwrite=overwrite)
    result = {
        **summary(model),
        "out": str(out.absolute()),
        "bytes": size,
        "passes": records,
    }
    figures = f"{result['n_components']} components of {result['n_atoms']} atoms"
    _say(result, records[:2] + records[-2:], figures, json)


def few_labels(
    model: Model,
    data: Location,
    train: str,
    test: str,
    where: Where,
    counts: list[int],
    draws: int,
    folds: int,
) -> list[dict[str, Any]]:
    """Classify the second group by few labels of the first, several draws of them; features of both are held in memory."""
    known, asked = (Labelled.open(data, group) for group in (train, test))
    sources = [known.source, asked.source]
    require_room(model.representation_shape(), sources, "smtdist s3c transform and an SVM")
    with engine_for(where, known.source) as engine:
        z, far = (represented(model, one, engine).reshape(one.n_samples, -1) for one in sources)
    return label_sweep(z, known.labels, far, asked.labels, counts, draws=draws, folds=folds)


def filters_command(
    coder: Coder, path: Path, out: Path, most: int, *, whitened: bool, overwrite: bool, json: bool
) -> None:
    """Draw atoms of the coder at `path` as patches."""
    from smtdist.plot.filters import save_filters

    check_target(out, overwrite, inputs=(path,))
    save_filters(coder.whitened_filters() if whitened else coder.filters(), out, most)
    result = {"out": str(out.absolute()), "filters": min(most, len(coder.basis))}
    if json:
        print_json(result)
    else:
        result_console().print(
            f"{result['out']}: {result['filters']} filters", highlight=False, soft_wrap=True
        )


def with_changes(model: Model, assignments: list[str] | None) -> Model:
    """Return a model with other features."""
    found: Model = changed(model, assignments, changeable(model))
    return found


def _say(result: dict[str, Any], records: list[dict[str, Any]], figures: str, json: bool) -> None:
    if json:
        print_json(result)
        return
    console = result_console()
    console.print(tables.passes_table(records))
    line = f"{result['out']}: {tables.size(result['bytes'])}, {figures}"
    console.print(line, highlight=False, soft_wrap=True)
