//! The world: Kubernetes, Kafka, users and misfortune, under one seed and one clock.

use std::collections::{BTreeMap, VecDeque};

use k8s_openapi::jiff::Timestamp;

use crate::data::Data;
use crate::dice::Dice;
use crate::faults::{Faults, Silence, Strike};
use crate::invariants::Watch;
use crate::kraft::Quorum;
use crate::kubelet::{Kubelet, Pace};
use crate::kubernetes::{ApiServer, Kind};
use crate::mutations::Before;
use crate::operator::Operator;
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
    pub data: Data,
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
    /// What befell the operator and the nodes by chance.
    pub struck: Vec<Strike>,
    /// The chance of misfortune. It is a die of its own, so that a run goes the same way when the same things befall it.
    pub(crate) fates: Dice,
    /// The chance of what befalls the ways between the operator and the API server. A die of its own, so that all else goes as without.
    pub(crate) weather: Dice,
    /// How many questions Kafka was asked.
    pub(crate) questions: usize,
    /// When the run began.
    pub(crate) began: u64,
    /// Watches that are silent for now, of which operator and of which kind, and until when.
    pub(crate) deaf: BTreeMap<(usize, Kind), Silence>,
    /// Until when no operator runs.
    pub(crate) no_operator_until: u64,
    /// For how long no operator is to run from the moment in which one has taken a node off a pod set.
    pub(crate) dies_unlisting: Option<u64>,
    /// Another operator that believes to lead.
    pub(crate) rival: Option<Box<Operator>>,
    /// How everything was, if it is to be like that again.
    pub(crate) before: Option<Before>,
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
            data: Data::default(),
            faults: Faults::default(),
            agenda: VecDeque::new(),
            watch: Watch::default(),
            calls: 0,
            plans: 0,
            story: tells.then(Vec::new),
            next: None,
            struck: Vec::new(),
            fates: Dice::new(seed),
            weather: Dice::new(seed),
            questions: 0,
            began: 0,
            deaf: BTreeMap::new(),
            no_operator_until: 0,
            dies_unlisting: None,
            rival: None,
            before: None,
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
        self.api.react();
        self.api.collect_owned(&mut self.dice);
        self.kubelet.step(self.now, &mut self.api, &mut self.quorum, &mut self.dice);
        self.quorum.step(self.now, &mut self.dice);
        self.data.step(&mut self.quorum, self.now);
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
            self.watch.last_surprise = self.now;
        } else {
            self.watch.last_request = self.now;
        }
        if matches!(edit, Edit::DeleteClaim(_)) {
            self.watch.last_claim_deletion = self.now;
        }
        self.watch.last_wish = self.now;
        if edit.takes_back() {
            self.watch.taken_back = self.may_lose().map(|pods| (self.now, pods));
        }
        edit.carry_out(self);
        self.plan_next();
    }

    /// When the next step of the agenda comes, if it does not wait for rest.
    pub(crate) fn plan_next(&mut self) {
        self.next = match self.agenda.front().map(|step| step.when) {
            Some(When::After(least, most)) => Some(self.now + self.dice.between(least, most)),
            _ => None,
        };
    }
}
