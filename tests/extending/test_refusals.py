"""Encoders, contexts and fits on coders that cannot be right end in one sentence, before anything wrong is written."""

from dataclasses import dataclass

import h5py
import numpy as np
import pytest
from brought import install, run
from calling import call
from drawing import small_images

import smtdist
from smtdist.codes.encoder import EncoderSettings, PatchEncoder
from smtdist.models.coders.manifold import Manifold
from smtdist.models.points.sites import SiteKind
from smtdist.settings import FLAG, TEXT, setting, whole
from smtdist.statistics.operators import Temporal, Window


class Asked(EncoderSettings):
    twice: bool = setting(FLAG, "whether it is done twice.", default=False)


@dataclass(frozen=True, eq=False)
class Plain(PatchEncoder):
    NAME = "plain"
    Settings = Asked

    def code(self, rows):
        return np.maximum(rows.astype(np.float64) @ self.atoms.T, 0)


def made(name, base=Plain, **members):
    """Return an encoder that differs from the plain one in some members."""
    return dataclass(frozen=True, eq=False)(type(name, (base,), {"NAME": name.lower(), **members}))


def learnt(end=lambda found: (found, []), **more):
    """Return a `learn` that keeps the first atoms, and what else it says to have learnt."""
    return classmethod(
        lambda cls, start, settings, engine: end({"atoms": start.atoms[: settings.n_atoms], **more})
    )


class Clashing(EncoderSettings):
    context_size: str = setting(TEXT, "of another meaning.", default="mine")


class Undeclared(EncoderSettings):
    twice: bool = False


Wide = made("Wide", code=lambda self, rows: np.tile(Plain.code(self, rows), (1, 2)))
Holed = made("Holed", code=lambda self, rows: np.full((len(rows), self.size), np.nan))
Failing = made("Failing", code=lambda self, rows: 1 // 0)
Complex = made("Complex", code=lambda self, rows: Plain.code(self, rows) * 1j)
Forgetful = made("Forgetful", learn=learnt(arrays={"gain": np.ones(3)}))
Misnaming = made("Misnaming", learn=learnt(gain=np.ones(3)))
Named = made("Named", ARRAYS={"components": ("atom",)})
Short = made("Short", ARRAYS={"gain": ("atom",)}, learn=learnt(arrays={"gain": np.ones(11)}))
Alone = made("Alone", learn=learnt(lambda found: found))
Bound = made("Bound", learn=lambda self, start, settings, engine: ({}, []))
Clash, Loose = made("Clash", Settings=Clashing), made("Loose", Settings=Undeclared)
Unfinished = made("Unfinished", PatchEncoder)


@dataclass(frozen=True)
class Halves:
    sites: int
    columns: int
    order: int
    scale = 1

    def own(self, codes):
        return codes.reshape(-1, codes.shape[2])

    def factors(self, codes, group):
        return self.own(codes) / 2 + 0.25, self.own(codes)

    def row_numbers(self, size):
        return 2 * size


class Narrow(Halves):
    def factors(self, codes, group):
        return self.own(codes)[:, :-1], self.own(codes)[:, :-1]


class Raising(Halves):
    def own(self, codes):
        raise KeyError("mine")


class Stretched(Halves):
    scale = 1.5


def no_context(sites, columns, order):
    raise AssertionError("is not called")


def forgets_to_return(sites, columns, order):
    Window(sites, columns, 3, order)


FEW = "--set patch=4 --set n_components=3"


@pytest.fixture
def here(tmp_path, monkeypatch):
    with h5py.File(tmp_path / "d.h5", "w") as file:
        file["a/images"] = small_images(0, 60, 12, 12)
        file["large/images"] = small_images(1, 30, 16, 16)
        file["float/images"] = small_images(2, 40, 12, 12).astype(np.float32)
        file["dark/images"] = small_images(2, 40, 12, 12).astype(np.float32) / 255
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(words):
    """Return what a command says that ends with an error, and no traceback."""
    done = call(words, "-q")
    assert done.exit_code in (1, 2), (words, done.output, done.exception)
    assert isinstance(done.exception, SystemExit)
    return " ".join(done.output.split())


@pytest.mark.parametrize(
    ("brought", "words", "message"),
    [
        ("encoders wide Wide", "", "Wide makes codes of the shape"),
        ("encoders holed Holed", "", "makes codes that are not finite"),
        ("encoders forgetful Forgetful", "", "has learned gain, but its ARRAYS name none"),
        ("encoders failing Failing", "", "Failing.code failed (ZeroDivisionError("),
        ("encoders complex Complex", "", "makes codes of the type complex128, not of real numbers"),
        ("encoders named Named", "", "has arrays with names that files need: components"),
        (
            "encoders short Short",
            "",
            "has learned gain of the shape (11,), but its ARRAYS say ('atom',), with 8 atoms",
        ),
        ("encoders alone Alone", "", "Alone.learn returned dict; it must return what it has learnt"),
        ("encoders bound Bound", "", "has a learn that is no class method"),
        (
            "encoders loose Loose",
            "",
            "has settings that are not declared with smtdist.settings.setting: twice",
        ),
        ("encoders clash Clash", "", "has settings that the transform has too: context_size"),
        ("contexts halves Halves", "", "factors of the context halves has numbers that are not whole"),
        ("contexts narrow Narrow", "", "factors of the context narrow has the shape"),
        ("contexts raising Raising", "", "The context raising failed (KeyError('mine'))"),
        ("contexts stretched Stretched", "", "has the scale 1.5"),
        ("encoders unfinished Unfinished", "", "does not define code"),
        ("encoders misnaming Misnaming", "", "Misnaming.learn returned gain, which Misnaming has no field"),
        ("contexts empty forgets_to_return", "", "The context empty returned None"),
        ("encoders other Plain", "", "has the NAME 'plain'; give both one name"),
        ("encoders number FEW", "", "no subclass of smtdist.codes.encoder.PatchEncoder"),
        ("encoders plain Plain", "--set twice=maybe", "twice is 'maybe'; it must be true or false"),
        ("encoders plain Plain", "--set dictionary=16.5", "n_atoms is 16.5; it must be a whole number"),
        ("encoders plain Plain", "--set start=foo", "start is 'foo'; it must be one of patches, random"),
        ("contexts mine no_context", "--set positions=9", "takes all positions of an image"),
    ],
)
def test_what_packages_bring(here, monkeypatch, brought, words, message):
    group, name, value = brought.split()
    install(monkeypatch, here, f"smtdist.{group}", name, f"{__name__}:{value}")
    asked = (
        f"--set feature={name}"
        if group == "encoders"
        else f"--set feature=l1 --set rounds=1 --set context={name}"
    )
    size = "" if "dictionary" in words else "--set dictionary=8"
    assert message in refused(f"fit d.h5 --dataset a --out m.h5 {asked} {size} {FEW} {words}")
    assert not (here / "m.h5").exists()


def test_fits_on_a_coder(here):
    run(f"fit d.h5 --dataset a --out a.h5 --set feature=l1 --set dictionary=8 --set rounds=2 {FEW}")
    for command in ("fit", "plan"):
        told = refused(f"{command} d.h5 --dataset large --from-model a.h5 --out b.h5")
        assert "give images like those" in told
    assert "the coder was learned from uint8 ones" in refused("update a.h5 d.h5 --dataset dark")
    told = refused("fit d.h5 --dataset a --model l1 --from-model a.h5 --out b.h5")
    assert "A fit of l1 takes no --from-model; leave it out." in told
    run("fit d.h5 --dataset a --from-model a.h5 --set feature=l1 --set n_components=2 --out b.h5")
    model = smtdist.load("a.h5")
    assert isinstance(model, Manifold)
    smtdist.save(model, "c.h5")
    assert smtdist.refit(smtdist.load("c.h5"), n_components=2).settings.n_components == 2


def test_what_is_seen_before_a_fit_reads(here):
    asked = "fit d.h5 --dataset a --out m.h5 --set patch=4 --checkpoint c"
    told = refused(f"{asked} --set feature=l1 --set dictionary=32")
    assert "n_components + drop_components is 64, but a code has 32 entries" in told
    assert not (here / "c").exists()
    told = refused(f"{asked} --set feature=nope")
    assert "it must be one of gq, vq, l1, s3c, omp, sc, or the name of an encoder" in told
    told = refused(
        f"fit d.h5 --dataset float --out m.h5 --set feature=l1 --set dictionary=8 --set rounds=1 {FEW}"
    )
    assert "pixel_range" in told


class Ragged(SiteKind):
    NAME = "ragged"

    each: int = setting(whole(-5), "rows of a sample.", default=2)

    def rows(self, samples):
        return np.zeros((len(samples), self.each, 3))[: max(1, len(samples) - 1)]

    def operator(self, sites, order):
        return Temporal(order)


def test_kinds_of_samples_that_cannot_be_right(here, monkeypatch):
    np.save("t.npy", np.random.default_rng(0).normal(size=(40, 6)))
    fit = "fit t.npy --model points --set size=5 --set n_components=2 --out p.h5 --set"
    assert 'it must be "rows", or the name of a kind' in refused(f"{fit} sites=ragged")
    install(monkeypatch, here, "smtdist.sites", "ragged", f"{__name__}:Ragged")
    assert "makes rows of the shape" in refused(f"{fit} sites=ragged")
    assert "There is no setting 'other' of ragged; there are each." in refused(
        f"{fit} sites=ragged --set other=3"
    )
    assert "each is 'x'; it must be" in refused(f"{fit} sites=ragged --set each=x")
    assert "cannot make rows of samples of 6 numbers" in refused(f"{fit} sites=ragged --set each=-1")
    assert "define their own neighbours" in refused(f"{fit} sites=ragged --set context=noise")
    assert "There is no setting 'each' of points" in refused(f"{fit} sites=rows --set each=3")
    install(monkeypatch, here, "smtdist.sites", "ragged", f"{__name__}:no_context")
    assert "no subclass of smtdist.models.points.sites.SiteKind" in refused(f"{fit} sites=ragged")
    assert not (here / "p.h5").exists()


@pytest.mark.parametrize(("group", "own"), [("models", "STORED_AS"), ("heads", "KIND")])
def test_what_is_no_model_or_head_of_its_name(group, own, tmp_path, monkeypatch):
    install(monkeypatch, tmp_path, f"smtdist.{group}", "mine", "math:sqrt")
    done = call("settings mine")
    assert done.exit_code == 2
    assert f"The entry point mine of the group smtdist.{group} is <built-in function sqrt>" in done.stderr
    assert f"which has no {own} of that name; fix or uninstall its package" in " ".join(done.stderr.split())
