#!/bin/sh
# A scheduler and workers as processes of their own, with TLS, until Ctrl-C (or SIGTERM):
#
#     cluster.sh TLS_FOLDER [WORKERS]        TLS_FOLDER is made if it does not exist; 2 workers
#
# HOST (127.0.0.1) and PORT (8786) say where the scheduler listens: for workers and clients on other machines, HOST is this
# machine's address in their network. DASHBOARD (127.0.0.1:8787) is best left on loopback.
set -eu
tls=$1 workers=${2:-2}
host=${HOST:-127.0.0.1} port=${PORT:-8786} dashboard=${DASHBOARD:-127.0.0.1:8787}
[ -d "$tls" ] || smtdist tls init "$tls"
tls=$(cd "$tls" && pwd)
DASK_CONFIG=$(cd "$(dirname "$0")" && pwd)/dask.yaml
threads=$(($(nproc) / workers))
[ "$threads" -gt 0 ] || threads=1
SMTDIST_THREADS=$threads
DASK_DISTRIBUTED__NANNY__PRE_SPAWN_ENVIRON="{'OMP_NUM_THREADS': $threads, 'OPENBLAS_NUM_THREADS': $threads, 'MKL_NUM_THREADS': $threads}"
export DASK_CONFIG SMTDIST_THREADS DASK_DISTRIBUTED__NANNY__PRE_SPAWN_ENVIRON
memory=$(awk "BEGIN { print 1 / ($workers + 1) }")

as() { # ROLE: the options that say who it is
    echo "--tls-ca-file $tls/ca.pem --tls-cert $tls/$1.pem --tls-key $tls/$1-key.pem --protocol tls"
}

pids=
stop() {
    trap - INT TERM EXIT
    # shellcheck disable=SC2086
    kill $pids 2>/dev/null || true
    wait
}
trap 'stop; exit 143' INT TERM
trap stop EXIT
# shellcheck disable=SC2046
dask scheduler $(as scheduler) --host "$host" --port "$port" --dashboard-address "$dashboard" &
pids=$!
i=0
while [ "$i" -lt "$workers" ]; do
    # shellcheck disable=SC2046
    dask worker $(as worker) "tls://$host:$port" --host "$host" --nthreads 1 --memory-limit "$memory" \
        --dashboard-address 127.0.0.1:0 &
    pids="$pids $!"
    i=$((i + 1))
done
wait
