"""The commands of coders of patches, L1 and spike-and-slab: one body for each, whatever the coder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from smtdist import configuration
from smtdist.cli.coders import asked_for, changed, say_fitted, told
from smtdist.cli.errors import WrongUsage
from smtdist.cli.session import Where, engine_for
from smtdist.codes.coder import Coder
from smtdist.data import opening
from smtdist.data.locations import Location
from smtdist.data.writing import check_target
from smtdist.engine.manifest import Facts
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError
from smtdist.models import coded as learned_codes
from smtdist.models import loading
from smtdist.models.coded import CodedSettings
from smtdist.models.coders import fit, manifold
from smtdist.models.coders.manifold import Manifold, ManifoldSettings
from smtdist.models.coders.represent import Pooled, representing
from smtdist.models.records import joined
from smtdist.models.transform import Represents
from smtdist.monitor import tables


def fit_coder_command(
    kind: str,
    data: Location,
    dataset: str,
    out: Path,
    assignments: list[str] | None,
    where: Where,
    *,
    checkpoint: Path | None,
    on_bad_chunk: str = "raise",
    overwrite: bool,
    json: bool,
) -> None:
    """Fit a coder of a kind, "l1", "s3c", "omp" or "sc", write it and say so."""
    check_target(out, overwrite, data=data)
    code = learned_codes.code_of(kind)
    settings = asked_for(code.settings, assignments)
    source = opening.open_source(data, dataset, skip_damaged=on_bad_chunk == "skip")
    fit.require_pooling(source, settings, settings.pooling)
    with engine_for(
        where, source, checkpoint, lambda: Facts.of(source, code.cls.facts(settings))
    ) as engine:
        engine.on_bad_chunk = on_bad_chunk
        coder, records = fit.fit_coder(code.cls, source, settings, engine)
    size = learned_codes.files_of(coder).save(coder, out, overwrite=overwrite)
    result = {**coder.summary(), "out": str(out.absolute()), "bytes": size, "passes": records}
    say_fitted(result, in_rounds(records), told(coder.summary()), json)


def fit_coded_command(
    data: Location,
    dataset: str,
    out: Path,
    assignments: list[str] | None,
    where: Where,
    *,
    checkpoint: Path | None,
    on_bad_chunk: str = "raise",
    overwrite: bool,
    json: bool,
) -> None:
    """Fit a manifold transform on a learned code, coder and all, write it and say so."""
    check_target(out, overwrite, data=data)
    settings = coded_settings_of(assignments)
    source = opening.open_source(data, dataset, skip_damaged=on_bad_chunk == "skip")
    learned_codes.require_pooled(source, settings)
    with engine_for(
        where, source, checkpoint, lambda: learned_codes.coded_facts(source, settings)
    ) as engine:
        engine.on_bad_chunk = on_bad_chunk
        model, records = learned_codes.fit_coded(source, settings, engine)
    _save_manifold(model, out, records, overwrite, json)


def coded_settings_of(assignments: list[str] | None) -> CodedSettings:
    """Return the settings of a fit of a learned code; what has no meaning is wrong usage."""
    try:
        return learned_codes.coded_settings(**configuration.parse_settings(assignments or []))
    except (ConfigurationError, TypeError) as error:
        raise WrongUsage(str(error)) from error


def coded_run(
    model: str, data: Location, dataset: str, assignments: list[str] | None, from_model: Path | None
) -> tuple[Callable[[Engine], object], int]:
    """Return the fit that options mean, to be called with an engine, and the components that it solves for: none of a coder."""
    source = opening.open_source(data, dataset)
    if model in configuration.CODED:
        code = learned_codes.code_of(model)
        alone = asked_for(code.settings, assignments)
        return lambda engine: fit.fit_coder(code.cls, source, alone, engine), 0
    if from_model is None:
        settings = coded_settings_of(assignments)
        wanted = settings.embedding.n_components + settings.embedding.drop
        return lambda engine: learned_codes.fit_coded(source, settings, engine), wanted
    coder, embedding = _reused(from_model, assignments)
    wanted = embedding.n_components + embedding.drop
    return lambda engine: manifold.fit_manifold(source, coder, embedding, engine), wanted


def _reused(path: Path, assignments: list[str] | None) -> tuple[Coder, ManifoldSettings]:
    """Return the coder that lies at `path`, and what is asked of an embedding; settings of a transform there stay otherwise."""
    found = learned_codes.load_coded(path)
    coder, base = (
        (found.coder, found.settings) if isinstance(found, Manifold) else (found, ManifoldSettings())
    )
    # the code that the file has anyway
    given = [text for text in assignments or [] if text != f"feature={coder.feature}"]
    fixed = sorted(
        set(configuration.parse_settings(given)) & learned_codes.names_of_the_code(coder.feature)
    )
    if fixed:
        raise WrongUsage(
            f"--from-model keeps the code with its whitening and dictionary, so its settings ({', '.join(fixed)}) cannot be "
            f"set; leave them out."
        )
    return coder, asked_for(base, given)


def embed_command(
    path: Path,
    data: Location,
    dataset: str,
    out: Path,
    assignments: list[str] | None,
    where: Where,
    *,
    checkpoint: Path | None,
    on_bad_chunk: str = "raise",
    overwrite: bool,
    json: bool,
) -> None:
    """Fit a manifold transform on the codes of the coder that lies at `path`, write it and say so.

    Where a transform lies there, its settings stay but for those that are given.
    """
    check_target(out, overwrite, inputs=(path,), data=data)
    coder, settings = _reused(path, assignments)
    source = opening.open_source(data, dataset, skip_damaged=on_bad_chunk == "skip")
    Manifold(coder, settings).require_like(source)
    manifold.require_pools(coder.patches, settings)
    manifold.require_size(coder.size, settings)
    with engine_for(where, source, checkpoint, lambda: Manifold(coder, settings).facts(source)) as engine:
        engine.on_bad_chunk = on_bad_chunk
        model, records = manifold.fit_manifold(source, coder, settings, engine)
    _save_manifold(model, out, records, overwrite, json)


def _save_manifold(
    model: Manifold, out: Path, records: list[dict[str, Any]], overwrite: bool, json: bool
) -> None:
    size = learned_codes.files_of(model).save(model, out, overwrite=overwrite)
    result = {
        **model.summary(),
        "out": str(out.absolute()),
        "bytes": size,
        "passes": records,
    }
    skipped = model.provenance.get("skipped", [])
    figures = f"{result['n_components']} components of codes of {result['n_atoms']} entries{tables.skipped_phrase(skipped)}"
    say_fitted({**result, "skipped": skipped}, in_rounds(records), figures, json)


def encoder_at(path: Path, assignments: list[str] | None) -> Represents:
    """Read what represents images, with other settings of what may change after the fit."""
    fitted = loading.load_encoder(path)
    if not assignments:
        return fitted
    model = fitted.coder if isinstance(fitted, Pooled) else fitted
    return representing(changed(model, assignments, learned_codes.changeable(model)))


def in_rounds(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return records of passes with all rounds as one."""
    rounds = [one for one in records if one["name"].startswith("round-")]
    first = records.index(rounds[0]) if rounds else 0
    rest = [one for one in records if one not in rounds]
    return rest if not rounds else [*rest[:first], joined(f"rounds ({len(rounds)})", rounds), *rest[first:]]
