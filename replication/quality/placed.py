"""Rows of all training images on a device, made there for a linear probe: neither files nor the host's memory hold them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from smtdist.data.source import Source
from smtdist.engine.passes import Engine
from smtdist.evaluate.linear_rows import device_room, weight_bytes
from smtdist.kernels.device import array_module, place
from smtdist.models.tuning.members import Member, Room, represent_slices, slices_of


def placed_type(count: int, features: int) -> str | None:
    """Return the type in which so many rows fit on a device beside their products, None where they do not or there is none."""
    room = device_room(count, weight_bytes(10, count))
    kinds = ("float32", "float16")  # the first that fits
    return next((kind for kind in kinds if count * features * np.dtype(kind).itemsize < room), None)


def placed_rows(member: Member, source: Source, engine: Engine) -> Any:
    """Return the representations (n, F) of all images of a source by a member's only slice, on the device."""
    count = source.n_samples
    rows = array_module(place(np.empty(0))).empty(count * member.features[0], member.dtype)
    slices = slices_of((member,), engine)
    represent_slices(replace(slices, room=Room((rows,), count, 0)), source, 0, count)
    return rows.reshape(count, -1)
