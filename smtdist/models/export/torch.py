"""A fitted encoder as a PyTorch module and program: raw images in, representations out, same codes as `smtdist transform`."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from smtdist.data.writing import whole_file
from smtdist.errors import ConfigurationError, ModelError
from smtdist.kernels import pixels as pixel_values
from smtdist.models.export.tables import Exported, Tables, facts, package, tables

Tensor = Any
_BUFFERS = (
    *("rows_at", "columns_at", "rows_near", "columns_near", "counted", "offset"),
    *("whiten", "atoms_t", "norms", "components_t"),
)


def write(
    model: Exported,
    path: str | os.PathLike[str],
    *,
    n_components: int | None = None,
    drop: int | None = None,
    overwrite: bool = False,
) -> int:
    """Write the encoder of a fitted model as an exported program (.pt2) and return its bytes.

    The file needs no smtdist: `torch.export.load(path).module()(images)` represents any number of images.
    """
    torch = package("torch")
    if not os.fspath(path).endswith(".pt2"):
        raise ConfigurationError(
            f"{path} does not end in .pt2, as exported programs of PyTorch must; rename it."
        )
    module = as_module(model, n_components, drop)
    example = torch.zeros((2, *module.images), dtype=getattr(torch, module.dtype))
    batch = torch.export.Dim("batch", min=1)
    with torch.no_grad():
        program = torch.export.export(module, (example,), dynamic_shapes=({0: batch},))
    # an open file, because the temporary name does not end in .pt2
    with whole_file(path, overwrite) as temporary, open(temporary, "wb") as file:
        torch.export.save(program, file, extra_files={"smtdist.json": json.dumps(facts(model, drop))})
    return os.stat(path).st_size


def as_module(model: Exported, n_components: int | None = None, drop: int | None = None) -> Any:
    """Return the encoder as a `torch.nn.Module` without parameters to train.

    It takes images (batch, height, width, channels) of the pixel type that the model was fitted on, on any
    device, and returns (batch, features): pooled row, pooled column, component, and then square roots of counts of
    codes where the model is one with such a `Readout`. `codes` gives the codes
    (patches, K), bool. They are exact, see `smtdist.models.export.tables`, unless TF32 was turned on. Do
    not call `.half()` or `.float()` on it: whitening needs float64. Floats outside the pixel range are not
    refused.

    Memory: the `image_bytes` of the module for every image of a batch, about.
    Raises ConfigurationError without the package torch.
    """
    torch = package("torch")
    parts = tables(model, n_components, drop)

    class Encoder(torch.nn.Module):  # type: ignore[misc, name-defined]  # torch has no types here
        """Sparse manifold transform: images to pooled representations."""

        def __init__(self) -> None:
            super().__init__()
            self.images, self.dtype, self.image_bytes = parts.images, parts.dtype, parts.image_bytes
            for name in (*_BUFFERS, *(["cells"] if parts.cells is not None else [])):
                self.register_buffer(name, torch.from_numpy(np.ascontiguousarray(getattr(parts, name))))

        def codes(self, images: Tensor) -> Tensor:
            """Return the codes of all patches, bool (N, K)."""
            held = dict(self.named_buffers())
            return _codes(parts, held, *_unit_grid(parts, held, _patches(parts, held, images)))

        def forward(self, images: Tensor) -> Tensor:
            """Return representations (batch, features)."""
            held = dict(self.named_buffers())
            active = _codes(parts, held, *_unit_grid(parts, held, _patches(parts, held, images)))
            found = []
            if parts.embedded:
                embed = _nearest if parts.form == "labels" else _above
                found.append(_represented(parts, embed(held, active)))
            if parts.cells is not None:
                found.append(_counted(parts, held, active))
            return torch.cat(found, 1).to(getattr(torch, parts.result_dtype))

    return Encoder().eval()


def _patches(parts: Tables, held: Mapping[str, Tensor], images: Tensor) -> Tensor:
    """Raw images to patches minus their means, float64 (p, N) of whole numbers."""
    if images.dim() != 4 or tuple(images.shape[1:]) != parts.images:
        raise ModelError(
            f"The encoder takes images (batch, {', '.join(map(str, parts.images))}), not {tuple(images.shape)}; "
            "give images like those it was fitted on."
        )
    if str(images.dtype) != f"torch.{parts.dtype}":
        raise ModelError(f"The encoder takes {parts.dtype} pixels, not {images.dtype}; convert them.")
    (rows, columns), size, channels = parts.positions, parts.patch, parts.channels
    whole = _pixel_grid(parts, images)
    shape = (-1, rows, size, columns, size, channels)
    patches = whole.index_select(1, held["rows_at"]).index_select(2, held["columns_at"]).reshape(shape)
    if parts.average is None:
        mean = held["offset"]
    else:
        summed = patches
        if parts.average.near:
            summed = (held["rows_near"] @ whole.flatten(2)).unflatten(2, (parts.images[1], channels))
            summed = (held["columns_near"] @ summed).reshape(shape)
        if parts.averaged_axes:
            summed = summed.sum(parts.averaged_axes, keepdim=True)
        mean = _rounded(summed, held["counted"])
    return (patches - mean).permute(2, 4, 5, 0, 1, 3).reshape(parts.pixels, -1)


def _pixel_grid(parts: Tables, images: Tensor) -> Tensor:
    """Raw pixels to whole numbers in float64, (B, H, W, C)."""
    value = images.double()
    if parts.scale.is_float:
        value = ((value - parts.scale.black) * 65536.0 / (parts.scale.white - parts.scale.black)).round()
    elif not parts.grey:
        value = value * 256.0
    if parts.grey:
        value = sum(
            weight * value[..., colour : colour + 1] for colour, weight in enumerate(pixel_values.LUMINANCE)
        )
        value = ((value + 128.0) / 256.0).floor() if parts.scale.is_float else value
    return value


def _rounded(total: Tensor, count: Any) -> Tensor:
    """Whole-number mean, halves up."""
    return ((2.0 * total + count) / (2.0 * count)).floor()


def _unit_grid(parts: Tables, held: Mapping[str, Tensor], centred: Tensor) -> tuple[Tensor, Tensor]:
    """Centred patches to whitened unit patches on the grid, float32 (N, p), and which are constant (N,)."""
    white = held["whiten"] @ centred
    squares = white[0] * white[0]
    for row in white[1:]:  # one by one in pixel order: these sums round, so their order matters
        squares = squares + row * row
    constant = ((centred * centred).sum(0) < parts.floor_sum) | (squares == 0)
    # a quotient by infinity is the zero that a constant patch gets
    norm = squares.sqrt().masked_fill(constant, math.inf)
    return (parts.grid_scale * (white / norm)).round().float().T, constant


def _codes(parts: Tables, held: Mapping[str, Tensor], grid: Tensor, constant: Tensor) -> Tensor:
    """Which atoms are active, bool (N, K)."""
    dots = grid @ held["atoms_t"]
    flat = constant.unsqueeze(1)
    if parts.form == "labels":
        scores = 2 * dots.int() - held["norms"] if parts.euclidean else dots
        active = _one_hot(scores)
        return active if parts.best_constant else active & ~flat
    active = (dots >= float(parts.cut)) & ~flat
    if parts.best_constant or parts.best_zero:
        lone = ~active.any(1, keepdim=True)
        lone = lone & ((flat & parts.best_constant) | (~flat & parts.best_zero))
        active = active | (lone & _one_hot(dots))
    return active


def _one_hot(scores: Tensor) -> Tensor:
    """Where the largest score of each row is; the first of equal ones, which `argmax` does not promise."""
    top = scores == scores.amax(1, keepdim=True)
    return top & (top.int().cumsum(1) == 1)


def _counted(parts: Tables, held: Mapping[str, Tensor], active: Tensor) -> Tensor:
    """Square roots of how often each atom is active in each cell, float32 (B, cells K)."""
    rows, columns = parts.positions
    of_images = active.float().reshape(-1, rows * columns, active.shape[1])
    return (held["cells"] @ of_images).sqrt().flatten(1)


def _nearest(held: Mapping[str, Tensor], active: Tensor) -> Tensor:
    """The components of the nearest atom; zero for patches that are left out."""
    embedded = held["components_t"].index_select(0, active.int().argmax(1))
    return embedded.masked_fill(~active.any(1, keepdim=True), 0.0)


def _above(held: Mapping[str, Tensor], active: Tensor) -> Tensor:
    """The sum of the components of all atoms whose cosine reaches the threshold."""
    return active.float() @ held["components_t"]


def _represented(parts: Tables, embedded: Tensor) -> Tensor:
    """Unit embeddings of patches, window averages, unit length again: float32 (B, features)."""
    size, step = parts.pool_size, parts.pool_stride
    pooled = _on_grid(parts, _unit(embedded)).unfold(1, size, step).unfold(2, size, step).mean((-1, -2))
    return _unit(pooled).flatten(1)


def _on_grid(parts: Tables, embedded: Tensor) -> Tensor:
    """Embedded patches (N, L) at their positions, zeros between them: (B, rows, columns, L)."""
    (rows, columns), length, gap = parts.positions, embedded.shape[1], parts.stride - 1
    if gap == 0:
        return embedded.reshape(-1, rows, columns, length)
    apart = embedded.reshape(-1, rows, 1, columns, 1, length)
    padded = package("torch").nn.functional.pad(apart, (0, 0, 0, gap, 0, 0, 0, gap))
    beyond = padded.reshape(-1, rows * parts.stride, columns * parts.stride, length)
    return beyond[:, : parts.grid[0], : parts.grid[1]]


def _unit(values: Tensor) -> Tensor:
    """Rows brought to unit length; zero stays zero."""
    wide = values.double()
    total = (wide * wide).sum(-1, keepdim=True)
    return (wide / total.sqrt().masked_fill(total == 0, 1.0)).float()
