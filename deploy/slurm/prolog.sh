#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Writes which GPUs of this node Slurm gives to a job, for roofline-exporter and for the exporters
# that read the same files (jobstats, plazonic's): /run/gpustat/UUID has a line "JOB USER".
#
# Install it on every node, with epilog.sh beside it, as root's and writable for nobody else:
#
#   install -D -m 755 prolog.sh /etc/slurm/prolog.d/50-gpustat.sh
#   install -D -m 755 epilog.sh /etc/slurm/epilog.d/50-gpustat.sh
#
# and in slurm.conf:
#
#   Prolog=/etc/slurm/prolog.d/*
#   Epilog=/etc/slurm/epilog.d/*
#   PrologFlags=Alloc,Contain
#
# Alloc runs the prolog when the job gets its GPUs, not when its first step starts; with Contain the
# exporter can see when a job has ended whose epilog failed.
#
# SLURM_JOB_GPUS has Slurm's own numbers: positions in gres.conf, which need be neither the driver's
# indices nor the N of /dev/nvidiaN. So a number is looked up in what `slurmd -G` lists, by the N of
# its device file in /proc/driver/nvidia, and there is the UUID. A MIG instance comes with its UUID.
# A GPU whose UUID cannot be found out gets no file: better none than that of another GPU.
#
# Whatever happens, the job starts: the exit code is 0, after at most TIME_LIMIT_SECONDS.
# Seen with Slurm 22.05; before 21.08 SLURM_JOB_GPUS was numbered otherwise.

GPUSTAT=${ROOFLINE_GPUSTAT:-/run/gpustat}
# Also write the files that dcgm-exporter reads, named by index, if this is set to its folder,
# such as /var/lib/dcgm-exporter/job-mapping. Not for MIG instances.
JOB_MAP=${ROOFLINE_JOB_MAP:-}
DRIVER=${ROOFLINE_NVIDIA_PROC:-/proc/driver/nvidia}
TIME_LIMIT_SECONDS=${ROOFLINE_TIME_LIMIT_SECONDS:-20}

PATH=$PATH:/usr/sbin:/usr/bin:/sbin:/bin:/opt/slurm/sbin:/usr/local/sbin
export PATH LC_ALL=C
umask 022

# The devices of gres/gpu in Slurm's order, one on a line: the N of its device file and its UUID,
# which is "-" unless it is a MIG instance. The first line says whether GPUs are shared.
devices() {
  local listing line file count files
  listing=$(slurmd -G ${SLURMD_NODENAME:+-N "$SLURMD_NODENAME"} 2>&1)
  [[ $listing == *"Gres Name=gpu "* ]] || listing=$(slurmd -G 2>&1)
  if [[ $listing =~ Gres\ Name=(shard|mps)\  ]]; then echo shared; else echo exclusive; fi
  while IFS= read -r line; do
    [[ $line =~ Gres\ Name=gpu\ .*Count=([0-9]+)\ .*File=([^ ]+) ]] || continue
    count=${BASH_REMATCH[1]} file=${BASH_REMATCH[2]}
    mapfile -t files < <(expand "$file")
    if [[ $line =~ (MIG-[0-9A-Za-z-]+) ]]; then
      echo "- ${BASH_REMATCH[1]}"
    elif ((count == ${#files[@]})); then
      for file in "${files[@]}"; do
        if [[ $file =~ /nvidia([0-9]+)$ ]]; then echo "${BASH_REMATCH[1]} -"; else echo "- -"; fi
      done
    else
      for ((; count > 0; count--)); do echo "- -"; done
    fi
  done <<<"$listing"
}

# The files of a list as Slurm writes it: /dev/nvidia[0-3,6],/dev/nvidia8
expand() {
  local rest=$1 before ranges after range first last
  while [[ $rest =~ ^([^],[]+)(\[([0-9,-]+)\])?([^],[]*)(,(.+))?$ ]]; do
    before=${BASH_REMATCH[1]} ranges=${BASH_REMATCH[3]} after=${BASH_REMATCH[4]} rest=${BASH_REMATCH[6]}
    if [[ -z $ranges ]]; then
      echo "$before$after"
      continue
    fi
    for range in ${ranges//,/ }; do
      first=${range%-*} last=${range#*-}
      ((10#$last - 10#$first < 1024)) || return
      for ((; 10#$first <= 10#$last; first = 10#$first + 1)); do echo "$before$((10#$first))$after"; done
    done
  done
}

# The GPUs of the driver, in the order of the bus as it numbers them: N of the device file and UUID.
gpus() {
  local folder text uuid minor
  for folder in "$DRIVER"/gpus/*/; do
    text=$(<"${folder}information") || continue
    [[ $text =~ Device\ Minor:[[:space:]]*([0-9]+) ]] || continue
    minor=${BASH_REMATCH[1]} uuid=
    # Of a GPU that nobody has opened since it was started, it has question marks.
    if [[ $text =~ GPU\ UUID:[[:space:]]*(GPU-[0-9a-fA-F-]+)([[:space:]]|$) ]]; then
      uuid=${BASH_REMATCH[1]}
    else
      folder=${folder%/}
      uuid=$(nvidia-smi -i "${folder##*/}" --query-gpu=uuid --format=csv,noheader 2>/dev/null)
      [[ $uuid =~ ^GPU-[0-9a-fA-F-]+$ ]] || uuid=-
    fi
    echo "$minor $uuid"
  done
}

# Add a line to a file, or let it be the only one; nobody ever sees half a file.
put() {
  local folder=$1 name=$2 line=$3 sharing=$4 new
  new=$(mktemp "$folder/.$name.XXXXXX") || return
  {
    [[ $sharing == exclusive || ! -f $folder/$name ]] || grep -vxF -- "$line" "$folder/$name"
    printf '%s\n' "$line"
  } >"$new"
  chmod 644 "$new" && mv -f "$new" "$folder/$name" || rm -f "$new"
}

main() {
  local ids sharing device minor uuid index found
  [[ ${SLURM_JOB_ID-} =~ ^[0-9]+$ ]] || return
  ids=${SLURM_JOB_GPUS-}
  # Slurm has put the UUIDs of MIG instances here, and its own numbers there.
  [[ -n $ids && ${CUDA_VISIBLE_DEVICES-} != *MIG-* ]] || ids=${CUDA_VISIBLE_DEVICES-}
  [[ -n $ids && $ids != NoDevFiles ]] || return
  mkdir -p "$GPUSTAT" ${JOB_MAP:+"$JOB_MAP"}
  exec {lock}>"$GPUSTAT/.lock" && flock "$lock"
  mapfile -t slurms < <(devices)
  mapfile -t drivers < <(gpus)
  sharing=${slurms[0]}
  for id in ${ids//,/ }; do
    index=
    if [[ $id =~ ^(GPU|MIG)-[0-9A-Za-z-]+$ ]]; then
      uuid=$id
    elif [[ $id =~ ^[0-9]+$ ]]; then
      read -r minor uuid <<<"${slurms[10#$id + 1]-- -}"
      for ((found = 0; found < ${#drivers[@]}; found++)); do
        read -r device device_uuid <<<"${drivers[found]}"
        if [[ $device == "$minor" ]]; then uuid=$device_uuid index=$found; fi
      done
    else
      continue
    fi
    if [[ $uuid != [GM]* ]]; then
      echo "gpustat: no UUID found for GPU $id of job $SLURM_JOB_ID" >&2
      continue
    fi
    put "$GPUSTAT" "$uuid" "$SLURM_JOB_ID ${SLURM_JOB_USER:-${SLURM_JOB_UID-}}" "$sharing"
    [[ -z $JOB_MAP || -z $index ]] || put "$JOB_MAP" "$index" "$SLURM_JOB_ID" "$sharing"
  done
}

if [[ ${ROOFLINE_LIMITED-} == yes ]]; then
  main
else
  ROOFLINE_LIMITED=yes timeout -k 1 "$TIME_LIMIT_SECONDS" "$BASH" "${BASH_SOURCE[0]}"
fi
exit 0
