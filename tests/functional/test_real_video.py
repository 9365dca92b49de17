"""Natural clips, held out: paths are straighter in the embedding, and straighter still where it regularises inference."""

import numpy as np
import pytest
from executors import engine

from smtdist.data.video import import_videos, open_clips
from smtdist.models.functional.settings import FunctionalSettings
from smtdist.models.functional.video import fit_video
from smtdist.models.functional.video_judge import judged

pytestmark = pytest.mark.slow

HELD_OUT = ("carphone_pristine", "cockatoo")
STILL = ("nasa_13013",)
"""Pans over still photographs, slow and dark."""


def test_held_out_clips_are_straighter(real_data, tmp_path):
    pytest.importorskip("pyrtools", reason="pyrtools is not installed (smtdist[video])")
    small = tmp_path / "clips.h5"
    import_videos([str(real_data("video/video.h5"))], small, levels=1)
    clips = {clip.dataset.split("/")[0]: clip for clip in open_clips(str(small))}
    train = tuple(clip for name, clip in clips.items() if name not in (*HELD_OUT, *STILL))
    settings = FunctionalSettings(
        patch=8,
        length=6,
        places=25,
        atoms=200,
        n_components=20,
        rounds=4,
        batch=300,
        penalty=0.3,
        ridge=0.1,
    )
    model, _ = fit_video(train, settings, engine())
    source = model.sequences(tuple(clips[name] for name in HELD_OUT))
    with source.opened() as reader:
        rows = reader.read(0, source.n_samples)[::10, 0]
    found = judged(model, rows)
    assert found["ratios"]["codes"]["second_difference"] > 1.3
    assert found["ratios"]["whitened pixels"]["second_difference"] > 1.15
    assert found["ratios"]["codes"]["angle"] > 1
    bent = [found["straightness"]["embedding"], *(one["embedding"] for one in found["regularised"])]
    for measure in ("second_difference", "bend", "angle"):
        assert np.all(np.diff([one[measure] for one in bent]) < 0), measure
    # inference that is kept on course still rebuilds the patches
    assert found["regularised"][0]["snr"] > found["reconstruction"]["codes"]["snr"] - 2
