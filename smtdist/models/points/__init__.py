"""Tables of points, and other samples made of rows, embedded by who is near whom.

Start with `table.py`: settings, and the fit that they ask for. `contexts.py` says who is near whom, `fit.py` has the model and
its sums. `sites.py` is what packages that bring samples of another kind derive from.
"""
