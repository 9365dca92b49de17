"""What `docs/extending.md` prints works as it is printed."""

import re
from pathlib import Path

import h5py
import numpy as np
from brought import install, run
from drawing import small_images

PAGE = (Path(__file__).parents[2] / "docs/extending.md").read_text()


def test_its_code_and_its_command(tmp_path, monkeypatch):
    code = "\n\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
    (tmp_path / "my_package.py").write_text(code)
    (name, value) = re.search(r'^(\w+) = "(.*)"$', PAGE, re.MULTILINE).groups()
    (command,) = re.findall(r"^    smtdist (fit .*)$", PAGE, re.MULTILINE)
    (other,) = re.findall(r"^    smtdist (points fit .*)$", PAGE, re.MULTILINE)
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["train/images"] = small_images(0, 80, 14, 14)
    monkeypatch.chdir(tmp_path)
    install(monkeypatch, tmp_path, "smtdist.encoders", name, value)
    assert "threshold" in run(f"settings --feature {name}")
    run(command + " --set n_components=8")
    install(monkeypatch, tmp_path, "smtdist.contexts", "rows", "my_package:InRows")
    few = "--set dictionary=8 --set n_components=2 --set rounds=2"
    run(f"fit data.h5 --dataset train --set feature=omp --set context=rows {few} --out o.h5")
    with h5py.File(tmp_path / "signals.h5", "w") as file:
        file["train"] = np.random.default_rng(0).normal(size=(50, 40))
    install(monkeypatch, tmp_path, "smtdist.sites", "windows", "my_package:Windows")
    run(other)
    assert "components" in run("info p.h5")
