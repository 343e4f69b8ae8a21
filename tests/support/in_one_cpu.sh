#!/bin/sh
# in_one_cpu.sh affinity|cpuset PROGRAM ARGUMENTS...: runs the program on one CPU. It is limited by its affinity mask,
# or by a cpuset cgroup made for it, which also limits the processes that it starts and cannot be widened from inside.
set -eu

skip() {
  echo "skipped: $*"
  exit 77
}

way=$1
shift
# The first CPU that this process may use, or the last: so a run of each way can go on beside the other.
cpus=$(taskset -cp $$ | sed 's/.*: *//')

if [ "$way" = affinity ]; then
  exec taskset -c "${cpus%%[-,]*}" "$@"
fi
cpu=${cpus##*[-,]}
cpu=${cpu%%:*} # of a list with a stride, such as 0-6:2

cgroups=/sys/fs/cgroup
switched_on=no
if [ -f $cgroups/cgroup.controllers ]; then # v2: one tree
  grep -qw cpuset $cgroups/cgroup.controllers || skip "this cgroup tree has no cpuset controller"
  if ! grep -qw cpuset $cgroups/cgroup.subtree_control; then
    (echo +cpuset > $cgroups/cgroup.subtree_control) 2> /dev/null || skip "the cpuset controller cannot be switched on here"
    switched_on=yes
  fi
  parent=$cgroups
elif [ -f $cgroups/cpuset/cpuset.cpus ]; then # v1: cpuset has a tree of its own
  parent=$cgroups/cpuset
else
  skip "no cpuset cgroup is mounted"
fi
group=$parent/feedline-test-$$
before=$parent$(sed -n 's/^[0-9]*:\(.*,\)\?cpuset\(,.*\)\?://p; s/^0:://p' /proc/self/cgroup | head -n 1)
mkdir "$group" 2> /dev/null || skip "a cpuset cgroup takes root"
leave() {
  echo $$ > "$before/cgroup.procs"
  rmdir "$group"
  [ $switched_on = no ] || echo -cpuset > $cgroups/cgroup.subtree_control
}
trap leave EXIT
trap 'exit 130' INT TERM
# With v1, a new group has no CPUs and no memory nodes.
[ "$parent" = $cgroups ] || cat "$parent/cpuset.mems" > "$group/cpuset.mems"
if ! { echo "$cpu" > "$group/cpuset.cpus" && echo $$ > "$group/cgroup.procs"; } 2> /dev/null; then
  skip "the cpuset cgroup refuses this process"
fi
"$@"
