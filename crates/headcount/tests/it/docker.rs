//! The `docker` target against a real Docker daemon.

use headcount::finding::Fact;
use headcount::queues::Identity;
use headcount::secret::Secret;
use headcount::targets::docker::DockerConfig;
use headcount::targets::dry_run::over;
use headcount::targets::{FleetSeen, Promise, Target, TargetError};
use headcount_core::reading::WorkerState;
use headcount_core::{Silence, Span};

use crate::support::docker::{Containers, OBEDIENT};
use crate::support::looks::{problems, until};
use crate::support::proxy::{Fault, Proxy};
use crate::support::workers::{ids, order, sorted};

/// A worker that finishes its job, for as long as /job is there, before it goes.
const CAREFUL: &str = "trap 'while [ -e /job ]; do sleep 0.1; done; exit 0' TERM; \
                       while :; do sleep 0.1; done";

/// Starts the first `n` workers; their ids in the order of their numbers.
async fn started(target: &mut Box<dyn Target>, n: u32) -> Vec<String> {
    target.scale(&order(0, n, &[])).await.expect("it can be scaled").started
}

#[tokio::test]
async fn goes_out_and_removes_exactly_the_chosen_worker() {
    let all = Containers::new();
    let mut target = all.open(&all.config(OBEDIENT));
    assert_eq!(target.promise(), Promise::ExactVictims);
    assert_eq!(target.scales(), format!("docker:{}:{}", all.docker.host, all.group));
    assert_eq!(target.status().await.unwrap(), FleetSeen::default());

    let first = target.scale(&order(0, 1, &[])).await.unwrap();
    assert_eq!((&first.started, first.note), (&all.ids(), format!("started {}-1", all.group)));
    let more = target.scale(&order(1, 3, &[])).await.unwrap();
    let workers = [first.started, more.started].concat();
    assert_eq!(workers.len(), 3);
    let seen = target.status().await.unwrap();
    assert_eq!((seen.reading.ready, seen.reading.died), (3, 0), "{:#?}", seen.reading);
    for (from, to) in [(1, 3), (3, 3)] {
        target.scale(&order(from, to, &[])).await.unwrap_or_default();
        assert_eq!(all.ids().len(), 3, "the same number again changes nothing");
    }
    let error = target.scale(&order(0, 2, &[])).await.unwrap_err();
    assert_eq!(error, TargetError::Contradiction { there: 3, decided_for: 0 });

    let gone = target.scale(&order(3, 2, &[&workers[1], &workers[2]])).await.unwrap();
    assert_eq!(gone.removed, [workers[1].clone()], "the best one goes, and only one");
    assert!(gone.note.starts_with(&format!("chose {}-2 (idle first", all.group)), "{}", gone.note);
    let seen = until(&mut target, "gone", |seen| seen.reading.workers.len() == 2).await;
    assert_eq!(sorted(ids(&seen, WorkerState::Ready)), sorted([&workers[0], &workers[2]]));
    assert_eq!(seen.reading.died, 0);

    let again = target.scale(&order(2, 3, &[])).await.unwrap();
    assert_eq!(again.note, format!("started {}-2", all.group), "the number is free again");
    let seen = target.status().await.unwrap();
    let now = ids(&seen, WorkerState::Ready).iter().map(ToString::to_string).collect::<Vec<_>>();
    let victims: Vec<&str> = now.iter().map(String::as_str).collect();
    target.scale(&order(3, 0, &victims)).await.unwrap();
    until(&mut target, "empty", |seen| seen.reading.workers.is_empty()).await;
    assert!(all.ids().is_empty());
}

#[tokio::test]
async fn a_busy_worker_finishes_its_job_also_over_a_restart() {
    let all = Containers::new();
    let config = DockerConfig {
        stop_signal: Some("SIGUSR1".into()),
        ..all.config(&CAREFUL.replace("TERM", "USR1"))
    };
    let mut target = all.open(&config);
    let workers = started(&mut target, 2).await;
    all.docker.ask(&["exec", &workers[0], "touch", "/job"]);
    target.scale(&order(2, 1, &[&workers[0]])).await.unwrap();
    let seen = target.status().await.unwrap();
    assert_eq!((seen.reading.ready, seen.reading.draining), (1, 1));
    let more = target.scale(&order(1, 2, &[])).await.unwrap();
    assert_eq!(more.note, format!("started {}-3", all.group), "a draining one is no capacity");
    drop(target);

    let mut target = all.open(&config);
    let seen = target.status().await.unwrap();
    assert_eq!(ids(&seen, WorkerState::Draining), [workers[0].as_str()]);
    all.docker.ask(&["exec", &workers[0], "rm", "/job"]);
    let seen = until(&mut target, "gone", |seen| seen.reading.workers.len() == 2).await;
    assert_eq!((seen.reading.ready, seen.reading.died), (2, 0));
}

#[tokio::test]
async fn after_its_grace_a_worker_is_killed() {
    let all = Containers::new();
    let deaf = "trap '' TERM; while :; do sleep 0.1; done";
    let mut target = all.open(&DockerConfig { grace: Span::from_secs(1), ..all.config(deaf) });
    let workers = started(&mut target, 1).await;
    target.scale(&order(1, 0, &[&workers[0]])).await.unwrap();
    until(&mut target, "gone", |seen| seen.reading.workers.is_empty()).await;
}

#[tokio::test]
async fn the_workers_are_what_the_configuration_says() {
    let all = Containers::new();
    std::fs::write(all.folder.path().join("env"), "FROM_FILE=f\nBOTH=file\n").unwrap();
    let config = DockerConfig {
        env: [("BOTH".to_owned(), Secret::from("given"))].into(),
        env_file: Some("env".into()),
        mounts: vec!["./:/in:ro".into()],
        labels: [("test".to_owned(), all.group.clone())].into(),
        name: format!("{}-no{{n}}", all.group),
        stop_signal: Some("SIGINT".into()),
        cpus: Some(0.5),
        memory: Some("64m".into()),
        ..all.config(OBEDIENT)
    };
    let id = started(&mut all.open(&config), 1).await.remove(0);
    let what = "{{.Name}} {{json .Config.Env}} {{.HostConfig.Binds}} {{.Config.StopSignal}} \
                {{.Config.StopTimeout}} {{.HostConfig.NanoCpus}} {{.HostConfig.Memory}} \
                {{.HostConfig.RestartPolicy.Name}} {{.HostConfig.NetworkMode}}";
    let shown = all.docker.ask(&["inspect", "-f", what, &id]);
    let folder = all.folder.path().display();
    let expected = format!(
        "/{}-no1 [\"FROM_FILE=f\",\"BOTH=given\",\"PATH=/bin\"] [{folder}:/in:ro] SIGINT 30 \
         500000000 67108864 unless-stopped none",
        all.group
    );
    assert_eq!(shown, expected);
    assert_eq!(all.docker.ask(&["exec", &id, "cat", "/in/env"]), "FROM_FILE=f\nBOTH=file");
}

#[tokio::test]
async fn workers_are_like_a_container_that_is_neither_counted_nor_touched() {
    let all = Containers::new();
    let network = format!("{}-net", all.group);
    all.docker.ask(&["network", "create", &network]);
    let model = format!("{}-model", all.group);
    let test = format!("test={}", all.group);
    let of_compose = "com.docker.compose.project=shop";
    let run = [
        &["run", "-d", "--name", &model, "--hostname", "same", "-l", &test, "-l", of_compose][..],
        &["-e", "TOKEN=s3cr3t", "-m", "64m", "--network", &network, "--network-alias", "w"],
        &["-p", "127.0.0.1:18080:80", "--restart", "always", "bb:1", "sh", "-c"],
        &[&OBEDIENT.replace("$$", "$")],
    ];
    let original = all.docker.ask(&run.concat());
    let config = DockerConfig {
        image: None,
        like: Some(model.clone()),
        command: None,
        networks: vec![],
        ..all.config("")
    };
    let mut target = all.open(&config);
    let workers = started(&mut target, 2).await;
    let seen = target.status().await.unwrap();
    assert_eq!(sorted(ids(&seen, WorkerState::Ready)), sorted(&workers));
    for id in &workers {
        let what = "{{index .Config.Env 0}} {{.HostConfig.Memory}} {{.HostConfig.AutoRemove}} \
                    {{.HostConfig.PortBindings}} {{.HostConfig.NetworkMode}} \
                    {{index .Config.Labels \"com.docker.compose.project\"}}\
                    {{.Config.Hostname}} {{json .NetworkSettings.Networks}}";
        let shown = all.docker.ask(&["inspect", "-f", what, id]);
        let expected = format!("TOKEN=s3cr3t 67108864 false map[] {network} {} ", &id[..12]);
        let (start, aliases) = shown.split_at(expected.len());
        assert_eq!(start, expected);
        assert!(aliases.contains("\"w\"") && !aliases.contains(&model), "{aliases}");
    }
    let findings = target.check().await;
    assert_eq!(problems(&findings), Vec::<&str>::new());
    let told = format!("workers are like {model}, without its published ports");
    assert!(findings.iter().any(|f| f.what == told), "{findings:#?}");
    target.scale(&order(2, 0, &[&workers[0], &workers[1]])).await.unwrap();
    until(&mut target, "gone", |seen| seen.reading.workers.is_empty()).await;
    assert_eq!(
        all.docker.ask(&["inspect", "-f", "{{.Id}} {{.State.Running}}", &model]),
        format!("{original} true")
    );

    let own = DockerConfig { like: Some(format!("{}-1", all.group)), ..config };
    started(&mut target, 1).await;
    let error = all.open(&own).scale(&order(1, 2, &[])).await.unwrap_err();
    assert!(error.to_string().contains("is a worker of"), "{error}");
    let missing = DockerConfig { like: Some("no-such".into()), ..own };
    let findings = all.open(&missing).check().await;
    let told = problems(&findings).join("; ");
    assert!(told.contains("there is no container no-such to be like; there are: "), "{told}");
    for container in all.ids().iter().chain([&original]) {
        all.docker.ask(&["rm", "-f", container]);
    }
    all.docker.ask(&["network", "rm", &network]);
}

#[tokio::test]
async fn each_mistake_has_its_message_and_leaves_nothing_behind() {
    let all = Containers::new();
    let with = |change: &dyn Fn(&mut DockerConfig)| {
        let mut config = all.config(OBEDIENT);
        config.env = [("TOKEN".to_owned(), Secret::from("s3cr3t-value"))].into();
        change(&mut config);
        config
    };
    let cases = [
        (
            with(&|c| c.image = Some("no.invalid/such:1".into())),
            "image no.invalid/such:1 is not here",
        ),
        (with(&|c| c.networks = vec!["no-such".into()]), "no-such not found"),
        (with(&|c| c.networks.push("no-such".into())), "no-such not found"),
        (with(&|c| c.command = Some(vec!["no-such".into()])), "no-such"),
        (with(&|c| c.command = Some(vec!["s3cr3t-value".into()])), "\"...\": executable file"),
        (with(&|c| c.env_file = Some("gone.env".into())), "gone.env: No such file"),
        (with(&|c| c.stop_signal = Some("SIGNO".into())), "SIGNO"),
    ];
    for (mut config, expected) in cases {
        if config.networks.len() > 1 {
            config.networks.remove(0);
            config.networks.insert(0, "bridge".into());
        }
        let error = all.open(&config).scale(&order(0, 2, &[])).await.unwrap_err();
        let told = error.to_string();
        assert!(told.contains(expected), "{told}");
        assert!(!told.contains("s3cr3t") && told.starts_with("scaling "), "{told}");
        assert!(matches!(error, TargetError::Failed { .. }), "{error:?}");
        assert_eq!(all.ids(), Vec::<String>::new(), "{told}");
    }
}

#[tokio::test]
async fn a_missing_image_is_told_before_anything_else() {
    let all = Containers::new();
    let mut target = all.open(&DockerConfig { restart: Some("no".into()), ..all.config("exit 3") });
    let dead = started(&mut target, 1).await;
    until(&mut target, "dead", |seen| seen.reading.broken == 1).await;
    let gone = DockerConfig { image: Some("gone:1".into()), ..all.config(OBEDIENT) };
    let mut target = all.open(&gone);
    let error = target.scale(&order(0, 1, &[])).await.unwrap_err();
    assert!(error.to_string().ends_with("run `docker pull gone:1` or build it"), "{error}");
    assert_eq!(all.ids(), dead, "not even the dead one was removed");
    let findings = target.check().await;
    let told = problems(&findings);
    assert!(told[0].starts_with("no worker can be made: image gone:1 is not here"), "{told:?}");
    assert_eq!(told[1], format!("not running: {}-1", all.group));
}

#[tokio::test]
async fn names_of_others_are_left_alone() {
    let all = Containers::new();
    let (theirs, test) = (format!("{}-1", all.group), format!("test={}", all.group));
    all.docker.ask(&["create", "--name", &theirs, "-l", &test, "bb:1"]);
    let mut target = all.open(&all.config(OBEDIENT));
    let scaled = target.scale(&order(0, 2, &[])).await.unwrap();
    assert_eq!(scaled.note, format!("started {0}-2, {0}-3", all.group));
    assert_eq!(target.status().await.unwrap().reading.workers.len(), 2);
}

#[tokio::test]
async fn what_was_left_half_done_is_cleaned_up() {
    let all = Containers::new();
    let label = format!("headcount.group={}", all.group);
    let half =
        all.docker.ask(&["create", "--name", &format!("{}-1", all.group), "-l", &label, "bb:1"]);
    let mut target = all.open(&all.config(OBEDIENT));
    let seen = target.status().await.unwrap();
    assert_eq!((seen.reading.capacity(), seen.reading.broken), (0, 1));
    let scaled = target.scale(&order(0, 1, &[])).await.unwrap();
    assert_eq!(scaled.note, format!("started {0}-1; removed exited {0}-1", all.group));
    assert_eq!(all.ids(), scaled.started);
    assert_ne!(scaled.started, [half]);
}

#[tokio::test]
async fn a_worker_that_crashes_again_and_again_is_broken_and_replaced() {
    let all = Containers::new();
    let mut target = all.open(&all.config("exit 3"));
    target.status().await.unwrap();
    let crashing = started(&mut target, 1).await;
    let seen = until(&mut target, "broken", |seen| seen.reading.broken == 1).await;
    assert_eq!(seen.reading.capacity(), 0);
    let mut target = all.open(&all.config(OBEDIENT));
    // Now and then it runs for a moment, and nobody is missing then.
    let mut scaled = target.scale(&order(0, 1, &[])).await;
    while let Err(TargetError::Contradiction { there: 1, .. }) = scaled {
        scaled = target.scale(&order(0, 1, &[])).await;
    }
    let scaled = scaled.unwrap();
    assert!(
        scaled.note.contains(&format!("told crashing {}-1 to go", all.group)),
        "{}",
        scaled.note
    );
    let seen = until(&mut target, "replaced", |seen| seen.reading.workers.len() == 1).await;
    assert_eq!(ids(&seen, WorkerState::Ready), [scaled.started[0].as_str()]);
    assert!(!all.ids().contains(&crashing[0]));
}

#[tokio::test]
async fn deaths_are_counted_once() {
    let all = Containers::new();
    let mut target = all.open(&DockerConfig { restart: Some("no".into()), ..all.config(OBEDIENT) });
    let workers = started(&mut target, 2).await;
    target.status().await.unwrap();
    all.docker.ask(&["kill", &workers[0]]);
    let seen = until(&mut target, "killed", |seen| seen.reading.ready == 1).await;
    assert_eq!((seen.reading.broken, seen.reading.died), (1, 1));
    assert_eq!(target.status().await.unwrap().reading.died, 0);
}

#[tokio::test]
async fn a_new_image_is_for_new_workers() {
    let all = Containers::new();
    let image = format!("{}:1", all.group);
    all.docker.ask(&["tag", "bb:1", &image]);
    let mut target = all.open(&DockerConfig { image: Some(image.clone()), ..all.config(OBEDIENT) });
    let old = started(&mut target, 1).await;
    all.docker.ask(&["commit", "-c", "ENV NEW=1", &old[0], &image]);
    let scaled = target.scale(&order(1, 2, &[])).await.unwrap();
    let seen = target.status().await.unwrap();
    let version =
        |id: &String| seen.reading.workers.iter().find(|w| w.id == *id).unwrap().version.clone();
    assert_ne!(version(&old[0]), version(&scaled.started[0]));
    let told = format!("1 of 2 workers run another image than new ones get: {}-1", all.group);
    let findings = target.check().await;
    assert_eq!(problems(&findings), [told.as_str()]);
    drop((target, all.docker.run(&["rm", "-f", &old[0], &scaled.started[0]])));
    all.docker.ask(&["rmi", &image]);
}

#[tokio::test]
async fn a_worker_has_all_the_names_a_queue_may_know_it_by() {
    let all = Containers::new();
    let mut target =
        all.open(&DockerConfig { networks: vec!["bridge".into()], ..all.config(OBEDIENT) });
    let id = started(&mut target, 1).await.remove(0);
    let seen = target.status().await.unwrap();
    let pid = all.docker.ask(&["inspect", "-f", "{{.State.Pid}}", &id]);
    let names = &seen.known_as[&id];
    for expected in [
        Identity::Container(id.clone()),
        Identity::Hostname(id[..12].to_owned()),
        Identity::Hostname(format!("{}-1", all.group)),
        Identity::Process(pid.parse().unwrap()),
    ] {
        assert!(names.contains(&expected), "{expected:?} is not in {names:?}");
    }
    assert!(seen.reading.workers[0].started_at.is_some());
}

#[tokio::test]
async fn a_dry_run_only_looks() {
    let all = Containers::new();
    let mut dry = over(all.open(&all.config(OBEDIENT)));
    dry.scale(&order(0, 2, &[])).await.unwrap();
    assert_eq!(all.ids(), Vec::<String>::new());
    assert_eq!(dry.status().await.unwrap(), FleetSeen::default());
}

#[tokio::test]
async fn an_engine_in_trouble_is_silence_and_the_next_tick_recovers() {
    let all = Containers::new();
    let proxy = Proxy::start(&all.docker.host);
    let config = DockerConfig { host: Some(proxy.host()), ..all.config(OBEDIENT) };
    let mut target = all.open(&config);
    let workers = started(&mut target, 1).await;
    for (fault, why) in [
        (Fault::Down, Silence::Unreachable),
        (Fault::Slow, Silence::Timeout),
        (Fault::Answers(403), Silence::Denied),
        (Fault::Answers(500), Silence::Malformed),
        (Fault::Cut, Silence::Unreachable),
    ] {
        proxy.fault(Some(fault));
        let missing = target.status().await.unwrap_err();
        assert_eq!(missing.why, why, "{fault:?}: {missing}");
        if fault != Fault::Slow {
            target.scale(&order(1, 2, &[])).await.unwrap_err();
            target.scale(&order(1, 0, &[&workers[0]])).await.unwrap_err();
        }
        proxy.fault(None);
        let seen = target.status().await.unwrap();
        assert_eq!((seen.reading.ready, seen.reading.workers.len()), (1, 1), "{fault:?}");
    }
    // A start that the engine refuses, half way: what was made is taken back.
    proxy.fault_on("/start", Fault::Answers(500));
    let error = target.scale(&order(1, 3, &[])).await.unwrap_err();
    assert!(matches!(error, TargetError::Failed { .. }), "{error}");
    assert_eq!(all.ids(), workers);
    proxy.fault_on("/containers/create", Fault::Answers(409));
    let error = target.scale(&order(1, 3, &[])).await.unwrap_err().to_string();
    assert!(error.contains("all of 20 names, "), "{error}");
    proxy.fault(None);
    target.scale(&order(1, 3, &[])).await.unwrap();
    assert_eq!(target.status().await.unwrap().reading.ready, 3);
}

#[tokio::test]
async fn check_finds_nothing_wrong_with_good_workers_and_says_what_is() {
    let all = Containers::new();
    let mut target = all.open(&all.config(OBEDIENT));
    started(&mut target, 2).await;
    let findings = target.check().await;
    assert_eq!(problems(&findings), Vec::<&str>::new());
    assert!(findings[0].what.contains(" (API 1."), "{findings:#?}");
    assert!(findings.iter().any(|f| f.fact == Some(Fact::Workers(2))), "{findings:#?}");
    let config = DockerConfig {
        networks: vec!["host".into()],
        restart: Some("no".into()),
        ..all.config(OBEDIENT)
    };
    let findings = all.open(&config).check().await;
    let told = problems(&findings).join("; ");
    assert!(told.starts_with("all workers have the host's name"), "{told}");
    assert!(told.ends_with("stays down until one more is wanted"), "{told}");
    let config = DockerConfig { networks: vec!["nowhere".into()], ..all.config(OBEDIENT) };
    let findings = all.open(&config).check().await;
    assert!(problems(&findings)[0].starts_with("there is no network nowhere; there are: "));
    let config = DockerConfig { host: Some("unix:///no.sock".into()), ..config };
    let findings = all.open(&config).check().await;
    assert_eq!(
        problems(&findings),
        ["docker at unix:///no.sock: there is no docker socket at /no.sock"]
    );
}
