#!/bin/sh
# JupyterLab with smtdist, its live view and the Dask dashboard in the side bar: sh deploy/jupyter/lab.sh [FOLDER] [jupyter lab options]
# Makes a virtual environment in FOLDER (default .lab beside this script) the first time, then starts JupyterLab here.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
case "${1:-}" in
    "" | -*) folder=$here/.lab ;;
    *) folder=$1 && shift ;;
esac
if [ ! -x "$folder/bin/jupyter-lab" ]; then
    "${PYTHON:-python3}" -m venv "$folder"
    "$folder/bin/python" -m pip install --quiet "$here/../..[jupyter,metrics]"
fi
# the side bar finds clusters that notebooks start, and offers to start one of its own
mkdir -p "$folder/etc/dask"
cat > "$folder/etc/dask/labextension.yaml" <<'YAML'
labextension:
  factory:
    module: dask.distributed
    class: LocalCluster
    args: []
    kwargs: {n_workers: 2, threads_per_worker: 1, host: 127.0.0.1, dashboard_address: "127.0.0.1:8787"}
distributed:
  scheduler:
    preload: [smtdist.monitor.preload]
  worker:
    preload: [smtdist.monitor.preload]
YAML
cd "$here"
DASK_CONFIG="$folder/etc/dask" exec "$folder/bin/jupyter" lab "$@"
