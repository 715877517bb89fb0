//! The configuration file: what is wrong is told with its line, key and fix, all at once.

use std::path::Path;

use headcount::config::{self, ConfigErrors, Overrides};
use headcount_core::Span;
use proptest::prelude::*;

use crate::support::run::{headcount, run};

fn parse(text: &str) -> Result<config::Config, ConfigErrors> {
    config::parse(text, "f", Path::new("/etc/headcount"))
}

fn errors(text: &str) -> String {
    parse(text).expect_err("the file is wrong").to_string()
}

/// A group that is right but for `rest`, indented by two.
fn group(rest: &str) -> String {
    format!(
        "groups:\n a:\n  queue: {{demo: {{database: d}}}}\n  target: {{process: {{command: [w]}}}}\n{rest}"
    )
}

#[test]
fn a_short_file_has_the_defaults() {
    let config = parse(&group("")).unwrap();
    assert_eq!(config.listen, Some(([127, 0, 0, 1], 9411).into()));
    assert_eq!(config.keep_days, 30);
    let group = config.group("a").unwrap();
    assert_eq!(group.rules, headcount_core::Rules::default());
    assert_eq!(group.look, Span::from_secs(5));
    assert_eq!(group.base_dir, Path::new("/etc/headcount"));
    let place = group.place(Path::new("/state"));
    assert_eq!(place.state_dir, Path::new("/state/groups/a"));
}

#[test]
fn what_can_be_off_may_be_that_word() {
    let rules = |text: &str| parse(&group(text)).unwrap().groups.remove(0).rules;
    for off in ["off", "false", "{off: true}", "\"off\""] {
        let both = rules(&format!("  brake: {off}\n  capacity: {off}\n"));
        assert!(both.brake.off && both.capacity.off, "{off}");
        let cpu = rules(&format!("  brake: {{cpu: {off}}}\n")).brake;
        assert!(cpu.cpu().off && !cpu.memory().off && !cpu.off, "{off}");
    }
    let folder = tempfile::tempdir().unwrap();
    let file = "workers: {min: 1, max: 2}\nbrake: off\ncapacity: false\n";
    std::fs::write(folder.path().join("rules.yaml"), file).unwrap();
    let replay = headcount(folder.path(), &["replay", "--policy", "rules.yaml"]);
    assert_eq!(run(replay, b"").code, 0, "the rules of a replay are written alike");
}

#[test]
fn relative_paths_start_at_the_file_or_on_the_command_line_here() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("headcount.yaml");
    std::fs::write(&path, format!("state_dir: state\n{}", group(""))).unwrap();
    let load = |state_dir: Option<&str>| {
        let overrides = Overrides { state_dir: state_dir.map(Into::into) };
        config::load(&path, &overrides).unwrap().state_dir
    };
    assert_eq!(load(None), folder.path().join("state"));
    assert_eq!(load(Some("other")), std::env::current_dir().unwrap().join("other"));
    assert_eq!(load(Some("/other")), Path::new("/other"));
}

#[test]
fn groups_keep_the_order_of_the_file() {
    let entry = "{queue: {demo: {database: d}}, target: {process: {command: [w]}}}";
    let config = parse(&format!("groups:\n z: {entry}\n a: {entry}\n m: {entry}\n")).unwrap();
    let names: Vec<_> = config.groups.iter().map(|g| g.name.as_str()).collect();
    assert_eq!(names, ["z", "a", "m"]);
}

#[test]
fn anchors_and_own_keys_share_what_groups_have_in_common() {
    let text = "\
x-common: &common
  queue: {demo: {database: d}}
  target: {process: {command: [w]}}
groups:
  a: {<<: *common, workers: {max: 7}}
  b: *common
";
    let config = parse(text).unwrap();
    assert_eq!(config.group("a").unwrap().rules.workers.max, 7);
    assert_eq!(config.group("b").unwrap().rules.workers.max, 4);
}

#[test]
fn json_is_accepted() {
    let text = "{\n\t\"groups\": {\"a\": {\"queue\": {\"demo\": {\"database\": \"d\"}},\n\t\t\"target\": {\"process\": {\"command\": [\"w\"]}}}}}";
    assert_eq!(parse(text).unwrap().groups.len(), 1);
}

/// One mistake in a group, and what is said of it. The group's own lines are 1 to 4.
#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn each_mistake_has_its_line_and_its_fix() {
    let table = [
        ("  workers: {min: -1}\n", "f:5:18 groups.a.workers.min: -1 is not 0 or more"),
        ("  workers: {min: 1.5}\n", "f:5:18 groups.a.workers.min: 1.5 is not a whole number"),
        (
            "  workers: {max: \"4\"}\n",
            "f:5:18 groups.a.workers.max: \"4\" is a text; write a whole number without quotes",
        ),
        ("  workers: {max: four}\n", "f:5:18 groups.a.workers.max: four is not a whole number"),
        (
            "  workers: {max: 99999999999}\n",
            "f:5:18 groups.a.workers.max: 99999999999 is above 4294967295, the most there may be",
        ),
        ("  workers: {max: 20000}\n", "f:5:18 groups.a.workers.max: 20000 is above the limit of 10000"),
        ("  workers: {max: [4]}\n", "f:5:18 groups.a.workers.max: must be a whole number, not a list"),
        ("  workers: {max: }\n", "f:5:16 groups.a.workers.max: must be a whole number, not nothing"),
        (
            "  workers: {min: 5, max: 2}\n",
            "f:5:18 groups.a.workers.min: min 5 is above max 2; swap them?",
        ),
        ("  workers: {slots: 0}\n", "f:5:20 groups.a.workers.slots: must be 1 to 10000"),
        ("  workers: {mx: 2}\n", "f:5:13 groups.a.workers.mx: unknown key; did you mean `max`?"),
        (
            "  workers: {size: 2}\n",
            "f:5:13 groups.a.workers.size: unknown key; known are max, min, slots, start_up",
        ),
        (
            "  brake: on\n",
            "f:5:10 groups.a.brake: must be a mapping, or `off` (also `false`), not a text",
        ),
        (
            "  capacity: true\n",
            "f:5:13 groups.a.capacity: must be a mapping, or `off` (also `false`), not true or false",
        ),
        (
            "  capacity: {cpu: 0}\n",
            "f:5:19 groups.a.capacity.cpu: must be a percentage, 1 to 100; `capacity: off` switches both off",
        ),
        ("  workers: 4\n", "f:5:12 groups.a.workers: must be a mapping, not a number"),
        (
            "  look: 90\n",
            "f:5:9 groups.a.look: 90 has no unit; write 90s for seconds, or m, h, ms",
        ),
        (
            "  look: soon\n",
            "f:5:9 groups.a.look: `soon` is not a length of time; write e.g. 500ms, 30s, 1m 30s or 2h",
        ),
        ("  look: -3s\n", "f:5:9 groups.a.look: -3s is negative; must be 0s or more"),
        ("  look: 0s\n", "f:5:9 groups.a.look: 0s is not between 100ms and 1h"),
        ("  settle: [1s]\n", "f:5:11 groups.a.settle: must be a text, not a list"),
        (
            "  policy: {cpu_aware: {emergency: .nan}}\n",
            "f:5:35 groups.a.policy.cpu_aware.emergency: .nan is not a number",
        ),
        (
            "  policy: {cpu_aware: {poll: 1ms}}\n",
            "f:5:30 groups.a.policy.cpu_aware.poll: 1ms is too short; use 100ms or more",
        ),
        (
            "  policy: cpu_aware\n",
            "f:5:11 groups.a.policy: needs a mapping: write `{ cpu_aware: {} }`",
        ),
        ("  busy: protekt\n", "f:5:9 groups.a.busy: `protekt` is unknown; did you mean `protect`?"),
        ("  busy: {any: 1}\n", "f:5:10 groups.a.busy.any: takes nothing; write only `any`"),
        ("  busy: 3\n", "f:5:9 groups.a.busy: must be one of protect, drain, any, not a number"),
        (
            "  schedule: {zone: Mars, windows: []}\n",
            "f:5:20 groups.a.schedule.zone: `Mars` is no IANA time zone; write e.g. Europe/Berlin",
        ),
        ("  schedule: {zone: UTC}\n", "f:5:3 groups.a.schedule: key `windows` is missing"),
        (
            "  schedule: {windows: [{days: [tuesday], from: 08:00, to: 09:00}]}\n",
            "f:5:32 groups.a.schedule.windows[0].days[0]: `tuesday` is unknown; did you mean `tue`?",
        ),
        (
            "  schedule: {windows: [{from: 8:00, to: 24:00}]}\n",
            "\
f:5:31 groups.a.schedule.windows[0].from: `8:00` is not a time of day; write e.g. \"08:00\"
f:5:41 groups.a.schedule.windows[0].to: `24:00` is not a time of day; write \"00:00\" for midnight",
        ),
        (
            "  fallback: {after: 5m, workers: 9}\n",
            "f:5:34 groups.a.fallback.workers: 9 is outside 1 to 4",
        ),
        ("  limits: {step_out: 0}\n", "f:5:22 groups.a.limits.step_out: 0 would stop all scaling; use `pause` for that"),
        ("  brake: {off: yes}\n", "f:5:16 groups.a.brake.off: yes is neither true nor false; write one of them"),
        ("  metrics_list: {}\n", "f:5:3 groups.a.metrics_list: the queue has no Redis; say which one under `redis:`"),
        (
            "  queue: {demo: {database: d}}\n",
            "f:5:3 groups.a.queue: is given twice, first in line 3; keep one",
        ),
        ("\tlook: 1s\n", "f:5:2: a tab cannot indent in YAML; use spaces"),
        ("   look: 1s\n", "f:5:4: not valid YAML: while parsing a block mapping, did not find expected key; is the line indented like its neighbours?"),
        (
            "  look: \"${HEADCOUNT_NOT_SET}\"\n",
            "f:5:9 groups.a.look: variable HEADCOUNT_NOT_SET is not set; set it, or give a default: ${HEADCOUNT_NOT_SET:-default}",
        ),
        (
            "  workers: {max: ${HEADCOUNT_NOT_SET}}\n",
            "f:5:19: while parsing a flow mapping, did not find expected ',' or '}'; inside { } put variables in quotes: \"${NAME}\"",
        ),
        (" B: {}\n", "\
f:5:2 groups.B: key `queue` is missing; write `queue: { KIND: ... }` with one of bull, demo, windmill
f:5:2 groups.B: key `target` is missing; write `target: { KIND: ... }` with one of compose, docker, dry_run, ecs, kubernetes, nomad, process, script, swarm, webhook, windmill_script
f:5:2 groups.B: a group's name has 1 to 63 of a-z, 0-9, `.`, `_` and `-`"),
        ("keep_days: 0\n", "f:5:12 keep_days: 0 is not 1 or more"),
        ("groups: {}\n", "f:5:1 groups: is given twice, first in line 1; keep one"),
        ("---\na: 1\n", "f:6:1: a second document starts here; keep one, without `---` in between"),
        ("log: {level: loud}\n", "f:5:14 log.level: `loud` is unknown; known are error, warn, info, debug, trace"),
        ("http: {listen: 0.0.0.0:80}\n", "f:5:16 http.listen: 0.0.0.0:80 can be reached from elsewhere, and there is no authentication yet; write 127.0.0.1:80"),
        ("https: {}\n", "f:5:1 https: unknown key; did you mean `http`?"),
    ];
    let said = |mistake: &str| errors(&group(mistake));
    let wrong: Vec<_> = table.iter().filter(|(m, wanted)| said(m) != *wanted).collect();
    for (mistake, wanted) in &wrong {
        println!("{mistake}\n  said   {}\n  wanted {wanted}", said(mistake));
    }
    assert!(wrong.is_empty(), "{} of {} differ, see above", wrong.len(), table.len());
}

#[test]
fn a_key_that_lacks_only_an_underscore_is_the_nearest() {
    let text = "groups: {a: {queue: {bull: {redis: {url: \"redis://h\", passwordfile: x}}}, target: {dry_run: {}}}}";
    let said = errors(text);
    assert!(said.contains("passwordfile: unknown key; did you mean `password_file`?"), "{said}");
}

#[test]
fn kinds_that_do_not_exist() {
    let text = "groups: {a: {queue: {bul: {}}, target: {compose: {}, process: {}}}}";
    let wanted = "\
f:1:22 groups.a.queue.bul: unknown key; did you mean `bull`?
f:1:32 groups.a.target: needs exactly one of compose, docker, dry_run, ecs, kubernetes, nomad, process, script, swarm, webhook, windmill_script, has 2";
    assert_eq!(errors(text), wanted);
}

#[test]
fn files_without_groups() {
    for text in ["groups: {}", "groups:\n", "log: {}\ngroups: {}\n"] {
        let said = errors(text);
        assert!(said.ends_with("no groups; name at least one under `groups:`"), "{said}");
    }
    for text in ["", "\n# nothing\n", "{}", "log: {}"] {
        let said = errors(text);
        assert!(said.contains("key `groups` is missing"), "{text:?}: {said}");
    }
    assert_eq!(errors("3"), "f:1:1: must be a mapping, not a number");
    assert_eq!(errors("[]"), "f:1:1: must be a mapping, not a list");
}

#[test]
fn everything_wrong_is_told_at_once_in_order() {
    let text = "\
keep_days: many
groups:
  a:
    workers: { min: 3, max: 2 }
    polcy: {}
    queue: { demo: {database: d} }
    target: { process: { command: [w] } }
  b:
    workers: { min: -3 }
    look: 5
    queue: { demo: {database: d} }
";
    let wanted = "\
f:1:12 keep_days: many is not a whole number
f:4:21 groups.a.workers.min: min 3 is above max 2; swap them?
f:5:5 groups.a.polcy: unknown key; did you mean `policy`?
f:8:3 groups.b: key `target` is missing; write `target: { KIND: ... }` with one of compose, docker, dry_run, ecs, kubernetes, nomad, process, script, swarm, webhook, windmill_script
f:9:21 groups.b.workers.min: -3 is not 0 or more
f:10:11 groups.b.look: 5 has no unit; write 5s for seconds, or m, h, ms";
    assert_eq!(errors(text), wanted);
}

#[test]
fn no_error_is_made_up_from_another() {
    // min 10 is not above max, which is nobody knows what.
    let text = group("  workers: {min: 10, max: fuor}\n  fallback: {after: 1m, workers: 9}\n");
    assert_eq!(errors(&text), "f:5:27 groups.a.workers.max: fuor is not a whole number");
}

#[test]
fn a_flood_of_errors_is_cut() {
    let keys: String = (0..200).map(|i| format!("  key{i}: 1\n")).collect();
    let said = errors(&group(&keys));
    assert_eq!(said.lines().count(), 51);
    assert!(said.ends_with("and 150 more errors"), "{said}");
}

#[test]
fn the_line_is_shown_with_a_mark_but_never_a_secret() {
    let text = "\
groups:
  a:
    queue: {bull: {redis: {url: redis://h, pasword: hunter2}}}
    workers: {min: -1}
    target: {process: {env: {A: {}, PASSWORD: hunter2}}}
";
    let shown = parse(text).unwrap_err().with_lines();
    let plain = anstream::adapter::strip_str(&shown).to_string();
    assert!(!plain.contains("hunter2"), "{plain}");
    let wanted = "\
f:4:20 groups.a.workers.min: -1 is not 0 or more
    4 |     workers: {min: -1}
      |                    ^^
f:5:14 groups.a.target.process.command: is empty; give the program and its arguments, as [n8n, worker]
f:5:33 groups.a.target.process.env.A: must be a text, not a mapping
";
    assert!(plain.ends_with(wanted), "{plain}");
}

#[test]
fn files_that_cannot_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let said = |name: &str, content: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        let errors = config::load(&path, &Overrides::default()).unwrap_err();
        errors.to_string().replace(&folder.path().display().to_string(), "DIR")
    };
    assert_eq!(
        said("latin1.yaml", b"groups:\n  caf\xe9: {}\n"),
        "DIR/latin1.yaml: is not UTF-8 text, from line 2 on; save it as UTF-8"
    );
    let large = vec![b'#'; 10 << 20];
    assert_eq!(
        said("large.yaml", &large),
        "DIR/large.yaml: has 10485760 bytes; a configuration may have 1048576"
    );
    let load = |path: &Path| config::load(path, &Overrides::default()).unwrap_err().to_string();
    assert!(load(folder.path()).ends_with(": is a directory; name the file in it"));
    assert!(load(&folder.path().join("none.yaml")).ends_with(": there is no such file"));
    // Nobody ever writes to this pipe.
    let pipe = folder.path().join("pipe.yaml");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, 0o600.into()).unwrap();
    assert!(load(&pipe).ends_with(": cannot be read: it is no regular file"), "{}", load(&pipe));
}

#[test]
fn deep_and_wide_documents_are_refused() {
    let deep = format!("groups: {}1{}", "[".repeat(5000), "]".repeat(5000));
    assert!(errors(&deep).contains("nested too deeply"), "{}", errors(&deep));
    let deep: String = (0..5000).map(|i| format!("{}a:\n", " ".repeat(i))).take(600).collect();
    assert!(errors(&deep).contains("nested too deeply"), "{}", errors(&deep));
    let mut bomb = String::from("x-0: &x0 [1,1,1,1,1,1,1,1,1,1]\n");
    for i in 1..10 {
        let refs = vec![format!("*x{}", i - 1); 10].join(",");
        bomb += &format!("x-{i}: &x{i} [{refs}]\n");
    }
    assert!(errors(&bomb).contains("too large"), "{}", errors(&bomb));
}

#[test]
fn the_examples_are_right() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "yaml") {
            count += 1;
            let loaded = config::load(&path, &Overrides::default());
            let features = [
                ("ecs.yaml", "aws", cfg!(feature = "aws")),
                ("kubernetes.yaml", "kubernetes", cfg!(feature = "kubernetes")),
            ];
            let left_out = features.iter().find(|(file, _, is_in)| !is_in && path.ends_with(file));
            if let Some((_, feature, _)) = left_out {
                let error = loaded.expect_err("it was left out").to_string();
                let fix = format!("build it with `--features {feature}`");
                assert!(error.contains(&fix), "{error}");
                continue;
            }
            loaded.unwrap_or_else(|e| panic!("{}", e.to_string()));
        }
    }
    assert!(count >= 3);
}

#[test]
fn the_schema_describes_every_key() {
    fn walk(value: &serde_json::Value, path: &str, bare: &mut Vec<String>) {
        let Some(object) = value.as_object() else { return };
        if let Some(properties) = object.get("properties").and_then(|p| p.as_object()) {
            for (name, property) in properties {
                if property.get("description").is_none() {
                    bare.push(format!("{path}.{name}"));
                }
            }
        }
        for (key, value) in object {
            walk(value, &format!("{path}.{key}"), bare);
        }
    }
    let schema = config::json_schema();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    let mut bare = Vec::new();
    walk(&schema, "", &mut bare);
    assert_eq!(bare, Vec::<String>::new());
    assert!(!schema.to_string().contains("\"format\":\"duration\""));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn no_text_makes_it_panic(text in ".{0,200}") {
        let _ = parse(&text);
    }

    /// Text made of the file's own words is likelier to get far.
    #[test]
    fn what_is_accepted_makes_sense(
        words in proptest::collection::vec(
            proptest::sample::select(vec![
                "groups:", "a:", "workers:", "min:", "max:", "policy:", "cpu_aware:", "queue:", "demo:",
                "target:", "dry_run:", "look:", "{", "}", "[", "]", ",", "\n", "\n  ", "\n    ", " ",
                "1", "-1", "0", "99", "5s", "${X:-3}", "\"", "'", "|", ">", "&a", "*a", "<<:", "- ", "~",
                "#", "\t", "!!int", "$$",
            ]),
            0..60,
        ),
    ) {
        if let Ok(config) = parse(&words.concat()) {
            for group in &config.groups {
                prop_assert!(group.rules.workers.min <= group.rules.workers.max);
            }
        }
    }

    #[test]
    fn bounds_are_accepted_only_in_order(min in -3i64..20, max in -3i64..20, poll in 0u64..300) {
        let rest = format!(
            "  workers: {{min: {min}, max: {max}}}\n  policy: {{cpu_aware: {{poll: {poll}ms}}}}\n"
        );
        let right = min >= 0 && max >= 1 && min <= max && poll >= 100;
        match parse(&group(&rest)) {
            Ok(config) => {
                prop_assert!(right);
                let rules = &config.groups[0].rules;
                prop_assert_eq!(i64::from(rules.workers.max), max);
                prop_assert_eq!(rules.policy.name(), "cpu_aware");
                prop_assert_eq!(rules.policy.poll(), Span::from_millis(poll as i64));
            }
            Err(_) => prop_assert!(!right),
        }
    }
}
