"""deploy/slurm on a real SLURM of one node: jobs are lost and replaced, whole runs are cancelled and go on."""

import json
import subprocess

import pytest
from deploying import COMMAND, MORE, ROOT, assert_same_model, fit_arguments, until
from one_node_slurm import missing, one_node_slurm

FOLDER = ROOT / "deploy" / "slurm"
pytestmark = [
    pytest.mark.deploy,
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(missing()), reason=str(missing())),
]


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    with one_node_slurm(tmp_path_factory.mktemp("slurm")) as found:
        yield found


def on_slurm(data, out, folder, *more, site="slurm.yaml"):
    where = ["--cluster", "slurm", "--cluster-config", FOLDER / site, "--workers", "2"]
    return fit_arguments(data, out, *MORE, "--checkpoint", folder / "checkpoint", *where, *more)


def started(slurm, arguments, folder):
    return subprocess.Popen(
        [*COMMAND, *arguments],
        env=slurm.environment,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def in_mid_pass(slurm, folder):
    """Stop both workers' processes once the statistics pass has written a sum; return their jobs."""
    sums = folder / "checkpoint" / "statistics"

    def under_way():
        joined = [path for path in folder.glob("smtdist-logs/*") if "Registered to" in path.read_text()]
        return len(joined) == 2 and any(sums.glob("*.h5"))

    until(under_way, 240, "a partial sum, and two workers")
    workers = slurm.jobs("smtdist-worker")
    slurm("scancel", "--signal=STOP", "--full", *workers)
    assert not (sums / "result.h5").exists(), "the pass has ended too soon to be disturbed"
    return workers


def test_a_killed_job_is_replaced_and_changes_nothing(slurm, data, want, tmp_path):
    run = started(slurm, on_slurm(data, tmp_path / "m.h5", tmp_path), tmp_path)
    lost, kept = in_mid_pass(slurm, tmp_path)
    slurm("scancel", "--signal=KILL", "--full", lost)
    new = until(
        lambda: set(slurm.jobs("smtdist-worker")) - {lost, kept}, 120, "a job for the one that is lost"
    )
    slurm("scancel", "--signal=CONT", "--full", kept)
    out, err = run.communicate(timeout=300)
    assert run.returncode == 0, err
    assert len(new) == 1
    assert_same_model(tmp_path / "m.h5", want)
    assert json.loads(out)["passes"][2]["n_samples"] == 6_000
    assert_nothing_secret_is_left(tmp_path)
    until(lambda: not slurm.jobs("smtdist-worker", "RUNNING,PENDING"), 30, "the end of the workers' jobs")


def assert_nothing_secret_is_left(folder):
    logs = list((folder / "smtdist-logs").iterdir())
    assert logs, "workers write logs"
    for path in logs:
        assert "PRIVATE KEY" not in path.read_text()
    assert not list(folder.glob(".smtdist-tls-*")), "certificates of a run are removed with it"


def test_a_cancelled_batch_job_goes_on_when_it_is_submitted_again(slurm, data, want, tmp_path):
    script, site = FOLDER / "fit.sbatch", FOLDER / "slurm.yaml"
    out, checkpoint = tmp_path / "m.h5", tmp_path / "checkpoint"
    arguments = [*fit_arguments(data, out, "--set", "dictionary=400")[1:]]
    submit = ["sbatch", "--parsable", f"--chdir={tmp_path}", script, checkpoint, site, "2", *arguments]
    first = slurm(*map(str, submit)).strip()
    in_mid_pass(slurm, tmp_path)
    slurm("scancel", first)
    until(lambda: first not in slurm.jobs(state="RUNNING,COMPLETING"), 60, "the end of the job")
    assert not out.exists()
    second = slurm(*map(str, submit)).strip()
    until(out.exists, 240, "the model")
    until(lambda: second not in slurm.jobs(state="RUNNING,COMPLETING"), 60, "the end of the job")
    passes = {record["name"]: record for record in logged(tmp_path / f"smtdist-fit-{second}.log")["passes"]}
    assert passes["whitening"]["read_bytes"] == 0
    assert passes["statistics"]["resumed_leaves"] > 0
    assert_same_model(out, want)


def logged(path):
    """Return the JSON object that a job has written to its log."""
    lines = [line for line in path.read_text().splitlines() if line.startswith("{")]
    assert lines, path.read_text()
    return json.loads(lines[-1])


def test_a_job_for_a_gpu_partition_starts(slurm, data, want, tmp_path):
    out = tmp_path / "m.h5"
    arguments = on_slurm(data, out, tmp_path, "--workers", "1", site="slurm-gpu.yaml")
    run = started(slurm, arguments, tmp_path)
    job = until(lambda: slurm.jobs("smtdist-gpu-worker"), 60, "a job")[0]
    assert "gpu:1" in slurm("scontrol", "show", "job", job)
    _, err = run.communicate(timeout=300)
    assert run.returncode == 0, err
    assert_same_model(out, want)


def test_what_slurm_would_not_take_is_said_at_once(slurm, data, tmp_path):
    site = tmp_path / "slurm.yaml"
    site.write_text((FOLDER / "slurm.yaml").read_text().replace("queue: null", "queue: nowhere"))
    arguments = on_slurm(data, tmp_path / "m.h5", tmp_path, "--cluster-config", site)
    run = started(slurm, arguments, tmp_path)
    _, err = run.communicate(timeout=60)
    assert run.returncode == 1
    assert "SLURM refused a worker's job" in err
    assert "partition" in err
    assert not list(tmp_path.glob(".smtdist-tls-*"))
