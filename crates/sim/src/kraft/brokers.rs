//! Brokers that register, serve, are missed and are forgotten.

use std::collections::BTreeMap;

use karst_core::ids::NodeId;

use super::{Pending, Quorum, Refused, What};

/// For so long a broker that died counts as one that serves.
const SESSION_TIMEOUT: u64 = 9_000;

impl Quorum {
    /// Brokers register when they start, and serve once they know everything. One that serves does not register again.
    pub(super) fn register(&mut self) {
        let brokers: Vec<_> = self
            .processes
            .values()
            .filter(|one| one.broker)
            .map(|one| {
                let leads = one.office.as_ref().is_some_and(|office| office.committed > 0);
                let recovers = one.recovers.is_some_and(|(_, until)| until > self.now);
                (one.node, one.serves.is_some(), (one.has_all || leads) && !recovers)
            })
            .collect();
        for (node, serves, has_all) in brokers {
            let is_known = self.registered.contains(&node);
            if self.is_cut_off(node) {
                continue;
            }
            if serves {
                self.heard.insert(node, self.now);
                if !is_known {
                    self.fail(format!("broker {node} serves, and was unregistered"));
                }
            } else if !is_known {
                self.request_registration(node);
            } else if has_all {
                let now = self.now;
                self.said.push(format!("broker {node} serves"));
                if let Some(process) = self.processes.get_mut(&node) {
                    process.serves = Some(now);
                }
            }
        }
    }

    fn request_registration(&mut self, node: NodeId) {
        let Some((disk, epoch)) = self.open_for_records() else { return };
        if !self.is_registered_or_will_be(node) {
            self.write(&disk, epoch, What::Registered(node));
        }
    }

    /// Does the leader know the broker? Its log goes further than what is committed.
    fn is_registered_or_will_be(&self, node: NodeId) -> bool {
        let log = self.leader().and_then(|leader| self.disk_of(leader)).map_or(&[][..], |disk| &disk.log);
        let uncommitted = log.get(self.history.len()..).unwrap_or_default();
        let newest = uncommitted.iter().rev().find_map(|record| match &record.what {
            What::Registered(one) if *one == node => Some(true),
            What::Unregistered(one) if *one == node => Some(false),
            _ => None,
        });
        newest.unwrap_or_else(|| self.registered.contains(&node))
    }

    /// Which brokers are registered, and which of them do not serve. A broker that died is missed after a while only.
    pub fn registered(&self) -> BTreeMap<NodeId, bool> {
        let is_fenced = |node: &NodeId| match self.processes.get(node) {
            Some(process) => process.serves.is_none() || self.is_missed(*node),
            None => self.is_missed(*node),
        };
        self.registered.iter().map(|node| (*node, is_fenced(node))).collect()
    }

    /// Have the controllers not heard of this broker for so long that they take it for dead?
    pub fn is_missed(&self, node: NodeId) -> bool {
        self.heard.get(&node).is_none_or(|at| self.now.saturating_sub(*at) > SESSION_TIMEOUT)
    }

    /// Is there a broker that is gone, and that Kafka missed less than this long ago, if at all?
    pub fn just_lost_a_broker(&self, long: u64) -> bool {
        let is_gone = |node: &&NodeId| !self.processes.contains_key(node);
        let heard = self.registered.iter().filter(is_gone).filter_map(|node| self.heard.get(node));
        heard.max().is_some_and(|at| self.now.saturating_sub(*at) < SESSION_TIMEOUT + long)
    }

    /// UnregisterBroker.
    pub fn unregister(&mut self, node: NodeId) -> Result<Pending, Refused> {
        let (disk, epoch) = self.open_for_records().ok_or(Refused::NoLeader)?;
        if !self.is_registered_or_will_be(node) {
            return Err(Refused::NotFound);
        }
        Ok(self.write(&disk, epoch, What::Unregistered(node)))
    }
}
