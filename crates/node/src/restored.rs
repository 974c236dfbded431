//! Asking the others in which term they are, before a voter that gets its vote back starts.

use std::time::Duration;

use karst_kafka::{Bootstrap, Endpoint};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tracing::warn;

use crate::config::NodeConfig;
use crate::line::{Line, next_patience};

/// By then one of them has answered, or it is asked again.
const DEADLINE: Duration = Duration::from_millis(3000);
/// How often they are asked.
const PERIOD: Duration = Duration::from_millis(500);
/// For so long somebody is waited for. Where all voters start over there is nobody. Where names take long to look up there may be
/// somebody, so each question gets more time until it has had the longest.
const PATIENCE: Duration = Duration::from_secs(10);

/// The newest term that any other controller knows of, if one answers.
pub(crate) async fn newest_epoch(config: &NodeConfig) -> Option<i32> {
    let own = &config.own_listener.endpoint;
    let others: Vec<&Endpoint> = config.controllers.iter().filter(|one| *one != own).collect();
    let began = Instant::now();
    let mut deadline = DEADLINE;
    while !others.is_empty() {
        let asked = Instant::now();
        let newest = newest_of(config, &others, deadline).await;
        if newest.is_some() {
            return newest;
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

/// All are asked at once: one whose name is not found takes no time from the others.
async fn newest_of(config: &NodeConfig, others: &[&Endpoint], deadline: Duration) -> Option<i32> {
    let mut asked: JoinSet<Option<i32>> = JoinSet::new();
    for other in others {
        let bootstrap = Bootstrap::Controllers(vec![(*other).clone()]);
        let line = Line::within(deadline, bootstrap, &config.own_listener);
        asked.spawn(async move { line.admin().ok()?.quorum_epoch().await.ok() });
    }
    let mut newest = None;
    while let Some(epoch) = asked.join_next().await {
        newest = newest.max(epoch.ok().flatten());
    }
    newest
}
