#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Cancels the jobs that have held the GPUs of this node idle for IDLE: notifies first, and acts after
# GRACE_MINUTES in which they stayed idle. Run it as root every 10 minutes; docs/automation.md.
#
# A job counts as busy if that is not known, if it has other nodes, which this one cannot see, and if
# its comment has keep-idle-gpus (sbatch --comment=keep-idle-gpus).
set -eu
idle=${IDLE:-2h}
grace=${GRACE_MINUTES:-60}
notices=${NOTICES:-/run/gpu-idle-reclaim}

mkdir -p "$notices"
find "$notices" -type f -mmin +10080 -delete
jobs=$(squeue --noheader --states=RUNNING --nodelist="$(hostname -s)" --format='%A %D %k')
printf '%s\n' "$jobs" | while read -r job nodes comment; do
  case $nodes:$comment in
    1:*keep-idle-gpus*) continue ;;
    1:*) ;;
    *) continue ;;
  esac
  notice=$notices/$job
  if ! said=$(roofline-exporter idle --job "$job" --for "$idle" 2>&1 </dev/null); then
    rm -f "$notice" # busy, or not known: after it the grace begins anew
  elif [ ! -e "$notice" ]; then
    echo "job $job: $said; notified"
    scontrol notify "$job" "The GPUs of this job have been idle for $idle. It is cancelled in $grace minutes unless they work." </dev/null
    : >"$notice"
  elif [ -n "$(find "$notice" -mmin "+$grace")" ]; then
    echo "job $job: $said; cancelled"
    scancel "$job" </dev/null
    rm -f "$notice"
  fi
done
