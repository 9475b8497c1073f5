#!/usr/bin/env bash
# Tells Spark which GPUs a worker's machine has: {"name": "gpu", "addresses": ["0", "1"]}, one address per GPU.
# Spark runs it on each machine (spark.executor.resource.gpu.discoveryScript, spark.worker.resource.gpu.discoveryScript).
set -euo pipefail

addresses=$(nvidia-smi --query-gpu=index --format=csv,noheader)
if [[ -z "$addresses" ]]; then
    echo "nvidia-smi names no GPU on $(hostname)" >&2
    exit 1
fi
printf '{"name": "gpu", "addresses": ["%s"]}\n' "$(sed 's/[[:space:]]//g' <<<"$addresses" | paste -sd, | sed 's/,/", "/g')"
