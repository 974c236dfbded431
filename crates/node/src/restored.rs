//! Asking the others in which term they are, before a voter that gets its vote back starts.

use std::time::Duration;

use karst_kafka::{Bootstrap, Endpoint, NodeId};
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use crate::config::NodeConfig;
use crate::line::Line;

/// By then one of them has answered, or it is asked again; a single connection may use a part of it.
const DEADLINE: Duration = Duration::from_millis(3000);
/// How often they are asked.
const PERIOD: Duration = Duration::from_millis(500);
/// For so long somebody is waited for. Where all voters start over there is nobody.
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
    while !others.is_empty() && began.elapsed() < PATIENCE {
        let mut known = Vec::new();
        for other in &others {
            known.extend(ask(config, other).await);
        }
        if let Some(epoch) = known.iter().map(|one| one.epoch).max() {
            let is_led = is_led_by_another(&known, config.node_id);
            if is_led {
                info!("another controller leads the quorum in term {epoch}; this restored voter follows it");
            }
            return Some(epoch).filter(|_| !is_led);
        }
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

async fn ask(config: &NodeConfig, other: &Endpoint) -> Option<Known> {
    let bootstrap = Bootstrap::Controllers(vec![other.clone()]);
    let line = Line::new(bootstrap, &config.own_listener, DEADLINE / 2, DEADLINE);
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
