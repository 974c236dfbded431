//! One pass: look, decide, act, and say what came of it. A pass never waits for anything to become true.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::jiff::Timestamp;
use karst_api::{Condition, Kafka, KafkaNodePool};
use karst_core::absences;
use karst_core::certificates::{self, Issue};
use karst_core::claims::Growth;
use karst_core::ids::Entropy;
use karst_core::internal_error;
use karst_core::listeners;
use karst_core::membership::Change;
use karst_core::memory::{Memory, Stranger};
use karst_core::names::ClusterKey;
use karst_core::objects::Object;
use karst_core::own_certificates;
use karst_core::plan::{self, Deed, Fact, Plan, Protection};
use karst_core::podset::{self, PodAction, Rendered};
use karst_core::pools;
use karst_core::reason::Reason;
use karst_core::references;
use karst_core::rolling::Restart;
use karst_core::status::Progress;
use karst_core::strangers::Needy;
use karst_core::world::{Answers, Settings, World};
use kube::Resource;
use serde_json::Value;
use tokio::time::Instant;

use crate::ask::{self, Terms};
use crate::clients::{Clients, Unchanged};
use crate::clock;
use crate::events::Events;
use crate::failure::{DEADLINE, Failure};
use crate::hands::{Hands, few_at_once};
use crate::index::{PodSetSnapshot, Snapshot};
use crate::panics::Panicked;
use crate::places::{Pace, Place, Room};
use crate::queue::{Outcome, Work};
use crate::references::References;
use crate::refusals::Refusals;
use crate::silences::{self, Insistence, Silences};
use crate::slots::Slots;
use crate::unreadable::{self, LeftAlone};
use crate::views::SecretWire;
use crate::workers::Job;

/// How often one pass decides anew after it made something durable or asked. Four rounds make a cluster; many more mean
/// that somebody else writes at the same time.
const ROUNDS: usize = 8;
/// How soon to look again whether ConfigMaps that a cluster refers to were read.
const UNREAD: Duration = Duration::from_secs(5);
/// How soon to look again whether a cluster that the selector does not show is still there.
const UNSEEN: Duration = Duration::from_secs(60);
/// How many keys that take long are made in one pass, at most.
const SLOW_KEYS: usize = 16;
/// How soon the next ones are made.
const MORE_KEYS: Duration = Duration::from_millis(300);
/// For how long Kafka is asked to do things in one pass. What was begun then is waited for.
const COMMANDS: Duration = Duration::from_secs(4);
/// Who asked for something that was refused, besides pod sets.
const OBJECTS: &str = "objects";
const CERTIFICATES: &str = "certificates";
/// So many of the same kind say enough.
const TOLD: usize = 3;

/// What Kafka said to something it was to do: it did it, or would not, or let us wait in vain.
enum Said {
    Something,
    Nothing,
}

/// The keys and certificates of one pass.
#[derive(Debug)]
struct Certifying {
    /// How many keys that take long may still be made in it.
    slow_keys: usize,
    /// Is the rest of the pass to go on without?
    is_over: bool,
    /// Are some to be made in the next pass?
    is_partial: bool,
}

impl Default for Certifying {
    fn default() -> Self {
        Self { slow_keys: SLOW_KEYS, is_over: false, is_partial: false }
    }
}

impl Certifying {
    /// So many of those that were due were tried, of so many that are wanted.
    fn tried(&mut self, tried: usize, due: usize, wanted: usize) {
        // If there was no time for all of them, there is none for more.
        self.slow_keys = if tried < due { 0 } else { self.slow_keys - tried };
        if tried < wanted {
            self.is_partial = true;
            self.is_over = true;
        }
    }
}

/// What became of a claim that was to grow.
enum Grown {
    /// Kubernetes does it.
    Asked,
    /// Kubernetes does not.
    Refused,
}

/// What is to be done, by what is true: [`plan::plan`], but for tests.
pub(crate) type Decide = fn(&World) -> Result<Plan, serde_json::Error>;

/// Carries out passes.
#[derive(Debug)]
pub(crate) struct Passes {
    pub(crate) decide: Decide,
    pub(crate) hands: Hands,
    pub(crate) events: Events,
    pub(crate) config_maps: References<ConfigMap>,
    pub(crate) clients: Arc<Clients>,
    pub(crate) slots: Slots,
    pub(crate) silences: Silences,
    /// Pod sets whose work panicked, and where.
    pub(crate) panics: Refusals<Panicked>,
    pub(crate) terms: Arc<Terms>,
    /// What cannot be read, and was told.
    pub(crate) unreadable: LeftAlone,
    pub(crate) named_secrets: References<SecretWire>,
    pub(crate) settings: Arc<Settings>,
    /// Are all `Kafka` resources seen? With a selector, one that is not seen may exist all the same.
    pub(crate) sees_all: bool,
}

impl Passes {
    /// A pass of a cluster.
    pub(crate) async fn cluster(&self, key: &ClusterKey, place: &Place) -> Outcome {
        let mut asking = Asking::default();
        let (mut certificates, mut outcome_of_certificates, mut is_told) =
            (Certifying::default(), None, false);
        for _ in 0..ROUNDS {
            let snapshot = self.hands.index.snapshot(key);
            if !snapshot.unreadable.is_empty() {
                let told = match is_told {
                    true => Ok(()),
                    false => self.unreadable.tell(&self.hands, &self.events, key, &snapshot).await,
                };
                is_told = true;
                match told {
                    // Pools say nothing of certificates, and these end all the same.
                    Ok(()) if unreadable::of_pools(&snapshot).is_some() && snapshot.kafka.is_some() => {}
                    Ok(()) => return Outcome::Done { look_again: None },
                    Err(failure) => return self.failed(key, &[failure]),
                }
            } else {
                self.unreadable.ends(key);
            }
            let Some(kafka) = snapshot.kafka.clone() else {
                self.forget(key);
                return self.pools_without_kafka(key, &snapshot).await;
            };
            self.unreadable.tell_strays(&self.events, key, &snapshot).await;
            let Some(entropy) = entropy() else { return failed_by("the kernel gives no randomness") };
            // Of ConfigMaps all is read: a message names what is in them.
            let names =
                references::config_maps(&kafka).into_iter().map(|name| (name, BTreeSet::new())).collect();
            let references = self.config_maps.of(key, &names);
            if references.len() < names.len() {
                // They are being looked for, and bring us back.
                return Outcome::Done { look_again: Some(UNREAD) };
            }
            let mut world = self.world(key, kafka, snapshot, asking.answers.clone(), entropy);
            world.references = references;
            let mut plan = match (self.decide)(&world) {
                Ok(plan) => plan,
                Err(error) => {
                    tracing::error!(cluster = %key, %error, "could not render the cluster's objects");
                    return failed_by(&format!("could not render the cluster's objects: {error}"));
                }
            };
            if let Some(rendered) = &plan.rendered {
                self.admit_pod_sets(&world, rendered);
            }
            if let Err(failure) = self.hands.pools_exist(&world, &plan.begins()).await {
                return self.failed(key, &[failure]);
            }
            if plan.facts.is_empty() && !plan.certificates.is_empty() && !certificates.is_over {
                let failures = self.certify(&world, &plan.certificates, &mut certificates, place).await;
                // What needs no new certificate goes on without.
                certificates.is_over |= !failures.is_empty();
                outcome_of_certificates = (!failures.is_empty()).then(|| self.failed(key, &failures));
                continue;
            }
            if !plan.questions.is_empty() {
                self.ask(&world, &plan, &mut asking, place).await;
                continue;
            }
            // Who was silent a while ago may have come back, and lack what a restart would take away.
            if plan.relies_on_pods() && asking.insist() {
                continue;
            }
            if plan.facts.is_empty() {
                if certificates.is_partial {
                    // Pods that come before their keys wait for them, and longer than need be.
                    plan.objects.retain(|object| !matches!(object, Object::PodSet(_)));
                }
                let outcome = self.act(&world, plan, place).await;
                let outcome =
                    outcome_of_certificates.unwrap_or_else(|| self.not_before_asked_again(key, outcome));
                return if certificates.is_partial { outcome.no_later_than(MORE_KEYS) } else { outcome };
            }
            match Box::pin(self.make_durable(&world, plan, &mut certificates, place)).await {
                Ok(()) => {}
                Err(failure) => return self.failed(key, &[failure]),
            }
        }
        changed("each decision of this pass made another one necessary")
    }

    /// The cluster is gone.
    fn forget(&self, key: &ClusterKey) {
        self.clients.forget(key);
        self.release_slot(key);
        self.silences.forget(key);
        self.terms.forget(key);
        self.config_maps.forget(key);
        self.panics.forget_cluster(key);
        self.hands.memories.forget(key);
        self.named_secrets.forget(key);
        self.unreadable.forget(key);
    }

    /// Asks what the plan is to know. Meanwhile others work in its place.
    async fn ask(&self, world: &World, plan: &Plan, asking: &mut Asking, place: &Place) {
        let room = match asking.insists {
            true => place.room_whatever_it_takes().await,
            false => place.room(self.silences.pace(&world.key)).await,
        };
        let insistence = match (&room, asking.insists) {
            (_, true) => Insistence::Full,
            (Room::Free(_), false) => Insistence::Patient,
            (Room::Full, false) => Insistence::None,
        };
        let silences = self.silences.questions(world, insistence);
        let questions = &plan.questions;
        let answers = &mut asking.answers;
        let kafka = Box::pin(async {
            let began = Instant::now();
            Box::pin(ask::ask(&self.clients, &self.terms, world, questions, &silences, answers)).await;
            self.silences.took(&world.key, began.elapsed());
        });
        let all = async { futures::join!(self.hands.racks(&questions.machines), kafka) };
        let (machines, ()) = place.aside(room, Box::pin(all)).await;
        asking.answers.machines.extend(machines);
        asking.from_memory |= silences.are_from_memory();
    }

    /// While it is known what will be said, there is no use in looking every second.
    fn not_before_asked_again(&self, key: &ClusterKey, outcome: Outcome) -> Outcome {
        match (outcome, self.silences.pause(key)) {
            (Outcome::Done { look_again: Some(soon) }, Some(pause)) => {
                Outcome::Done { look_again: Some(soon.max(pause)) }
            }
            (outcome, _) => outcome,
        }
    }

    fn world(
        &self,
        key: &ClusterKey,
        kafka: Arc<Kafka>,
        snapshot: Snapshot,
        answers: Answers,
        entropy: Entropy,
    ) -> World {
        let (unreadable, strays) = (unreadable::of_pools(&snapshot), unreadable::strays(&snapshot));
        // Only a pod set that is still to be made can meet another of its name.
        let new: Vec<_> = pools::names(&kafka, &snapshot.pools)
            .into_iter()
            .map(|pool| key.pod_set(pool))
            .filter(|name| !snapshot.pod_sets.contains_key(name))
            .collect();
        let mut world = World {
            key: key.clone(),
            kafka,
            taken: self.hands.index.taken(key, &new),
            pools: snapshot.pools,
            pod_sets: snapshot.pod_sets,
            pods: snapshot.pods,
            config_maps: snapshot.config_maps,
            services: snapshot.services,
            service_accounts: snapshot.accounts,
            budgets: snapshot.budgets,
            policies: snapshot.policies,
            claims: snapshot.claims,
            secrets: snapshot.secrets,
            references: BTreeMap::new(),
            unreadable,
            strays,
            answers,
            memory: self.remembered(key),
            referenced: BTreeMap::new(),
            settings: Arc::clone(&self.settings),
            now: Timestamp::now(),
            api_server_time: clock::api_server_time(),
            entropy,
        };
        let mut named = own_certificates::names(&world.kafka);
        // Keys of nodes are not kept: one is read when the operator needs it.
        if let Some(node) = certificates::stand_in(&world) {
            let files = certificates::files_of(&node);
            named.entry(node).or_default().extend(files);
        }
        world.referenced = self.named_secrets.of(key, &named);
        world.memory.absent = absences::of(&world);
        self.remember(key, |memory| memory.absent.clone_from(&world.memory.absent));
        world
    }

    /// Facts, and beside them what does not depend on them.
    async fn make_durable(
        &self,
        world: &World,
        plan: Plan,
        certifying: &mut Certifying,
        place: &Place,
    ) -> Result<(), Failure> {
        let facts = plan.facts.iter().map(|fact| self.hands.write_fact(world, fact));
        let (facts, objects, certificates) = futures::join!(
            few_at_once(facts.collect(), Result::is_err),
            self.hands.write(world, plan.objects),
            self.certify(world, &plan.certificates, certifying, place)
        );
        self.meet_strangers(&world.key, &objects);
        facts.into_iter().collect::<Result<Vec<_>, _>>()?;
        if plan.facts.iter().any(|fact| matches!(fact, Fact::Identity { .. })) {
            self.events.cluster_formed(&world.kafka.object_ref(&())).await;
        }
        for failure in objects.iter().chain(&certificates) {
            tracing::debug!(cluster = %world.key, %failure, "is tried again in the next round, which tells what comes of it");
        }
        // What can be said only now: in the next round the nodes have their ids.
        let said_now = plan.pool_statuses.into_iter().filter(|(pool, _)| {
            plan.notices
                .iter()
                .any(|notice| notice.reason() == Reason::NodeIdsIgnored && notice.pool() == Some(pool))
        });
        let unsaid = self.report_pools(&world.key, &world.pools, &said_now.collect()).await;
        unsaid.into_iter().next().map_or(Ok(()), Err)
    }

    /// Makes what is asked for of keys and certificates: what takes a moment at once, and some of the keys that take long. Others work
    /// meanwhile.
    async fn certify(
        &self,
        world: &World,
        issues: &[Issue],
        certifying: &mut Certifying,
        place: &Place,
    ) -> Vec<Failure> {
        let (slow, quick): (Vec<_>, Vec<_>) = issues.iter().partition(|issue| issue.takes_long());
        let mut failures = self.hands.certify(world, &quick).await;
        let due = &slow[..slow.len().min(certifying.slow_keys)];
        let mut tried = 0;
        if !due.is_empty() {
            let (count, failed) = place.aside(Room::Free(None), self.hands.certify_slowly(world, due)).await;
            tried = count;
            failures.extend(failed);
        }
        certifying.tried(tried, due.len(), slow.len());
        self.remember_refusals(&world.key, CERTIFICATES, &failures);
        self.meet_strangers(&world.key, &failures);
        let made = quick.into_iter().chain(slow.into_iter().take(tried));
        for issue in made.filter(|issue| failures.is_empty() && issue.is_remarkable()) {
            self.events.certificates(&world.key, &world.kafka.object_ref(&()), issue).await;
        }
        failures
    }

    async fn act(&self, world: &World, mut plan: Plan, place: &Place) -> Outcome {
        let key = &world.key;
        let mut failures = Vec::new();
        if plan.relies_on_pods()
            && let Err(failure) = self.hands.pods_are_as_seen(world).await
        {
            plan.rely_on_no_pods();
            failures.push(failure);
        }
        let unwritten = self.hands.write(world, std::mem::take(&mut plan.objects)).await;
        let mut has_news = self.meet_strangers(key, &unwritten);
        // What is somebody else's waits, and nothing else does.
        failures.extend(unwritten.into_iter().filter(|failure| !failure.is_foreign()));
        for (service, outcome) in self.hands.write_each(world, std::mem::take(&mut plan.services)).await {
            let name = service.meta().name.as_deref().unwrap_or_default();
            match outcome {
                Ok(()) => self.remember(key, |memory| drop(memory.refused_services.remove(name))),
                Err(failure) if failure.is_unwillingness() && !failure.is_namespace_going() => {
                    tracing::warn!(cluster = %key, %failure, "its listener goes on without");
                    self.meet_strangers(key, std::slice::from_ref(&failure));
                    let (asked, why) = (listeners::services::asked(service.meta()), failure.words());
                    self.remember(key, |memory| memory.service_refused(name, asked, why, Timestamp::now()));
                    has_news = true;
                }
                Err(failure) => failures.push(failure),
            }
        }
        for growth in &plan.growths {
            match self.grow(key, growth).await {
                Ok(Grown::Asked) => {}
                Ok(Grown::Refused) => has_news = true,
                Err(failure) => failures.push(failure),
            }
        }
        for removal in &plan.removals {
            failures.extend(self.hands.remove(world, removal).await.err());
        }
        for ownership in &plan.ownerships {
            failures.extend(self.hands.own(key, ownership).await.err());
        }
        failures.extend(self.protect(key, &world.pools, &plan.protections).await);
        for mark in &plan.marks {
            failures.extend(self.hands.mark(key, mark).await.err());
        }
        for racked in &plan.racked {
            failures.extend(self.hands.tell_rack(key, racked).await.err());
        }
        let admission = self.slots.admit(world, &plan.restarts, plan.progress.as_ref());
        self.wake(admission.woken);
        for restart in &admission.admitted {
            let empty = plan.emptied.get(&restart.uid).map_or(&[][..], Vec::as_slice);
            failures.extend(self.restart(world, restart, empty).await.err());
        }
        let look_again = plan.look_again.into_iter().chain(admission.look_again).min();
        let checked = std::mem::take(&mut plan.checked_settings);
        self.remember(key, |memory| memory.checked_settings.extend(checked));
        failures.extend(self.ask_kafka_for_all(world, &plan.deeds, place).await);
        for annotation in &plan.forgotten {
            match self.hands.forget_annotation(world, annotation).await {
                Ok(()) => self.events.annotation_removed(key, &world.kafka.object_ref(&()), annotation).await,
                Err(failure) => failures.push(failure),
            }
        }
        failures.extend(self.report_pools(key, &world.pools, &plan.pool_statuses).await);
        if let Some(panicked) = self.panics.of(key).values().next() {
            // Some of its pods are not kept, whatever the rest is like.
            plan.status = internal_error::status(&world.kafka, &panicked.to_string(), world.now);
        }
        if let Some(status) = &plan.status {
            let uid = world.kafka.metadata.uid.as_deref();
            match self.hands.write_status::<Kafka>(key, &key.name, uid, status).await {
                Ok(()) => {
                    let old = world.kafka.status.as_ref().and_then(|status| status.conditions.as_ref());
                    let refused = matches!(plan.progress, Some(Progress::Refused(_)));
                    self.tell(key, &*world.kafka, old, status, refused).await;
                }
                Err(failure) => failures.push(failure),
            }
        }
        has_news |= self.remember_refusals(key, OBJECTS, &failures);
        if plan.certificates.is_empty() {
            has_news |= self.remember_refusals(key, CERTIFICATES, &[]);
        }
        match failures.is_empty() {
            true if has_news => {
                let why = "there is something new to tell, or something to be told no longer".to_owned();
                Outcome::Changed { why, look_again }
            }
            true => Outcome::Done { look_again },
            false => self.failed(key, &failures),
        }
    }

    /// Lets clusters go on that were given a slot.
    fn wake(&self, clusters: Vec<ClusterKey>) {
        self.hands.queue.push(clusters.into_iter().map(Work::Cluster));
    }

    fn release_slot(&self, key: &ClusterKey) {
        self.wake(self.slots.release(key));
    }

    /// Remembers objects of others that were met in place of the cluster's. Were there any?
    fn meet_strangers(&self, key: &ClusterKey, failures: &[Failure]) -> bool {
        let mut has_met = false;
        let known = self.remembered(key).strangers;
        for failure in failures {
            let Failure::Foreign { object, owner } = failure else { continue };
            if known.get(object).is_none_or(|known| known.owner != *owner) {
                tracing::warn!(cluster = %key, %failure, "what needs it waits");
            }
            self.remember(key, |memory| memory.met_stranger(object, owner, Timestamp::now()));
            has_met = true;
        }
        has_met
    }

    /// What is remembered of a cluster, as far as it is still of use.
    fn remembered(&self, key: &ClusterKey) -> Memory {
        self.remember(key, |memory| {
            memory.begin_pass(Timestamp::now());
            memory.clone()
        })
    }

    fn remember<T>(&self, key: &ClusterKey, happens: impl FnOnce(&mut Memory) -> T) -> T {
        self.hands.memories.change(key, happens)
    }

    /// Remembers what Kubernetes refused to whoever asked, and what it did not answer twice in a row. Tells whether there is something
    /// new to say.
    fn remember_refusals(&self, key: &ClusterKey, who: &str, failures: &[Failure]) -> bool {
        let words = |is_it: fn(&Failure) -> bool| -> BTreeSet<String> {
            failures.iter().filter(|failure| is_it(failure)).map(ToString::to_string).collect()
        };
        let (refused, late) = (words(Failure::is_to_be_told), words(Failure::is_late));
        self.remember(key, |memory| memory.kubernetes_refused(who, refused, late))
    }

    /// Lets the cluster say what was refused to a pod set, if that is news.
    fn tell_refusals(&self, cluster: &ClusterKey, set: &str, failures: &[Failure]) {
        if self.remember_refusals(cluster, set, failures) {
            self.hands.queue.push([Work::Cluster(cluster.clone())]);
        }
    }

    /// Lets a claim grow. That Kubernetes refuses is remembered, so that it is told and does not repeat itself at once.
    async fn grow(&self, key: &ClusterKey, growth: &Growth) -> Result<Grown, Failure> {
        match self.hands.grow(key, growth).await {
            Ok(()) => self.remember(key, |memory| drop(memory.refused_growth.remove(&growth.claim))),
            Err(failure) if failure.is_missing() => {}
            Err(failure) if failure.is_refusal() => {
                tracing::warn!(cluster = %key, %failure, "the claim stays as it is");
                let (claim, size, why) = (&growth.claim, &growth.size, failure.words());
                self.remember(key, |memory| memory.growth_refused(claim, size, why, Timestamp::now()));
                return Ok(Grown::Refused);
            }
            Err(failure) => return Err(failure),
        }
        Ok(Grown::Asked)
    }

    /// Replaces a pod. `empty` are claims that its successor does not have, and that were just seen to hold nothing.
    async fn restart(
        &self,
        world: &World,
        restart: &Restart,
        empty: &[(String, String)],
    ) -> Result<(), Failure> {
        self.hands.restart(world, restart).await?;
        for (claim, uid) in empty {
            self.hands.note_empty(&world.key, claim, uid, &restart.uid).await?;
        }
        self.events.restarted(&world.key, &world.kafka.object_ref(&()), restart).await;
        Ok(())
    }

    /// Lets Kafka do things, one after the other. Meanwhile others work in its place. Of whoever does not answer nothing more is asked
    /// in this pass, and of nobody for long.
    async fn ask_kafka_for_all(&self, world: &World, deeds: &[Deed], place: &Place) -> Vec<Failure> {
        if deeds.is_empty() {
            return Vec::new();
        }
        let key = &world.key;
        let before = self.hands.index.snapshot(key);
        let room = match self.silences.pace(key) {
            Pace::Prompt => place.room(Pace::Prompt).await,
            Pace::Slow | Pace::Hangs => place.room_whatever_it_takes().await,
        };
        let commands = async {
            // There may have been a queue before it.
            if !self.hands.index.snapshot(key).has_same_pods(&before) {
                return vec![Failure::Changed(format!(
                    "the pods of {} changed while others were asked",
                    key.name
                ))];
            }
            let (mut failures, began) = (Vec::new(), Instant::now());
            for deed in deeds {
                match self.ask_kafka_to(world, deed).await {
                    Ok(Said::Something) => {}
                    Ok(Said::Nothing) => break,
                    Err(failure) => failures.push(failure),
                }
                if began.elapsed() >= COMMANDS {
                    break;
                }
            }
            failures
        };
        place.aside(room, Box::pin(commands)).await
    }

    /// Lets Kafka do something. What became of it is seen when it is asked again: a failure is only remembered, so that it
    /// is told and does not repeat itself at once.
    async fn ask_kafka_to(&self, world: &World, deed: &Deed) -> Result<Said, Failure> {
        let key = &world.key;
        self.hands.wishes_are_as_seen(world).await?;
        if let Deed::Change(change) = deed {
            if let Some(node) = change.relies_on_pod_of() {
                self.hands.still_has_pod_of(world, node).await?;
            }
            self.is_still_to_change(world, change).await?;
        }
        let Some(time) = self.hands.leadership.time_for(DEADLINE) else { return Err(Failure::NotLeader) };
        if matches!(deed, Deed::Configure(_)) {
            // Before it is told: without an answer it may have happened all the same.
            self.remember(key, |memory| memory.checked_settings.clear());
        }
        let began = Instant::now();
        let done = tokio::time::timeout(time, self.clients.do_it(world, deed)).await;
        let took = began.elapsed();
        self.silences.took(key, took);
        if let Err(error) = done.unwrap_or(Err(Unchanged::Late(time))) {
            tracing::warn!(cluster = %key, ?deed, %error, "Kafka did not do it");
            self.remember(key, |memory| memory.kafka_refused(deed, &error, Timestamp::now()));
            return Ok(if took >= silences::LONG { Said::Nothing } else { Said::Something });
        }
        self.remember(key, |memory| memory.kafka_did(deed));
        self.events.done(key, &world.kafka.object_ref(&()), deed).await;
        if let Deed::Unregister(node) = deed {
            self.hands.forget_broker(world, *node).await?;
        }
        Ok(Said::Something)
    }

    /// A voter that is added or removed at the wrong moment can cost the quorum. The leader is asked again right before, and the change
    /// is made only if it is decided on that answer too.
    async fn is_still_to_change(&self, world: &World, change: &Change) -> Result<(), Failure> {
        let now = ask::quorum_now(&self.clients, &self.terms, world).await;
        match plan::still_changes(world, change, now) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Failure::Changed(format!(
                "the quorum of {} is not as it was any more; it is looked at again before this: {change}",
                world.key.name
            ))),
            Err(error) => Err(Failure::Changed(format!("could not decide again: {error}"))),
        }
    }

    async fn protect(
        &self,
        key: &ClusterKey,
        pools: &BTreeMap<String, Arc<KafkaNodePool>>,
        protections: &BTreeMap<String, Protection>,
    ) -> Vec<Failure> {
        let mut failures = Vec::new();
        for (name, protection) in protections {
            if let Some(pool) = pools.get(name) {
                let outcome = self.hands.protect(&key.namespace, pool, *protection).await;
                failures.extend(outcome.err().filter(|failure| !failure.is_missing()));
            }
        }
        failures
    }

    fn failed(&self, key: &ClusterKey, failures: &[Failure]) -> Outcome {
        if failures.iter().all(Failure::is_namespace_going) {
            tracing::debug!(cluster = %key, "the namespace is being deleted");
            return Outcome::Done { look_again: None };
        }
        if failures.iter().all(Failure::is_conflict) {
            for failure in failures {
                tracing::debug!(cluster = %key, %failure, "the world changed under the decision; deciding anew");
            }
            return changed(&in_words(failures));
        }
        for failure in failures {
            tracing::warn!(cluster = %key, %failure, "will be tried again");
        }
        failed_by(&in_words(failures))
    }

    /// Logs and publishes what is new in a status.
    async fn tell<K>(
        &self,
        key: &ClusterKey,
        resource: &K,
        old: Option<&Vec<Condition>>,
        patch: &Value,
        refused: bool,
    ) where
        K: Resource<DynamicType = ()>,
    {
        let Some(new) = patch.pointer("/status/conditions") else { return };
        let Ok(new) = serde_json::from_value::<Vec<Condition>>(new.clone()) else { return };
        let was_said = |condition: &Condition| {
            old.into_iter().flatten().any(|said| {
                (&said.type_, &said.status, &said.reason, &said.message)
                    == (&condition.type_, &condition.status, &condition.reason, &condition.message)
            })
        };
        for condition in new.iter().filter(|condition| !was_said(condition)) {
            self.events.condition(key, &resource.object_ref(&()), condition, refused).await;
        }
    }

    /// Writes the statuses of pools, and says what is new in them.
    async fn report_pools(
        &self,
        key: &ClusterKey,
        pools: &BTreeMap<String, Arc<KafkaNodePool>>,
        statuses: &BTreeMap<String, Value>,
    ) -> Vec<Failure> {
        let mut failures = Vec::new();
        for (name, patch) in statuses {
            let Some(pool) = pools.get(name) else { continue };
            let uid = pool.metadata.uid.as_deref();
            match self.hands.write_status::<KafkaNodePool>(key, name, uid, patch).await {
                Err(failure) if failure.is_missing() => {}
                Err(failure) => failures.push(failure),
                Ok(()) => {
                    let old = pool.status.as_ref().and_then(|status| status.conditions.as_ref());
                    self.tell(key, &**pool, old, patch, false).await;
                }
            }
        }
        failures
    }

    /// Pools whose cluster does not exist say so.
    async fn pools_without_kafka(&self, key: &ClusterKey, snapshot: &Snapshot) -> Outcome {
        // Without a label it belongs to none, whatever the selector is.
        if !self.sees_all && !key.name.is_empty() {
            return self.pools_of_unseen_kafka(key, snapshot).await;
        }
        let statuses = match plan::pools_without_kafka(key, &snapshot.pools, Timestamp::now()) {
            Ok(statuses) => statuses,
            Err(error) => {
                tracing::error!(cluster = %key, %error, "could not render the status of a pool");
                return failed_by(&format!("could not render the status of a pool: {error}"));
            }
        };
        let released = plan::released_without_kafka(&snapshot.pools);
        let mut failures = self.protect(key, &snapshot.pools, &released).await;
        failures.extend(self.report_pools(key, &snapshot.pools, &statuses).await);
        if failures.is_empty() { Outcome::Done { look_again: None } } else { self.failed(key, &failures) }
    }

    /// Pools whose `Kafka` resource the selector does not show. It may exist all the same, and be another operator's.
    async fn pools_of_unseen_kafka(&self, key: &ClusterKey, snapshot: &Snapshot) -> Outcome {
        let all = plan::released_without_kafka(&snapshot.pools);
        if all.is_empty() {
            return Outcome::Done { look_again: None };
        }
        let released = match self.hands.has_kafka(key).await {
            Ok(true) => plan::released_without_care(key, &snapshot.pools, &snapshot.pod_sets, &snapshot.pods),
            Ok(false) => all.clone(),
            Err(failure) => return self.failed(key, &[failure]),
        };
        let failures = self.protect(key, &snapshot.pools, &released).await;
        let waiting = all.keys().filter(|pool| !released.contains_key(*pool));
        let waiting: Vec<_> = waiting.filter_map(|name| snapshot.pools.get_key_value(name)).collect();
        for (name, pool) in &waiting {
            self.events.not_ours(key, &pool.object_ref(&()), &plan::cared_for_by_nobody(key, name)).await;
        }
        match failures.is_empty() {
            // Nobody tells when the resource goes, or gets the labels.
            true => Outcome::Done { look_again: (!waiting.is_empty()).then_some(UNSEEN) },
            false => self.failed(key, &failures),
        }
    }

    /// Does the selector leave this cluster to another operator?
    fn is_not_ours(&self, cluster: &ClusterKey) -> bool {
        !self.sees_all && !self.hands.index.has_kafka(cluster)
    }

    /// From now on pods are made for the pod sets as they were just rendered.
    fn admit_pod_sets(&self, world: &World, rendered: &Rendered) {
        let rendered_now = podset::remembered(world, rendered);
        self.remember(&world.key, |memory| memory.rendered = rendered_now);
        let work = |name: &String| Work::PodSet { cluster: world.key.clone(), name: name.clone() };
        let admitted: Vec<_> = podset::admitted(world, rendered).map(work).collect();
        if !admitted.is_empty() {
            self.hands.queue.push(admitted);
        }
    }

    /// Keeps the pods of a pod set.
    pub(crate) async fn pod_set(&self, cluster: &ClusterKey, name: &str) -> Outcome {
        let outcome = self.keep_pods(cluster, name).await;
        if self.panics.set(cluster, name, None) {
            // To be told no longer.
            self.hands.queue.push([Work::Cluster(cluster.clone())]);
        }
        outcome
    }

    async fn keep_pods(&self, cluster: &ClusterKey, name: &str) -> Outcome {
        let Some(PodSetSnapshot { set, pods, going }) = self.hands.index.pod_set(cluster, name) else {
            self.tell_refusals(cluster, name, &[]);
            return Outcome::Done { look_again: None };
        };
        if set.meta.other_manager().is_some() || self.is_not_ours(cluster) {
            return Outcome::Done { look_again: None };
        }
        let memory = self.remembered(cluster);
        let rendered = memory.rendered.get(name);
        if !podset::is_rendered(&set, rendered) {
            tracing::warn!(%cluster, pod_set = %name, "its pods were not described by Karst: none is made and none removed");
        }
        let mut plan = podset::plan(&set, &pods, &going, rendered);
        let needy = Needy::of_met(cluster, &memory.strangers);
        plan.actions.retain(|action| !action.is_creation() || needy.may_start(action.pod()));
        let waits = wait_for_strangers(&mut plan.actions, &memory.strangers, Timestamp::now());
        if plan.actions.iter().any(PodAction::is_creation)
            && let Err(failure) = self.hands.is_as_seen(&cluster.namespace, &set).await
        {
            return self.failed(cluster, &[failure]);
        }
        if plan.actions.iter().any(PodAction::is_creation) {
            let secrets = self.hands.index.snapshot(cluster).secrets;
            let actions = std::mem::take(&mut plan.actions).into_iter();
            plan.actions = actions.map(|action| action.as_started_now(cluster, &secrets)).collect();
        }
        let set = &*set;
        let actions = plan.actions.iter().map(|action| async move {
            let outcome = self.hands.handle_pod(cluster, set, action).await;
            if outcome.is_ok() && action.is_creation() {
                self.remember(cluster, |memory| drop(memory.strangers.remove(&stranger(action.pod()))));
            }
            outcome
        });
        let mut failures: Vec<_> = few_at_once(actions.collect(), Result::is_err)
            .await
            .into_iter()
            .filter_map(Result::err)
            .collect();
        // What was just created reports itself: the status is written when there is nothing else to do.
        if plan.actions.is_empty() && set.status.as_ref() != Some(&plan.status) {
            failures.extend(self.hands.write_report(cluster, set, &plan.status).await.err());
        }
        if self.meet_strangers(cluster, &failures) {
            let set = Work::PodSet { cluster: cluster.clone(), name: name.to_owned() };
            self.hands.queue.push([Work::Cluster(cluster.clone()), set]);
            failures.retain(|failure| !failure.is_foreign());
        }
        self.tell_refusals(cluster, name, &failures);
        if failures.is_empty() {
            Outcome::Done { look_again: waits }
        } else {
            self.failed(cluster, &failures)
        }
    }
}

/// How a pod of somebody else is remembered.
fn stranger(pod: &str) -> String {
    format!("Pod {pod}")
}

/// Makes no pod where one of somebody else was met just now. Returns when to try again: nobody tells when it is gone.
fn wait_for_strangers(
    actions: &mut Vec<PodAction>,
    strangers: &BTreeMap<String, Stranger>,
    now: Timestamp,
) -> Option<Duration> {
    let pause = |action: &PodAction| {
        let until = strangers.get(&stranger(action.pod())).filter(|_| action.is_creation())?.until;
        Duration::try_from(until.duration_since(now)).ok().filter(|pause| !pause.is_zero())
    };
    let waits = actions.iter().filter_map(pause).min();
    actions.retain(|action| pause(action).is_none());
    waits
}

impl Job for Passes {
    async fn work(&self, work: &Work, place: &Place) -> Outcome {
        match work {
            Work::Cluster(key) => Box::pin(self.cluster(key, place)).await,
            Work::PodSet { cluster, name } => self.pod_set(cluster, name).await,
        }
    }

    /// Nothing is decided here: whatever decides may be what panics.
    async fn tell_panic(&self, work: &Work, panicked: &Panicked) {
        let key = work.cluster();
        if let Work::PodSet { name, .. } = work {
            self.panics.remember(key, name, panicked.clone());
        }
        let Some(kafka) = self.hands.index.snapshot(key).kafka else { return };
        let Some(patch) = internal_error::status(&kafka, &panicked.to_string(), Timestamp::now()) else {
            return;
        };
        let uid = kafka.metadata.uid.as_deref();
        match self.hands.write_status::<Kafka>(key, &key.name, uid, &patch).await {
            Ok(()) => {
                let old = kafka.status.as_ref().and_then(|status| status.conditions.as_ref());
                self.tell(key, &*kafka, old, &patch, true).await;
            }
            Err(failure) => {
                tracing::warn!(cluster = %key, %failure, "could not say that something went wrong");
            }
        }
    }
}

/// What was asked in a pass, and how.
#[derive(Debug, Default)]
struct Asking {
    answers: Answers,
    /// Is everybody asked, also who did not answer lately?
    insists: bool,
    /// Was somebody not asked?
    from_memory: bool,
}

impl Asking {
    /// Starts over, and asks everybody, if somebody was not asked.
    fn insist(&mut self) -> bool {
        let starts_over = self.from_memory;
        if starts_over {
            *self = Self { insists: true, ..Self::default() };
        }
        starts_over
    }
}

fn changed(why: &str) -> Outcome {
    Outcome::Changed { why: why.to_owned(), look_again: None }
}

fn failed_by(why: &str) -> Outcome {
    Outcome::Failed { why: why.to_owned() }
}

/// The first few say enough.
fn in_words(failures: &[Failure]) -> String {
    failures.iter().take(TOLD).map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Randomness from the kernel. Without it no identity may be made, so nothing is decided.
fn entropy() -> Option<Entropy> {
    let mut bytes = [0; 32];
    match getrandom::fill(&mut bytes) {
        Ok(()) => Some(Entropy(bytes)),
        Err(error) => {
            tracing::error!(%error, "the kernel gives no randomness");
            None
        }
    }
}

#[cfg(test)]
mod tests;
