"""Fitted models: what is summed of which data, what is solved, and what the result can do.

Start with `fit.py`, from images to a model in four passes, and `model.py`, what it leaves. `summing.py` and `solving.py` are its
two long steps. `merge.py` adds, withdraws and solves again any `Transform`, the base of them all; `transform.py` makes
representations with any `ImageTransform` (`readout.py`). Other samples and codes have folders of their own: `coders/`
(learned codes of patches), `words/`, `points/`, `functional/` (video) and `kernel/` (losses in a kernel's space). `smt.py` and
`estimating.py` make estimators of scikit-learn of all of them. `rows.py` is what models of rows share, `summed.py` what packages
derive models of their own from. `planning.py` is the plan of a fit before it starts, `tuning/`
chooses settings by trying them. Dask is not imported here: models ask an `Engine`.
"""
