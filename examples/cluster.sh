#!/usr/bin/env bash
# A search on a cluster: here two of Ray's nodes on one machine, on yours one on each.
#
#     bash examples/cluster.sh
#
# The cluster is stopped in the end, and no other one: Ray's own `ray stop` would stop all.
set -euo pipefail
cd "$(dirname "$0")/.."

port=${PORT:-6379}
work=$(mktemp -d)       # the search leaves its store in there, or in ROOT
root=${ROOT:-$work/mlruns}
nodes=()
trap 'kill "${nodes[@]}" 2>/dev/null; wait; rm -rf "$work"' EXIT

# Ray's token: whoever knows it may run code on the cluster. Give the same file to every machine.
python -c "import secrets; print(secrets.token_hex(32), end='')" > "$work/token"
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH="$work/token"

node() {                # --block keeps it in the foreground, so that it can be ended by its id
  python -m ray.scripts.scripts start --block --num-cpus 1 --object-store-memory 80000000 \
    --disable-usage-stats "$@" > "$work/node${#nodes[@]}.log" 2>&1 &
  nodes+=($!)
  until grep -q "Ray runtime started" "$work/node$((${#nodes[@]} - 1)).log"; do sleep 0.2; done
}
node --head --node-ip-address 127.0.0.1 --port "$port" --include-dashboard false \
  --temp-dir "$work/ray"
node --node-ip-address 127.0.0.2 --address "127.0.0.1:$port"

# The file is the same as on a laptop; the first line of the output tells of two machines.
python -m fltune search search_spaces/digits_scenarios.yaml --set ray.address="127.0.0.1:$port" \
  --set tracking.root="$root" --set rounds=10 --set search.confirm_seeds=1
