//! The contract with a script over workers that are files: one that takes away whom it is told to,
//! one that is only told a number, and one that nobody can ask how many there are.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use async_trait::async_trait;
use headcount::targets::script::{ScriptConfig, Words};
use headcount::targets::{Target, TargetConfig};
use headcount_core::Span;
use tempfile::TempDir;

use super::{Fault, Rig};
use crate::support::workers::place;

/// What both scripts begin with. A worker is a file that holds its state; one that drains is gone
/// when its job is.
const BEGIN: &str = r#"#!/bin/sh
case $(cat fault 2>/dev/null) in
  slow) exec sleep 600;;
  refuses) echo "no access" >&2; exit 77;;
  fails) echo "no database" >&2; exit 1;;
esac
for file in workers/*; do
  [ -e "$file" ] || continue
  if [ "$(cat "$file")" = draining ] && ! [ -e "jobs/${file#workers/}" ]; then rm "$file"; fi
done
serving() { grep -lxE 'ready|starting' workers/* 2>/dev/null; }
"#;

const SCALE: &str = r#"
n=$(serving | wc -l)
fail_half() { if [ -e half ]; then echo "half is done" >&2; exit 1; fi; }
while [ "$n" -lt "$2" ]; do
  id=w$(( $(cat last 2>/dev/null || echo 0) + 1 ))
  echo "${id#w}" > last
  cat birth > "workers/$id"
  n=$((n + 1))
  fail_half
done
[ -n "$HEADCOUNT_VICTIMS" ] || HEADCOUNT_VICTIMS=$(serving | sed 's/^workers.//')
removed=
for id in $HEADCOUNT_VICTIMS; do
  [ "$n" -gt "$2" ] || break
  grep -qxE 'ready|starting' "workers/$id" || continue
  echo draining > "workers/$id"
  removed="$removed${removed:+,}\"$id\""
  n=$((n - 1))
  fail_half
done
echo "$1 now has $n"
echo "{\"removed\": [$removed]}"
"#;

const LIST: &str = r#"
list=
for file in workers/*; do
  [ -e "$file" ] || continue
  id=${file#workers/}
  busy=false; [ -e "jobs/$id" ] && busy=true
  list="$list${list:+,}{\"id\": \"$id\", \"state\": \"$(cat "$file")\", \"busy\": $busy}"
done
echo "{\"desired\": $(serving | wc -l), \"workers\": [$list]}"
"#;

const COUNT: &str = "\nserving | wc -l\n";

/// How much a script tells.
#[derive(Clone, Copy, PartialEq)]
enum Tells {
    Workers,
    Number,
    Nothing,
}

/// A folder with two scripts.
struct Script {
    folder: TempDir,
    tells: Tells,
}

impl Script {
    fn new(tells: Tells) -> Self {
        let rig = Self { folder: tempfile::tempdir().unwrap(), tells };
        for folder in ["workers", "jobs"] {
            std::fs::create_dir(rig.path(folder)).unwrap();
        }
        std::fs::write(rig.path("birth"), "ready\n").unwrap();
        rig.write("scale.sh", SCALE);
        rig.write("status.sh", if tells == Tells::Workers { LIST } else { COUNT });
        rig
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), format!("{BEGIN}{text}")).unwrap();
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(self.path(name), mode).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn state(&self, id: &str) -> String {
        std::fs::read_to_string(self.path(&format!("workers/{id}"))).unwrap_or_default()
    }
}

#[async_trait]
impl Rig for Script {
    fn open(&self) -> Box<dyn Target> {
        let asked = self.tells != Tells::Nothing;
        let config = ScriptConfig {
            command: Words::One("./scale.sh".into()),
            status_command: asked.then(|| Words::One("./status.sh".into())),
            initial: (!asked).then_some(0),
            exact_victims: self.tells == Tells::Workers,
            timeout: Span::from_secs(4),
            ..ScriptConfig::default()
        };
        assert_eq!(config.problems(), []);
        TargetConfig::Script(config).open(&place(self.folder.path(), "g")).unwrap()
    }

    async fn really(&mut self) -> Vec<String> {
        let files = std::fs::read_dir(self.path("workers")).unwrap();
        let ids = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        let lives = |id: &String| {
            self.state(id) != "draining\n" || self.path(&format!("jobs/{id}")).exists()
        };
        ids.filter(lives).collect()
    }

    async fn set_outside(&mut self, n: u32) -> bool {
        if self.tells == Tells::Nothing {
            return false;
        }
        let mut there = self.really().await;
        while there.len() > n as usize {
            let id = there.pop().expect("there is one");
            std::fs::remove_file(self.path(&format!("workers/{id}"))).unwrap();
        }
        for i in there.len()..n as usize {
            std::fs::write(self.path(&format!("workers/outside{i}")), "ready\n").unwrap();
        }
        true
    }

    async fn break_it(&mut self, fault: Fault) -> bool {
        let write = |name: &str, text: &str| std::fs::write(self.path(name), text).unwrap();
        match fault {
            Fault::Down => {
                for script in ["scale.sh", "status.sh"] {
                    let hidden = self.path(&format!("{script}.gone"));
                    std::fs::rename(self.path(script), hidden).unwrap();
                }
            }
            Fault::Slow => write("fault", "slow"),
            Fault::Refuses => write("fault", "refuses"),
            Fault::Fails => write("fault", "fails"),
            // Nobody could tell what was done.
            Fault::HalfDone if self.tells == Tells::Nothing => return false,
            Fault::HalfDone => write("half", ""),
        }
        true
    }

    async fn mend(&mut self) {
        for script in ["scale.sh", "status.sh"] {
            let _ = std::fs::rename(self.path(&format!("{script}.gone")), self.path(script));
        }
        for file in ["fault", "half"] {
            let _ = std::fs::remove_file(self.path(file));
        }
    }

    async fn busy(&mut self, ids: &[String]) -> bool {
        for id in ids {
            std::fs::write(self.path(&format!("jobs/{id}")), "").unwrap();
        }
        self.tells == Tells::Workers
    }

    async fn finish(&mut self, ids: &[String]) {
        for id in ids {
            let _ = std::fs::remove_file(self.path(&format!("jobs/{id}")));
        }
    }

    async fn start_slowly(&mut self) -> bool {
        std::fs::write(self.path("birth"), "starting\n").unwrap();
        self.tells == Tells::Workers
    }

    async fn cripple(&mut self, id: &str) -> bool {
        std::fs::write(self.path(&format!("workers/{id}")), "broken\n").unwrap();
        true
    }
}

mod exact {
    super::super::contract!(super::Script::new(super::Tells::Workers));
}

mod number {
    super::super::contract!(super::Script::new(super::Tells::Number));
}

mod assumed {
    super::super::contract!(super::Script::new(super::Tells::Nothing));
}
