//! Brokers that go: what they get while they are on their way, and what they leave behind.

use karst_core::ids::NodeId;
use karst_core::plan::{Deed, Plan, Removal, plan};
use karst_core::world::{Answer, Answers, PartitionView, World};

use crate::support::*;

const POD: &str = "my-cluster-brokers-6";
const CLAIM: &str = "data-0-my-cluster-brokers-6";

/// Decides, when all questions are answered. Without partitions Kafka does not say where they are.
fn decided(world: &mut World, kafka: &mut Kafka, partitions: Option<&[PartitionView]>) -> Plan {
    world.answers = Answers::default();
    for _ in 0..8 {
        let plan = plan(world).unwrap();
        if plan.questions.is_empty() {
            return plan;
        }
        kafka.answer(world, partitions.unwrap_or_default(), &plan.questions);
        if partitions.is_none() && !plan.questions.partitions_of.is_empty() {
            world.answers.partitions = Answer::Silent("no answer within 5 s".into());
        }
    }
    panic!("it never stops asking: {:?}", plan(world).unwrap().questions);
}

/// Decides and makes it so until there is nothing but this to do; pods are left as they are.
fn settled(world: &mut World, kafka: &mut Kafka, partitions: Option<&[PartitionView]>) -> Plan {
    loop {
        let plan = decided(world, kafka, partitions);
        if plan.facts.is_empty() && plan.certificates.is_empty() && plan.objects.is_empty() {
            return plan;
        }
        carry_out(world, plan);
    }
}

fn lists(world: &World, pod: &str) -> bool {
    world.pod_sets.values().any(|set| set.pods.contains_key(pod))
}

/// A fourth broker is no longer listed, and its pod is still there: whoever wrote that died.
fn leaving() -> (World, Kafka) {
    let mut world = converged();
    let mut kafka = Kafka::formed(&world);
    edit_pool(&mut world, "brokers", |pool| pool.spec.replicas = 4);
    converge_kafka(&mut world, &mut kafka, &[]);
    assert!(world.pods.contains_key(POD) && kafka.registered.contains(&NodeId(6)));
    edit_pool(&mut world, "brokers", |pool| pool.spec.replicas = 3);
    while lists(&world, POD) {
        let plan = decided(&mut world, &mut kafka, Some(&[]));
        carry_out(&mut world, plan);
    }
    assert!(world.pods.contains_key(POD) && world.claims.contains_key(CLAIM));
    (world, kafka)
}

fn late() -> [PartitionView; 1] {
    [partition("late", &[6], &[6], 1)]
}

fn said(plan: &Plan) -> String {
    plan.notices.iter().map(|notice| format!("{}: {notice}\n", notice.reason())).collect()
}

#[test]
fn a_broker_that_gets_a_partition_on_its_way_out_is_listed_again() {
    let (mut world, mut kafka) = leaving();
    let plan = settled(&mut world, &mut kafka, Some(&late()));
    assert!(lists(&world, POD), "its pod would go, with the only copy");
    assert!(said(&plan).contains("late-0"), "{}", said(&plan));
    // The partition moves, and it goes after all.
    settled(&mut world, &mut kafka, Some(&[]));
    assert!(!lists(&world, POD));
}

#[test]
fn a_broker_on_its_way_out_is_listed_again_while_kafka_is_silent() {
    let (mut world, mut kafka) = leaving();
    let plan = settled(&mut world, &mut kafka, None);
    assert!(lists(&world, POD));
    assert!(said(&plan).contains("no answer within 5 s"), "{}", said(&plan));
}

#[test]
fn a_broker_whose_pod_is_told_to_stop_is_on_its_way_whatever_kafka_says() {
    let (mut world, mut kafka) = leaving();
    edit_pod(&mut world, POD, |pod| pod.meta.deleting = true);
    settled(&mut world, &mut kafka, Some(&late()));
    assert!(!lists(&world, POD), "it would come back for a moment, and go again");
}

fn takes(plan: &Plan) -> (bool, bool) {
    let is_claim = |removal: &Removal| matches!(removal, Removal::Claim { claim, .. } if claim.name == CLAIM);
    (plan.removals.iter().any(is_claim), plan.deeds.contains(&Deed::Unregister(NodeId(6))))
}

#[test]
fn what_a_broker_left_behind_stays_as_long_as_partitions_live_there() {
    let (mut world, mut kafka) = leaving();
    world.pods.remove(POD);
    for partitions in [Some(late()), None] {
        let plan = settled(&mut world, &mut kafka, partitions.as_ref().map(<[_; 1]>::as_slice));
        assert_eq!(takes(&plan), (false, false), "the claim, and the registration");
        let said = said(&plan);
        let why = if partitions.is_some() { "late-0" } else { "no answer within 5 s" };
        for part in ["ScaleDownPreventionCheck", "node 6 is gone", CLAIM, "stays registered", why] {
            assert!(said.contains(part), "{part} is not in {said}");
        }
        assert!(plan.look_again.is_some());
        let is_other = |removal: &Removal| !matches!(removal, Removal::Claim { .. });
        assert!(plan.removals.iter().any(is_other), "its settings and its certificate are of no use");
        carry_out(&mut world, plan);
        assert!(world.claims.contains_key(CLAIM));
        world.config_maps.insert(POD.into(), {
            let mut map = (*world.config_maps["my-cluster-brokers-2"]).clone();
            map.meta.name = POD.into();
            map.meta.labels.insert("strimzi.io/pod-name".into(), POD.into());
            map.into()
        });
    }
    assert_eq!(takes(&settled(&mut world, &mut kafka, Some(&[]))), (true, true));

    // Whoever scales up again gets the broker back, on its disk.
    let claim = world.claims[CLAIM].meta.uid.clone();
    edit_pool(&mut world, "brokers", |pool| pool.spec.replicas = 4);
    converge_kafka(&mut world, &mut kafka, &late());
    assert!(world.pods.contains_key(POD));
    assert_eq!(world.claims[CLAIM].meta.uid, claim);
}

#[test]
fn whoever_skips_the_check_wants_nothing_back() {
    let (mut world, mut kafka) = leaving();
    world.pods.remove(POD);
    edit_kafka(&mut world, |kafka| {
        let annotations = kafka.metadata.annotations.get_or_insert_default();
        annotations.insert("strimzi.io/skip-broker-scaledown-check".into(), "true".into());
    });
    assert_eq!(takes(&settled(&mut world, &mut kafka, Some(&late()))), (true, true));
}

/// Controllers have no partitions, and a claim that never got a disk has nothing.
#[test]
fn what_can_hold_no_records_waits_for_nobody() {
    let (mut world, mut kafka) = leaving();
    world.pods.remove(POD);
    std::sync::Arc::make_mut(world.claims.get_mut(CLAIM).unwrap()).bound = false;
    assert!(takes(&settled(&mut world, &mut kafka, None)).0);

    let mut world = converged();
    let mut kafka = Kafka::formed(&world);
    edit_pool(&mut world, "controllers", |pool| pool.spec.replicas = 5);
    converge_kafka(&mut world, &mut kafka, &[]);
    edit_pool(&mut world, "controllers", |pool| pool.spec.replicas = 3);
    for _ in 0..300 {
        let plan = decided(&mut world, &mut kafka, None);
        let is_claim = |removal: &Removal| matches!(removal, Removal::Claim { .. });
        if plan.removals.iter().any(is_claim) {
            return;
        }
        for deed in &plan.deeds {
            kafka.do_it(deed);
        }
        carry_out(&mut world, plan);
        run_pods(&mut world, true);
    }
    panic!("the claims of controllers wait for brokers");
}

/// It starts empty in its new pool: the old disk is the only other copy until it has caught up.
#[test]
fn the_disk_of_a_broker_that_moved_stays_until_it_has_copied_all_of_it() {
    let mut world = converged();
    let mut kafka = Kafka::formed(&world);
    let mut small = (*world.pools["brokers"]).clone();
    (small.metadata.name, small.metadata.uid, small.status) =
        (Some("small".into()), Some("uid-small".into()), None);
    small.spec.replicas = 1;
    world.pools.insert("small".into(), small.into());
    converge_kafka(&mut world, &mut kafka, &[]);
    let (old, new, disk) = ("my-cluster-small-6", "my-cluster-brokers-6", "data-0-my-cluster-small-6");
    assert!(world.pods.contains_key(old));
    edit_pool(&mut world, "small", |pool| pool.spec.replicas = 0);
    edit_pool(&mut world, "brokers", |pool| pool.spec.replicas = 4);
    for (pool, key) in [("small", "strimzi.io/remove-node-ids"), ("brokers", "strimzi.io/next-node-ids")] {
        edit_pool(&mut world, pool, |pool| {
            pool.metadata.annotations.get_or_insert_default().insert(key.into(), "[6]".into());
        });
    }
    let copies = |in_sync: &[i32]| [partition("orders", &[0, 6], in_sync, 1)];
    while world.pods.contains_key(old) {
        assert!(step(&mut world, &mut kafka, &copies(&[0, 6])), "it never goes");
    }
    for behind in [copies(&[0]), copies(&[6])] {
        converge_kafka(&mut world, &mut kafka, &behind);
        assert!(world.pods.contains_key(new) && world.claims.contains_key(disk), "{behind:?}");
    }
    let said = conditions(&world, "Warning");
    assert!(said.iter().any(|(_, _, said)| said.contains(disk) && said.contains("orders-0")), "{said:?}");
    converge_kafka(&mut world, &mut kafka, &copies(&[0, 6]));
    assert!(!world.claims.contains_key(disk));
    assert!(conditions(&world, "Warning").is_empty());
}
