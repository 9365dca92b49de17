"""Words embedded by whom they occur near, from text of any size (SMT 2023, appendix B).

Start with `fit.py`: a pass for the vocabulary, one for the pairs, and a solve; and lines of a text withdrawn, as if they had
never been in it. `model.py` has the settings, the solve, and what may be asked of a model.
"""
