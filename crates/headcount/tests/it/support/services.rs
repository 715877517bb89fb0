//! The services that `test.sh` started.

use std::path::{Path, PathBuf};

/// A value from the `env` file of a service, such as `docker`.
pub fn setting(service: &str, name: &str) -> String {
    let var = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let own = format!("HEADCOUNT_TEST_{}", service.to_uppercase());
    let folder = match (var(&own), var("HEADCOUNT_TEST_SERVICES")) {
        (Some(folder), _) => PathBuf::from(folder),
        (None, Some(services)) => Path::new(&services).join(service),
        (None, None) => panic!("HEADCOUNT_TEST_SERVICES is not set: run ./test.sh first"),
    };
    let text = std::fs::read_to_string(folder.join("env"));
    let text = text.unwrap_or_else(|_| panic!("no {service} service: run ./test.sh first"));
    let value = |word: &str| Some(word.strip_prefix(name)?.strip_prefix('=')?.to_owned());
    let found = text.split_whitespace().find_map(value);
    found.expect("an incomplete env file: run ./test.sh first")
}
