//! What a real cluster said to changes, and about what moves.

use std::sync::LazyLock;

use super::*;
use crate::{
    ConfigChange, DirectoryId, FeatureUpdate, Intent, LogDir, Reassignment, ScramChange, ScramCredential,
    UpdateKind,
};

const ANY_DIRECTORY: [u8; 16] = [1; 16];

pub(super) fn voter_3() -> AddVoter {
    let directory = DirectoryId::from_bytes(ANY_DIRECTORY).unwrap();
    AddVoter { cluster: None, node: NodeId(3), directory, listeners: Vec::new() }
}

pub(super) fn no_voter_3() -> RemoveVoter {
    RemoveVoter { cluster: None, node: NodeId(3), directory: DirectoryId::from_bytes(ANY_DIRECTORY).unwrap() }
}

pub(super) fn metadata_version() -> UpdateFeatures {
    let update = FeatureUpdate { name: "metadata.version".to_owned(), level: 27, kind: UpdateKind::Upgrade };
    UpdateFeatures { updates: vec![update], intent: Intent::ValidateOnly }
}

fn alter(resource: ConfigResource) -> AlterConfigs {
    AlterConfigs { resource, changes: vec![ConfigChange::delete("any")], intent: Intent::Apply }
}

pub(super) fn broker_defaults() -> AlterConfigs {
    alter(ConfigResource::BrokerDefaults)
}

pub(super) fn three_users() -> AlterScram {
    let credential = ScramCredential { iterations: 1, salt: Vec::new(), salted_password: Vec::new() };
    AlterScram(vec![
        ScramChange::Upsert { user: "anna".to_owned(), credential: credential.clone() },
        ScramChange::Delete { user: "nobody".to_owned() },
        ScramChange::Upsert { user: "weak".to_owned(), credential },
    ])
}

pub(super) fn two_topics() -> DescribeTopicConfigs<'static> {
    static TOPICS: LazyLock<[String; 2]> = LazyLock::new(|| ["orders".to_owned(), "nosuch".to_owned()]);
    DescribeTopicConfigs { topics: &*TOPICS, keys: &["min.insync.replicas", "retention.ms"] }
}

fn complaint<C: Call>(call: &C, version: i16, message: &[u8]) -> String
where
    C::Answer: std::fmt::Debug,
{
    read(call, version, message).unwrap_err()
}

#[test]
fn a_voter_joins_and_leaves() {
    read(&voter_3(), 0, frame!("4.1.1/add-raft-voter-v0.bin")).unwrap();
    read(&no_voter_3(), 0, frame!("4.1.1/remove-raft-voter-v0.bin")).unwrap();
}

#[test]
fn who_votes_already_cannot_join_and_who_does_not_cannot_leave() {
    let duplicate = complaint(&voter_3(), 0, frame!("4.1.1/add-raft-voter-duplicate-v0.bin"));
    assert!(duplicate.contains("AddRaftVoter with DUPLICATE_VOTER: The voter id for"), "{duplicate}");
    let unknown = complaint(&no_voter_3(), 0, frame!("4.1.1/remove-raft-voter-unknown-v0.bin"));
    assert!(unknown.contains("RemoveRaftVoter with VOTER_NOT_FOUND: Cannot remove"), "{unknown}");
}

#[test]
fn the_voters_tell_where_they_listen() {
    let listeners = read(&DescribeVoterListeners, 2, frame!("4.1.1/describe-quorum-v2.bin")).unwrap();
    assert_eq!(listeners.keys().map(|id| id.0).collect::<Vec<_>>(), [0, 1, 2]);
    let first = &listeners[&NodeId(0)][0];
    assert_eq!((first.name.as_str(), first.endpoint.port), ("CONTROLPLANE-9090", 29090));
}

#[test]
fn a_feature_is_updated_or_refused_with_all_others() {
    let taken = read(&metadata_version(), 2, frame!("4.1.1/update-features-v2.bin")).unwrap();
    assert_eq!(taken, [("metadata.version".to_owned(), Ok(()))]);
    let refused = complaint(&metadata_version(), 2, frame!("4.1.1/update-features-refused-v2.bin"));
    assert!(refused.contains("INVALID_UPDATE_VERSION") && refused.contains("supports versions 7-27"));
}

#[test]
fn a_broker_is_forgotten_once() {
    read(&UnregisterBroker(NodeId(12)), 0, frame!("4.1.1/unregister-broker-v0.bin")).unwrap();
    let unknown =
        complaint(&UnregisterBroker(NodeId(77)), 0, frame!("4.1.1/unregister-broker-refused-v0.bin"));
    assert!(unknown.contains("BROKER_ID_NOT_REGISTERED: Broker ID 77"), "{unknown}");
}

#[test]
fn a_change_of_configuration_is_taken_or_refused() {
    let taken = frame!("4.1.1/incremental-alter-configs-v1.bin");
    read(&broker_defaults(), 1, taken).unwrap();
    let another = alter(ConfigResource::Broker(NodeId(11)));
    assert!(complaint(&another, 1, taken).contains("it does not speak of Broker"));
    let nosuch = alter(ConfigResource::Topic("nosuch".to_owned()));
    let refused = complaint(&nosuch, 1, frame!("4.1.1/incremental-alter-configs-refused-v1.bin"));
    assert!(refused.contains("UNKNOWN_TOPIC_OR_PARTITION: The topic 'nosuch' does not exist."), "{refused}");
}

#[test]
fn each_user_has_an_outcome() {
    let outcomes = read(&three_users(), 0, frame!("4.1.1/alter-user-scram-credentials-v0.bin")).unwrap();
    let codes: Vec<_> = outcomes
        .iter()
        .map(|(user, outcome)| (user.as_str(), outcome.as_ref().err().map(|refusal| refusal.code)))
        .collect();
    assert_eq!(
        codes,
        [
            ("anna", None),
            ("nobody", Some(ErrorCode::ResourceNotFound)),
            ("weak", Some(ErrorCode::UnacceptableCredential)),
        ]
    );
}

#[test]
fn of_two_topics_one_does_not_exist() {
    let described = read(&two_topics(), 4, frame!("4.1.1/describe-configs-of-two-v4.bin")).unwrap();
    let (orders, entries) = &described[0];
    let names: Vec<_> = entries.as_ref().unwrap().iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!((orders.as_str(), names), ("orders", vec!["min.insync.replicas", "retention.ms"]));
    let (nosuch, refusal) = &described[1];
    assert_eq!(nosuch, "nosuch");
    assert_eq!(refusal.as_ref().unwrap_err().code, ErrorCode::UnknownTopicOrPartition);
}

fn held(directory: &LogDir) -> Vec<(&str, i32)> {
    directory.replicas.iter().map(|replica| (&*replica.topic, replica.partition)).collect()
}

#[test]
fn each_directory_tells_what_is_in_it_and_how_large_its_volume_is() {
    let directories = read(&DescribeLogDirs, 4, frame!("4.1.1/describe-log-dirs-v4.bin")).unwrap();
    assert_eq!(directories.len(), 2);
    assert!(directories.iter().all(|directory| directory.error.is_none()));
    assert!(directories.iter().all(|directory| directory.usable_bytes < directory.total_bytes));
    assert_eq!(held(&directories[0]), [("moving", 0), ("orders", 1)]);
    assert_eq!(held(&directories[1]), [("moving", 1), ("orders", 0)]);
}

#[test]
fn a_reassignment_tells_who_comes_and_who_goes() {
    let message = frame!("4.1.1/list-partition-reassignments-v0.bin");
    let ongoing = read(&ListReassignments, 0, message).unwrap();
    assert_eq!(
        ongoing,
        [Reassignment {
            topic: "moving".into(),
            partition: 1,
            replicas: vec![NodeId(12), NodeId(11)],
            adding: vec![NodeId(12)],
            removing: vec![NodeId(11)],
        }]
    );
}

#[test]
fn kafka_is_given_a_little_less_time_than_we_have() {
    assert_eq!(kafkas_share(Duration::from_secs(10)), 9_000);
    assert_eq!(kafkas_share(Duration::ZERO), 1, "zero would mean its own default to some");
    assert_eq!(kafkas_share(Duration::MAX), i32::MAX);
}
