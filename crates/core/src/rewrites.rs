//! Objects that do not stay as Karst writes them: a policy engine, or another controller, changes them again and again.
//!
//! Such an object is written again, less and less often, and is named when that goes on for a minute. From the second time on
//! nothing waits for it, because it may never be as it should be; only pods do not restart into what is not theirs: settings that were
//! changed, or keys and certificates.

mod secrets;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use self::secrets::Stake;
use crate::certificates::Issue;
use crate::digest::Digest;
use crate::names::SETTINGS_IN_KAFKA_ANNOTATION;
use crate::notice::Notice;
use crate::objects::Object;
use crate::plan::Plan;
use crate::world::World;

/// From so many times on that the same was written, an object is one that does not stay as it is written.
const AGAIN: u32 = 2;
/// So often the same is not written without somebody who keeps changing it, even if it happens to be as it should be now.
const OFTEN: u32 = 4;
/// How long the first pause is. Each is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// How long a pause is at most.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How long it is at most while pods that run could load what is not theirs.
const LONGEST_PAUSE_OF_FILES: Duration = Duration::from_secs(10);
/// When an object is named that does not stay as it is written.
const TOLD_AFTER: Duration = Duration::from_secs(60);
/// What was not written again for so long is as it should be: it is written at least once in each longest pause.
const OVER: Duration = Duration::from_secs(180);

/// How often the same was written to an object lately. Kept in memory only: what is forgotten is found out again by writing twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rewrite {
    /// Fingerprint of what was written.
    content: Digest,
    /// When that was written first.
    first: Timestamp,
    /// When it was written last.
    last: Timestamp,
    /// How often.
    times: u32,
    /// What was found changed, and who changed the object last.
    difference: Option<String>,
    /// That it was found changed in what pods rely on.
    threat: Option<Threat>,
}

/// That something which pods rely on was found changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Threat {
    /// What that is.
    stake: Stake,
    /// When it was found last.
    last: Timestamp,
    /// How often.
    times: u32,
}

impl Rewrite {
    /// An object was written, and the API server took it. `difference` is what was found changed before, if that was looked for.
    pub fn after(
        before: Option<&Self>,
        object: &Object,
        now: Timestamp,
        difference: Option<String>,
    ) -> Result<Self, serde_json::Error> {
        Ok(Self::again(before, object.fingerprint()?, now, difference))
    }

    /// The Secrets of an issue were written, and the API server took them. Returns the name under which that is remembered. `by` is
    /// who changed what was there before, if that was looked for.
    pub fn after_issue(world: &World, issue: &Issue, by: Option<&str>) -> (String, Self) {
        let before = Self::of_issue(world, issue);
        let found = before.map(|_| {
            let by = by.map(|by| format!(" (changed last by \"{by}\")"));
            secrets::difference(world, issue) + &by.unwrap_or_default()
        });
        let threat = before.and_then(|before| before.threat);
        let seen = threat.map_or(0, |threat| threat.times);
        let new = secrets::stake(world, issue).filter(|_| before.is_some());
        let new = new.map(|stake| Threat { stake, last: world.now, times: seen.saturating_add(1) });
        let again = Self::again(before, secrets::fingerprint(issue), world.now, found);
        (secrets::describe(issue, &world.key), Self { threat: new.or(threat), ..again })
    }

    /// The Secret that an issue puts right, if just this was written to it lately, so that somebody changed it since.
    pub fn changed_secret(world: &World, issue: &Issue) -> Option<String> {
        Self::of_issue(world, issue).map(|_| secrets::name(issue, &world.key))
    }

    fn of_issue<'a>(world: &'a World, issue: &Issue) -> Option<&'a Self> {
        let known = world.memory.rewrites.get(&secrets::describe(issue, &world.key))?;
        // Whatever is the same is made again some day.
        (known.is_current(world.now) && known.content == secrets::fingerprint(issue)).then_some(known)
    }

    fn again(before: Option<&Self>, content: Digest, now: Timestamp, difference: Option<String>) -> Self {
        let before = before.filter(|before| before.content == content);
        Self {
            content,
            first: before.map_or(now, |before| before.first),
            last: now,
            times: before.map_or(0, |before| before.times).saturating_add(1),
            difference: before.and_then(|before| before.difference.clone()).or(difference),
            threat: None,
        }
    }

    /// Was just this written, so that somebody changed it since?
    pub fn is_of(&self, object: &Object) -> Result<bool, serde_json::Error> {
        Ok(self.content == object.fingerprint()?)
    }

    /// Is it still worth remembering? A clock that was set back says nothing.
    pub fn is_current(&self, now: Timestamp) -> bool {
        now.duration_since(self.last).unsigned_abs() < OVER
    }

    fn is_contested(&self) -> bool {
        self.times >= AGAIN
    }

    fn pause(&self, now: Timestamp) -> Duration {
        let doubled = 1_u32.checked_shl(self.times.saturating_sub(AGAIN)).unwrap_or(u32::MAX);
        let is_loaded = |threat: Threat| {
            threat.stake == Stake::Files && now.duration_since(threat.last).unsigned_abs() < OVER
        };
        let longest = if self.threat.is_some_and(is_loaded) { LONGEST_PAUSE_OF_FILES } else { LONGEST_PAUSE };
        FIRST_PAUSE.saturating_mul(doubled).min(longest)
    }

    /// For how long it is to be feared that it is changed again: it may be as it should be at this moment, and not when a pod reads it.
    fn is_feared_for(&self, now: Timestamp) -> Option<Duration> {
        let threat = self.threat.filter(|threat| threat.times >= AGAIN)?;
        self.rest(now, OVER, threat.last)
    }

    /// How long until something is to be done or said about it.
    fn rest(&self, now: Timestamp, of: Duration, since: Timestamp) -> Option<Duration> {
        let passed = Duration::try_from(now.duration_since(since)).unwrap_or_default();
        of.checked_sub(passed).filter(|rest| !rest.is_zero())
    }
}

/// Takes those Secrets out of a plan that are not to be written again yet. In a pass they come before all other objects.
pub(crate) fn settle_secrets(plan: &mut Plan, world: &World) {
    let mut contested = BTreeMap::new();
    let mut rests = Vec::new();
    plan.certificates.retain(|issue| {
        let known = Rewrite::of_issue(world, issue).filter(|known| known.is_contested());
        let Some(known) = known else { return true };
        let name = secrets::describe(issue, &world.key);
        let is_harmful = secrets::stake(world, issue).is_some();
        let pods = if is_harmful { secrets::readers(world, &name) } else { Vec::new() };
        contested.insert(name, pods);
        let rest = known.rest(world.now, known.pause(world.now), known.last);
        rests.extend(rest);
        rest.is_none()
    });
    plan.contested.extend(contested);
    plan.look_soon(rests.into_iter().min());
}

/// Are all keys and certificates made that others wait for?
pub(crate) fn is_certified(plan: &Plan, world: &World) -> bool {
    plan.certificates.iter().all(|issue| plan.contested.contains_key(&secrets::describe(issue, &world.key)))
}

/// Objects that are not as they were written, again.
#[derive(Debug, Default)]
pub(crate) struct Contest {
    /// Pods whose settings or descriptions are among them: they do not restart.
    pub(crate) held: BTreeSet<String>,
    /// Is what was told to Kafka not put down where it is remembered? Then it is told nothing more: nobody could take it back.
    pub(crate) forgets_settings: bool,
}

/// Takes those objects out of a plan that are not to be written again yet, and names those that are changed for too long.
pub(crate) fn settle(plan: &mut Plan, world: &World) -> Result<Contest, serde_json::Error> {
    let mut contest = Contest::default();
    if world.memory.rewrites.is_empty() {
        return Ok(contest);
    }
    let mut contested = std::mem::take(&mut plan.contested);
    for object in plan.objects.iter().chain(&plan.services) {
        let known = world.memory.rewrites.get(&object.describe()).filter(|known| known.is_contested());
        let Some(known) = known else { continue };
        if known.is_of(object)? {
            contested.insert(object.describe(), pods_of(object, world));
            contest.forgets_settings |= forgets_settings(object, world);
        }
    }
    let mut rests = Vec::new();
    let mut is_left_out = |object: &Object| {
        let name = object.describe();
        let known = world.memory.rewrites.get(&name).filter(|_| contested.contains_key(&name));
        let rest = known.and_then(|known| known.rest(world.now, known.pause(world.now), known.last));
        rests.extend(rest);
        rest.is_some()
    };
    plan.objects.retain(|object| !is_left_out(object));
    plan.services.retain(|object| !is_left_out(object));
    for (object, known) in &world.memory.rewrites {
        let feared = known.is_feared_for(world.now);
        rests.extend(feared);
        let readers = feared.map(|_| secrets::readers(world, object)).unwrap_or_default();
        contest.held.extend(readers.iter().cloned());
        let pods = contested.get(object);
        if pods.is_none() && readers.is_empty() && known.times < OFTEN {
            continue;
        }
        let untold = known.rest(world.now, TOLD_AFTER, known.first);
        rests.extend(untold);
        // One that is as it should be for long enough is named no longer.
        rests.extend(known.rest(world.now, OVER, known.last).filter(|_| pods.is_none()));
        let holds: BTreeSet<_> = pods.into_iter().flatten().cloned().chain(readers).collect();
        if untold.is_none() {
            let field = known.difference.clone();
            let holds = holds.into_iter().collect();
            plan.notices.push(Notice::ObjectKeepsChanging { object: object.clone(), field, holds });
        }
    }
    rests.into_iter().for_each(|rest| plan.look_soon(Some(rest)));
    contest.held.extend(contested.values().flatten().cloned());
    plan.contested = contested;
    Ok(contest)
}

/// Is it the service that remembers what Kafka was told, and does it remember something else?
fn forgets_settings(object: &Object, world: &World) -> bool {
    let Object::Service(service) = object else { return false };
    let told = service.metadata.annotations.as_ref().and_then(|all| all.get(SETTINGS_IN_KAFKA_ANNOTATION));
    let seen = service.metadata.name.as_ref().and_then(|name| world.services.get(name));
    let remembered = seen.and_then(|seen| seen.meta.annotations.get(SETTINGS_IN_KAFKA_ANNOTATION));
    told.is_some() && told != remembered
}

/// The pods that are made from an object, and must not restart before it is as it should be.
fn pods_of(object: &Object, world: &World) -> Vec<String> {
    match object {
        Object::ConfigMap(map) => map.metadata.name.iter().cloned().collect(),
        Object::PodSet(set) => {
            let seen = set.metadata.name.as_ref().and_then(|name| world.pod_sets.get(name));
            let wanted = set.spec.pods.iter().filter_map(|pod| pod["metadata"]["name"].as_str());
            let listed = seen.iter().flat_map(|seen| seen.pods.keys().map(String::as_str));
            let pods: BTreeSet<_> = wanted.chain(listed).collect();
            pods.into_iter().map(str::to_owned).collect()
        }
        _ => Vec::new(),
    }
}
