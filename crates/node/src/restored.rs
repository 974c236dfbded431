//! Asking the others in which term they are, before a voter that gets its vote back starts.

use std::time::Duration;

use karst_kafka::{Bootstrap, Endpoint};
use tokio::time::{Instant, sleep};
use tracing::warn;

use crate::config::NodeConfig;
use crate::line::Line;

/// By then one of them has answered, or it is asked again; a single connection may use a part of it.
const DEADLINE: Duration = Duration::from_millis(3000);
/// How often they are asked.
const PERIOD: Duration = Duration::from_millis(500);
/// For so long somebody is waited for. Where all voters start over there is nobody.
const PATIENCE: Duration = Duration::from_secs(10);

/// The newest term that any other controller knows of, if one answers.
pub(crate) async fn newest_epoch(config: &NodeConfig) -> Option<i32> {
    let own = &config.own_listener.endpoint;
    let others: Vec<&Endpoint> = config.controllers.iter().filter(|one| *one != own).collect();
    let began = Instant::now();
    while !others.is_empty() && began.elapsed() < PATIENCE {
        let mut newest = None;
        for other in &others {
            newest = newest.max(epoch_of(config, other).await);
        }
        if newest.is_some() {
            return newest;
        }
        sleep(PERIOD).await;
    }
    warn!(
        "no other controller says in which term the quorum is; if this node led it last, Kafka may not start"
    );
    None
}

async fn epoch_of(config: &NodeConfig, other: &Endpoint) -> Option<i32> {
    let bootstrap = Bootstrap::Controllers(vec![other.clone()]);
    let line = Line::new(bootstrap, &config.own_listener, DEADLINE / 2, DEADLINE);
    let admin = line.admin().ok()?;
    admin.quorum_epoch().await.ok()
}
