//! Certificates that change under a running broker are loaded without a restart.
//!
//! Kafka loads the files of its listeners again when the configuration of its broker is changed, also when nothing in it
//! changes: so it is asked to delete a setting that is not there. Nothing is left behind that could win over the next
//! `server.config`. The kubelet puts new files in place a minute or two after their Secret changed, and only the
//! node sees when; so it is the node that asks.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::time::Duration;

use karst_kafka::{Bootstrap, ConfigChange, ConfigResource, Error, Intent, NodeId};
use thiserror::Error as ThisError;
use tracing::{info, warn};

use crate::config::NodeConfig;
use crate::line::{Line, LineError};

/// How often the files are looked at.
const PERIOD: Duration = Duration::from_secs(5);
/// How long Kafka may take to answer.
const DEADLINE: Duration = Duration::from_secs(10);
/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Why Kafka was not asked, or did not do it.
#[derive(Debug, ThisError)]
enum NotReloaded {
    #[error(transparent)]
    Line(#[from] LineError),
    #[error(transparent)]
    Kafka(#[from] Error),
}

/// Looks after the files of one running broker.
#[derive(Debug)]
pub(crate) struct Reloader {
    node: NodeId,
    stores: Vec<PathBuf>,
    setting: String,
    line: Line,
    loaded: u64,
}

impl Reloader {
    /// Remembers the files as they are now. To be made before Kafka reads them: what changes in between is loaded twice, not
    /// never. `None` for a node whose files Kafka does not load again.
    pub(crate) fn new(config: &NodeConfig) -> Option<Self> {
        if !config.role.is_broker() || config.stores.is_empty() {
            return None;
        }
        let listener = &config.own_listener;
        let own = Bootstrap::Brokers(vec![listener.endpoint.clone()]);
        Some(Self {
            node: config.node_id,
            setting: format!("listener.name.{}.ssl.keystore.location", listener.name.to_lowercase()),
            line: Line::new(own, listener, CONNECT_TIMEOUT, DEADLINE),
            loaded: fingerprint(&config.stores),
            stores: config.stores.clone(),
        })
    }

    /// Works until it is dropped.
    pub(crate) async fn keep_up(mut self) {
        let mut told = None;
        loop {
            tokio::time::sleep(PERIOD).await;
            let found = fingerprint(&self.stores);
            if found == self.loaded {
                continue;
            }
            match self.ask().await {
                Ok(()) => {
                    info!("certificates changed; Kafka was asked to load them");
                    self.loaded = found;
                }
                // A broker that just starts cannot be asked yet: one line for each change is enough.
                Err(why) if told != Some(found) => {
                    warn!(
                        "certificates changed, and Kafka could not be asked to load them: {why}; trying again"
                    );
                    told = Some(found);
                }
                Err(_) => {}
            }
        }
    }

    async fn ask(&self) -> Result<(), NotReloaded> {
        let change = ConfigChange::delete(&self.setting);
        let own = ConfigResource::Broker(self.node);
        Ok(self.line.admin()?.incremental_alter_configs(own, &[change], Intent::Apply).await?)
    }
}

/// Of all files together. One that cannot be read counts as empty: it is on its way.
fn fingerprint(files: &[PathBuf]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for file in files {
        fs::read(file).unwrap_or_default().hash(&mut hasher);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_file_changes_the_fingerprint_and_a_rewritten_one_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let files = ["a", "b", "missing"].map(|name| dir.path().join(name));
        fs::write(&files[0], "1").unwrap();
        fs::write(&files[1], "2").unwrap();
        let before = fingerprint(&files);
        fs::write(&files[1], "2").unwrap();
        assert_eq!(fingerprint(&files), before);
        fs::write(&files[1], "3").unwrap();
        assert_ne!(fingerprint(&files), before);
    }
}
