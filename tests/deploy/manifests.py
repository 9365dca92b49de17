"""What the manifests of deploy/kubernetes say, resolved as Kubernetes and the operator resolve it.

`pods()` returns, for every pod that the files lead to, its specification, its labels and, per container, the command,
the environment and the mounts that a kubelet would start it with.
"""

import copy
import functools
import math
import re
from dataclasses import dataclass
from pathlib import Path

import yaml

FOLDER = Path(__file__).parents[2] / "deploy" / "kubernetes"
NAMESPACE = "smtdist"
UNITS = {"": 1, "m": 1e-3, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def documents():
    """Return every resource of the folder with the name of its file; kustomization.yaml is none."""
    return copy.deepcopy(_documents())


@functools.cache
def _documents():
    return [
        (path.name, resource)
        for path in sorted(FOLDER.glob("*.yaml"))
        if path.name != "kustomization.yaml"
        for resource in yaml.safe_load_all(path.read_text())
    ]


def only(kind, name=None):
    """Return the one resource of a kind."""
    found = [
        resource
        for _, resource in documents()
        if resource["kind"] == kind and (name is None or resource["metadata"]["name"] == name)
    ]
    assert len(found) == 1, (kind, name, len(found))
    return found[0]


@dataclass(frozen=True)
class Pod:
    """A pod as the API server would be asked for it."""

    name: str
    labels: dict
    spec: dict
    env: dict  # what the operator adds where the manifest does not say it

    @property
    def container(self):
        """The pod's one container."""
        (container,) = self.spec["containers"]
        return container

    def environment(self, most_cores=math.inf):
        """Return the container's environment, with the fields of its resources filled in; cores up to a number."""
        found = {}
        for variable in self.container["env"]:
            if "value" in variable:
                found[variable["name"]] = variable["value"]
            else:
                section, resource = variable["valueFrom"]["resourceFieldRef"]["resource"].split(".")
                number = math.ceil(quantity(self.container["resources"][section][resource]))
                found[variable["name"]] = str(min(number, most_cores) if resource == "cpu" else number)
        return {**{k: v for k, v in self.env.items() if k not in found}, **found}

    def argv(self):
        """Return command and arguments, with $(NAME) replaced."""
        environment = self.environment()
        words = self.container["command"] + self.container.get("args", [])
        return [re.sub(r"\$\((\w+)\)", lambda name: environment[name[1]], word) for word in words]

    def mounts(self):
        """Return (volume, where, whether it may be written) for every mount."""
        volumes = {volume["name"]: volume for volume in self.spec["volumes"]}
        return [
            (volumes[mount["name"]], mount["mountPath"], not mount.get("readOnly", False))
            for mount in self.container["volumeMounts"]
        ]


def quantity(text):
    """Return a quantity of Kubernetes as a number."""
    number, unit = re.fullmatch(r"([0-9.]+)(m|[KMGT]i)?", str(text)).groups()
    return float(number) * UNITS[unit or ""]


def scheduler():
    """Return the scheduler's pod."""
    cluster = only("DaskCluster")
    name = cluster["metadata"]["name"]
    labels = _labels(cluster, cluster["spec"]["scheduler"], "scheduler", name)
    return Pod(f"{name}-scheduler", labels, cluster["spec"]["scheduler"]["spec"], {})


def workers():
    """Return the pods of the worker groups, by group, as the operator fills them in."""
    cluster = only("DaskCluster")
    name = cluster["metadata"]["name"]
    groups = {f"{name}-default": (cluster, cluster["spec"]["worker"])}
    for _, resource in documents():
        if resource["kind"] == "DaskWorkerGroup":
            assert resource["spec"]["cluster"] == name
            groups[resource["metadata"]["name"]] = (resource, resource["spec"]["worker"])
    return {
        group: [
            Pod(
                f"{group}-worker-{number}",
                _labels(resource, worker, "worker", name) | {"dask.org/workergroup-name": group},
                worker["spec"],
                {
                    "DASK_WORKER_NAME": f"{group}-worker-{number}",
                    "DASK_SCHEDULER_ADDRESS": f"tcp://{name}-scheduler.{NAMESPACE}.svc.cluster.local:8786",
                },
            )
            for number in range(worker["replicas"])
        ]
        for group, (resource, worker) in groups.items()
    }


def client():
    """Return the pod of the Job that fits."""
    template = only("Job")["spec"]["template"]
    return Pod("smtdist-fit", template["metadata"]["labels"], template["spec"], {})


def pods():
    """Return one pod of each kind."""
    return [scheduler(), *(group[0] for group in workers().values()), client()]


def _labels(resource, part, component, cluster):
    return {
        **resource["metadata"].get("labels", {}),
        **part.get("metadata", {}).get("labels", {}),
        "dask.org/cluster-name": cluster,
        "dask.org/component": component,
        "sidecar.istio.io/inject": "false",
    }


def deployment(pod):
    """Return the Deployment that the operator makes for a pod."""
    metadata = {"name": pod.name, "labels": pod.labels, "annotations": {}}
    spec = copy.deepcopy(pod.spec)
    named = {variable["name"] for variable in spec["containers"][0]["env"]}
    spec["containers"][0]["env"] += [
        {"name": name, "value": value} for name, value in pod.env.items() if name not in named
    ]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": pod.labels},
            "template": {"metadata": metadata, "spec": spec},
        },
    }
