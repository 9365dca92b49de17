"""Which cluster a run uses, as a person says it, and what may not be said: plain data, checked without Dask."""

from __future__ import annotations

import difflib
import ipaddress
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

from smtdist.errors import ConfigurationError, option


class Queue(NamedTuple):
    """A batch queue: its name, dask-jobqueue's class for it, the command that submits, words that show a job, and words that
    ask whether it would take one.
    """

    name: str
    cluster: str
    submit: str
    showing: str
    asking: tuple[str, ...] = ()


QUEUES = {
    "slurm": Queue(
        "SLURM", "SLURMCluster", "sbatch", "squeue --noheader --jobs", ("sbatch", "--test-only")
    ),
    "pbs": Queue("PBS", "PBSCluster", "qsub", "qstat -f"),
    "sge": Queue("Grid Engine", "SGECluster", "qsub", "qstat -j"),
    "lsf": Queue("LSF", "LSFCluster", "bsub", "bjobs -noheader -o stat"),
    "oar": Queue("OAR", "OARCluster", "oarsub", "oarstat -fj"),
    "moab": Queue("Moab", "MoabCluster", "msub", "checkjob"),
}
"""Batch queues, whose jobs are workers."""
KINDS = ("local", *QUEUES, "ssh", "kubernetes", "cuda")
ENCRYPTED = ("tls", "wss")
SCALING = ("local", *QUEUES, "kubernetes")
"""Kinds whose number of workers can follow the work."""


@dataclass(frozen=True)
class ClusterChoice:
    """A kind of cluster or a scheduler's address, and how to start or reach it.

    `config` is a YAML file (Dask's own configuration, with a section of the kind's keywords; a DaskCluster
    resource for kubernetes), `tls` a folder of `smtdist tls init`, `insecure` accepts connections without
    encryption that leave this machine, `max_workers` lets the number of workers grow from `workers` on
    while there is work, and `memory` is what each worker of this machine may use, in bytes.

    >>> ClusterChoice("slurm", config=Path("site.yaml")).is_address
    False
    >>> ClusterChoice("tls://node7:8786").is_address
    True
    """

    name: str = "local"
    config: Path | None = None
    tls: Path | None = None
    insecure: bool = False
    max_workers: int | None = None
    memory: int | None = None

    @property
    def is_address(self) -> bool:
        """Tell a scheduler's address from a kind."""
        return ":" in self.name

    @property
    def is_local(self) -> bool:
        """Tell whether the work is done by processes of this machine alone, as many as we choose."""
        return self.name == "local"

    def checked(self) -> Self:
        """Return the choice, or say what cannot be meant."""
        if self.name not in KINDS and not self.is_address:
            near = difflib.get_close_matches(self.name, KINDS, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; give {', '.join(KINDS)}, or an address."
            raise ConfigurationError(f"{self.name!r} is not a kind of cluster{hint}")
        if self.max_workers is not None and self.name not in SCALING:
            raise ConfigurationError(
                f"The number of workers follows the work with {', '.join(SCALING)} only, not with {self.name}; "
                f"leave {option('max_workers')} out."
            )
        if self.memory is not None and not self.is_local:
            raise ConfigurationError(
                f"{option('memory')} is for workers of this machine, and those of {self.name} have what their cluster gives "
                f"them; leave it out, or give it in {option('config')}."
            )
        if self.config is not None and not self.config.is_file():
            raise ConfigurationError(
                f"There is no file {self.config} with a cluster's configuration; check the name."
            )
        if self.tls is not None and not self.tls.is_dir():
            raise ConfigurationError(f"There is no folder {self.tls}; make it with `smtdist tls init`.")
        if self.tls is not None and self.insecure:
            raise ConfigurationError(
                f"{option('tls')} asks for encryption and {option('insecure', True)} does without; give one of them."
            )
        return self


def is_loopback(host: str) -> bool:
    """Tell whether a host's every address is of this machine's loopback interface.

    >>> is_loopback("127.0.0.1"), is_loopback("[::1]"), is_loopback("192.0.2.1"), is_loopback("")
    (True, True, False, False)
    """
    try:
        found = socket.getaddrinfo(host.strip("[]") or "0.0.0.0", None)
    except OSError:
        return False
    return all(ipaddress.ip_address(str(entry[4][0]).split("%")[0]).is_loopback for entry in found)


def refuse_open(choice: ClusterChoice, what: str, remedy: str) -> None:
    """Refuse connections that leave this machine without encryption, unless they were asked for."""
    if not choice.insecure:
        raise ConfigurationError(
            f"{what}: anyone on the network could read the data and run code on all machines; {remedy}, "
            f"or accept that with {option('insecure', True)}."
        )
