"""What all kinds of clusters are started with: packages, the sections of a configuration file, certificates."""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from distributed.security import Security

from smtdist.engine import tls
from smtdist.engine.cluster_choice import ClusterChoice, private_folder
from smtdist.errors import ConfigurationError, SmtdistError, option


def started(kind: str, make: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Start a cluster; what its package raises becomes a sentence."""
    try:
        return make(*arguments, **options)
    except SmtdistError:
        raise
    except TypeError as error:  # a keyword that it does not know
        raise ConfigurationError(
            f"The {kind} cluster cannot be started with this configuration ({error})."
        ) from error
    except Exception as error:
        cause = error.__cause__ or error
        said = " ".join(str(cause).split()) or type(cause).__name__
        raise SmtdistError(f"The {kind} cluster did not start: {said}") from error


def package(module: str, name: str, extra: str) -> Any:
    """Import what a kind of cluster is built on, or say how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise SmtdistError(
            f"{option('cluster', extra)} needs the package {name} ({error}); pip install 'smtdist[{extra}]'."
        ) from error


def sections(choice: ClusterChoice, required: bool = True) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the kind's own section of the configuration file, and the rest as Dask's configuration."""
    if choice.config is None:
        if required and choice.name in ("ssh", "kubernetes"):
            raise ConfigurationError(
                f"{option('cluster', choice.name)} needs {option('config')}; deploy/{choice.name}/ has one to start from."
            )
        return {}, {}
    try:
        content = yaml.safe_load(choice.config.read_text()) or {}
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigurationError(f"{choice.config} is not a readable YAML file ({error}).") from error
    if not isinstance(content, dict):
        raise ConfigurationError(
            f"{choice.config} is not a mapping of keys to values; give Dask's configuration."
        )
    if choice.name == "kubernetes":
        return content, {}
    own = content.pop(choice.name, None) or {}
    if not isinstance(own, dict):
        raise ConfigurationError(f"The section {choice.name} of {choice.config} is not a mapping.")
    return own, dict(_dotted(content))


def _dotted(content: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted key, value), which add to Dask's configuration where a whole section would replace one."""
    for key, value in content.items():
        if isinstance(value, dict) and value:
            yield from _dotted(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def as_environment(configuration: dict[str, Any]) -> dict[str, str]:
    """Return variables that bring Dask's configuration to a process elsewhere; what holds lines (a key) stays here."""
    return {
        f"DASK_{key.replace('.', '__').replace('-', '_').upper()}": repr(value)
        for key, value in configuration.items()
        if key.startswith("distributed.") and "\n" not in str(value)
    }


def security_of(choice: ClusterChoice, roles: Sequence[str] = tls.ROLES) -> Security | None:
    """Return the certificates of `choice.tls`, else those of Dask's configuration, else None."""
    if choice.tls is not None:
        return tls.security_from(choice.tls, roles)
    found = Security()
    named = [getattr(found, f"tls_{role}_cert") for role in roles]
    return found if found.tls_ca_file and all(named) else None


@contextmanager
def certificates_of(choice: ClusterChoice, shared: Path) -> Iterator[Security | None]:
    """Yield the certificates there are, else some for this run alone, in a private folder that is removed at its end."""
    found = security_of(choice)
    if found is not None or choice.insecure:
        yield found
        return
    folder = private_folder(shared.expanduser().absolute())
    try:
        yield tls.security_from(tls.create(folder, days=30), tls.ROLES)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
