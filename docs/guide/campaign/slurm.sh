#!/bin/bash
#SBATCH --job-name=mlperf
#SBATCH --nodes=2 --ntasks-per-node=1 --cpus-per-task=32 --gpus-per-node=8 --exclusive
#SBATCH --time=12:00:00
#SBATCH --requeue --open-mode=append
#SBATCH --signal=B:USR1@300
#
# A campaign as a job, from the checkout on a file system that all nodes share. my_submission.toml has
#
#   [servers]
#   command = "srun sglang/run_server.sh --model_path /models/gpt-oss-120b --dp 8"
#   url = "slurm:$SLURM_JOB_NODELIST:30000"
#
# Slurm sends SIGUSR1 five minutes before the time limit: the run ends in order, and the job queues itself again.
# scancel sends SIGTERM to all: the run ends in order, and the job is over.

again() {
    kill -TERM $!
    wait $!
    scontrol requeue "$SLURM_JOB_ID"
}
trap again USR1

./mlperf campaign "${1:-my_submission.toml}" &
wait $!
