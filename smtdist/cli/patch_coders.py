"""The commands of coders of patches, L1 and spike-and-slab: one body for each, whatever the coder."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from smtdist.cli.coders import asked_for, changed, require_room, write_features
from smtdist.cli.errors import WrongUsage
from smtdist.cli.session import Where, engine_for, print_json, result_console
from smtdist.data.locations import Location
from smtdist.data.opening import open_source
from smtdist.data.writing import check_target
from smtdist.engine.manifest import Facts
from smtdist.errors import ConfigurationError
from smtdist.evaluate.few_labels import label_sweep
from smtdist.evaluate.metrics import Evaluation
from smtdist.evaluate.probe import LinearEvaluation
from smtdist.evaluate.run import Labelled, Settings, classifier, evaluated_pieces
from smtdist.models.coded import (
    CODES,
    CodedSettings,
    changeable,
    coded_facts,
    coded_settings,
    fit_coded,
    format_of,
    require_pooled,
)
from smtdist.models.coders.coder import Coder
from smtdist.models.coders.features import features_of, represented
from smtdist.models.coders.manifold import (
    Manifold,
    ManifoldSettings,
    fit_manifold,
    manifold_facts,
    require_pools,
)
from smtdist.models.coders.start import require_pooling
from smtdist.models.kernel.settings import parse_settings
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
    coder: Coder,
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
    """Fit a manifold transform on the codes of a coder, which lies at `path`, write it and say so."""
    check_target(out, overwrite, inputs=(path,), data=data)
    settings = asked_for(ManifoldSettings(), assignments)
    source = open_source(data, dataset)
    require_pools(coder.patches, settings)
    with engine_for(where, source, checkpoint, lambda: manifold_facts(source, coder, settings)) as engine:
        model, records = fit_manifold(source, coder, settings, engine)
    _save_manifold(model, out, records, overwrite, json)


def _save_manifold(
    model: Manifold, out: Path, records: list[dict[str, Any]], overwrite: bool, json: bool
) -> None:
    size = format_of(model).save(model, out, overwrite=overwrite)
    result = {
        "units": len(model.coder.basis),
        "components": len(model.components),
        "eigenvalues": model.eigenvalues[[0, -1]].tolist(),
        "out": str(out.absolute()),
        "bytes": size,
        "passes": records,
    }
    figures = f"{result['components']} components of {result['units']} atoms"
    _say(result, records[:2] + records[-2:], figures, json)


def transform_command(
    model: Model,
    path: Path,
    data: Location,
    dataset: str,
    out: Path,
    assignments: list[str] | None,
    where: Where,
    *,
    overwrite: bool,
    json: bool,
) -> None:
    """Write the features of every image, piece by piece."""
    started = time.perf_counter()
    check_target(out, overwrite, inputs=(path,), data=data)
    model = with_changes(model, assignments)
    source = open_source(data, dataset)
    attributes = {"configuration": json_of(model), "model": str(path.absolute()), "source": source.name}
    write_features(
        out,
        source,
        lambda engine: represented(model, source, engine),
        model.feature_shape,
        attributes,
        where,
        started=started,
        overwrite=overwrite,
        json=json,
    )


@dataclass(frozen=True)
class Judge:
    """A model, labelled images to learn from and to judge by, and where the work is done."""

    model: Model
    known: Labelled
    asked: Labelled
    where: Where

    @classmethod
    def open(cls, model: Model, data: Location, train: str, test: str, where: Where) -> Judge:
        """Look at both groups and read their labels."""
        return cls(model, Labelled.open(data, train), Labelled.open(data, test), where)

    def judged(self, settings: Settings) -> Evaluation | LinearEvaluation:
        """Classify the second group by the first; features that are too large for memory go to a temporary file."""
        with engine_for(self.where, self.known.source) as engine:
            return evaluated_pieces(
                lambda source: represented(self.model, source, engine),
                int(np.prod(self.model.feature_shape)),
                np.dtype(np.float32),
                self.known,
                self.asked,
                engine,
                settings,
            )

    def swept(self, counts: list[int], draws: int, folds: int, command: str) -> list[dict[str, Any]]:
        """Classify by few labels, several draws of them, in memory; `command` is what writes features instead."""
        require_room(self.model.feature_shape, [self.known.source, self.asked.source], command)
        with engine_for(self.where, self.known.source) as engine:
            z, far = (features_of(self.model, one.source, engine) for one in (self.known, self.asked))
        return label_sweep(z, self.known.labels, far, self.asked.labels, counts, draws=draws, folds=folds)


def say_evaluation(found: Evaluation | LinearEvaluation, path: Path, json: bool) -> None:
    """Print an accuracy."""
    if json:
        print_json({**found.to_dict(), "model": str(path.absolute())})
        return
    title = f"{found.n_test:,} test images, {found.n_train:,} training images, {found.n_classes} classes"
    result_console().print(tables.accuracy_table(title, [(classifier(found), found.to_dict())]))


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


def json_of(model: Model) -> str:
    """Return the settings of a coder, or of both steps of a transform, as JSON."""
    if isinstance(model, Manifold):
        return f'{{"coder": {model.coder.settings.to_json()}, "embedding": {model.settings.to_json()}}}'
    return model.settings.to_json()


def _say(result: dict[str, Any], records: list[dict[str, Any]], figures: str, json: bool) -> None:
    if json:
        print_json(result)
        return
    console = result_console()
    console.print(tables.passes_table(records))
    line = f"{result['out']}: {tables.size(result['bytes'])}, {figures}"
    console.print(line, highlight=False, soft_wrap=True)
