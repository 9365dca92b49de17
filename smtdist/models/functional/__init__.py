"""The sparse manifold transform of video: sequences of patches whose embedding runs straight in time (SMT 2018).

Start with `video.py`: a fit learns a whitening and a dictionary (`fit.py`), sums codes and their differences, and solves;
`sgd.py` may go on from there by mini-batches. A layer can be fitted on the layers below. `inference.py` has the way
back from an embedding, `video_judge.py` says how straight paths run and how well clips are rebuilt.
"""
