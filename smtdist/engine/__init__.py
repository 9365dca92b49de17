"""One run over data that memory cannot hold, on any number of machines: every sample counted exactly once.

Start with `passes.py`: an `Engine` has the steps of a run (`reduce` a statistic over a source, `loop`, `map`, `solve`), and all
else is below it. A pass is planned first (`plan.py`: leaves, tasks, memory). Its driver (`reduction.py`) hands tasks to an
executor, and `worker.py` is what they do. Partial sums name the leaves they cover (`partial.py`); those of floating-point
numbers meet along a fixed tree (`tree.py`). An executor is this process (`executor.py`) or a Dask cluster
(`dask_executor.py`; `session.py` and `clusters.py` start one of any kind). Checkpoints are `checkpoint.py`,
`manifest.py` and `folder.py`. What happens is told as events (`events.py`), which views read.
"""
