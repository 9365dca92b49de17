"""Parquet files with a column of encoded images, as Hugging Face writes data sets; needs the extra `parquet`."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from smtdist.data.importers.items import (
    BATCH_BYTES,
    BATCH_ITEMS,
    MOST_IMAGE_BYTES,
    Batch,
    Labels,
    Listing,
    file_keys,
    too_long,
)
from smtdist.errors import ConfigurationError, DataError, option

LABEL_COLUMNS: Final = ("label", "labels", "fine_label", "cls", "class", "y")
MOST_CLASSES: Final = 2**16
_BUFFER: Final = 2**20


class ParquetListing(Listing):
    """Files one after the other; a batch of rows is in memory at a time.

    The column of images holds bytes, or a struct with a field `bytes`; it is found by its type where it is
    not named.
    """

    kind = "parquet"
    encoded = True

    def __init__(
        self, paths: list[Path], image_column: str | None, label_column: str | None, labels: bool = True
    ) -> None:
        """Look at schemas; raise DataError where columns are missing or differ."""
        try:
            self._parquet = importlib.import_module("pyarrow.parquet")
        except ImportError:
            raise ConfigurationError("Parquet needs pyarrow; install smtdist[parquet].") from None
        self.paths = paths
        self.n_items = 0
        self._named = False
        wanted: tuple[str, str | None] | None = None
        for path in paths:
            with self._opened(path) as file:
                schema = file.schema_arrow
                image = image_column or _image_column(schema, path)
                usual = next((name for name in LABEL_COLUMNS if name in schema.names), None)
                label = (label_column or usual) if labels else None
                for name in (image, label):
                    if name is not None and name not in schema.names:
                        raise DataError(
                            f"{path} has no column {name}; use one of {', '.join(schema.names[:8])}."
                        )
                _require_types(schema, image, label, path)
                if wanted not in (None, (image, label)):
                    raise DataError(f"{path} has other columns than {paths[0]}; import them one by one.")
                wanted = image, label
                self.n_items += file.metadata.num_rows
                for name in schema.names:
                    if name not in (image, label) and (labels or name not in LABEL_COLUMNS):
                        self.left_out.add(f"{path}: the column {name}")
                self._add_classes(file, path, label)
        if not self.n_items or wanted is None:
            raise DataError(f"{paths[0]} holds no row; name a file that does.")
        self.image, self.label = wanted
        self.labelled = self.label is not None

    def _add_classes(self, file: Any, path: Path, label: str | None) -> None:
        """Take in the names of the classes of one more file: those it lists, or its labels, where these are names."""
        schema = file.schema_arrow
        listed = _class_names(schema, label)
        named = label is not None and _holds_names(schema.field(label).type)
        if path != self.paths[0] and (
            named != self._named or (self.classes and listed not in (None, self.classes) and not named)
        ):
            raise DataError(
                f"{path} names its classes in another way than {self.paths[0]}; import them one by one."
            )
        self._named = named
        if not named:
            self.classes = self.classes or listed
            return
        every = set(self.classes or ())
        try:
            for part in file.iter_batches(columns=[label], use_threads=False):
                every.update(part.column(0).unique().drop_null().to_pylist())
        except (OSError, ValueError, NotImplementedError) as error:
            raise DataError(_broken(path, error)) from error
        if len(every) > MOST_CLASSES:
            raise DataError(
                f"{path}: the column {label} has more than {MOST_CLASSES:,} names, too many for classes; name another with "
                f"{option('label_column')}, or pass {option('labels_from', 'none')}."
            )
        self.classes = sorted(every)

    def key(self) -> list[str]:
        """Return the files and the columns."""
        return [*file_keys(self.paths), self.image, str(self.label)]

    def batches(self, first: int, items: int = BATCH_ITEMS, nbytes: int = BATCH_BYTES) -> Iterator[Batch]:
        """Yield rows; groups of rows before `first` are not read."""
        for path in self.paths:
            with self._opened(path) as file:
                rows = file.metadata.num_rows
                if first >= rows:
                    first -= rows
                    continue
                yield from self._rows(file, path, first, items, nbytes)
                first = 0

    def encoded_bytes(self) -> int:
        """Return the bytes that the files state for the column of images, in which images that repeat may count once."""
        nbytes = 0
        for path in self.paths:
            with self._opened(path) as file:
                groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
                columns = [group.column(number) for group in groups for number in range(group.num_columns)]
                nbytes += sum(
                    one.total_uncompressed_size
                    for one in columns
                    if one.path_in_schema in (self.image, f"{self.image}.bytes")
                )
        return nbytes

    def _rows(self, file: Any, path: Path, first: int, items: int, nbytes: int) -> Iterator[Batch]:
        columns = [self.image] if self.label is None else [self.image, self.label]
        start = 0
        for number in range(file.metadata.num_row_groups):
            group = file.metadata.row_group(number)
            if start + group.num_rows <= first:
                start += group.num_rows
                continue
            mean = max(1, group.total_byte_size // max(1, group.num_rows))
            size = max(1, min(items, nbytes // mean))
            try:
                for part in file.iter_batches(
                    size, row_groups=[number], columns=columns, use_threads=False
                ):
                    drop = min(max(0, first - start), part.num_rows)
                    if drop < part.num_rows:
                        yield self._batch(part.slice(drop), path, start + drop)
                    start += part.num_rows
            except (OSError, ValueError, NotImplementedError) as error:
                raise DataError(_broken(path, error)) from error

    def _batch(self, part: Any, path: Path, start: int) -> Batch:
        column = part.column(self.image)
        if hasattr(column, "field"):
            column = column.field("bytes")
        data = [image or b"" for image in column.to_pylist()]  # a missing one is no image
        for index, image in enumerate(data):
            if len(image) > MOST_IMAGE_BYTES:
                raise DataError(too_long(f"{path}, row {start + index}", len(image)))
        names = [f"{path}, row {start + index}" for index in range(len(data))]
        return Batch(str(path), start, data, self._labels(part, path, start), names)

    def _labels(self, part: Any, path: Path, start: int) -> Labels | None:
        if self.label is None:
            return None
        column = part.column(self.label)
        if column.null_count:
            missing = column.is_null().to_pylist().index(True)
            raise DataError(
                f"{path}, row {start + missing} has no label in column {self.label}; leave it out, or pass "
                f"{option('labels_from', 'none')}."
            )
        if self._named:
            names = np.array(self.classes, object)
            return np.searchsorted(names, np.array(column.to_pylist(), object)).astype(np.int64)
        values = column.to_numpy(zero_copy_only=False)
        if values.dtype.kind == "u" and values.max() >= 2**63:
            raise DataError(
                f"{path} holds the label {values.max()}, which does not fit in int64; renumber."
            )
        return values.astype(np.int64)  # type: ignore[no-any-return]

    def _opened(self, path: Path) -> Any:
        try:
            return self._parquet.ParquetFile(path, buffer_size=_BUFFER, pre_buffer=False)
        except FileNotFoundError:
            raise DataError(f"There is no file {path}; check the name.") from None
        except (OSError, ValueError, NotImplementedError) as error:
            raise DataError(_broken(path, error)) from error


def _broken(path: Path, error: BaseException) -> str:
    reason = " ".join(str(error).split())[:160].rstrip(".")
    return f"{path} cannot be read as Parquet ({reason}); copy or download it again."


def _holds_bytes(kind: Any) -> bool:
    types = importlib.import_module("pyarrow.types")
    if types.is_struct(kind):
        place = kind.get_field_index("bytes")
        return place >= 0 and _holds_bytes(kind.field(place).type)
    return bool(types.is_binary(kind) or types.is_large_binary(kind))


def _holds_names(kind: Any) -> bool:
    types = importlib.import_module("pyarrow.types")
    if types.is_dictionary(kind):
        return _holds_names(kind.value_type)
    return str(kind) in ("string", "large_string", "string_view")


def _image_column(schema: Any, path: Path) -> str:
    found = [field.name for field in schema if _holds_bytes(field.type)]
    if len(found) != 1:
        what = "no column of image bytes" if not found else f"the columns of bytes {', '.join(found)}"
        raise DataError(
            f"{path} has {what} among {', '.join(schema.names[:8])}; name one with {option('image_column')}."
        )
    return str(found[0])


def _require_types(schema: Any, image: str, label: str | None, path: Path) -> None:
    types = importlib.import_module("pyarrow.types")
    if not _holds_bytes(schema.field(image).type):
        raise DataError(
            f"{path}: the column {image} is {schema.field(image).type}, but images are bytes; name another with "
            f"{option('image_column')}."
        )
    if label is None:
        return
    kind = schema.field(label).type
    number = kind.value_type if types.is_dictionary(kind) else kind
    if not (types.is_integer(number) or types.is_boolean(number) or _holds_names(number)):
        raise DataError(
            f"{path}: the column {label} is {kind}, but labels are whole numbers or names; give another {option('label_column')}."
        )


def _class_names(schema: Any, label: str | None) -> list[str] | None:
    """Return the names that Hugging Face keeps beside the schema."""
    try:
        features = json.loads(schema.metadata[b"huggingface"])["info"]["features"]
        names = features[label]["names"]
    except (TypeError, KeyError, ValueError):
        return None
    return [str(name) for name in names] if isinstance(names, list) else None
