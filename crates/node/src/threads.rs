//! Whether Kafka loads its logs at this moment, by the names of its threads.
//!
//! It has threads for this and nothing else, from the first log to the last, whatever it is told to write to its output. The
//! JVM tells the kernel what its threads are called, the first fifteen letters; from Java 22 on, seven of them and the end.

use std::fs;
use std::io;

/// `log-recovery-<directory>-<n>`, as much as is left of it in all versions of Java.
const LOADERS: &str = "log-rec";

/// The threads of Kafka's part in the quorum, which every node has long before it loads logs.
const KAFKAS: &str = "kafka-";

/// What the threads of a process say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loading {
    /// Logs are being loaded.
    Now,
    /// They are not: not yet, or not any more.
    NotNow,
    /// The threads have no names, or not yet.
    Unknown,
}

/// Looks at a process.
pub(crate) fn loading(pid: u32) -> Loading {
    judge(&names(pid).unwrap_or_default())
}

/// That the loaders are not there says something only when others show that threads have their names.
fn judge(names: &[String]) -> Loading {
    let has = |prefix| names.iter().any(|name| name.starts_with(prefix));
    if has(LOADERS) {
        Loading::Now
    } else if has(KAFKAS) {
        Loading::NotNow
    } else {
        Loading::Unknown
    }
}

fn names(pid: u32) -> io::Result<Vec<String>> {
    let threads = fs::read_dir(format!("/proc/{pid}/task"))?;
    // Threads come and go while they are looked at.
    Ok(threads.flatten().filter_map(|thread| fs::read_to_string(thread.path().join("comm")).ok()).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    fn judged(names: &[&str]) -> Loading {
        judge(&names.iter().map(|name| format!("{name}\n")).collect::<Vec<_>>())
    }

    #[test]
    fn loaders_are_known_by_their_names() {
        // As seen in Kafka 3.9.1, 4.1.1 and 4.3.1 on Java 17.
        let before = ["java", "main", "GC Thread#0", "kafka-0-raft-io", "kafka-0-metadat"];
        assert_eq!(judged(&before), Loading::NotNow);
        assert_eq!(judged(&[&before[..], &["log-recovery-/t"]].concat()), Loading::Now);
        assert_eq!(judged(&[&before[..], &["log-rec..log3-0"]].concat()), Loading::Now, "from Java 22 on");
        assert_eq!(judged(&[&before[..], &["kafka-log-clean", "log-closing-/t"]].concat()), Loading::NotNow);
    }

    #[test]
    fn threads_without_names_say_nothing() {
        assert_eq!(judged(&["java", "main", "VM Thread"]), Loading::Unknown);
        assert_eq!(judged(&[]), Loading::Unknown);
        assert_eq!(loading(u32::MAX), Loading::Unknown, "there is no such process");
    }

    #[test]
    fn the_threads_of_a_process_are_found() {
        let (release, held) = mpsc::channel::<()>();
        let (started, is_running) = mpsc::channel();
        let loader = thread::Builder::new().name("log-recovery-/v".to_owned()).spawn(move || {
            started.send(()).unwrap();
            held.recv().ok();
        });
        is_running.recv().unwrap();
        assert_eq!(loading(std::process::id()), Loading::Now);
        drop(release);
        loader.unwrap().join().unwrap();
    }
}
