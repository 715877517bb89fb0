//! The limits of the cgroup that this process is in: version 2, or the controllers of version 1.

use std::path::{Path, PathBuf};

use headcount_core::smooth::one_decimal;

use super::read;

/// What a cgroup allows and how much of it is in use. What is not limited is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CgroupLimits {
    /// Cores, as a number: 1.5 is 150 ms of CPU in 100 ms.
    pub cores: Option<f64>,
    /// Memory in use, percent of the limit; files that the kernel can drop do not count.
    pub memory: Option<f64>,
}

impl CgroupLimits {
    /// Reads the limits under `root` (`/` but in tests). A limit of a parent holds too, so each is
    /// the tightest on the way up.
    pub fn read(root: &Path, host_memory: Option<u64>) -> Self {
        let Ok(own) = read(&root.join("proc/self/cgroup")) else { return Self::default() };
        let mount = root.join("sys/fs/cgroup");
        let is_v2 = mount.join("cgroup.controllers").exists();
        let of = |controller| folders(&own, &mount, if is_v2 { "" } else { controller });
        let cores = of("cpu").iter().filter_map(|folder| cores(folder)).min_by(f64::total_cmp);
        let memory = of("memory")
            .iter()
            .filter_map(|folder| memory(folder, host_memory))
            .max_by(f64::total_cmp);
        Self { cores, memory }
    }
}

/// The folders of a controller (empty: version 2) for this process, its own first, the root last.
///
/// In a container without a cgroup namespace the path is the host's and is not there; the root of
/// the mount is then the container's own.
fn folders(own: &str, mount: &Path, controller: &str) -> Vec<PathBuf> {
    let line = own.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let matches = controllers.split(',').any(|c| c == controller);
        matches.then_some((controllers, path))
    });
    let Some((controllers, path)) = line else { return Vec::new() };
    let mut base = mount.join(controllers);
    if !base.exists() {
        base = mount.join(controller);
    }
    let path = Path::new(path.trim_start_matches('/'));
    let inside = !path.components().any(|part| part.as_os_str() == "..");
    let path = if inside { path } else { Path::new("") };
    path.ancestors().map(|part| base.join(part)).filter(|folder| folder.exists()).collect()
}

fn cores(folder: &Path) -> Option<f64> {
    let (quota, period) = match read(&folder.join("cpu.max")) {
        Ok(max) => {
            let mut words = max.split_ascii_whitespace();
            (words.next()?.parse::<f64>().ok()?, words.next()?.parse::<f64>().ok()?)
        }
        Err(_) => (number(folder, "cpu.cfs_quota_us")?, number(folder, "cpu.cfs_period_us")?),
    };
    (quota > 0.0 && period > 0.0).then_some(quota / period)
}

fn memory(folder: &Path, host_memory: Option<u64>) -> Option<f64> {
    let (limit, used, droppable) = match read(&folder.join("memory.max")) {
        Ok(max) => {
            let limit = max.trim().parse::<f64>().ok()?;
            (limit, number(folder, "memory.current")?, stat(folder, "inactive_file"))
        }
        Err(_) => {
            let limit = number(folder, "memory.limit_in_bytes")?;
            let used = number(folder, "memory.usage_in_bytes")?;
            (limit, used, stat(folder, "total_inactive_file"))
        }
    };
    // Version 1 writes "no limit" as a number beyond any memory.
    let limits = limit > 0.0 && host_memory.is_none_or(|total| limit < total as f64);
    let used = (used - droppable.unwrap_or(0.0)).max(0.0);
    limits.then(|| one_decimal((used / limit * 100.0).min(100.0)))
}

fn number(folder: &Path, file: &str) -> Option<f64> {
    read(&folder.join(file)).ok()?.trim().parse().ok()
}

fn stat(folder: &Path, key: &str) -> Option<f64> {
    let text = read(&folder.join("memory.stat")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::tests::Tree;
    use super::*;

    const HOST: Option<u64> = Some(16 << 30);

    #[test]
    fn version_2_in_a_namespace() {
        let tree = Tree::new(&[
            ("proc/self/cgroup", "0::/\n"),
            ("sys/fs/cgroup/cgroup.controllers", "cpu memory\n"),
            ("sys/fs/cgroup/cpu.max", "150000 100000\n"),
            ("sys/fs/cgroup/memory.max", "1000\n"),
            ("sys/fs/cgroup/memory.current", "800\n"),
            ("sys/fs/cgroup/memory.stat", "anon 100\ninactive_file 300\nactive_file 1\n"),
        ]);
        let limits = CgroupLimits::read(tree.root(), HOST);
        assert_eq!(limits, CgroupLimits { cores: Some(1.5), memory: Some(50.0) });
    }

    #[test]
    fn version_2_takes_the_tightest_limit_on_the_way_up() {
        let tree = Tree::new(&[
            ("proc/self/cgroup", "0::/system.slice/headcount.service\n"),
            ("sys/fs/cgroup/cgroup.controllers", "cpu memory\n"),
            ("sys/fs/cgroup/system.slice/cpu.max", "200000 100000\n"),
            ("sys/fs/cgroup/system.slice/headcount.service/cpu.max", "max 100000\n"),
            ("sys/fs/cgroup/system.slice/headcount.service/memory.max", "max\n"),
            ("sys/fs/cgroup/system.slice/headcount.service/memory.current", "5\n"),
        ]);
        let limits = CgroupLimits::read(tree.root(), HOST);
        assert_eq!(limits, CgroupLimits { cores: Some(2.0), memory: None });
    }

    #[test]
    fn version_1_with_the_hosts_path_and_joined_controllers() {
        let tree = Tree::new(&[
            ("proc/self/cgroup", "5:memory:/docker/4f\n2:cpu,cpuacct:/docker/4f\n0::/\n"),
            ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "50000\n"),
            ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "1000\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "900\n"),
            ("sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 100\n"),
        ]);
        let limits = CgroupLimits::read(tree.root(), HOST);
        assert_eq!(limits, CgroupLimits { cores: Some(0.5), memory: Some(80.0) });
    }

    #[test]
    fn version_1_without_limits() {
        let tree = Tree::new(&[
            ("proc/self/cgroup", "4:memory:/\n1:cpu:/\n0::/\n"),
            ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"),
            ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "900\n"),
        ]);
        assert_eq!(CgroupLimits::read(tree.root(), HOST), CgroupLimits::default());
    }

    #[test]
    fn nothing_there_or_nonsense_is_no_limit() {
        assert_eq!(CgroupLimits::read(Tree::new(&[]).root(), HOST), CgroupLimits::default());
        let tree = Tree::new(&[
            ("proc/self/cgroup", "0::/../../etc\nnonsense\n"),
            ("sys/fs/cgroup/cgroup.controllers", ""),
            ("sys/fs/cgroup/cpu.max", "a lot\n"),
            ("sys/fs/cgroup/memory.max", "0\n"),
            ("sys/fs/cgroup/memory.current", "0\n"),
        ]);
        assert_eq!(CgroupLimits::read(tree.root(), HOST), CgroupLimits::default());
    }
}
