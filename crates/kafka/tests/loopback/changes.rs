//! Changes: where they are sent, and that they are sent once.

use std::time::Duration;

use kafka_protocol::messages::alter_user_scram_credentials_response::AlterUserScramCredentialsResult;
use kafka_protocol::messages::incremental_alter_configs_response::AlterConfigsResourceResponse;
use kafka_protocol::messages::update_features_response::UpdatableFeatureResult;
use kafka_protocol::messages::{
    AddRaftVoterRequest, AddRaftVoterResponse, AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse, ApiKey, ApiVersionsResponse, IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse, RemoveRaftVoterRequest, RemoveRaftVoterResponse,
    UnregisterBrokerResponse, UpdateFeaturesRequest, UpdateFeaturesResponse,
};
use kafka_protocol::protocol::{Decodable, StrBytes};
use karst_kafka::{
    Admin, Api, Bootstrap, ConfigChange, ConfigOperation, ConfigResource, DirectoryId, Endpoint, Error,
    ErrorCode, FeatureUpdate, Intent, Listener, NodeId, Refusal, ScramChange, ScramCredential, UpdateKind,
    Waiting,
};
use tokio::net::TcpListener;

use crate::node::{Node, Question, Reply, api, brokers, cluster, config, controllers, endpoint_of};

/// The cluster that is meant.
const CLUSTER: &str = "4L6g3nShT-eMCtK--X86sw";

fn directory() -> DirectoryId {
    "3Db5QLSqSZieL3rJBUUegA".parse().unwrap()
}

fn listeners() -> [Listener; 1] {
    [Listener { name: "CONTROLPLANE-9090".to_owned(), endpoint: Endpoint::new("controller-7", 9090) }]
}

async fn add(admin: &Admin) -> Result<(), Error> {
    admin.add_voter(Some(CLUSTER), NodeId(7), directory(), &listeners()).await
}

fn added(question: &Question) -> Option<Reply> {
    match question.api {
        ApiKey::AddRaftVoter => Some(question.answer(&AddRaftVoterResponse::default())),
        ApiKey::DescribeCluster => Some(question.answer(&cluster(-1, &[]))),
        _ => None,
    }
}

/// The bodies of all questions of one kind.
fn asked<R: Decodable>(node: &Node, api: ApiKey) -> Vec<R> {
    let of_that_kind = node.questions().into_iter().filter(|question| question.api == api);
    of_that_kind.map(|mut question| R::decode(&mut question.body, question.version).unwrap()).collect()
}

/// A controller that leads, says so, and otherwise does as `script` says.
async fn leader(script: impl Fn(&Question) -> Option<Reply> + Send + Sync + 'static) -> Node {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = endpoint_of(&listener);
    Node::serve(listener, move |question| match question.api {
        ApiKey::DescribeCluster => Some(question.answer(&cluster(1, &[(1, &at)]))),
        _ => script(question),
    })
}

#[tokio::test]
async fn a_voter_is_added_by_the_leader_where_only_controllers_are_known() {
    let leader = leader(added).await;
    let at = leader.endpoint.clone();
    let follower = Node::start(move |question| {
        (question.api == ApiKey::DescribeCluster).then(|| question.answer(&cluster(1, &[(1, &at)])))
    })
    .await;
    add(&controllers([&follower.endpoint])).await.unwrap();
    assert_eq!(follower.asked(), [ApiKey::ApiVersions, ApiKey::DescribeCluster]);
    assert_eq!(leader.asked(), [ApiKey::ApiVersions, ApiKey::AddRaftVoter]);
}

#[tokio::test]
async fn a_voter_is_asked_for_with_its_directory_its_listeners_and_a_time_that_fits_ours() {
    let node = Node::start(added).await;
    let ours = Duration::from_secs(5);
    add(&Admin::new(Bootstrap::Brokers(vec![node.endpoint.clone()]), config(ours))).await.unwrap();
    let request = &asked::<AddRaftVoterRequest>(&node, ApiKey::AddRaftVoter)[0];
    assert_eq!((request.voter_id, request.voter_directory_id.into_bytes()), (7, directory().to_bytes()));
    assert_eq!(request.cluster_id.as_ref().map(ToString::to_string).as_deref(), Some(CLUSTER));
    let listener = &request.listeners[0];
    assert_eq!((listener.name.as_str(), listener.host.as_str()), ("CONTROLPLANE-9090", "controller-7"));
    assert_eq!(listener.port, 9090);
    assert!((1000..=4500).contains(&request.timeout_ms), "{} ms of {ours:?}", request.timeout_ms);
}

#[tokio::test]
async fn a_change_whose_answer_got_lost_is_sent_to_nobody_else() {
    let broken = Node::start(|question| (question.api == ApiKey::AddRaftVoter).then_some(Reply::Close)).await;
    let other = Node::start(added).await;
    let error = add(&brokers([&broken.endpoint, &other.endpoint])).await.unwrap_err();
    assert!(matches!(error, Error::Disconnected { api: Api::AddRaftVoter, .. }), "{error}");
    assert!(error.may_have_happened() && error.is_retriable());
    assert_eq!(other.asked(), []);
    assert_eq!(broken.asked(), [ApiKey::ApiVersions, ApiKey::AddRaftVoter]);
}

#[tokio::test]
async fn a_change_that_is_not_answered_in_time_may_have_happened() {
    let silent = Node::start(|_| None).await;
    let other = Node::start(added).await;
    let endpoints = vec![silent.endpoint.clone(), other.endpoint.clone()];
    let admin = Admin::new(Bootstrap::Brokers(endpoints), config(Duration::from_millis(300)));
    let error = add(&admin).await.unwrap_err();
    assert!(
        matches!(error, Error::Timeout { waiting_for: Waiting::ForAnswer(Api::AddRaftVoter), .. }),
        "{error}"
    );
    assert!(error.may_have_happened());
    assert_eq!(other.asked(), []);
}

#[tokio::test]
async fn a_change_that_was_never_sent_goes_to_the_next_address() {
    let closed = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        endpoint_of(&listener)
    };
    let unfriendly = Node::start(|_| Some(Reply::Close)).await;
    let good = Node::start(added).await;
    add(&brokers([&closed, &unfriendly.endpoint, &good.endpoint])).await.unwrap();

    let error = add(&brokers([&closed, &unfriendly.endpoint])).await.unwrap_err();
    assert!(!error.may_have_happened(), "{error}");
}

#[tokio::test]
async fn a_kept_connection_is_tried_before_a_change_is_put_on_it() {
    let node = Node::start(added).await;
    let admin = brokers([&node.endpoint]);
    admin.describe_cluster().await.unwrap();
    add(&admin).await.unwrap();
    assert_eq!(
        node.asked(),
        [ApiKey::ApiVersions, ApiKey::DescribeCluster, ApiKey::ApiVersions, ApiKey::AddRaftVoter]
    );
    assert_eq!(node.connections(), 1);
}

#[tokio::test]
async fn a_connection_that_died_long_ago_leaves_no_doubt_about_a_change() {
    let node = Node::start(added).await;
    let admin = brokers([&node.endpoint]);
    admin.describe_cluster().await.unwrap();
    let node = Node::start_at(node.stop().await, added).await;
    add(&admin).await.unwrap();
    assert_eq!(asked::<AddRaftVoterRequest>(&node, ApiKey::AddRaftVoter).len(), 1);
}

/// Kafka's own fence: with another id it refuses, whatever stands in the rest.
#[tokio::test]
async fn a_change_of_the_voters_names_the_cluster_that_is_meant() {
    let leader = leader(|question| match question.api {
        ApiKey::AddRaftVoter => Some(question.answer(&AddRaftVoterResponse::default().with_error_code(104))),
        ApiKey::RemoveRaftVoter => Some(question.answer(&RemoveRaftVoterResponse::default())),
        _ => None,
    })
    .await;
    let admin = controllers([&leader.endpoint]);
    let error = add(&admin).await.unwrap_err();
    assert!(matches!(error, Error::Kafka { code: ErrorCode::InconsistentClusterId, .. }), "{error}");
    admin.remove_voter(Some(CLUSTER), NodeId(7), directory()).await.unwrap();
    let added = asked::<AddRaftVoterRequest>(&leader, ApiKey::AddRaftVoter);
    let removed = asked::<RemoveRaftVoterRequest>(&leader, ApiKey::RemoveRaftVoter);
    let named = added.into_iter().map(|one| one.cluster_id);
    let named = named.chain(removed.into_iter().map(|one| one.cluster_id));
    assert_eq!(named.map(|id| id.unwrap().to_string()).collect::<Vec<_>>(), [CLUSTER, CLUSTER]);
}

#[tokio::test]
async fn a_leader_that_steps_down_is_not_followed_with_a_change() {
    let leader = leader(|question| {
        let refusal = RemoveRaftVoterResponse::default().with_error_code(6);
        (question.api == ApiKey::RemoveRaftVoter).then(|| question.answer(&refusal))
    })
    .await;
    let admin = controllers([&leader.endpoint]);
    let error = admin.remove_voter(Some(CLUSTER), NodeId(7), directory()).await.unwrap_err();
    assert!(matches!(error, Error::Kafka { code: ErrorCode::NotLeaderOrFollower, .. }), "{error}");
    assert!(error.may_have_happened(), "it may have written the change before it stepped down");
    let times = leader.asked().iter().filter(|api| **api == ApiKey::RemoveRaftVoter).count();
    assert_eq!(times, 1);
}

#[tokio::test]
async fn a_plain_refusal_means_that_nothing_happened() {
    let node = Node::start(|question| {
        let refusal = UnregisterBrokerResponse::default()
            .with_error_code(102)
            .with_error_message(Some(StrBytes::from_static_str("Broker ID 9 is not registered")));
        (question.api == ApiKey::UnregisterBroker).then(|| question.answer(&refusal))
    })
    .await;
    let error = brokers([&node.endpoint]).unregister_broker(NodeId(9)).await.unwrap_err();
    assert!(matches!(error, Error::Kafka { code: ErrorCode::BrokerIdNotRegistered, .. }), "{error}");
    assert!(!error.may_have_happened());
}

fn to_level_25() -> [FeatureUpdate; 1] {
    [FeatureUpdate { name: "metadata.version".to_owned(), level: 25, kind: UpdateKind::SafeDowngrade }]
}

#[tokio::test]
async fn features_are_updated_all_or_none() {
    let node = Node::start(|question| {
        (question.api == ApiKey::UpdateFeatures).then(|| question.answer(&UpdateFeaturesResponse::default()))
    })
    .await;
    let admin = brokers([&node.endpoint]);
    let outcome = admin.update_features(&to_level_25(), Intent::ValidateOnly).await.unwrap();
    assert_eq!(outcome, [("metadata.version".to_owned(), Ok(()))]);
    let request = &asked::<UpdateFeaturesRequest>(&node, ApiKey::UpdateFeatures)[0];
    let update = &request.feature_updates[0];
    assert_eq!((update.max_version_level, update.upgrade_type, request.validate_only), (25, 2, true));
}

#[tokio::test]
async fn an_older_kafka_answers_for_each_feature() {
    let node = Node::start(|question| match question.api {
        ApiKey::ApiVersions => {
            let offered = vec![api(ApiKey::ApiVersions, 0, 4), api(ApiKey::UpdateFeatures, 0, 1)];
            Some(question.answer(&ApiVersionsResponse::default().with_api_keys(offered)))
        }
        ApiKey::UpdateFeatures => {
            let result = UpdatableFeatureResult::default()
                .with_feature(StrBytes::from_static_str("metadata.version"))
                .with_error_code(95);
            Some(question.answer(&UpdateFeaturesResponse::default().with_results(vec![result])))
        }
        _ => None,
    })
    .await;
    let outcome = brokers([&node.endpoint]).update_features(&to_level_25(), Intent::Apply).await.unwrap();
    let refusal = Refusal { code: ErrorCode::InvalidUpdateVersion, message: None };
    assert_eq!(outcome, [("metadata.version".to_owned(), Err(refusal))]);
}

/// Takes every change of a configuration.
fn altered(question: &Question) -> Option<Reply> {
    (question.api == ApiKey::IncrementalAlterConfigs).then(|| {
        let mut body = question.body.clone();
        let request = IncrementalAlterConfigsRequest::decode(&mut body, question.version).unwrap();
        let taken = request.resources.into_iter().map(|resource| {
            AlterConfigsResourceResponse::default()
                .with_resource_type(resource.resource_type)
                .with_resource_name(resource.resource_name)
        });
        question.answer(&IncrementalAlterConfigsResponse::default().with_responses(taken.collect()))
    })
}

async fn alter(admin: &Admin, resource: ConfigResource) {
    let change = [ConfigChange::set("log.cleaner.threads", "2")];
    admin.incremental_alter_configs(resource, &change, Intent::Apply).await.unwrap();
}

#[tokio::test]
async fn a_brokers_own_configuration_is_changed_at_that_broker_and_the_defaults_anywhere() {
    let seventh = Node::start(altered).await;
    let at = seventh.endpoint.clone();
    let first = Node::start(move |question| match question.api {
        ApiKey::DescribeCluster => Some(question.answer(&cluster(-1, &[(7, &at)]))),
        _ => altered(question),
    })
    .await;
    let admin = brokers([&first.endpoint]);
    alter(&admin, ConfigResource::Broker(NodeId(7))).await;
    alter(&admin, ConfigResource::BrokerLogger(NodeId(7))).await;
    alter(&admin, ConfigResource::BrokerDefaults).await;
    alter(&admin, ConfigResource::Topic("orders".to_owned())).await;
    let resources = |node: &Node| {
        let requests = asked::<IncrementalAlterConfigsRequest>(node, ApiKey::IncrementalAlterConfigs);
        let resources = requests.into_iter().flat_map(|request| request.resources);
        resources.map(|r| (r.resource_type, r.resource_name.to_string())).collect::<Vec<_>>()
    };
    assert_eq!(resources(&seventh), [(4, "7".to_owned()), (8, "7".to_owned())]);
    assert_eq!(resources(&first), [(4, String::new()), (2, "orders".to_owned())]);
}

#[tokio::test]
async fn where_only_controllers_are_known_the_leader_changes_a_brokers_configuration() {
    let leader = leader(altered).await;
    alter(&controllers([&leader.endpoint]), ConfigResource::Broker(NodeId(7))).await;
    assert_eq!(leader.asked().last(), Some(&ApiKey::IncrementalAlterConfigs));
}

#[tokio::test]
async fn each_kind_of_change_is_told_from_the_others() {
    let node = Node::start(altered).await;
    let change = |operation| ConfigChange { name: "cleanup.policy".to_owned(), operation };
    let changes = [
        change(ConfigOperation::Set("delete".to_owned())),
        change(ConfigOperation::Delete),
        change(ConfigOperation::Append("compact".to_owned())),
        change(ConfigOperation::Subtract("delete".to_owned())),
    ];
    let topic = ConfigResource::Topic("orders".to_owned());
    let admin = brokers([&node.endpoint]);
    admin.incremental_alter_configs(topic, &changes, Intent::ValidateOnly).await.unwrap();
    let request = asked::<IncrementalAlterConfigsRequest>(&node, ApiKey::IncrementalAlterConfigs).remove(0);
    assert!(request.validate_only);
    let told: Vec<_> = request.resources[0]
        .configs
        .iter()
        .map(|config| (config.config_operation, config.value.as_deref()))
        .collect();
    assert_eq!(told, [(0, Some("delete")), (1, None), (2, Some("compact")), (3, Some("delete"))]);
}

#[tokio::test]
async fn users_get_and_lose_their_credentials_each_with_an_outcome() {
    let node = Node::start(|question| {
        (question.api == ApiKey::AlterUserScramCredentials).then(|| {
            let result = |user, code| {
                AlterUserScramCredentialsResult::default()
                    .with_user(StrBytes::from_static_str(user))
                    .with_error_code(code)
            };
            // Kafka answers in an order of its own.
            let results = vec![result("bert", 91), result("anna", 0)];
            question.answer(&AlterUserScramCredentialsResponse::default().with_results(results))
        })
    })
    .await;
    let credential = ScramCredential { iterations: 4096, salt: vec![1, 2], salted_password: vec![3, 4] };
    let changes = [
        ScramChange::Upsert { user: "anna".to_owned(), credential },
        ScramChange::Delete { user: "bert".to_owned() },
    ];
    let outcome = brokers([&node.endpoint]).alter_user_scram_credentials(&changes).await.unwrap();
    let refusal = Refusal { code: ErrorCode::ResourceNotFound, message: None };
    assert_eq!(outcome, [("anna".to_owned(), Ok(())), ("bert".to_owned(), Err(refusal))]);
    let request = &asked::<AlterUserScramCredentialsRequest>(&node, ApiKey::AlterUserScramCredentials)[0];
    let upsertion = &request.upsertions[0];
    assert_eq!((upsertion.mechanism, upsertion.iterations), (2, 4096));
    assert_eq!((&upsertion.salt[..], &upsertion.salted_password[..]), (&[1, 2][..], &[3, 4][..]));
    assert_eq!((request.deletions[0].name.as_str(), request.deletions[0].mechanism), ("bert", 2));
}

#[tokio::test]
async fn that_a_leader_lost_its_office_is_never_about_one_user_only() {
    let leader = leader(|question| {
        (question.api == ApiKey::AlterUserScramCredentials).then(|| {
            let result = AlterUserScramCredentialsResult::default()
                .with_user(StrBytes::from_static_str("anna"))
                .with_error_code(41);
            question.answer(&AlterUserScramCredentialsResponse::default().with_results(vec![result]))
        })
    })
    .await;
    let deletion = [ScramChange::Delete { user: "anna".to_owned() }];
    let outcome = controllers([&leader.endpoint]).alter_user_scram_credentials(&deletion).await;
    assert!(matches!(outcome, Err(Error::Kafka { code: ErrorCode::NotController, .. })), "{outcome:?}");
}
