//! Asking the others in which term they are, before a voter that gets its vote back starts.

use std::time::Duration;

use karst_kafka::{Bootstrap, Endpoint, NodeId};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use crate::config::NodeConfig;
use crate::line::{Line, next_patience};

/// By then one of them has answered, or it is asked again.
const DEADLINE: Duration = Duration::from_millis(3000);
/// How often they are asked.
const PERIOD: Duration = Duration::from_millis(500);
/// For so long somebody is waited for. Where all voters start over there is nobody. Where names take long to look up there may be
/// somebody, so each question gets more time until it has had the longest.
const PATIENCE: Duration = Duration::from_secs(10);

/// What one of the others knows.
#[derive(Clone, Copy, Debug)]
struct Known {
    epoch: i32,
    /// Who leads in it, if it says.
    leader: Option<NodeId>,
}

/// The newest term that any other controller knows of, if one answers, and if nobody else is known to lead in it: whoever leads would
/// have to be elected once more.
pub(crate) async fn newest_epoch(config: &NodeConfig) -> Option<i32> {
    let others = config.other_controllers();
    let began = Instant::now();
    let mut deadline = DEADLINE;
    while !others.is_empty() {
        let asked = Instant::now();
        let known = ask_all(config, &others, deadline).await;
        if let Some(epoch) = known.iter().map(|one| one.epoch).max() {
            let is_led = is_led_by_another(&known, config.node_id);
            if is_led {
                info!("another controller leads the quorum in term {epoch}; this restored voter follows it");
            }
            return Some(epoch).filter(|_| !is_led);
        }
        let next = next_patience(deadline, asked.elapsed());
        if began.elapsed() >= PATIENCE && next == deadline {
            break;
        }
        deadline = next;
        sleep(PERIOD).await;
    }
    warn!(
        "no other controller says in which term the quorum is; if this node led it last, Kafka may not start"
    );
    None
}

/// Does another node lead in the newest term, and does nobody take this one for the leader, in whatever term? Kafka would not survive
/// to be told so.
fn is_led_by_another(known: &[Known], own: NodeId) -> bool {
    let newest = known.iter().map(|one| one.epoch).max();
    let leads = |one: &&Known| Some(one.epoch) == newest && one.leader.is_some_and(|leader| leader != own);
    known.iter().any(|one| leads(&one)) && !known.iter().any(|one| one.leader == Some(own))
}

/// All are asked at once: one whose name is not found takes no time from the others.
async fn ask_all(config: &NodeConfig, others: &[Endpoint], deadline: Duration) -> Vec<Known> {
    let mut asked: JoinSet<Option<Known>> = JoinSet::new();
    for other in others {
        let bootstrap = Bootstrap::Controllers(vec![other.clone()]);
        asked.spawn(ask(Line::within(deadline, bootstrap, &config.own_listener)));
    }
    asked.join_all().await.into_iter().flatten().collect()
}

async fn ask(line: Line) -> Option<Known> {
    let admin = line.admin().ok()?;
    // First, so that a term in which it led is not taken for a newer one.
    let leader = admin.describe_controllers().await.ok().and_then(|controllers| controllers.leader);
    Some(Known { epoch: admin.quorum_epoch().await.ok()?, leader })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What others know, of which node 3 asks: terms and their leaders.
    fn is_led(known: &[(i32, Option<i32>)]) -> bool {
        let known = known.iter().map(|(epoch, leader)| Known { epoch: *epoch, leader: leader.map(NodeId) });
        is_led_by_another(&known.collect::<Vec<_>>(), NodeId(3))
    }

    #[test]
    fn no_term_is_begun_where_another_node_leads_in_the_newest_one() {
        assert!(is_led(&[(5, Some(4))]) && is_led(&[(4, None), (5, Some(4))]));
        assert!(!is_led(&[(5, None)]) && !is_led(&[]), "nobody leads");
        assert!(!is_led(&[(5, Some(3))]), "it led last itself");
        assert!(!is_led(&[(5, Some(4)), (6, None)]), "that term is over");
        assert!(!is_led(&[(5, Some(4)), (4, Some(3))]), "somebody would tell it that it leads");
    }
}
