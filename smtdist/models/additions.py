"""Models that data can be added to and withdrawn from: how files of each kind are read and written, and their samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from smtdist.data.source import Source
from smtdist.errors import ConfigurationError, ModelError
from smtdist.models.given import named_kind
from smtdist.models.kinds import kind_at


class Kind(NamedTuple):
    """What `update` and `merge` need of a kind of model.

    load, save : of a file.
    opened : the samples that files and a dataset name, as a model takes them, without damaged ones on
        request; ConfigurationError for names that have no meaning for the kind.
    taken : a context that yields the samples of Python, without damaged ones on request.
    of_rows : whether samples are rows of a table, which may be sequences in time.
    """

    load: Callable[[Path], Any]
    save: Callable[..., int]
    opened: Callable[[Any, list[str], str | None, bool], Source]
    taken: Callable[[Any, Any, bool], AbstractContextManager[Source]]
    of_rows: bool = False

    def in_sequences(self, model: Any, source: Source, lengths: tuple[int, ...]) -> Source:
        """Return rows of a table as sequences of given lengths; ConfigurationError for samples that are no rows in time."""
        if not self.of_rows:
            raise ConfigurationError(
                "--lengths is for models of rows in time (points fit --context time); leave it out."
            )
        found: Source = model.in_sequences(source, lengths)
        return found


def kind_of(path: Path) -> Kind:
    """Return what a file is read by; files that are no models are left to whoever reads them."""
    return _KINDS.get(kind_at(path), _images)()


def kind_of_model(model: Any) -> Kind:
    """Return what a model in memory is added to by; ModelError for one of a kind that nothing is added to."""
    if not hasattr(model, "facts"):
        raise ModelError(
            f"Nothing can be added to {type(model).__name__} or withdrawn from it; fit it again on all data."
        )
    return _KINDS.get(named_kind(model) or "", _images)()


def _images() -> Kind:
    from smtdist.data import opening
    from smtdist.data.array import as_source
    from smtdist.models.loading import load_transforms, save

    def opened(model: Any, data: list[str], dataset: str | None, skip: bool) -> Source:
        if dataset is None:
            raise ConfigurationError(
                f"{data[0]} needs the name of its images, a dataset or a group; give it with --dataset."
            )
        return opening.open_source(data, dataset, model.scaling, fitted=True, skip_damaged=skip)

    @contextmanager
    def taken(model: Any, X: Any, skip: bool) -> Iterator[Source]:
        in_file = isinstance(X, tuple) and len(X) == 2
        yield opened(model, X[0], X[1], skip) if in_file else as_source(X, model.scaling, fitted=True)

    return Kind(load_transforms, save, opened, taken)


def _points() -> Kind:
    from smtdist.data.table import as_table
    from smtdist.models.points import sites as point_sites
    from smtdist.models.points.files import load_points, save_points

    def opened(model: Any, data: list[str], dataset: str | None, skip: bool) -> Source:
        return (
            point_sites.table_of(data, dataset) if model.kind is None else model.kind.opened(data, dataset)
        )

    @contextmanager
    def taken(model: Any, X: Any, skip: bool) -> Iterator[Source]:
        yield X if isinstance(X, Source) else as_table(X)

    return Kind(load_points, save_points, opened, taken, of_rows=True)


def _video() -> Kind:
    from smtdist.data.video import clips_of, open_clips
    from smtdist.models.functional import video as video_model
    from smtdist.models.functional.files import load_video, save_video

    def opened(model: Any, data: list[str], dataset: str | None, skip: bool) -> Source:
        names = None if dataset is None else [dataset]
        return video_model.sequences_of(
            tuple(clip for one in data for clip in open_clips(one, names)), model.settings
        )

    @contextmanager
    def taken(model: Any, X: Any, skip: bool) -> Iterator[Source]:
        with clips_of(X) as clips:
            yield video_model.sequences_of(clips, model.settings)

    return Kind(load_video, save_video, opened, taken)


def _words() -> Kind:
    from smtdist.data.text import TextSource, text_of
    from smtdist.models.words import files as word_files

    def opened(model: Any, data: list[str], dataset: str | None, skip: bool) -> Source:
        if dataset is not None:
            raise ConfigurationError(f"{data[0]} is text, which has no datasets; leave out --dataset.")
        return TextSource.open(data)

    return Kind(word_files.load_words, word_files.save_words, opened, lambda model, X, skip: text_of(X))


_KINDS: Final[dict[str, Callable[[], Kind]]] = {"points": _points, "video": _video, "words": _words}
