"""Words on real text: the source against gzip itself, counts against the oracle, and what is near what."""

import gzip

import numpy as np
import words.reference_words as oracle
from executors import engine

from smtdist.data.text import TextSource
from smtdist.models.words.fit import fit_words
from smtdist.models.words.model import WordSettings


def test_any_block_of_a_gzipped_corpus_is_entered_by_itself(real_data):
    path = real_data("text/corpus.txt.gz")
    source = TextSource.open(path)
    with gzip.open(path) as file:
        text = file.read()
    assert source.text_bytes == len(text)
    with source.opened() as reader:
        for start in (2000, 17, source.n_samples - 3, 0):
            rows = reader.read(start, start + 3).reshape(3, -1)
            blocks = [row.tobytes().rstrip(b"\0") for row in rows]
            at = text.find(b"".join(blocks))
            assert at >= 0
            assert at == 0 or text[at - 1 : at] == b"\n"
            assert abs(at - start * 2**14) < 2**14


def test_counts_of_real_text_are_those_of_the_oracle(real_data):
    path = real_data("text/wikitext2_valid.txt")
    text = path.read_text(encoding="utf-8")
    settings = WordSettings(vocabulary=500, window=4, n_components=20, moment="degree", max_words=2**16)
    model, _ = fit_words(TextSource.open(path), settings, engine())
    words, counts = oracle.vocabulary([text], 500)
    assert list(model.vocabulary.words) == words
    np.testing.assert_array_equal(model.vocabulary.counts, counts)
    number = {word: at for at, word in enumerate(words)}
    near = np.zeros((500, 500), np.int64)
    for line in oracle.tokens(text):
        found = [number.get(token, -1) for token in line]
        for place, word in enumerate(found):
            for other in found[place + 1 : place + 5]:
                if word >= 0 and other >= 0:
                    near[word, other] += 1
    np.testing.assert_array_equal(model.statistics.cooccurrence().toarray(), near + near.T)
    months = "january february march april may june july august september october"
    nearest = [one.word for one in model.nearest("october", 10)]
    beside = [one.word for one in model.most_cooccurring("october", 10)]
    assert len(set(months.split()).intersection(nearest)) > len(set(months.split()).intersection(beside))
