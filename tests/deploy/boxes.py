"""Pods without a container runtime: Linux namespaces, as root.

A `Node` is a network of its own. A pod started on it sees a root file system that is read-only and holds system
libraries, Python and smtdist; its volumes lie where the manifest mounts them, it has an address of its own and knows
the others' names, and its process runs under the manifest's user and group, without capabilities and unable to gain any.
So commands, environment, ports and paths run exactly as the manifest says them, but for this: a folder stands for each
claim and each emptyDir, a line in /etc/hosts for each name of the DNS, PYTHONPATH for what the image has installed, and
a pod's share of the cores is taken to be one, whatever its limit.
"""

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from manifests import FOLDER

ROOT = FOLDER.parents[1]
BIN = "/opt/smtdist/bin"
INSTALLED = {  # what an image holds, and where; nothing of it lies where a manifest mounts volumes
    "/opt/python": sys.base_prefix,
    "/opt/checkout": str(ROOT),
    "/opt/purelib": sysconfig.get_path("purelib"),
    "/opt/platlib": sysconfig.get_path("platlib"),
}
SCRIPTS = {"dask": "from dask.__main__ import main", "smtdist": "from smtdist.cli import main"}
TOOLS = ("ip", "mount", "nsenter", "setpriv", "unshare")


def why_not():
    """Return why boxes cannot be made here, or None."""
    if os.geteuid() != 0:
        return "needs root, to make namespaces and to become another user"
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return f"needs {', '.join(missing)} (Debian: iproute2, util-linux)"
    tried = subprocess.run(
        ["unshare", "--net", "--mount", "ip", "link", "add", "one", "type", "veth"],
        capture_output=True,
        text=True,
    )
    return f"namespaces are not allowed here: {tried.stderr.strip()}" if tried.returncode else None


class Node:
    """A network in which pods have addresses; `folder` holds what stands in for volumes."""

    def __init__(self, folder, image_env):
        self.folder, self.image_env = Path(folder), image_env
        self.addresses, self.running = {}, {}
        self.holder = subprocess.Popen(
            ["unshare", "--net", "--mount", "--propagation", "private", "sh", "-c", _HOLD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        if self.holder.stdout.readline() != b"ready\n":
            pytest.fail("the node's network could not be made")
        self._make_bin()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for name in self.running:
            self.kill(name)
        self.holder.stdin.close()
        self.holder.wait()
        self.holder.stdout.close()

    def _make_bin(self):
        """Put the image's commands into a folder that becomes /opt/smtdist/bin."""
        folder = self.folder / "bin"
        folder.mkdir(parents=True)
        for name, line in SCRIPTS.items():
            (folder / name).write_text(f"#!{BIN}/python3\nimport sys\n{line}\nsys.exit(main())\n")
        shutil.copy(ROOT / "deploy" / "container" / "smtdist-healthy", folder)
        for name in ("python", "python3"):
            interpreter = Path(sys.executable).resolve().relative_to(Path(sys.base_prefix).resolve())
            (folder / name).symlink_to("/opt/python" / interpreter)
        for path in folder.iterdir():
            if not path.is_symlink():
                path.chmod(0o755)

    def add(self, name, *aliases):
        """Give a pod an address, and names that the others know it by."""
        self.addresses[name] = (f"10.77.0.{len(self.addresses) + 2}", aliases)
        address = self.addresses[name][0]
        number = len(self.addresses)
        subprocess.run(
            [
                "nsenter",
                "-t",
                str(self.holder.pid),
                "-n",
                "-m",
                "sh",
                "-e",
                "-c",
                _PLUG,
                name,
                str(number),
                address,
            ],
            check=True,
        )

    def start(self, pod, volumes, argv=None):
        """Start a pod's command, or another one in its place; what it writes goes to the files of `output`."""
        out, err = self.output(pod)
        with open(out, "w") as stdout, open(err, "w") as stderr:
            process = subprocess.Popen(
                self._entered(pod, volumes, argv), stdout=stdout, stderr=stderr, env={}
            )
        self.running[pod.name] = process
        return process

    def kill(self, name):
        """Kill a pod's processes at once, as the loss of its node would."""
        self.running[name].kill()
        self.running[name].wait()

    def output(self, pod):
        """Return the files with a pod's standard output and standard error."""
        return self.folder / f"{pod.name}.out", self.folder / f"{pod.name}.err"

    def run(self, pod, volumes, argv=None, timeout=150):
        """Run a pod's command, or another one with its network, user, environment and volumes, to its end."""
        command = self._entered(pod, volumes, argv)
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False, env={})

    def _entered(self, pod, volumes, argv):
        script = self.folder / f"{pod.name}.sh"
        script.write_text(self._script(pod, volumes))
        inside = ["nsenter", "-t", str(self.holder.pid), "-n", "-m", "ip", "netns", "exec", pod.name]
        new = ["unshare", "--mount", "--propagation", "private", "--uts", "--ipc", "--pid", "--fork"]
        words = [shutil.which("setpriv"), "--pdeathsig=KILL", *inside, *new, "sh", "-e", str(script)]
        return [*words, *(argv or pod.argv())]

    def _script(self, pod, volumes):
        """Return the shell script that makes the root file system and becomes the command."""
        root = self.folder / "roots" / pod.name
        root.mkdir(parents=True, exist_ok=True)
        lines = [f"export PATH={os.environ['PATH']}", f"R={root}", "mount -t tmpfs -o mode=755 root $R"]
        for path in ("/usr", "/bin", "/sbin", "/lib", "/lib64"):
            if os.path.islink(path):
                lines.append(f"ln -s {os.readlink(path)} $R{path}")
            elif os.path.exists(path):
                lines += _bind(path, path, writable=False)
        for where, source in {**INSTALLED, BIN: self.folder / "bin"}.items():
            lines += _bind(source, where, writable=False)
        hosts = "".join(
            f"{address} {' '.join((name, *aliases))}\\n"
            for name, (address, aliases) in self.addresses.items()
        )
        lines += [
            "mkdir $R/etc $R/proc $R/dev",
            f"printf '127.0.0.1 localhost\\n{hosts}' > $R/etc/hosts",
            "printf 'root:x:0:0:root:/root:/bin/sh\\n' > $R/etc/passwd",
            "cp /etc/ld.so.cache $R/etc/",
            "mount -t proc proc $R/proc",
            "mount -t tmpfs -o mode=755 dev $R/dev",
            *(
                f"touch $R/dev/{name} && mount --bind /dev/{name} $R/dev/{name}"
                for name in ("null", "zero", "random", "urandom")
            ),
            "mkdir $R/dev/shm && mount -t tmpfs -o mode=1777,size=64m shm $R/dev/shm",
        ]
        for volume, where, writable in pod.mounts():
            lines += _bind(volumes(pod, volume), where, writable)
        security = pod.spec["securityContext"]
        assert pod.container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        if pod.container["securityContext"]["readOnlyRootFilesystem"]:
            lines.append("mount -o remount,ro $R")
        setting = {
            **self.image_env,
            "HOSTNAME": pod.name,
            "PYTHONPATH": "/opt/checkout:/opt/purelib:/opt/platlib",
            "LD_LIBRARY_PATH": "/opt/python/lib",
            **pod.environment(most_cores=1),
        }
        quoted = " ".join(shlex.quote(f"{name}={value}") for name, value in setting.items())
        drop = "--pdeathsig=KILL --bounding-set=-all --inh-caps=-all --ambient-caps=-all"
        if not pod.container["securityContext"]["allowPrivilegeEscalation"]:
            drop += " --no-new-privs"
        become = f"--reuid {security['runAsUser']} --regid {security['runAsGroup']} --groups {security['fsGroup']}"
        lines += [
            f"hostname {pod.name}",
            f'exec chroot $R setpriv {become} {drop} env -i -C / {quoted} "$@"',
        ]
        return "\n".join(lines) + "\n"


def _bind(source, where, writable):
    lines = [f"mkdir -p $R{where}", f"mount --rbind {source} $R{where}"]
    return lines if writable else [*lines, f"mount -o remount,bind,ro $R{where}"]


_HOLD = """
set -e
mkdir -p /run/netns
mount -t tmpfs netns /run/netns
mount --make-shared /run/netns
ip link set lo up
ip link add pods type bridge
ip addr add 10.77.0.1/24 dev pods
ip link set pods up
echo ready
exec cat
"""

_PLUG = """
ip netns add $0
ip link add pod$1 type veth peer name eth0 netns $0
ip link set pod$1 master pods up
ip -n $0 link set lo up
ip -n $0 addr add $2/24 dev eth0
ip -n $0 link set eth0 up
ip -n $0 route add default via 10.77.0.1
"""
