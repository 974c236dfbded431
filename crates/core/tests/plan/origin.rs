//! Whose a cluster is: nobody takes it away from Karst with a label, and Karst takes none from another operator.

use std::sync::Arc;

use crate::support::*;
use karst_api::StrimziPodSetStatus;
use karst_core::digest::Digest;
use karst_core::names::MANAGED_BY_LABEL;
use karst_core::world::{Meta, PodSetView, PodView, WantedPod, World};

const STRIMZI: &str = "strimzi-cluster-operator";

fn labels(world: &World) -> std::collections::BTreeMap<String, String> {
    let mut labels = world.pod_sets["my-cluster-brokers"].meta.labels.clone();
    labels.remove(MANAGED_BY_LABEL);
    labels
}

/// What somebody makes who may make pod sets, and labels it as the cluster's.
fn add_set(world: &mut World, name: &str, pods: &[&str]) {
    let meta =
        Meta { name: name.to_owned(), uid: format!("uid-{name}"), labels: labels(world), ..Meta::default() };
    let wanted = |pod: &str| {
        let json = format!(r#"{{"metadata": {{"name": "{pod}"}}}}"#);
        WantedPod { json: Arc::from(json), revision: None }
    };
    let pods = pods.iter().map(|pod| ((*pod).to_owned(), wanted(pod))).collect();
    let digest = Some(Digest::of_parts(&[b"theirs"]));
    let set = PodSetView { meta, generation: 1, pods, digest, status: None };
    world.pod_sets.insert(name.to_owned(), Arc::new(set));
}

fn add_pod(world: &mut World, name: &str) {
    let meta =
        Meta { name: name.to_owned(), uid: format!("uid-{name}"), labels: labels(world), ..Meta::default() };
    let pod = PodView { meta, phase: "Running".into(), ready: true, ..PodView::default() };
    world.pods.insert(name.to_owned(), Arc::new(pod));
}

fn label(meta: &mut Meta, manager: Option<&str>) {
    meta.labels.remove(MANAGED_BY_LABEL);
    meta.labels.extend(manager.map(|manager| (MANAGED_BY_LABEL.to_owned(), manager.to_owned())));
}

/// Another operator made these pod sets, and looks after them.
fn hand_over(world: &mut World, sets: &[&str]) {
    for name in sets {
        let set = Arc::make_mut(world.pod_sets.get_mut(*name).unwrap());
        label(&mut set.meta, Some(STRIMZI));
        set.status =
            Some(StrimziPodSetStatus { observed_generation: Some(1), ..StrimziPodSetStatus::default() });
        for pod in set.pods.keys() {
            label(&mut Arc::make_mut(world.pods.get_mut(pod).unwrap()).meta, Some(STRIMZI));
        }
    }
    world.memory.rendered.clear();
}

/// The cluster goes on as if the stranger were not there, and names it.
fn goes_on(world: &mut World, stranger: &str) {
    edit_pool(world, "brokers", |pool| pool.spec.replicas = 4);
    converge(world);
    assert_eq!(conditions(world, "Ready")[0].0, "True", "{:?}", conditions(world, "Ready"));
    assert!(world.pods.contains_key("my-cluster-brokers-6"), "{:?}", world.pods.keys());
    let told = conditions(world, "Warning");
    let told = told.iter().find(|(_, reason, _)| reason == "NotOfCluster").expect("a warning");
    assert!(told.2.contains(stranger) && told.2.contains("an unknown operator"), "{}", told.2);
}

#[test]
fn a_pod_set_that_somebody_labels_as_the_clusters_stops_nothing() {
    let mut world = converged();
    add_set(&mut world, "my-cluster-mine", &["my-cluster-mine-6", "my-cluster-mine-3"]);
    goes_on(&mut world, "StrimziPodSet my-cluster-mine");
    assert!(world.pod_sets.contains_key("my-cluster-mine"), "it is not ours to delete");
}

#[test]
fn a_pod_that_somebody_labels_as_the_clusters_stops_nothing() {
    let mut world = converged();
    add_pod(&mut world, "debug-6");
    // The pods are those of pod sets, so nobody else ends this one.
    edit_pool(&mut world, "brokers", |pool| pool.spec.replicas = 4);
    let plan = decide(&world);
    assert_eq!(plan.problems, []);
    assert_eq!(plan.facts.len(), 1, "the pool grows");
    carry_out(&mut world, plan);
    let plan = decide(&world);
    let told = plan.notices.iter().find(|notice| notice.reason() == "NotOfCluster").expect("a notice");
    assert!(told.to_string().starts_with("Pod debug-6 has the labels of this cluster"), "{told}");
    assert_eq!(world.pools["brokers"].status.as_ref().unwrap().node_ids, Some(vec![0, 1, 2, 6]));
}

/// Karst made the set, and a pod of it lost its label: it is the node's pod as before.
#[test]
fn a_pod_of_the_clusters_own_that_lost_its_label_stays_its_own() {
    let mut world = converged();
    let owner = world.pod_sets["my-cluster-brokers"].meta.uid.clone();
    edit_pod(&mut world, "my-cluster-brokers-1", |pod| {
        label(&mut pod.meta, None);
        pod.meta.owners = vec![owner];
    });
    let plan = decide(&world);
    assert!(is_quiet(&plan), "{plan:?}");
    assert_eq!(plan.notices.iter().filter(|notice| notice.reason() == "NotOfCluster").count(), 0);
}

#[test]
fn a_pod_set_of_the_clusters_own_that_lost_its_label_is_written_anew() {
    let mut world = converged();
    label(&mut Arc::make_mut(world.pod_sets.get_mut("my-cluster-brokers").unwrap()).meta, None);
    converge(&mut world);
    assert_eq!(conditions(&world, "Ready")[0].0, "True");
    assert_eq!(world.pod_sets["my-cluster-brokers"].meta.other_manager(), None);
}

/// All pod sets are gone, and somebody is quick to make one.
#[test]
fn a_cluster_whose_pod_sets_are_gone_is_still_its_own() {
    let mut world = converged();
    world.pod_sets.clear();
    world.memory.rendered.clear();
    let mut labelled = converged();
    add_set(&mut labelled, "my-cluster-mine", &[]);
    world.pod_sets.insert("my-cluster-mine".into(), Arc::clone(&labelled.pod_sets["my-cluster-mine"]));
    converge(&mut world);
    assert!(world.pod_sets.contains_key("my-cluster-brokers"), "{:?}", conditions(&world, "Ready"));
}

fn is_left_alone(world: &mut World) {
    world.config_maps.clear();
    let plan = decide(world);
    assert!(plan.objects.is_empty() && plan.removals.is_empty() && plan.deeds.is_empty(), "{plan:?}");
    carry_out(world, plan);
    let (status, reason, message) = conditions(world, "Ready").remove(0);
    assert_eq!((status.as_str(), reason.as_str()), ("False", "OtherOperator"));
    assert!(message.contains(STRIMZI), "{message}");
}

#[test]
fn a_cluster_that_another_operator_has_taken_over_is_left_alone() {
    let mut world = converged();
    hand_over(&mut world, &["my-cluster-brokers", "my-cluster-controllers"]);
    is_left_alone(&mut world);
}

/// A label on a pod set makes nobody's cluster ours: whoever may make pod sets writes it.
#[test]
fn a_pod_set_with_our_label_makes_no_cluster_ours() {
    let mut world = converged();
    hand_over(&mut world, &["my-cluster-brokers", "my-cluster-controllers"]);
    Arc::make_mut(&mut world.kafka).status.as_mut().unwrap().initial_controllers = None;
    add_set(&mut world, "my-cluster-mine", &[]);
    label(&mut Arc::make_mut(world.pod_sets.get_mut("my-cluster-mine").unwrap()).meta, Some("karst"));
    is_left_alone(&mut world);

    // Also where the cluster was ours before, by its status, and whether the pod set has a place in it or only a status.
    let mut world = converged();
    hand_over(&mut world, &["my-cluster-brokers", "my-cluster-controllers"]);
    for (name, is_new) in [("my-cluster-mine", true), ("my-cluster-brokers", false)] {
        let mut world = world.clone();
        if is_new {
            add_set(&mut world, name, &[]);
        }
        let set = Arc::make_mut(world.pod_sets.get_mut(name).unwrap());
        label(&mut set.meta, Some("karst"));
        let observed = StrimziPodSetStatus { observed_generation: Some(1), ..StrimziPodSetStatus::default() };
        set.status = is_new.then_some(observed);
        is_left_alone(&mut world);
    }
}

#[test]
fn a_new_cluster_waits_when_pods_of_its_name_are_somebody_elses() {
    let ours = converged();
    let mut world = quickstart();
    let mut set = (*ours.pod_sets["my-cluster-brokers"]).clone();
    label(&mut set.meta, Some(STRIMZI));
    world.pod_sets.insert("my-cluster-brokers".into(), Arc::new(set));
    is_left_alone(&mut world);
    assert_eq!(world.pools["brokers"].status.clone().unwrap_or_default().node_ids, None);
}
