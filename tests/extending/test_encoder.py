"""An encoder that another package brings: command line, plan, resume, update, withdrawal, merge, report, from 20 lines."""

from dataclasses import dataclass

import calling
import numpy as np
import pytest
from arrays_in_files import write_labelled
from brought import install, lived, run
from drawing import small_images

from smtdist.codes.encoder import EncoderSettings, PatchEncoder
from smtdist.settings import number, setting
from smtdist.testing import check_encoder


class RectifiedSettings(EncoderSettings):
    """Settings of the encoder below."""

    threshold: float = setting(number(), "below which a code is zero.", default=0.5)


@dataclass(frozen=True, eq=False)
class Rectified(PatchEncoder):
    """Codes max(0, atom · patch - threshold)."""

    NAME = "rectified"
    Settings = RectifiedSettings

    def code(self, rows):
        products = np.asarray([self.atoms @ row for row in rows.astype(np.float64)])
        return np.maximum(products - self.settings.threshold, 0)


FIT = "--set feature=rectified --set dictionary=12 --set patch=4 --set n_components=3 --set positions=20 --set context=3"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    at = tmp_path_factory.mktemp("extending")
    write_labelled(at / "d.h5", small_images(0, 120, 12, 12), np.arange(120) % 2, {"a": 60, "b": 60})
    return at


def test_it_keeps_its_promises():
    check_encoder(Rectified, small_images(2, 40, 10, 10), n_atoms=9, patch=3)


def test_a_package_that_makes_other_codes_now_is_refused(folder, monkeypatch, tmp_path):
    install(monkeypatch, folder, "smtdist.encoders", "rectified", f"{__name__}:Rectified")
    monkeypatch.chdir(tmp_path)
    data = folder / "d.h5"
    run(f"fit {data} --dataset a {FIT} --out m.h5 --no-first-look")
    run(f"update m.h5 {data} --dataset b --out more.h5")
    code = Rectified.code
    monkeypatch.setattr(Rectified, "code", lambda self, rows: 2 * code(self, rows))
    for words in ("update m.h5 {} --dataset b --out x.h5", "transform m.h5 {} --dataset b --out x.h5"):
        said = calling.run(words.format(data), code=1)
        assert "was fitted with other codes than the encoder rectified" in said
        assert "install the version of its package" in said


def test_it_gets_every_command(folder, monkeypatch):
    install(monkeypatch, folder, "smtdist.encoders", "rectified", f"{__name__}:Rectified")
    monkeypatch.chdir(folder)
    assert "threshold" in run("settings --feature rectified --json")
    lived(FIT)
    run("evaluate ab.h5 d.h5 --train a --test b --neighbours 5 --mirrored --components 2")
    run("transform ab.h5 d.h5 --dataset b --out both.h5 --with a.h5")
