//! What runs in pods: containers that start late, end in grace and crash, and the launcher that formats disks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use karst_core::ids::{DirectoryId, NodeId};
use karst_core::membership::Voter;
use karst_core::names::node_of_pod;
use karst_core::quorum::InitialControllers;
use karst_core::world::PodView;

use crate::dice::Dice;
use crate::kraft::{Disk, FETCH_TIMEOUT, Memory, Quorum, Voters, fixed_voters};
use crate::kubernetes::{ApiServer, Kind};
use crate::trust::Readings;

/// How long things take, in milliseconds: least and most.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// From a pod's creation to its process.
    pub start: (u64, u64),
    /// From a pod's deletion to its end.
    pub grace: (u64, u64),
    /// From a crash to the next start.
    pub restart: (u64, u64),
}

/// A pod as its kubelet knows it.
#[derive(Debug, Clone)]
struct Container {
    node: NodeId,
    /// Does it have a machine? From then on its claim stays as long as the pod.
    has_machine: bool,
    /// When it is to start, while it does not run.
    starts: Option<u64>,
    /// When it is gone, once it is to end.
    ends: Option<u64>,
    /// Has its process been stopped?
    is_stopped: bool,
    /// Does its launcher wait for others who know whether its disk was lost?
    checks_disk: bool,
    /// Did it ever find out that a first voter was in this pod before?
    is_named: bool,
    /// Since when its launcher has heard of a majority of other voters.
    hears_since: Option<u64>,
    /// Does it die whenever it starts?
    starves: bool,
    /// Why nothing ever runs in it.
    fails: Option<Fails>,
}

/// Why nothing runs in a pod, from its beginning on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fails {
    /// It dies whenever it starts.
    Crashes,
    /// Its image cannot be had: it does not even start.
    Waits,
}

impl Fails {
    fn phase(self) -> &'static str {
        match self {
            Self::Crashes => "Running",
            Self::Waits => "Pending",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Crashes => "CrashLoopBackOff: back-off restarting failed container",
            Self::Waits => "ImagePullBackOff: back-off pulling image",
        }
    }
}

/// For so long a launcher must have heard of a majority of other voters, in milliseconds: longer than they may be behind.
const SETTLED: u64 = FETCH_TIMEOUT + 500;
/// For so long, at least and at most, a broker that died reads its logs anew, in milliseconds.
const RECOVERY: (u64, u64) = (1_000, 8_000);
/// The same, of one in ten that has more to read.
const LONG_RECOVERY: (u64, u64) = (25_000, 90_000);

/// All kubelets.
#[derive(Debug, Clone)]
pub struct Kubelet {
    containers: BTreeMap<String, Container>,
    /// How long things take.
    pub pace: Pace,
    /// What processes read of certificates.
    pub readings: Readings,
    /// Until when no machine has room for another pod.
    pub full_until: u64,
    /// Directory ids that took part in the quorum, and whose disk is lost.
    pub retired: BTreeSet<DirectoryId>,
    /// What befalls the next pods of these nodes.
    pub next_fails: BTreeMap<NodeId, Fails>,
}

impl Kubelet {
    /// Kubelets that are this fast.
    pub fn new(pace: Pace) -> Self {
        let (containers, retired) = (BTreeMap::new(), BTreeSet::new());
        let (readings, next_fails) = (Readings::default(), BTreeMap::new());
        Self { containers, pace, readings, full_until: 0, retired, next_fails }
    }

    /// Time passes.
    pub fn step(&mut self, now: u64, api: &mut ApiServer, quorum: &mut Quorum, dice: &mut Dice) {
        let pods: Vec<Arc<PodView>> = api.pods().cloned().collect();
        for pod in &pods {
            self.step_pod(now, pod, api, quorum, dice);
        }
        let has_machine = |uid: &str| self.containers.get(uid).is_some_and(|one| one.has_machine);
        for uid in api.collect_garbage(has_machine) {
            self.lose_disk(&uid, quorum);
        }
    }

    fn step_pod(
        &mut self,
        now: u64,
        pod: &PodView,
        api: &mut ApiServer,
        quorum: &mut Quorum,
        dice: &mut Dice,
    ) {
        let Some(node) = node_of_pod(&pod.meta.name) else { return };
        let (start, grace) = (self.pace.start, self.pace.grace);
        if !self.containers.contains_key(&pod.meta.uid) {
            let starts = Some(now.max(self.full_until) + dice.between(start.0, start.1));
            let fails = self.next_fails.remove(&node);
            let new = Container {
                node,
                has_machine: false,
                starts,
                ends: None,
                is_stopped: false,
                checks_disk: false,
                is_named: false,
                hears_since: None,
                starves: fails.is_some(),
                fails,
            };
            self.containers.insert(pod.meta.uid.clone(), new);
        }
        let Some(container) = self.containers.get_mut(&pod.meta.uid) else { return };
        if pod.meta.deleting {
            let ends = *container.ends.get_or_insert_with(|| now + dice.between(grace.0, grace.1));
            // The process ends first, some time before the pod is gone.
            if !container.is_stopped && (now >= ends || dice.chance(300)) {
                container.is_stopped = true;
                if container.starts.is_none() {
                    quorum.stop(node);
                }
            }
            if now >= ends {
                self.containers.remove(&pod.meta.uid);
                self.lose_disk(&pod.meta.uid, quorum);
                api.end_pod(&pod.meta.name);
            }
            return;
        }
        let has_room = now >= self.full_until;
        container.has_machine = container.has_machine || has_room && has_claim(api, pod);
        let fails = container.fails.filter(|_| container.starts.is_some_and(|starts| now >= starts));
        if let Some(fails) = fails.filter(|_| container.has_machine && pod.stuck.is_none()) {
            api.edit_pod(&pod.meta.name, |pod| {
                pod.phase = fails.phase().to_owned();
                pod.stuck = Some(fails.words().to_owned());
            });
            return;
        }
        if container.starts.is_some_and(|starts| now >= starts)
            && !container.starves
            && self.start(now, pod, node, api, quorum, dice)
        {
            if let Some(container) = self.containers.get_mut(&pod.meta.uid) {
                container.starts = None;
            }
            api.edit_pod(&pod.meta.name, |pod| pod.phase = "Running".to_owned());
        } else if self.checks_disk(node) && pod.phase != "Running" {
            api.edit_pod(&pod.meta.name, |pod| pod.phase = "Running".to_owned());
        }
        let ready = quorum.is_ready(node) && self.runs(&pod.meta.uid);
        if ready != pod.ready {
            let since = Some(crate::sim::timestamp(now));
            api.edit_pod(&pod.meta.name, |pod| {
                pod.ready = ready;
                pod.was_ready |= ready;
                pod.since = since;
            });
        }
    }

    /// Does a pod have a machine, so that its claim stays as long as it does?
    pub fn has_machine(&self, pod: &PodView) -> bool {
        self.containers.get(&pod.meta.uid).is_some_and(|container| container.has_machine)
    }

    fn runs(&self, uid: &str) -> bool {
        self.containers.get(uid).is_some_and(|container| container.starts.is_none() && !container.is_stopped)
    }

    /// Starts what is in the pod, if its claim, its settings and its certificate are there.
    fn start(
        &mut self,
        now: u64,
        pod: &PodView,
        node: NodeId,
        api: &mut ApiServer,
        quorum: &mut Quorum,
        dice: &mut Dice,
    ) -> bool {
        if !has_secrets(api, pod) {
            return false;
        }
        let Some(settings) = api.settings(&pod.meta.name).cloned() else { return false };
        let disk = match api.volume(&pod.meta.uid) {
            None => pod.meta.uid.clone(),
            // What runs on a claim that is being deleted can start again, as long as its pod is there.
            Some(claim) => {
                match api.claim(claim).filter(|claim| !claim.meta.deleting || self.has_machine(pod)) {
                    Some(claim) => claim.meta.uid.clone(),
                    None => return false,
                }
            }
        };
        let has_role = |role: &str| {
            let config = settings.get("server.config").map_or("", String::as_str);
            let roles = config.lines().find_map(|line| line.strip_prefix("process.roles="));
            roles.is_some_and(|roles| roles.split(',').any(|one| one.trim() == role))
        };
        let (controller, broker) = (has_role("controller"), has_role("broker"));
        if !may_start_on(quorum.disks.get(&disk), &settings) {
            return false;
        }
        if !quorum.disks.contains_key(&disk) {
            let format = settings.get("storage.format").map_or("", String::as_str);
            if format == "static" && controller && !self.hears_of_majority(now, pod, node, quorum) {
                return false;
            }
            let founder = founder(node, controller, &settings);
            let told = settings.get("empty.disk").map_or("", String::as_str);
            let Some(founder) = self.check_disk(pod, founder, told, quorum) else { return false };
            if let Some(container) = self.containers.get_mut(&pod.meta.uid) {
                container.checks_disk = false;
                container.is_named |= founder.is_some();
            }
            let formatted = self.format(node, founder, &settings, quorum, dice);
            quorum.disks.insert(disk.clone(), formatted);
        }
        self.readings.read(node, &pod.meta.name, api);
        let died = broker && quorum.needs_recovery(&disk);
        quorum.start(node, &disk, controller, broker, understood_by(pod));
        if died {
            let (least, most) = if dice.chance(100) { LONG_RECOVERY } else { RECOVERY };
            quorum.recover(node, dice.between(least, most));
        }
        let config = settings.get("server.config").map_or("", String::as_str);
        let voters = config.lines().find_map(|line| line.strip_prefix("controller.quorum.voters="));
        quorum.read_settings(node, voters.and_then(fixed_voters));
        if let Some(claim) = api.volume(&pod.meta.uid).and_then(|claim| api.claim(claim)).cloned()
            && !claim.bound
        {
            // It was just seen.
            let _ = api.edit_claim(&claim.meta.name, &claim.meta.uid, |claim| claim.bound = true);
        }
        true
    }

    /// The launcher of a voter of a static quorum whose disk is empty waits until a majority of the others has had everything for a while.
    fn hears_of_majority(&mut self, now: u64, pod: &PodView, node: NodeId, quorum: &Quorum) -> bool {
        let Some(container) = self.containers.get_mut(&pod.meta.uid) else { return false };
        if !quorum.can_do_without(node) {
            container.hears_since = None;
            return false;
        }
        now >= *container.hears_since.get_or_insert(now) + SETTLED
    }

    /// The launcher of a first voter asks the others whether it was there before. `None` when it asks again later; it is a first
    /// voter no more if it was.
    fn check_disk(
        &mut self,
        pod: &PodView,
        founder: Option<Founder>,
        told: &str,
        quorum: &mut Quorum,
    ) -> Option<Option<Founder>> {
        let doubtful = founder.as_ref().filter(|founder| !founder.is_restored);
        let Some(own) = doubtful.map(|founder| founder.own) else { return Some(founder) };
        let container = self.containers.get_mut(&pod.meta.uid)?;
        let memory = quorum.remembers(&own);
        container.is_named |= matches!(memory, Memory::WasThere | Memory::NoLeader);
        let has_leader = matches!(memory, Memory::WasThere | Memory::New);
        match told {
            _ if has_leader && (container.is_named || told == "replaced") => {
                quorum.said.push(format!("node {} hears that it was there before", own.node));
                return Some(None);
            }
            _ if has_leader => return Some(founder),
            "allowed" => return Some(founder),
            _ if container.is_named => {}
            "new" => return Some(founder),
            "late" if memory == Memory::Nothing => return Some(founder),
            _ => {}
        }
        container.checks_disk = true;
        None
    }

    /// Does the launcher of this node wait for somebody who knows whether its disk was lost?
    pub fn checks_disk(&self, node: NodeId) -> bool {
        let of_node = |one: &&Container| one.node == node && one.ends.is_none();
        self.containers.values().filter(of_node).any(|one| one.checks_disk)
    }

    /// What the launcher does with an empty disk.
    fn format(
        &self,
        node: NodeId,
        founder: Option<Founder>,
        settings: &BTreeMap<String, String>,
        quorum: &mut Quorum,
        dice: &mut Dice,
    ) -> Disk {
        let text = |key: &str| settings.get(key).cloned().unwrap_or_default();
        let cluster = text("cluster.id");
        if let Some(Founder { own, voters, .. }) = founder {
            let directory = own.directory;
            quorum.said.push(format!("node {node} formats its disk as one of the first voters"));
            if self.retired.contains(&directory) && quorum.broken.is_none() {
                quorum.broken = Some(format!(
                    "node {node} lost its disk, and votes under its old directory id {directory} again"
                ));
            }
            return Disk::formatted(directory, cluster, Some(voters));
        }
        let is_static = ["static", "static-anew"].contains(&text("storage.format").as_str());
        let how = if is_static { "without a word about voters" } else { "to join" };
        quorum.said.push(format!("node {node} formats its disk {how}"));
        loop {
            if let Some(directory) = DirectoryId::from_bytes(dice.bytes()) {
                return Disk { is_static, ..Disk::formatted(directory, cluster, None) };
            }
        }
    }

    /// Is nothing about to start or to end?
    pub fn is_settled(&self, now: u64) -> bool {
        let later = |time: Option<u64>| time.is_some_and(|time| time > now);
        let starts = |one: &Container| !one.starves && later(one.starts);
        !self.containers.values().any(|container| starts(container) || later(container.ends))
    }

    /// A disk is gone for good.
    pub fn lose_disk(&mut self, disk: &str, quorum: &mut Quorum) {
        if let Some(lost) = quorum.disks.remove(disk) {
            quorum.loses(lost.directory);
            if lost.took_part() {
                self.retired.insert(lost.directory);
            }
        }
        if quorum.is_over() {
            self.retired.clear();
        }
    }

    /// The process of a node dies, and its container starts again after this long, or after a while.
    pub fn crash(&mut self, node: NodeId, down: Option<u64>, now: u64, quorum: &mut Quorum, dice: &mut Dice) {
        let (least, most) = self.pace.restart;
        let running = self
            .containers
            .values_mut()
            .find(|container| container.node == node && container.ends.is_none() && !container.is_stopped);
        let Some(container) = running else { return };
        if container.starts.is_none() {
            quorum.crash(node);
        }
        let starts = now + down.unwrap_or_else(|| dice.between(least, most));
        container.checks_disk = false;
        container.starts = Some(container.starts.map_or(starts, |before| before.max(starts)));
    }
}

impl Kubelet {
    /// From now on what is in this pod dies whenever it starts: it has too little memory, say.
    pub fn starve(&mut self, pod: &PodView, now: u64, api: &mut ApiServer, quorum: &mut Quorum) {
        let Some(container) = self.containers.get_mut(&pod.meta.uid) else { return };
        quorum.crash(container.node);
        container.starves = true;
        container.starts.get_or_insert(0);
        api.edit_pod(&pod.meta.name, |pod| {
            pod.ready = false;
            pod.since = Some(crate::sim::timestamp(now));
            pod.stuck = Some("CrashLoopBackOff: back-off restarting failed container".to_owned());
        });
    }
}

/// One of the first voters, as its settings name it.
struct Founder {
    own: Voter,
    voters: Voters,
    /// Is its vote given back to it?
    is_restored: bool,
}

fn founder(node: NodeId, controller: bool, settings: &BTreeMap<String, String>) -> Option<Founder> {
    let text = |key: &str| settings.get(key).map_or("", String::as_str);
    let is_restored = match text("storage.format") {
        "initial" => false,
        "restore" => true,
        _ => return None,
    };
    let list = InitialControllers::parse(text("initial.controllers")).ok().filter(|_| controller)?;
    let own = Voter { node, directory: list.get(node)?.directory };
    let voters = list.iter().map(|one| Voter { node: one.node, directory: one.directory }).collect();
    Some(Founder { own, voters: Arc::new(voters), is_restored })
}

/// No pod gets a machine while its claim is missing, or is being deleted.
fn has_claim(api: &ApiServer, pod: &PodView) -> bool {
    api.volume(&pod.meta.uid).is_none_or(|claim| api.claim(claim).is_some_and(|claim| !claim.meta.deleting))
}

/// Does the launcher start on a disk with this on it? Not on one of another cluster, and on an empty one only when it is sure
/// which cluster it is to be of.
fn may_start_on(disk: Option<&Disk>, settings: &BTreeMap<String, String>) -> bool {
    let text = |key: &str| settings.get(key).map_or("", String::as_str);
    let adopts = text("storage.format") == "adopt";
    let is_unknown = adopts && text("cluster.id").is_empty();
    disk.map_or(!adopts, |disk| is_unknown || disk.cluster == text("cluster.id"))
}

/// Is everything there that the pod mounts of Secrets?
fn has_secrets(api: &ApiServer, pod: &PodView) -> bool {
    let trust = karst_core::names::trust_secret(crate::scenarios::CLUSTER);
    [pod.meta.name.as_str(), trust.as_str()].iter().all(|name| api.get(Kind::Secret, name).is_some())
}

/// The newest metadata version that the Kafka in a pod can read, by its level.
fn understood_by(pod: &PodView) -> i16 {
    let version = pod.meta.annotations.get(karst_core::names::KAFKA_VERSION_ANNOTATION);
    let known = version.and_then(|version| karst_core::versions::find(version));
    known.and_then(|known| karst_core::versions::metadata_level(known.metadata)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use karst_core::ids::Entropy;

    use super::*;

    const UID: &str = "uid-of-pod";

    fn kubelet() -> (Kubelet, PodView) {
        let mut kubelet = Kubelet::new(Pace { start: (0, 0), grace: (0, 0), restart: (0, 0) });
        let container = Container {
            node: NodeId(1),
            has_machine: true,
            starts: Some(0),
            ends: None,
            is_stopped: false,
            checks_disk: false,
            is_named: false,
            hears_since: None,
            starves: false,
            fails: None,
        };
        kubelet.containers.insert(UID.to_owned(), container);
        let mut pod = PodView::default();
        pod.meta.uid = UID.to_owned();
        (kubelet, pod)
    }

    fn first_voter(is_restored: bool) -> Option<Founder> {
        let own = Voter { node: NodeId(1), directory: Entropy([1; 32]).directory_id(NodeId(1)) };
        Some(Founder { own, voters: Arc::new([own].into()), is_restored })
    }

    /// The same rules as in `crates/node`, module `lost_disk`.
    #[test]
    fn where_nobody_answers_only_a_first_disk_of_a_new_quorum_is_formatted_without_a_word() {
        for (disk, waits) in
            [("new", false), ("late", true), ("replaced", true), ("", true), ("allowed", false)]
        {
            let (mut kubelet, pod) = kubelet();
            let said = kubelet.check_disk(&pod, first_voter(false), disk, &mut Quorum::default());
            assert_eq!(said.is_none(), waits, "{disk}");
            assert_eq!(kubelet.checks_disk(NodeId(1)), waits, "{disk}");
        }
        let (mut kubelet, pod) = kubelet();
        assert!(
            kubelet.check_disk(&pod, first_voter(true), "", &mut Quorum::default()).is_some(),
            "given back"
        );
    }

    #[test]
    fn who_was_named_once_waits_until_a_person_or_a_leader_tells() {
        let (mut kubelet, pod) = kubelet();
        kubelet.containers.get_mut(UID).unwrap().is_named = true;
        let mut check =
            |disk| kubelet.check_disk(&pod, first_voter(false), disk, &mut Quorum::default()).is_none();
        assert!(check("new"));
        assert!(!check("allowed"));
    }
}
