//! Whose view of Kafka can be relied on.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::support::*;
use karst_core::ids::{DirectoryId, NodeId};
use karst_core::world::{Answer, PodView, QuorumView, Replica, World};

fn told(world: &mut World) -> &mut QuorumView {
    match &mut world.answers.quorum {
        Answer::Known(quorum) => quorum,
        other => panic!("{other:?}"),
    }
}

fn replica(node: i32, behind: Option<u64>) -> Replica {
    let directory = Some(DirectoryId::from_bytes([7; 16]).unwrap());
    Replica { node: NodeId(node), directory, takes_part: true, behind: behind.map(Duration::from_millis) }
}

/// Brokers 0, 1 and 2, which copy the metadata log from controllers 3, 4 and 5.
fn observed(behind: [Option<u64>; 3]) -> World {
    let mut world = converged();
    world.answers.quorum = healthy_quorum(&world);
    let observers = (0..).zip(behind).map(|(node, behind)| replica(node, behind)).collect();
    told(&mut world).observers = observers;
    world
}

fn pod<'a>(world: &'a mut World, name: &str) -> &'a mut PodView {
    Arc::make_mut(world.pods.get_mut(name).unwrap())
}

fn current(world: &World) -> Vec<u32> {
    let hosts = world.current_brokers();
    assert!(hosts.iter().collect::<BTreeSet<_>>().is_subset(&world.serving_brokers().iter().collect()));
    let id = |host: &String| host.split('.').next()?.rsplit('-').next()?.parse().ok();
    hosts.iter().map(|host| id(host).unwrap()).collect()
}

#[test]
fn a_broker_that_is_cut_off_from_the_controllers_is_not_relied_on() {
    assert_eq!(current(&observed([Some(0), Some(500), Some(1999)])), [0, 1, 2]);
    assert_eq!(current(&observed([Some(0), Some(2000), None])), [0], "as long as Kafka lets a follower be");
    let mut world = observed([Some(0), Some(500), Some(0)]);
    edit_kafka(&mut world, |kafka| {
        let config = kafka.spec.kafka.config.get_or_insert_default();
        config.insert("controller.quorum.fetch.timeout.ms".to_owned(), 400.into());
    });
    assert_eq!(current(&world), [0, 2], "and as long as the user says");
    told(&mut world).observers.remove(0);
    assert_eq!(current(&world), [2], "one that the leader does not know of");
}

#[test]
fn a_broker_that_votes_itself_is_current_if_its_vote_is() {
    let mut world = observed([None, None, None]);
    told(&mut world).voters.push(replica(1, Some(10)));
    assert_eq!(current(&world), [1]);
}

#[test]
fn a_broker_that_does_not_serve_is_not_asked_however_current_it_is() {
    let mut world = observed([Some(0), Some(0), Some(0)]);
    pod(&mut world, "my-cluster-brokers-0").ready = false;
    pod(&mut world, "my-cluster-brokers-1").meta.deleting = true;
    assert_eq!(current(&world), [2]);
    assert_eq!(told(&mut world).voters.len(), 3, "controllers are no brokers");
}

#[test]
fn nobody_is_known_to_be_current_when_the_quorum_says_nothing() {
    let mut world = observed([Some(0), Some(0), Some(0)]);
    world.answers.quorum = Answer::Silent("no leader".to_owned());
    assert_eq!(world.current_brokers(), [""; 0]);
    world.answers.quorum = Answer::NotAsked;
    assert_eq!(world.current_brokers(), [""; 0]);
}
