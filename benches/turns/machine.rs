//! What the machine tells about processes: CPU time and memory. Linux tells all of it; elsewhere some figures are missing.

use std::{fs, time::Duration};

use cpu_time::ProcessTime;

/// CPU time (user + sys) of this process while `work` runs, all its threads included.
pub(crate) fn cpu<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let began = ProcessTime::now();
    let done = work();
    (done, began.elapsed())
}

/// Bytes of this process that are in memory and not shared with files.
pub(crate) fn resident() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

/// CPU time of a running process so far: the sum over its living threads.
pub(crate) fn cpu_of(process: u32) -> Option<Duration> {
    let mut nanoseconds = 0u64;
    for thread in fs::read_dir(format!("/proc/{process}/task")).ok()? {
        let text = fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        nanoseconds += text.split_whitespace().next()?.parse::<u64>().ok()?;
    }
    Some(Duration::from_nanos(nanoseconds))
}

/// CPU time of all processes that this one started and that have ended. The kernel tells it in hundredths of a second, so
/// only differences over many of them mean anything.
pub(crate) fn cpu_of_ended() -> Option<Duration> {
    let text = fs::read_to_string("/proc/self/stat").ok()?;
    let mut fields = text.rsplit_once(')')?.1.split_whitespace().skip(13);
    let (user, system) = (fields.next()?.parse::<u64>().ok()?, fields.next()?.parse::<u64>().ok()?);
    Some(Duration::from_millis((user + system) * 10))
}
