"""The sparse manifold transform of video: whitening, dictionary, codes, embedding, and ways back (SMT 2018)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from typing import Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from smtdist.data.fingerprint import array_hash
from smtdist.data.netcdf import Group
from smtdist.data.source import Source
from smtdist.data.video import Clip, PatchSequences, clips_of, open_clips
from smtdist.engine.manifest import Facts
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError, DataError, ModelError, option
from smtdist.kernels import convergence
from smtdist.kernels.products import Ordered
from smtdist.models import store, valued
from smtdist.models.functional.fit import SparseCoder, Whitening, fit_whitening, learn_dictionary
from smtdist.models.functional.inference import PENALTY, recover_codes, regularised_codes
from smtdist.models.functional.settings import FunctionalSettings
from smtdist.models.functional.sgd import fit_sgd, orthogonalised
from smtdist.models.jobs import Job, Request
from smtdist.models.provenance import Record
from smtdist.models.store import Array, alike
from smtdist.models.valued import ValuedTransform
from smtdist.solve.solution import Float64, Solution
from smtdist.statistics import values as value_sums
from smtdist.statistics.operators import Temporal
from smtdist.statistics.sites import Sequences
from smtdist.statistics.values import SecondOrder, ValueStatistics, ValueSums

SHARED: Final = ("patch", "length", "overlap", "places", "views", "whiten", "low_pass", "seed")
"""Settings that all layers of a stack share, by their names in files."""

_LAYER: Final = {
    "whitening": {
        "mean": Array(("pixel",), dtype="f8"),
        **alike(("whiten", "unwhiten", "covariance"), "pixel", "pixel_", dtype="f8"),
    },
    "dictionary": {"atoms": Array(("atom", "pixel"), dtype="f8"), "trace": Array(("round",), dtype="f8")},
}
# what a file of the first schema has in place of sums
_MEANS: Final = {
    "activity": Array(("atom",)),
    **alike(("second_moment", "context_scatter"), "atom", "atom_"),
}


@dataclass(frozen=True, eq=False)
class VideoModel(ValuedTransform):
    """A fitted transform of patches of video.

    coder : whitening, dictionary and codes. whitening, covariance : of the rows that its dictionary sees,
        raw patches or what the
    layer below embeds. trace : objective of each round of the dictionary. below : the layer that this one
        is stacked on.
    given : V, A D Dᵀ Aᵀ and the mean of a file that keeps these in place of sums. ending : how the mini-batches after
        the solve ended, if there were any.
    """

    settings: FunctionalSettings
    coder: SparseCoder
    whitening: Whitening
    covariance: Float64
    trace: tuple[float, ...]
    embedding: Solution | None = None
    statistics: ValueStatistics | None = None
    provenance: dict[str, Any] = field(default_factory=dict)
    below: VideoModel | None = None
    given: SecondOrder | None = None
    ending: convergence.Convergence | None = None

    free: ClassVar[tuple[str, ...]] = ("n_components", "second_moment")
    """Settings that no sum depends on: they may change after the fit."""
    holds: ClassVar[str] = "a dictionary"
    STORED_AS: ClassVar[str] = "video"

    components: ClassVar[Any] = property(attrgetter("solution.components"))
    """P, (L, K)."""
    eigenvalues: ClassVar[Any] = property(attrgetter("solution.eigenvalues"))
    """(L,), the diagonal of P A D Dᵀ Aᵀ Pᵀ."""

    @property
    def sums(self) -> ValueSums:
        """The statistic that sums the codes of sequences."""
        sites = Sequences(self.settings.patch_size**2, self.settings.overlap)
        return ValueSums(sites, self.coder, Temporal(self.settings.difference_order))

    @property
    def basis(self) -> str:
        """Hash of the layers' whitenings, dictionaries and embeddings, and of how sequences are taken."""
        asked = self.settings.to_dict()
        taken = {name: asked[name] for name in (*SHARED, "penalty", "order")}
        if not self.settings.overlap:  # as in older files
            del taken["overlap"]
        own = array_hash(self.whitening.mean, self.whitening.whiten, self.coder.dictionary)
        below = [] if self.below is None else [self.below.basis, array_hash(self.below.components)]
        return valued.hashed(taken, own, self.coder.gap, below, value_sums.GRID)

    def require_like(self, source: Source) -> None:
        """Refuse sequences that were taken in another way, and all where P was not solved from the sums."""
        self._require_solved()
        asked = self.settings.to_dict()
        taken = {name: asked[name] for name in SHARED}
        taken["whiten"] = "fourier" if self.settings.whiten == "fourier" else "none"
        taken["overlap"] = self.settings.difference_order * self.settings.overlap
        if not isinstance(source, PatchSequences) or any(
            getattr(source, name) != value for name, value in taken.items()
        ):
            raise DataError(
                f"{source.name} has no sequences such as the model takes; make them with sequences_of and its settings."
            )

    def require_addable(self, other: VideoModel, name: str) -> None:
        """Refuse models whose P was not solved from the sums; that codes are the same is asked of the sums themselves."""
        self._require_solved()

    def _require_solved(self) -> None:
        if self.settings.n_epochs:
            raise ModelError(
                "With sgd_rounds the embedding is learned by mini-batches after the solve, which sums alone cannot repeat: "
                "nothing can be added or withdrawn. Fit all clips again, or with sgd_rounds=0."
            )

    @property
    def layers(self) -> list[VideoModel]:
        """This layer and those below it, the lowest first."""
        return [*(self.below.layers if self.below else []), self]

    def sequences(self, clips: tuple[Clip, ...], *, raw: bool = False) -> PatchSequences:
        """Return patch sequences of clips in windows that follow one another; with `raw`, of unwhitened frames."""
        return sequences_of(clips, self.settings.replace(views=1, overlap=False), raw=raw)

    @cached_property
    def gain(self) -> float:
        """What makes up for the shrinkage of codes on average: the g of least ⟨‖x - g Φ α‖²⟩ over the rows of the fit.

        An active atom has φᵀ(x - Φ α) = λ (eq. 10), so that ⟨xᵀΦ α⟩ = ⟨‖Φ α‖²⟩ + λ ⟨Σ α⟩: the sums of the
        codes know it.
        """
        square = float(np.vdot(self.coder.dictionary @ self.means.moment, self.coder.dictionary))
        return 1.0 + self.settings.penalty * float(self.means.mean.sum()) / square if square > 0 else 1.0

    def codes(self, rows: NDArray[np.floating]) -> Float64:
        """Return α of raw patches (..., D), (..., K)."""
        flat = rows.reshape(-1, rows.shape[-1]).astype(np.float64)
        return self.coder(flat).reshape(*rows.shape[:-1], self.coder.size)

    def embed(self, rows: NDArray[np.floating]) -> Float64:
        """Return β = P α of raw patches (..., D), (..., L)."""
        result: Float64 = Ordered(self.components.T)(self.codes(rows))
        return result

    def decode(self, codes: Float64) -> Float64:
        """Return raw patches of codes (n, K): g Φ α, unwhitened, with g the `gain`."""
        rebuilt: Float64 = self.gain * (codes @ self.coder.dictionary.T)
        return rebuilt if self.coder.whitening is None else self.coder.whitening.back(rebuilt)

    def white(self, codes: Float64) -> Float64:
        """Return patches of codes (n, K) as the lowest dictionary sees them, before unwhitening."""
        rebuilt: Float64 = codes @ self.coder.dictionary.T
        if self.below is None:
            return rebuilt
        embedded = self.whitening.back(rebuilt)
        return self.below.white(recover_codes(self.below.components, embedded, PENALTY))

    def recover(self, embedded: Float64, penalty: float = PENALTY) -> Float64:
        """Return raw patches of embedded ones (n, L): Φ g(β) (SMT 2018, eq. 6) times `gain`, unwhitened."""
        return self.decode(recover_codes(self.components, embedded, penalty))

    def regularised(self, rows: NDArray[np.floating], strength: float) -> Float64:
        """Return codes of raw sequences (n, T, D) that the embedding keeps on a straight course (eq. 11), (n, T, K)."""
        white = self.coder.whitened(rows.astype(np.float64))
        return regularised_codes(
            self.coder.dictionary, self.components, white, self.settings.penalty, strength
        )

    def summary(self) -> dict[str, Any]:
        """Return what to say about it, as plain JSON."""
        return {
            "n_atoms": self.coder.size,
            "n_components": len(self.components),
            "n_positions": self.means.n_positions,
            "objective": float(self.eigenvalues.sum()),
            "dead_atoms": int((self.means.mean == 0).sum()),
            **self.ended(),
        }

    def ended(self) -> dict[str, Any]:
        """Return how the rounds of the dictionary ended, and as `mini_batches` those after the solve, as plain JSON."""
        learned = convergence.facts_of(convergence.of_rounds(self.trace))
        return {**learned, "mini_batches": convergence.facts_of(self.ending)}

    def advice(self) -> tuple[str, str]:
        """Return what to do where rounds of the dictionary, and mini-batches, had not converged; empty where they had."""
        ended = self.ended()
        return convergence.advice(ended), convergence.advice(ended["mini_batches"], "n_epochs")

    def stored(self) -> Iterator[tuple[str, Group]]:
        """Yield what its file holds: a group for each layer, `/layer_1` the lowest, whose settings are JSON.

        In it `whitening`, `dictionary` (atoms, unit rows in whitened space), `embedding` (components, the rows of P),
        `statistics` (the sums of codes, of a aᵀ and of A D Dᵀ Aᵀ) and `audit`.
        """
        attributes = {
            "kind": self.STORED_AS,
            **store.version(self.STORED_AS),
            "title": "Sparse manifold transform of video",
            "layers": len(self.layers),
        }
        yield "", Group(attributes=attributes)
        for at, layer in enumerate(self.layers, 1):
            yield from ((f"layer_{at}{name}", group) for name, group in layer._stored_alone())

    def _stored_alone(self) -> Iterator[tuple[str, Group]]:
        about = {
            "configuration": self.settings.to_json(),
            "provenance": json.dumps(store.without_audit(self.provenance)),
            **convergence.written(self.ending),
        }
        yield "", Group(attributes=about)
        values: dict[str, Any] = {**vars(self.whitening), "covariance": self.covariance}
        values |= {"atoms": self.coder.dictionary.T, "trace": self.trace}
        yield from ((f"/{name}", store.packed(arrays, values)) for name, arrays in _LAYER.items())
        if self.statistics is None and (means := self.given) is not None:
            matrices = {"second_moment": means.moment, "context_scatter": means.scatter}
            numbers = {"n_positions": means.n_positions}
            yield "/means", store.packed(_MEANS, {"activity": means.mean, **matrices}, numbers)
        groups = store.solved_groups(self, self.solution, valued.statistics_group)
        yield from ((f"/{name}", group) for name, group in groups)

    @classmethod
    def restored(cls, file: Any, statistics: bool) -> Self:
        """Read what `stored` yielded, also in an earlier version."""
        model: Self | None = None
        for layer in range(1, store.number(file, "layers") + 1):
            model = cls._restored_alone(file[f"layer_{layer}"], model)
        if model is None:
            raise ValueError("it has no layer")
        return model

    @classmethod
    def _restored_alone(cls, file: Any, below: Self | None) -> Self:
        settings = FunctionalSettings.from_json(str(file.attrs["configuration"]))
        pixels = settings.patch_size**2 if below is None else len(below.components)
        sizes = {"pixel": pixels, "atom": settings.n_atoms, "component": settings.n_components}
        sizes["round"] = settings.max_iter
        declared = {**_LAYER, "means": _MEANS} if "means" in file else _LAYER
        store.require_all(file, declared, "atom", valued.statistics_arrays("atom"), **sizes)
        white, learned = (store.arrays_in(file[name], _LAYER[name], np.float64) for name in _LAYER)
        covariance = white.pop("covariance")
        whitening = Whitening(**white)
        through = whitening if below is None else Through(**vars(whitening), below=below)
        model = cls(
            settings,
            SparseCoder(np.ascontiguousarray(learned["atoms"].T), settings.penalty, through),
            whitening,
            covariance,
            tuple(learned["trace"].tolist()),
            store.read_solution(file["embedding"]),
            provenance=store.with_audit(file, json.loads(file.attrs["provenance"])),
            below=below,
            ending=convergence.read(file.attrs),
        )
        if "means" not in file:
            audit = model.provenance.get("audit", ())
            return replace(model, statistics=valued.read_statistics(file["statistics"], model.basis, audit))
        mean, moment, scatter = store.arrays_in(file["means"], _MEANS, np.float64).values()
        # files of the first schema say how many positions there were beside the settings
        counted = file["means"] if "n_positions" in file["means"].attrs else file
        count = store.number(counted, "n_positions")
        return replace(model, given=SecondOrder(count, moment, scatter, mean))

    def opened(self, data: list[str], dataset: str | None, skip: bool) -> Source:
        """Return the sequences of clips that files and a dataset name."""
        names = None if dataset is None else [dataset]
        every = (clip for path in data for clip in open_clips(os.path.abspath(path), names))
        return sequences_of(tuple(every), self.settings)

    @contextmanager
    def taken(self, X: Any, skip: bool) -> Iterator[Source]:
        """Yield the sequences of clips of Python."""
        with clips_of(X) as clips:
            yield sequences_of(clips, self.settings)


def sequences_of(
    clips: tuple[Clip, ...], settings: FunctionalSettings, *, raw: bool = False
) -> PatchSequences:
    """Return the patch sequences of clips for some settings, of frames that are never whitened where `raw`."""
    return PatchSequences(
        clips,
        settings.patch_size,
        settings.length,
        settings.places,
        "fourier" if settings.whiten == "fourier" and not raw else "none",
        settings.low_pass,
        settings.random_state,
        settings.views,
        settings.difference_order * settings.overlap,
    )


@dataclass(frozen=True, eq=False)
class Through(Whitening):
    """The way up through the layers below, and back down by their inverses (SMT 2018, section 4): between raw rows and Φ."""

    below: VideoModel

    def __call__(self, rows: Float64) -> Float64:
        """Return whitened embedded rows."""
        return super().__call__(self.below.embed(rows))

    def back(self, rows: Float64) -> Float64:
        """Return raw rows: C Φ g(...) of what the whitening was given."""
        return self.below.recover(super().back(rows))


def fit_video(
    clips: tuple[Clip, ...], settings: FunctionalSettings, engine: Engine, below: VideoModel | None = None
) -> tuple[VideoModel, list[Record]]:
    """Fit a transform of video, or a layer of one on what the layers `below` embed; returns it with the records of its passes.

    Passes: `whitening` (Σ x, Σ x xᵀ), `start` and `dictionary-1`, ... (learning), `statistics` (the sums),
    `solve`, and with `sgd_rounds` `round-1`, ...: mini-batches that start from the eigenvectors and end
    with functionals of smaller support. The same bits for any number of workers, after losses and after a
    resume. Memory on a worker: the plan's, stated before each pass; every pass streams clips through the
    layers below. Rows of a layer above the first are embedded ones, which P has whitened already: they are
    centred and scaled only.
    """
    settings = _beside(settings, below)
    source = sequences_of(clips, settings)
    steps = [
        "whitening",
        "start",
        "dictionary",
        "statistics",
        "solve",
        *(["round"] if settings.n_epochs else []),
    ]
    with engine.run(steps, lambda: video_facts(source, settings, below)):
        kind = "scale" if settings.whiten == "fourier" or below is not None else "zca"
        own, covariance, first = fit_whitening(
            source,
            engine,
            kind,
            settings.whitening_reg,
            through=None if below is None else below.embed,
            width=None if below is None else len(below.components),
        )
        whitening = own if below is None else Through(**vars(own), below=below)
        dictionary, trace, learning = learn_dictionary(source, whitening, engine, settings)
        coder = SparseCoder(dictionary, settings.penalty, whitening)
        found = VideoModel(settings, coder, own, covariance, trace, below=below)
        statistics, summed = found.summed(source, engine)
        embedding, solved = found.solved(statistics, engine)
        model = found.finished(statistics, embedding, source.describe())
        records = [first, *learning, summed, solved]
        if settings.n_epochs:  # on from the eigenvectors with a penalty on the size of P (supplement C)
            from smtdist.solve.generalized import rayleigh  # reading a model loads no solver

            means, V = model.means, model.means.constraint(settings.second_moment)
            learned, rounds = fit_sgd(source, coder, engine, settings, start=model.components, sums=means)
            P = orthogonalised(learned.components, V)
            values, residuals = rayleigh(means.scatter, V, P)
            embedding = replace(model.solution, components=P, eigenvalues=values, residuals=residuals)
            model = replace(model, embedding=embedding, ending=convergence.of_rounds(learned.trace))
            records += rounds
        return model, records


def _beside(settings: FunctionalSettings, below: VideoModel | None) -> FunctionalSettings:
    """Return the settings of a layer, with those that all layers share from the one below."""
    if below is None:
        return settings
    lower = below.settings.to_dict()
    return settings.replace(**{name: lower[name] for name in SHARED})


def require_own(settings: FunctionalSettings, given: Iterable[str], below: VideoModel) -> None:
    """Refuse settings of a layer, those with the names `given`, that it has from the layer below and that differ from it."""
    today = FunctionalSettings.names_today()
    kept = {"whitening_reg", *(today[name] for name in SHARED)}  # what a layer above scales needs no λ
    fixed = [
        name for name in given if name in kept and getattr(settings, name) != getattr(below.settings, name)
    ]
    if fixed:
        raise ConfigurationError(
            f"{option('below')} keeps how sequences are taken and whitened, so other settings ({', '.join(fixed)}) cannot be "
            f"set; leave them out."
        )


def job(request: Request) -> Job:
    """Open the clips of a fit; a layer on a model has the settings that all layers share from it."""
    given = FunctionalSettings.named(request.settings)
    settings = FunctionalSettings().replace(**given)
    clips = tuple(
        clip for path in request.data for clip in open_clips(os.path.abspath(path), request.clip or None)
    )
    below = None if request.below is None else store.load(request.below, kind=VideoModel)
    if below is not None:
        require_own(settings, given, below)
    settings = _beside(settings, below)
    source = sequences_of(clips, settings)
    return Job(
        source,
        lambda engine: fit_video(clips, settings, engine, below),
        lambda: video_facts(source, settings, below),
        settings.n_components,
        unplanned=(
            "A plan does not include mini-batches; set n_epochs=0 to plan the steps before them."
            if settings.n_epochs
            else ""
        ),
        advice=VideoModel.advice,
    )


def video_facts(source: PatchSequences, settings: FunctionalSettings, below: VideoModel | None) -> Facts:
    """Return what a checkpoint of a fit depends on."""
    given = (
        {} if below is None else {"the lower model": array_hash(below.components, below.coder.dictionary)}
    )
    return Facts.of(source, settings, given)
