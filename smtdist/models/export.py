"""A fitted model for other tools: an encoder as an ONNX graph, from raw images to representations; words as word2vec's text.

Why an exported encoder gives the codes of `smtdist transform` exactly, on any runtime that keeps IEEE
arithmetic:

- Pixels are whole numbers up to 2^16 and their box sums stay far below 2^52, so that float64 sums are exact in any
  order and the floor of a quotient is that of integers: means, and pixels minus means, are exact.
- Σ m² is at most p 2^32 and W m at most 2^53 (`integer_whitening`): exact in any order as well.
- Σ y² is *not*: y reaches 2^53 and its square 2^106, so every addition rounds, another order gives another norm in
  its last bits, and where s y / ‖y‖ lies at a half, another grid value and perhaps another code. A
  library's sum may therefore not be used: the squares are added one by one in pixel order, as the kernels
  do, each product and each sum rounded on its own. Root and quotient are correctly rounded by IEEE.
- Cosines are whole numbers whose partial sums stay within 2^24: float32 products are exact in any order, but not
  with TF32 or bfloat16 inputs.
- Everything after the codes is floating point and agrees to rounding.

Where each image is whitened by its own Σ, that is exact, too, but its inverse root is only as good as float64 products in an
order of the runtime's own. A number of the root may then be rounded to the next one of 2^28, and a patch in many thousands has
another grid value, and perhaps another code.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smtdist.data.writing import whole_file
from smtdist.errors import ConfigurationError, ModelError, command, equals
from smtdist.kernels import codes as code_kernels
from smtdist.kernels import patches, representation
from smtdist.kernels import pixels as pixel_values
from smtdist.kernels import whitening as whitening_kernels
from smtdist.kernels.generic.codes import square_norms
from smtdist.kernels.patches import Average
from smtdist.kernels.representation import cells
from smtdist.kernels.types import Encoder, Geometry
from smtdist.models import loading, readout, store
from smtdist.models.jobs import require_verb
from smtdist.models.kinds import KINDS
from smtdist.models.words.model import write_word2vec

FLOATS = ("float16", "float32", "float64")
BEST: Final = "activate_best"


class Exported(NamedTuple):
    """What was written: bytes of the file, and the shape of an image's (or a word's) representation."""

    bytes: int
    feature_shape: tuple[int, ...]


FORMATS: Final = {".onnx": "onnx", ".txt": "word2vec"}


def export(
    model: Any,
    path: str | os.PathLike[str],
    format: str | None = None,
    *,
    features: str | None = None,
    pool: int | None = None,
    n_components: int | None = None,
    drop_components: int | None = None,
    overwrite: bool = False,
) -> Exported:
    """Write a fitted transform of images for ONNX Runtime, or vectors of words as word2vec's text, which gensim reads.

    Parameters
    ----------
    model : an estimator, a model, or a model's file.
    format : "onnx" or "word2vec". None: by the end of the name, .onnx or .txt.
    features, pool, n_components, drop_components : as in `SMT.transform`; for onnx.

    Raises
    ------
    ConfigurationError
        If the format cannot hold the model.
    OutputExistsError
        If the file exists.
    """
    asked = readout.ReadoutSettings(
        features=features, pool=pool, n_components=n_components, drop_components=drop_components
    )
    target = Path(path)
    chosen = format or FORMATS.get(target.suffix.lower())
    if chosen not in FORMATS.values():
        raise ConfigurationError(
            f"{chosen or target.name} is not a format; choose {', '.join(FORMATS.values())}, or a name that ends in "
            f"{', '.join(FORMATS)}."
        )
    from_file = isinstance(model, str | os.PathLike)
    if from_file and (kind := store.kind_at(model)) in KINDS and KINDS[kind].home:
        require_verb(kind, "export")
    if not from_file:
        fitted = store.model_of(model)
    elif chosen == "onnx" and kind != "words":
        fitted = loading.load_transform(model, statistics=False)
    else:
        fitted = store.load(model)
    if chosen == "word2vec":
        if not hasattr(fitted, "vectors"):
            raise ConfigurationError(
                f"word2vec's text holds words; give a model of {command('fit', 'model', 'words')}, or choose onnx."
            )
        if asked != readout.ReadoutSettings():
            raise ConfigurationError(
                f"{', '.join(asked.declared())} are for onnx; word2vec's text holds all components."
            )
        return Exported(write_word2vec(fitted, target, overwrite=overwrite), fitted.vectors().shape[1:])
    if getattr(fitted, "code_places", None) is None:
        raise ConfigurationError(
            "onnx takes models of images with the codes gq and vq alone, and word2vec models of words; let smtdist transform "
            "write representations, or read the arrays of the file with xarray."
        )
    seen = readout.with_readout(fitted, features, pool, n_components=n_components, drop=drop_components)
    content = as_graph(seen).SerializeToString()
    with whole_file(target, overwrite) as temporary, open(temporary, "wb") as file:
        file.write(content)
    return Exported(len(content), seen.representation_shape())


@dataclass(frozen=True)
class Tables:
    """Arrays of an encoder; R x C positions of an image are coded, a patch has T x T pixels, p numbers.

    seen : the model, and what is read out of its codes. average : how the mean of a patch is made; None: `offset`.
    """

    seen: readout.ModelReadout
    encoder: Encoder
    average: Average | None
    positions: tuple[int, int]  # R, C
    rows_at: NDArray[np.int64]  # (R T,): image rows of the pixels of a patch, position by position
    columns_at: NDArray[np.int64]  # (C T,)
    rows_near: NDArray[np.float64]  # (R T, H) zeros and ones: rows that a contextual mean sums over
    columns_near: NDArray[np.float64]  # (C T, W)
    counted: NDArray[np.float64]  # (1, R, 1, C, 1, 1): numbers that the mean is over
    offset: NDArray[np.float64]  # (1, 1, T, 1, T, channels): the global mean
    norms: NDArray[np.int32]  # (K,): Σ a²
    components_t: NDArray[np.float32]  # (K, L)
    cells: (
        NDArray[np.float32] | None
    )  # (cells, R C) zeros and ones: where codes are counted; None: they are not

    whitener: ClassVar[Any] = property(attrgetter("encoder.whitener"))
    """How patches are made."""
    geometry: ClassVar[Any] = property(attrgetter("encoder.whitener.geometry"))
    """Of images and patches, after grey."""

    @property
    def images(self) -> tuple[int, int, int]:
        """Rows, columns and channels of an input image."""
        rows, columns, channels, _ = self.geometry
        return rows, columns, 3 if self.whitener.grey else channels

    @property
    def averaged_axes(self) -> tuple[int, ...]:
        """Axes of patches (B, R, T, C, T, channels) that the mean is over."""
        if self.average is None:
            return ()
        return (*((2, 4) if self.average.pixels else ()), *((5,) if self.average.channels else ()))

    @property
    def image_bytes(self) -> int:
        """Memory one image of a batch takes, at most about: patches in float64, products with all atoms, embeddings."""
        coded, every = self.positions[0] * self.positions[1], self.geometry.positions
        atoms, length = (int(size) for size in self.components_t.shape)
        roots = 0 if self.whitener.own_ridge is None else 64 * self.geometry.pixels**2
        patches = coded * (24 * self.geometry.pixels + 9 * atoms + 20 * length)
        return int(patches + 8 * every * length + roots)


def tables(exported: readout.ImageTransform) -> Tables:
    """Return what the encoder of a fitted model is made of, with what is read out of its codes.

    Raises ModelError where the model has no embedding, or fewer components than asked for; ConfigurationError for
    mirror images, which a caller can make.
    """
    seen = exported.read_out()
    model: Any = seen.model
    how = seen.readout
    if how.mirrored:
        raise ConfigurationError(
            "An exported encoder has no features of mirror images; give it the mirrored images too."
        )
    encoder = model.encoder
    whitener = encoder.whitener
    geometry, size = whitener.geometry, whitener.geometry.patch
    rows, columns = (
        np.arange(0, length, whitener.sampling.stride) for length in (geometry.rows, geometry.columns)
    )
    components = model.components(how.n_components, how.drop)
    code_kernels.check_atoms(geometry.pixels, encoder.atoms)
    if whitener.whiten is None:
        raise ModelError(
            "The model has no whitening matrix, so there is no encoder to export; fit it first."
        )
    if whitener.own_ridge is not None and whitener.sampling.stride > 1:
        raise ConfigurationError(
            f"An exported encoder makes the patches on the stride alone, and the Σ of an image is of all; fit with "
            f"{equals('whitening_covariance', 'data')} or {equals('patch_stride', 1)} to export."
        )
    reach = geometry.reach(whitener.mean_context)
    rows_near, near_rows = _near(rows, geometry.rows, size, reach)
    columns_near, near_columns = _near(columns, geometry.columns, size, reach)
    offset = np.zeros(geometry.pixels) if whitener.global_mean is None else whitener.global_mean
    average = patches.AVERAGES[whitener.mean]
    counted = np.ones((len(rows), len(columns)))
    if average is not None:
        counted *= near_rows[:, None] * near_columns if average.near else 1
        counted *= (size * size if average.pixels else 1) * (geometry.channels if average.channels else 1)
    return Tables(
        seen,
        encoder,
        average,
        positions=(len(rows), len(columns)),
        rows_at=_starts(rows, size),
        columns_at=_starts(columns, size),
        rows_near=rows_near,
        columns_near=columns_near,
        counted=counted.reshape(1, len(rows), 1, len(columns), 1, 1),
        offset=np.asarray(offset, np.float64).reshape(1, 1, size, 1, size, geometry.channels),
        norms=square_norms(encoder.atoms).astype(np.int32),
        components_t=components,
        cells=None if how.features == "embedding" else _cells(rows, columns, geometry, how.code_grid),
    )


def _cells(
    rows: NDArray[np.int64], columns: NDArray[np.int64], geometry: Geometry, grid: int
) -> NDArray[np.float32]:
    """Which coded positions are in each cell of a grid over all positions."""
    own = cells(geometry.rows, geometry.columns, grid)[np.ix_(rows, columns)].ravel()
    return np.asarray(own == np.arange(grid * grid)[:, None], np.float32)


def package(name: str) -> Any:
    """Return an optional package; ConfigurationError where it is not installed."""
    try:
        return import_module(name)
    except ImportError as error:
        raise ConfigurationError(
            f'The package {name} is not installed; install it with "pip install smtdist[{name}]".'
        ) from error


def facts(exported: readout.ImageTransform) -> dict[str, Any]:
    """Return what an exported file says about itself, as plain JSON types.

    `dropped` leading components are not in the file, so that there are none left to drop.
    """
    seen = exported.read_out()
    model: Any = seen.model
    drop = seen.readout.drop
    return {
        "configuration": model.settings.to_json(),
        "fingerprint": str(model.provenance.get("fingerprint", "")),
        "drop": 0,
        "dropped": model.settings.drop_components if drop is None else drop,
    }


def _input_dtype(model: Any) -> str:
    """The pixel type the model was fitted on; float32 where it does not say."""
    if not model.scale.is_float:
        return "uint8"
    source = model.provenance.get("source", {})
    return source["dtype"] if source.get("dtype") in FLOATS else "float32"


def _starts(positions: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    return (positions[:, None] + np.arange(size)).reshape(-1)


def _near(
    positions: NDArray[np.int64], length: int, size: int, reach: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Which pixels, along one side, the mean of the patches within `reach` sums over, and how many patches those are.

    `positions` are the coded ones of `length`; a mean is over all within reach, coded or not.

    >>> pixels, patches = _near(np.array([0, 2]), 3, 2, 1)
    >>> pixels.astype(int).tolist(), patches.tolist()
    ([[1, 1, 0, 0], [0, 1, 1, 0], [0, 1, 1, 0], [0, 0, 1, 1]], [2.0, 2.0])
    """
    every = np.arange(length)
    close = abs(positions[:, None] - every) <= reach
    pixels = np.zeros((len(positions), size, length + size - 1))
    for pixel in range(size):
        pixels[:, pixel, pixel : pixel + length] = close
    return pixels.reshape(len(positions) * size, -1), close.sum(axis=1).astype(np.float64)


OPSET: Final = 18
IR_VERSION: Final = 8
LARGEST: Final = 2**31 - 2**20
"""Protocol buffers end at 2 GiB."""


def as_graph(model: readout.ImageTransform) -> Any:
    """Return the encoder as an `onnx.ModelProto` (opset 18), checked.

    Input `images` (batch, height, width, channels), of the pixel type that the model was fitted on, and of the size
    that it codes (encoded images are decoded, resized and cropped before). Output `representation` (batch,
    features): pooled row, pooled column, component, and then square roots of counts of codes where the model is one
    with such a `Readout`. The codes are exact (see the
    top of this module) on a runtime that multiplies float32 as such: turn TF32 off on a GPU.
    Floats outside the pixel range are not refused.

    Memory: about `image_bytes` of the metadata for every image of a batch; choose the batch accordingly.
    Raises ConfigurationError without the package onnx, ModelError for a model beyond ONNX's 2 GiB.
    """
    onnx = package("onnx")
    parts = tables(model)
    arrays = (*vars(parts).values(), parts.whitener.whiten, parts.encoder.atoms)
    held = sum(value.nbytes for value in arrays if isinstance(value, np.ndarray))
    if held > LARGEST:
        raise ModelError(
            f"The encoder holds {held:,} bytes, and an ONNX file at most 2 GiB; export fewer components."
        )
    graph = _Graph(onnx)
    dots, flat = _coded(graph, parts, _patches(graph, parts))
    read = _nearest if parts.encoder.form == "labels" else _above
    found = read(graph, parts, dots, flat)
    rows_of_features = graph("Concat", *found, axis=1) if len(found) > 1 else found[0]
    shape, dtype = parts.seen.representation_shape(), _type(onnx, parts.seen.dtype)
    graph.name("Cast", "representation", rows_of_features, to=dtype)
    pixels = _type(onnx, _input_dtype(parts.seen.model))
    image = onnx.helper.make_tensor_value_info("images", pixels, ["batch", *parts.images])
    result = onnx.helper.make_tensor_value_info("representation", dtype, ["batch", math.prod(shape)])
    about = "Sparse manifold transform: images to pooled representations"
    built = onnx.helper.make_model(
        onnx.helper.make_graph(graph.nodes, "smtdist", [image], [result], graph.constants, about),
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="smtdist",
    )
    more = {"image_bytes": parts.image_bytes, "feature_shape": list(shape)}
    told = {name: str(value) for name, value in {**facts(model), **more}.items()}
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
    (rows, columns), (_, _, channels, size) = parts.positions, parts.geometry
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
    return graph.reshape(centred, parts.geometry.pixels, -1)


def _pixel_grid(graph: _Graph, parts: Tables) -> str:
    """Raw pixels to whole numbers in float64, (B, H, W, C)."""
    value, scale, grey = graph.cast("images", "float64"), parts.whitener.scale, parts.whitener.grey
    if scale.is_float:
        value = graph("Sub", value, graph.constant(scale.black, "float64"))
        value = graph("Mul", value, graph.constant(65536.0, "float64"))
        value = graph("Div", value, graph.constant(scale.white - scale.black, "float64"))
        value = graph("Round", value)
    elif not grey:
        value = graph("Mul", value, graph.constant(256.0, "float64"))
    if grey:
        value = graph(
            "MatMul", value, graph.constant([[weight] for weight in pixel_values.LUMINANCE], "float64")
        )
        if scale.is_float:
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
    whitener, pixels = parts.whitener, parts.geometry.pixels
    floor = whitening_kernels.contrast_floor(whitener.min_contrast, pixels, whitener.scale)
    contrast = graph.total(graph("Mul", centred, centred), 0)
    if whitener.own_ridge is None:
        white = graph("MatMul", graph.constant(whitener.whiten, "float64"), centred)
    else:
        white = _whitened_each(graph, parts, centred, whitener.own_ridge)
    squares = _square_sum(graph, white, pixels)
    faint = graph("Less", contrast, graph.constant(floor, "float64"))
    none = graph("Equal", squares, graph.constant(0.0, "float64"))
    constant = graph("Or", faint, none)
    # a quotient by infinity is the zero that a constant patch gets
    norm = graph("Where", constant, graph.constant(np.inf, "float64"), graph("Sqrt", squares))
    scale = float(whitening_kernels.grid_scale(pixels))
    unit = graph("Mul", graph("Div", white, norm), graph.constant(scale, "float64"))
    grid = graph("Transpose", graph.cast(graph("Round", unit), "float32"), perm=[1, 0])
    dots = graph.name("MatMul", "dots", grid, graph.constant(parts.encoder.atoms.T, "float32"))
    return dots, graph("Transpose", constant, perm=[1, 0])


def _whitened_each(graph: _Graph, parts: Tables, centred: str, ridge: float) -> str:
    """Patches whitened by the Σ of their image, float64 (p, N): the steps of `image_whitenings` and `inverse_root`, (B, p, p).

    All images take as many rounds as the least singular value that whole numbers up to 2^16 can have.
    """
    pixels, count = parts.geometry.pixels, parts.geometry.positions

    def number(value: Any) -> str:
        return graph.constant(value, "float64")

    own = graph("Transpose", graph.reshape(centred, pixels, -1, count), perm=[1, 0, 2])
    moment = graph("MatMul", own, graph("Transpose", own, perm=[0, 2, 1]))
    covariance = graph("Add", graph("Div", moment, number(count)), number(ridge * np.eye(pixels)))
    trace = graph.total(graph("Mul", moment, number(np.eye(pixels))), 1, 2)
    scale = graph("Add", graph("Div", trace, number(count)), number(pixels * ridge))
    y, z = graph("Div", covariance, scale), number(np.eye(pixels)[None])
    low, least = (
        graph("Sqrt", graph("Div", number(ridge), scale)),
        math.sqrt(ridge / (pixels * (2.0**32 + ridge))),
    )
    last = False
    while not last:
        last = least > whitening_kernels.NEARLY_ONE
        around = graph("Add", graph("Add", number(1), low), graph("Mul", low, low))
        mu = graph("Sqrt", graph("Div", number(3), around))
        once, cube = (
            graph("Mul", number(1.5), mu),
            graph("Mul", number(0.5), graph("Mul", mu, graph("Mul", mu, mu))),
        )
        step = graph(
            "Sub", graph("Mul", once, number(np.eye(pixels))), graph("Mul", cube, graph("MatMul", z, y))
        )
        y, z = graph("MatMul", y, step), graph("MatMul", step, z)
        third = graph("Mul", cube, graph("Mul", low, graph("Mul", low, low)))
        low = graph("Sub", graph("Mul", once, low), third)
        factor = math.sqrt(3 / (1 + least + least * least))
        least *= 1.5 * factor - 0.5 * factor**3 * least * least
    root = graph("Div", graph("Add", z, graph("Transpose", z, perm=[0, 2, 1])), graph("Sqrt", scale))
    # the power of two that brings the largest number to `whitening_bits`: as many steps as powers that it reaches
    powers = 2.0 ** np.arange(-128, 128)
    largest = graph("ReduceMax", graph("Abs", root), graph.constant([1, 2], "int64"), keepdims=1)
    reached = graph.cast(graph("GreaterOrEqual", largest, number(powers[None, None])), "int64")
    steps = graph("Sub", graph.total(reached, 2), graph.constant(1, "int64"))
    bits = whitening_kernels.whitening_bits(pixels)
    whiten = graph(
        "Round", graph("Mul", root, graph("Gather", number(2.0 ** (bits - 1) / powers), steps, axis=0))
    )
    return graph.reshape(graph("Transpose", graph("MatMul", whiten, own), perm=[1, 0, 2]), pixels, -1)


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
    if parts.encoder.euclidean:
        scores = graph("Mul", graph.cast(dots, "int32"), graph.constant(2, "int32"))
        scores = graph("Sub", scores, graph.constant(parts.norms, "int32"))
    labels = graph.name("ArgMax", "labels", scores, axis=1, keepdims=0)
    kept = graph.name("Not", "kept", flat)
    found, best_constant = [], parts.encoder.constant_patch == BEST
    if parts.seen.readout.features != "codes":
        embedded = graph("Gather", graph.constant(parts.components_t, "float32"), labels, axis=0)
        if not best_constant:
            embedded = graph("Where", kept, embedded, graph.constant(0.0, "float32"))
        found.append(_represented(graph, parts, embedded))
    if parts.cells is not None:
        numbers = graph.constant(np.arange(len(parts.norms)), "int64")
        active = graph("Equal", graph.reshape(labels, -1, 1), numbers)
        if not best_constant:
            active = graph("And", active, kept)
        found.append(_counted(graph, parts, graph.cast(active, "float32")))
    return found


def _above(graph: _Graph, parts: Tables, dots: str, flat: str) -> list[str]:
    """What is read out where all atoms are active whose cosine reaches the threshold."""
    reach = graph("GreaterOrEqual", dots, graph.constant(float(parts.encoder.cut), "float32"))
    active = graph("And", reach, graph("Not", flat))
    best_constant, best_zero = (
        one == BEST for one in (parts.encoder.constant_patch, parts.encoder.zero_code)
    )
    if best_constant or best_zero:
        numbers = graph.constant(np.arange(len(parts.norms)), "int64")
        best = graph("Equal", graph("ArgMax", dots, axis=1, keepdims=1), numbers)
        count = graph.total(graph.cast(active, "int32"), 1)
        lone = graph("Equal", count, graph.constant(0, "int32"))
        if not best_zero:
            lone = graph("And", lone, flat)
        elif not best_constant:
            lone = graph("And", lone, graph("Not", flat))
        active = graph("Or", active, graph("And", lone, best))
    codes = graph.name("Cast", "codes", active, to=_type(graph.onnx, "float32"))
    found = []
    if parts.seen.readout.features != "codes":
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
    size, step = parts.seen.pooling
    rows, columns = representation.pooled_shape(parts.geometry.rows, parts.geometry.columns, size, step)
    planes = graph("Transpose", _on_grid(graph, parts, _unit(graph, embedded, 1)), perm=[0, 3, 1, 2])
    pooled = graph("AveragePool", planes, kernel_shape=[size, size], strides=[step, step])
    return graph.reshape(
        _unit(graph, graph("Transpose", pooled, perm=[0, 2, 3, 1]), 3),
        0,
        rows * columns * parts.components_t.shape[1],
    )


def _on_grid(graph: _Graph, parts: Tables, embedded: str) -> str:
    """Embedded patches (N, L) at their positions, zeros between them: (B, rows, columns, L)."""
    (rows, columns), length, stride = (
        parts.positions,
        parts.components_t.shape[1],
        parts.whitener.sampling.stride,
    )
    gap, grid = stride - 1, (parts.geometry.rows, parts.geometry.columns)
    if gap == 0:
        return graph.reshape(embedded, -1, rows, columns, length)
    apart = graph.reshape(embedded, -1, rows, 1, columns, 1, length)
    padded = graph("Pad", apart, graph.constant([0] * 8 + [gap, 0, gap, 0], "int64"))
    beyond = graph.reshape(padded, 0, rows * stride, columns * stride, length)
    start, end, axes = (graph.constant(value, "int64") for value in ([0, 0], grid, [1, 2]))
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
