//! Waiting for the quorum before a new node starts.
//!
//! A node without metadata that starts while the quorum is being formed can meet two leaders within a second. Kafka 4.1
//! then cuts its metadata log back to nothing and does not read the voters and `kraft.version` again: the node dies a
//! minute later, or lives on and tells wrong things. So a node that knows nothing of the cluster yet, whether it was formatted
//! just now or its container starts again before it learnt anything, starts when one leader has held its office for a while.
//! Where the quorum exists already that costs this while, once in the node's life.

use std::time::Duration;

use karst_kafka::{Bootstrap, Endpoint, NodeId};
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use crate::line::{Line, next_deadline};
use crate::listeners::Listener;

/// For so long the same leader must be seen.
const SETTLED: Duration = Duration::from_millis(1500);
/// By then a question is answered, or asked again; a single connection may use a part of it.
const DEADLINE: Duration = Duration::from_millis(1500);
/// How often to ask.
const PERIOD: Duration = Duration::from_millis(250);
/// After so long Kafka is started all the same: it can say more about what is wrong than the launcher.
const PATIENCE: Duration = Duration::from_secs(120);

/// Returns when the quorum has a leader that lasts, or when it is time to go on without.
pub(crate) async fn wait_for_leader(controllers: &[Endpoint], listener: &Listener) {
    if controllers.is_empty() {
        return;
    }
    let line = |deadline: Duration| {
        Line::new(Bootstrap::Controllers(controllers.to_vec()), listener, deadline / 2, deadline)
    };
    let mut deadline = DEADLINE;
    let mut asked = line(deadline);
    let began = Instant::now();
    let mut office = Office::default();
    while began.elapsed() < PATIENCE {
        let began_asking = Instant::now();
        let answer = match asked.admin() {
            Ok(admin) => admin.describe_quorum().await.ok(),
            Err(error) => {
                warn!("the quorum cannot be asked: {error}; starting Kafka all the same");
                return;
            }
        };
        let next = next_deadline(deadline, began_asking.elapsed());
        if answer.is_none() && next > deadline {
            deadline = next;
            asked = line(deadline);
        }
        let leader = answer.filter(|quorum| quorum.high_watermark >= 0);
        let leader = leader.map(|quorum| (quorum.leader, quorum.leader_epoch));
        if office.is_settled(leader, Instant::now()) {
            info!("the quorum has a leader, after {} ms", began.elapsed().as_millis());
            return;
        }
        sleep(PERIOD).await;
    }
    warn!("the quorum has had no lasting leader for {} s; starting Kafka all the same", PATIENCE.as_secs());
}

/// Who leads, and since when that has been seen.
#[derive(Debug, Default)]
struct Office {
    held: Option<((NodeId, i32), Instant)>,
}

impl Office {
    fn is_settled(&mut self, leader: Option<(NodeId, i32)>, now: Instant) -> bool {
        let since = match (self.held, leader) {
            (Some((before, since)), Some(leader)) if before == leader => since,
            _ => now,
        };
        self.held = leader.map(|leader| (leader, since));
        leader.is_some() && now.duration_since(since) >= SETTLED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_counts_when_it_has_lasted_and_a_new_term_begins_anew() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut office = Office::default();
        let (first, second) = (Some((NodeId(3), 1)), Some((NodeId(4), 2)));
        assert!(!office.is_settled(first, at(0)));
        assert!(!office.is_settled(first, at(1400)));
        assert!(!office.is_settled(second, at(1500)), "another leader");
        assert!(!office.is_settled(None, at(2900)), "no answer");
        assert!(!office.is_settled(second, at(3000)), "what was not seen does not count");
        assert!(office.is_settled(second, at(4500)));
    }
}
