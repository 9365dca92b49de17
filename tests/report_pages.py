"""Reports of small files of every kind, and a reader of their pages."""

import html.parser
import json
import re

import h5py
import numpy as np
from arrays_in_files import write_labelled
from calling import run, sets
from drawing import small_images
from functional_clips import make_clips

SETTINGS = sets(patch=3, dictionary=20, n_components=5, pool_size=2, threshold=0.4)
# elements of HTML that have no end
VOID = {"meta", "img", "source", "link", "br", "hr", "input"}


class Page(html.parser.HTMLParser):
    """Reads a page: tables by caption, pictures, addresses, and whether every element ends."""

    def __init__(self, text):
        super().__init__()
        self.tables, self.images, self.addresses, self.headings = {}, [], [], []
        self.sources, self.open, self.ids = [], [], []
        self.facts = self.row = self.caption = self.cell = None
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if tag not in VOID:
            self.open.append((tag, attrs))
        self.addresses += [attrs[name] for name in ("src", "href", "srcset", "action") if name in attrs]
        self.ids += [attrs["id"]] if "id" in attrs else []
        if tag == "source":
            self.sources.append(attrs)
        if tag == "img":
            self.images.append(attrs)
        if tag == "tr":
            self.row = []
        if tag in ("td", "th", "caption"):
            self.cell = ""

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag
        if tag == "caption":
            self.caption, self.cell = self.cell, None
            assert self.caption not in self.tables
            self.tables[self.caption] = []
        if tag in ("td", "th"):
            self.row.append(self.cell)
            self.cell = None
        if tag == "tr":
            self.tables[self.caption].append(self.row)

    def handle_data(self, data):
        if self.cell is not None:
            self.cell += data
        tag, attrs = self.open[-1] if self.open else ("", {})
        if attrs.get("id") == "facts":
            self.facts = json.loads(data)
        if tag in ("h1", "h2"):
            self.headings.append((tag, data))


def make_files(folder):
    """Write a file of every kind to a folder, each by its command."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 120)
    images = small_images(0, 120, 9, 8)
    images[labels == 1, :4] //= 3
    with h5py.File(folder / "data.h5", "w") as file:
        for group, rows in (("train", slice(0, 90)), ("test", slice(90, 120))):
            file[f"{group}/images"], file[f"{group}/labels"] = images[rows], labels[rows]
            file[group].attrs["classes"] = ["<plain>", "darker & cut", "third"]
    words = [f"w{number}" for number in rng.integers(0, 20, 900)]
    (folder / "text.txt").write_text("\n".join(" ".join(words[at : at + 30]) for at in range(0, 900, 30)))
    model, data, images = (
        folder / "model <b>.h5",
        folder / "data.h5",
        "--dataset train/images --quiet --out",
    )
    (folder / "fit.json").write_text(run("fit", data, images, model, SETTINGS, "--json"))
    run("words", folder / "text.txt", "--vocabulary 15 --components 4 --quiet --out", folder / "words.h5")
    run("transform", model, data, images, folder / "z.h5")
    run("concepts", folder / "z.h5", "--dataset z --n-concepts 4 --quiet --out", folder / "concepts.h5")
    small = sets(units=8, patch=3, rounds=2, images=60)
    run("fit --model l1", data, images, folder / "sparse.h5", small)
    digits = sets(feature="vq", context=2, drop=1, constant_patch="activate_best")
    run("fit", data, images, folder / "digits.h5", SETTINGS, digits)
    colour = small_images(0, 90, 9, 8, 3)
    write_labelled(folder / "colour-data.h5", colour, np.arange(90) % 2, {"train": 60, "test": 30})
    natural = sets(flip=True, drop=2, mirrored_votes=True)
    run("fit", folder / "colour-data.h5", images, folder / "colour.h5", SETTINGS, natural)
    run("fit --model kernel-contrastive --set n_components=3", data, images, folder / "kernel.h5")
    moving = sets(patch=6, length=4, places=4, atoms=24, rounds=2, batch=60, n_components=4)
    clips = make_clips(folder / "clips.h5")
    run("fit --model video --quiet", clips, "--out", folder / "video.h5", moving)


def page_of(at, name, *options):
    out = at / f"{name.split('.')[0]}.html"
    run("report", at / name, "--out", out, "--overwrite", *options)
    text = out.read_text()
    assert out.stat().st_size < 15e6
    return text, Page(text)


def assert_complete(text, page):
    """Nothing is fetched from anywhere, pictures have words, places exist once, headings are in order."""
    assert all(address.startswith(("data:image/png;base64,", "#")) for address in page.addresses)
    assert {attrs["media"] for attrs in page.sources} <= {"screen and (prefers-color-scheme: dark)"}
    assert not re.search(r"url\(|@import|<link", text)
    assert all(len(image["alt"]) > 10 for image in page.images)
    assert len(page.ids) == len(set(page.ids))
    assert {address[1:] for address in page.addresses if address.startswith("#")} <= set(page.ids)
    assert [tag for tag, _ in page.headings].count("h1") == 1
    assert page.headings[0][0] == "h1"
