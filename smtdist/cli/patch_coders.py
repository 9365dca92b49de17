"""The commands of coders of patches, L1 and spike-and-slab: one body for each, whatever the coder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from smtdist import configuration
from smtdist.cli.coders import asked_for, changed, parsed, say_fitted, told
from smtdist.cli.errors import WrongUsage, usage
from smtdist.cli.first_look import first_looks, looked_at, say_first_look
from smtdist.cli.options import Where
from smtdist.cli.session import engine_for
from smtdist.codes.coder import Coder, Record
from smtdist.data import opening
from smtdist.data.locations import Location
from smtdist.data.source import Source
from smtdist.data.views import limited
from smtdist.data.writing import check_target
from smtdist.engine.manifest import Facts
from smtdist.engine.passes import Engine
from smtdist.errors import counted
from smtdist.kernels import convergence
from smtdist.models import coded as learned_codes
from smtdist.models import loading, store
from smtdist.models.coders import fit, manifold
from smtdist.models.coders.manifold import Manifold, ManifoldSettings
from smtdist.models.coders.represent import Pooled, representing
from smtdist.models.records import joined
from smtdist.models.transform import Represents
from smtdist.monitor import tables
from smtdist.settings import named


class Run(NamedTuple):
    """A fit that options mean: what it reads, what it does with an engine, and what a checkpoint of it depends on.

    components : those that it solves for, none of a coder alone.
    """

    source: Source
    fit: Callable[[Engine], tuple[Coder | Manifold, list[Record]]]
    facts: Callable[[], Facts]
    components: int = 0


def fit_command(
    model: str,
    data: Location,
    dataset: str,
    out: Path,
    assignments: list[str] | None,
    from_model: Path | None,
    where: Where,
    *,
    limit: int | None,
    checkpoint: Path | None,
    on_bad_chunk: str,
    first_look: bool,
    overwrite: bool,
    json: bool,
) -> None:
    """Make the fit that `coded_run` finds, write what it found and say so."""
    check_target(out, overwrite, inputs=(from_model,), data=data)
    run = coded_run(model, data, dataset, assignments, from_model, limit, on_bad_chunk)
    with engine_for(where, run.source, checkpoint, run.facts) as engine:
        engine.on_bad_chunk = on_bad_chunk
        found, records = run.fit(engine)
        size = store.save(found, out, overwrite=overwrite)
        seen = looked_at(found, data, dataset, run.source, engine, 0, out) if first_look else None
    result = {**found.summary(), "out": str(out.absolute()), "bytes": size, "passes": records}
    result |= first_looks(seen)
    figures = told(found.summary())
    if isinstance(found, Manifold):
        result["skipped"] = skipped = found.provenance.get("skipped", [])
        figures = (
            f"{counted(result['n_components'], 'component')} of codes of {result['n_atoms']} entries"
            f"{tables.skipped_phrase(skipped)}"
        )
    say_fitted(result, in_rounds(records), figures, json, convergence.advice(found.summary()))
    if not json:
        say_first_look(seen)


def coded_run(
    model: str,
    data: Location,
    dataset: str,
    assignments: list[str] | None,
    from_model: Path | None,
    limit: int | None = None,
    on_bad_chunk: str = "raise",
) -> Run:
    """Return a fit of a coder, "l1", "s3c", "omp" or "sc", or of a manifold transform on a learned code.

    The coder of the transform is fitted too, or lies at `from_model`; where a transform lies there, its
    settings stay but for those that are given.
    """

    def opened() -> Source:
        return limited(opening.open_source(data, dataset, skip_damaged=on_bad_chunk == "skip"), limit)

    if model in configuration.CODED:
        code = learned_codes.code_of(model)
        alone = asked_for(code.settings, assignments)
        source = opened()
        fit.require_pooling(source, alone, alone.pooling_grid)
        return Run(
            source,
            lambda engine: fit.fit_coder(code.cls, source, alone, engine),
            lambda: Facts.of(source, code.cls.facts(alone)),
        )
    if from_model is None:
        with usage(TypeError):
            settings = learned_codes.coded_settings(**configuration.parse_settings(assignments or []))
            learned_codes.require_entries(settings)
        source = opened()
        learned_codes.require_pooled(source, settings)
        return Run(
            source,
            lambda engine: learned_codes.fit_coded(source, settings, engine),
            lambda: learned_codes.coded_facts(source, settings),
            settings.embedding.n_components + settings.embedding.drop_components,
        )
    start = Manifold(*_reused(from_model, assignments))
    source = opened()
    start.require_like(source)
    manifold.require_pools(start.patches, start.settings)
    with usage():
        manifold.require_size(start.coder.size, start.settings)
    return Run(
        source,
        lambda engine: manifold.fit_manifold(source, start.coder, start.settings, engine),
        lambda: start.facts(source),
        start.wanted,
    )


def _reused(path: Path, assignments: list[str] | None) -> tuple[Coder, ManifoldSettings]:
    """Return the coder that lies at `path`, and what is asked of an embedding; settings of a transform there stay otherwise."""
    found = store.load(path, statistics=False)
    coder, base = (
        (found.coder, found.settings) if isinstance(found, Manifold) else (found, ManifoldSettings())
    )
    # the code that the file has anyway
    given = [
        text
        for text in assignments or []
        if text not in (f"code={coder.feature}", f"feature={coder.feature}")
    ]
    with usage():
        names = named(parsed(given), learned_codes.declared(coder.feature), "a transform")
    fixed = sorted(names.keys() & learned_codes.names_of_the_code(coder.feature))
    if fixed:
        raise WrongUsage(
            f"--from-model keeps the code with its whitening and dictionary, so its settings ({', '.join(fixed)}) cannot be "
            f"set; leave them out."
        )
    return coder, asked_for(base, given)


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
