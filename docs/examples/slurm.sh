#!/bin/bash
# The trade-off sweep under Slurm: one task a node; the first node is the head and runs trials too.
# Replace /SHARED and the resources of the job.
#SBATCH --job-name=lethe
#SBATCH --nodes=3
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --gpus-per-node=1
#SBATCH --time=12:00:00
#SBATCH --signal=B:TERM@300

source /SHARED/lethe/.venv/bin/activate
cd /SHARED/lethe
export HF_HOME=/SHARED/huggingface HF_HUB_OFFLINE=1
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=/SHARED/ray-token-$SLURM_JOB_ID
(umask 077; python -c "import secrets; print(secrets.token_hex(32), end='')" > "$RAY_AUTH_TOKEN_PATH")

nodes=($(scontrol show hostnames "$SLURM_JOB_NODELIST"))
head=$(getent ahostsv4 "${nodes[0]}" | awk '{print $1; exit}')
port=$((20000 + SLURM_JOB_ID % 10000))
size="--num-cpus $SLURM_CPUS_PER_TASK --num-gpus ${SLURM_GPUS_ON_NODE:-0} --temp-dir /tmp/ray-$SLURM_JOB_ID --disable-usage-stats --block"

srun --overlap --nodes=1 --ntasks=1 --nodelist="${nodes[0]}" \
  ray start --head --node-ip-address "$head" --port "$port" --include-dashboard false $size &
export RAY_ADDRESS=$head:$port
until ray status > /dev/null 2>&1; do sleep 2; done
for node in "${nodes[@]:1}"; do
  srun --overlap --nodes=1 --ntasks=1 --nodelist="$node" ray start --address "$RAY_ADDRESS" $size &
done
until [ "$(ray status 2> /dev/null | grep -c ' node_')" -ge "$SLURM_JOB_NUM_NODES" ]; do sleep 2; done

python -m harness.sweep sweeps/tradeoff.yaml --results /SHARED/results &
sweep=$!
trap 'kill -TERM $sweep' TERM    # Five minutes before the end. The report has what is measured; the same job continues.
wait $sweep; code=$?
if kill -0 $sweep 2> /dev/null; then wait $sweep; code=$?; fi    # The signal ended the first wait, not the sweep.
rm -f "$RAY_AUTH_TOKEN_PATH"
exit $code                       # Slurm ends Ray with the job.
