# A Windmill script (Bash) for the target `windmill_script`, and for Windmill's own autoscaling: put it
# into the workspace `admins` as f/ops/scale. Here it asks Kubernetes; write what your orchestrator takes.
worker_group="$1"
desired_workers="$2"
reason="$3"
event_type="$4"

echo "$event_type: $worker_group to $desired_workers, for $reason"
kubectl scale "deployment/windmill-workers-$worker_group" --replicas="$desired_workers" -n windmill
