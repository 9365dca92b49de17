"""What is summed over samples: each statistic declares its arrays and how a batch is added to them.

Start with `base.py`: a `Statistic` has a `layout` (names, shapes and types of its sums) and `update`, and any engine can compute
it in pieces. `cooccurrence.py` has the sums that transforms of images with binary codes are solved from, `values.py` those of
codes that are values (with the rows of `sites.py` and the differences of `operators.py`), `word_pairs.py` those of words.
`sums.py` has sums that are finished: they add and subtract, exactly, as far as their origin (`origin.py`) says they may. Where
they are computed, nothing here knows.
"""
