//! Looks at the node's directories, and only looks: what is found is judged in [`crate::format`].

use std::ffi::OsStr;
use std::fs::{self, DirEntry};
use std::io;
use std::path::{Path, PathBuf};

use crate::checkpoint;
use crate::config::LogDirs;
use crate::format::Contents;
use crate::meta::{self, MetaProperties};

/// The directory that `mkfs` leaves at the root of a file system.
const LOST_AND_FOUND: &str = "lost+found";

/// Kafka's directory for the metadata log.
const METADATA_LOG: &str = "__cluster_metadata-0";

/// The snapshot at offset 0 and epoch 0, which only the storage tool writes. Of a first voter it says who votes.
const FIRST_SNAPSHOT: &str = "00000000000000000000-0000000000.checkpoint";

/// The mark of a clean shutdown. Kafka writes it into each directory for itself when all logs in it are closed, and removes it
/// when it begins to load them.
const CLEAN_SHUTDOWN: &str = ".kafka_cleanshutdown";

/// What Kafka caches of records that are kept elsewhere.
const REMOTE_CACHE: &str = "remote-log-index-cache";

/// How many names are shown of a directory that is nobody's.
const NAMES_SHOWN: usize = 5;

/// What each of the node's directories holds.
#[must_use]
pub fn inspect_all(dirs: &LogDirs) -> Vec<(PathBuf, Contents)> {
    dirs.all().iter().map(|path| (path.clone(), inspect(path))).collect()
}

/// What one directory holds.
#[must_use]
pub fn inspect(dir: &Path) -> Contents {
    try_inspect(dir).unwrap_or_else(|error| Contents::Unreadable(error.to_string()))
}

/// Metadata logs that stayed behind when the metadata directory was moved to another volume.
#[must_use]
pub fn left_behind(dirs: &LogDirs) -> Vec<PathBuf> {
    let others = dirs.all().iter().filter(|dir| *dir != dirs.metadata());
    others.map(|dir| dir.join(METADATA_LOG)).filter(|log| log.is_dir()).collect()
}

/// The directory id that the node was formatted with, if there is one that can be read.
#[must_use]
pub fn directory_id(metadata_dir: &Path) -> Option<karst_kafka::DirectoryId> {
    let bytes = fs::read(metadata_dir.join(meta::FILE_NAME)).ok()?;
    MetaProperties::parse(&bytes).ok()?.directory_id
}

/// Does the node know anything of the cluster's metadata? Kafka makes the log's files before it has a record to write, and the
/// storage tool's snapshot of the first voters is none of what they agreed on. What cannot be seen is taken to be there.
#[must_use]
pub fn has_metadata(metadata_dir: &Path) -> bool {
    find_metadata(&metadata_dir.join(METADATA_LOG)).unwrap_or(true)
}

fn find_metadata(log: &Path) -> io::Result<bool> {
    let Some(entries) = unless_absent(fs::read_dir(log))? else { return Ok(false) };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let is_snapshot = name.ends_with(".checkpoint") && name != FIRST_SNAPSHOT;
        if is_snapshot || (name.ends_with(".log") && entry.metadata()?.len() > 0) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The directories whose logs Kafka will recover when it starts: they have logs, and no mark of a clean shutdown. What cannot
/// be seen counts, because it may be so.
#[must_use]
pub fn unclean(dirs: &LogDirs) -> Vec<PathBuf> {
    dirs.all().iter().filter(|dir| is_unclean(dir).unwrap_or(true)).cloned().collect()
}

fn is_unclean(dir: &Path) -> io::Result<bool> {
    Ok(!dir.join(CLEAN_SHUTDOWN).try_exists()? && has_logs(dir)?)
}

/// The metadata log does not count: Kafka reads it anew at every start, and not for long.
fn has_logs(dir: &Path) -> io::Result<bool> {
    let Some(entries) = unless_absent(fs::read_dir(dir))? else { return Ok(false) };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() && is_log(&entry.file_name()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whatever Kafka would load, also a log that moves here (`orders-0.<id>-future`) or is to be deleted.
fn is_log(directory: &OsStr) -> bool {
    directory != METADATA_LOG
        && directory != REMOTE_CACHE
        && directory.to_str().is_some_and(|name| !name.starts_with('.') && name.contains('-'))
}

fn try_inspect(dir: &Path) -> io::Result<Contents> {
    let mark = unless_absent(fs::read(dir.join(meta::FILE_NAME)))?;
    let entries = match unless_absent(fs::read_dir(dir))? {
        Some(entries) => entries.collect::<io::Result<Vec<_>>>()?,
        None => return Ok(Contents::Empty),
    };
    let entries: Vec<DirEntry> =
        entries.into_iter().filter(|entry| entry.file_name() != LOST_AND_FOUND).collect();
    if entries.is_empty() {
        return Ok(Contents::Empty);
    }
    let mut is_of_tool = true;
    for entry in &entries {
        is_of_tool = is_of_tool && is_left_by_the_storage_tool(entry)?;
    }
    match mark {
        Some(mark) if is_of_tool => return Ok(Contents::Unused(mark)),
        Some(mark) => return Ok(Contents::Marked(mark)),
        None if !is_of_tool => return Ok(Contents::Unmarked(some_names(&entries))),
        None => {}
    }
    Ok(Contents::InterruptedFormat { first_voters_written: has_first_voters(dir)? })
}

fn has_first_voters(dir: &Path) -> io::Result<bool> {
    let snapshot = unless_absent(fs::read(dir.join(METADATA_LOG).join(FIRST_SNAPSHOT)))?;
    Ok(snapshot.is_some_and(|snapshot| checkpoint::names_voters(&snapshot)))
}

fn unless_absent<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The tool writes `meta.properties` last; these are that file and those it writes before. A Kafka that ran leaves others too: log
/// segments, its vote, checkpoints of offsets.
fn is_left_by_the_storage_tool(entry: &DirEntry) -> io::Result<bool> {
    let name = entry.file_name();
    if name == METADATA_LOG && entry.file_type()?.is_dir() {
        for inner in fs::read_dir(entry.path())? {
            if !is_bootstrap_snapshot(&inner?.file_name()) {
                return Ok(false);
            }
        }
        return Ok(true);
    }
    if name == meta::FILE_NAME {
        return Ok(true);
    }
    Ok(name == "bootstrap.checkpoint" || name == "bootstrap.checkpoint.tmp" || name == "meta.properties.tmp")
}

/// The first snapshot, finished or not.
fn is_bootstrap_snapshot(name: &OsStr) -> bool {
    const UNFINISHED: (&str, &str) = ("00000000000000000000-0000000000-", ".checkpoint.part");
    name.to_str().is_some_and(|name| {
        name == FIRST_SNAPSHOT || (name.starts_with(UNFINISHED.0) && name.ends_with(UNFINISHED.1))
    })
}

fn some_names(entries: &[DirEntry]) -> Vec<String> {
    let mut names: Vec<String> =
        entries.iter().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    if names.len() > NAMES_SHOWN {
        let more = names.len() - NAMES_SHOWN;
        names.truncate(NAMES_SHOWN);
        names.push(format!("and {more} more"));
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory with these files in it; a name may have one folder before it.
    fn dir_with(files: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for file in files {
            let path = dir.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "content").unwrap();
        }
        dir
    }

    #[test]
    fn a_node_has_metadata_when_it_has_a_record_or_a_snapshot_of_others() {
        let has = |files: &[&str]| has_metadata(dir_with(files).path());
        assert!(!has(&[]));
        assert!(!has(&["meta.properties", "bootstrap.checkpoint"]), "formatted just now");
        let log = "__cluster_metadata-0/00000000000000000000.log";
        let first_voters = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint";
        assert!(!has(&[first_voters, "__cluster_metadata-0/quorum-state"]));
        let snapshot = "__cluster_metadata-0/00000000000000000107-0000000002.checkpoint";
        assert!(has(&[snapshot]));
        assert!(has(&[log]));
        let dir = dir_with(&[first_voters, log]);
        fs::write(dir.path().join(log), "").unwrap();
        assert!(!has_metadata(dir.path()), "Kafka ended before it had a record");
        assert!(has_metadata(dir_with(&["__cluster_metadata-0"]).path()), "cannot be read");
    }

    fn inspect_files(files: &[&str]) -> Contents {
        inspect(dir_with(files).path())
    }

    #[test]
    fn a_missing_directory_and_an_empty_one_are_alike() {
        let dir = dir_with(&[]);
        assert_eq!(inspect(dir.path()), Contents::Empty);
        assert_eq!(inspect(&dir.path().join("missing")), Contents::Empty);
    }

    #[test]
    fn a_fresh_file_system_is_empty() {
        let dir = dir_with(&[]);
        fs::create_dir(dir.path().join(LOST_AND_FOUND)).unwrap();
        assert_eq!(inspect(dir.path()), Contents::Empty);
    }

    #[test]
    fn a_mark_is_read_whatever_else_is_there() {
        let contents = inspect_files(&["meta.properties", "orders-0/00000000000000000000.log"]);
        assert_eq!(contents, Contents::Marked(b"content".to_vec()));
    }

    #[test]
    fn a_directory_that_the_storage_tool_made_and_no_kafka_used_is_told_from_others() {
        let unused = Contents::Unused(b"content".to_vec());
        for files in [&["meta.properties"][..], &["meta.properties", "bootstrap.checkpoint"]] {
            assert_eq!(inspect_files(files), unused, "{files:?}");
        }
        for file in [
            "orders-0/00000000000000000000.log",
            "recovery-point-offset-checkpoint",
            ".kafka_cleanshutdown",
            ".lock",
            "__cluster_metadata-0/quorum-state",
        ] {
            let contents = inspect_files(&["meta.properties", "bootstrap.checkpoint", file]);
            assert_eq!(contents, Contents::Marked(b"content".to_vec()), "{file}");
        }
    }

    #[test]
    fn what_a_killed_storage_tool_leaves_is_recognised() {
        for (files, first_voters_written) in [
            (&["bootstrap.checkpoint.tmp"][..], false),
            (&["bootstrap.checkpoint", "meta.properties.tmp"], false),
            (
                &[
                    "bootstrap.checkpoint",
                    "__cluster_metadata-0/00000000000000000000-0000000000-1234.checkpoint.part",
                ],
                false,
            ),
            (
                &["bootstrap.checkpoint", "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"],
                false,
            ),
        ] {
            let remains = Contents::InterruptedFormat { first_voters_written };
            assert_eq!(inspect_files(files), remains, "{files:?}");
        }
    }

    /// After Kafka 4.3 every controller has that file. Only of a first voter it proves that no disk was lost.
    #[test]
    fn a_first_snapshot_is_proof_by_what_it_says() {
        use crate::checkpoint::tests::{OF_A_FIRST_VOTER, OF_ANOTHER_NODE};
        for (snapshot, first_voters_written) in [(OF_A_FIRST_VOTER, true), (OF_ANOTHER_NODE, false)] {
            let dir = dir_with(&["bootstrap.checkpoint"]);
            fs::create_dir(dir.path().join(METADATA_LOG)).unwrap();
            fs::write(dir.path().join(METADATA_LOG).join(FIRST_SNAPSHOT), snapshot).unwrap();
            assert_eq!(inspect(dir.path()), Contents::InterruptedFormat { first_voters_written });
        }
    }

    #[test]
    fn a_metadata_log_that_was_ever_written_is_data() {
        for file in ["00000000000000000000.log", "quorum-state", "00000000000000000042-0000000001.checkpoint"]
        {
            let contents = inspect_files(&["bootstrap.checkpoint", &format!("__cluster_metadata-0/{file}")]);
            assert!(matches!(contents, Contents::Unmarked(_)), "{file}: {contents:?}");
        }
    }

    #[test]
    fn unknown_content_is_shown_by_name_but_not_all_of_it() {
        assert_eq!(inspect_files(&["b", "a"]), Contents::Unmarked(vec!["a".to_owned(), "b".to_owned()]));
        let Contents::Unmarked(names) = inspect_files(&["a", "b", "c", "d", "e", "f", "g"]) else { panic!() };
        assert_eq!(names, ["a", "b", "c", "d", "e", "and 2 more"]);
    }

    /// Is a directory with these files recovered?
    fn is_recovered(files: &[&str]) -> bool {
        is_unclean(dir_with(files).path()).unwrap()
    }

    #[test]
    fn logs_without_a_mark_of_a_clean_shutdown_are_recovered() {
        const LOG: &str = "orders-0/00000000000000000000.log";
        assert!(is_recovered(&["meta.properties", LOG]));
        assert!(!is_recovered(&["meta.properties", LOG, CLEAN_SHUTDOWN]));
        assert!(is_recovered(&["meta.properties", "a-b.c_d-7-2/00000000000000000000.log"]));
        assert!(is_recovered(&["meta.properties", "orders-0.4f1c-future/00000000000000000000.log"]));
    }

    #[test]
    fn a_directory_without_logs_has_nothing_to_recover() {
        for files in [
            &[][..],
            &["meta.properties", "bootstrap.checkpoint"],
            &[
                "meta.properties",
                "__cluster_metadata-0/00000000000000000000.log",
                "recovery-point-offset-checkpoint",
            ],
            &["meta.properties", "remote-log-index-cache/0_a.index", "lost+found/a", ".snapshot-0/a"],
            &["meta.properties", "a-file-0"],
        ] {
            assert!(!is_recovered(files), "{files:?}");
        }
    }

    #[test]
    fn a_directory_that_cannot_be_read_may_have_logs() {
        let dir = dir_with(&["file"]);
        assert!(is_unclean(&dir.path().join("file")).is_err());
    }

    #[test]
    fn a_file_in_place_of_a_directory_is_an_error() {
        let dir = dir_with(&["file"]);
        assert!(matches!(inspect(&dir.path().join("file")), Contents::Unreadable(_)));
    }
}
