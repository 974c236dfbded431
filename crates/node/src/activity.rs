//! What the threads of a process have been busy with, as the kernel counts it.
//!
//! A process that is slow because it has much to do, gets no processor, or waits for its disk looks the same from outside as one
//! that does nothing any more. The kernel knows the difference.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// What has been seen of a process at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Activity {
    /// How long each thread has run, and has waited to be run.
    wanted: BTreeMap<String, Duration>,
    /// Does one of them wait for a disk, or for what else cannot be interrupted?
    waits_for_disk: bool,
}

impl Activity {
    /// `None` when the process is gone, or the kernel does not count.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        let mut activity = Self::default();
        for thread in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
            // Threads come and go while they are looked at.
            if let Some((state, wanted)) = look_at(&thread.path()) {
                activity.waits_for_disk |= state == 'D';
                activity.wanted.insert(thread.file_name().to_string_lossy().into_owned(), wanted);
            }
        }
        let counts = activity.wanted.values().any(|wanted| !wanted.is_zero());
        counts.then_some(activity)
    }

    /// Has the process done, and wanted to do, next to nothing since then? One whose threads are kept from an answer by too much
    /// work has at least one that wants to run all the time.
    pub(crate) fn is_idle_since(&self, before: &Self, elapsed: Duration) -> bool {
        let wanted: Duration = self
            .wanted
            .iter()
            .map(|(thread, now)| now.saturating_sub(before.wanted.get(thread).copied().unwrap_or_default()))
            .sum();
        !self.waits_for_disk && !before.waits_for_disk && wanted < elapsed / 2
    }
}

/// The state of a thread, and the time for which it ran or waited to.
fn look_at(thread: &Path) -> Option<(char, Duration)> {
    let stat = fs::read_to_string(thread.join("stat")).ok()?;
    let schedule = fs::read_to_string(thread.join("schedstat")).ok()?;
    Some((state(&stat)?, wanted(&schedule)?))
}

/// It comes after the name, which stands in parentheses and may have some of its own.
fn state(stat: &str) -> Option<char> {
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// Nanoseconds on a processor, then nanoseconds in wait of one.
fn wanted(schedule: &str) -> Option<Duration> {
    let mut numbers = schedule.split_whitespace().map(|number| number.parse().ok());
    Some(Duration::from_nanos(numbers.next()??) + Duration::from_nanos(numbers.next()??))
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Instant;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn activity(wanted: &[(&str, u64)], waits_for_disk: bool) -> Activity {
        let wanted =
            wanted.iter().map(|(thread, millis)| ((*thread).to_owned(), Duration::from_millis(*millis)));
        Activity { wanted: wanted.collect(), waits_for_disk }
    }

    #[test]
    fn a_process_whose_threads_sleep_is_idle_and_one_that_wants_to_run_is_not() {
        let before = activity(&[("1", 5_000), ("2", 300)], false);
        let is_idle = |now: &Activity| now.is_idle_since(&before, SECOND);
        assert!(is_idle(&activity(&[("1", 5_010), ("2", 300)], false)));
        assert!(!is_idle(&activity(&[("1", 5_900), ("2", 300)], false)), "one thread that runs all the time");
        assert!(!is_idle(&activity(&[("1", 5_300), ("2", 600)], false)), "some that run now and then");
        assert!(!is_idle(&activity(&[("1", 5_010), ("3", 800)], false)), "one that is new");
        assert!(is_idle(&activity(&[("1", 5_010)], false)), "one that has ended counts for nothing");
    }

    #[test]
    fn a_process_that_waits_for_its_disk_is_not_idle() {
        let (waits, sleeps) = (activity(&[("1", 1)], true), activity(&[("1", 1)], false));
        assert!(!waits.is_idle_since(&sleeps, SECOND));
        assert!(!sleeps.is_idle_since(&waits, SECOND));
    }

    #[test]
    fn what_the_kernel_writes_is_understood() {
        assert_eq!(state("42 (a) D) R 1 42"), Some('R'));
        assert_eq!(state("42 (java) D 1 42"), Some('D'));
        assert_eq!(wanted("1500 500 7\n"), Some(Duration::from_micros(2)));
        assert_eq!(wanted("1500"), None);
    }

    #[test]
    fn processes_are_told_apart_by_what_they_do() {
        for (program, arguments, is_idle) in
            [("sleep", &["60"][..], true), ("sh", &["-c", "while :; do :; done"][..], false)]
        {
            let mut child = Command::new(program).args(arguments).spawn().unwrap();
            let (began, before) = (Instant::now(), Activity::of(child.id()).unwrap());
            while began.elapsed() < Duration::from_millis(300) {
                std::thread::sleep(Duration::from_millis(20));
            }
            let now = Activity::of(child.id()).unwrap();
            assert_eq!(now.is_idle_since(&before, began.elapsed()), is_idle, "{program}");
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert_eq!(Activity::of(u32::MAX), None, "there is no such process");
    }
}
