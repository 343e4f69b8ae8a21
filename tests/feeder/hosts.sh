#!/bin/sh
# hosts.sh TCP_FEED [MPI_FEED]: runs ranks on four hosts, which are network namespaces that a bridge connects. Exits
# with 77 (skipped) if the machine allows no namespaces.
set -eu

name=fl$$
hosts="1 2 3 4"
network=10.201.$(($$ % 250))
work=$(mktemp -d)

clean() {
  for host in $hosts; do ip netns del "$name-$host" 2> /dev/null || true; done
  ip netns del "$name" 2> /dev/null || true
  rm -rf "$work"
}
trap clean EXIT

# It runs in a shell of its own, because `set -e` does not hold in a function that `if` calls.
make_hosts() (
  set -e
  ip netns add "$name" # the namespace of the bridge
  ip netns exec "$name" ip link add bridge type bridge
  ip netns exec "$name" ip link set bridge up
  for host in $hosts; do
    ip netns add "$name-$host"
    # A network as container engines make it: it comes first, is the same on each host, and leads to no other host.
    ip netns exec "$name-$host" ip link add docker0 type veth peer name nowhere
    ip netns exec "$name-$host" ip address add 172.17.0.1/16 dev docker0
    ip netns exec "$name-$host" ip link set docker0 up
    ip netns exec "$name" ip link add "port$host" type veth peer name eth0 netns "$name-$host"
    ip netns exec "$name" ip link set "port$host" master bridge up
    ip netns exec "$name-$host" ip address add "$network.$host/24" dev eth0
    ip netns exec "$name-$host" ip link set eth0 up
    ip netns exec "$name-$host" ip link set lo up
  done
)
set +e
make_hosts 2> "$work/why"
made=$?
set -e
if [ $made != 0 ]; then
  echo "skipped: no network namespaces: $(head -1 "$work/why")"
  exit 77
fi

mkdir "$work/data"
"$1" make "$work/data"

# on_host HOST COMMAND...
on_host() {
  host=$1
  shift
  # shellcheck disable=SC2016 # the inner shell expands it
  ip netns exec "$name-$host" unshare --uts sh -c 'hostname "$0"; exec "$@"' "host$host" "$@"
}

# check WHAT HOSTS: checks that each of four ranks is ok, and that they ran on HOSTS hosts.
check() {
  ok=$(grep -c 'on host[1-4] ok$' "$work/out" || true)
  on=$(grep -o 'on host[1-4] ok$' "$work/out" | sort -u | wc -l)
  echo "$1: $ok of 4 ranks, on $on hosts"
  if [ "$ok" != 4 ] || [ "$on" != "$2" ]; then
    cat "$work/out"
    exit 1
  fi
}

over_tcp() {
  for host in $hosts; do
    RANK=$((host - 1)) WORLD_SIZE=4 MASTER_ADDR=$network.1 MASTER_PORT=29500 on_host "$host" "$1" "$2" "$work/data" &
  done > "$work/out" 2>&1
  wait
  check "TCP, $2" 4
}

# Rank 0 tells the others through an exchange where it listens. Two ranks are on its host.
over_tcp_told() {
  mkdir "$work/exchange"
  for rank in 0 1 2 3; do
    host=$((rank == 0 ? 1 : rank))
    RANK=$rank WORLD_SIZE=4 EXCHANGE=$work/exchange on_host "$host" "$1" SCATTER "$work/data" &
  done > "$work/out" 2>&1
  wait
  check "TCP, told by an exchange" 3
}

# Replaces ssh: AGENT HOST COMMAND...
cat > "$work/agent" << END
#!/bin/sh
host=\${1##*.}
shift
exec ip netns exec $name-\$host unshare --uts sh -c "hostname host\$host; \$*"
END
chmod +x "$work/agent"

# Open MPI keeps memory until the process ends, which is no leak of ours.
over_mpi() {
  on_host 1 mpirun --allow-run-as-root -x ASAN_OPTIONS=detect_leaks=0 \
    --mca plm_rsh_agent "$work/agent" --mca plm_rsh_no_tree_spawn 1 --mca btl self,tcp --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0 \
    --host "$network.1:1,$network.2:1,$network.3:1,$network.4:1" -n 4 "$1" "$2" "$work/data" > "$work/out" 2>&1 || {
    cat "$work/out"
    exit 1
  }
  check "MPI, $2" 4
}

# Without a secret nobody meets beyond a machine.
for host in $hosts; do
  RANK=$((host - 1)) WORLD_SIZE=4 MASTER_ADDR=$network.1 MASTER_PORT=29500 on_host "$host" "$1" SPLIT "$work/data" &
done > "$work/out" 2>&1
wait
if [ "$(grep -c 'set FEEDLINE_MEET_TOKEN' "$work/out")" != 4 ]; then
  cat "$work/out"
  exit 1
fi
FEEDLINE_MEET_TOKEN=$(od -An -N16 -tx1 /dev/urandom | tr -d ' ')
export FEEDLINE_MEET_TOKEN
for mode in SPLIT REPLICATE SCATTER; do
  over_tcp "$1" "$mode"
  if [ $# -gt 1 ]; then over_mpi "$2" "$mode"; fi
done
unset FEEDLINE_MEET_TOKEN
over_tcp_told "$1"
