"""Out-of-core, distributed, white-box representation learning with the sparse manifold transform."""

from typing import Any as _Any

from lazy_loader import attach_stub as _attach_stub

# Workers import the package too and need none of its public names: each brings its module with it when it is first used.
_public, __dir__, __all__ = _attach_stub(__name__, __file__)


def __getattr__(name: str) -> _Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("smtdist")
    return _public(name)
