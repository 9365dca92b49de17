"""What deploy/jupyter promises about names that live elsewhere."""

import json
import re
import subprocess
from pathlib import Path

from smtdist.monitor.metrics import PASS, WORKER

FOLDER = Path(__file__).parents[2] / "deploy" / "jupyter"


def test_the_grafana_dashboard_asks_for_metrics_that_there_are():
    panels = json.loads((FOLDER / "grafana.json").read_text())["panels"]
    asked = {
        name
        for panel in panels
        for target in panel["targets"]
        for name in re.findall(r"smtdist_\w+", target["expr"])
    }
    served = {f"smtdist_worker_{name}_total" for name, _ in WORKER.values()}
    served |= {f"smtdist_pass_{name}" for name, _ in PASS.values()}
    served |= {
        "smtdist_run",
        "smtdist_lost_workers_total",
        "smtdist_partial_sums",
        "smtdist_worker_memory_bytes",
    }
    assert asked <= served
    assert len(asked) >= 8


def test_the_script_is_one_that_a_shell_can_read():
    subprocess.run(["sh", "-n", str(FOLDER / "lab.sh")], check=True)
