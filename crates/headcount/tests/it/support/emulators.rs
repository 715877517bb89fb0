//! moto and ministack, which resemble AWS: `test.sh` starts them.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::docker::{Docker, OBEDIENT};
use super::services::setting;

/// One of them.
pub struct Emulator {
    pub address: SocketAddr,
    docker: Option<Docker>,
}

impl Emulator {
    /// The one without tasks.
    pub fn moto() -> Self {
        Self { address: address("MOTO"), docker: None }
    }

    /// The one whose tasks are containers.
    pub fn ministack() -> Self {
        Self { address: address("MINISTACK"), docker: Some(Docker::get()) }
    }

    /// Where its tasks run.
    pub fn docker(&self) -> Option<&Docker> {
        self.docker.as_ref()
    }

    /// Makes a cluster with a service `worker` without tasks: the cluster's name.
    pub async fn service(&self) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let cluster = format!("c{}-{number}", std::process::id());
        let command = ["/bin/sh", "-c", &OBEDIENT.replace("$$", "$")].map(str::to_owned);
        let container = json!({ "name": "worker", "image": "bb:1", "memory": 16, "cpu": 10,
            "essential": true, "stopTimeout": 60, "command": command });
        let definition = json!({ "family": cluster, "containerDefinitions": [container] });
        ask(self.address, "CreateCluster", &json!({ "clusterName": cluster })).await;
        ask(self.address, "RegisterTaskDefinition", &definition).await;
        let service = json!({ "cluster": cluster, "serviceName": "worker",
            "taskDefinition": cluster, "desiredCount": 0 });
        ask(self.address, "CreateService", &service).await;
        cluster
    }
}

fn address(name: &str) -> SocketAddr {
    setting("aws", name).parse().unwrap()
}

/// Asks ECS at `address`, which believes every signature.
pub async fn ask(address: SocketAddr, action: &str, input: &Value) -> Value {
    let body = input.to_string();
    let request = format!(
        "POST / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {}\r\n\
         Content-Type: application/x-amz-json-1.1\r\n\
         X-Amz-Target: AmazonEC2ContainerServiceV20141113.{action}\r\n\
         X-Amz-Date: 20260101T000000Z\r\nAuthorization: AWS4-HMAC-SHA256 \
         Credential=AKIATEST/20260101/eu-central-1/ecs/aws4_request, SignedHeaders=host, \
         Signature={}\r\n\r\n{body}",
        body.len(),
        "0".repeat(64)
    );
    let mut stream = TcpStream::connect(address).await.expect("no emulator: run ./test.sh first");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(" 200 "), "{action}: {answer}");
    let (from, to) = (body.find('{').unwrap(), body.rfind('}').unwrap());
    serde_json::from_str(&body[from..=to]).unwrap()
}
