//! Nothing is lost: sets of nodes that stop, move or lose their disks, and what holds them.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::quorum::pool;
use crate::support::*;
use k8s_openapi::jiff::Timestamp;
use karst_core::ids::NodeId;
use karst_core::names::node_of_pod;
use karst_core::plan::{Plan, plan};
use karst_core::world::{
    Answer, Answers, LauncherView, PartitionView, Partitions, Recovery, Registered, RegisteredBroker, World,
};

const MANUAL: &str = "strimzi.io/manual-rolling-update";
const EMPTY: &str = "strimzi.io/delete-pod-and-pvc";

/// A Kafka whose replicas follow the pods: a new pod on an empty disk is out of sync until it was there for some rounds.
struct Copies {
    partitions: Vec<PartitionView>,
    /// The pod that each replica was copied by.
    held: std::collections::BTreeMap<NodeId, String>,
    catching_up: std::collections::BTreeMap<NodeId, usize>,
    rounds: usize,
}

impl Copies {
    fn of(world: &World, partitions: Vec<PartitionView>) -> Self {
        let mut copies =
            Self { partitions, held: Default::default(), catching_up: Default::default(), rounds: 3 };
        copies.held = brokers(world);
        copies
    }

    /// Time passes. Fails when nobody has a complete copy any more.
    fn follow(&mut self, world: &World) {
        let now = brokers(world);
        for (node, pod) in &now {
            if self.held.get(node) != Some(pod) && !self.catching_up.contains_key(node) {
                self.catching_up.insert(*node, 0);
            }
        }
        let lost: Vec<NodeId> = self.held.keys().filter(|node| !now.contains_key(node)).copied().collect();
        for partition in &mut self.partitions {
            partition.in_sync.retain(|node| !lost.contains(node) && self.held.get(node) == now.get(node));
            partition.leader = partition.in_sync.first().copied();
            assert!(partition.leader.is_some(), "every copy of {partition} is gone");
        }
        let mut back = Vec::new();
        for (node, rounds) in &mut self.catching_up {
            *rounds += 1;
            if *rounds > self.rounds {
                back.push(*node);
            }
        }
        for node in back {
            self.catching_up.remove(&node);
            for partition in self.partitions.iter_mut().filter(|one| one.replicas.contains(&node)) {
                partition.in_sync.insert(node);
            }
        }
        self.held = now;
    }
}

fn brokers(world: &World) -> std::collections::BTreeMap<NodeId, String> {
    let pods = world.pods.values().filter(|pod| pod.runs_broker());
    // Pods of this world come and go at once, so their names tell which disk they have.
    pods.filter_map(|pod| Some((node_of_pod(&pod.meta.name)?, pod.meta.name.clone()))).collect()
}

fn annotate_pool(world: &mut World, pool: &str, key: &str, value: &str) {
    edit_pool(world, pool, |pool| {
        pool.metadata.annotations.get_or_insert_default().insert(key.into(), value.into());
    });
}

fn annotate_kafka(world: &mut World, key: &str, value: &str) {
    edit_kafka(world, |kafka| {
        kafka.metadata.annotations.get_or_insert_default().insert(key.into(), value.into());
    });
}

fn ask_pod(world: &mut World, name: &str, annotation: &str) {
    edit_pod(world, name, |pod| drop(pod.meta.annotations.insert(annotation.into(), "true".into())));
}

fn warnings(world: &World) -> String {
    let all = conditions(world, "Warning").into_iter();
    all.map(|(_, reason, message)| format!("{reason}: {message}\n")).collect()
}

/// The plan, after everything that it asks was answered.
fn answered(world: &mut World, partitions: &[PartitionView]) -> Plan {
    world.answers = Answers { launchers: world.answers.launchers.clone(), ..Answers::default() };
    let mut kafka = Kafka::formed(world);
    for _ in 0..8 {
        let plan = plan(world).unwrap();
        if plan.questions.is_empty() {
            return plan;
        }
        kafka.answer(world, partitions, &plan.questions);
    }
    panic!("it never stops asking: {:?}", plan(world).unwrap().questions);
}

/// What restarts now, and what the status says.
fn restarts(world: &mut World, partitions: &[PartitionView]) -> (Vec<String>, String) {
    let plan = answered(world, partitions);
    let pods = plan.restarts.iter().map(|restart| restart.pod.clone()).collect();
    let said = plan.notices.iter().map(|notice| format!("{}: {notice}\n", notice.reason())).collect();
    (pods, said)
}

fn with_storage(storage: &str, controllers: usize) -> World {
    let mut world = world(&format!(
        "apiVersion: kafka.strimzi.io/v1
kind: Kafka
metadata: {{name: my-cluster}}
spec:
  kafka:
    version: 4.1.1
    listeners: [{{name: plain, port: 9092, type: internal, tls: false}}]
    config: {{default.replication.factor: 3, min.insync.replicas: 2}}
---
apiVersion: kafka.strimzi.io/v1
kind: KafkaNodePool
metadata: {{name: brokers, labels: {{strimzi.io/cluster: my-cluster}}}}
spec: {{replicas: 3, roles: [broker], storage: {storage}}}
---
apiVersion: kafka.strimzi.io/v1
kind: KafkaNodePool
metadata: {{name: controllers, labels: {{strimzi.io/cluster: my-cluster}}}}
spec: {{replicas: {controllers}, roles: [controller], storage: {storage}}}"
    ));
    converge(&mut world);
    world
}

/// The one apply that lost every copy of a topic.
fn moved_together(gives: Option<&str>) -> (World, Copies) {
    let mut world = converged();
    world.pools.insert("small".into(), Arc::new(pool("small", 3, "broker")));
    annotate_pool(&mut world, "small", "strimzi.io/next-node-ids", "[20-22]");
    converge(&mut world);
    let mut orders = partition("orders", &[20, 21, 22], &[20, 21, 22], 2);
    orders.leader = Some(NodeId(20));
    let copies = Copies::of(&world, vec![orders]);
    edit_pool(&mut world, "small", |pool| pool.spec.replicas = 0);
    if let Some(ids) = gives {
        annotate_pool(&mut world, "small", "strimzi.io/remove-node-ids", ids);
    }
    edit_pool(&mut world, "brokers", |pool| pool.spec.replicas = 6);
    annotate_pool(&mut world, "brokers", "strimzi.io/next-node-ids", "[20-22]");
    (world, copies)
}

fn live_through(world: &mut World, copies: &mut Copies) {
    let mut kafka = Kafka::formed(world);
    for _ in 0..200 {
        let partitions = copies.partitions.clone();
        let moves = step(world, &mut kafka, &partitions);
        copies.follow(world);
        if !moves && copies.catching_up.is_empty() {
            return;
        }
    }
    panic!("it never comes to rest: {}", warnings(world));
}

#[test]
fn brokers_that_move_together_move_one_after_the_other() {
    let (mut world, mut copies) = moved_together(Some("[20-22]"));
    live_through(&mut world, &mut copies);
    let ids = world.pools["brokers"].status.as_ref().unwrap().node_ids.clone().unwrap();
    assert_eq!(ids, [0, 1, 2, 20, 21, 22]);
    assert_eq!(copies.partitions[0].in_sync.len(), 3);
    assert_eq!(warnings(&world), "");
}

#[test]
fn an_id_that_only_the_taking_pool_names_is_taken_and_its_node_stays_where_its_partitions_are() {
    let (mut world, mut copies) = moved_together(None);
    live_through(&mut world, &mut copies);
    let ids = |pool: &str| world.pools[pool].status.as_ref().unwrap().node_ids.clone().unwrap();
    assert_eq!((ids("small"), ids("brokers").len()), (vec![20, 21, 22], 6));
    assert!(ids("brokers").iter().all(|id| *id < 20));
}

#[test]
fn all_controllers_move_to_another_pool_one_after_the_other() {
    let mut world = converged();
    let mut kafka = Kafka::formed(&world);
    world.pools.insert("fresh".into(), Arc::new(pool("fresh", 3, "controller")));
    edit_pool(&mut world, "controllers", |pool| pool.spec.replicas = 0);
    annotate_pool(&mut world, "controllers", "strimzi.io/remove-node-ids", "[3-5]");
    annotate_pool(&mut world, "fresh", "strimzi.io/next-node-ids", "[3-5]");
    for _ in 0..300 {
        let before = kafka.voters.len();
        if !step(&mut world, &mut kafka, &[]) {
            let voters: BTreeSet<i32> = kafka.voters.iter().map(|voter| voter.node.0).collect();
            assert_eq!(voters, [3, 4, 5].into());
            assert!((3..6).all(|id| world.pods.contains_key(&format!("my-cluster-fresh-{id}"))));
            return;
        }
        assert!(kafka.voters.len().abs_diff(before) <= 1 && kafka.voters.len() >= 2);
    }
    panic!("it never comes to rest: {}", warnings(&world));
}

#[test]
fn a_restart_on_a_claim_that_is_on_its_way_out_is_judged_as_the_loss_of_its_disk() {
    let mut world = converged();
    let pod = "my-cluster-brokers-0";
    ask_pod(&mut world, pod, MANUAL);
    let only = [partition("single", &[0], &[0], 1)];
    assert_eq!(restarts(&mut world, &only).0, [pod], "its disk stays");

    Arc::make_mut(world.claims.get_mut("data-0-my-cluster-brokers-0").unwrap()).meta.deleting = true;
    let (pods, said) = restarts(&mut world, &only);
    assert!(pods.is_empty());
    for part in ["DataLossHeld", pod, "single-0", "karst.io/allow-data-loss"] {
        assert!(said.contains(part), "{part} is not in {said}");
    }
    annotate_kafka(&mut world, "karst.io/allow-data-loss", "my-cluster-brokers-1");
    assert_eq!(restarts(&mut world, &only).0, [] as [&str; 0], "that is another one");
    annotate_kafka(&mut world, "karst.io/allow-data-loss", pod);
    assert_eq!(restarts(&mut world, &only).0, [pod]);
}

fn edit_claim(world: &mut World, name: &str, edit: impl FnOnce(&mut karst_core::world::ClaimView)) {
    edit(Arc::make_mut(world.claims.get_mut(name).unwrap()));
}

/// A pod whose container dies whenever it starts, and that never served.
fn never_served(world: &mut World, pod: &str) {
    let since = Timestamp::from_second(world.now.as_second() - 300).unwrap();
    edit_pod(world, pod, |pod| {
        (pod.ready, pod.was_ready, pod.since) = (false, false, Some(since));
        pod.stuck = Some("CrashLoopBackOff: OOMKilled".into());
    });
}

/// A PVC outlives its pods: what the one before wrote is on it.
#[test]
fn a_pod_that_never_served_does_not_take_a_disk_full_of_records_with_it() {
    let mut world = converged();
    let (pod, claim) = ("my-cluster-brokers-0", "data-0-my-cluster-brokers-0");
    ask_pod(&mut world, pod, MANUAL);
    never_served(&mut world, pod);
    let only = [partition("single", &[0], &[0], 1)];
    let plan = answered(&mut world, &only);
    assert_eq!(plan.restarts.len(), 1, "its disk stays, and nothing runs in it");
    assert_eq!(plan.restarts[0].keeps.len(), 1, "that is looked at once more");
    assert!(!plan.restarts[0].loses_disk);

    edit_claim(&mut world, claim, |claim| claim.meta.deleting = true);
    let (pods, said) = restarts(&mut world, &only);
    assert!(pods.is_empty(), "{said}");
    for part in ["DataLossHeld", pod, "single-0"] {
        assert!(said.contains(part), "{part} is not in {said}");
    }
    // The same when the labels of the claim are lost.
    let labels = std::mem::take(&mut Arc::make_mut(world.claims.get_mut(claim).unwrap()).meta.labels);
    assert_eq!(restarts(&mut world, &only).0, [] as [&str; 0]);
    edit_claim(&mut world, claim, |claim| (claim.meta.labels, claim.bound) = (labels, false));
    let plan = answered(&mut world, &only);
    assert_eq!(plan.restarts.len(), 1, "nothing was ever on it");
    assert!(plan.restarts[0].keeps.is_empty(), "{plan:?}");

    edit_claim(&mut world, claim, |claim| claim.bound = true);
    annotate_kafka(&mut world, "karst.io/allow-data-loss", pod);
    let plan = answered(&mut world, &only);
    assert_eq!((plan.restarts.len(), plan.restarts[0].loses_disk), (1, true));
}

/// `kubectl delete pvc -l ...`, while no broker starts.
#[test]
fn pods_that_never_served_do_not_all_take_their_disks_with_them() {
    let mut world = converged();
    let names: Vec<String> = world.pods.keys().filter(|name| name.contains("brokers")).cloned().collect();
    for name in &names {
        ask_pod(&mut world, name, MANUAL);
        never_served(&mut world, name);
        edit_claim(&mut world, &format!("data-0-{name}"), |claim| claim.meta.deleting = true);
    }
    world.answers = Answers::default();
    world.answers.quorum = healthy_quorum(&world);
    world.answers.partitions = Answer::Silent("no broker serves".into());
    world.answers.registered = Answer::Silent("no broker serves".into());
    let plan = plan(&world).unwrap();
    let said: String = plan.notices.iter().map(|notice| format!("{}: {notice}\n", notice.reason())).collect();
    assert_eq!(plan.restarts, [], "{said}");
    assert!(names.iter().all(|name| said.contains(&format!("DataLossHeld: pod {name}"))), "{said}");
}

/// The image cannot be pulled, and somebody deletes PVCs: Kubernetes keeps what is on them as long as the pods are there, and starts
/// nothing on them.
#[test]
fn a_pod_that_waits_on_a_deleted_claim_makes_place_when_nothing_is_lost_by_it() {
    let mut world = converged();
    let pod = "my-cluster-brokers-0";
    let waits = |world: &mut World, pod: &str| {
        never_served(world, pod);
        edit_pod(world, pod, |pod| pod.phase = "Pending".into());
    };
    waits(&mut world, pod);
    let only = [partition("single", &[0], &[0], 1)];
    let elsewhere = [partition("orders", &[0, 1, 2], &[1, 2], 2)];
    assert_eq!(restarts(&mut world, &only).0, [] as [&str; 0], "nobody asked for it");
    edit_claim(&mut world, "data-0-my-cluster-brokers-0", |claim| claim.meta.deleting = true);
    let (pods, said) = restarts(&mut world, &only);
    assert!(pods.is_empty() && said.contains("DataLossHeld") && said.contains("single-0"), "{said}");
    let plan = answered(&mut world, &elsewhere);
    let [restart] = &plan.restarts[..] else { panic!("{plan:?}") };
    assert!(restart.pod == pod && restart.loses_disk && restart.claims.is_empty(), "{restart:?}");
    let why: String = restart.causes.iter().map(ToString::to_string).collect();
    assert!(why.contains("PVC data-0-my-cluster-brokers-0"), "{why}");
    annotate_kafka(&mut world, "karst.io/allow-data-loss", pod);
    assert_eq!(restarts(&mut world, &only).0, [pod]);

    // Somebody else that is away keeps nobody from it: it may be what that one waits for.
    never_served(&mut world, "my-cluster-brokers-2");
    assert_eq!(restarts(&mut world, &only).0, [pod]);
    // All of them at once: what two of them have is judged together.
    for other in ["my-cluster-brokers-1", "my-cluster-brokers-2"] {
        waits(&mut world, other);
        edit_claim(&mut world, &format!("data-0-{other}"), |claim| claim.meta.deleting = true);
    }
    annotate_kafka(&mut world, "karst.io/allow-data-loss", "");
    assert_eq!(restarts(&mut world, &elsewhere).0, [pod], "the others have what was acknowledged");
    let mut leaderless = partition("orders", &[0, 1, 2], &[2], 2);
    leaderless.leader = None;
    let (pods, said) = restarts(&mut world, &[leaderless]);
    assert!(pods.is_empty(), "{said}");
}

/// Its vote goes with its disk, and is given up first.
#[test]
fn a_controller_that_waits_on_a_deleted_claim_leaves_the_quorum_before_it_makes_place() {
    let mut world = converged();
    let pod = "my-cluster-controllers-4";
    never_served(&mut world, pod);
    edit_pod(&mut world, pod, |pod| pod.phase = "Pending".into());
    edit_claim(&mut world, "data-0-my-cluster-controllers-4", |claim| claim.meta.deleting = true);
    let mut kafka = Kafka::formed(&world);
    let plan = answered(&mut world, &[]);
    assert!(plan.restarts.is_empty(), "{plan:?}");
    let change = plan.change().unwrap().to_string();
    assert!(change.contains('4'), "{change}");
    kafka.voters.retain(|voter| voter.node != NodeId(4));
    world.answers.quorum = kafka.quorum(&world);
    let pods: Vec<_> = karst_core::plan::plan(&world).unwrap().restarts;
    assert!(matches!(&pods[..], [restart] if restart.pod == pod), "{pods:?}");
}

/// Whoever may change a pod may take its labels off, by mistake too.
#[test]
fn a_broker_that_lost_its_labels_is_judged_as_what_its_pool_asks_for() {
    let mut world = converged();
    let pod = "my-cluster-brokers-0";
    ask_pod(&mut world, pod, EMPTY);
    let only = [partition("single", &[0], &[0], 1)];
    for labels in [[None, None], [Some("false"), Some("false")]] {
        let names = ["strimzi.io/broker-role", "strimzi.io/controller-role"];
        edit_pod(&mut world, pod, |pod| {
            for (name, value) in names.into_iter().zip(labels) {
                pod.meta.labels.remove(name);
                pod.meta.labels.extend(value.map(|value| (name.to_owned(), value.to_owned())));
            }
        });
        let (pods, said) = restarts(&mut world, &only);
        assert!(pods.is_empty() && said.contains("single-0"), "{labels:?}: {said}");
    }
}

#[test]
fn a_voter_that_lost_its_labels_leaves_the_quorum_before_its_disk_goes() {
    let mut world = converged();
    let pod = "my-cluster-controllers-4";
    ask_pod(&mut world, pod, EMPTY);
    world.answers = Answers::default();
    world.answers.quorum = healthy_quorum(&world);
    edit_pod(&mut world, pod, |pod| drop(pod.meta.labels.remove("strimzi.io/controller-role")));
    let decided = decide(&world);
    assert!(decided.restarts.is_empty(), "{decided:?}");
    // Also while nobody tells who votes.
    answered(&mut world, &[]);
    world.answers.quorum = Answer::Silent("nobody leads".into());
    let silent = plan(&world).unwrap();
    let is_told = |part: &str| silent.notices.iter().any(|notice| notice.to_string().contains(part));
    assert!(silent.restarts.is_empty() && is_told("the quorum does not answer"), "{silent:?}");
}

/// The label says what the pod was made as, and it is made as something else next.
#[test]
fn a_controller_that_is_to_become_a_broker_too_is_not_asked_what_only_a_broker_can_have() {
    let mut world = converged();
    edit_pool(&mut world, "controllers", |pool| {
        pool.spec.roles = vec![karst_api::Role::Controller, karst_api::Role::Broker];
    });
    for _ in 0..8 {
        let plan = answered(&mut world, &[]);
        if !plan.restarts.is_empty() {
            break;
        }
        carry_out(&mut world, plan);
    }
    world.answers.partitions = Answer::Silent("no broker serves".into());
    let plan = plan(&world).unwrap();
    assert_eq!(plan.restarts.len(), 1, "{:?}", plan.notices);
}

/// What was asked of a pod may be taken back while nobody tells of it.
#[test]
fn who_empties_a_disk_does_so_only_while_that_is_asked_of_the_pod() {
    let mut world = converged();
    let pod = "my-cluster-brokers-0";
    ask_pod(&mut world, pod, EMPTY);
    ask_pod(&mut world, pod, MANUAL);
    let plan = answered(&mut world, &[]);
    let [restart] = &plan.restarts[..] else { panic!("{plan:?}") };
    let is_asked = |edit: &dyn Fn(&mut karst_core::world::PodView)| {
        let mut pod = (*world.pods[pod]).clone();
        edit(&mut pod);
        restart.is_still_asked_of(&pod)
    };
    assert!(restart.loses_disk && is_asked(&|_| {}));
    for annotation in [EMPTY, MANUAL] {
        assert!(!is_asked(&|pod| drop(pod.meta.annotations.remove(annotation))), "{annotation}");
        let not = |pod: &mut karst_core::world::PodView| {
            pod.meta.annotations.insert(annotation.into(), "false".into());
        };
        assert!(!is_asked(&not), "{annotation}");
    }
    assert!(!is_asked(&|pod| pod.meta.uid = "another".into()));
    assert!(!is_asked(&|pod| pod.meta.deleting = true));
}

#[test]
fn what_a_person_allowed_is_forgotten_when_it_is_done() {
    let mut world = converged();
    annotate_kafka(&mut world, "karst.io/allow-data-loss", "my-cluster-brokers-0");
    ask_pod(&mut world, "my-cluster-brokers-0", EMPTY);
    let only = [partition("single", &[0], &[0], 1)];
    let plan = answered(&mut world, &only);
    assert_eq!((plan.restarts.len(), plan.forgotten.as_slice()), (1, [].as_slice()), "{plan:?}");
    carry_out(&mut world, plan);
    assert!(!world.pods.contains_key("my-cluster-brokers-0"));
    converge_with(&mut world, &only);
    assert!(world.pods.contains_key("my-cluster-brokers-0"));
    assert_eq!(
        world.kafka.metadata.annotations.as_ref().and_then(|all| all.get("karst.io/allow-data-loss")),
        None
    );
}

#[test]
fn ephemeral_brokers_restart_when_all_their_copies_are_elsewhere() {
    let mut world = with_storage("{type: ephemeral}", 3);
    ask_pod(&mut world, "my-cluster-brokers-0", MANUAL);
    let three = |in_sync: &[i32]| [partition("orders", &[0, 1, 2], in_sync, 2)];
    assert_eq!(restarts(&mut world, &three(&[0, 1, 2])).0, ["my-cluster-brokers-0"]);
    let (pods, said) = restarts(&mut world, &three(&[0, 1]));
    assert!(pods.is_empty() && said.contains("orders-0"), "{said}");
    assert_eq!(restarts(&mut world, &[partition("one", &[0], &[0], 1)]).0, [] as [&str; 0]);
    // The copy that is complete, though it is not in sync any more: eligible to lead.
    let mut eligible = partition("orders", &[0, 1, 2], &[1], 2);
    eligible.eligible = [NodeId(0)].into();
    let (pods, said) = restarts(&mut world, &[eligible]);
    assert!(pods.is_empty() && said.contains("orders-0"), "{said}");
}

/// Its disk has all that was acknowledged, though it is not in sync any more (KIP-966).
#[test]
fn an_eligible_leader_that_crashes_keeps_its_ephemeral_disk() {
    let mut world = with_storage("{type: ephemeral}", 3);
    let pod = "my-cluster-brokers-0";
    ask_pod(&mut world, pod, MANUAL);
    edit_pod(&mut world, pod, |pod| {
        (pod.ready, pod.stuck) = (false, Some("CrashLoopBackOff: OOMKilled".into()));
    });
    let mut orders = partition("orders", &[0, 1, 2], &[1], 2);
    assert_eq!(restarts(&mut world, &[orders.clone()]).0, [pod], "others have what it has");
    orders.eligible = [NodeId(0)].into();
    let (pods, said) = restarts(&mut world, &[orders.clone()]);
    assert!(pods.is_empty() && said.contains("orders-0"), "{said}");
    (orders.eligible, orders.last_known) = (BTreeSet::new(), [NodeId(0)].into());
    assert_eq!(restarts(&mut world, &[orders]).0, [] as [&str; 0]);
}

#[test]
fn ephemeral_nodes_that_crash_are_not_all_replaced_when_memory_is_raised() {
    let mut world = with_storage("{type: ephemeral}", 3);
    let since = Timestamp::from_second(world.now.as_second() - 300).unwrap();
    let names: Vec<String> = world.pods.keys().filter(|name| name.contains("brokers")).cloned().collect();
    for name in &names {
        ask_pod(&mut world, name, MANUAL);
        edit_pod(&mut world, name, |pod| {
            (pod.ready, pod.since, pod.stuck) =
                (false, Some(since), Some("CrashLoopBackOff: OOMKilled".into()));
        });
    }
    world.answers = Answers::default();
    world.answers.quorum = healthy_quorum(&world);
    world.answers.partitions = Answer::Silent("no broker serves".into());
    world.answers.registered = Answer::Silent("no broker serves".into());
    let plan = plan(&world).unwrap();
    assert_eq!(plan.restarts, []);
    let said: String = plan.notices.iter().map(|notice| format!("{}: {notice}\n", notice.reason())).collect();
    assert!(names.iter().all(|name| said.contains(&format!("DataLossHeld: pod {name}"))), "{said}");
    // What never served has nothing to lose.
    for name in &names {
        edit_pod(&mut world, name, |pod| pod.was_ready = false);
    }
    assert_eq!(karst_core::plan::plan(&world).unwrap().restarts.len(), 3);
}

#[test]
fn as_many_replicas_as_their_minimum_restart_one_after_the_other() {
    for replicas in [[0, 1].as_slice(), &[0, 1, 2]] {
        let mut world = converged();
        ask_pod(&mut world, "my-cluster-brokers-0", MANUAL);
        let all = partition("tight", replicas, replicas, replicas.len());
        assert_eq!(restarts(&mut world, &[all]).0, ["my-cluster-brokers-0"]);
        let one_less = &replicas[..replicas.len() - 1];
        let (pods, said) = restarts(&mut world, &[partition("tight", replicas, one_less, replicas.len())]);
        assert!(pods.is_empty() && said.contains("tight-0"), "{said}");
    }
}

#[test]
fn a_minimum_that_cannot_be_read_or_a_partition_without_a_leader_holds_a_restart() {
    let mut world = converged();
    ask_pod(&mut world, "my-cluster-brokers-0", MANUAL);
    let mut unread = partition("orders", &[0, 1, 2], &[0, 1, 2], 2);
    unread.min_in_sync = None;
    let (pods, said) = restarts(&mut world, &[unread]);
    assert!(pods.is_empty() && said.contains("min.insync.replicas"), "{said}");

    let mut leaderless = partition("orders", &[0, 1, 2], &[2], 2);
    leaderless.leader = None;
    let (pods, said) = restarts(&mut world, &[leaderless.clone()]);
    assert!(pods.is_empty() && said.contains("without a leader"), "{said}");
    // Nobody else could lead it: a restart may even help.
    leaderless.in_sync = [NodeId(0)].into();
    assert_eq!(restarts(&mut world, &[leaderless]).0, ["my-cluster-brokers-0"]);
}

#[test]
fn a_replica_in_a_directory_that_failed_does_not_count() {
    let mut world = converged();
    ask_pod(&mut world, "my-cluster-brokers-0", MANUAL);
    let mut orders = partition("orders", &[0, 1, 2], &[0, 1, 2], 2);
    orders.offline = [NodeId(2)].into();
    assert_eq!(restarts(&mut world, &[orders.clone()]).0, [] as [&str; 0]);
    ask_pod(&mut world, "my-cluster-brokers-0", EMPTY);
    assert_eq!(restarts(&mut world, &[orders]).0, [] as [&str; 0]);
}

/// The view of the ISR may be older than the pods.
#[test]
fn a_broker_that_does_not_serve_or_is_on_its_way_out_is_not_counted_on() {
    let orders = [partition("orders", &[0, 1, 2], &[0, 1, 2], 2)];
    let mut world = converged();
    ask_pod(&mut world, "my-cluster-brokers-0", MANUAL);
    assert_eq!(restarts(&mut world, &orders).0, ["my-cluster-brokers-0"]);
    // Its pod set does not list it any more, and its pod is still there.
    let set = Arc::make_mut(world.pod_sets.get_mut("my-cluster-brokers").unwrap());
    set.pods.remove("my-cluster-brokers-1");
    let tight = [partition("orders", &[0, 1], &[0, 1], 1)];
    let plan = answered(&mut world, &tight);
    assert!(plan.restarts.is_empty());
}

/// It is in the ISR until its session ends, and leads nothing afterwards.
#[test]
fn a_broker_that_is_cut_off_from_the_controllers_is_not_counted_on() {
    let mut world = converged();
    ask_pod(&mut world, "my-cluster-brokers-0", MANUAL);
    let mut quorum = healthy_quorum(&world);
    let Answer::Known(known) = &mut quorum else { panic!("a quorum") };
    let cut_off = known.observers.iter_mut().find(|one| one.node == NodeId(1)).unwrap();
    cut_off.behind = Some(std::time::Duration::from_secs(5));
    world.answers.quorum = quorum;
    let tight = partition("tight", &[0, 1], &[0, 1], 1);
    world.answers.partitions = Answer::Known(Partitions { of: nodes(&[0]), found: vec![tight] });
    world.answers.registered = Kafka::default().registered(&world);
    let plan = plan(&world).unwrap();
    let said: String = plan.notices.iter().map(ToString::to_string).collect();
    assert!(plan.restarts.is_empty() && said.contains("tight-0"), "{said}");
}

#[test]
fn a_broker_that_recovers_its_logs_is_not_restarted_and_its_progress_is_told() {
    let mut world = converged();
    let pod = "my-cluster-brokers-1";
    ask_pod(&mut world, pod, MANUAL);
    let since = Timestamp::from_second(world.now.as_second() - 3600).unwrap();
    edit_pod(&mut world, pod, |pod| (pod.ready, pod.since) = (false, Some(since)));
    let fenced = |world: &mut World| {
        let brokers = (0..3).map(|id| RegisteredBroker { node: NodeId(id), fenced: id == 1 }).collect();
        world.answers.registered = Answer::Known(Registered { brokers, fenced_known: true });
        world.answers.quorum = healthy_quorum(world);
        world.answers.partitions = Answer::Known(Partitions { of: nodes(&[1]), found: Vec::new() });
    };
    fenced(&mut world);
    let plan = plan(&world).unwrap();
    assert_eq!(plan.questions.launchers.keys().collect::<Vec<_>>(), [&NodeId(1)]);
    assert!(plan.restarts.is_empty());

    let mut said_to_be = |answer: Answer<LauncherView>| {
        world.answers.launchers.insert(NodeId(1), answer);
        let plan = karst_core::plan::plan(&world).unwrap();
        let said: String = plan.notices.iter().map(ToString::to_string).collect();
        (plan.restarts.len(), said)
    };
    let recovery = Some(Recovery { done: 17, all: 340 });
    let (count, said) = said_to_be(Answer::Known(LauncherView { recovery, ..LauncherView::default() }));
    assert!(count == 0 && said.contains("17 of 340"), "{said}");
    let (count, said) = said_to_be(Answer::Silent("connection refused".into()));
    assert!(count == 0 && said.contains("connection refused"), "{said}");
    // It does nothing for anybody.
    let not_recovering = Answer::Known(LauncherView::default());
    assert_eq!(said_to_be(not_recovering.clone()).0, 1);
    // It has read its logs, and will lead in a moment what nobody else can.
    let mut waits = partition("orders", &[0, 1, 2], &[1], 2);
    waits.leader = None;
    world.answers.launchers.insert(NodeId(1), not_recovering);
    let mut restarts_with = |partition: &PartitionView| {
        let found = vec![partition.clone()];
        world.answers.partitions = Answer::Known(Partitions { of: nodes(&[1]), found });
        let plan = karst_core::plan::plan(&world).unwrap();
        (plan.restarts.len(), plan.notices.iter().map(ToString::to_string).collect::<String>())
    };
    let (count, said) = restarts_with(&waits);
    assert!(count == 0 && said.contains("orders-0") && said.contains("delete its pod"), "{said}");
    // It leads already, by what is known now.
    waits.leader = Some(NodeId(1));
    assert_eq!(restarts_with(&waits).0, 0);
    (waits.leader, waits.in_sync) = (Some(NodeId(0)), [NodeId(0), NodeId(2)].into());
    assert_eq!(restarts_with(&waits).0, 1);
}

/// Between the answer and the deletion of its pod it could be back in its ISRs, and be counted on by others.
#[test]
fn a_broker_that_runs_and_does_not_serve_yet_is_given_some_time_to_come_back() {
    let mut world = converged();
    let pod = "my-cluster-brokers-1";
    ask_pod(&mut world, pod, MANUAL);
    world.answers.launchers.insert(NodeId(1), Answer::Known(LauncherView::default()));
    let lacks_it = [partition("orders", &[0, 1, 2], &[0], 2)];
    let mut late_for = |seconds: i64, stuck: Option<&str>| {
        let since = Timestamp::from_second(world.now.as_second() - seconds).unwrap();
        edit_pod(&mut world, pod, |pod| {
            (pod.ready, pod.since, pod.stuck) = (false, Some(since), stuck.map(str::to_owned));
        });
        let brokers = (0..3).map(|id| RegisteredBroker { node: NodeId(id), fenced: id == 1 }).collect();
        world.answers.registered = Answer::Known(Registered { brokers, fenced_known: true });
        world.answers.quorum = healthy_quorum(&world);
        world.answers.partitions = Answer::Known(Partitions { of: nodes(&[1]), found: lacks_it.to_vec() });
        let plan = karst_core::plan::plan(&world).unwrap();
        let said: String = plan.notices.iter().map(ToString::to_string).collect();
        (plan.restarts.len(), plan.look_again.is_some(), said)
    };
    assert_eq!(late_for(5, None), (0, true, String::new()), "that is not worth a word");
    let (count, looks_again, said) = late_for(25, None);
    assert!(count == 0 && looks_again && said.contains("given 30 s to come back"), "{said}");
    assert_eq!(late_for(31, None).0, 1, "it may be what the rest waits for");
    assert_eq!(late_for(5, Some("CrashLoopBackOff")).0, 1, "it does not run");
}

/// Its launcher knows first that it serves. Between that and the next word of Kafka it comes back to its ISRs, and others count on it.
#[test]
fn a_broker_that_serves_by_its_launchers_word_is_left_alone_until_kafka_knows() {
    let mut world = converged();
    let pod = "my-cluster-brokers-1";
    ask_pod(&mut world, pod, MANUAL);
    let since = Timestamp::from_second(world.now.as_second() - 60).unwrap();
    edit_pod(&mut world, pod, |pod| (pod.ready, pod.since) = (false, Some(since)));
    let brokers = (0..3).map(|id| RegisteredBroker { node: NodeId(id), fenced: id == 1 }).collect();
    world.answers.registered = Answer::Known(Registered { brokers, fenced_known: true });
    world.answers.quorum = healthy_quorum(&world);
    let can_do_without = vec![partition("orders", &[0, 1, 2], &[0, 2], 2)];
    world.answers.partitions = Answer::Known(Partitions { of: nodes(&[1]), found: can_do_without });
    let mut restarts_when = |serves| {
        let said = LauncherView { serves, ..LauncherView::default() };
        world.answers.launchers.insert(NodeId(1), Answer::Known(said));
        karst_core::plan::plan(&world).unwrap().restarts.len()
    };
    assert_eq!(restarts_when(false), 1, "it may be what the rest waits for");
    assert_eq!(restarts_when(true), 0);
}

#[test]
fn ephemeral_controllers_leave_the_quorum_before_their_pods_go_and_join_it_again() {
    for count in [2, 3] {
        let mut world = with_storage("{type: ephemeral}", count);
        let mut kafka = Kafka::formed(&world);
        let before: BTreeSet<_> = kafka.voters.iter().copied().collect();
        let asked: Vec<String> =
            world.pods.keys().filter(|name| name.contains("controllers")).cloned().collect();
        for pod in &asked {
            ask_pod(&mut world, pod, MANUAL);
        }
        for _ in steps(300) {
            let voted: BTreeSet<NodeId> = kafka.voters.iter().map(|voter| voter.node).collect();
            let uids: BTreeSet<String> = world.pods.values().map(|pod| pod.meta.uid.clone()).collect();
            if !step(&mut world, &mut kafka, &[]) {
                break;
            }
            assert!(kafka.voters.len() + 1 >= count, "only one is away at a time");
            let replaced = world.pods.values().filter(|pod| !uids.contains(&pod.meta.uid));
            for node in replaced.filter_map(|pod| node_of_pod(&pod.meta.name)) {
                assert!(!voted.contains(&node), "the disk of voter {node} went with its pod");
            }
        }
        let after: BTreeSet<_> = kafka.voters.iter().copied().collect();
        assert_eq!(after.len(), count);
        assert!(after.is_disjoint(&before), "each has a new directory");
    }
}

#[test]
fn the_only_controller_on_an_ephemeral_disk_waits_for_a_person() {
    let mut world = with_storage("{type: ephemeral}", 1);
    let pod = "my-cluster-controllers-3";
    ask_pod(&mut world, pod, MANUAL);
    ask_pod(&mut world, "my-cluster-brokers-0", MANUAL);
    let (pods, said) = restarts(&mut world, &[]);
    assert!(said.contains("DataLossHeld") && said.contains("metadata of the whole cluster"), "{said}");
    assert_eq!(pods, ["my-cluster-brokers-0"], "nobody else waits for that person");
    annotate_kafka(&mut world, "karst.io/allow-data-loss", pod);
    assert_eq!(restarts(&mut world, &[]).0, [pod]);
}

/// Between a leave and a join no majority may hang on a voter that is away.
#[test]
fn no_voter_restarts_while_a_wanted_one_is_missing_and_one_that_does_not_vote_may() {
    let mut world = converged();
    for pod in ["my-cluster-controllers-3", "my-cluster-controllers-4", "my-cluster-controllers-5"] {
        ask_pod(&mut world, pod, MANUAL);
    }
    let mut quorum = healthy_quorum(&world);
    if let Answer::Known(quorum) = &mut quorum {
        quorum.voters.retain(|voter| voter.node != NodeId(5));
    }
    world.answers.quorum = quorum;
    let plan = decide(&world);
    let pods: Vec<&str> = plan.restarts.iter().map(|restart| restart.pod.as_str()).collect();
    assert_eq!(pods, ["my-cluster-controllers-5"]);
}

/// Its vote could be what another leader still counts, and its disk goes with its pod.
#[test]
fn a_controller_whose_leave_is_not_committed_is_not_restarted() {
    let mut world = with_storage("{type: ephemeral}", 2);
    ask_pod(&mut world, "my-cluster-controllers-3", MANUAL);
    let mut left = healthy_quorum(&world);
    let Answer::Known(quorum) = &mut left else { panic!("a quorum") };
    quorum.voters.retain(|voter| voter.node != NodeId(3));
    let mut restarts_when = |is_committed: bool| {
        let Answer::Known(quorum) = &mut left else { panic!("a quorum") };
        quorum.is_committed = is_committed;
        world.answers.quorum = left.clone();
        decide(&world).restarts.len()
    };
    assert_eq!((restarts_when(false), restarts_when(true)), (0, 1));
}

/// The others wait for its vote, and it cannot vote before it restarts as a controller.
#[test]
fn a_broker_that_is_to_become_a_controller_restarts_before_those_that_wait_for_its_vote() {
    let mut world = converged();
    edit_pool(&mut world, "brokers", |pool| {
        pool.spec.roles = vec![karst_api::Role::Controller, karst_api::Role::Broker];
    });
    for pod in ["my-cluster-controllers-3", "my-cluster-controllers-4", "my-cluster-controllers-5"] {
        ask_pod(&mut world, pod, MANUAL);
    }
    let mut kafka = Kafka::formed(&world);
    for _ in steps(300) {
        if !step(&mut world, &mut kafka, &[]) {
            break;
        }
    }
    let voters: BTreeSet<i32> = kafka.voters.iter().map(|voter| voter.node.0).collect();
    assert_eq!(voters, (0..6).collect(), "{}", warnings(&world));
    assert!(world.pods.values().all(|pod| !pod.meta.annotations.contains_key(MANUAL)));
}

/// Another operator may be replacing its pod, and its disk with it.
#[test]
fn who_joins_does_so_with_the_pod_that_was_seen() {
    let world = converged();
    let pod = |edit: &dyn Fn(&mut karst_core::world::PodView)| {
        let mut pod = (*world.pods["my-cluster-controllers-3"]).clone();
        edit(&mut pod);
        world.still_has_pod_of(NodeId(3), [&pod])
    };
    assert!(pod(&|_| {}));
    assert!(pod(&|pod| pod.ready = false), "Kafka knows better");
    assert!(!pod(&|pod| pod.meta.deleting = true));
    assert!(!pod(&|pod| pod.meta.uid = "another one".into()));
    assert!(!world.still_has_pod_of(NodeId(3), []));
}

/// Kafka that hangs and launchers that are silent take seconds each: together no longer than one of them.
#[test]
fn launchers_of_late_brokers_are_asked_together_with_kafka() {
    let mut world = converged();
    let since = Timestamp::from_second(world.now.as_second() - 3600).unwrap();
    edit_pod(&mut world, "my-cluster-brokers-1", |pod| (pod.ready, pod.since) = (false, Some(since)));
    world.answers = Answers::default();
    let questions = plan(&world).unwrap().questions;
    assert!(!questions.quorum.is_empty() && questions.registered);
    assert_eq!(questions.launchers.keys().collect::<Vec<_>>(), [&NodeId(1)]);
}
