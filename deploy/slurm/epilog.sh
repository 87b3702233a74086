#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Takes back what prolog.sh wrote for a job: its own lines, and files that are empty without them.
# How both are installed is said there. The node is never drained for it: the exit code is 0, after
# at most TIME_LIMIT_SECONDS.

GPUSTAT=${ROOFLINE_GPUSTAT:-/run/gpustat}
# The folder that prolog.sh writes for dcgm-exporter, if it does.
JOB_MAP=${ROOFLINE_JOB_MAP:-}
TIME_LIMIT_SECONDS=${ROOFLINE_TIME_LIMIT_SECONDS:-20}

PATH=$PATH:/usr/bin:/bin
export PATH LC_ALL=C
umask 022

# Take the lines of a job out of a file; nobody ever sees half a file.
take() {
  local folder=$1 name=$2 job=$3 line left=
  while IFS= read -r line || [[ -n $line ]]; do
    [[ $line == "$job" || $line == "$job "* || -z $line ]] || left+=$line$'\n'
  done <"$folder/$name"
  if [[ -z $left ]]; then
    rm -f "$folder/$name"
  else
    new=$(mktemp "$folder/.$name.XXXXXX") || return
    printf '%s' "$left" >"$new"
    chmod 644 "$new" && mv -f "$new" "$folder/$name" || rm -f "$new"
  fi
}

main() {
  local folder file
  [[ ${SLURM_JOB_ID-} =~ ^[0-9]+$ && -d $GPUSTAT ]] || return
  exec {lock}>"$GPUSTAT/.lock" && flock "$lock"
  for folder in "$GPUSTAT" ${JOB_MAP:+"$JOB_MAP"}; do
    for file in "$folder"/*; do
      if [[ -f $file ]] && grep -qE "^$SLURM_JOB_ID( |\$)" "$file"; then
        take "$folder" "${file##*/}" "$SLURM_JOB_ID"
      fi
    done
  done
}

if [[ ${ROOFLINE_LIMITED-} == yes ]]; then
  main
else
  ROOFLINE_LIMITED=yes timeout -k 1 "$TIME_LIMIT_SECONDS" "$BASH" "${BASH_SOURCE[0]}"
fi
exit 0
