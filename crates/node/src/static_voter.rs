//! Whether a voter of a static quorum may start on an empty disk.
//!
//! Such a quorum knows its voters by their ids alone. One that lost its disk votes again as if nothing had happened, though it has
//! forgotten what it voted for and what it promised to keep: with two of three disks lost at a time, two empty voters elect each
//! other, and the metadata of the cluster is gone. So an empty disk is formatted only while a majority of the voters, without this
//! one, leads and follows with all that was ever committed. Then nobody can be elected without one of them, and none of them votes
//! for somebody who has less. When there is no such majority the node waits and says so. It may be that the lost disks can be
//! brought back, and nobody but a person knows.
//!
//! Only what exists already becomes static: the operator writes `static` after Kafka said so, so there is no first time to be
//! kept waiting.

use std::fmt;
use std::time::Duration;

use karst_kafka::{Bootstrap, NodeId, Quorum, ReplicaState};
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use crate::config::NodeConfig;
use crate::line::{Line, next_patience};

/// How often the others are asked.
const PERIOD: Duration = Duration::from_millis(500);
/// How often it is said that the node waits.
const REMINDER: Duration = Duration::from_secs(30);
/// By then a question is answered, or asked again with more time.
const DEADLINE: Duration = Duration::from_millis(2_000);
/// Added to the time that a follower may be behind: whoever is caught up after that has caught up since this node asked first.
const MARGIN: Duration = Duration::from_millis(500);

/// Returns when a majority of the other voters has everything, or when a person says that the node is to start all the same.
pub(crate) async fn wait_for_majority(config: &NodeConfig, is_let_in: impl Fn() -> bool) {
    let within = |deadline: Duration| {
        let bootstrap = Bootstrap::Controllers(config.controllers.clone());
        Line::within(deadline, bootstrap, &config.own_listener)
    };
    let mut deadline = DEADLINE;
    let mut line = within(deadline);
    let mut majority = Majority::new(config);
    let mut said_at: Option<Instant> = None;
    loop {
        if is_let_in() {
            warn!("somebody decided that this voter starts on an empty disk, whatever the others have");
            return;
        }
        let asked = Instant::now();
        let quorum = match line.admin() {
            Ok(admin) => admin.describe_quorum().await.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        let next = next_patience(deadline, asked.elapsed());
        if quorum.is_err() && next > deadline {
            deadline = next;
            line = within(deadline);
        }
        match majority.hear(quorum, Instant::now()) {
            Ok(true) => {
                info!(
                    "the other voters have everything that was committed: this one may start on an empty disk"
                );
                return;
            }
            Ok(false) => {}
            Err(why) => {
                if said_at.is_none_or(|at| at.elapsed() >= REMINDER) {
                    said_at = Some(Instant::now());
                    warn!(
                        "the disk of this voter of a static quorum is empty, though it was in use before: it is not formatted, \
                         and Kafka is not started, until a majority of the voters without this one has everything; now {why}. Bring \
                         the lost disks back if you can. If they are gone for good and you accept that metadata may be lost, set the \
                         annotation karst.io/allow-data-loss on the Kafka resource to the name of one of the pods that wait, and of one only, \
                         while a controller that has its disk runs: two empty ones would elect each other (docs/quorum.md)"
                    );
                }
            }
        }
        sleep(PERIOD).await;
    }
}

/// Why the node must not start.
#[derive(Debug, PartialEq, Eq)]
enum Obstacle {
    Silent(String),
    TooFew { intact: Vec<NodeId>, needed: usize, voters: usize },
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent(why) => write!(f, "no leader of the quorum answers ({why})"),
            Self::TooFew { intact, needed, voters } => {
                let intact: Vec<_> = intact.iter().map(ToString::to_string).collect();
                let intact = if intact.is_empty() { "none".to_owned() } else { intact.join(", ") };
                write!(
                    f,
                    "{needed} of {voters} voters are needed, and only these others are caught up: {intact}"
                )
            }
        }
    }
}

/// For how long a majority has been seen.
#[derive(Debug)]
struct Majority {
    node: NodeId,
    fetch_timeout: Duration,
    seen: Option<((NodeId, i32), Instant)>,
}

impl Majority {
    fn new(config: &NodeConfig) -> Self {
        Self { node: config.node_id, fetch_timeout: config.fetch_timeout, seen: None }
    }

    /// Is there one, in one term, for so long that each of its members has caught up since it was first seen? What this node had on its
    /// disk when it was lost, they have then.
    fn hear(&mut self, said: Result<Quorum, String>, now: Instant) -> Result<bool, Obstacle> {
        let quorum = match said {
            Ok(quorum) => quorum,
            Err(why) => {
                self.seen = None;
                return Err(Obstacle::Silent(why));
            }
        };
        let voters = quorum.voters.len();
        let needed = voters / 2 + 1;
        let intact = self.intact(&quorum);
        if voters == 0 || intact.len() < needed || quorum.high_watermark < 0 {
            self.seen = None;
            return Err(Obstacle::TooFew { intact, needed, voters });
        }
        let term = (quorum.leader, quorum.leader_epoch);
        let since = self.seen.filter(|(seen, _)| *seen == term).map_or(now, |(_, since)| since);
        self.seen = Some((term, since));
        Ok(now.duration_since(since) >= self.fetch_timeout + MARGIN)
    }

    /// The other voters that have what the leader has.
    fn intact(&self, quorum: &Quorum) -> Vec<NodeId> {
        let leader = quorum.voters.iter().find(|voter| voter.id == quorum.leader);
        let leaders_time = leader.and_then(|leader| leader.last_caught_up);
        let is_caught_up = |voter: &ReplicaState| {
            let behind =
                leaders_time.zip(voter.last_caught_up).map(|(leader, own)| leader.saturating_sub(own));
            let behind = behind.map(|millis| Duration::from_millis(u64::try_from(millis).unwrap_or(0)));
            voter.id == quorum.leader || behind.is_some_and(|behind| behind < self.fetch_timeout)
        };
        let others = quorum.voters.iter().filter(|voter| voter.id != self.node);
        others.filter(|voter| is_caught_up(voter)).map(|voter| voter.id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECONDS: fn(u64) -> Duration = Duration::from_secs;

    /// What node 1 says, which leads: each voter, and how many milliseconds it is behind.
    fn quorum(voters: &[(i32, Option<i64>)]) -> Quorum {
        let voter = |(id, behind): &(i32, Option<i64>)| ReplicaState {
            id: NodeId(*id),
            directory: None,
            log_end_offset: 100,
            last_fetch: behind.map(|behind| 100_000 - behind),
            last_caught_up: behind.map(|behind| 100_000 - behind),
        };
        let voters = voters.iter().map(voter).collect();
        Quorum { leader: NodeId(1), leader_epoch: 7, high_watermark: 90, voters, observers: Vec::new() }
    }

    fn of_node(node: i32) -> Majority {
        Majority { node: NodeId(node), fetch_timeout: SECONDS(2), seen: None }
    }

    /// May node 3 start, when this is seen for three seconds?
    fn may_start(quorum: &Quorum) -> bool {
        let (mut majority, now) = (of_node(3), Instant::now());
        let mut hear = |after| majority.hear(Ok(quorum.clone()), now + after) == Ok(true);
        hear(SECONDS(0));
        hear(SECONDS(3))
    }

    #[test]
    fn one_lost_disk_of_three_is_replaced_while_both_others_have_everything() {
        assert!(may_start(&quorum(&[(1, Some(0)), (2, Some(300)), (3, None)])));
        // The leader has not noticed yet that it is gone. Its own word does not count.
        assert!(!may_start(&quorum(&[(1, Some(0)), (2, Some(9_000)), (3, Some(0))])));
        assert!(!may_start(&quorum(&[(1, Some(0)), (2, None), (3, None)])));
    }

    #[test]
    fn whoever_lacks_a_majority_of_others_waits_and_says_for_whom() {
        for voters in [&[(1, Some(0)), (3, None)][..], &[(3, None)]] {
            assert!(!may_start(&quorum(voters)), "{voters:?}");
        }
        let five = [(1, Some(0)), (2, Some(100)), (3, None), (4, None), (5, None)];
        let why = of_node(3).hear(Ok(quorum(&five)), Instant::now()).unwrap_err();
        let told = "3 of 5 voters are needed, and only these others are caught up: 1, 2";
        assert_eq!(why.to_string(), told);
        let silent = of_node(3).hear(Err("no answer".to_owned()), Instant::now()).unwrap_err();
        assert!(silent.to_string().contains("no answer"), "{silent}");
    }

    #[test]
    fn a_majority_counts_when_it_has_lasted_in_one_term() {
        let (mut majority, now) = (of_node(3), Instant::now());
        let healthy = quorum(&[(1, Some(0)), (2, Some(100)), (3, None)]);
        let other_term = Quorum { leader_epoch: 8, ..healthy.clone() };
        assert_eq!(majority.hear(Ok(healthy.clone()), now), Ok(false));
        assert_eq!(
            majority.hear(Ok(healthy.clone()), now + SECONDS(2)),
            Ok(false),
            "shorter than it may be behind"
        );
        assert_eq!(majority.hear(Ok(other_term.clone()), now + SECONDS(3)), Ok(false), "another term");
        assert!(majority.hear(Err("no answer".to_owned()), now + SECONDS(4)).is_err());
        assert_eq!(majority.hear(Ok(other_term.clone()), now + SECONDS(6)), Ok(false));
        assert_eq!(majority.hear(Ok(other_term), now + SECONDS(9)), Ok(true));
    }
}
