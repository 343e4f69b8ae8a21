#!/usr/bin/env bash
# ./dev bench peers: compares feedline with other loaders.
set -euo pipefail
source scripts/common.sh

need package tool mpi tests peers
configure build -Dcuda=auto "-Dgpu_archs=$(all_gpu_architectures)" -Dbench=true
compile build feedline bench/feed_bench
python=build/peers/venv/bin/python
virtual_environment build/peers/venv
"$python" -m pip install --quiet --requirement bench/peers/requirements.txt
"$python" bench/peers/compare.py --tool build/feedline --data build/peers/data --out build/peers \
  --ceilings build/bench/feed_bench --results bench/results/peers.json "$@"
scripts/peers_results.py
