//! Windmill's tables in every shape that they have had, as far as they are read, and what is in them.

use headcount::config::Place;
use headcount::queues::windmill::WindmillConfig;
use headcount::queues::{Queue, QueueConfig};

use super::postgres::Database;

/// A shape of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    /// 1.413: `queue`.
    V1,
    /// 1.463: `v2_job_queue`, rows hidden.
    V2,
    /// 1.788: nothing hidden, native workers.
    Latest,
    /// Later: concurrency gates.
    Gated,
}

impl Era {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::V1, Self::V2, Self::Latest, Self::Gated];

    fn tables(self) -> String {
        let (v2, latest) = (include_str!("v2.sql"), include_str!("latest.sql"));
        match self {
            Self::V1 => include_str!("v1.sql").to_owned(),
            Self::V2 => v2.to_owned(),
            Self::Latest => [v2, latest].join("\n"),
            Self::Gated => [v2, latest, include_str!("gated.sql")].join("\n"),
        }
    }

    /// The tables a role must be allowed to read.
    pub fn readable(self) -> &'static str {
        match self {
            Self::V1 => "queue, worker_ping, config",
            _ => "v2_job_queue, v2_job_runtime, worker_ping, config",
        }
    }

    /// Makes the tables in an empty database, and lets its role read them.
    pub async fn make(self, database: &Database) {
        database.run(&self.tables()).await;
        database.grant(self.readable()).await;
        if self == Self::V2 {
            let name = &database.name;
            let to = format!("FOR SELECT TO {name} USING (true)");
            database.run(&format!("CREATE POLICY reads ON v2_job_queue {to}")).await;
        }
    }

    /// A database with something of everything in it, see `seed.sql`.
    pub async fn seeded(self) -> Database {
        let database = Database::new().await;
        self.make(&database).await;
        database.run(include_str!("seed.sql")).await;
        if self == Self::Latest || self == Self::Gated {
            database.run("UPDATE worker_ping SET native_mode = worker_group = 'native'").await;
        }
        database
    }
}

/// A group of this name as its role sees it.
pub fn config(database: &Database, group: &str) -> WindmillConfig {
    let url = Some(database.url().as_str().into());
    WindmillConfig { url, group: Some(group.into()), ..WindmillConfig::default() }
}

/// Opens it.
pub fn open(config: &WindmillConfig) -> Box<dyn Queue> {
    assert_eq!(config.problems(), []);
    let place = Place { group: "g".into(), state_dir: "/".into(), base_dir: "/".into() };
    QueueConfig::Windmill(config.clone()).open(&place).unwrap()
}
