//! What deciding costs, without any I/O.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use karst_core::ids::NodeId;
use karst_core::node_ids::{Demand, assign};

/// How long it takes to give ids to this many new nodes, of ten pools that all want ranges of their own.
pub(crate) fn ids_for(nodes: usize, repeats: usize) -> Vec<Duration> {
    let demands: Vec<Demand> = (0..10)
        .map(|pool| Demand {
            pool: format!("pool-{pool}"),
            wanted: nodes / 10,
            next: format!("[{}-{}]", pool * 5000, pool * 5000 + 4999).parse().unwrap_or_default(),
            ..Demand::default()
        })
        .collect();
    let taken: BTreeSet<NodeId> = (0..5000).step_by(7).map(NodeId).collect();
    let once = || {
        let began = Instant::now();
        let given: usize = assign(&demands, &taken).iter().map(|one| one.added.len()).sum();
        let took = began.elapsed();
        assert_eq!(given, nodes / 10 * 10, "every node gets an id");
        took
    };
    (0..repeats).map(|_| once()).collect()
}
