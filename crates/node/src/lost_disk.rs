//! The lost-disk check: before an empty disk becomes that of a first voter, was this node there before, on another disk?
//!
//! The operator says that a node forms the quorum until it has seen the node in it. A disk that is lost before the operator
//! could say otherwise would be formatted under its old directory id, and vote with nothing on it. The other controllers know
//! better than the node's settings: their leader was asked for records from that very directory, and a controller that was
//! there is registered with its cluster, which outlives every leader. It does not outlive a restart of all controllers: one that has
//! heard of no leader since it started has made nothing of its log yet and answers that it cannot tell, which is no answer here.
//!
//! Where a quorum is being formed nobody may be kept waiting: there the settings say that the disk is the node's first and
//! that no quorum was ever seen, and who gets no answer goes on at once. Everybody else waits until a leader tells, however
//! long that takes, and so does a node once another controller has named it. What ends the wait besides are the settings,
//! which are read again each time: the operator may have seen the node in the quorum, and a person may have decided.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use karst_kafka::{Bootstrap, ControllersDescription, DirectoryId, Error, NodeId, Quorum};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use crate::config::{EmptyDisk, NodeConfig};
use crate::line::{LONGEST_DEADLINE, Line, next_deadline};

/// By then the first question is answered, or asked again with more time. Where nobody listens that is known at once.
const DEADLINE: Duration = Duration::from_millis(750);
/// How often the others are asked at first: an election takes a second or two.
const EAGER_PERIOD: Duration = Duration::from_millis(250);
/// How long that goes on.
const EAGER: Duration = Duration::from_secs(10);
/// How often they are asked then.
const PERIOD: Duration = Duration::from_secs(2);
/// How often the log says that the node still waits.
const REMINDER: Duration = Duration::from_secs(60);

/// What came of the check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The node votes under the identity that its settings name.
    New,
    /// The node was there before: its disk is lost, and that identity with it.
    WasThere,
    /// The node's settings ask for something else by now.
    SettingsChanged,
}

/// Why the node waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// Another controller knows the node, and nobody leads.
    Named,
    /// Others are there, none of them leads, and the node may have had another disk.
    NoLeader,
    /// Nobody answers, and the node may have been there before.
    Unanswered,
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Named => {
                "this node was a controller before, so its empty disk stands for one that was lost; \
                 waiting for the other controllers to have a leader"
            }
            Self::NoLeader => {
                "this node's empty disk may stand for one that was lost; waiting for the other controllers to have a leader, \
                 who can tell"
            }
            Self::Unanswered => {
                "this node's empty disk may stand for one that was lost, and no other controller answers; waiting for one \
                 that can tell"
            }
        })
    }
}

/// The check of one empty disk.
pub(crate) struct Check<'a, R, T> {
    pub(crate) config: &'a NodeConfig,
    /// The identity under which the node is to vote.
    pub(crate) directory: DirectoryId,
    /// Do the node's other directories prove that it was there before?
    pub(crate) is_lost: bool,
    /// A file that outlives the container: it is there when an earlier one in this pod was a voter, or was said to be.
    pub(crate) mark: &'a Path,
    /// The node's settings as they are mounted now, if they can be read.
    pub(crate) read_settings: R,
    /// Hears why the node waits.
    pub(crate) tell: T,
}

impl<R: Fn() -> Option<NodeConfig>, T: Fn(Waiting)> Check<'_, R, T> {
    pub(crate) async fn run(self) -> Verdict {
        if self.is_lost {
            remember(self.mark);
        }
        let mut doubt = Doubt::new(self.config, self.directory, self.is_lost || self.mark.exists());
        let mut deadline = DEADLINE;
        let mut reminded: Option<(Waiting, Instant)> = None;
        let began = Instant::now();
        loop {
            let asked = Instant::now();
            let heard = self.ask(deadline).await;
            if heard.has_silent {
                deadline = next_deadline(deadline, asked.elapsed());
            }
            let known = (self.read_settings)();
            if known.as_ref().is_some_and(|now| self.is_changed(now)) {
                return Verdict::SettingsChanged;
            }
            let disk = known.as_ref().unwrap_or(self.config).empty_disk;
            let was_named = doubt.is_named;
            let judged = doubt.hear(&heard.said, disk);
            if doubt.is_named && !was_named {
                remember(self.mark);
            }
            let why = match judged {
                Ok(Verdict::New) if heard.is_unfinished(began.elapsed()) => {
                    sleep(EAGER_PERIOD).await;
                    continue;
                }
                Ok(verdict) => return verdict,
                Err(why) => why,
            };
            (self.tell)(why);
            if reminded.is_none_or(|(before, at)| before != why || at.elapsed() >= REMINDER) {
                warn!(
                    "{why}; docs/quorum.md of Karst tells what a person can decide (karst.io/vote-on-empty-disk)"
                );
                reminded = Some((why, Instant::now()));
            }
            sleep(if began.elapsed() < EAGER { EAGER_PERIOD } else { PERIOD }).await;
        }
    }

    /// Do they ask for something else by now? What a proven loss is formatted as changes when a person gives the node a vote.
    fn is_changed(&self, now: &NodeConfig) -> bool {
        now.storage_format != self.config.storage_format
            || (self.is_lost && now.empty_disk == EmptyDisk::Allowed)
    }

    /// Asks each of the others at the same time: one that is behind, or cut off, does not hide those that know more.
    async fn ask(&self, deadline: Duration) -> Heard {
        let mut asked = JoinSet::new();
        for other in self.config.other_controllers() {
            // A single connection may use a part of it. A node shows the same certificate everywhere inside.
            let bootstrap = Bootstrap::Controllers(vec![other]);
            let line = Line::new(bootstrap, &self.config.own_listener, deadline * 2 / 3, deadline);
            asked.spawn(async move { ask(&line).await });
        }
        let mut heard = Heard::default();
        while let Some(answer) = asked.join_next().await {
            // A question that broke off was not answered, and may be another time.
            let (said, is_silent) = answer.unwrap_or((None, true));
            heard.said.extend(said);
            heard.has_silent |= is_silent;
        }
        heard
    }
}

/// From now on an empty disk in this pod is one that was lost. What cannot be written is only forgotten with the container.
pub(crate) fn remember(mark: &Path) {
    let written =
        mark.parent().map_or(Ok(()), std::fs::create_dir_all).and_then(|()| std::fs::write(mark, ""));
    if let Err(error) = written {
        warn!(
            "cannot write {}: {error}; should this container start again, it asks the others anew",
            mark.display()
        );
    }
}

/// What controllers say.
#[derive(Debug, Default)]
struct Heard {
    said: Vec<Said>,
    /// Is there one that may say something another time? Where nobody listens, nobody does.
    has_silent: bool,
}

impl Heard {
    /// Is it worth asking again, after so long, before the node is taken for a new one? A leader needs no help of others.
    fn is_unfinished(&self, waited: Duration) -> bool {
        let has_leader = self.said.iter().any(|said| said.leader().is_some());
        self.has_silent && !has_leader && waited < LONGEST_DEADLINE
    }
}

/// What one controller says.
#[derive(Debug)]
struct Said {
    controllers: ControllersDescription,
    /// What their leader says, if they have one.
    quorum: Option<Quorum>,
}

impl Said {
    /// The same, of a leader that can tell. One that does not know yet what is agreed on knows no more of a node than others do.
    fn leader(&self) -> Option<&Quorum> {
        self.quorum.as_ref().filter(|quorum| quorum.high_watermark >= 0)
    }
}

/// What it says, and whether it may say more another time.
async fn ask(line: &Line) -> (Option<Said>, bool) {
    let admin = match line.admin() {
        Ok(admin) => admin,
        Err(error) => {
            warn!("a controller cannot be asked whether this node was there before: {error}");
            return (None, false);
        }
    };
    match admin.describe_controllers().await {
        Ok(controllers) => match admin.describe_quorum().await {
            Ok(quorum) => (Some(Said { controllers, quorum: Some(quorum) }), false),
            Err(error) => (Some(Said { controllers, quorum: None }), is_silence(&error)),
        },
        Err(error) => {
            info!("a controller does not say whether this node was there before: {error}");
            (None, is_silence(&error))
        }
    }
}

/// Did somebody listen, and say nothing in time? One that stops for a moment, or has much to do, may know the node.
fn is_silence(error: &Error) -> bool {
    match error {
        Error::Timeout { .. } | Error::Disconnected { .. } => true,
        Error::Unreachable { attempts } => attempts.iter().any(is_silence),
        _ => false,
    }
}

/// What has been heard of a node that is to be a first voter.
#[derive(Debug)]
struct Doubt<'a> {
    node: NodeId,
    cluster_id: Option<&'a str>,
    directory: DirectoryId,
    /// Has anybody said that the node was there? What was heard once stays true: others that are busy electing may not answer
    /// the next time.
    is_named: bool,
}

impl<'a> Doubt<'a> {
    fn new(config: &'a NodeConfig, directory: DirectoryId, is_named: bool) -> Self {
        let cluster_id = config.cluster_id.as_deref();
        Self { node: config.node_id, cluster_id, directory, is_named }
    }

    /// What is to be done, or why to wait.
    fn hear<'s>(
        &mut self,
        said: impl IntoIterator<Item = &'s Said>,
        disk: EmptyDisk,
    ) -> Result<Verdict, Waiting> {
        // Names are used again: a cluster of the same name that is on its way out may answer too.
        let is_own = |said: &&Said| self.cluster_id == Some(said.controllers.cluster_id.as_str());
        let said: Vec<&Said> = said.into_iter().filter(is_own).collect();
        self.is_named |= said.iter().any(|said| self.is_named_by(said));
        if said.iter().any(|said| said.leader().is_some()) {
            // Where somebody leads, a node that joins loses nothing. So the mere doubt is enough.
            let is_lost = self.is_named || disk == EmptyDisk::Replaced;
            return Ok(if is_lost { Verdict::WasThere } else { Verdict::New });
        }
        match disk {
            EmptyDisk::Allowed => Ok(Verdict::New),
            _ if self.is_named => Err(Waiting::Named),
            EmptyDisk::New => Ok(Verdict::New),
            // Others that know nothing of the node say as much as its settings do.
            EmptyDisk::Late if !said.is_empty() => Ok(Verdict::New),
            EmptyDisk::Late | EmptyDisk::Replaced if said.is_empty() => Err(Waiting::Unanswered),
            EmptyDisk::Late | EmptyDisk::Replaced => Err(Waiting::NoLeader),
        }
    }

    fn is_named_by(&self, Said { controllers, quorum }: &Said) -> bool {
        let is_registered = controllers.controllers.iter().any(|controller| controller.id == self.node);
        let is_seen = quorum.as_ref().is_some_and(|quorum| quorum.has_seen(self.node, self.directory));
        is_registered || is_seen || controllers.leader == Some(self.node)
    }
}

#[cfg(test)]
mod tests;
