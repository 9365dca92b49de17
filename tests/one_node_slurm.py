"""A SLURM of one node, this machine: munged, slurmctld and slurmd on ports and in a folder of their own."""

import contextlib
import os
import shutil
import socket
import subprocess

from deploying import daemon, environment, free_port, until

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scancel", "squeue", "sinfo")
CPUS, MEMORY = 32, 64000
"""More than there are: jobs of the tests share what there is (config_overrides)."""

CONFIGURATION = """
ClusterName=tests
SlurmctldHost={host}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
SlurmctldPort={controller_port}
SlurmdPort={node_port}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
MpiDefault=none
ReturnToService=2
SwitchType=switch/none
KillWait=5
SchedulerParameters=sched_interval=1,batch_sched_delay=0
GresTypes=gpu
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory={memory} Gres=gpu:1 State=UNKNOWN
PartitionName=gpu Nodes={host} MaxTime=INFINITE State=UP
PartitionName=short Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def missing():
    """Return why there can be no SLURM here, or None."""
    if os.geteuid() != 0:
        return "slurmd and munged of one's own need root"
    absent = [name for name in PROGRAMS if shutil.which(name, path=_path()) is None]
    return f"no {', '.join(absent)}: apt-get install slurm-wlm munge" if absent else None


def _path():
    return os.pathsep.join(["/usr/sbin", os.environ.get("PATH", "")])


class Slurm:
    """The user's side: commands with the right configuration."""

    def __init__(self, configuration):
        self.environment = environment(SLURM_CONF=str(configuration))

    def __call__(self, *command, input=None):
        done = subprocess.run(
            command, env=self.environment, input=input, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout

    def jobs(self, name=None, state="RUNNING"):
        """Return the numbers of the jobs in a state, by the name they were given."""
        lines = self("squeue", "--noheader", f"--states={state}", "--format=%i %j").splitlines()
        return [line.split()[0] for line in lines if name in (None, line.split()[1])]


@contextlib.contextmanager
def one_node_slurm(folder):
    """Start the three daemons, wait until the node is idle, and end them with every job."""
    host = socket.gethostname().split(".")[0]
    for name in ("state", "spool"):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o600)
    configuration = folder / "slurm.conf"
    configuration.write_text(
        CONFIGURATION.format(
            host=host,
            folder=folder,
            controller_port=free_port(),
            node_port=free_port(),
            cpus=CPUS,
            memory=MEMORY,
        )
    )
    (folder / "gres.conf").write_text(f"NodeName={host} Name=gpu File=/dev/null\n")  # in the books only
    slurm = Slurm(configuration)
    here = {"env": {**slurm.environment, "PATH": _path()}}
    munge = ["munged", "--foreground", "--force", f"--key-file={key}", f"--socket={folder}/munge.socket"]
    munge += [f"--{kind}-file={folder}/munge.{kind}" for kind in ("pid", "log", "seed")]
    with (
        daemon(munge, folder / "munged.log", **here),
        daemon(["slurmctld", "-D", "-f", configuration], folder / "slurmctld.log", **here),
        daemon(["slurmd", "-D", "-f", configuration], folder / "slurmd.log", **here),
    ):

        def idle():
            with contextlib.suppress(AssertionError):
                return "idle" in slurm("sinfo", "--noheader", "--format=%T")
            return False

        try:
            until(idle, 60, f"an idle node (see {folder}/*.log)")
            yield slurm
        finally:
            with contextlib.suppress(AssertionError):
                slurm("scancel", "--signal=KILL", "--full", "--user=root")
                slurm("scancel", "--user=root")
                until(lambda: not slurm.jobs(state="RUNNING,COMPLETING"), 30, "the end of the jobs")
