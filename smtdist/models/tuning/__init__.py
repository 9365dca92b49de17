"""Settings of a fit of images chosen by trying them, together: what the combinations of a grid share is computed once.

Start with `tune.py`. `grid.py` says which combinations there are, `split.py` holds samples out. `shared.py` fits all of them with
as few passes, sums and solves as the mathematics lets them share, `scores.py` judges them from one encoding of the images.
"""
