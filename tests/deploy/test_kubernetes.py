"""The manifests: valid by the published schemas, closed by default, and saying what the program needs."""

import importlib.metadata
import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import dask.config
import manifests
import pytest
import yaml
from dockerfile import FOLDER as CONTAINER
from dockerfile import ROOT, environment
from manifests import FOLDER, NAMESPACE, documents, only, pods

from smtdist.cli.commands import load
from smtdist.engine.local_cluster import CONFIGURATION

BY_NAME = {pod.name: pod for pod in pods()}
ROLES = {"scheduler": "scheduler", "worker": "worker", "client": "client"}
SECRET = {"ca.pem", *(f"{role}{end}.pem" for role in ROLES for end in ("", "-key"))}
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
OF_THE_OPERATOR = ("DaskCluster", "DaskWorkerGroup")

each_pod = pytest.mark.parametrize("pod", BY_NAME.values(), ids=BY_NAME)


def role(pod):
    return ROLES[pod.labels["dask.org/component"]]


def settings(pod):
    """Return Dask's configuration as it is in a pod."""
    known = dask.config.merge(*dask.config.defaults, dask.config.collect_env(pod.environment()))
    return lambda name: dask.config.get(name, config=known)


def test_there_is_what_there_should_be():
    kinds = sorted(resource["kind"] for _, resource in documents())
    twice = ["NetworkPolicy", "PersistentVolumeClaim"]
    expected = sorted([*OF_THE_OPERATOR, "Job", "Namespace", *twice, *twice])
    assert kinds == expected, "no Secret: it is made from files that never lie here"
    readme = (FOLDER / "README.md").read_text()
    for name in {name for name, _ in documents()}:
        assert name in readme, name
    for _, resource in documents():
        if resource["kind"] != "Namespace":
            assert resource["metadata"]["namespace"] == NAMESPACE


# --- schemas


def kubernetes_resources():
    plain = [resource for _, resource in documents() if resource["kind"] not in OF_THE_OPERATOR]
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "smtdist-scheduler"},
        "spec": only("DaskCluster")["spec"]["scheduler"]["service"],
    }
    return [*plain, service, *(manifests.deployment(pod) for pod in pods() if role(pod) != "client")]


@pytest.mark.parametrize("resource", kubernetes_resources(), ids=lambda resource: resource["kind"])
def test_kubernetes_takes_every_field(resource):
    validator = pytest.importorskip("kubernetes_validate", reason="needs kubernetes-validate (extra test)")
    validator.validate(resource, validator.latest_version(), strict=True)


def test_the_schemas_refuse_what_is_wrong():
    validator = pytest.importorskip("kubernetes_validate", reason="needs kubernetes-validate (extra test)")
    wrong = json.loads(json.dumps(only("Job")))
    wrong["spec"]["template"]["spec"]["containers"][0]["readOnlyRootFileSystem"] = True
    with pytest.raises(validator.ValidationError, match="readOnlyRootFileSystem"):
        validator.validate(wrong, validator.latest_version(), strict=True)


def operator_schema(kind):
    """Return the openAPIV3Schema of a custom resource, out of the installed dask-kubernetes."""
    try:
        files = importlib.metadata.files("dask-kubernetes")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("needs dask-kubernetes (extra kubernetes)")
    (path,) = [file for file in files if file.match(f"crds/{kind.lower()}.yaml")]
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # hundreds of kilobytes
    (version,) = yaml.load(path.locate().read_text(), Loader=loader)["spec"]["versions"]
    return version["schema"]["openAPIV3Schema"]


def strict(schema):
    """Refuse the fields that the API server would silently drop: those that a structural schema does not name."""
    if isinstance(schema, list):
        return [strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    out = {key: strict(value) for key, value in schema.items()}
    if isinstance(out.get("properties"), dict) and "additionalProperties" not in out and "type" in out:
        out["additionalProperties"] = bool(out.get("x-kubernetes-preserve-unknown-fields"))
    if out.get("x-kubernetes-int-or-string"):
        out.pop("type", None)
    return out


@pytest.mark.parametrize("kind", OF_THE_OPERATOR)
def test_the_operator_keeps_every_field(kind):
    jsonschema = pytest.importorskip("jsonschema")
    schema = strict(operator_schema(kind))
    content = {key: value for key, value in only(kind).items() if key in schema["properties"]}
    jsonschema.validate(content, schema)
    content["spec"]["worker"]["spec"]["containers"][0]["memoryLimit"] = "1Gi"
    with pytest.raises(jsonschema.ValidationError, match="memoryLimit"):
        jsonschema.validate(content, schema)


def test_the_operator_makes_the_pods_that_are_tested_here():
    controller = pytest.importorskip(
        "dask_kubernetes.operator.controller.controller", reason="needs dask-kubernetes (extra kubernetes)"
    )
    cluster, name = only("DaskCluster"), "smtdist"
    made = controller.build_scheduler_deployment_spec(
        name, cluster["spec"]["scheduler"]["spec"], {}, cluster["metadata"]["labels"]
    )
    assert made == manifests.deployment(manifests.scheduler())
    groups = {
        "smtdist-default": (cluster["spec"]["worker"], cluster["metadata"]["labels"]),
        "smtdist-gpu": (
            only("DaskWorkerGroup")["spec"]["worker"],
            only("DaskWorkerGroup")["metadata"]["labels"],
        ),
    }
    for group, (worker, labels) in groups.items():
        made = controller.build_worker_deployment_spec(
            group, NAMESPACE, name, "0", worker["spec"], {}, labels
        )
        pod = manifests.workers()[group][0]
        assert made == manifests.deployment(pod)


def test_kustomize_puts_in_the_image():
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("needs kubectl")
    built = subprocess.run([kubectl, "kustomize", FOLDER], capture_output=True, text=True, check=True)
    found = list(yaml.safe_load_all(built.stdout))
    plain = [resource for name, resource in documents() if name != "fit-job.yaml"]
    assert len(found) == len(plain)
    name = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["images"][0]["newName"]
    images = [
        container["image"]
        for resource in found
        if resource["kind"] in OF_THE_OPERATOR
        for part in resource["spec"].values()
        if isinstance(part, dict)
        for container in part["spec"]["containers"]
    ]
    assert images == [f"{name}:{VERSION}", f"{name}:{VERSION}", f"{name}:{VERSION}-gpu"]


# --- security


@each_pod
def test_a_pod_can_do_nothing_but_its_work(pod):
    assert pod.spec["automountServiceAccountToken"] is False
    assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & set(pod.spec)
    security = pod.spec["securityContext"]
    assert security["runAsNonRoot"] is True
    assert security["runAsUser"] > 1000
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod.container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {next(iter(set(volume) - {"name"})) for volume in pod.spec["volumes"]} <= {
        "secret",
        "emptyDir",
        "persistentVolumeClaim",
    }
    limits, requests = (pod.container["resources"][name] for name in ("limits", "requests"))
    assert {"cpu", "memory"} <= set(limits)
    assert limits["memory"] == requests["memory"], "memory that may be taken away is none"


@each_pod
def test_a_pod_holds_its_own_key_and_no_other(pod):
    (secret,) = [volume["secret"] for volume in pod.spec["volumes"] if "secret" in volume]
    keys = {item["key"] for item in secret["items"]}
    assert keys == {"ca.pem", f"{role(pod)}.pem", f"{role(pod)}-key.pem"}
    assert keys <= SECRET
    assert secret["defaultMode"] == 0o440
    readme = (FOLDER / "README.md").read_text()
    assert all(name in readme for name in SECRET)


@each_pod
def test_everything_is_encrypted_by_dask_s_own_settings(pod):
    get = settings(pod)
    assert get("distributed.comm.require-encryption") is True
    assert get("distributed.comm.default-scheme") == "tls"
    assert get("distributed.comm.tls.min-version") == 1.3
    for file in ("ca-file", f"{role(pod)}.cert", f"{role(pod)}.key"):
        path = Path(get(f"distributed.comm.tls.{file}"))
        (items,) = [v["secret"]["items"] for v, where, _ in pod.mounts() if where == str(path.parent)]
        assert path.name in {item["path"] for item in items}
    for other in set(ROLES) - {role(pod)}:
        assert get(f"distributed.comm.tls.{other}.key") is None
    if role(pod) != "scheduler":
        service = only("DaskCluster")["spec"]["scheduler"]["service"]
        port = service["ports"][0]["port"]
        assert get("scheduler-address") == f"tls://{manifests.scheduler().name}:{port}"


def test_workers_and_scheduler_are_set_as_local_ones_are():
    wanted = {name: value for name, value in CONFIGURATION.items() if "preload" not in name}
    for pod in BY_NAME.values():
        get = settings(pod)
        for name, value in wanted.items():
            if f"distributed.{role(pod)}." in name or ".admin." in name:
                assert get(name) == value, (pod.name, name)


@each_pod
def test_what_is_written_has_a_place(pod):
    written = {name for name in environment("cpu") if environment("cpu")[name].startswith("/tmp/")}
    if "nvidia.com/gpu" not in pod.container["resources"]["limits"]:
        written -= {"CUPY_CACHE_DIR"}
    said = pod.environment()
    assert written <= set(said)
    empty = [where for volume, where, writable in pod.mounts() if "emptyDir" in volume and writable]
    for name in written:
        assert any(Path(said[name]).is_relative_to(where) for where in empty), name
    claims = {resource["metadata"]["name"] for _, resource in documents() if "Claim" in resource["kind"]}
    for volume, _, writable in pod.mounts():
        if "persistentVolumeClaim" in volume:
            claim = volume["persistentVolumeClaim"]
            assert claim["claimName"] in claims
            assert writable is not claim.get("readOnly", False)
            assert writable is (claim["claimName"] == "smtdist-work")


# --- network


def allowed(source, target, port):
    """Return whether the policies let a pod's labels reach another's, both within the namespace."""

    def selected(selector, labels):
        assert set(selector) <= {"matchLabels"}
        return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())

    def passes(direction, here, there):
        peer = {"Ingress": "from", "Egress": "to"}[direction]
        policies = [r["spec"] for _, r in documents() if r["kind"] == "NetworkPolicy"]
        policies = [
            p for p in policies if direction in p["policyTypes"] and selected(p["podSelector"], here)
        ]
        return not policies or any(
            "namespaceSelector" not in at and selected(at["podSelector"], there)
            for policy in policies
            for rule in policy.get(direction.lower(), [])
            if port in [item["port"] for item in rule["ports"]]
            for at in rule[peer]
        )

    return passes("Egress", source, target) and passes("Ingress", target, source)


def test_only_members_talk_and_only_on_the_tls_ports():
    stranger = {"app": "other"}
    listening = {
        pod.name: pod.container["ports"][0]["containerPort"]
        for pod in BY_NAME.values()
        if "ports" in pod.container
    }
    assert set(listening.values()) == {8786, 8788}
    for name, port in listening.items():
        target = BY_NAME[name].labels
        assert all(allowed(pod.labels, target, port) for pod in BY_NAME.values())
        assert not any(allowed(pod.labels, target, 8787) for pod in BY_NAME.values())
        assert not allowed(stranger, target, port)
        assert not allowed(target, stranger, port)
    assert not allowed(stranger, stranger, 80)


def test_the_dashboard_listens_on_loopback_and_no_service_names_it():
    service = only("DaskCluster")["spec"]["scheduler"]["service"]
    assert [port["port"] for port in service["ports"]] == [8786]
    assert service["type"] == "ClusterIP"
    assert all(manifests.scheduler().labels[key] == value for key, value in service["selector"].items())
    for pod in BY_NAME.values():
        if role(pod) != "client":
            assert "--dashboard-address=127.0.0.1:8787" in pod.argv()
            for probe in ("readinessProbe", "livenessProbe"):
                assert pod.container[probe]["exec"]["command"] == ["smtdist-healthy", "8787"]
    assert "idleTimeout" not in only("DaskCluster")["spec"], (
        "the operator would have to reach the HTTP port"
    )


# --- commands


def options(command):
    return {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}


@each_pod
def test_the_commands_have_the_options_that_are_given(pod):
    from distributed.cli import dask_scheduler, dask_worker

    program, command, *rest = pod.argv()
    known = {
        ("dask", "scheduler"): dask_scheduler.main,
        ("dask", "worker"): dask_worker.main,
        ("smtdist", "fit"): load("fit"),
    }[program, command]
    given = {word.partition("=")[0] for word in rest if word.startswith("-")}
    assert given <= options(known)
    assert not [word for word in rest if "$(" in word]


def test_workers_are_told_their_memory_their_name_and_their_cores():
    for group in manifests.workers().values():
        pod = group[0]
        limits = pod.container["resources"]["limits"]
        assert f"--memory-limit={int(manifests.quantity(limits['memory']))}" in pod.argv()
        assert f"--name={pod.name}" in pod.argv()
        assert "--nthreads=1" in pod.argv(), "one task at a time, with all cores"
        assert pod.environment()["SMTDIST_THREADS"] == limits["cpu"]
    gpu = [
        group[0].container["resources"]["limits"].get("nvidia.com/gpu")
        for group in manifests.workers().values()
    ]
    assert gpu == [None, "1"]


def test_a_fit_that_is_repeated_goes_on():
    job = only("Job")["spec"]
    pod = manifests.client()
    assert pod.spec["restartPolicy"] == "Never", "what a podFailurePolicy asks for"
    assert job["backoffLimit"] >= 3
    codes = [rule["onExitCodes"] for rule in job["podFailurePolicy"]["rules"] if "onExitCodes" in rule]
    assert codes == [{"containerName": pod.container["name"], "operator": "In", "values": [2]}]
    given = dict(word.split("=", 1) for word in pod.argv() if word.startswith("--") and "=" in word)
    assert given["--cluster"] == pod.environment()["DASK_SCHEDULER_ADDRESS"]
    assert "--overwrite" in pod.argv(), "a pod that is lost after the model was written is repeated too"
    writable = [where for _, where, may in pod.mounts() if may and where != "/tmp"]
    for name in ("--checkpoint", "--out"):
        assert any(Path(given[name]).is_relative_to(where) for where in writable)
    seen_by_workers = [
        {where for _, where, _ in group[0].mounts()} for group in manifests.workers().values()
    ]
    assert all({where for _, where, _ in pod.mounts()} == mounts for mounts in seen_by_workers)


def test_images_are_those_of_the_dockerfile():
    images = {pod.container["image"] for pod in BY_NAME.values()}
    assert images == {f"smtdist:{VERSION}", f"smtdist:{VERSION}-gpu"}
    text = (CONTAINER / "Dockerfile").read_text()
    assert all(f"-t {image} " in text.replace("\n", " ") for image in images)
    assert all(pod.argv()[0] in ("dask", "smtdist") for pod in BY_NAME.values())
    assert sys.version_info >= (3, 11)
