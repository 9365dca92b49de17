"""What models of images transform, opened and checked: by one model or several, ready to be planned or written."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from smtdist.data import opening
from smtdist.data.views import limited
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError, option
from smtdist.models import joined, loading, provenance, readout
from smtdist.models.jobs import Look, Seen, suiting
from smtdist.models.transform import TransformPlan, as_planned, file_bytes, planned, save_representation


def seen(look: Look) -> Seen:
    """Open images that a model represents, or several models side by side."""
    if look.csv:
        raise ConfigurationError(f"{option('csv')} is for the predictions of a head; leave it out.")
    if look.dataset is None:
        raise ConfigurationError(f"Missing option {option('dataset')}; name the samples in the file.")
    asked, data, dataset = readout.ReadoutSettings(**look.read_out), list(look.files), look.dataset
    drop = asked.drop_components
    present = loading.load_encoder(look.model).with_changes(look.changes)
    together = joined.side_by_side(present, [loading.load_encoder(one) for one in look.others])
    with suiting():
        encoder = readout.with_readout(
            together,
            asked.features,
            asked.pool,
            n_components=asked.n_components,
            drop=drop,
            mirrored=look.mirrored,
            half=look.half,
        )
        every = opening.open_source(
            data, dataset, encoder.scaling, fitted=True, skip_damaged=look.skip_damaged
        )
        source = limited(every, look.limit)
        shape = encoder.representation_shape()
        layout = readout.layout_of(encoder)
    attributes: dict[str, Any] = {
        "configuration": encoder.asked,
        "model": str(look.model.absolute()),
        "model_fingerprint": encoder.fingerprint,
        "source": source.name,
        "with": [str(one.absolute()) for one in look.others],
        **({} if drop is None else {"drop": drop}),
        "parts": json.dumps(readout.layout_to_plain(layout)),
        "identity": readout.identity_of(encoder),
    }
    about = {"n_samples": source.n_samples, "n_features": math.prod(shape), "feature_shape": list(shape)}

    def costs(engine: Engine) -> TransformPlan:
        engine.on_bad_chunk = "skip" if look.skip_damaged else "raise"
        return planned(encoder, source, engine)

    def plan(engine: Engine) -> tuple[TransformPlan, int]:
        found = costs(engine)
        return found.timed(source, engine), file_bytes(found.n_samples, found.features, found.itemsize)

    def write(engine: Engine, out: Path, overwrite: bool) -> int:
        found = costs(engine)
        engine.note(f"Representation: {found.size_phrase()}")
        found.require_room()
        workers = 0 if found.alone else found.worker_bytes
        engine.events.emit("planned", driver_bytes=found.driver_bytes(), worker_bytes=workers)
        labels, names, unusable = opening.copied_labels(data, dataset, source)

        def skipped() -> list[dict[str, Any]]:
            return [*filter(None, [provenance.left_out(source, engine)])]

        size = save_representation(
            out,
            as_planned(found, encoder.positions, source, engine),
            source.n_samples,
            shape,
            encoder.dtype,
            attributes,
            overwrite=overwrite,
            ending=lambda: {"skipped": json.dumps(skipped())},
            labels=labels,
            names=names,
        )
        about.update(skipped=skipped(), labels=labels is not None, labels_left_out=unusable)
        return size

    return Seen(source, write, about, plan)
