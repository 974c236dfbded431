//! What Kafka keeps of elections, where it does not start with what it kept, or with nothing. The file is never deleted.
//!
//! **The vote of a node that votes no more.** A controller that stood for election itself, lost it, left the voters and runs as a
//! broker from then on starts in the very election in which it voted for itself, if there was no other since. Kafka (4.1.1 and
//! 4.3.1) makes it a candidate then, finds that it is no voter, and ends, at every start (`Local replica … must be in the set of
//! voters`).
//!
//! A vote is kept so that nobody votes twice in one election. Where the same file names another node as the leader, that
//! election is over: whoever follows a leader gives no vote in its term, so the node's own vote decides nothing any more. Kafka
//! 3.9 drops it in this moment itself. Only then, and only on a node without the controller role, is the vote taken out; term
//! and leader stay.
//!
//! **The term of a voter that gets its vote back.** Of the voter that led last the others still say that it leads, in a term of
//! which its empty disk knows nothing. Kafka (4.1.1 and 4.3.1) takes that for impossible and ends. So a restored voter begins in
//! the term after the newest that others know of, with no vote in it: they hear that the term in which it led is over, and elect
//! whoever has the longest log (tried on these and on 3.9.1). It gives no vote in any earlier term, in which it may have voted before.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use karst_kafka::NodeId;

/// Where Kafka keeps it, in the metadata directory.
const FILE: &str = "__cluster_metadata-0/quorum-state";
/// Where it is written before it takes the other's place, as Kafka does it.
const UNFINISHED: &str = "__cluster_metadata-0/quorum-state.tmp";
/// How Kafka writes that there is no directory.
const NO_DIRECTORY: &str = "AAAAAAAAAAAAAAAAAAAAAA";

/// Takes out a vote that is of no use, and keeps Kafka from starting. Whether there was one.
///
/// # Errors
/// When the file can be read and not be written.
pub(crate) fn drop_spent(metadata_dir: &Path, node: NodeId) -> io::Result<bool> {
    // What cannot be read is for Kafka to complain about.
    let Ok(text) = fs::read_to_string(metadata_dir.join(FILE)) else { return Ok(false) };
    let Some(text) = without_spent_vote(&text, node) else { return Ok(false) };
    replace(metadata_dir, &text)?;
    Ok(true)
}

/// Lets a voter begin in a term after this one. Whether that was not so before.
///
/// # Errors
/// When the file cannot be written.
pub(crate) fn begin_after(metadata_dir: &Path, epoch: i32) -> io::Result<bool> {
    let next = epoch.saturating_add(1);
    let known = fs::read_to_string(metadata_dir.join(FILE)).ok();
    if known.and_then(|text| number(&text, "leaderEpoch")).is_some_and(|known| known >= next) {
        return Ok(false);
    }
    replace(
        metadata_dir,
        &format!(
            "{{\"leaderId\":-1,\"leaderEpoch\":{next},\"votedId\":-1,\"votedDirectoryId\":\"{NO_DIRECTORY}\",\"data_version\":1}}"
        ),
    )?;
    Ok(true)
}

fn replace(metadata_dir: &Path, text: &str) -> io::Result<()> {
    let unfinished = metadata_dir.join(UNFINISHED);
    unfinished.parent().map_or(Ok(()), fs::create_dir_all)?;
    let mut written = File::create(&unfinished)?;
    written.write_all(text.as_bytes())?;
    written.sync_all()?;
    fs::rename(&unfinished, metadata_dir.join(FILE))
}

/// The same without the node's vote for itself, if another node won that election.
fn without_spent_vote(text: &str, node: NodeId) -> Option<String> {
    let leader: i32 = number(text, "leaderId")?;
    let voted: i32 = number(text, "votedId")?;
    if leader < 0 || leader == node.0 || voted != node.0 {
        return None;
    }
    let text = replaced(text, "votedId", "-1")?;
    // Older files have none.
    let directory = format!("\"{NO_DIRECTORY}\"");
    Some(replaced(&text, "votedDirectoryId", &directory).unwrap_or(text))
}

fn number(text: &str, key: &str) -> Option<i32> {
    let (_, value, _) = split(text, key)?;
    value.trim().parse().ok()
}

fn replaced(text: &str, key: &str, value: &str) -> Option<String> {
    let (before, _, after) = split(text, key)?;
    Some([before, value, after].concat())
}

/// What is before a value, the value, and what is after it. Kafka writes one flat object; values in it that are lists are not
/// asked for.
fn split<'a>(text: &'a str, key: &str) -> Option<(&'a str, &'a str, &'a str)> {
    let marker = format!("\"{key}\":");
    let start = text.find(&marker)? + marker.len();
    let (before, rest) = text.split_at_checked(start)?;
    let (value, after) = rest.split_at_checked(rest.find([',', '}'])?)?;
    Some((before, value, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "aIYAFQAppcokIYDd5lASvg";

    fn state(leader: i32, voted: i32, directory: &str) -> String {
        format!(
            "{{\"leaderId\":{leader},\"leaderEpoch\":7,\"votedId\":{voted},\"votedDirectoryId\":\"{directory}\",\"data_version\":1}}"
        )
    }

    fn cured(text: &str) -> Option<String> {
        without_spent_vote(text, NodeId(2))
    }

    #[test]
    fn a_vote_for_itself_goes_when_another_node_leads_and_term_and_leader_stay() {
        assert_eq!(cured(&state(1, 2, OWN)), Some(state(1, -1, NO_DIRECTORY)));
        let old = r#"{"clusterId":"","leaderId":1,"leaderEpoch":7,"votedId":2,"appliedOffset":0,"currentVoters":[],"data_version":0}"#;
        assert_eq!(cured(old), Some(old.replace("\"votedId\":2", "\"votedId\":-1")));
    }

    #[test]
    fn a_vote_that_may_still_count_stays() {
        for (leader, voted, why) in [
            (-1, 2, "nobody has won"),
            (2, 2, "the node itself has"),
            (1, 1, "it voted for another one"),
            (1, -1, "it did not vote"),
        ] {
            assert_eq!(cured(&state(leader, voted, OWN)), None, "{why}");
        }
    }

    #[test]
    fn what_is_not_understood_is_left_alone() {
        for text in [
            "",
            "{}",
            "{\"leaderId\":1",
            "{\"leaderId\":\"1\",\"votedId\":2}",
            "{\"leaderId\":1,\"votedId\":2",
        ] {
            assert_eq!(cured(text), None, "{text}");
        }
    }

    #[test]
    fn a_voter_begins_after_the_newest_term_that_others_know_of() {
        let dir = tempfile::tempdir().unwrap();
        let kept = || fs::read_to_string(dir.path().join(FILE)).unwrap();
        assert!(begin_after(dir.path(), 6).unwrap());
        assert_eq!(kept(), state(-1, -1, NO_DIRECTORY), "in term 7, without a vote");
        assert!(!begin_after(dir.path(), 6).unwrap());
        fs::write(dir.path().join(FILE), state(1, 1, OWN)).unwrap();
        assert!(!begin_after(dir.path(), 6).unwrap());
        assert_eq!(kept(), state(1, 1, OWN), "a vote in a term that is not over stays");
        assert!(begin_after(dir.path(), 7).unwrap());
        assert!(kept().contains("\"leaderEpoch\":8,\"votedId\":-1"), "{}", kept());
    }

    #[test]
    fn the_file_is_replaced_as_a_whole() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!drop_spent(dir.path(), NodeId(2)).unwrap(), "there is none");
        fs::create_dir(dir.path().join("__cluster_metadata-0")).unwrap();
        fs::write(dir.path().join(FILE), state(1, 2, OWN)).unwrap();
        assert!(drop_spent(dir.path(), NodeId(2)).unwrap());
        assert_eq!(fs::read_to_string(dir.path().join(FILE)).unwrap(), state(1, -1, NO_DIRECTORY));
        assert!(!dir.path().join(UNFINISHED).exists());
        assert!(!drop_spent(dir.path(), NodeId(2)).unwrap(), "once");
    }
}
