"""Runs in the background: start one, watch it, stop it, take its result."""

from __future__ import annotations

import contextvars
import threading
from typing import Any, Final

from smtdist.engine.events import Event
from smtdist.engine.executor import StopRequest
from smtdist.engine.passes import WATCHERS, Engine
from smtdist.errors import ConfigurationError, InterruptedRun
from smtdist.monitor.previewer import SHARE, Previewer
from smtdist.monitor.view import View

METHODS: Final = ("fit", "partial_fit", "withdraw", "fit_transform", "transform")


class Run(View):
    """A run that goes on in a thread of this process, while the notebook or program goes on too.

    `progress()` says how it is doing, `cancel()` asks it to stop at its next batch or task, `result()`
    waits for what the method returns, or raises what it raised. In a notebook, the value of a cell shows it
    live.
    """

    can_cancel = True

    def __init__(
        self, function: Any, arguments: tuple[Any, ...], options: dict[str, Any], previews: float
    ) -> None:
        super().__init__()
        self._stop, self._previews = StopRequest(), previews
        self._value: Any = None
        self._error: BaseException | None = None
        self._engines: list[Engine] = []
        context = contextvars.copy_context()
        self._thread = threading.Thread(
            target=context.run,
            args=(self._work, function, arguments, options),
            name="smtdist-run",
            daemon=True,
        )
        self._thread.start()

    def _work(self, function: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        WATCHERS.set((*WATCHERS.get(), self._adopt))
        try:
            self._value = function(*arguments, **options)
            self._tell("run_finished")
        except BaseException as error:
            self._error = error
            self._tell("run_failed", text=str(error), stopped=isinstance(error, InterruptedRun))

    def _tell(self, kind: str, **fields: Any) -> None:
        """Say how it ended, where the models have not."""
        if self._engines and not self._state.ended:
            self._stop = StopRequest()  # the last word is not to be interrupted
            self._engines[-1].stop = self._stop
            self._engines[-1].events.emit(kind, **fields)
        elif not self._engines:
            self.take({"kind": kind, **fields})

    def _adopt(self, engine: Engine) -> None:
        """Watch an engine that the method has made."""
        self._engines.append(engine)
        folder, cluster = engine.checkpoint, engine.executor.cluster
        self.where = str(folder) if folder is not None else "" if cluster is None else cluster.address
        engine.stop = self._stop
        engine.events.subscribe(self.take)
        if self._previews > 0:
            engine.events.subscribe(Previewer(engine, self._previews))

        def heed(event: Event) -> None:
            if threading.current_thread() is self._thread:
                engine.heed_stop()

        engine.events.subscribe(heed)  # the last: it may raise

    @property
    def over(self) -> bool:
        """Tell whether nothing more will come."""
        return self.done() and self.status != "running"

    def done(self) -> bool:
        """Tell whether it is over, one way or another."""
        return not self._thread.is_alive()

    def cancel(self) -> None:
        """Ask it to stop; with a checkpoint folder what is done is kept, and the same call goes on from there."""
        self._stop.set()

    def result(self, timeout: float | None = None) -> Any:
        """Wait for what the method returns, such as the fitted estimator; raise what it raised.

        Raises TimeoutError after `timeout` seconds (the run goes on) and InterruptedRun after `cancel()`.
        """
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise TimeoutError(f"The run has not ended after {timeout} seconds; it continues.")
        if self._error is not None:
            raise self._error
        return self._value


def start(
    estimator: Any, X: Any, y: Any = None, *, method: str = "fit", previews: float = SHARE, **options: Any
) -> Run:
    """Call a method of an estimator in the background and return a `Run` to watch it by.

    `result()` returns the result of the method, so `start(smt, X).result()` is the same as `smt.fit(X)`,
    bit for bit. The estimator is fitted when the run ends, not before. For `SMT`, `smt.fit(X, block=False)`
    is the same. `start` works for all estimators and methods.

    `method` is one of fit, partial_fit, withdraw, transform, fit_transform. `previews` is the share of the
    run's time that previews may take (0: none). Works with every estimator of the package.

    >>> import numpy as np, smtdist
    >>> images = np.random.default_rng(0).integers(0, 256, (40, 8, 8), dtype=np.uint8)
    >>> run = smtdist.start(smtdist.SMT(patch_size=3, code="vq", n_atoms=16, n_components=4), images)
    >>> run.result().components_.shape, run.status
    ((4, 16), 'finished')
    """
    if method not in METHODS or not hasattr(estimator, method):
        known = [name for name in METHODS if hasattr(estimator, name)]
        raise ConfigurationError(
            f"{type(estimator).__name__} has no method {method!r} to run; choose one of {', '.join(known)}."
        )
    arguments = (X,) if y is None else (X, y)
    return Run(getattr(estimator, method), arguments, options, previews)
