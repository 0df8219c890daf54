//! The name of a process in a store, by which a process on the same machine can tell that it has ended.
//!
//! The number of a process is not enough: it is used again, and each container and each boot has its own. So the name contains when the
//! process started, and where its number counts. That is known on Linux only; elsewhere, no process is known to have ended.

use std::sync::{Arc, LazyLock};

static OWN: LazyLock<Arc<str>> = LazyLock::new(|| match (system::place(), system::start(std::process::id())) {
    (Some(place), system::Start::At(start)) => format!("process {} ({place}.{start})", std::process::id()).into(),
    _ => format!("process {}", std::process::id()).into(),
});

/// The name of this process, such as `process 4711 (1f3a9c0b.4026531836.8812345)`.
pub fn name() -> Arc<str> {
    OWN.clone()
}

/// The part of a name that people need, such as `process 4711`. Other texts stay as they are.
pub fn short_name(name: &str) -> &str {
    parse(name).map_or(name, |_| name.split(" (").next().unwrap_or(name))
}

/// The number of the process with this name.
pub fn id(name: &str) -> Option<u32> {
    short_name(name).strip_prefix("process ")?.parse().ok()
}

/// Whether the process with this name is known to have ended. False for every other text, and for processes elsewhere.
pub fn has_ended(name: &str) -> bool {
    look_up(name) == Some(false)
}

/// Whether the process with this name is known to be running. False for every other text, and for processes elsewhere.
pub fn is_running(name: &str) -> bool {
    look_up(name) == Some(true)
}

/// Whether the process with this name is running, if that can be known.
fn look_up(name: &str) -> Option<bool> {
    let (id, place, start) = parse(name)?;
    if system::place()? != place {
        return None;
    }
    match system::start(id) {
        system::Start::At(found) => Some(found == start),
        system::Start::Ended => Some(false),
        system::Start::Unknown => None,
    }
}

/// Number, place and start.
fn parse(name: &str) -> Option<(u32, &str, u64)> {
    let (id, rest) = name.strip_prefix("process ")?.split_once(" (")?;
    let (place, start) = rest.strip_suffix(')')?.rsplit_once('.')?;
    Some((id.parse().ok()?, place, start.parse().ok()?))
}

mod system {
    /// When a process has started.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    pub(super) enum Start {
        /// In the unit of the system.
        At(u64),
        /// There is no such process, or only what is left of it until its parent takes notice.
        Ended,
        Unknown,
    }

    /// Where the numbers of processes count: the boot, and the namespace of a container.
    #[cfg(target_os = "linux")]
    pub(super) fn place() -> Option<String> {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let namespace = std::fs::read_link("/proc/self/ns/pid").ok()?;
        let number: String = namespace.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
        Some(format!("{}.{number}", boot.split('-').next()?.trim()))
    }

    #[cfg(target_os = "linux")]
    pub(super) fn start(id: u32) -> Start {
        match std::fs::read_to_string(format!("/proc/{id}/stat")) {
            Ok(stat) => read_start(&stat),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Start::Ended,
            Err(_) => Start::Unknown,
        }
    }

    /// The fields after the name of the program, which is in brackets and may contain any character: the state is the first of them, the
    /// start the twentieth (`proc_pid_stat(5)`).
    #[cfg(target_os = "linux")]
    fn read_start(stat: &str) -> Start {
        let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        match (fields.next(), fields.nth(18).and_then(|start| start.parse().ok())) {
            (Some("Z" | "X"), _) => Start::Ended,
            (_, Some(start)) => Start::At(start),
            _ => Start::Unknown,
        }
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn place() -> Option<String> {
        None
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn start(_: u32) -> Start {
        Start::Unknown
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

    use super::*;

    #[test]
    fn a_process_is_known_to_have_ended_only_where_its_number_counts() {
        let own = name();
        assert!(is_running(&own) && !has_ended(&own));
        assert_eq!(
            (short_name(&own), id(&own)),
            (&*format!("process {}", std::process::id()), Some(std::process::id()))
        );
        let (_, place, start) = parse(&own).unwrap();
        let named = |id: u32, place: &str, start: u64| format!("process {id} ({place}.{start})");
        // A later process has the number of an earlier one.
        assert!(has_ended(&named(std::process::id(), place, start.wrapping_sub(1))));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let ended = child.id();
        child.wait().unwrap();
        assert!(has_ended(&named(ended, place, start)));
        assert!(!has_ended(&named(ended, "00000000.1", start)), "in another container or before another boot");
        for other in ["process 4711", "test", "process 4711 (x)", ""] {
            assert!(!has_ended(other) && short_name(other) == other, "{other}");
        }
    }
}
