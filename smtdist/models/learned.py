"""`SMT` with a learned code: what its parameters ask of the code and of its embedding, and back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from smtdist import configuration
from smtdist.configuration import Configuration
from smtdist.data.source import Source
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError
from smtdist.models import coded, forecast, rehearsal
from smtdist.models.coders.manifold import Manifold
from smtdist.models.planning import Sizes

OWN: Final = ("threshold",)
"""Names that mean something else to a learned code than to `Configuration`: they are in `settings` alone."""


def shared_names(feature: str) -> set[str]:
    """Return the settings of a learned code and its embedding that `SMT` has a parameter for."""
    return (coded.declared(feature).keys() & set(configuration.FIELDS)) - set(OWN)


def given_settings(parameters: Mapping[str, Any], others: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the settings of `coded_settings` that the parameters of an `SMT` mean, with `others` beside them.

    Raises ConfigurationError for parameters that a learned code does not have and that are not as they are by default.
    """
    code, usual = parameters["code"], Configuration.defaults()
    names = shared_names(code)
    idle = [
        name
        for name, value in parameters.items()
        if name not in names and name != "code" and value is not None and value != usual[name]
    ]
    if idle:
        raise ConfigurationError(
            f"{', '.join(idle)} is no setting of SMT with code={code}; leave it out, or give a setting of the code in "
            f"`settings` (smtdist settings --code {code} lists them)."
        )
    given = {name: value for name, value in parameters.items() if name in names and value is not None}
    return {"code": code, **given, **(others or {})}


def parameters_and_settings(model: Manifold) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the parameters of the `SMT` that a model was fitted by, and its `settings`."""
    found = coded.named_settings(model)
    parameters = {name: found.pop(name) for name in ("code", *shared_names(found["code"]))}
    return parameters, found


def planned(
    source: Source,
    settings: coded.CodedSettings,
    workers: int | None,
    sizes: Sizes,
    threads: int | None,
    checkpoint: Path | None,
    calibrate: bool,
) -> forecast.FitPlan:
    """Return what a fit of a learned code will cost on this machine, or on workers like it."""
    machines, _ = forecast.local_machines(workers or 0, threads, *sizes)
    wanted = settings.embedding.n_components + settings.embedding.drop_components

    def fit(engine: Engine) -> object:
        return coded.fit_coded(source, settings, engine)

    return rehearsal.planned_run(fit, machines, wanted, checkpoint=checkpoint, timed=calibrate)
