# Headcount as a Nomad job. Apply policy.hcl first; then `nomad job run headcount.nomad.hcl`.
job "headcount" {
  type = "service"

  group "headcount" {
    # One is enough: when its node is lost, Nomad starts it elsewhere, and a restart causes no action.
    count = 1

    # Timers, learned values and events move along with the allocation.
    ephemeral_disk {
      migrate = true
      sticky  = true
      size    = 300
    }

    task "headcount" {
      driver = "docker"

      config {
        image = "headcount:0.1.0"
        args  = ["run", "--config", "/local/headcount.yaml"]
      }

      env {
        HEADCOUNT_STATE_DIR = "/alloc/data"
      }

      # Writes /secrets/nomad_token, and lets it speak to Nomad through /secrets/api.sock.
      identity {
        file = true
      }

      template {
        destination = "local/headcount.yaml"
        change_mode = "noop" # it is read again by itself
        data        = <<-YAML
          groups:
            n8n-worker:
              workers: { min: 1, max: 10, start_up: 30s }
              policy: { slo: { max_wait: 60s } }
              queue:
                bull:
                  redis: { url: "redis://redis.service.consul:6379" }
              target:
                nomad:
                  job: n8n
                  group: worker
                  address: unix:///secrets/api.sock
                  token_file: /secrets/nomad_token
        YAML
      }

      resources {
        cpu    = 50
        memory = 64
      }
    }
  }
}
