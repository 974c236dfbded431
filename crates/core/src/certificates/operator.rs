//! What the operator shows to nodes: its own certificate, or that of a node while it has none that they accept.
//!
//! When the Secrets of the authority are deleted, and the operator's with them, nothing is left that could sign a certificate which those
//! who run accept: that takes a restart of each of them, and none restarts before Kafka says that it may. Whoever signed the nodes'
//! certificates is trusted by all of them, and nodes may do what the operator may. So it shows what one of them shows. No pod restarts
//! blindly, and no guard is lifted.

use karst_certs::Stored;

use super::inside::Inside;
use crate::names::{TRUSTED_AUTHORITIES_ANNOTATION, operator_secret, trust_secret};
use crate::notice::Notice;
use crate::world::World;

/// The node whose certificate the operator shows, if more of those that run accept it than the operator's own.
pub fn stand_in(world: &World) -> Option<String> {
    if is_accepted_by_all(world) { None } else { Inside::of(world).stand_in() }
}

/// Where the certificate of a node is in its Secret, and its key.
pub fn files_of(node: &str) -> [String; 2] {
    [format!("{node}.crt"), format!("{node}.key")]
}

/// By what pods say themselves, which is found out quickly.
fn is_accepted_by_all(world: &World) -> bool {
    let own = world.secrets.get(&operator_secret(&world.key.name)).and_then(|secret| secret.stored());
    let Some(own) = own.filter(|own| is_of_use(world, own)) else { return false };
    let given = world.secrets.get(&trust_secret(&world.key.name));
    let mut given = given.map(|given| given.authorities()).unwrap_or_default().iter();
    let Some(signer) = given.find(|one| own.certificate().is_from(one)) else { return false };
    let id = signer.authority_id();
    let mut running = world.pods.values().filter(|pod| !pod.is_finished());
    running.all(|pod| {
        let trusted = pod.meta.annotations.get(TRUSTED_AUTHORITIES_ANNOTATION);
        trusted.is_some_and(|trusted| trusted.split(',').any(|one| one == id))
    })
}

/// Can whoever shows it be accepted at all?
pub(super) fn is_of_use(world: &World, stored: &Stored) -> bool {
    stored.has_its_key() && !stored.certificate().is_expired(world.now)
}

/// That the operator has no certificate of its own that those who run accept, in a cluster that serves.
pub(super) fn notice(world: &World, inside: &Inside<'_>) -> Option<Notice> {
    if is_accepted_by_all(world) || !world.pods.values().any(|pod| pod.has_ready_kafka()) {
        return None;
    }
    let shows = inside.stand_in();
    let is_heard = inside.accepts_operator();
    (shows.is_some() || !is_heard)
        .then(|| Notice::OperatorNotAccepted { secret: operator_secret(&world.key.name), shows })
}
