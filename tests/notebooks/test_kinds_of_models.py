"""Notebooks on words, video, concepts, kernels and few labels, cell by cell. `pytest -m slow tests/notebooks`

Their cells are plain Python, so that no Jupyter is needed; those of `tests/monitor` run in a kernel.
"""

import json
import os
import re
from pathlib import Path

import pytest
from calling import program

ROOT = Path(__file__).parents[2]
NOTEBOOKS = ROOT / "deploy" / "jupyter"
HERE = ("04-words", "05-video", "06-concepts", "07-kernel-models", "08-few-labels")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def ran(name, folder, **environment):
    """Run the cells of a notebook in a process and a folder of their own; return what they printed."""
    cells = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text("utf-8"))["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    told = {key: value for key, value in os.environ.items() if key != "SMTDIST_DATA"}
    return program(code, cwd=folder, env={**told, "PYTHONPATH": str(ROOT), **environment}).stdout


def numbers(pattern, text):
    return [float(found) for found in re.findall(pattern, text)]


def test_words(tmp_path):
    text = ran("04-words", tmp_path)
    assert len(re.findall(r"^ +\S+: \S+ \S+ \S+ \S+ \S+ \S+$", text, re.MULTILINE)) == 10
    assert "both stand beside" in text
    assert (tmp_path / "words.html").stat().st_size == numbers(r"(\d+) bytes of report", text)[0]


def test_video(tmp_path):
    text = ran("05-video", tmp_path)
    (codes,), (embedding,) = (numbers(rf"{name}: ([\d.]+)", text) for name in ("codes", "embedding"))
    assert 0 < embedding < codes < 2
    assert (tmp_path / "video.html").exists()


def test_real_video(tmp_path, real_data):
    clips = real_data("video/video.h5").resolve()
    text = ran("05-video", tmp_path, SMTDIST_DATA=str(clips.parents[1]))
    assert numbers(r"embedding: ([\d.]+)", text) < numbers(r"codes: ([\d.]+)", text)
    assert not (tmp_path / "clips.h5").exists()


def test_concepts(tmp_path):
    text = ran("06-concepts", tmp_path)
    assert len(re.findall(r"^concept +\d+: ", text, re.MULTILINE)) == 12
    assert numbers(r"(\d+) % of classes follow", text)[0] > 70


def test_kernel_models(tmp_path):
    text = ran("07-kernel-models", tmp_path)
    assert numbers(r"contrastive: ([\d.]+) % right", text)[0] > 70
    assert numbers(r"error over variance ([\d.]+)", text)[0] < 1


def test_few_labels(tmp_path):
    text = ran("08-few-labels", tmp_path)
    few, many = (numbers(rf" {count} labels: pixels ([\d.]+)", text)[0] for count in (10, 200))
    assert few < many
    assert (
        len(re.findall(r"labels: pixels [\d.]+ %, transform [\d.]+ %, spike and slab [\d.]+ %", text)) == 5
    )


def test_every_notebook_has_its_test():
    named = {path.stem for path in NOTEBOOKS.glob("*.ipynb")}
    elsewhere = (ROOT / "tests" / "monitor" / "test_notebooks.py").read_text()
    assert set(HERE) <= named
    assert [name for name in sorted(named - set(HERE)) if f'"{name}.ipynb"' not in elsewhere] == []
