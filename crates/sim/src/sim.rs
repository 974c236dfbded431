//! The world: Kubernetes, Kafka, users and misfortune, under one seed and one clock.

use std::collections::VecDeque;

use k8s_openapi::jiff::Timestamp;
use karst_core::ids::NodeId;
use karst_core::world::PartitionView;

use crate::dice::Dice;
use crate::invariants::Watch;
use crate::kraft::Quorum;
use crate::kubelet::{Kubelet, Pace};
use crate::kubernetes::ApiServer;
use crate::partitions;
use crate::scenarios::{Edit, Step, When};

/// The namespace of everything.
pub const NAMESPACE: &str = "myproject";
/// A moment, in milliseconds.
pub const TICK: u64 = 100;

/// The time of day at a moment of the simulation.
pub fn timestamp(now: u64) -> Timestamp {
    let millis = i64::try_from(now).unwrap_or_default();
    Timestamp::from_millisecond(1_700_000_000_000 + millis).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// What happens to one call of the operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is made and answered.
    Fine,
    /// The operator dies before it.
    CrashBefore,
    /// The operator dies after it, before it hears the answer.
    CrashAfter,
    /// It is made, and the answer is lost.
    Lost,
    /// It is not made.
    Refused,
}

/// All that can befall a call.
pub const FATES: [Fate; 4] = [Fate::CrashBefore, Fate::CrashAfter, Fate::Lost, Fate::Refused];

/// What goes wrong, and how often.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// This befalls the call of this number.
    pub at: Option<(usize, Fate)>,
    /// So many calls in a thousand.
    pub calls: u64,
    /// So many questions to Kafka in a thousand get no answer.
    pub silence: u64,
    /// In so many moments of ten thousand a process dies.
    pub crashes: u64,
    /// In so many moments of ten thousand all processes die.
    pub power_cuts: u64,
    /// In so many moments of ten thousand a disk is lost, if Kafka can do without it.
    pub disks: u64,
    /// In so many moments of ten thousand somebody deletes a pod by hand.
    pub deletions: u64,
    /// When it all stops, in milliseconds.
    pub until: u64,
    /// Does the world move between any two calls of a pass?
    pub interleaves: bool,
}

/// The world.
#[derive(Debug, Clone)]
pub struct Sim {
    /// The time, in milliseconds.
    pub now: u64,
    /// All chance.
    pub dice: Dice,
    /// Kubernetes.
    pub api: ApiServer,
    /// What runs pods.
    pub kubelet: Kubelet,
    /// Kafka's metadata.
    pub quorum: Quorum,
    /// Kafka's data.
    pub partitions: Vec<PartitionView>,
    /// What goes wrong.
    pub faults: Faults,
    /// What users and fate still have in store.
    pub agenda: VecDeque<Step>,
    /// What must hold.
    pub watch: Watch,
    /// How many calls the operator made.
    pub calls: usize,
    /// How many times the operator decided.
    pub plans: usize,
    /// What happened, if anybody wants to know.
    pub story: Option<Vec<String>>,
    /// When the next step of the agenda is due.
    pub next: Option<u64>,
}

impl Sim {
    /// An empty world.
    pub fn new(seed: u64, tells: bool) -> Self {
        let mut api = ApiServer::default();
        api.lag = 300;
        let mut quorum = Quorum::default();
        quorum.has_clients = true;
        let pace = Pace { start: (300, 2_000), grace: (200, 1_500), restart: (500, 3_000) };
        Self {
            now: 0,
            dice: Dice::new(seed),
            api,
            kubelet: Kubelet::new(pace),
            quorum,
            partitions: Vec::new(),
            faults: Faults::default(),
            agenda: VecDeque::new(),
            watch: Watch::default(),
            calls: 0,
            plans: 0,
            story: tells.then(Vec::new),
            next: None,
        }
    }

    /// Adds a line to the story.
    pub fn tell(&mut self, line: impl FnOnce() -> String) {
        if let Some(story) = &mut self.story {
            let (seconds, tenths) = (self.now / 1000, self.now % 1000 / 100);
            story.push(format!("{seconds:>5}.{tenths} {}", line()));
        }
    }

    /// A moment passes.
    pub fn tick(&mut self) {
        self.now += TICK;
        let lag = if self.api.lag == 0 { 0 } else { self.dice.between(0, self.api.lag) };
        self.api.at(self.now, lag);
        self.misfortune();
        if self.next.is_some_and(|next| next <= self.now) {
            self.edit();
        }
        self.kubelet.step(self.now, &mut self.api, &mut self.quorum, &mut self.dice);
        self.quorum.step(self.now, &mut self.dice);
        partitions::step(&mut self.partitions, &self.quorum, self.now, &mut self.dice);
        for line in std::mem::take(&mut self.quorum.said) {
            self.tell(|| format!("kafka     {line}"));
        }
        self.check();
    }

    /// The next step of the agenda.
    pub fn edit(&mut self) {
        let Some(Step { edit, .. }) = self.agenda.pop_front() else { return };
        self.tell(|| format!("user      {edit}"));
        if edit.is_fault() {
            self.watch.last_fault = self.now;
        }
        edit.carry_out(self);
        self.next = match self.agenda.front().map(|step| step.when) {
            Some(When::After(least, most)) => Some(self.now + self.dice.between(least, most)),
            _ => None,
        };
    }

    /// Are faults still to come?
    pub fn is_stormy(&self) -> bool {
        self.now < self.faults.until
    }

    fn misfortune(&mut self) {
        if !self.is_stormy() {
            return;
        }
        let happens = |sim: &mut Self, often: u64| often > 0 && sim.dice.roll() % 10_000 < often;
        if happens(self, self.faults.crashes)
            && let Some(node) = self.any_node()
        {
            Edit::Crash(node.0).befall(self);
        }
        if happens(self, self.faults.power_cuts) {
            Edit::PowerCut.befall(self);
        }
        if happens(self, self.faults.disks)
            && let Some(node) = self.any_node()
            && self.can_lose_disk(node)
        {
            Edit::LoseDisk(node.0).befall(self);
        }
        if happens(self, self.faults.deletions)
            && let Some(node) = self.any_node()
        {
            Edit::DeletePod(node.0).befall(self);
        }
    }

    fn any_node(&mut self) -> Option<NodeId> {
        let nodes: Vec<NodeId> = self.quorum.processes.keys().copied().collect();
        self.dice.pick(&nodes).copied()
    }

    /// Would a majority of intact voters be left, and the data of every partition?
    fn can_lose_disk(&self, node: NodeId) -> bool {
        let voters = self.quorum.committed_voters();
        let newest = self.quorum.newest_voters();
        let enough = |voters: &std::collections::BTreeSet<karst_core::membership::Voter>| {
            let others = voters.iter().filter(|voter| voter.node != node);
            self.quorum.healthy(others) >= crate::kraft::majority(voters.len())
        };
        let data =
            self.partitions.iter().all(|partition| partition.in_sync.iter().any(|other| *other != node));
        !voters.is_empty() && enough(&voters) && enough(&newest) && data
    }

    /// What befalls the next call.
    pub fn fate(&mut self) -> Fate {
        self.calls += 1;
        if let Some((at, fate)) = self.faults.at {
            return if at == self.calls { fate } else { Fate::Fine };
        }
        if self.faults.calls > 0 && self.is_stormy() && self.dice.chance(self.faults.calls) {
            return self.dice.pick(&FATES).copied().unwrap_or(Fate::Fine);
        }
        Fate::Fine
    }
}
