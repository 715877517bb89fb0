//! The objects of the stand-in, and its controllers: ReplicaSets that delete in the order of the
//! real one, StatefulSets that delete the last pod, a kubelet that starts pods and lets them finish.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Where an object is: its resource's plural, its namespace, its name.
pub type Key = (String, String, String);

/// Where the cluster's own autoscalers are.
pub const HPAS: &str = "horizontalpodautoscalers";
/// Where those of KEDA are, which not every cluster has.
pub const SCALED_OBJECTS: &str = "scaledobjects";

/// What is wrong with a pod for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ill {
    CrashLoop,
    NoImage,
    NoNode,
}

/// Everything there is.
pub struct World {
    pub objects: BTreeMap<Key, Value>,
    /// What tokens may do: the account's name, and its rules.
    pub accounts: HashMap<String, (String, Vec<Rule>)>,
    version: u64,
    serial: u64,
    /// When each workload was last changed: controllers see that `lag` later.
    changed: HashMap<Key, Instant>,
    pub lag: Duration,
    /// Until a pod is ready.
    pub start_up: Duration,
    /// Until an idle pod that was told to go is gone.
    pub stop: Duration,
    born: HashMap<String, Instant>,
    told: HashMap<String, Instant>,
    /// Pods that hold a job; told to go, they finish it.
    pub busy: HashSet<String>,
    /// What becomes of new pods.
    pub next_ill: Option<Ill>,
    ill: HashMap<String, Ill>,
    /// Nobody may make pods beyond this many.
    pub quota: Option<usize>,
    /// Nothing is left to be done by the controllers.
    is_quiet: bool,
}

/// A rule of a Role.
#[derive(Clone, Debug)]
pub struct Rule {
    pub namespace: String,
    pub group: String,
    /// With its subresource: `deployments/scale`; `*` for all.
    pub resource: String,
    pub verbs: Vec<String>,
}

impl Rule {
    pub fn new(namespace: &str, group: &str, resource: &str, verbs: &[&str]) -> Self {
        let verbs = verbs.iter().map(|verb| (*verb).to_owned()).collect();
        let (namespace, group) = (namespace.to_owned(), group.to_owned());
        Self { namespace, group, resource: resource.to_owned(), verbs }
    }

    pub fn allows(&self, namespace: &str, group: &str, resource: &str, verb: &str) -> bool {
        let fits = |have: &str, asked: &str| have == "*" || have == asked;
        fits(&self.namespace, namespace)
            && fits(&self.group, group)
            && fits(&self.resource, resource)
            && self.verbs.iter().any(|have| fits(have, verb))
    }
}

impl World {
    pub fn new() -> Self {
        Self {
            objects: BTreeMap::new(),
            accounts: HashMap::new(),
            version: 300,
            serial: 0,
            changed: HashMap::new(),
            lag: Duration::ZERO,
            start_up: Duration::ZERO,
            stop: Duration::ZERO,
            born: HashMap::new(),
            told: HashMap::new(),
            busy: HashSet::new(),
            next_ill: None,
            ill: HashMap::new(),
            quota: None,
            is_quiet: false,
        }
    }

    pub fn next_version(&mut self) -> String {
        self.version += 1;
        self.version.to_string()
    }

    pub fn version(&self) -> String {
        self.version.to_string()
    }

    /// Writes an object; controllers see it later.
    pub fn put(&mut self, key: Key, mut object: Value) {
        object["metadata"]["resourceVersion"] = json!(self.next_version());
        self.is_quiet = false;
        if key.0 != "pods" {
            self.changed.insert(key.clone(), Instant::now());
        }
        self.objects.insert(key, object);
    }

    pub fn new_uid(&mut self) -> String {
        self.serial += 1;
        format!("00000000-0000-4000-8000-{:012x}", self.serial)
    }

    /// A workload that asks for `replicas` pods.
    pub fn add_workload(&mut self, plural: &str, namespace: &str, name: &str, replicas: u32) {
        let (api, kind) = match plural {
            "deployments" => ("apps/v1", "Deployment"),
            "statefulsets" => ("apps/v1", "StatefulSet"),
            _ => ("example.com/v1", "Widget"),
        };
        let labels = json!({ "app": name });
        let object = json!({
            "kind": kind, "apiVersion": api,
            "metadata": { "name": name, "namespace": namespace, "uid": self.new_uid(), "generation": 1,
                "creationTimestamp": now(), "labels": labels },
            "spec": { "replicas": replicas, "selector": { "matchLabels": labels },
                "template": { "metadata": { "labels": labels }, "spec": {
                    "terminationGracePeriodSeconds": 30,
                    "containers": [{ "name": "worker", "image": "example/worker:1",
                        "env": [{ "name": "PASSWORD", "value": "hunter2" }] }] } } },
            "status": {},
        });
        self.put((plural.into(), namespace.into(), name.into()), object);
    }

    /// An autoscaler of this resource and name that scales something.
    pub fn add_autoscaler(&mut self, plural: &str, namespace: &str, name: &str, scales: Value) {
        let (api, kind) = match plural {
            HPAS => ("autoscaling/v2", "HorizontalPodAutoscaler"),
            _ => ("keda.sh/v1alpha1", "ScaledObject"),
        };
        let object = json!({
            "kind": kind, "apiVersion": api,
            "metadata": { "name": name, "namespace": namespace, "uid": self.new_uid(),
                "creationTimestamp": now() },
            "spec": { "scaleTargetRef": scales, "minReplicas": 1, "maxReplicas": 9 },
        });
        self.put((plural.into(), namespace.into(), name.into()), object);
    }

    /// From now on this pod takes no jobs.
    pub fn fall_ill(&mut self, name: &str, ill: Ill) {
        let key = self.objects.keys().find(|key| key.0 == "pods" && key.2 == name);
        let key = key.expect("it is there").clone();
        let mut pod = self.objects[&key].clone();
        for condition in pod["status"]["conditions"].as_array_mut().unwrap() {
            if condition["type"] == "Ready" {
                condition["status"] = json!("False");
            }
        }
        fall_ill(&mut pod, ill);
        self.ill.insert(name.into(), ill);
        self.put(key, pod);
    }

    /// The pods of a workload, oldest first.
    pub fn pods_of(&self, workload: &Key) -> Vec<&Value> {
        let mine = |(key, pod): &(&Key, &Value)| {
            key.0 == "pods" && key.1 == workload.1 && owner(pod) == owner_of(workload)
        };
        let mut pods: Vec<&Value> = self.objects.iter().filter(mine).map(|(_, pod)| pod).collect();
        pods.sort_by_key(|pod| self.born.get(name_of(pod)));
        pods
    }

    /// Lets some time pass for all controllers.
    pub fn step(&mut self) {
        if std::mem::replace(&mut self.is_quiet, true) {
            return;
        }
        let now = Instant::now();
        let is_workload =
            |key: &&Key| !["pods", "leases", HPAS, SCALED_OBJECTS].contains(&key.0.as_str());
        let workloads: Vec<Key> = self.objects.keys().filter(is_workload).cloned().collect();
        self.run_pods(now);
        for key in workloads {
            let seen = self.changed.get(&key).is_none_or(|at| now - *at >= self.lag);
            match seen {
                true => self.reconcile(&key, now),
                false => self.is_quiet = false,
            }
        }
    }

    fn run_pods(&mut self, now: Instant) {
        let keys: Vec<Key> = self.objects.keys().filter(|key| key.0 == "pods").cloned().collect();
        for key in keys {
            let name = key.2.as_str();
            let pod = &self.objects[&key];
            if let Some(told) = self.told.get(name) {
                self.is_quiet = false;
                if now - *told >= self.stop && !self.busy.contains(name) {
                    self.told.remove(name);
                    self.objects.remove(&key);
                    self.next_version();
                }
                continue;
            }
            let is_due = now.saturating_duration_since(self.born[name]) >= self.start_up;
            let is_starting = pod["status"]["phase"] == "Pending" && !self.ill.contains_key(name);
            if is_starting && !is_due {
                self.is_quiet = false;
            } else if is_starting {
                let mut pod = pod.clone();
                self.serial += 1;
                run(&mut pod, self.serial);
                self.put(key, pod);
            }
        }
    }

    fn reconcile(&mut self, key: &Key, now: Instant) {
        let wanted = self.objects[key]["spec"]["replicas"].as_u64().unwrap() as usize;
        let mut active: Vec<Value> = self
            .pods_of(key)
            .into_iter()
            .filter(|pod| pod["metadata"]["deletionTimestamp"].is_null())
            .cloned()
            .collect();
        for _ in active.len()..wanted.min(self.quota.unwrap_or(usize::MAX)) {
            let pod = self.make_pod(key, &active, now);
            active.push(pod);
        }
        if key.0 == "statefulsets" {
            active.sort_by_key(|pod| std::cmp::Reverse(number_of(pod)));
        } else {
            // The order of the real controller: ages count by their logarithm, then UIDs.
            let mut on_node: HashMap<String, usize> = HashMap::new();
            for pod in &active {
                *on_node.entry(pod["spec"]["nodeName"].to_string()).or_default() += 1;
            }
            active.sort_by_key(|pod| {
                let is = |kind: &str| condition(pod, kind) == Some("True");
                let cost =
                    &pod["metadata"]["annotations"]["controller.kubernetes.io/pod-deletion-cost"];
                let cost: i32 = cost.as_str().map_or(0, |cost| cost.parse().unwrap());
                let running = pod["status"]["phase"] == "Running";
                let age = now.saturating_duration_since(self.born[name_of(pod)]).as_nanos();
                let crowd = std::cmp::Reverse(on_node[&pod["spec"]["nodeName"].to_string()]);
                let uid = pod["metadata"]["uid"].as_str().unwrap().to_owned();
                let rest = (crowd, age.checked_ilog2(), uid);
                (is("PodScheduled"), running, is("Ready"), cost, rest)
            });
        }
        let excess = active.len().saturating_sub(wanted);
        for mut pod in active.drain(..excess) {
            pod["metadata"]["deletionTimestamp"] = json!(self::now());
            pod["metadata"]["deletionGracePeriodSeconds"] = json!(30);
            self.told.insert(name_of(&pod).into(), now);
            let key = ("pods".into(), key.1.clone(), name_of(&pod).into());
            self.put(key, pod);
        }
        self.tell_status(key, &active, wanted);
    }

    fn tell_status(&mut self, key: &Key, active: &[Value], wanted: usize) {
        let going = self.pods_of(key).len() - active.len();
        let ready = active.iter().filter(|pod| condition(pod, "Ready") == Some("True")).count();
        let mut status =
            json!({ "observedGeneration": self.objects[key]["metadata"]["generation"] });
        let fields =
            [("replicas", active.len()), ("readyReplicas", ready), ("availableReplicas", ready)];
        for (field, number) in fields.into_iter().filter(|(_, number)| *number > 0) {
            status[field] = json!(number);
        }
        if key.0 == "deployments" {
            status["terminatingReplicas"] = json!(going);
        }
        if active.len() < wanted {
            self.is_quiet = false;
            status["conditions"] = json!([{ "type": "ReplicaFailure", "status": "True",
                "reason": "FailedCreate", "message": "pods is forbidden: exceeded quota: pods" }]);
        }
        let mut object = self.objects[key].clone();
        if object["status"] != status {
            object["status"] = status;
            object["metadata"]["resourceVersion"] = json!(self.next_version());
            self.objects.insert(key.clone(), object);
        }
    }

    fn make_pod(&mut self, of: &Key, there: &[Value], now: Instant) -> Value {
        let uid = self.new_uid();
        let name = match of.0.as_str() {
            "statefulsets" => {
                let taken: Vec<u32> = there.iter().map(number_of).collect();
                let free = (0..).find(|number| !taken.contains(number)).unwrap();
                format!("{}-{free}", of.2)
            }
            _ => format!("{}-56d67d9895-{:05}", of.2, self.serial),
        };
        let template = &self.objects[of]["spec"]["template"];
        let mut labels = template["metadata"]["labels"].clone();
        let hash = match of.0.as_str() {
            "rollouts" => "rollouts-pod-template-hash",
            _ => "pod-template-hash",
        };
        labels[hash] = json!("56d67d9895");
        let (kind, owner) = owner_of(of);
        let mut pod = json!({
            "metadata": { "name": name, "namespace": of.1, "uid": uid, "labels": labels,
                "creationTimestamp": self::now(),
                "ownerReferences": [{ "apiVersion": "apps/v1", "kind": kind, "name": owner,
                    "uid": "rs", "controller": true, "blockOwnerDeletion": true }] },
            "spec": template["spec"],
            "status": { "phase": "Pending", "conditions": [
                { "type": "PodScheduled", "status": "True", "lastTransitionTime": self::now() }] },
        });
        pod["spec"]["nodeName"] = json!("node-0");
        if let Some(ill) = self.next_ill {
            fall_ill(&mut pod, ill);
            self.ill.insert(name.clone(), ill);
        }
        // Each a little younger than the one before.
        self.born.insert(name.clone(), now + Duration::from_nanos(self.serial));
        let key = ("pods".into(), of.1.clone(), name);
        self.put(key, pod.clone());
        pod
    }
}

fn run(pod: &mut Value, serial: u64) {
    let ip = format!("10.0.{}.{}", serial / 250, serial % 250 + 1);
    let is = |kind: &str| json!({ "type": kind, "status": "True", "lastTransitionTime": now() });
    pod["status"] = json!({
        "phase": "Running",
        "conditions": [is("PodScheduled"), is("Initialized"), is("ContainersReady"), is("Ready")],
        "podIP": ip, "podIPs": [{ "ip": ip }], "startTime": now(),
        "containerStatuses": [{ "name": "worker", "image": "example/worker:1", "imageID": "x",
            "containerID": format!("containerd://{serial:012x}{:052x}", 0), "ready": true, "restartCount": 0,
            "state": { "running": { "startedAt": now() } }, "lastState": {}, "started": true }],
    });
}

fn fall_ill(pod: &mut Value, ill: Ill) {
    let waits = |reason: &str| {
        json!([{ "name": "worker", "image": "example/worker:1", "imageID": "", "ready": false,
            "restartCount": 3, "state": { "waiting": { "reason": reason, "message": "back-off" } },
            "lastState": { "terminated": { "exitCode": 1, "reason": "Error",
                "startedAt": "2026-11-30T13:09:32Z", "finishedAt": "2026-11-30T13:09:33Z" } } }])
    };
    match ill {
        Ill::CrashLoop => {
            pod["status"]["phase"] = json!("Running");
            pod["status"]["containerStatuses"] = waits("CrashLoopBackOff");
        }
        Ill::NoImage => pod["status"]["containerStatuses"] = waits("ErrImagePull"),
        Ill::NoNode => {
            pod["spec"].as_object_mut().unwrap().remove("nodeName");
            pod["status"]["conditions"] = json!([{ "type": "PodScheduled", "status": "False",
                "reason": "Unschedulable", "message": "0/3 nodes are available: 3 Insufficient cpu.",
                "lastTransitionTime": now() }]);
        }
    }
}

/// Who owns the pods of a workload: the kind and name of their controller.
fn owner_of((plural, _, name): &Key) -> (String, String) {
    match plural.as_str() {
        "deployments" | "rollouts" => ("ReplicaSet".into(), format!("{name}-56d67d9895")),
        "statefulsets" => ("StatefulSet".into(), name.clone()),
        _ => ("Widget".into(), name.clone()),
    }
}

fn owner(pod: &Value) -> (String, String) {
    let owner = &pod["metadata"]["ownerReferences"][0];
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (text(&owner["kind"]), text(&owner["name"]))
}

pub fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

fn number_of(pod: &Value) -> u32 {
    name_of(pod).rsplit('-').next().unwrap().parse().unwrap()
}

/// What the condition of this kind says.
pub fn condition<'a>(pod: &'a Value, kind: &str) -> Option<&'a str> {
    let conditions = pod["status"]["conditions"].as_array()?;
    conditions.iter().find(|c| c["type"] == kind).and_then(|c| c["status"].as_str())
}

/// Now, as the API writes it.
pub fn now() -> String {
    let millis = headcount::clock::now().as_millis();
    let now = k8s_openapi::jiff::Timestamp::from_millisecond(millis).unwrap();
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
