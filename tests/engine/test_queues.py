"""Batch queues: what a job asks for, and a run whose workers are jobs of a queue that is played by a script."""

import os
import stat
from types import SimpleNamespace

import pytest

from smtdist.engine import cluster_choice, clusters
from smtdist.engine.cluster_choice import ClusterChoice
from smtdist.errors import ConfigurationError, SmtdistError

pytest.importorskip("dask_jobqueue")

CORES = {
    "slurm": "#SBATCH --cpus-per-task=4",
    "pbs": "#PBS -l select=1:ncpus=4:mem=1908MB",
    "lsf": "#BSUB -n 4",
    "oar": "#OAR -l /nodes=1/core=4",
    "moab": "#PBS -l select=1:ncpus=4:mem=1908MB",
    "sge": "#$ -N dask-worker",  # how many cores a job gets is for the site's directives to say
}
PLAYED = """#!/bin/sh
# a queue of one machine: a job begins at once
case "$0" in
*del) kill -- "-${1%%.*}" ;;
*) cp "$1" "job-$$"; setsid bash "job-$$" > log 2>&1 & echo "$!.played" ;;
esac
"""


@pytest.fixture
def played(tmp_path, monkeypatch):
    """Commands that submit and cancel, in the path."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("qsub", "qdel", "sbatch", "bsub", "oarsub", "msub"):
        (folder / name).write_text("#!/bin/sh\nexit 0\n" if name == "sbatch" else PLAYED)
        (folder / name).chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)


def site(folder, kind, **more):
    lines = [f"    {key}: {value}" for key, value in {"cores": 4, "memory": "2GB", **more}.items()]
    path = folder / "site.yaml"
    path.write_text("\n".join(["jobqueue:", f"  {kind}:", *lines]))
    return ClusterChoice(kind, config=path)


@pytest.mark.parametrize("kind", clusters.QUEUES)
def test_a_job_asks_for_its_cores_and_runs_one_task_at_a_time(kind, played, tmp_path):
    assert set(clusters.QUEUES) == set(cluster_choice.QUEUES)
    more = {"memory-per-core-property-name": "not_applicable"} if kind == "oar" else {}
    with clusters.queue_cluster(site(tmp_path, kind, **more)) as (cluster, processes):
        script = cluster.job_script()
    assert processes == 1
    assert CORES[kind] in script
    assert script.rpartition("--nthreads ")[2].split()[0] == "1"
    assert "export OMP_NUM_THREADS=4" in script
    assert "--tls-key" in script


def test_a_queue_that_is_not_here_and_a_job_without_a_size_are_refused(played, tmp_path, monkeypatch):
    def refused(choice, workers=2):
        with clusters.executor_of(choice, workers):
            pass

    with pytest.raises(ConfigurationError, match="A PBS job needs a size; give cores and memory"):
        refused(ClusterChoice("pbs"))
    with pytest.raises(ConfigurationError, match="A PBS cluster needs a number of workers"):
        refused(site(tmp_path, "pbs"), None)
    for key in ("local-directory", "log-directory", "shared-temp-directory"):
        with pytest.raises(
            ConfigurationError, match=f"The {key} of jobqueue.pbs is 'a b/c', .*no.* spaces"
        ):
            refused(site(tmp_path, "pbs", **{key: "a b/c"}))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(
        SmtdistError, match="There is no msub here; start this on a machine that submits Moab"
    ):
        refused(site(tmp_path, "moab"))


def test_workers_are_jobs(played, tmp_path):
    choice = site(tmp_path, "pbs", cores=1, memory="1GB")
    with clusters.executor_of(choice, 1) as executor:
        handle = executor.submit(_session)
        assert executor.wait([handle], 60) is not None
        assert executor.result(handle) != os.getsid(0)


SHOWN = {
    "slurm": ["", "!slurm_load_jobs error: Invalid job id specified"],
    "pbs": ["!qstat: 7.host Job has finished, use -x", "!qstat: Unknown Job Id 7", "    job_state = C"],
    "sge": ["!Following jobs do not exist: 7"],
    "lsf": ["EXIT", "DONE", "!Job <7> is not found"],
    "oar": ["Job_Id: 7\n    state = Error", "Job_Id: 7\n    state = Terminated"],
    "moab": ["job 7\nState: Completed", "!ERROR: invalid job specified (7)"],
}
LIVING = {
    "slurm": [
        "7 short dask-worker me PD 0:00 1",
        "!slurm_load_jobs error: Unable to contact slurm controller",
    ],
    "pbs": ["    job_state = Q\n    comment = not found yet", "!qstat: cannot connect to server head"],
    "sge": ["job_number: 7\nerror reason: not found"],
    "lsf": ["PEND", "!LSF is down. Please wait ..."],
    "oar": ["Job_Id: 7\n    state = Waiting"],
    "moab": ["job 7\nState: Idle", "!sh: checkjob: command not found"],
}


@pytest.mark.parametrize(
    ("kind", "said", "ended"),
    [(kind, said, True) for kind, every in SHOWN.items() for said in every]
    + [(kind, said, False) for kind, every in LIVING.items() for said in every],
)
def test_jobs_that_end_before_a_worker_joins_end_the_run(kind, said, ended, played, tmp_path, monkeypatch):
    monkeypatch.setattr(clusters, "LOOK_SECONDS", 0.0)
    command = tmp_path / "bin" / clusters.QUEUES[kind].showing.split()[0]
    how = " >&2; exit 1" if said.startswith("!") else ""
    command.write_text(f"#!/bin/sh\nprintf '%s\\n' '{said.lstrip('!')}'{how}\n")
    command.chmod(stat.S_IRWXU)
    job = SimpleNamespace(job_id="7", refusal="", log_directory="logs")
    jobs = clusters.Jobs(SimpleNamespace(workers={0: job}, scheduler_address="tls://head:1"), kind)
    jobs.require_some()  # one look may come between the end of a job and the next one
    if ended:
        with pytest.raises(
            SmtdistError, match=r"no worker has joined \(.* job 7\); read .* logs, .*tls://head:1"
        ):
            jobs.require_some()
    else:
        jobs.require_some()


@pytest.mark.parametrize("stop", ["refused", "dies"])
def test_a_cluster_whose_jobs_do_not_come_to_be_ends_the_run(stop, played, tmp_path, monkeypatch):
    monkeypatch.setattr(clusters, "LOOK_SECONDS", 0.2)
    line = "echo no such account >&2; exit 1" if stop == "refused" else "echo 7.played"
    (tmp_path / "bin" / "qsub").write_text(f"#!/bin/sh\n{line}\n")
    (tmp_path / "bin" / "qstat").write_text("#!/bin/sh\necho qstat: Unknown Job Id $2 >&2; exit 153\n")
    (tmp_path / "bin" / "qstat").chmod(stat.S_IRWXU)
    said = r"PBS refused .* \(no such account\)" if stop == "refused" else "All jobs of workers have ended"
    with (
        pytest.raises(SmtdistError, match=said),
        clusters.executor_of(site(tmp_path, "pbs"), 2),
    ):
        pass


def _session(*, report, permit):
    return os.getsid(0)
