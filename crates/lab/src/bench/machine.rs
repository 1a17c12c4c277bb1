//! Owns what is asked of the machine: which it is, which core a thread runs on, how long it ran.

/// Processor, cores and kernel in one line.
pub fn describe() -> String {
    let model = std::fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("model name"))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    });
    let uname = rustix::system::uname();
    format!(
        "{}, {} cores, {} {}",
        model.unwrap_or_else(|| "unknown processor".into()),
        cores(),
        uname.sysname().to_string_lossy(),
        uname.release().to_string_lossy()
    )
}

/// Cores that this process may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// How many of them so many threads can have at work.
pub fn cores_for(threads: usize) -> usize {
    cores().min(threads)
}

/// Keeps the calling thread on a core. Where that is not allowed it stays free: the figures only become noisier.
pub fn pin(core: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

/// Seconds of processor time that the calling thread has had.
pub fn thread_cpu_s() -> f64 {
    thread_cpu_ns() as f64 * 1e-9
}

/// The same in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Seconds of processor time that all threads of this process have had.
pub fn process_cpu_s() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// This process's threads whose names begin so.
pub fn threads(prefix: &str) -> Vec<i32> {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return Vec::new() };
    let is_one = |id: &i32| {
        std::fs::read_to_string(format!("/proc/self/task/{id}/comm")).is_ok_and(|name| name.starts_with(prefix))
    };
    tasks.flatten().filter_map(|task| task.file_name().to_str()?.parse().ok()).filter(is_one).collect()
}

/// Seconds of processor time that these threads of this process have had, as the scheduler counts it.
pub fn threads_cpu_s(threads: &[i32]) -> f64 {
    let of = |id: &i32| {
        let text = std::fs::read_to_string(format!("/proc/self/task/{id}/schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    };
    threads.iter().filter_map(of).sum::<u64>() as f64 * 1e-9
}

/// Bytes of memory that this process occupies.
pub fn resident_bytes() -> usize {
    let pages =
        std::fs::read_to_string("/proc/self/statm").ok().and_then(|text| text.split(' ').nth(1)?.parse::<usize>().ok());
    pages.unwrap_or(0) * rustix::param::page_size()
}
