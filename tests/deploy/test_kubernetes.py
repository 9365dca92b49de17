"""The manifests: valid by the published schemas, closed by default, and they run to the end of a fit."""

import json
from pathlib import Path

import certificates
import h5py
import numpy as np
import pytest
from boxes import Node, why_not
from drawing import small_images
from manifests import client, scheduler, workers

from smtdist.cli import main as smtdist

ATTEMPTS = 120


@pytest.fixture
def volumes(tmp_path):
    """Folders that stand for the claims, the secret and the emptyDirs, owned as a kubelet would leave them."""
    return Volumes(tmp_path / "volumes", certificates.make(tmp_path / "tls"))


class Volumes:
    def __init__(self, folder, secrets):
        self.folder, self.secrets = Path(folder), secrets
        self.claim("smtdist-data"), self.claim("smtdist-work")

    def claim(self, name):
        path = self.folder / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def __call__(self, pod, volume):
        group = pod.spec["securityContext"]["fsGroup"]
        if "persistentVolumeClaim" in volume:
            return _owned(self.claim(volume["persistentVolumeClaim"]["claimName"]), group)
        path = self.folder / pod.name / volume["name"]
        path.mkdir(parents=True, exist_ok=True)
        if "secret" in volume:
            for item in volume["secret"]["items"]:
                target = path / item["path"]
                target.unlink(missing_ok=True)
                target.write_bytes((self.secrets / item["key"]).read_bytes())
                _owned(target, group, volume["secret"]["defaultMode"])
        else:
            assert "emptyDir" in volume, volume
        return _owned(path, group)


def _owned(path, group, mode=0o2775):
    import os

    os.chown(path, 0, group)
    path.chmod(mode)
    return path


@pytest.mark.deploy
def test_the_manifests_run_to_the_end_of_a_fit(tmp_path, volumes):
    if reason := why_not():
        pytest.skip(reason)
    with h5py.File(volumes.claim("smtdist-data") / "images.h5", "w") as file:
        file.create_dataset("train/images", data=small_images(0, 2400, 12, 12), chunks=(100, 12, 12, 1))
    head, job = scheduler(), client()
    hands = [pod for group in workers().values() for pod in group[:1]]
    with Node(tmp_path / "node", {"PATH": "/opt/smtdist/bin:/usr/bin:/bin"}) as node:
        node.add(head.name)
        for pod in (*hands, job):
            node.add(pod.name)
        running = [node.start(pod, volumes) for pod in (head, *hands)]
        done = node.run(job, volumes, job.argv())
        print(done.stdout, done.stderr)
        for process in running:
            process.kill()
            print(process.communicate()[1][-3000:])
        assert done.returncode == 0
