//! What Kafka writes to its output while it loads its logs: the same words in 3.9, 4.0 to 4.3. How a line begins and ends is
//! for its users to say, so the words are looked for anywhere in it.

use std::collections::BTreeMap;

/// All that Kafka told so far.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// The directories that are recovered.
    directories: BTreeMap<String, Logs>,
    /// All logs are loaded.
    pub(super) is_over: bool,
}

/// Those of one directory.
#[derive(Debug, Default)]
struct Logs {
    done: usize,
    all: usize,
}

impl Told {
    /// So many logs are done, of so many.
    pub(super) fn logs(&self) -> Option<(usize, usize)> {
        let sum = |count: fn(&Logs) -> usize| self.directories.values().map(count).sum();
        (!self.directories.is_empty()).then(|| (sum(|logs| logs.done), sum(|logs| logs.all)))
    }

    pub(super) fn hear(&mut self, line: &str) {
        if let Some((directory, all)) = begun(line) {
            self.directories.insert(directory.to_owned(), Logs { done: 0, all });
        } else if let Some((done, directory)) = done(line) {
            // A directory that needs no recovery is not there. A name may have another one as its beginning.
            let is_named =
                |name: &str| directory.strip_prefix(name).is_some_and(|rest| rest.starts_with(')'));
            if let Some((_, logs)) = self.directories.iter_mut().find(|(name, _)| is_named(name)) {
                // Threads work side by side, and tell as they come.
                logs.done = logs.done.max(done).min(logs.all);
            }
        } else if is_over(line) {
            self.is_over = true;
            // Not each of them is told of in words that are understood.
            self.directories.values_mut().for_each(|logs| logs.done = logs.all);
        }
    }
}

/// `Recovering 12 logs from /data since no clean shutdown file was found`
fn begun(line: &str) -> Option<(&str, usize)> {
    let (_, rest) = line.split_once("Recovering ")?;
    let (count, rest) = rest.split_once(" logs from ")?;
    let (directory, _) = rest.split_once(" since no clean shutdown file was found")?;
    Some((directory, count.parse().ok()?))
}

/// `Completed load of … in 20ms (1/12 completed in /data)`, or the same of a log that could not be loaded. What comes after
/// the directory is not cut off.
fn done(line: &str) -> Option<(usize, &str)> {
    let (before, directory) = line.rsplit_once(" completed in ")?;
    let (_, counts) = before.rsplit_once('(')?;
    let (done, all) = counts.split_once('/')?;
    all.parse::<usize>().ok()?;
    Some((done.parse().ok()?, directory))
}

/// `Loaded 23 logs in 299ms (unclean log dirs = ArrayBuffer(/data))`
fn is_over(line: &str) -> bool {
    let times = line.split_once("Loaded ").and_then(|(_, rest)| rest.split_once(" logs in "));
    let Some((count, time)) = times else { return false };
    count.parse::<usize>().is_ok()
        && time.split_once("ms").is_some_and(|(number, _)| number.parse::<u64>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a Kafka wrote that was killed before, without the lines in between that say nothing of this.
    const OUTPUT_3_9_1: &str = include_str!("lines/3.9.1.txt");
    const OUTPUT_4_1_1: &str = include_str!("lines/4.1.1.txt");
    const OUTPUT_4_3_1: &str = include_str!("lines/4.3.1.txt");

    fn told(lines: &[&str]) -> Told {
        let mut told = Told::default();
        lines.iter().for_each(|line| told.hear(line));
        told
    }

    #[test]
    fn the_words_of_all_versions_are_understood() {
        for (version, output) in [("3.9.1", OUTPUT_3_9_1), ("4.1.1", OUTPUT_4_1_1), ("4.3.1", OUTPUT_4_3_1)] {
            let mut told = Told::default();
            let mut seen = Vec::new();
            for line in output.lines() {
                assert!(!told.is_over, "{version}: {line}");
                told.hear(line);
                if seen.last() != Some(&told.logs()) {
                    seen.push(told.logs());
                }
            }
            assert!(told.is_over, "{version}");
            assert_eq!(seen[..3], [None, Some((0, 12)), Some((0, 23))], "{version}");
            assert!(seen.is_sorted() && seen.len() > 20, "{version}: {seen:?}");
            assert_eq!(seen.last(), Some(&Some((23, 23))), "{version}");
        }
    }

    #[test]
    fn only_directories_that_are_recovered_count() {
        let told = told(&[
            "Skipping recovery of 12 logs from /d0 since clean shutdown file was found",
            "Completed load of Log(dir=/d0/a-0, x) in 6ms (7/12 completed in /d0)",
            "Recovering 3 logs from /d since no clean shutdown file was found",
            "Completed load of Log(dir=/d/a-1, x) in 6ms (2/3 completed in /d) (kafka.log.LogManager)",
            "Completed load of Log(dir=/d/a-2, x) in 6ms (1/3 completed in /d) (kafka.log.LogManager)",
        ]);
        assert_eq!(told.logs(), Some((2, 3)));
    }

    #[test]
    fn a_log_that_cannot_be_loaded_is_done_as_well() {
        let told = told(&[
            "Recovering 3 logs from /d since no clean shutdown file was found",
            "Error while loading logs in /d/a-0 in 6ms (1/3 completed in /d)",
        ]);
        assert_eq!(told.logs(), Some((1, 3)));
    }

    #[test]
    fn lines_may_look_as_users_want() {
        let told = told(&[
            r#"{"level":"INFO","message":"Recovering 3 logs from /d since no clean shutdown file was found"}"#,
            r#"{"level":"INFO","message":"Completed load of Log(…) in 20ms (2/3 completed in /d)","thread":"a"}"#,
        ]);
        assert_eq!(told.logs(), Some((2, 3)));
    }

    #[test]
    fn other_lines_say_nothing() {
        let told = told(&[
            "",
            "Recovering unflushed segment 0. 0/1 recovered for a-b.c_d-7-2.",
            "Loading logs from log dirs ArrayBuffer(/d0, /d1)",
            "Loaded new metadata Features(metadataVersion=3.9-IV0)",
            "Recovering many logs from /d since no clean shutdown file was found",
            "(a/b completed in /d)",
            "Loaded 3 logs in no time",
        ]);
        assert_eq!((told.logs(), told.is_over), (None, false));
    }
}
