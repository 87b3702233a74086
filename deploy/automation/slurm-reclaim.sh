#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Cancels the jobs that have held the GPUs of this node idle for IDLE: notifies first, and acts after
# GRACE_MINUTES in which they stayed idle. Run it as root every 10 minutes; docs/automation.md.
#
# Left alone is a job of which it is not known, one with other nodes, which this one cannot see, one
# that cannot be notified, and one whose comment has keep-idle-gpus
# (sbatch --comment=keep-idle-gpus).
set -eu
idle=${IDLE:-2h}
grace=${GRACE_MINUTES:-60}
notices=${NOTICES:-/run/gpu-idle-reclaim}
node=${NODE:-$(hostname -s)}

mkdir -p "$notices"
find "$notices" -type f -mmin +10080 -delete
jobs=$(squeue --noheader --states=RUNNING --nodelist="$node" --format='%A %D %k')
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
    text="The GPUs of this job have been idle for $idle. It is cancelled in $grace minutes unless they work."
    if scontrol notify "$job" "$text" </dev/null; then
      echo "job $job: $said; notified"
      : >"$notice"
    fi
  elif [ -n "$(find "$notice" -mmin "+$grace")" ]; then
    echo "job $job: $said; cancelled"
    scancel "$job" </dev/null
    rm -f "$notice"
  fi
done
