"""The one table of kinds: what files and models of each are called, how they are told apart, and who does what with them."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final, NamedTuple

from smtdist.errors import DataError, ModelError, SmtdistError, command
from smtdist.models import plugins


class Kind(NamedTuple):
    """A kind of file.

    called : a model of the kind, in sentences. holds : what such a file holds.
    home : "module:class" or "module" with `stored` and `restored`; "" for a file that is no model. schema : attribute with the
    version of the layout, which files of other kinds lack. newest : the highest version. facts : the name in
    `smtdist.report.facts` of how it is described; "" for plain words. error, remedy : what a damaged file is refused with.
    fits : by which names models of the kind are fitted. fitted_by : a module, or "module:class", whose `job` makes such a fit.
    updated_by : a module whose `update_job` adds samples to a model and withdraws them, "" where nothing can be added.
    transformed_by : a module whose `seen` opens samples that such a model transforms; "" for models of images, and others.
    evaluated_by : "module:function" that makes an `Evaluation` of such a file (`smtdist.evaluate.evaluations`).
    also : further verbs of the kind, of merge, tune and export. only : verbs that not all of its models have, and which have
    them. unplanned : why a fit has no plan, "" where it has one.
    settings : "module:class" of its settings, or "module:function" that returns those of a name as they are declared.
    takes : what a fit takes beside data and settings (`smtdist.models.jobs.Request`). brought : the group of entry points by
    which packages bring more such models; "" for none. texts : its data are texts, so that a .txt file is one of them, not a
    list of files. made_by : what else writes it.
    """

    called: str
    holds: str
    home: str
    schema: str
    newest: int = 1
    facts: str = ""
    error: type[SmtdistError] = ModelError
    remedy: str = "restore it from a copy, or fit it again"
    fits: tuple[str, ...] = ()
    fitted_by: str = ""
    updated_by: str = ""
    transformed_by: str = ""
    evaluated_by: str = ""
    also: tuple[str, ...] = ()
    only: Mapping[str, str] = {}
    unplanned: str = ""
    settings: str = ""
    takes: tuple[str, ...] = ()
    brought: str = ""
    texts: bool = False
    made_by: str = ""

    @property
    def by(self) -> str:
        """What writes such a file."""
        return self.made_by or command("fit", "model", self.fits[0])

    @property
    def names(self) -> tuple[str, ...]:
        """By which names models of the kind are fitted, those of packages too."""
        return (*self.fits, *(plugins.names(self.brought) if self.brought else ()))

    @property
    def plural(self) -> str:
        """Several models, in sentences."""
        first, of, rest = self.called.partition(" of ")
        return f"{first}s{of}{rest}"

    def imported(self, home: str = "") -> Any:
        """Import what has `stored` and `restored`, or another home; named, not imported before: some lie in layers above."""
        module, _, name = (home or self.home).partition(":")
        return getattr(import_module(module), name) if name else import_module(module)


IMAGES: Final = ("dataset", "limit", "skip_damaged")
"""What every fit of images takes."""
BY_SUMS: Final = "smtdist.models.merge"
"""What adds samples to the sums of a transform."""
OF_ROWS: Final = "smtdist.models.rows"
"""What opens samples that a model embeds as rows."""


def of_sums(name: str, row: Kind) -> Kind:
    """Return the row of a model of rows that is solved for from exact sums (`smtdist.models.summed`), with every verb it has."""
    return row._replace(
        fits=(name,),
        fitted_by=row.home,
        settings=row.home,
        takes=("dataset",),
        updated_by=BY_SUMS,
        transformed_by=OF_ROWS,
        evaluated_by="smtdist.evaluate.other_models:of_rows",
        also=("merge",),
    )


_CODERS: Final[dict[str, Any]] = {
    **{
        "facts": "CODERS",
        "fitted_by": "smtdist.models.image_jobs",
        "settings": "smtdist.models.coded:declared",
    },
    **{"takes": IMAGES, "updated_by": BY_SUMS, "also": ("merge",)},
    # a fit of `--model smt` with such a code has one, that of the code alone has none
    "only": dict.fromkeys(("update", "withdraw", "merge"), "with an embedding"),
}
KINDS: Final[dict[str, Kind]] = {
    "words": Kind(
        "model of words",
        "a model of words, which smtdist near takes",
        "smtdist.models.words.model:WordModel",
        "smtdist_words_schema",
        facts="WORDS",
        fits=("words",),
        fitted_by="smtdist.models.words.fit",
        settings="smtdist.models.words.model:WordSettings",
        takes=("from_model", "lines"),
        texts=True,
        updated_by="smtdist.models.words.fit",
        also=("merge", "export"),
    ),
    "points": Kind(
        "model of points",
        "a model of points, which smtdist transform takes",
        "smtdist.models.points.fit:PointModel",
        "smtdist_points_schema",
        2,
        fits=("points",),
        fitted_by="smtdist.models.points.fit",
        settings="smtdist.models.points.table:PointSettings",
        takes=("dataset",),
        updated_by=BY_SUMS,
        transformed_by=OF_ROWS,
        also=("merge",),
    ),
    "kernel": Kind(
        "kernel model",
        "a kernel model, which smtdist transform and smtdist evaluate take",
        "smtdist.models.kernel.model:KernelModel",
        "kernel_schema",
        facts="KERNEL",
        fits=("kernel-contrastive", "kernel-spectral", "kernel-autoencoder"),
        fitted_by="smtdist.models.kernel.streamed",
        settings="smtdist.models.kernel.settings:KernelSettings",
        takes=("dataset",),
        transformed_by=OF_ROWS,
        evaluated_by="smtdist.evaluate.other_models:of_rows",
    ),
    "concepts": Kind(
        "file of concepts",
        "concepts, which smtdist search takes",
        "smtdist.concepts.model:ConceptModel",
        "smtdist_concepts_schema",
        2,
        facts="CONCEPTS",
        fits=("concepts",),
        fitted_by="smtdist.concepts.fit",
        settings="smtdist.concepts.settings:ConceptSettings",
        takes=("dataset",),
        unplanned="A search for concepts has no plan: how many sweeps it takes is not known before.",
    ),
    "s3c": Kind(
        "patch coder",
        "a spike-and-slab model, which smtdist transform and smtdist evaluate take",
        "smtdist.models.coded",
        "s3c_schema",
        fits=("s3c",),
        **_CODERS,
    ),
    "sparse": Kind(
        "sparse coder",
        "a model of sparse codes, which smtdist transform and smtdist evaluate take",
        "smtdist.models.coded",
        "sparse_schema",
        fits=("l1", "omp", "sc"),
        **_CODERS,
    ),
    "encoder": Kind(
        "model of an encoder",
        "a model of an encoder, which smtdist transform and smtdist evaluate take",
        "smtdist.models.coded",
        "encoder_schema",
        facts="CODERS",
        made_by="smtdist fit",
        updated_by=BY_SUMS,
        also=("merge",),
    ),
    "joined": Kind(
        "file of models side by side",
        "models side by side, which smtdist transform, evaluate, update and merge take",
        "smtdist.models.files",
        "joined_schema",
        facts="JOINED",
        made_by="smtdist fit",
        updated_by=BY_SUMS,
        also=("merge",),
    ),
    "video": Kind(
        "model of video",
        "a model of video, which smtdist evaluate takes",
        "smtdist.models.functional.video:VideoModel",
        "video_schema",
        2,
        facts="VIDEO",
        fits=("video",),
        fitted_by="smtdist.models.functional.video",
        settings="smtdist.models.functional.settings:FunctionalSettings",
        takes=("below", "clip"),
        updated_by=BY_SUMS,
        evaluated_by="smtdist.evaluate.other_models:of_video",
        also=("merge",),
    ),
    "predictions": Kind(
        "file of predictions",
        "predictions of a head, not a model",
        "",
        "predictions_schema",
        facts="PREDICTIONS",
        error=DataError,
        made_by="smtdist transform",
        remedy="predict again",
    ),
    "head": Kind(
        "head",
        "a classifier of representations, which smtdist transform takes",
        "smtdist.evaluate.heads",
        "head_schema",
        facts="HEAD",
        fits=("head",),
        fitted_by="smtdist.evaluate.heads",
        settings="smtdist.evaluate.heads:declared",
        updated_by="smtdist.evaluate.heads",
        transformed_by="smtdist.evaluate.heads",
        takes=("csv",),
        evaluated_by="smtdist.evaluate.heads:evaluation",
        brought=plugins.HEADS,
        only=dict.fromkeys(("update", "withdraw"), "all but exact kernels"),
        unplanned="A head has no plan: a fit says what memory it needs before it reads a row.",
    ),
    "representation": Kind(
        "file of representations",
        "representations, not a model",
        "",
        "feature_shape",
        facts="REPRESENTATION",
        error=DataError,
        made_by="smtdist transform",
        remedy="transform again",
        evaluated_by="smtdist.evaluate.evaluations:of_representations",
    ),
    # the last, because representations have its attribute, too
    "smt": Kind(
        "smtdist model",
        "a model of images, which smtdist transform and smtdist evaluate take",
        "smtdist.models.files",
        "smtdist_schema",
        # 1: no hashes of samples, so that statistics can be solved again but not added or subtracted. 2: all second-order
        # weights are multiples of 2^-20
        3,
        facts="TRANSFORMS",
        fits=("smt",),
        made_by="smtdist fit",
        fitted_by="smtdist.models.image_jobs",
        settings="smtdist.configuration:Configuration",
        takes=(*IMAGES, "preset", "from_model", "atoms"),
        updated_by=BY_SUMS,
        also=("merge", "tune", "export"),
    ),
}
"""Every kind of file that smtdist writes, by name: its models, what writes and takes them, how their files are told apart."""

CODERS: Final = ("s3c", "sparse", "encoder")
"""Kinds that hold a coder of patches, or a transform on one."""
OF_IMAGES: Final = ("smt", "joined", *CODERS)
"""Kinds that turn images into representations: transforms, and coders of patches."""
