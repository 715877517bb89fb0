# What Headcount needs in the namespace of the workers:
#   nomad acl policy apply -namespace default -job headcount headcount deploy/nomad/policy.hcl
# With -job it goes to the workload identity of the job `headcount` in the namespace `default`; without
# it, make a token with `nomad acl token create -policy headcount`.
namespace "default" {
  capabilities = [
    "read-job",         # the allocations, and the kill_timeout of their tasks
    "read-job-scaling", # the count
    "scale-job",        # sets the count
    "alloc-lifecycle",  # optional: stops chosen allocations where Nomad would take a busy one
    "list-jobs",        # optional: names the jobs that are there if the configured one is not
  ]
}

# Optional: `headcount check` compares kill_timeout with the max_kill_timeout of the agent's node.
agent {
  policy = "read"
}
