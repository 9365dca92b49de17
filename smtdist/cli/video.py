"""`video import`, `video fit` and `video judge`: the sparse manifold transform of clips (SMT 2018).

A group of its own: a sample is a sequence of patches here, and the settings, presets and files of `fit`
mean nothing to it.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from smtdist.cli import options as opt
from smtdist.cli.coders import asked_for, say_fitted, told
from smtdist.cli.errors import WrongUsage, usage
from smtdist.cli.plan import say_fit
from smtdist.cli.session import engine_for, error_console, print_json, result_console
from smtdist.data.video import open_clips
from smtdist.data.video_import import VideoSettings, import_videos
from smtdist.models import store
from smtdist.models.functional import video as video_model
from smtdist.models.functional.settings import FunctionalSettings
from smtdist.models.functional.video_judge import judged_clips
from smtdist.monitor import tables

video = typer.Typer(
    help="Fit and apply the transform of video: sparse codes of patches, and an embedding that straightens their paths.",
    no_args_is_help=True,
    add_completion=False,
)

Model = Annotated[Path, typer.Argument(metavar="MODEL.h5", help="Model written by smtdist video fit.")]
Clips = Annotated[
    Path, typer.Argument(metavar="CLIPS.h5", help="File of clips, written by smtdist video import.")
]
Names = Annotated[
    list[str] | None, typer.Option("--clip", help="Clip to use; may be repeated. Default: all.")
]


@video.command(
    "import", epilog="Example: smtdist video import walk.mp4 --out clips.h5 --crop 1024 --levels 3"
)
def import_(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Video files, or HDF5 files of clips.")
    ],
    out: Annotated[Path, typer.Option(metavar="CLIPS.h5", help="File to write.")],
    crop: Annotated[
        int | None, typer.Option(min=4, help="Side of the middle square to keep, in pixels.")
    ] = None,
    levels: Annotated[
        int, typer.Option(min=0, help="Number of times to halve the size, with a steerable pyramid.")
    ] = 0,
    limit: Annotated[
        int, typer.Option(min=0, help="Number of frames to use of each clip; 0 means all.")
    ] = 0,
    overwrite: opt.Overwrite = False,
    json: opt.Json = False,
) -> None:
    """Import the luminance of clips into an HDF5 file, cropped and down-sampled.

    If a file does not list its cuts, smtdist looks for them.
    """
    with usage():
        VideoSettings(crop, levels, limit)
    note = partial(error_console().print, markup=False, highlight=False, soft_wrap=True)
    written = import_videos(
        files, out, crop=crop, levels=levels, limit=limit, overwrite=overwrite, note=note
    )
    if json:
        print_json({"out": str(out.absolute()), "clips": written})
        return
    rows = [
        (
            one["clip"],
            " x ".join(map(str, one["frames"])),
            "unknown" if one["fps"] is None else f"{one['fps']:.2f}",
            str(len(one["cuts"])),
        )
        for one in written
    ]
    result_console().print(tables.table(str(out), ("clip", "frames", "per second", "cuts"), rows))


@video.command(
    "fit",
    epilog="Example: smtdist video fit clips.h5 --out video.h5 --set atoms=2048 --set n_components=128",
)
def fit(
    clips: Clips,
    out: opt.ModelOut = None,
    clip: Names = None,
    below: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL.h5", help="Model on which to stack this layer; the output holds all layers."
        ),
    ] = None,
    set_: opt.Set = None,
    plan: opt.PlanOnly = False,
    where: opt.Where = opt.HERE,
    checkpoint: opt.Checkpoint = None,
    overwrite: opt.Overwrite = False,
    json: opt.Json = False,
) -> None:
    """Fit a transform of video: whitening, dictionary, codes, embedding."""
    out = opt.target(out, plan, overwrite, inputs=(clips, below))
    settings = asked_for(FunctionalSettings(), set_)
    found = open_clips(str(clips.absolute()), clip)
    lower = None if below is None else store.load(below, kind=video_model.VideoModel)
    if lower is not None:
        taken = lower.settings.to_dict()
        settings = settings.replace(**{name: taken[name] for name in video_model.SHARED})
    source = video_model.sequences_of(found, settings)
    if plan:
        if settings.n_epochs:
            raise WrongUsage(
                "--plan does not include mini-batches; set sgd_rounds=0 to plan the steps before them."
            )
        say_fit(
            lambda engine: video_model.fit_video(found, settings, engine, lower),
            source,
            settings.n_components,
            where,
            checkpoint,
            json,
        )
        return
    with engine_for(
        where, source, checkpoint, lambda: video_model.video_facts(source, settings, lower)
    ) as engine:
        model, records = video_model.fit_video(found, settings, engine, lower)
    size = store.save(model, out, overwrite=overwrite)
    result = {**model.summary(), "out": str(out.absolute()), "bytes": size, "passes": records}
    say_fitted(result, (), told(model.summary()), json, *model.advice())


@video.command("judge", epilog="Example: smtdist video judge video.h5 held-out.h5 --json")
def judge(
    model: Model,
    clips: Clips,
    clip: Names = None,
    sequences: Annotated[int, typer.Option(min=1, help="Use at most this many sequences.")] = 1000,
    json: opt.Json = False,
) -> None:
    """Measure how straight the paths of clips are in pixels, codes and embedding, and compare reconstruction with PCA."""
    fitted = store.load(model, kind=video_model.VideoModel)
    taken = open_clips(str(clips.absolute()), clip)
    result = judged_clips(fitted, taken, sequences)
    if json:
        print_json(result)
        return
    console = result_console()
    console.print(
        tables.table("Paths: 0 is straight", ("of", "2nd difference", "bend", "angle"), _paths(result))
    )
    lines = [
        (name, f"{one['snr']:.2f} dB", f"{one['snr_without_mean']:.2f} dB")
        for name, one in result["reconstruction"].items()
    ]
    console.print(tables.table("\nReconstruction", ("from", "SNR", "without mean"), lines))


def _paths(result: dict[str, Any]) -> list[tuple[str, ...]]:
    found = dict(result["straightness"])
    for one in result["regularised"]:
        found[f"embedding, eq. 11 at {one['strength']:g}"] = one["embedding"]
    return [
        (name, f"{one['second_difference']:.4f}", f"{one['bend']:.4f}", f"{one['angle']:.1f}°")
        for name, one in found.items()
    ]
