"""Clips, frames and patch sequences: cuts, whitening and down-sampling against their definitions, and importing."""

import sys

import h5py
import numpy as np
import pytest
from arrays_in_files import add_arrays, read_array, read_samples, write_arrays

from smtdist.data.video import (
    PatchSequences,
    VideoSettings,
    centre_crop,
    clips_of,
    cuts_of,
    down_sampled,
    fourier_whitened,
    import_videos,
    open_clips,
    whitening_mask,
)
from smtdist.errors import ConfigurationError, DataError, SmtdistError


def patch_sequences(path, clips=None, *, patch=16, length=8, places=32, **how):
    return PatchSequences(open_clips(path, clips), patch, length, places, **how)


@pytest.fixture
def clips(tmp_path):
    path = tmp_path / "clips.h5"
    draw = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        for name, shape, cuts in (("one", (23, 20, 30), [9]), ("two", (10, 16, 16), [])):
            group = file.create_group(name)
            group["frames"] = draw.integers(0, 256, shape, dtype=np.uint8)
            group.attrs["cuts"], group.attrs["fps"] = np.array(cuts, np.int64), 25.0
        file["notes"] = np.zeros(3)
    return str(path)


def test_sequences_are_patches_of_consecutive_frames_and_respect_cuts(clips):
    source = patch_sequences(clips, patch=6, length=4, places=5, seed=3)
    assert [clip.fps for clip in source.clips] == [25.0, 25.0]
    # shots of 9, 14 and 10 frames have 2 + 3 + 2 windows of 4
    assert source.windows == ((0, 0), (0, 4), (0, 9), (0, 13), (0, 17), (1, 0), (1, 4))
    assert source.shape == (35, 4, 36)
    rows = read_samples(source, 0, 35)
    with h5py.File(clips) as file:
        raw = {name: file[name]["frames"][()] for name in ("one", "two")}
    for window, (clip, start) in enumerate(source.windows):
        frames = raw[("one", "two")[clip]]
        for place, (r, c) in enumerate(source.corners(window)):
            for t in range(4):
                patch = frames[start + t, r : r + 6, c : c + 6].astype(np.float32) / np.float32(255)
                assert np.array_equal(rows[5 * window + place, t], patch.ravel())


def test_any_range_is_the_same_and_a_window_is_read_once(clips):
    source = patch_sequences(clips, ["two"], patch=5, length=3, places=7, whiten="fourier")
    with source.opened() as reader:
        whole = reader.read(0, source.n_samples)
        assert reader.read_bytes == 3 * 3 * 256
    with source.opened() as reader:
        parts = [
            reader.read(start, min(start + 4, source.n_samples)) for start in range(0, source.n_samples, 4)
        ]
        assert reader.read_bytes == 3 * 3 * 256
    assert np.array_equal(np.concatenate(parts), whole)
    corners = np.concatenate([source.corners(window) for window in range(3)])
    assert corners.min() >= 0
    assert corners.max() <= 11
    assert len(np.unique(corners, axis=0)) > 10


@pytest.mark.parametrize("views", [2, 4, 8])
def test_windows_are_seen_mirrored_and_turned_at_places_of_their_own(clips, views):
    plain = patch_sequences(clips, patch=6, length=4, places=5, seed=3)
    source = patch_sequences(clips, patch=6, length=4, places=5, seed=3, views=views)
    assert source.windows == plain.windows
    assert source.shape == (35 * views, 4, 36)
    whole = read_samples(source, 0, source.n_samples)
    with source.opened() as reader:
        parts = [
            reader.read(start, min(start + 3, source.n_samples)) for start in range(0, source.n_samples, 3)
        ]
    assert np.array_equal(np.concatenate(parts), whole)
    with plain.opened() as reader:
        assert np.array_equal(
            whole.reshape(7, views, 5, 4, 36)[:, 0].reshape(35, 4, 36), reader.read(0, 35)
        )
    with h5py.File(clips) as file:
        frames = file["one"]["frames"][9:13].astype(np.float32) / np.float32(255)
    turns = (
        lambda x: x,
        np.fliplr,
        np.flipud,
        lambda x: np.rot90(x, 2),
        np.transpose,
        lambda x: np.rot90(x, 1),
        lambda x: np.rot90(x, 3),
        lambda x: np.rot90(x, 2).T,
    )
    corners = source.corners(2)  # the window of frames 9 to 12 of "one"
    assert len(np.unique(corners, axis=0)) > 5
    for number, (row, column) in enumerate(corners):
        for t in range(4):
            patch = turns[number // 5](frames[t, row : row + 6, column : column + 6])
            assert np.array_equal(whole[2 * 5 * views + number, t], patch.ravel())
    assert source.describe()["views"] == views


def test_whitened_patches_are_cut_from_whitened_frames(clips):
    source = patch_sequences(clips, ["two"], patch=16, length=5, places=1, whiten="fourier")
    rows = read_samples(source, 0, 1).reshape(5, 16, 16)
    frames = read_array(clips, "two/frames")[:5] / 255
    k = np.fft.fftfreq(16) * 16
    r = np.hypot(k[:, None], k[None])  # in cycles a frame, Nyquist 8: r₀ = 6
    by_hand = np.fft.ifft2(np.fft.fft2(frames) * (r / 8) * np.exp(-((r / 6) ** 4))).real
    np.testing.assert_allclose(rows, by_hand, atol=1e-5)


def test_the_mask_is_the_papers_on_its_frames():
    mask = whitening_mask(128, 128)
    r = np.arange(65)
    np.testing.assert_allclose(64 * mask[0], r * np.exp(-((r / 48) ** 4)), rtol=1e-12)
    assert mask[0, 0] == 0


def test_whitening_flattens_the_spectrum_of_natural_images():
    draw = np.random.default_rng(1)
    k = np.hypot(np.fft.fftfreq(64)[:, None], np.fft.fftfreq(64)[None])
    k[0, 0] = 1
    pink = np.fft.ifft2(np.fft.fft2(draw.standard_normal((20, 64, 64))) / k).real
    power = (np.abs(np.fft.fft2(fourier_whitened(pink))) ** 2).mean(axis=0)
    low, middle = power[(k > 0.02) & (k < 0.1)].mean(), power[(k > 0.1) & (k < 0.2)].mean()
    assert 0.8 < low / middle < 1.25
    assert power[0, 0] < 1e-6 * low


def test_crops_are_central_and_refused_where_too_large():
    frames = np.arange(2 * 7 * 10).reshape(2, 7, 10)
    assert np.array_equal(centre_crop(frames, 4), frames[:, 1:5, 3:7])
    assert centre_crop(frames, None, 4).shape == (2, 4, 4)
    with pytest.raises(DataError, match="smaller crop"):
        centre_crop(frames, 8)


def test_down_sampling_keeps_what_fits_and_drops_what_would_alias():
    pytest.importorskip("pyrtools", reason="pyrtools is not installed (smtdist[video])")
    place = np.arange(64)
    slow = 100 + 50 * np.cos(2 * np.pi * 3 * place / 64)[None, :, None] * np.ones((1, 1, 64))
    fast = 50 * np.cos(2 * np.pi * 28 * place / 64)[None, None, :] * np.ones((1, 64, 1))
    small = down_sampled(slow + fast, 1)
    assert small.shape == (1, 32, 32)
    np.testing.assert_allclose(small, (slow[:, ::2, ::2]), atol=0.5)
    np.testing.assert_allclose(down_sampled(slow, 2), slow[:, ::4, ::4], atol=0.5)
    with pytest.raises(ConfigurationError, match="halved"):
        down_sampled(np.zeros((1, 20, 20)), 3)


def test_cuts_are_found_and_pans_are_none():
    draw = np.random.default_rng(2)
    scenes = [np.cumsum(draw.integers(-3, 4, (60, 80)), axis=1) + level for level in (60, 160)]
    frames = np.stack(
        [np.clip(scene[10:50, shift : shift + 40], 0, 255) for scene in scenes for shift in range(12)]
    ).astype(np.uint8)
    assert cuts_of(frames) == [12]
    assert cuts_of(frames[:12]) == []
    assert cuts_of(frames[:2]) == []


def test_clips_come_in_cropped_and_small_with_their_cuts(clips, tmp_path):
    out = tmp_path / "small.h5"
    written = import_videos([clips], out, crop=12, limit=20)
    assert [row["frames"] for row in written] == [[20, 12, 12], [10, 12, 12]]
    found = open_clips(str(out))
    assert found[0].cuts == (9,)
    with h5py.File(out) as new, h5py.File(clips) as old:
        assert np.array_equal(new["one/frames"], old["one/frames"][:20, 4:16, 9:21])
    with pytest.raises(SmtdistError, match="overwrite"):
        import_videos([clips], out)
    with pytest.raises(DataError, match="Two clips"):
        import_videos([clips, clips], tmp_path / "twice.h5")
    assert not (tmp_path / "twice.h5").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clips.h5", "small.h5"]
    with h5py.File(tmp_path / "more.h5", "w") as more, h5py.File(clips) as old:
        old.copy("one", more)
        more["two"], more["set/three/frames"] = np.zeros((2, 12, 12)), np.zeros((2, 12, 12))
    with pytest.warns(
        UserWarning,
        match=r"Left out 2 parts .* no clip, the first: .*more.h5:set/three/frames; .*more.h5:two",
    ):
        import_videos(tmp_path / "more.h5", tmp_path / "m.h5")


def test_files_that_pyav_reads_come_in(tmp_path):
    av = pytest.importorskip("av", reason="PyAV is not installed (smtdist[video])")
    path = tmp_path / "made.mkv"
    draw = np.random.default_rng(3)
    frames = draw.integers(0, 256, (6, 32, 48), dtype=np.uint8)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("ffv1", rate=30)
        stream.width, stream.height, stream.pix_fmt = 48, 32, "gray"
        for frame in frames:
            for packet in stream.encode(av.VideoFrame.from_ndarray(frame, format="gray")):
                container.mux(packet)
        for packet in stream.encode():
            container.mux(packet)
    out = tmp_path / "clips.h5"
    written = import_videos([str(path)], out)
    assert written == [{"clip": "made", "frames": [6, 32, 48], "fps": 30.0, "cuts": []}]
    assert np.array_equal(read_array(out, "made/frames"), frames)
    (tmp_path / "broken.mkv").write_bytes(path.read_bytes()[:300])
    (tmp_path / "text.mp4").write_text("no video")
    for bad in ("broken.mkv", "text.mp4", "missing.mp4"):
        with pytest.raises(DataError):
            import_videos([str(tmp_path / bad)], tmp_path / "bad.h5")
    assert not (tmp_path / "bad.h5").exists()


def test_without_pyav_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(ConfigurationError, match=r"smtdist\[video\]"):
        import_videos([str(tmp_path / "a.mp4")], tmp_path / "b.h5")


def test_what_has_no_sequences_is_refused(clips, tmp_path):
    with pytest.raises(DataError, match="no clip 'three'"):
        open_clips(clips, ["three"])
    with pytest.raises(DataError, match="shorter"):
        patch_sequences(clips, length=15, patch=4)
    with pytest.raises(ConfigurationError, match="smaller"):
        patch_sequences(clips, patch=17)
    with pytest.raises(ConfigurationError, match="whiten"):
        patch_sequences(clips, patch=4, whiten="zca")
    with pytest.raises(ConfigurationError, match="views is 3; choose 1, 2, 4 or 8"):
        patch_sequences(clips, patch=4, views=3)
    with pytest.raises(ConfigurationError, match="multiple"):
        VideoSettings(crop=10, levels=2)
    empty = tmp_path / "empty.h5"
    write_arrays(empty, {"x": np.zeros(2)})
    with pytest.raises(DataError, match="no clips"):
        open_clips(str(empty))
    with (
        pytest.raises(DataError, match="Clip 1 is empty"),
        clips_of([np.zeros((9, 4, 4)), np.zeros((0, 4, 4))]),
    ):
        pass


def test_a_clip_that_changed_is_an_error(clips):
    source = patch_sequences(clips, ["two"], patch=4, length=3, places=1)
    assert isinstance(source, PatchSequences)
    add_arrays(clips, {"two/frames": np.zeros((4, 16, 16), np.uint8)})
    with pytest.raises(DataError, match="start again"), source.opened() as reader:
        reader.read(0, 1)


def test_the_real_clips_open(real_data):
    clips = open_clips(str(real_data("video/video.h5")))
    assert sum(clip.frames for clip in clips) == 1532
    assert {clip.dataset for clip in clips if clip.cuts} == {"bikes/frames", "nasa_13013/frames"}
