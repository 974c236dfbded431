//! Certificates end on their day: what restarts for their sake waits for nothing but what would be lost by it.

use super::*;
use karst_core::plan::Plan;

/// Day 361: the certificates that the pods started with end in some days at most, and new ones are there.
fn late(mut life: Life) -> Life {
    assert_eq!(life.pass(days(336)), []);
    life.world.now += days(25);
    life
}

/// What a pass comes to when Kafka was asked all it had to be.
fn decided(life: &mut Life) -> Plan {
    life.world.answers = Answers::default();
    for _ in 0..8 {
        let plan = plan(&life.world).unwrap();
        if plan.questions.is_empty() {
            return plan;
        }
        life.kafka.answer(&mut life.world, &[], &plan.questions);
    }
    panic!("it never stops asking");
}

fn ends_soon(restart: &Restart) -> bool {
    restart.causes.iter().any(|cause| matches!(cause, Cause::Certificates(Stale::EndsSoon(_))))
}

fn begun() -> Life {
    let mut life = Life::begin(quickstart());
    life.restarts.clear();
    life
}

#[test]
fn a_node_that_is_away_and_needs_no_restart_holds_nobody_whose_certificate_ends() {
    let mut life = begun();
    life.pass(days(336));
    edit_pod(&mut life.world, "my-cluster-brokers-2", |pod| {
        pod.meta.annotations.insert(MANUAL_ROLL_ANNOTATION.into(), "true".into());
    });
    assert_eq!(life.pass(days(1)).len(), 1);
    life.world.now += days(24);
    edit_pod(&mut life.world, "my-cluster-brokers-2", |pod| pod.ready = false);
    let restarts = decided(&mut life).restarts;
    assert!(restarts.len() == 1 && ends_soon(&restarts[0]), "{restarts:?}");
    assert!(restarts[0].cannot_wait());
}

#[test]
fn controllers_that_cannot_restart_hold_no_broker_whose_certificate_ends() {
    let mut life = late(begun());
    let plan = decided(&mut life);
    assert!(plan.restarts[0].pod.contains("controllers"), "{:?}", plan.restarts);
    life.world.answers.quorum = Answer::Silent("no leader".into());
    let plan = plan_again(&mut life);
    assert!(plan.restarts.len() == 1 && plan.restarts[0].pod.contains("brokers"), "{:?}", plan.restarts);
}

/// With what was answered already.
fn plan_again(life: &mut Life) -> Plan {
    for _ in 0..8 {
        let plan = plan(&life.world).unwrap();
        if plan.questions.is_empty() {
            return plan;
        }
        let quorum = life.world.answers.quorum.clone();
        life.kafka.answer(&mut life.world, &[], &plan.questions);
        life.world.answers.quorum = quorum;
    }
    panic!("it never stops asking");
}

#[test]
fn a_pod_that_cannot_restart_though_its_certificate_ends_is_told() {
    let mut life = late(begun());
    for pod in ["my-cluster-controllers-4", "my-cluster-controllers-5"] {
        edit_pod(&mut life.world, pod, |pod| pod.ready = false);
    }
    for pod in ["my-cluster-brokers-0", "my-cluster-brokers-1", "my-cluster-brokers-2"] {
        edit_pod(&mut life.world, pod, |pod| {
            pod.meta.annotations.insert("karst.io/certificate-end".into(), "2099-01-01T00:00:00Z".into());
        });
    }
    decided(&mut life);
    life.world.answers.quorum = Answer::Silent("no leader".into());
    let plan = plan_again(&mut life);
    assert_eq!(plan.restarts, []);
    let told = plan.notices.iter().find(|notice| notice.reason() == "CertificateEnds").expect("a warning");
    assert!(told.to_string().contains("has to restart and cannot yet"), "{told}");
}

/// The certificates of the pods are renewed after the mistake was made: pod sets are as they were before.
#[test]
fn a_pod_that_restarts_for_its_certificate_starts_with_the_new_one_whatever_its_pod_set_says() {
    for mistake in MISTAKES {
        let mut life = begun();
        mistake(&mut life.world);
        let mut life = late(life);
        all_restart(&mut life);
    }
}

const MISTAKES: [fn(&mut World); 2] = [
    |world| edit_kafka(world, |kafka| kafka.spec.kafka.version = Some("0.8".into())),
    |world| edit_pool(world, "brokers", |pool| pool.spec.roles.clear()),
];

/// Of a key that is replaced everybody has to learn, also those of whom nothing can be carried out: the old one would sign until it ends,
/// and everything would end with it.
#[test]
fn a_new_key_is_learnt_and_shown_by_pods_of_whom_nothing_can_be_carried_out() {
    for mistake in MISTAKES {
        let mut life = begun();
        mistake(&mut life.world);
        assert_eq!(life.pass(days(1)), []);
        annotate(&mut life.world, CLUSTER_CA, "strimzi.io/force-replace");
        let restarts = life.pass(days(1));
        assert!(matches!(decided(&mut life).progress, Some(Progress::Refused(_))));
        let causes = stale(&restarts);
        assert_eq!(causes.len(), 12, "{causes:?}");
        assert!(causes[..6].iter().all(|cause| **cause == Cause::Certificates(Stale::Trust)), "{causes:?}");
        assert!(causes[6..].iter().all(|cause| **cause == Cause::Certificates(Stale::Key)), "{causes:?}");
        let SecretContent::Authority(left) = &life.world.secrets[CLUSTER_CA_CERT].content else { panic!() };
        let left: Vec<_> = left.secret.data.keys().collect();
        assert_eq!(left, ["ca.crt", "ca.p12", "ca.password"], "nothing of the old key is left");
        // And so certificates are renewed.
        let before = leaf_end(&life.world, "my-cluster-brokers-0");
        life.pass(days(336));
        assert!(leaf_end(&life.world, "my-cluster-brokers-0") > before);
    }
}

/// The same guards as for a certificate that ends, and a word.
#[test]
fn a_new_key_takes_no_pod_from_partitions_that_need_it() {
    let mut life = begun();
    edit_kafka(&mut life.world, |kafka| kafka.spec.kafka.version = Some("0.8".into()));
    annotate(&mut life.world, CLUSTER_CA, "strimzi.io/force-replace");
    while decided(&mut life).restarts.is_empty() {
        pass(&mut life.world, &mut life.kafka);
    }
    life.world.now += SignedDuration::from_mins(10);
    let busy = |node: i32| partition(&format!("busy-{node}"), &[0, 1, 2], &[node, (node + 1) % 3], 2);
    let held = |world: &mut World, kafka: &mut Kafka| {
        world.answers = Answers::default();
        loop {
            let plan = plan(world).unwrap();
            if plan.questions.is_empty() {
                return plan;
            }
            kafka.answer(world, &[busy(0), busy(1), busy(2)], &plan.questions);
        }
    };
    for pod in ["my-cluster-controllers-4", "my-cluster-controllers-5"] {
        edit_pod(&mut life.world, pod, |pod| pod.ready = false);
    }
    life.kafka.is_silent = true;
    let plan = held(&mut life.world, &mut life.kafka);
    assert_eq!(plan.restarts, []);
    let told: Vec<_> = plan.notices.iter().filter(|notice| notice.reason() == "RestartHeld").collect();
    assert_eq!(told.len(), 6, "{told:?}");
    assert!(told.iter().any(|told| told.to_string().contains("the quorum does not answer")), "{told:?}");
    assert!(told[0].to_string().contains("does not trust the new key"), "{told:?}");
}

/// What signs until all know the next key ends itself: nothing newer is there for anybody.
#[test]
fn certificates_that_end_without_a_newer_one_are_told() {
    let mut life = begun();
    let told = |world: &World| {
        let told = decide(world).notices.into_iter().filter(|notice| notice.reason() == "CertificateEnds");
        told.map(|notice| notice.to_string()).filter(|told| told.contains("no newer one")).collect::<Vec<_>>()
    };
    bring_your_own(&mut life.world);
    life.world.now += days(345);
    assert_eq!(told(&life.world), [""; 0], "there is time");
    life.world.now += days(18);
    let told = told(&life.world);
    assert!(told.len() == 1 && told[0].contains("nobody accepts the pod afterwards"), "{told:?}");
}

#[test]
fn a_paused_cluster_says_when_its_certificates_end() {
    let mut life = begun();
    edit_kafka(&mut life.world, |kafka| {
        let annotations = kafka.metadata.annotations.get_or_insert_default();
        annotations.insert("strimzi.io/pause-reconciliation".into(), "true".into());
    });
    let told = |world: &World| {
        let plan = decide(world);
        assert!(plan.certificates.is_empty() && plan.restarts.is_empty());
        plan.notices.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    life.world.now += days(340);
    assert_eq!(told(&life.world), [""; 0], "there is time");
    life.world.now += days(16);
    let told = told(&life.world);
    assert!(told.len() == 1 && told[0].contains("pauses the cluster"), "{told:?}");
}

/// One after the other, until none is left.
fn all_restart(life: &mut Life) {
    let mut restarted = Vec::new();
    for _ in 0..12 {
        let plan = decided(life);
        assert!(plan.restarts.len() <= 1, "{:?}", plan.restarts);
        assert!(plan.restarts.iter().all(ends_soon), "{:?}", plan.restarts);
        restarted.extend(plan.restarts.iter().map(|restart| restart.pod.clone()));
        pass(&mut life.world, &mut life.kafka);
        run_pods(&mut life.world, true);
    }
    restarted.sort();
    restarted.dedup();
    assert_eq!(restarted.len(), 6, "{restarted:?}");
    assert_eq!(decided(life).restarts, []);
}

#[test]
fn a_spec_that_is_not_valid_holds_no_pod_whose_certificate_ends() {
    let mut life = late(begun());
    edit_kafka(&mut life.world, |kafka| kafka.spec.kafka.version = Some("0.8".into()));
    assert!(matches!(decided(&mut life).progress, Some(Progress::Refused(_))));
    all_restart(&mut life);
}

#[test]
fn a_pool_that_is_not_valid_holds_no_pod_whose_certificate_ends() {
    let mut life = late(begun());
    edit_pool(&mut life.world, "brokers", |pool| pool.spec.roles.clear());
    all_restart(&mut life);
}

#[test]
fn without_a_word_of_the_quorum_nobody_restarts_in_a_cluster_that_is_not_valid() {
    let mut life = late(begun());
    edit_kafka(&mut life.world, |kafka| kafka.spec.kafka.version = Some("0.8".into()));
    decided(&mut life);
    life.world.answers.quorum = Answer::Silent("no leader".into());
    let plan = plan_again(&mut life);
    assert_eq!(plan.restarts, []);
    assert!(plan.notices.iter().any(|notice| notice.to_string().contains("the quorum does not answer")));
}

#[test]
fn a_cluster_that_is_too_large_holds_no_pod_whose_certificate_ends() {
    let mut life = late(begun());
    edit_pool(&mut life.world, "brokers", |pool| pool.spec.replicas = 900);
    assert!(matches!(decided(&mut life).progress, Some(Progress::Refused(_))));
    all_restart(&mut life);
}

#[test]
fn a_cluster_whose_identity_is_gone_holds_no_pod_whose_certificate_ends() {
    let mut life = late(begun());
    for pool in life.world.pools.values_mut() {
        Arc::make_mut(pool).status.as_mut().unwrap().cluster_id = None;
    }
    Arc::make_mut(&mut life.world.kafka).status.as_mut().unwrap().cluster_id = None;
    let plan = decided(&mut life);
    let Some(Progress::Refused(problems)) = &plan.progress else { panic!("{:?}", plan.progress) };
    assert_eq!(problems[0].reason(), "IdentityUnknown");
    all_restart(&mut life);
}

/// A pool that was made by hand, or by a newer operator, and that nobody here can read.
#[test]
fn a_pool_that_cannot_be_read_holds_no_pod_whose_certificate_ends() {
    let mut life = late(begun());
    life.world.pools.remove("brokers");
    life.world.unreadable = Some("KafkaNodePool brokers cannot be read: nested too deeply.".into());
    let plan = decided(&mut life);
    let Some(Progress::Refused(problems)) = &plan.progress else { panic!("{:?}", plan.progress) };
    assert_eq!(problems[0].reason(), "Unreadable");
    assert!(plan.facts.is_empty() && plan.objects.is_empty() && plan.removals.is_empty(), "{plan:?}");
    assert!(plan.protections.is_empty() && plan.deeds.is_empty(), "{plan:?}");
    all_restart(&mut life);
}
