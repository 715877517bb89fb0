//! What a reload changes, so that only that is started anew.

use super::{Config, GroupConfig};

/// What is different between two configurations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Groups of both, and others that came or went, by name: first those of the new
    /// configuration in its order, then those that are gone.
    pub groups: Vec<(String, GroupChange)>,
    /// Keys that only a restart applies.
    pub restart: Vec<&'static str>,
}

/// What became of one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupChange {
    /// Nothing.
    Same,
    /// It is new.
    Added,
    /// It is gone. Its workers stay as they are.
    Removed,
    /// Only rules, alerts or times are different: they can be swapped while it runs.
    Rules,
    /// Its queue, target, list of snapshots or webhook of alerts is different: they must be opened anew.
    Reopen,
}

/// Compares two configurations.
pub fn changes(old: &Config, new: &Config) -> Changes {
    let was = |name: &str| old.groups.iter().find(|g| g.name == name);
    let is = |name: &str| new.groups.iter().any(|g| g.name == name);
    let kept = new.groups.iter().map(|group| {
        let change = was(&group.name).map_or(GroupChange::Added, |old| change(old, group));
        (group.name.clone(), change)
    });
    let gone = old.groups.iter().filter(|group| !is(&group.name));
    let gone = gone.map(|group| (group.name.clone(), GroupChange::Removed));
    let fixed = [
        ("state_dir", old.state_dir != new.state_dir),
        ("http", old.listen != new.listen),
        ("log", old.log != new.log),
        ("keep_days", old.keep_days != new.keep_days),
    ];
    let restart = fixed.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key).collect();
    Changes { groups: kept.chain(gone).collect(), restart }
}

fn change(old: &GroupConfig, new: &GroupConfig) -> GroupChange {
    if old == new {
        return GroupChange::Same;
    }
    let same_connectors = old.queue == new.queue
        && old.target == new.target
        && old.lease == new.lease
        && old.metrics_list == new.metrics_list
        && old.alert_webhook == new.alert_webhook
        && old.base_dir == new.base_dir;
    if same_connectors { GroupChange::Rules } else { GroupChange::Reopen }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn config(groups: &str) -> Config {
        super::super::parse(groups, "test.yaml", Path::new("/")).unwrap()
    }

    #[test]
    fn tells_what_a_reload_changes() {
        let group = |name: &str, rest: &str, command: &str| {
            let target = format!("{{ process: {{ command: [{command}] }} }}");
            format!(
                "  {name}: {{ {rest}queue: {{ demo: {{ database: d }} }}, target: {target} }}\n"
            )
        };
        let same = |name| group(name, "", "w");
        let old = ["groups:\n", &same("a"), &same("b"), &same("c"), &same("d")].concat();
        let swapped = group("c", "workers: { max: 9 }, ", "w");
        let reopened = group("b", "", "v");
        let new = ["keep_days: 3\ngroups:\n", &same("e"), &swapped, &reopened, &same("a")].concat();
        let found = changes(&config(&old), &config(&new));
        let groups: Vec<_> = found.groups.iter().map(|(n, c)| (n.as_str(), *c)).collect();
        let wanted = [
            ("e", GroupChange::Added),
            ("c", GroupChange::Rules),
            ("b", GroupChange::Reopen),
            ("a", GroupChange::Same),
            ("d", GroupChange::Removed),
        ];
        assert_eq!(groups, wanted);
        assert_eq!(found.restart, ["keep_days"]);
        assert_eq!(changes(&config(&old), &config(&old)).restart, Vec::<&str>::new());
    }
}
