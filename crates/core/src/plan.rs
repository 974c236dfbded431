//! One pass, from top to bottom: what is true becomes what to do.
//!
//! Nothing here waits, reads a clock or talks to anybody. The order of a pass can be read here and nowhere else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use karst_api as api;
use serde_json::{Value, json};

use crate::arrivals::{self, Arrivals};
use crate::certificates;
use crate::cluster::{Cluster, Node, Pool};
use crate::dynamic::{self, Dynamic};
use crate::identity::{self, Identity};
use crate::ids::NodeId;
use crate::listeners::{self, address};
use crate::membership::{Change, Renewal};
use crate::memory::Trouble;
use crate::names::{
    ALLOW_LOSS_ANNOTATION, CLUSTER_LABEL, ClusterKey, EMPTY_VOTER_ANNOTATION, LISTENER_LABEL,
    MIGRATION_ANNOTATION, PAUSE_ANNOTATION, POOL_FINALIZER, POOL_LABEL, RESTORE_ANNOTATION, is_true,
};
use crate::notice::Notice;
use crate::objects::{self, Object, Render};
use crate::origin::{self, Runs};
use crate::problem::Problem;
use crate::quorum::{CONTROLLER_PORT, Kind};
use crate::reason::Reason;
use crate::rewrites::{self, Contest};
use crate::rolling::{Due, Roll};
use crate::safety::{self, Disks};
use crate::status::{self, Progress};
pub use crate::steps::{Deed, Fact, Mark, Plan, Protection, Questions, Racked, Removal, Seen};
use crate::world::{Answer, Answers, PodSetView, PodView, QuorumView, World};
use crate::{
    absences, anew, claims, completion, config, empty_disk, ending, ignored, left_behind, let_in, limits,
    membership, migration, own_certificates, pods, podset, rack, registration, removals, resolve,
    restoration, rolling, settings, strangers, terminating, upgrade,
};

/// How soon to ask a quorum again that did not answer.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// How soon to look at the quorum again. It does not tell when a voter is lost.
const LOOK_AT_QUORUM_AGAIN: Duration = Duration::from_secs(10);

/// How soon to look again whether partitions have left a node, or a voter may be restored. Nobody tells.
const LOOK_AT_PARTITIONS_AGAIN: Duration = Duration::from_secs(5);

/// How soon to look again at the labels of machines. They are not watched.
const LOOK_AT_MACHINES_AGAIN: Duration = Duration::from_secs(10);
/// How soon to look what became of what Kafka was asked to do. It does not tell.
const LOOK_AFTER_DEEDS: Duration = Duration::from_millis(300);
/// How many things Kafka is asked to do in one pass, at most.
const MOST_DEEDS: usize = 8;

/// Fields of the cluster's status that are never written with the rest of it.
pub const KAFKA_FACTS: &[&str] = &["clusterId", "initialControllers", "registeredNodeIds"];
/// Fields of a pool's status that are never written with the rest of it.
pub const POOL_FACTS: &[&str] = &["nodeIds", "clusterId", "roles"];

/// Decides one pass.
pub fn plan(world: &World) -> Result<Plan, serde_json::Error> {
    let mut plan = Plan::default();
    if world.kafka.metadata.deletion_timestamp.is_some() {
        return Ok(plan);
    }
    if is_paused(&world.kafka) {
        plan.notices.extend(certificates::ending_while_paused(world));
        // Who pauses a cluster and then asks for its disks to be kept does not mean later.
        if let Runs::Karst { without_others, .. } = origin::judge(world) {
            keep_claims(&mut plan, without_others.as_deref().unwrap_or(world))?;
        }
        return finish(plan, world, None, Progress::Paused);
    }
    // From here on, only what is the cluster's own counts.
    let (without_others, strangers) = match origin::judge(world) {
        Runs::Another(problem) => {
            plan.problems.push(problem.clone());
            return finish(plan, world, None, Progress::Refused(vec![problem]));
        }
        Runs::Karst { without_others, strangers } => (without_others, strangers),
    };
    let world = without_others.as_deref().unwrap_or(world);

    // Kafka's own word comes before everything: hardly anything can be decided without it.
    plan.questions = first_questions(world);
    if !plan.questions.is_empty() {
        return Ok(plan);
    }

    // What cannot be read is not gone: nothing is decided without it. Certificates end all the same.
    if let Some(why) = world.unreadable.clone() {
        certify(&mut plan, world, None);
        return refuse(plan, world, Problem::Unreadable { why }, &BTreeMap::new());
    }

    // Pools, roles, node ids.
    let resolved = resolve::resolve(world);
    plan.notices = resolved.notices;
    plan.notices.extend(strangers);
    plan.notices.extend(notices(world, resolved.cluster.as_ref()));
    let (terminating, until_late) = terminating::next(world);
    plan.notices.extend(terminating);
    plan.look_soon(until_late);
    plan.look_soon(absences::look_again(world));
    plan.problems = resolved.problems;
    let pool_problems = resolved.pool_problems;
    let (partitions_of, asks_quorum) = (resolved.partitions_of, resolved.asks_quorum);
    let (log_dirs_of, to_move) = (resolved.log_dirs_of, resolved.to_move);
    let moves = !resolved.moving.is_empty();
    plan.look_soon(strangers::look_again(world));
    plan.look_soon(resolved.awaits_commit.then_some(LOOK_AFTER_DEEDS));

    // Certificates, whatever is wrong with the rest.
    let refusal = certify(&mut plan, world, resolved.cluster.as_ref());
    let Some(cluster) = resolved.cluster else {
        let is_new = world.kafka.status.as_ref().is_none_or(|status| status.cluster_id.is_none());
        let progress = Progress::held_by(&plan.problems, is_new);
        return hold(plan, world, progress, &pool_problems);
    };

    // Refused before anything of it is durable.
    if let Some(problem) = limits::oversized(world, &cluster)? {
        return refuse(plan, world, problem, &pool_problems);
    }

    // Who the cluster is. What is not durable yet comes before all that is built on it.
    let identity = match identity::resolve(world, &cluster) {
        Ok(identity) => identity,
        Err(problem) => return refuse(plan, world, problem, &pool_problems),
    };
    plan.facts = missing_facts(world, &cluster, &identity);
    if identity.cluster_id.is_none() {
        let adopting = Notice::Adopting { claims: world.claims.len() };
        // Said first, so that it is decided on a view of the resource that cannot be too old to know the id.
        if plan.facts.is_empty() && !status::has_said(world, adopting.reason()) {
            let progress = Progress::Underway { reason: adopting.reason(), message: adopting.to_string() };
            plan.notices.push(adopting);
            // What is only said wakes nobody.
            plan.look_soon(Some(Duration::ZERO));
            report_pools(&mut plan, world, Err(&progress), &pool_problems)?;
            return finish(plan, world, None, progress);
        }
        plan.notices.push(adopting);
    }

    // More of Kafka's word, where a decision needs it.
    if asks_quorum {
        ask_quorum(&mut plan.questions, world);
    }
    ask_partitions(&mut plan.questions, world, partitions_of);
    let left = match plan.facts.is_empty() && identity.cluster_id.is_some() {
        true => left_behind::judge(world, &cluster, &pool_problems),
        false => left_behind::Kept::default(),
    };
    ask_partitions(&mut plan.questions, world, left.partitions_of.clone());
    plan.notices.extend(left.notices.iter().cloned());
    let arrivals = match plan.facts.is_empty() {
        true => arrivals::judge(world, &cluster),
        false => Arrivals::default(),
    };
    let mut cluster = cluster;
    cluster.arriving.clone_from(&arrivals.held);
    ask_partitions(&mut plan.questions, world, arrivals.partitions_of.clone());
    plan.notices.extend(arrivals.notices.iter().cloned());
    plan.questions.launchers = safety::late_brokers(world);
    plan.questions.launchers.extend(empty_disk::questions(world));
    plan.questions.ask_log_dirs(log_dirs_of, || world.serving_brokers());
    if world.answers.partitions.was_asked()
        || world.answers.quorum.was_asked()
        || !world.answers.log_dirs.is_empty()
    {
        let blocked = plan.notices.iter().any(Notice::waits_for_kafka);
        plan.look_soon(blocked.then_some(LOOK_AT_PARTITIONS_AGAIN));
    }
    if world.has_serving_controller() {
        let silent = matches!(world.answers.quorum, Answer::Silent(_));
        plan.look_soon(Some(if silent { ASK_AGAIN } else { LOOK_AT_QUORUM_AGAIN }));
    }

    // Where brokers stand. One that was just made waits to be told.
    let racks = rack::next(world, &cluster);
    plan.questions.machines = racks.machines;
    plan.racked = racks.racked;
    if !racks.notices.is_empty() {
        plan.look_soon(Some(LOOK_AT_MACHINES_AGAIN));
    }
    plan.notices.extend(racks.notices);

    // That no controller is ready may be yesterday's news: before a disk is formatted as that of a voter, Kafka is asked itself.
    let anew = anew::next(world, &cluster);
    if anew.restoration.is_some() || restoration::is_asked(world) {
        ask_quorum(&mut plan.questions, world);
    }

    // What is not known yet decides the rest, so there is no use in going on.
    if !plan.questions.is_empty() {
        return Ok(plan);
    }

    plan.notices.extend(anew.notice);
    plan.look_soon(anew.look_again);
    let restoration = anew.restoration.or_else(|| restoration::asked_for(world, &cluster, &mut plan.notices));
    // What holds it back goes by without an event: a minute, or a pod that comes up.
    let is_held = plan.notices.iter().any(|notice| matches!(notice, Notice::RestorationHeld { .. }));
    plan.look_soon(is_held.then_some(LOOK_AT_PARTITIONS_AGAIN));
    if restoration::is_idle(world, restoration.as_ref()) {
        plan.forgotten.push(RESTORE_ANNOTATION);
    }

    // First voters whose disks are empty, and may have been lost.
    plan.notices.extend(empty_disk::notice(world));
    plan.notices.extend(let_in::notices(world, &cluster, kind(world, &identity), identity.initial.as_ref()));
    plan.look_soon(empty_disk::look_again(world));
    if empty_disk::is_idle(world) {
        plan.forgotten.push(EMPTY_VOTER_ANNOTATION);
    }

    // Settings that change while nodes run.
    let settings = dynamic::compare(world, &cluster)?;
    if let Some(untold) = settings.notice() {
        plan.notices.push(untold);
        plan.look_soon(Some(ASK_AGAIN));
    }
    if plan.facts.is_empty() && rewrites::is_certified(&plan, world) {
        ask_for_settings(&mut plan, world, &cluster, &settings);
        if !plan.questions.is_empty() {
            return Ok(plan);
        }
    }

    plan.look_soon(settings.look_again);

    // Objects.
    let render = Render {
        cluster: &cluster,
        world,
        cluster_id: identity.cluster_id.as_ref(),
        initial: identity.initial.as_ref(),
        quorum: kind(world, &identity),
        bootstrap_servers: bootstrap_servers(world, &cluster),
        restoration: restoration.clone(),
        unproven: &settings.unproven,
        held: &arrivals.held,
    };
    let shared = render.shared_to_write(settings.ours.as_ref())?.into_iter();
    plan.objects.extend(shared.map(|object| object.in_place_of_seen(world)));
    if plan.facts.is_empty() {
        let (nodes, rendered) = render.nodes_to_write()?;
        plan.objects.extend(nodes.into_iter().map(|object| object.in_place_of_seen(world)));
        plan.rendered = Some(rendered);
        plan.objects.extend(objects::released_claims(world, |pool| is_carried_out(&cluster, pool)));
        // Before the pods' descriptions are written nothing tells which brokers are still to restart.
        let are_described = !plan.objects.iter().any(|object| matches!(object, Object::PodSet(_)));
        reach_listeners(&mut plan, world, &cluster, are_described)?;
        grow_claims(&mut plan, world, &cluster);
        if identity.cluster_id.is_some() {
            plan.removals = removals::of(world, &cluster, &pool_problems, &left);
            plan.removals.retain(|removal| are_described || !matches!(removal, Removal::Service(_)));
        }
        plan.notices.extend(removals::volumes_left(world, &cluster, &pool_problems));
        plan.protections = removals::protections(world, &cluster, &pool_problems);
        plan.protections.extend(removals::released(world, Some(&cluster)));
    }

    // What others change again and again holds nothing back.
    let contest = rewrites::settle(&mut plan, world)?;
    let makes_voters = restoration.as_ref().is_some_and(|one| !one.is_over);
    plan.objects_rely_on_pods = (makes_voters || moves) && !plan.objects.is_empty();
    if migration::is_over(world) {
        plan.forgotten.push(MIGRATION_ANNOTATION);
    }

    // The quorum, then the pods that restart: only what is written already can be restarted into.
    let due = rolling::due(world, &cluster, &settings.outlived);
    let is_settled = plan.facts.is_empty() && rewrites::is_certified(&plan, world) && plan.is_written();
    let next = match is_settled {
        true => rolling::next(world, &cluster, &due, &contest.held).or(ending::next(
            world,
            Some(&cluster),
            &contest.held,
        )),
        false => Roll::default(),
    };
    if plan.facts.is_empty() {
        let waiting = rolling::about_to_lose_disks(&due, &next);
        join_and_leave(&mut plan, world, &cluster, &Renewal { leaves: next.leaves_first, waiting });
    }
    if is_settled {
        if !contest.forgets_settings {
            configure(&mut plan, world, settings);
        }
        plan.marks = rolling::marks(world, &cluster);
        plan.look_soon(safety::until_told(world).filter(|_| !due.is_empty()));
        forget_what_may_be_lost(&mut plan, world, &due, &to_move, &arrivals.old_pods, &left);
        roll(&mut plan, world, next);
        plan.emptied = rolling::emptied(world, &due, &plan.restarts);
        if racks.are_unknown || !plan.racked.is_empty() {
            keep_brokers(&mut plan, world);
        }
        unregister_then_upgrade(&mut plan, world, &cluster, due.is_empty(), &left);
    }
    pause_after_failures(&mut plan, world);
    leave_the_rest_for_later(&mut plan, world);
    keep_members(&mut plan, world);
    if is_settled {
        let restored = restoration.iter().flat_map(|restoration| restoration.restarts(world, &cluster));
        // Its disk would be gone, and the settings that make it a voter again are not there.
        plan.restarts.extend(restored.filter(|restart| !contest.held.contains(&restart.pod)));
    }
    plan.look_soon((!plan.deeds.is_empty()).then_some(LOOK_AFTER_DEEDS));

    // Status.
    let progress = if let Some(problem) = refusal {
        plan.problems.push(problem.clone());
        Progress::Refused(vec![problem])
    } else if pool_problems.is_empty() {
        completion::judge(status::progress(world, &cluster, &due, None), &plan, world)
    } else {
        let problems = pool_problems.iter().flat_map(|(pool, problems)| {
            problems
                .iter()
                .map(move |problem| Problem::InvalidPool { pool: pool.clone(), why: problem.to_string() })
        });
        Progress::Refused(problems.collect())
    };
    report_pools(&mut plan, world, Ok((&cluster, &due)), &pool_problems)?;
    finish(plan, world, Some(&cluster), progress)
}

/// Which keys and certificates are to be made. Returns what keeps a cluster that does not run yet from being made.
fn certify(plan: &mut Plan, world: &World, cluster: Option<&Cluster>) -> Option<Problem> {
    // A node gets its certificate when its id is sure, and its pool stays for as long as it does.
    let is_durable = |pool: &&Pool| {
        let status = world.pools.get(&pool.name).and_then(|resource| resource.status.as_ref());
        !pool.has_resource || status.is_some_and(|status| status.node_ids.as_ref() == Some(&id_list(pool)))
    };
    let pools = cluster.iter().flat_map(|cluster| &cluster.pools);
    let pools = pools.filter(|pool| is_durable(pool) && removals::may_begin(world, pool));
    let hosts = cluster.map(|cluster| address::node_hosts(world, cluster)).unwrap_or_default();
    let bearers: Vec<_> = pools
        .flat_map(|pool| {
            pool.nodes.iter().filter_map(|id| {
                Some(certificates::Bearer::of(world, cluster?, Node { id: *id, pool }, &hosts))
            })
        })
        .collect();
    let certificates = certificates::next(world, &bearers);
    plan.certificates = certificates.issues;
    plan.ownerships = certificates.ownerships;
    plan.notices.extend(certificates.notices);
    plan.look_soon(certificates.look_again);
    if let Some(cluster) = cluster {
        let own = own_certificates::next(world, cluster);
        plan.certificates.extend(own.issue);
        plan.notices.extend(own.notices);
        plan.look_soon(own.look_again);
    }
    rewrites::settle_secrets(plan, world);
    let why = certificates.refusal?.to_string();
    if world.pods.is_empty() {
        return Some(Problem::AuthorityUnusable { why });
    }
    plan.notices.push(Notice::AuthorityUnusable { why });
    None
}

fn is_paused(kafka: &api::Kafka) -> bool {
    is_true(kafka.metadata.annotations.as_ref(), PAUSE_ANNOTATION)
}

fn notices(world: &World, cluster: Option<&Cluster>) -> Vec<Notice> {
    let mut notices = Vec::new();
    notices.extend(strangers::notices(world));
    let addresses: Vec<_> = world.answers.foreign_hosts.iter().cloned().collect();
    notices.extend((!addresses.is_empty()).then_some(Notice::ForeignHosts { addresses }));
    notices.extend(world.memory.refusals().iter().map(|what| Notice::Refused { what: what.clone() }));
    notices.extend((!world.strays.is_empty()).then(|| Notice::Strays { strays: world.strays.clone() }));
    notices.extend(ignored::of_kafka(&world.kafka));
    notices.extend(world.pools.iter().filter_map(|(name, pool)| ignored::of_pool(name, pool)));
    notices.extend(registration::untold(world));
    let keys = config::forbidden_keys(world.kafka.spec.kafka.config.as_ref());
    if !keys.is_empty() {
        notices.push(Notice::SettingsLeftOut { keys });
    }
    notices.extend(cluster.map(|cluster| advice(world, cluster)).unwrap_or_default());
    notices
}

/// What works, and still wants a second look.
fn advice(world: &World, cluster: &Cluster) -> Vec<Notice> {
    let controllers: Vec<_> = cluster.voters().collect();
    let brokers = cluster.broker_count();
    let mut notices = settings::notices(world.kafka.spec.kafka.config.as_ref(), cluster.version, brokers);
    if controllers.len().is_multiple_of(2) && !controllers.is_empty() {
        notices.push(Notice::EvenControllers { count: controllers.len() });
    }
    for key in ["default.replication.factor", "min.insync.replicas"] {
        let set = world.kafka.spec.kafka.config.as_ref().is_some_and(|config| config.contains_key(key));
        if brokers > 1 && !set {
            notices.push(Notice::ReplicationUnset { key, brokers });
        }
    }
    if let [only] = controllers.as_slice()
        && pods::is_ephemeral(only.pool)
    {
        notices.push(Notice::SingleEphemeral { role: "controller" });
    }
    if brokers == 1
        && cluster.nodes().any(|node| node.pool.roles.has_broker() && pods::is_ephemeral(node.pool))
    {
        notices.push(Notice::SingleEphemeral { role: "broker" });
    }
    notices
}

/// The next facts to make durable, in the order that a crash between any two of them is harmless: the nodes of
/// every pool, then who the cluster is and that no pool goes before its nodes, then which cluster each pool belongs to.
fn missing_facts(world: &World, cluster: &Cluster, identity: &Identity) -> Vec<Fact> {
    let pools: Vec<_> = cluster
        .pools
        .iter()
        .filter(|pool| pool.has_resource)
        .filter_map(|pool| Some((pool, world.pools.get(&pool.name)?.status.clone().unwrap_or_default())))
        .collect();
    let nodes: Vec<_> = pools
        .iter()
        .filter(|(pool, status)| {
            status.node_ids.as_ref() != Some(&id_list(pool))
                || status.roles.as_ref() != Some(&pool.roles.to_api())
        })
        .map(|(pool, _)| Fact::PoolNodes {
            pool: pool.name.clone(),
            status: json!({ "nodeIds": id_list(pool), "roles": pool.roles.to_api() }),
        })
        .collect();
    if !nodes.is_empty() {
        return nodes;
    }
    let unprotected = pools.iter().filter(|(pool, _)| !pool.is_going && !removals::may_begin(world, pool));
    let mut facts: Vec<_> =
        unprotected.map(|(pool, _)| Fact::PoolProtected { pool: pool.name.clone() }).collect();
    if let Some(status) = registration::to_remember(world, cluster).filter(|_| identity.is_durable) {
        facts.push(Fact::Registered { status });
    }
    if !identity.is_durable {
        let mut status = json!({ "clusterId": identity.cluster_id });
        if let Some(initial) = &identity.initial {
            status["initialControllers"] = json!(initial.to_string());
        }
        let forms = !identity::has_remains(world);
        facts.push(Fact::Identity { status, forms });
    }
    if !facts.is_empty() {
        return facts;
    }
    let told = pools.iter().filter(|_| identity.cluster_id.is_some());
    told.filter(|(_, status)| status.cluster_id.is_none())
        .map(|(pool, _)| Fact::PoolCluster {
            pool: pool.name.clone(),
            status: json!({ "clusterId": identity.cluster_id, "labelSelector": world.key.pool_selector_text(&pool.name) }),
        })
        .collect()
}

fn id_list(pool: &Pool) -> Vec<i32> {
    pool.ids.iter().map(|id| id.0).collect()
}

/// A quorum that is about to be formed is dynamic.
fn kind(world: &World, identity: &Identity) -> Kind {
    if identity.initial.is_some() { Kind::Dynamic } else { Kind::of(world) }
}

/// Where nodes look for the quorum when they start: at the controllers that are wanted, and at those that run. While roles
/// change hands, only the latter know who votes.
pub(crate) fn bootstrap_servers(world: &World, cluster: &Cluster) -> String {
    let wanted = cluster.controllers().into_iter().map(|node| cluster.host(node));
    let running = world.hosts(|pod| pod.runs_controller() && !pod.meta.deleting);
    let kept = cluster.kept_controllers().map(|kept| cluster.key.pod_host(&kept.pod, &cluster.domain));
    let hosts: BTreeSet<String> = wanted.chain(running).chain(kept).collect();
    hosts.into_iter().map(|host| format!("{host}:{CONTROLLER_PORT}")).collect::<Vec<_>>().join(",")
}

/// Is this change of the quorum still what to do, by what its leader says now? What it was decided on may be some seconds old.
pub fn still_changes(
    world: &World,
    change: &Change,
    now: Answer<QuorumView>,
) -> Result<bool, serde_json::Error> {
    let answers = Answers { quorum: now, ..world.answers.clone() };
    Ok(plan(&World { answers, ..world.clone() })?.change() == Some(change))
}

/// What is asked whenever somebody could answer.
fn first_questions(world: &World) -> Questions {
    let mut questions = Questions::default();
    if world.has_serving_controller() {
        ask_quorum(&mut questions, world);
    }
    let brokers = world.serving_brokers();
    if !brokers.is_empty() && !world.answers.registered.was_asked() {
        questions.registered = true;
        questions.brokers = brokers;
    }
    // They are asked sooner or later, and may all take long to say nothing: better at the same time.
    if !questions.is_empty() {
        questions.launchers = safety::late_brokers(world);
    }
    questions
}

/// Asks who votes, once in a pass.
fn ask_quorum(questions: &mut Questions, world: &World) {
    if !world.answers.quorum.was_asked() {
        questions.quorum = controller_hosts(world);
    }
}

/// Asks which partitions live on nodes. What was answered before is asked again with it: an answer takes the place of the one
/// before, and two that are needed in one pass would take turns for ever.
fn ask_partitions(questions: &mut Questions, world: &World, mut of: BTreeSet<NodeId>) {
    if !of.is_empty() {
        of.extend(world.answers.partitions.known().iter().flat_map(|known| &known.of));
        // One that is cut off from the controllers tells of replicas in sync that are not any more.
        questions.ask_partitions(of, || world.current_brokers());
    }
}

/// Which services of listeners are to be written, and which listeners wait for something. A service that is to lead less far waits
/// until no broker sends clients there.
fn reach_listeners(
    plan: &mut Plan,
    world: &World,
    cluster: &Cluster,
    are_described: bool,
) -> Result<(), serde_json::Error> {
    let told = listeners::kept::still_told(world, cluster);
    let is_in_use = |service: &Object| {
        let meta = service.meta();
        let seen = meta.name.as_ref().and_then(|name| world.services.get(name));
        let name = meta.labels.as_ref().and_then(|labels| labels.get(LISTENER_LABEL));
        let listener = cluster.listeners.iter().find(|listener| Some(&listener.name) == name);
        seen.zip(listener).is_some_and(|(seen, listener)| {
            let is_told = !are_described || told.contains(listener.name.as_str());
            !seen.meta.deleting && is_told && listeners::kept::leads_farther(listener, seen)
        })
    };
    for service in listeners::services::wanted(cluster, &world.kafka) {
        let service = Object::Service(service);
        if service.is_as_observed(world)? || is_in_use(&service) {
            continue;
        }
        let meta = service.meta();
        let name = meta.name.clone().unwrap_or_default();
        let refused = world.memory.refused_services.get(&name);
        if let Some(refused) =
            refused.filter(|refused| refused.asked.as_deref() == listeners::services::asked(meta))
        {
            let listener = meta.labels.as_ref().and_then(|all| all.get(LISTENER_LABEL)).cloned();
            let (listener, why) = (listener.unwrap_or_default(), refused.why.clone());
            plan.notices.push(Notice::ListenerServiceRefused { name: listener, service: name, why });
            let pause = world.time_until(refused.until);
            if !pause.is_zero() {
                plan.look_soon(Some(pause));
                continue;
            }
        }
        plan.services.push(service.in_place_of_seen(world));
    }
    plan.notices.extend(address::notices(world, cluster));
    for node in cluster.nodes().filter(|node| !world.pods.contains_key(&cluster.pod_name(*node))) {
        if let Err(wait) = address::may_start(world, cluster, node) {
            plan.look_soon(wait);
        }
    }
    Ok(())
}

/// Which claims grow, and which stay as they are though something else is asked for.
fn grow_claims(plan: &mut Plan, world: &World, cluster: &Cluster) {
    let compared = claims::compare(world, cluster);
    plan.growths = compared.growths;
    plan.notices.extend(compared.notices);
    plan.look_soon(compared.look_again);
}

/// Who votes next, or no longer.
fn join_and_leave(plan: &mut Plan, world: &World, cluster: &Cluster, renewal: &Renewal) {
    let Some(quorum) = world.answers.quorum.known() else { return };
    let membership = match quorum.is_dynamic {
        true => membership::next(world, cluster, quorum, renewal),
        false => migration::next(world, cluster, quorum),
    };
    plan.notices.extend(membership.notices);
    plan.look_soon(membership.look_again);
    plan.deeds.extend(membership.change.map(Deed::Change));
}

/// Brokers that are gone are forgotten, a few at a time; when all of them are, the metadata version may move.
fn unregister_then_upgrade(
    plan: &mut Plan,
    world: &World,
    cluster: &Cluster,
    all_restarted: bool,
    left: &left_behind::Kept,
) {
    let gone = registration::gone(world, cluster);
    let next = upgrade::metadata(world, cluster).filter(|_| plan.change().is_none() && all_restarted);
    match next {
        Some(change) if gone.is_empty() => plan.deeds.push(Deed::Metadata(change)),
        Some(change) => plan.notices.extend(upgrade::waits_for(world, &change, &gone)),
        None => plan.notices.extend(upgrade::waits_for_pods(world, cluster)),
    }
    let free = gone.difference(&left.brokers).copied().collect();
    plan.deeds.extend(registration::next(world, free).into_iter().map(Deed::Unregister));
}

/// Asks nodes what they run with that were not asked since they started, or since something else is wanted.
fn ask_for_settings(plan: &mut Plan, world: &World, cluster: &Cluster, settings: &Dynamic) {
    let questions = &mut plan.questions;
    if !settings.ask_brokers.is_empty() {
        questions.settings_of_brokers.clone_from(&settings.ask_brokers);
        questions.brokers = world.serving_brokers();
    }
    if !settings.ask_controllers.is_empty() {
        questions.settings_of_controllers.clone_from(&settings.ask_controllers);
        questions.controllers = controller_hosts(world);
    }
    if !questions.settings_of_brokers.is_empty() || !questions.settings_of_controllers.is_empty() {
        questions.settings = dynamic::asked(cluster.version);
    }
}

/// Tells Kafka what nodes are to run with. Only brokers check values, so without one nothing is said.
fn configure(plan: &mut Plan, world: &World, settings: Dynamic) {
    plan.checked_settings = settings.checked;
    if settings.changes.is_empty() || world.serving_brokers().is_empty() {
        return;
    }
    plan.deeds.extend(settings.changes.into_iter().map(Deed::Configure));
}

/// What just failed gets a pause, and is told.
fn pause_after_failures(plan: &mut Plan, world: &World) {
    for Trouble { deed, why, until, .. } in &world.memory.troubles {
        let Some(position) = plan.deeds.iter().position(|planned| planned == deed) else { continue };
        plan.notices.push(match deed {
            Deed::Change(change) => {
                Notice::QuorumChangeFailed { change: change.to_string(), why: why.clone() }
            }
            Deed::Unregister(node) => Notice::UnregistrationFailed { node: *node, why: why.clone() },
            Deed::Metadata(change) => Notice::MetadataFailed { name: change.name, why: why.clone() },
            Deed::Configure(change) => {
                Notice::SettingNotTaken { change: change.to_string(), why: why.clone() }
            }
        });
        let pause = world.time_until(*until);
        if !pause.is_zero() {
            plan.deeds.remove(position);
            plan.look_soon(Some(pause));
        }
    }
}

/// Kafka is asked to do a few things in each pass: whoever comes later in the pass waits for all of them. A change of the quorum comes
/// first, and what failed before comes last, so that it does not stand in front of the rest for ever.
fn leave_the_rest_for_later(plan: &mut Plan, world: &World) {
    let has_failed = |deed: &Deed| world.memory.troubles.iter().any(|trouble| trouble.deed == *deed);
    plan.deeds.sort_by_cached_key(|deed| !matches!(deed, Deed::Change(_)) && has_failed(deed));
    plan.deeds.truncate(MOST_DEEDS);
}

/// What a person allowed once is not allowed for ever: when none of the pods that were named is to lose anything any more, the
/// annotation goes.
fn forget_what_may_be_lost(
    plan: &mut Plan,
    world: &World,
    due: &[Due<'_>],
    to_move: &BTreeSet<String>,
    arriving: &BTreeSet<String>,
    left: &left_behind::Kept,
) {
    let is_due = |pod: &str| due.iter().any(|due| due.pod.meta.name == pod && due.data() == Disks::Go);
    let is_on_its_way = |pod: &str| world.pods.get(pod).is_some_and(|pod| pod.meta.deleting);
    let is_listed = |pod: &str| world.pod_sets.values().any(|set| set.pods.contains_key(pod));
    let is_static = |pod: &str| let_in::is_static(world, Kind::of(world), pod);
    let is_pending = |pod: &str| {
        is_due(pod)
            || is_on_its_way(pod)
            || (world.pods.contains_key(pod) && !is_listed(pod))
            || to_move.contains(pod)
            || arriving.contains(pod)
            || left.pods.contains(pod)
            || (is_listed(pod) && is_static(pod) && safety::may_start_anew(world, pod))
    };
    let annotated = world.kafka.metadata.annotations.as_ref();
    let is_set = annotated.is_some_and(|all| all.contains_key(ALLOW_LOSS_ANNOTATION));
    if is_set && !safety::may_lose(world).any(is_pending) {
        plan.forgotten.push(ALLOW_LOSS_ANNOTATION);
    }
}

/// Which pods restart now.
fn roll(plan: &mut Plan, world: &World, roll: Roll) {
    plan.notices.extend(roll.notices);
    plan.look_soon(roll.look_again);
    if roll.asks_quorum {
        ask_quorum(&mut plan.questions, world);
    }
    ask_partitions(&mut plan.questions, world, roll.partitions_of);
    plan.questions.ask_log_dirs(roll.log_dirs_of, || world.serving_brokers());
    plan.questions.launchers.extend(roll.launchers);
    let needy = strangers::Needy::of(world);
    plan.restarts = roll.restarts.into_iter().filter(|restart| needy.may_restart(&restart.pod)).collect();
}

/// While the quorum changes, its members stay. A change that waits after a failure holds nobody, unless it may have happened all the
/// same: a restart may be just what it needs.
fn keep_members(plan: &mut Plan, world: &World) {
    let has_failed = world.memory.troubles.iter().any(|trouble| matches!(trouble.deed, Deed::Change(_)));
    let is_open = || world.answers.quorum.known().is_some_and(|quorum| !quorum.is_committed);
    if plan.change().is_some() || has_failed && is_open() {
        plan.restarts
            .retain(|restart| world.pods.get(&restart.pod).is_some_and(|pod| !pod.runs_controller()));
    }
}

/// No broker restarts before it is sure that racks can be known: it would wait for its own for ever.
fn keep_brokers(plan: &mut Plan, world: &World) {
    plan.restarts.retain(|restart| world.pods.get(&restart.pod).is_none_or(|pod| !pod.runs_broker()));
}

/// Where the quorum can be asked: at controllers that serve, or, when none does, at any.
fn controller_hosts(world: &World) -> Vec<String> {
    let serving = world.serving_controllers();
    if serving.is_empty() { world.hosts(|pod| pod.runs_controller() && !pod.meta.deleting) } else { serving }
}

fn report_pools(
    plan: &mut Plan,
    world: &World,
    cluster: Result<(&Cluster, &[Due<'_>]), &Progress>,
    problems: &BTreeMap<String, Vec<Problem>>,
) -> Result<(), serde_json::Error> {
    for (name, resource) in &world.pools {
        let progress = match (problems.get(name), cluster) {
            (Some(problems), _) => Progress::Refused(problems.clone()),
            (None, Ok((cluster, due))) if cluster.pools.iter().any(|pool| pool.name == *name) => {
                match status::progress(world, cluster, due, Some(name)) {
                    Progress::Ready if !plan.is_written() => Progress::Applying,
                    progress => progress,
                }
            }
            (None, Ok(_)) => continue,
            (None, Err(progress)) => progress.of_pool(&world.key.name),
        };
        let new = status::of_pool(&world.key, world.now, name, resource, &progress, &plan.notices);
        if let Some(patch) = status::patch(resource.status.as_ref(), &new, POOL_FACTS)? {
            plan.pool_statuses.insert(name.clone(), patch);
        }
    }
    Ok(())
}

fn is_carried_out(cluster: &Cluster, pool: &str) -> bool {
    cluster.pools.iter().any(|one| one.name == pool)
}

/// Whatever holds the rest: claims that are to be kept do not go with the `Kafka` resource. The other way round waits.
fn keep_claims(plan: &mut Plan, world: &World) -> Result<Contest, serde_json::Error> {
    plan.objects.extend(objects::released_claims(world, |_| false));
    rewrites::settle(plan, world)
}

/// Nothing is carried out. Certificates end all the same, so whose certificate ends soon restarts as it is.
fn hold(
    mut plan: Plan,
    world: &World,
    progress: Progress,
    pool_problems: &BTreeMap<String, Vec<Problem>>,
) -> Result<Plan, serde_json::Error> {
    let contest = keep_claims(&mut plan, world)?;
    if rewrites::is_certified(&plan, world) {
        roll(&mut plan, world, ending::next(world, None, &contest.held));
        if !plan.questions.is_empty() {
            return Ok(plan);
        }
    }
    // Among what cannot be read may be what such a pool still has.
    if world.unreadable.is_none() {
        plan.protections = removals::released(world, None);
    }
    report_pools(&mut plan, world, Err(&progress), pool_problems)?;
    finish(plan, world, None, progress)
}

/// Nothing is done but to say why.
fn refuse(
    mut plan: Plan,
    world: &World,
    problem: Problem,
    pool_problems: &BTreeMap<String, Vec<Problem>>,
) -> Result<Plan, serde_json::Error> {
    plan.problems.push(problem.clone());
    hold(plan, world, Progress::Refused(vec![problem]), pool_problems)
}

fn finish(
    mut plan: Plan,
    world: &World,
    cluster: Option<&Cluster>,
    progress: Progress,
) -> Result<Plan, serde_json::Error> {
    plan.notices.extend(podset::notices(world, plan.rendered.as_ref()));
    let new = status::of_kafka(world, cluster, &progress, &plan.notices);
    plan.status = status::patch(world.kafka.status.as_ref(), &new, KAFKA_FACTS)?;
    plan.progress = Some(progress);
    Ok(plan)
}

/// Pools that are deleted and whose `Kafka` resource does not exist: nothing is left to wait for.
pub fn released_without_kafka(
    pools: &BTreeMap<String, Arc<api::KafkaNodePool>>,
) -> BTreeMap<String, Protection> {
    removals::going(pools).map(|name| (name.clone(), Protection::Remove)).collect()
}

/// Pools that are deleted and whose `Kafka` resource exists, but is not one that this operator looks after: those of which nothing
/// runs, and nothing is left to wait for. Another operator may look after the others.
pub fn released_without_care(
    key: &ClusterKey,
    pools: &BTreeMap<String, Arc<api::KafkaNodePool>>,
    pod_sets: &BTreeMap<String, Arc<PodSetView>>,
    pods: &BTreeMap<String, Arc<PodView>>,
) -> BTreeMap<String, Protection> {
    let runs = |pool: &String| {
        pod_sets.contains_key(&key.pod_set(pool))
            || pods.values().any(|pod| pod.meta.labels.get(POOL_LABEL) == Some(pool))
    };
    let idle = removals::going(pools).filter(|pool| !runs(pool));
    idle.map(|name| (name.clone(), Protection::Remove)).collect()
}

/// What to say of a pool that is deleted, has nodes, and whose cluster this operator does not look after.
pub fn cared_for_by_nobody(key: &ClusterKey, pool: &str) -> String {
    format!(
        "KafkaNodePool {pool} is being deleted and has nodes, but this operator does not look after Kafka {} (its labels do not match STRIMZI_CUSTOM_RESOURCE_SELECTOR), so it cannot let them leave in order. If no other operator does, give the Kafka the labels again, or take the finalizer {POOL_FINALIZER} off the pool: its nodes stay then",
        key.name
    )
}

/// The statuses of pools whose `Kafka` resource does not exist.
pub fn pools_without_kafka(
    key: &ClusterKey,
    pools: &BTreeMap<String, Arc<api::KafkaNodePool>>,
    now: Timestamp,
) -> Result<BTreeMap<String, Value>, serde_json::Error> {
    let message = match key.name.as_str() {
        "" => format!(
            "the label {CLUSTER_LABEL} is missing: set it to the name of the Kafka that this pool belongs to"
        ),
        name => format!(
            "no Kafka '{name}' exists in this namespace; create it, or correct the label {CLUSTER_LABEL}"
        ),
    };
    let progress = Progress::Underway { reason: Reason::KafkaMissing, message };
    let mut patches = BTreeMap::new();
    for (name, pool) in pools.iter().filter(|(_, pool)| pool.metadata.deletion_timestamp.is_none()) {
        let new = status::of_pool(key, now, name, pool, &progress, &[]);
        if let Some(patch) = status::patch(pool.status.as_ref(), &new, POOL_FACTS)? {
            patches.insert(name.clone(), patch);
        }
    }
    Ok(patches)
}
