"""Binary concepts: a table's kernel explained by which of its points share which concept, S in {0, 1}^(p x b).

Start with `fit.py`, from a table to concepts, and `settings.py`, what may be asked. Every search reads the scores of `scores.py`
in place of the table. The searches are the paper's algorithms: `sampling.py` (1, with `iteration.py`), `descent.py` (2, with
`rows.py` and, for few points, `few_points.py`) and `relaxation.py` (3). `objective.py` says
what they minimise, `state.py` holds S and its sums. `model.py` is what a search leaves; `reading.py`, `analogram.py` and
`drawing.py` are what can be read from it.
"""
