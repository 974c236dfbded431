//! Stories of what an index shows.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use karst_core::names::{CLUSTER_LABEL, POOL_FINALIZER, POOL_LABEL};
use serde_json::json;

use super::*;
use crate::views::{ClaimWire, PodWire, Watched};
use crate::watch::Event;
use crate::watch::item::fragile::Fragile;

fn pool(cluster: &str, name: &str, uid: &str, version: u64) -> KafkaNodePool {
    serde_json::from_value(json!({
        "apiVersion": "kafka.strimzi.io/v1", "kind": "KafkaNodePool",
        "metadata": {"namespace": "ns", "name": name, "uid": uid, "resourceVersion": version.to_string(),
                     "labels": {CLUSTER_LABEL: cluster}},
        "spec": {"replicas": 1, "roles": ["broker"], "storage": {"type": "ephemeral"}}
    }))
    .unwrap()
}

fn unreadable_pool(cluster: &str, name: &str, version: u64) -> Unreadable {
    let labels = [(CLUSTER_LABEL.to_owned(), cluster.to_owned())];
    let meta = ObjectMeta {
        namespace: Some("ns".to_owned()),
        name: Some(name.to_owned()),
        uid: Some("1".to_owned()),
        resource_version: Some(version.to_string()),
        labels: Some(labels.into()),
        ..ObjectMeta::default()
    };
    let (kind, api_version, why) =
        ("KafkaNodePool".to_owned(), String::new(), "nested too deeply".to_owned());
    Unreadable { kind, api_version, meta, conditions: None, why }
}

fn key(name: &str) -> ClusterKey {
    ClusterKey { namespace: "ns".into(), name: name.into() }
}

fn pass(name: &str) -> Work {
    Work::Cluster(key(name))
}

fn of_set(cluster: &str, name: &str) -> Work {
    Work::PodSet { cluster: key(cluster), name: name.into() }
}

fn pools(index: &Index, cluster: &str) -> Vec<String> {
    index.snapshot(&key(cluster)).pools.keys().cloned().collect()
}

/// Tells one event. Returns the work it causes.
fn tell<K: Indexed>(index: &Index, feed: &mut Feed, event: Event<K>) -> Vec<Work> {
    feed.take(index, event).work
}

/// Lists these and nothing else.
fn list<K: Indexed>(index: &Index, feed: &mut Feed, version: u64, objects: Vec<K>) -> Vec<Work> {
    let mut work = tell::<K>(index, feed, Event::ListBegins(version));
    for object in objects {
        work.extend(tell(index, feed, Event::Listed(Ok(object))));
    }
    work.extend(tell::<K>(index, feed, Event::ListEnds));
    work
}

#[test]
fn an_older_version_does_not_replace_a_newer_one() {
    let index = Index::default();
    assert_eq!(index.answer(pool("a", "p", "1", 7)), [pass("a")]);
    assert_eq!(index.answer(pool("a", "p", "1", 6)), []);
    assert_eq!(index.answer(pool("a", "p", "1", 7)), [], "nothing new, nothing to do");
}

/// It was taken for another incarnation, whatever its version: a late answer replaced an object by the one before it, for good.
#[test]
fn a_late_answer_of_an_old_incarnation_does_not_replace_the_new_one() {
    let index = Index::default();
    index.answer(pool("a", "p", "2", 9));
    assert_eq!(index.answer(pool("a", "p", "1", 6)), []);
    assert_eq!(index.version::<KafkaNodePool>(&key("a"), "p", "2").as_deref(), Some("9"));
}

#[test]
fn an_answer_that_is_older_than_a_deletion_brings_nothing_back() {
    let (index, mut feed) = (Index::default(), Feed::new(None));
    tell(&index, &mut feed, Event::Applied(Ok(pool("a", "p", "1", 5))));
    tell(&index, &mut feed, Event::Deleted(Ok(pool("a", "p", "1", 8))));
    assert_eq!(index.answer(pool("a", "p", "1", 7)), []);
    assert!(pools(&index, "a").is_empty());
}

#[test]
fn an_answer_that_is_older_than_a_list_brings_nothing_back() {
    let (index, mut feed) = (Index::default(), Feed::new(Some("ns")));
    list::<KafkaNodePool>(&index, &mut feed, 8, Vec::new());
    assert_eq!(index.answer(pool("a", "p", "1", 7)), []);
    assert_eq!(index.answer(pool("a", "p", "2", 9)), [pass("a")]);
}

#[test]
fn the_end_of_an_older_incarnation_does_not_remove_a_newer_one() {
    let (index, mut feed) = (Index::default(), Feed::new(None));
    index.answer(pool("a", "p", "2", 9));
    tell(&index, &mut feed, Event::Deleted(Ok(pool("a", "p", "1", 8))));
    assert_eq!(pools(&index, "a"), ["p"]);
    tell(&index, &mut feed, Event::Deleted(Ok(pool("a", "p", "2", 10))));
    assert!(index.lock().clusters.is_empty());
}

#[test]
fn what_is_said_of_an_object_is_never_said_of_the_next_one_of_its_name() {
    let (index, mut feed) = (Index::default(), Feed::new(None));
    let version = |uid| index.version::<KafkaNodePool>(&key("a"), "p", uid);
    index.answer(pool("a", "p", "1", 7));
    index.answer(pool("a", "p", "1", 8));
    assert_eq!((version("1").as_deref(), version("2")), (Some("8"), None));
    index.answer(pool("a", "p", "2", 9));
    assert_eq!((version("1"), version("2").as_deref()), (None, Some("9")));
    tell(&index, &mut feed, Event::Deleted(Ok(pool("a", "p", "2", 10))));
    assert_eq!(version("2"), None);
}

#[test]
fn a_relabelled_object_leaves_its_old_cluster() {
    let (index, mut feed) = (Index::default(), Feed::new(None));
    tell(&index, &mut feed, Event::Applied(Ok(pool("a", "p", "1", 1))));
    let work = tell(&index, &mut feed, Event::Applied(Ok(pool("b", "p", "1", 2))));
    assert_eq!(work, [pass("b"), pass("a")]);
    assert!(pools(&index, "a").is_empty());
    assert_eq!(pools(&index, "b"), ["p"]);
    index.answer(pool("c", "p", "1", 3));
    assert!(pools(&index, "b").is_empty(), "by whoever it is told");
}

#[test]
fn what_a_new_list_does_not_show_is_gone() {
    let (index, mut feed) = (Index::default(), Feed::new(None));
    tell(&index, &mut feed, Event::Applied(Ok(pool("a", "kept", "1", 1))));
    tell(&index, &mut feed, Event::Applied(Ok(pool("a", "gone", "2", 2))));
    index.answer(pool("a", "new", "3", 5));
    assert_eq!(list(&index, &mut feed, 4, vec![pool("a", "kept", "1", 1)]), [pass("a")]);
    assert_eq!(pools(&index, "a"), ["kept", "new"], "and what is newer than the list stays");
}

#[test]
fn a_list_that_is_older_than_an_answer_does_not_take_it_back() {
    let (index, mut feed) = (Index::default(), Feed::new(None));
    tell::<KafkaNodePool>(&index, &mut feed, Event::ListBegins(5));
    index.answer(pool("a", "p", "1", 7));
    tell(&index, &mut feed, Event::Listed(Ok(pool("a", "p", "1", 3))));
    tell::<KafkaNodePool>(&index, &mut feed, Event::ListEnds);
    assert_eq!(index.version::<KafkaNodePool>(&key("a"), "p", "1").as_deref(), Some("7"));
}

fn pod(version: u64) -> PodWire {
    let labels = json!({CLUSTER_LABEL: "a", "strimzi.io/controller-name": "a-p"});
    let meta = json!({"namespace": "ns", "name": "a-p-0", "uid": "1", "resourceVersion": version.to_string(), "labels": labels});
    serde_json::from_value(json!({"apiVersion": "v1", "kind": "Pod", "metadata": meta})).unwrap()
}

/// Only the cluster was looked at, and only its pod set makes pods: a pod that vanished while a watch was away was never made again.
#[test]
fn a_list_without_a_pod_has_its_pod_set_looked_at() {
    let (index, mut feed) = (Index::default(), Feed::new(None));
    list(&index, &mut feed, 3, vec![pod(2)]);
    assert_eq!(list::<PodWire>(&index, &mut feed, 9, Vec::new()), [pass("a"), of_set("a", "a-p")]);
}

#[test]
fn a_list_without_a_claim_has_the_pod_set_looked_at_that_waits_for_its_end() {
    let labels = json!({CLUSTER_LABEL: "a", POOL_LABEL: "p"});
    let meta =
        json!({"namespace": "ns", "name": "data", "uid": "1", "resourceVersion": "2", "labels": labels});
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta});
    let (index, mut feed) = (Index::default(), Feed::new(None));
    list::<ClaimWire>(&index, &mut feed, 3, vec![serde_json::from_value(claim).unwrap()]);
    assert_eq!(list::<ClaimWire>(&index, &mut feed, 9, Vec::new()), [pass("a"), of_set("a", "a-p")]);
}

#[test]
fn a_list_of_what_is_known_causes_nothing() {
    let (index, mut feed) = (Index::default(), Feed::new(None));
    list(&index, &mut feed, 3, vec![pod(2)]);
    assert_eq!(list(&index, &mut feed, 9, vec![pod(2)]), []);
}

#[test]
fn a_store_that_was_restored_is_right() {
    let (index, mut feed) = (Index::default(), Feed::new(None));
    list(&index, &mut feed, 100, vec![pool("a", "kept", "1", 90), pool("a", "gone", "2", 95)]);
    index.answer(pool("a", "lost", "3", 101));
    list(&index, &mut feed, 60, vec![pool("a", "kept", "1", 50)]);
    assert_eq!(pools(&index, "a"), ["kept"]);
    assert_eq!(index.version::<KafkaNodePool>(&key("a"), "kept", "1").as_deref(), Some("50"));
    assert_eq!(index.answer(pool("a", "kept", "1", 61)), [pass("a")], "and what it answers is taken");
}

/// What only an answer said has to be told by the watch too.
#[test]
fn what_the_watch_never_tells_is_listed() {
    let (index, mut feed) = (Index::default(), Feed::new(None));
    list::<KafkaNodePool>(&index, &mut feed, 5, Vec::new());
    index.answer(pool("a", "ghost", "1", 7));
    index.answer(pool("a", "real", "2", 8));
    let mut missed = |event| feed.take::<KafkaNodePool>(&index, event).missed;
    assert!(!missed(Event::ToldUpTo(6)));
    assert!(missed(Event::Applied(Ok(pool("a", "real", "2", 8)))));
    assert!(!missed(Event::ToldUpTo(9)), "once is enough");
    assert_eq!(pools(&index, "a"), ["ghost", "real"], "it may exist all the same");
    list(&index, &mut feed, 9, vec![pool("a", "real", "2", 8)]);
    assert_eq!(pools(&index, "a"), ["real"]);
}

#[test]
fn what_cannot_be_read_is_there_until_its_end_is_told() {
    let (index, mut feed) = (Index::default(), Feed::new(None));
    list(&index, &mut feed, 1, vec![pool("a", "p", "1", 1)]);
    let work = tell::<KafkaNodePool>(&index, &mut feed, Event::Applied(Err(unreadable_pool("a", "p", 2))));
    assert_eq!(work, [pass("a")]);
    let unread = || index.snapshot(&key("a")).unreadable.len();
    assert_eq!((pools(&index, "a").len(), unread()), (0, 1));
    assert_eq!(index.unreadable(), [("ns".to_owned(), "KafkaNodePool".to_owned())]);
    tell::<KafkaNodePool>(&index, &mut feed, Event::ListBegins(3));
    let listed = tell::<KafkaNodePool>(&index, &mut feed, Event::Listed(Err(unreadable_pool("a", "p", 2))));
    assert_eq!((listed, tell::<KafkaNodePool>(&index, &mut feed, Event::ListEnds)), (Vec::new(), Vec::new()));
    assert_eq!(unread(), 1, "a list does not drop it");
    tell::<KafkaNodePool>(&index, &mut feed, Event::Deleted(Err(unreadable_pool("a", "p", 4))));
    assert_eq!(unread(), 0);
    assert!(index.lock().clusters.is_empty());
}

#[test]
fn no_pods_are_made_or_removed_while_one_cannot_be_read() {
    let (index, mut sets, mut pods) = (Index::default(), Feed::new(None), Feed::new(None));
    let meta = json!({"namespace": "ns", "name": "a-p", "uid": "1", "resourceVersion": "2", "labels": {CLUSTER_LABEL: "a"}});
    let set = json!({"apiVersion": "core.strimzi.io/v1", "kind": "StrimziPodSet", "metadata": meta, "spec": {"selector": {}, "pods": []}});
    list::<karst_api::StrimziPodSet>(&index, &mut sets, 3, vec![serde_json::from_value(set).unwrap()]);
    assert!(index.pod_set(&key("a"), "a-p").is_some());
    tell::<PodWire>(&index, &mut pods, Event::Applied(Err(unreadable_pool("a", "a-p-0", 2))));
    assert!(index.pod_set(&key("a"), "a-p").is_none());
}

#[test]
fn a_pool_that_lost_its_label_is_still_seen_while_it_waits() {
    let (index, mut feed) = (Index::default(), Feed::new(None));
    let protected = |version: u64| {
        let mut pool = pool("c", "nodes", "1", version);
        pool.metadata.finalizers = Some(vec![POOL_FINALIZER.to_owned()]);
        pool
    };
    list(&index, &mut feed, 5, vec![protected(5)]);
    assert_eq!((pools(&index, "c"), pools(&index, "")), (vec!["nodes".to_owned()], vec![]));
    let mut bare = protected(6);
    bare.metadata.labels = None;
    let work = tell(&index, &mut feed, Event::Applied(Ok(bare.clone())));
    assert!(work.contains(&pass("c")) && work.contains(&pass("")), "{work:?}");
    assert_eq!((pools(&index, "c"), pools(&index, "")), (vec![], vec!["nodes".to_owned()]));
    bare.metadata.finalizers = None;
    bare.metadata.resource_version = Some("7".to_owned());
    tell(&index, &mut feed, Event::Applied(Ok(bare)));
    assert_eq!(pools(&index, ""), [""; 0], "it waits for nobody");
}

impl Watched for Fragile {
    type View = PlainView;

    fn view(self) -> PlainView {
        self.look();
        PlainView::default()
    }
}

impl Indexed for Fragile {
    fn slot(objects: &mut Objects) -> &mut Slot<PlainView> {
        &mut objects.budgets
    }
}

#[test]
fn an_object_whose_view_panics_is_named_and_others_are_read() {
    let (index, mut feed) = (Index::default(), Feed::new(None));
    let objects =
        [("c", "broken"), ("c", "fine"), ("other", "fine too")].map(|(of, name)| Fragile::new(of, name));
    list(&index, &mut feed, 8, objects.into());
    let (snapshot, other) = (index.snapshot(&key("c")), index.snapshot(&key("other")));
    let [broken] = &snapshot.strays[..] else { panic!("{:?}", snapshot.strays) };
    let meta = &broken.meta;
    assert_eq!((broken.kind.as_str(), meta.name.as_deref()), ("Fragile", Some("broken")));
    assert_eq!((meta.uid.as_deref(), meta.resource_version.as_deref()), (Some("1"), Some("7")));
    assert!(broken.why.starts_with("an internal error at "), "{}", broken.why);
    assert!(snapshot.budgets.contains_key("fine") && other.budgets.contains_key("fine too"));
    assert!(snapshot.unreadable.is_empty() && other.strays.is_empty());
    // An answer of the API server is read in the same way.
    index.answer(Fragile::at("c", "broken", 9));
    assert_eq!(index.snapshot(&key("c")).strays[0].meta.resource_version.as_deref(), Some("9"));
}
