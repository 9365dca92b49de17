"""Text in files: blocks of whole paragraphs from the bytes alone, plain or gzipped, one file or many."""

import gzip
import pickle
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smtdist.data import text as module
from smtdist.data.fingerprint import sample_digests
from smtdist.data.text import BLOCK, REACH, WIDTH, TextSource
from smtdist.errors import DataError
from smtdist.models.words.estimator import WordSMT

law = settings(deadline=None, max_examples=25)


def rows_of(source, step=None):
    step = step or source.n_samples
    with source.opened() as reader:
        parts = [
            reader.read(at, min(at + step, source.n_samples)).reshape(-1, WIDTH)
            for at in range(0, source.n_samples, step)
        ]
        assert reader.read_bytes == source.text_bytes
    return np.concatenate(parts)


def texts_of(source, step=None):
    return [row.tobytes().rstrip(b"\0") for row in rows_of(source, step)]


def paragraphs(seed, n, longest=2000):
    draw = np.random.default_rng(seed)
    return [b"%d " % at + b"word \xc3\xa9 " * int(draw.integers(0, longest // 8)) for at in range(n)]


@law
@given(st.integers(0, 999), st.integers(1, 60), st.integers(1, 5), st.booleans())
def test_blocks_hold_every_byte_once_and_cut_no_paragraph(tmp_path_factory, seed, n, step, ended):
    text = b"\n".join(paragraphs(seed, n)) + (b"\n" if ended else b"")
    path = tmp_path_factory.mktemp("text") / "a.txt"
    path.write_bytes(text)
    source = TextSource.open(path)
    blocks = texts_of(source, step)
    assert b"".join(blocks) == text
    assert len(blocks) == -(-len(text) // BLOCK)
    filled = [block for block in blocks if block]
    assert all(block.endswith(b"\n") for block in filled[:-1])
    assert blocks == texts_of(source)


@pytest.mark.parametrize("members", [1, 3])
def test_gzip_has_the_blocks_of_the_plain_text(tmp_path, members, monkeypatch):
    monkeypatch.setattr("smtdist.data.text.SPACING", 2**16)
    text = b"\n".join(paragraphs(1, 400))
    plain, packed = tmp_path / "a.txt", tmp_path / "a.gz"
    plain.write_bytes(text)
    cuts = np.linspace(0, len(text), members + 1).astype(int)  # members may end anywhere
    packed.write_bytes(b"".join(gzip.compress(text[a:b]) for a, b in pairwise(cuts)))
    one, other = TextSource.open(plain), pickle.loads(pickle.dumps(TextSource.open(packed)))
    np.testing.assert_array_equal(rows_of(one), rows_of(other, 3))
    with other.opened() as reader:  # backwards, as tasks may come
        last = reader.read(other.n_samples - 1, other.n_samples)
        first = reader.read(0, 1)
    np.testing.assert_array_equal(np.concatenate([first, last]).reshape(2, -1), rows_of(one)[[0, -1]])


def test_a_file_has_the_same_blocks_wherever_it_is_given(tmp_path):
    for number in range(3):
        (tmp_path / f"{number}.txt").write_bytes(b"\n".join(paragraphs(number, 50)))
    (tmp_path / "empty.txt").write_bytes(b"")
    names = [tmp_path / name for name in ("0.txt", "empty.txt", "1.txt", "2.txt")]
    together = rows_of(TextSource.open(names), 2)
    apart = np.concatenate([rows_of(TextSource.open(name)) for name in names if name.stem != "empty"])
    np.testing.assert_array_equal(together, apart)
    assert len(np.unique(sample_digests(together))) == len(together)
    assert TextSource.open(names).name.endswith("0.txt and 2 more files")


def test_a_paragraph_longer_than_the_reach_is_cut_after_white_space(tmp_path):
    path = tmp_path / "long.txt"
    path.write_bytes(b"abc " * (2 * BLOCK) + b"\nend")
    blocks = texts_of(TextSource.open(path))
    assert b"".join(blocks) == path.read_bytes()
    assert all(block[-1:] in b" \n" for block in blocks[:-1])
    path.write_bytes("é".encode() * (BLOCK + REACH))
    blocks = texts_of(TextSource.open(path))
    assert "".join(block.decode() for block in blocks) == "é" * (BLOCK + REACH)


def refused(make, *said):
    with pytest.raises(DataError) as caught:
        make()
    message = str(caught.value)
    assert message.count(". ") == 0
    assert all(part in message for part in said)


def test_what_cannot_be_read_is_said(tmp_path):
    path = tmp_path / "a.txt"
    refused(lambda: TextSource.open(path), "a.txt", "does not exist")
    path.write_bytes(b"")
    refused(lambda: TextSource.open(path), "holds no text")
    refused(lambda: TextSource.open([]), "No text")
    for X in ("a cat\nsat", [path, "a cat sat"], [["a", "cat", "sat"]]):
        refused(partial(WordSMT().fit, X), "sat", 'text itself to a WordSMT with input="content"')
    path.write_bytes(b"fine\n" * 5000 + b"not \xff\n")
    refused(lambda: rows_of(TextSource.open(path)), "byte 25004", "0xff", "UTF-8")
    source = TextSource.open(path)
    path.write_bytes(b"fine\n")
    refused(lambda: rows_of(source), "now has 5 bytes", "25,006")


def test_damaged_gzip_is_refused(tmp_path):
    path = tmp_path / "a.gz"
    packed = gzip.compress(b"\n".join(paragraphs(3, 200)))
    broken = bytearray(packed)
    broken[len(packed) // 2] ^= 0xFF
    cut = packed[:-20], packed[: len(packed) // 2], packed + packed[:-3]
    for damaged in (*cut, b"\x1f\x8bnot gzip at all", bytes(broken)):
        path.write_bytes(damaged)
        refused(lambda: TextSource.open(path), "a.gz")


def test_the_index_does_not_grow_without_bound(monkeypatch, tmp_path):
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(np.random.default_rng(0).integers(97, 122, 2**21, np.uint8).tobytes()))
    monkeypatch.setattr("smtdist.data.text.SPACING", 1)
    monkeypatch.setattr("smtdist.data.text.MOST_ENTRIES", 16)
    (file,) = TextSource.open(path).files
    assert file.size == 2**21
    assert len(file.index.data) < 18 * 2**15
    assert module.WINDOW_BYTES == 2**15
