"""A CuPy without a device, as far as smtdist uses it: arrays are NumPy's, but of a type that refuses to meet those.

Streams write down what they are asked for, in `log`. What they do happens when somebody waits for it, at the latest moment a
device might, so that whoever overwrites a buffer too early sees it; with `prompt` the stream that works does all at once
and only copies are late, so that whoever works too early sees that.
"""

import ctypes
import itertools
import sys
import types

import numpy as np
import pytest
import scipy.linalg

from smtdist.kernels.gpu import card


class Pointer:
    def __init__(self, address):
        self.ptr = address


class DeviceArray(np.ndarray):
    """An array "on the device": no function takes it together with an array of the host."""

    @property
    def data(self):
        return Pointer(self.ctypes.data)

    def set(self, values, stream=None):
        assert isinstance(values, np.ndarray)
        assert not isinstance(values, DeviceArray)
        assert self.dtype == values.dtype
        assert self.shape == values.shape
        (stream or MODULE.cuda.get_current_stream()).ask("copy", lambda: np.copyto(plain(self), values))

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **options):
        require_device((*inputs, *(out or ())))
        if out is not None:
            options["out"] = tuple(map(plain, out))
        result = getattr(ufunc, method)(*map(plain, inputs), **options)
        return out[0] if out is not None else wrapped(result)

    def __array_function__(self, function, kinds, args, options):
        return call(function, args, options)


def plain(value):
    if isinstance(value, DeviceArray):
        return value.view(np.ndarray)
    return type(value)(map(plain, value)) if isinstance(value, tuple | list) else value


def wrapped(value):
    if isinstance(value, tuple | list):
        return type(value)(map(wrapped, value))
    return np.asarray(value).view(DeviceArray) if isinstance(value, np.ndarray | np.generic) else value


def require_device(values):
    for value in values:
        if isinstance(value, tuple | list):
            require_device(value)
        elif isinstance(value, np.ndarray) and not isinstance(value, DeviceArray):
            raise TypeError("Unsupported type <class 'numpy.ndarray'>")


def call(function, args, options):
    require_device((*args, *options.values()))
    plain_options = {name: plain(value) for name, value in options.items()}
    return wrapped(function(*map(plain, args), **plain_options))


class Stream:
    """Work in order; `done` of it has happened, the rest happens when somebody waits."""

    def __init__(self, null=False, non_blocking=False, ptds=False, priority=None):
        self.name = "null" if null else f"stream{next(MODULE.numbers)}"
        self.work = []

    def ask(self, what, effect=lambda: None):
        MODULE.log.append((self.name, what))
        self.work.append(effect)
        if MODULE.prompt and self.name == "null":
            self.happen(len(self.work))

    def __enter__(self):
        MODULE.current.append(self)
        return self

    def __exit__(self, *_):
        assert MODULE.current.pop() is self

    def record(self, event=None):
        event = event or Event()
        event.record(self)
        return event

    def wait_event(self, event):
        self.ask(f"wait {event.name}", event.happen)

    def happen(self, count):
        work, self.work = self.work[:count], self.work[count:]
        for effect in work:
            effect()

    def synchronize(self):
        MODULE.log.append(("host", f"wait {self.name}"))
        self.happen(len(self.work))


class Event:
    def __init__(self, block=False, disable_timing=False, interprocess=False):
        self.name = f"event{next(MODULE.numbers)}"
        self.mark = None

    def record(self, stream=None):
        stream = stream or MODULE.cuda.get_current_stream()
        mark = [False]

        def reached():
            mark[0] = True

        stream.ask(f"record {self.name}", reached)
        self.mark, self.stream = mark, stream

    def happen(self):
        """What was asked for before the event was recorded last has happened."""
        while self.mark is not None and not self.mark[0]:
            assert self.stream.work, "an event that never comes"
            self.stream.happen(1)

    def synchronize(self):
        MODULE.log.append(("host", f"wait {self.name}"))
        self.happen()


def aligned_empty(shape, dtype=np.float64, order="C"):
    """Memory as CuPy's pool gives it, at multiples of 512 bytes."""
    if order == "F":
        return aligned_empty(shape[::-1], dtype).T
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    room = np.empty(size + 512, np.uint8)
    start = -room.ctypes.data % 512
    return room[start : start + size].view(dtype).reshape(shape).view(DeviceArray)


def zeros(shape, dtype=np.float64):
    made = aligned_empty(shape, dtype)
    plain(made)[...] = 0
    return made


class Pool:
    """CuPy's pool of memory, in which nothing lies; `limits` are those that were set."""

    def __init__(self):
        self.limits, self.idle, self.used = [0], 0, 0

    def free_bytes(self):
        return self.idle

    def used_bytes(self):
        return self.used

    def get_limit(self):
        return self.limits[-1]

    def set_limit(self, size):
        self.limits.append(size)

    def free_all_blocks(self):
        self.idle = 0


class FakeCupy(types.ModuleType):
    """NumPy's names, for arrays of the device alone."""

    ndarray = DeviceArray

    def __init__(self, devices=1, capability="90", prompt=False, attributes=()):
        super().__init__("cupy")
        self.log, self.numbers, self.current, self.prompt = [], itertools.count(), [], prompt
        self.empty, self.zeros = aligned_empty, zeros
        self.pool = Pool()
        self.get_default_memory_pool = lambda: self.pool
        self.linalg = types.SimpleNamespace(
            cholesky=quiet_cholesky,
            norm=np.linalg.norm,
            eigh=lambda x: call(lambda plain_x: tuple(np.linalg.eigh(plain_x)), (x,), {}),
            qr=lambda x: call(lambda plain_x: tuple(np.linalg.qr(plain_x)), (x,), {}),
        )
        self.cuda = types.SimpleNamespace(
            runtime=types.SimpleNamespace(
                getDeviceCount=lambda: devices,
                getDevice=lambda: 0,
                deviceGetAttribute=lambda which, number: dict(attributes).get(which, 0),
                driverGetVersion=lambda: 12040,
                runtimeGetVersion=lambda: 13000,
                getDeviceProperties=lambda number: {"name": b"A card of straw"},
                memGetInfo=lambda: (1 << 36, 1 << 37),
            ),
            Device=lambda: types.SimpleNamespace(compute_capability=capability, id=0),
            Stream=Stream,
            Event=Event,
            get_current_stream=self.current_stream,
            alloc_pinned_memory=self.pinned,
        )

    def start(self):
        self.current.append(Stream(null=True))

    def current_stream(self):
        return self.current[-1]

    def pinned(self, size):
        self.log.append(("host", f"pin {size}"))
        return (ctypes.c_char * size)()

    def asarray(self, x, dtype=None):
        if isinstance(x, DeviceArray) and dtype in (None, x.dtype):
            return x
        return np.array(plain(x), dtype).view(DeviceArray)

    def asnumpy(self, x):
        return np.array(plain(x))

    def __getattr__(self, name):
        found = getattr(np, name)
        if isinstance(found, type) or not callable(found):
            return found
        return lambda *args, **options: call(found, args, options)


def quiet_cholesky(matrix):
    """As CuPy's: a matrix without a factor is no error, but gives what is not a number."""
    require_device([matrix])
    try:
        return wrapped(np.linalg.cholesky(plain(matrix)))
    except np.linalg.LinAlgError:
        return wrapped(np.full(matrix.shape, np.nan))


CUPYX = types.SimpleNamespace(
    solve_triangular=lambda a, b, **options: call(scipy.linalg.solve_triangular, (a, b), options)
)
MODULE = None


@pytest.fixture
def fake_cupy(monkeypatch, emulated):
    """A machine with a card, as far as smtdist can tell; kernels are those of the source."""
    del emulated
    return install(monkeypatch, prompt=True)


def install(monkeypatch, **options):
    global MODULE
    MODULE = FakeCupy(**options)
    MODULE.start()
    monkeypatch.setattr(card, "_why", {})
    monkeypatch.setitem(sys.modules, "cupy", MODULE)
    monkeypatch.setitem(sys.modules, "cupyx.scipy.linalg", CUPYX)
    return MODULE
