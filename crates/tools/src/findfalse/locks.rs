//! Owns the answer to "is this a lock or an atomic?", by name, and how hot it probably is.

use super::types::without_arguments;

/// How often something is probably written, hottest last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Heat {
    /// Written once: `Once`, `OnceLock`, `LazyLock`.
    Once,
    /// Written when something happens: a flag, a state, a counter.
    Sometimes,
    /// A lock: written twice for each use.
    Lock,
    /// A count of references: written twice by each user, however shortly it looks.
    References,
}

/// In C and its relatives, by the name of the structure or typedef.
const C_LOCKS: &[&str] = &[
    "pthread_mutex_t",
    "pthread_rwlock_t",
    "pthread_spinlock_t",
    "pthread_cond_t",
    "sem_t",
    "mtx_t",
    "cnd_t",
    // illumos, FreeBSD
    "kmutex_t",
    "krwlock_t",
    "kcondvar_t",
    "ksema_t",
    "mtx",
    "rwlock",
    "rmlock",
    "sx",
    // Linux
    "mutex",
    "spinlock_t",
    "raw_spinlock_t",
    "arch_spinlock_t",
    "rwlock_t",
    "rw_semaphore",
    "semaphore",
    "seqlock_t",
];
const C_ATOMICS: &[&str] = &["atomic_t", "atomic64_t", "atomic_long_t", "atomic_flag"];
const C_REFERENCES: &[&str] = &["refcount_t", "rcuref_t", "kref", "lockref", "file_ref_t", "percpu_ref"];

/// Whether a type of this name is a lock or an atomic by itself, whatever is inside. `extra` are further names of locks.
pub fn by_name(path: &str, extra: &[String]) -> Option<Heat> {
    let path = without_arguments(path);
    let last = path.rsplit("::").next().unwrap_or(&path);
    if extra.iter().any(|name| *name == path || *name == last) {
        return Some(Heat::Lock);
    }
    let is_rust_lock =
        path.starts_with("std::sync::") || path.starts_with("parking_lot") || path.starts_with("lock_api::");
    match last {
        "Once" | "OnceLock" | "LazyLock" | "OnceState" if is_rust_lock => return Some(Heat::Once),
        "Mutex" | "RwLock" | "Condvar" | "Barrier" | "ReentrantLock" | "ReentrantMutex" | "FairMutex"
            if is_rust_lock =>
        {
            return Some(Heat::Lock);
        }
        _ => {}
    }
    if (path.starts_with("core::sync::atomic::") || path.starts_with("std::sync::atomic::"))
        && last.starts_with("Atomic")
    {
        return Some(Heat::Sometimes);
    }
    let is_cpp =
        matches!(path.as_str(), "std::mutex" | "std::shared_mutex" | "std::recursive_mutex" | "std::timed_mutex");
    if is_cpp || (last == path && C_LOCKS.contains(&last)) {
        return Some(Heat::Lock);
    }
    if path == "std::atomic" || path == "std::__atomic_base" || (last == path && C_ATOMICS.contains(&last)) {
        return Some(Heat::Sometimes);
    }
    (last == path && C_REFERENCES.contains(&last)).then_some(Heat::References)
}

/// A field's name says more than its type: an atomic called `refcnt` is one.
pub fn by_field(name: &str, heat: Heat) -> Heat {
    if heat != Heat::Sometimes {
        return heat;
    }
    let name = name.to_ascii_lowercase();
    let words = || name.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| !word.is_empty());
    let refers = |word: &str| {
        matches!(word, "ref" | "refs" | "strong" | "weak" | "users" | "holders" | "references")
            || word.starts_with("refc") // refcnt, refcount
            || word.starts_with("usecnt")
    };
    if words().any(refers) {
        Heat::References
    } else if words().any(|word| matches!(word, "lock" | "mutex" | "locked" | "spin")) {
        Heat::Lock
    } else {
        Heat::Sometimes
    }
}

/// Bytes that are there so that something else is not.
pub fn is_padding(name: &str) -> bool {
    let name = name.trim_matches('_').to_ascii_lowercase();
    name == "pad"
        || name == "padding"
        || name.starts_with("pad_")
        || name.ends_with("_pad")
        || name.contains("cachel_pad")
        || name.contains("_pad_")
        || name.strip_prefix("pad").is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit()))
        || name.contains("cacheline")
}
