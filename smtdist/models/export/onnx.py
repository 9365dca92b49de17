"""A fitted encoder as an ONNX graph: raw images in, representations out, with the codes of `smtdist transform`."""

from __future__ import annotations

import os
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smtdist.data.writing import whole_file
from smtdist.errors import ModelError
from smtdist.kernels import pixels as pixel_values
from smtdist.kernels import representation
from smtdist.models.export.tables import Exported, Tables, facts, package, tables

OPSET: Final = 18
IR_VERSION: Final = 8
LARGEST: Final = 2**31 - 2**20
"""Protocol buffers end at 2 GiB."""


def write(
    model: Exported,
    path: str | os.PathLike[str],
    *,
    n_components: int | None = None,
    drop: int | None = None,
    overwrite: bool = False,
) -> int:
    """Write the encoder of a fitted model as an ONNX file and return its bytes; see `as_graph`."""
    content = as_graph(model, n_components, drop).SerializeToString()
    with whole_file(path, overwrite) as temporary, open(temporary, "wb") as file:
        file.write(content)
    return len(content)


def as_graph(model: Exported, n_components: int | None = None, drop: int | None = None) -> Any:
    """Return the encoder as an `onnx.ModelProto` (opset 18), checked.

    Input `images` (batch, height, width, channels), of the pixel type that the model was fitted on, and of the size
    that it codes (encoded images are decoded, resized and cropped before). Output `representation` (batch,
    features): pooled row, pooled column, component, and then square roots of counts of codes where the model is one
    with such a `Readout`. The codes are exact, see
    `smtdist.models.export.tables`, on a runtime that multiplies float32 as such: turn TF32 off on a GPU.
    Floats outside the pixel range are not refused.

    Memory: about `image_bytes` of the metadata for every image of a batch; choose the batch accordingly.
    Raises ConfigurationError without the package onnx, ModelError for a model beyond ONNX's 2 GiB.
    """
    onnx = package("onnx")
    parts = tables(model, n_components, drop)
    held = sum(value.nbytes for value in vars(parts).values() if isinstance(value, np.ndarray))
    if held > LARGEST:
        raise ModelError(
            f"The encoder holds {held:,} bytes, and an ONNX file at most 2 GiB; export fewer components, or as torch."
        )
    graph = _Graph(onnx)
    dots, flat = _coded(graph, parts, _patches(graph, parts))
    read = _nearest if parts.form == "labels" else _above
    found = read(graph, parts, dots, flat)
    rows_of_features = graph("Concat", *found, axis=1) if len(found) > 1 else found[0]
    graph.name("Cast", "representation", rows_of_features, to=_type(onnx, parts.result_dtype))
    image = onnx.helper.make_tensor_value_info("images", _type(onnx, parts.dtype), ["batch", *parts.images])
    result = onnx.helper.make_tensor_value_info(
        "representation", _type(onnx, parts.result_dtype), ["batch", parts.n_features]
    )
    about = "Sparse manifold transform: images to pooled representations"
    built = onnx.helper.make_model(
        onnx.helper.make_graph(graph.nodes, "smtdist", [image], [result], graph.constants, about),
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="smtdist",
    )
    more = {"image_bytes": parts.image_bytes, "feature_shape": list(parts.feature_shape)}
    told = {name: str(value) for name, value in {**facts(model, drop), **more}.items()}
    onnx.helper.set_model_props(built, told)
    onnx.checker.check_model(built, full_check=True)
    return built


class _Graph:
    """Nodes and constants as they are added; a call adds a node and returns the name of its result."""

    def __init__(self, onnx: Any) -> None:
        self.onnx = onnx
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def __call__(self, operator: str, *inputs: str, **attributes: Any) -> str:
        return self.name(operator, f"t{len(self.nodes)}", *inputs, **attributes)

    def name(self, operator: str, output: str, *inputs: str, **attributes: Any) -> str:
        """Add a node whose result has a name that tells what it is."""
        self.nodes.append(self.onnx.helper.make_node(operator, list(inputs), [output], **attributes))
        return output

    def split(self, value: str, parts: int) -> list[str]:
        """Cut into slices of one along the first axis."""
        outputs = [f"{value}_{part}" for part in range(parts)]
        node = self.onnx.helper.make_node("Split", [value], outputs, axis=0, num_outputs=parts)
        self.nodes.append(node)
        return outputs

    def constant(self, value: Any, dtype: str) -> str:
        array: NDArray[Any] = np.ascontiguousarray(np.asarray(value, dtype))
        if np.ndim(value) == 0:
            array = array.reshape(())
        output = f"c{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(array, output))
        return output

    def cast(self, value: str, dtype: str) -> str:
        return self("Cast", value, to=_type(self.onnx, dtype))

    def reshape(self, value: str, *shape: int) -> str:
        return self("Reshape", value, self.constant(shape, "int64"))

    def total(self, value: str, *axes: int) -> str:
        return self("ReduceSum", value, self.constant(axes, "int64"), keepdims=1)


def _patches(graph: _Graph, parts: Tables) -> str:
    """Raw images to patches minus their means, float64 (p, N) of whole numbers."""
    (rows, columns), size, channels = parts.positions, parts.patch, parts.channels
    whole = _pixel_grid(graph, parts)
    shape = (0, rows, size, columns, size, channels)  # 0 keeps the batch
    taken = graph("Gather", whole, graph.constant(parts.rows_at, "int64"), axis=1)
    taken = graph("Gather", taken, graph.constant(parts.columns_at, "int64"), axis=2)
    patches = graph.reshape(taken, *shape)
    if parts.average is None:
        mean = graph.constant(parts.offset, "float64")
    else:
        summed = patches
        if parts.average.near:
            flat = graph.reshape(whole, 0, parts.images[0], -1)
            summed = graph("MatMul", graph.constant(parts.rows_near, "float64"), flat)
            summed = graph.reshape(summed, 0, rows * size, parts.images[1], channels)
            summed = graph("MatMul", graph.constant(parts.columns_near, "float64"), summed)
            summed = graph.reshape(summed, *shape)
        if parts.averaged_axes:
            summed = graph.total(summed, *parts.averaged_axes)
        mean = _rounded(graph, summed, parts.counted)
    centred = graph("Transpose", graph("Sub", patches, mean), perm=[2, 4, 5, 0, 1, 3])
    return graph.reshape(centred, parts.pixels, -1)


def _pixel_grid(graph: _Graph, parts: Tables) -> str:
    """Raw pixels to whole numbers in float64, (B, H, W, C)."""
    value = graph.cast("images", "float64")
    if parts.scale.is_float:
        value = graph("Sub", value, graph.constant(parts.scale.black, "float64"))
        value = graph("Mul", value, graph.constant(65536.0, "float64"))
        value = graph("Div", value, graph.constant(parts.scale.white - parts.scale.black, "float64"))
        value = graph("Round", value)
    elif not parts.grey:
        value = graph("Mul", value, graph.constant(256.0, "float64"))
    if parts.grey:
        value = graph(
            "MatMul", value, graph.constant([[weight] for weight in pixel_values.LUMINANCE], "float64")
        )
        if parts.scale.is_float:
            value = graph("Add", value, graph.constant(128.0, "float64"))
            value = graph("Floor", graph("Div", value, graph.constant(256.0, "float64")))
    return value


def _rounded(graph: _Graph, total: str, count: Any) -> str:
    """Whole-number mean, halves up."""
    twice = graph("Mul", total, graph.constant(2.0, "float64"))
    over = graph("Add", twice, graph.constant(count, "float64"))
    return graph("Floor", graph("Div", over, graph.constant(2.0 * np.asarray(count), "float64")))


def _coded(graph: _Graph, parts: Tables, centred: str) -> tuple[str, str]:
    """Centred patches to cosines with the atoms, float32 (N, K), and which patches are constant, bool (N, 1)."""
    contrast = graph.total(graph("Mul", centred, centred), 0)
    white = graph("MatMul", graph.constant(parts.whiten, "float64"), centred)
    squares = _square_sum(graph, white, parts.pixels)
    faint = graph("Less", contrast, graph.constant(parts.floor_sum, "float64"))
    none = graph("Equal", squares, graph.constant(0.0, "float64"))
    constant = graph("Or", faint, none)
    # a quotient by infinity is the zero that a constant patch gets
    norm = graph("Where", constant, graph.constant(np.inf, "float64"), graph("Sqrt", squares))
    unit = graph("Mul", graph("Div", white, norm), graph.constant(float(parts.grid_scale), "float64"))
    grid = graph("Transpose", graph.cast(graph("Round", unit), "float32"), perm=[1, 0])
    dots = graph.name("MatMul", "dots", grid, graph.constant(parts.atoms_t, "float32"))
    return dots, graph("Transpose", constant, perm=[1, 0])


def _square_sum(graph: _Graph, values: str, pixels: int) -> str:
    """Σ y² in pixel order, (1, N): these sums round, so their order matters."""
    squares = graph("Mul", values, values)
    first, *others = graph.split(squares, pixels) if pixels > 1 else [squares]
    for other in others:
        first = graph("Add", first, other)
    return first


def _nearest(graph: _Graph, parts: Tables, dots: str, flat: str) -> list[str]:
    """What is read out where the nearest atom is active; patches that are left out have none."""
    scores = dots
    if parts.euclidean:
        scores = graph("Mul", graph.cast(dots, "int32"), graph.constant(2, "int32"))
        scores = graph("Sub", scores, graph.constant(parts.norms, "int32"))
    labels = graph.name("ArgMax", "labels", scores, axis=1, keepdims=0)
    kept = graph.name("Not", "kept", flat)
    found = []
    if parts.embedded:
        embedded = graph("Gather", graph.constant(parts.components_t, "float32"), labels, axis=0)
        if not parts.best_constant:
            embedded = graph("Where", kept, embedded, graph.constant(0.0, "float32"))
        found.append(_represented(graph, parts, embedded))
    if parts.cells is not None:
        numbers = graph.constant(np.arange(len(parts.norms)), "int64")
        active = graph("Equal", graph.reshape(labels, -1, 1), numbers)
        if not parts.best_constant:
            active = graph("And", active, kept)
        found.append(_counted(graph, parts, graph.cast(active, "float32")))
    return found


def _above(graph: _Graph, parts: Tables, dots: str, flat: str) -> list[str]:
    """What is read out where all atoms are active whose cosine reaches the threshold."""
    reach = graph("GreaterOrEqual", dots, graph.constant(float(parts.cut), "float32"))
    active = graph("And", reach, graph("Not", flat))
    if parts.best_constant or parts.best_zero:
        numbers = graph.constant(np.arange(len(parts.norms)), "int64")
        best = graph("Equal", graph("ArgMax", dots, axis=1, keepdims=1), numbers)
        count = graph.total(graph.cast(active, "int32"), 1)
        lone = graph("Equal", count, graph.constant(0, "int32"))
        if not parts.best_zero:
            lone = graph("And", lone, flat)
        elif not parts.best_constant:
            lone = graph("And", lone, graph("Not", flat))
        active = graph("Or", active, graph("And", lone, best))
    codes = graph.name("Cast", "codes", active, to=_type(graph.onnx, "float32"))
    found = []
    if parts.embedded:
        found.append(
            _represented(
                graph, parts, graph("MatMul", codes, graph.constant(parts.components_t, "float32"))
            )
        )
    if parts.cells is not None:
        found.append(_counted(graph, parts, codes))
    return found


def _counted(graph: _Graph, parts: Tables, codes: str) -> str:
    """Square roots of how often each atom is active in each cell, float32 (B, cells K)."""
    rows, columns = parts.positions
    of_images = graph.reshape(codes, -1, rows * columns, len(parts.norms))
    counts = graph("MatMul", graph.constant(parts.cells, "float32"), of_images)
    assert parts.cells is not None
    return graph.reshape(graph("Sqrt", counts), 0, len(parts.cells) * len(parts.norms))


def _represented(graph: _Graph, parts: Tables, embedded: str) -> str:
    """Unit embeddings of patches, window averages, unit length again: float32 (B, features)."""
    size, step = parts.pool_size, parts.pool_stride
    rows, columns = representation.pooled_shape(*parts.grid, size, step)
    planes = graph("Transpose", _on_grid(graph, parts, _unit(graph, embedded, 1)), perm=[0, 3, 1, 2])
    pooled = graph("AveragePool", planes, kernel_shape=[size, size], strides=[step, step])
    return graph.reshape(
        _unit(graph, graph("Transpose", pooled, perm=[0, 2, 3, 1]), 3),
        0,
        rows * columns * parts.components_t.shape[1],
    )


def _on_grid(graph: _Graph, parts: Tables, embedded: str) -> str:
    """Embedded patches (N, L) at their positions, zeros between them: (B, rows, columns, L)."""
    (rows, columns), length, gap = parts.positions, parts.components_t.shape[1], parts.stride - 1
    if gap == 0:
        return graph.reshape(embedded, -1, rows, columns, length)
    apart = graph.reshape(embedded, -1, rows, 1, columns, 1, length)
    padded = graph("Pad", apart, graph.constant([0] * 8 + [gap, 0, gap, 0], "int64"))
    beyond = graph.reshape(padded, 0, rows * parts.stride, columns * parts.stride, length)
    start, end, axes = (graph.constant(value, "int64") for value in ([0, 0], parts.grid, [1, 2]))
    return graph("Slice", beyond, start, end, axes)


def _unit(graph: _Graph, values: str, axis: int) -> str:
    """Vectors along `axis` brought to unit length; zero stays zero."""
    wide = graph.cast(values, "float64")
    total = graph.total(graph("Mul", wide, wide), axis)
    some = graph("Greater", total, graph.constant(0.0, "float64"))
    norm = graph("Where", some, graph("Sqrt", total), graph.constant(1.0, "float64"))
    return graph.cast(graph("Div", wide, norm), "float32")


def _type(onnx: Any, dtype: str) -> int:
    return int(onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
