use std::env::VarError;

use super::*;

/// Reads variables from a table instead of the environment.
fn table<'a>(vars: &'a [(&str, &str)]) -> impl Fn(&str) -> Result<String, VarError> + 'a {
    |name| {
        let value = vars.iter().find(|(known, _)| *known == name).map(|(_, v)| (*v).to_string());
        value.ok_or(VarError::NotPresent)
    }
}

fn parse_as(text: &str, vars: &[(&str, &str)]) -> Result<Config, String> {
    let lookup = table(vars);
    parse_with(text, "f", Path::new("/"), &Overrides::default(), &lookup).map_err(|e| e.to_string())
}

const VARIABLES: &str = "\
groups:
  a:
    workers: { max: \"${MAX}\" }
    look: ${LOOK:-5}s
    brake: { off: \"${OFF:-false}\" }
    queue: { bull: { redis: { url: \"redis://${HOST}\" } } }
    target: { process: { command: [w, \"${ARG:-}\", a$$b, $5], env: { PASSWORD: \"${PW}\" } } }
";

#[test]
fn variables_become_what_is_expected_there() {
    let vars =
        [("MAX", "7"), ("HOST", "h"), ("PW", "0123"), ("ARG", "x: 1\ny: [2]"), ("LOOK", "2")];
    let config = parse_as(VARIABLES, &vars).unwrap();
    let group = &config.groups[0];
    assert_eq!(group.rules.workers.max, 7);
    assert_eq!(group.look, Span::from_secs(2));
    let TargetConfig::Process(process) = &group.target else { panic!("not a process") };
    assert_eq!(process.command, ["w", "x: 1\ny: [2]", "a$b", "$5"]);
    assert_eq!(process.env["PASSWORD"].expose(), "0123");
}

#[test]
fn a_value_cannot_change_the_structure() {
    for evil in ["1, min: 9", "1}\n    min: 9", "{min: 9}", "[1]", "!!int 7", "*a", "7 # x", ""] {
        let vars = [("MAX", evil), ("HOST", "h"), ("PW", "p")];
        let said = parse_as(VARIABLES, &vars).unwrap_err();
        assert_eq!(said, "f:3:21 groups.a.workers.max: \"${MAX}\" is not a whole number");
    }
}

#[test]
fn contents_of_variables_are_never_shown() {
    let secret = "s3cr3t-\"x\"";
    let text = "\
keep_days: ${PW}
log: { level: \"${PW}\" }
http: { listen: \"${PW}\" }
groups:
  a:
    look: ${PW}
    schedule: { zone: \"${PW}\", windows: [{ from: \"${PW}\", to: \"x${PW}\" }] }
    busy: ${PW}
    brake: { off: \"${PW}\" }
    policy: \"${PW}\"
    queue: { demo: { database: d } }
    target: { process: { command: [], env: { \"1\": \"${PW}\" } } }
";
    let vars = [("PW", secret)];
    let lookup = table(&vars);
    let errors = parse_with(text, "f", Path::new("/"), &Overrides::default(), &lookup).unwrap_err();
    let json = serde_json::to_string(&errors).unwrap();
    assert!(errors.all().len() > 8, "{errors}");
    for shown in [errors.to_string(), errors.with_lines(), format!("{errors:?}"), json] {
        assert!(!shown.contains("s3cr3t"), "{shown}");
    }
}

/// Windmill's custom_tags say which jobs count; the queue must count them, or nobody would.
#[test]
fn custom_tags_of_the_policy_are_those_of_the_queue() {
    let file = |queue: &str, policy: &str| {
        let queue = format!("windmill: {{ url: \"postgres://u@h/d\"{queue} }}");
        let text = format!(
            "groups:\n  g:\n    policy: {{ occupancy: {{ {policy} }} }}\n    \
             queue: {{ {queue} }}\n    target: {{ dry_run: {{ workers: 1 }} }}\n"
        );
        parse_as(&text, &[]).map(|config| match &config.groups[0].queue {
            QueueConfig::Windmill(windmill) => windmill.tags.clone(),
            other => panic!("{other:?}"),
        })
    };
    let tags = |tags: &[&str]| Ok(tags.iter().map(|tag| (*tag).to_owned()).collect());
    assert_eq!(file("", "custom_tags: [gpu]"), tags(&["gpu"]));
    assert_eq!(file(", tags: [gpu, deno]", "custom_tags: [gpu]"), tags(&["gpu", "deno"]));
    assert_eq!(file(", tags: [deno]", "poll: 30s"), tags(&["deno"]));
    let said = "f:3:28 groups.g.policy.occupancy.custom_tags: gpu is not among the tags of the \
                queue; add it there";
    assert_eq!(file(", tags: [deno]", "custom_tags: [gpu]"), Err(said.to_owned()));
}

#[test]
fn two_groups_may_not_scale_the_same_workers() {
    let file = |of_a: &str, of_b: &str| {
        let group = |name, target| {
            format!("  {name}:\n    queue: {{ demo: {{ database: d }} }}\n    target: {target}\n")
        };
        let text = format!("groups:\n{}{}", group("a", of_a), group("b", of_b));
        parse_as(&text, &[]).map(|config| config.groups.len())
    };
    let shop = "{ compose: { project: shop, service: w } }";
    let said = "f:7:5 groups.b.target: groups `a` and `b` scale the same workers; let one of them \
        do it, or make the other one's target a dry_run";
    assert_eq!(file(shop, shop), Err(said.to_string()));
    let dry = format!("{{ dry_run: {{ target: {shop} }} }}");
    let process = "{ process: { command: [w] } }";
    for other in [dry.as_str(), process, "{ compose: { project: shop, service: v } }"] {
        assert_eq!(file(shop, other), Ok(2), "{other}");
    }
    assert_eq!(file(process, process), Ok(2), "each has processes of its own");
}

#[test]
fn the_fewest_workers_of_all_groups_fit_into_the_budget() {
    let file = |budget: u32, target_of_b: &str| {
        let group = |name, target| {
            format!(
                "  {name}: {{ workers: {{ min: 3 }}, weight: 2, queue: {{ demo: {{ database: d }} }}, \
                 target: {target} }}\n"
            )
        };
        let process = "{ process: { command: [w] } }";
        let (a, b) = (group("a", process), group("b", target_of_b));
        parse_as(&format!("budget: {{ workers: {budget} }}\ngroups:\n{a}{b}"), &[])
    };
    let process = "{ process: { command: [w] } }";
    let said = "f:1:20 budget.workers: 5 is less than the 6 workers that the groups have at least; \
        raise it, or lower their min";
    assert_eq!(file(5, process).unwrap_err(), said);
    let config = file(6, process).unwrap();
    assert_eq!((config.budget, config.groups[0].weight), (Some(6), 2));
    assert!(file(5, "{ dry_run: { workers: 1 } }").is_ok(), "who only pretends takes nothing");
}

#[test]
fn literal_secrets_are_not_shown_either() {
    let text = "\
groups:
  a:
    queue: { demo: { database: d } }
    target: { process: { command: [], env: { \"1\": hunter2, A: \"hunter2\\0\" } } }
";
    let lookup = table(&[]);
    let errors = parse_with(text, "f", Path::new("/"), &Overrides::default(), &lookup).unwrap_err();
    assert!(errors.all().len() > 1, "{errors}");
    let shown = errors.with_lines();
    assert!(!shown.contains("hunter2"), "{shown}");
}

fn env(vars: &[(&str, &str)]) -> Option<Result<Found, String>> {
    let lookup = table(vars);
    environment::read(&lookup, &Overrides::default()).map(|found| found.map_err(|e| e.to_string()))
}

#[test]
fn the_environment_counts_only_if_a_variable_of_the_reference_is_set() {
    for vars in
        [&[][..], &[("PATH", "/bin"), ("QUEUE_BULL_REDIS_HOST", "r")], &[("REDIS_HOST", "")]]
    {
        assert!(env(vars).is_none(), "{vars:?}");
    }
    assert!(env(&[("N8N_API_KEY", "k")]).is_some());
}

/// The variables mean the same as the file.
fn assert_means(vars: &[(&str, &str)], text: &str) {
    let found = env(vars).expect("a variable is set").expect("the variables are right");
    let mut wanted = parse_as(text, &[]).expect("the file is right");
    wanted.groups[0].base_dir = std::env::current_dir().expect("there is a working directory");
    assert_eq!(found.config, wanted);
    assert_eq!(found.file, None);
}

#[test]
fn the_environment_alone_is_the_reference_autoscaler() {
    let text = "\
groups:
  n8n-worker:
    workers: { min: 1, max: 4, slots: 1 }
    policy: { cpu_aware: {} }
    queue: { bull: { redis: { url: \"redis://redis:6379/0\" } } }
    target: { compose: { project: n8n-automation, service: n8n-worker } }
    metrics_list: { key: \"autoscaler:metrics\", keep: 200 }
";
    assert_means(&[("REDIS_HOST", "redis")], text);
    assert_means(&[("N8N_API_KEY", "x")], text);
}

#[test]
fn every_variable_of_the_reference_is_heeded() {
    let vars = [
        ("REDIS_HOST", "fd00::1"),
        ("REDIS_PORT", "6380"),
        ("REDIS_PASSWORD", "p$w ${X}"),
        ("COMPOSE_PROJECT_NAME", "shop"),
        ("COMPOSE_FILE", "/srv/a.yml:/srv/b.yml"),
        ("WORKER_COMPOSE_FILE", "/srv/$w.yml"),
        ("ENV_FILE", "/srv/.env"),
        ("HOST_PROJECT_DIR", "/srv"),
        ("MIN_WORKERS", "2"),
        ("MAX_WORKERS", "6"),
        ("CPU_SCALE_UP_MAX", "60.5"),
        ("CPU_SCALE_DOWN_EMERGENCY", "90"),
        ("IDLE_BEFORE_SCALEDOWN_SEC", "60"),
        ("POLL_INTERVAL_SEC", "0.5"),
        ("COOLDOWN_SEC", "0"),
        ("EWMA_ALPHA_UP", "1"),
        ("EWMA_ALPHA_DOWN", "0.2"),
        ("N8N_BASE_URL", "http://n8n"),
        ("N8N_API_KEY", "key"),
    ];
    assert_eq!(vars.map(|(name, _)| name), environment::REFERENCE);
    let text = "\
groups:
  n8n-worker:
    workers: { min: 2, max: 6 }
    policy:
      cpu_aware:
        { poll: 500ms, scale_out_below: 60.5, emergency: 90, idle: 1m, cooldown: 0s, alpha_up: 1,
          alpha_down: 0.2 }
    queue: { bull: { redis: { url: \"redis://[fd00::1]:6380/0\", password: \"p$w $${X}\" } } }
    target:
      compose:
        { project: shop, service: n8n-worker, env_file: /srv/.env, project_directory: /srv,
          files: [/srv/a.yml, /srv/b.yml, /srv/$w.yml] }
    metrics_list: {}
";
    assert_means(&vars, text);
    assert_eq!(env(&vars).unwrap().unwrap().notes.len(), 1);
}

#[test]
fn names_of_bull_itself_are_heeded_too() {
    let vars = [
        ("MAX_WORKERS", "4"),
        ("QUEUE_BULL_PREFIX", "shop"),
        ("QUEUE_BULL_REDIS_HOST", "h"),
        ("QUEUE_BULL_REDIS_DB", "2"),
        ("QUEUE_BULL_REDIS_TLS", "true"),
        ("QUEUE_BULL_REDIS_USERNAME", "u"),
        ("QUEUE_BULL_REDIS_PASSWORD", "p"),
    ];
    let text = "\
groups:
  n8n-worker:
    policy: { cpu_aware: {} }
    queue:
      bull: { prefix: shop, redis: { url: \"rediss://h:6379/2\", username: u, password: p } }
    target: { compose: { project: n8n-automation, service: n8n-worker } }
    metrics_list: {}
";
    assert_means(&vars, text);
}

#[test]
fn what_is_wrong_with_a_variable_names_it() {
    let table = [
        (("MIN_WORKERS", "-1"), "environment MIN_WORKERS: -1 is not 0 or more"),
        (("MIN_WORKERS", "9"), "environment MIN_WORKERS: min 9 is above max 4; swap them?"),
        (("MAX_WORKERS", "four"), "environment MAX_WORKERS: \"four\" is not a whole number"),
        (
            ("POLL_INTERVAL_SEC", "0"),
            "environment POLL_INTERVAL_SEC: 0s is too short; use 100ms or more",
        ),
        (
            ("COOLDOWN_SEC", "soon"),
            "environment COOLDOWN_SEC: `soon` is not a length of time; write e.g. 500ms, 30s, 1m 30s or 2h",
        ),
        (("COOLDOWN_SEC", "-5"), "environment COOLDOWN_SEC: -5s is negative; must be 0s or more"),
        (("EWMA_ALPHA_UP", "2"), "environment EWMA_ALPHA_UP: 2 must be above 0 and at most 1"),
        (("CPU_SCALE_UP_MAX", "inf"), "environment CPU_SCALE_UP_MAX: \"inf\" is not a number"),
        (("REDIS_HOST", "a b"), "environment REDIS_HOST: `a b` is not a host name or address"),
        (
            ("REDIS_PORT", "99999"),
            "environment REDIS_PORT: `99999` is not a whole number from 0 to 65535",
        ),
    ];
    for (var, wanted) in table {
        assert_eq!(env(&[var]).unwrap().unwrap_err(), wanted, "{var:?}");
    }
    let both = env(&[("MIN_WORKERS", "x"), ("MAX_WORKERS", "0")]).unwrap().unwrap_err();
    assert_eq!(both, "environment MIN_WORKERS: \"x\" is not a whole number");
}
