//! `karst-node run`: the life of one container, from its mounted files to Kafka's exit code, in order.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fmt, fs, io};

use karst_kafka::DirectoryId;
use thiserror::Error;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{info, warn};

use crate::classes::Classes;
use crate::config::{ConfigError, ConfigFiles, NodeConfig, StorageFormat, file};
use crate::format::{
    Decision, Formatting, QuorumOption, Refusal, decide, has_directory_id, is_lost_static_voter,
};
use crate::founding;
use crate::health::{self, Kafka, Phase};
use crate::jvm::{self, Paths};
use crate::listen::listen;
use crate::liveness::Liveness;
use crate::lost_disk::{self, Verdict};
use crate::place::{self, Place, Untold};
use crate::rack::{RackError, RackSource};
use crate::ready::ReadinessProbe;
use crate::recovery;
use crate::reload::Reloader;
use crate::restored;
use crate::static_voter;
use crate::storage;
use crate::supervise::{Ending, Supervisor};
use crate::vote;

/// Where to find and serve things.
#[derive(Clone, Debug)]
pub struct Options {
    pub paths: Paths,
    /// What the pod was told about its Kubernetes node.
    pub place: Place,
    pub http: SocketAddr,
    /// For so long a Kafka that has answered before may react to nothing.
    pub silence_limit: Duration,
    /// Where the node learns its rack, if it has one.
    pub rack: Option<RackSource>,
    /// When the process began, for the line that tells how long Kafka was kept waiting.
    pub began: Instant,
}

/// Why Kafka was not started, or its end is not known.
#[derive(Debug, Error)]
pub enum RunError {
    #[error("cannot install signal handlers: {0}")]
    Signals(io::Error),
    #[error("cannot listen on {address} for probes: {source}")]
    Listen { address: SocketAddr, source: io::Error },
    #[error("the node's configuration in {} cannot be used: {source}", dir.display())]
    Config { dir: PathBuf, source: ConfigError },
    #[error("Kafka is not started: {0}")]
    Rack(#[from] RackError),
    #[error(transparent)]
    Place(#[from] Untold),
    #[error("cannot write {}: {source}", path.display())]
    Settings { path: PathBuf, source: io::Error },
    #[error("Kafka is not started, and nothing on its disks was changed:{}", one_per_line(.0))]
    Refused(Vec<Refusal>),
    #[error("cannot find Kafka's jars in {}/libs: {source}; is it the Kafka image?", kafka_home.display())]
    Classes { kafka_home: PathBuf, source: io::Error },
    #[error("cannot run {}: {source}; is it the Kafka image, with Java on the PATH?", java.display())]
    Java { java: PathBuf, source: io::Error },
    #[error("Kafka's storage tool failed with {0}; its own words are above. Kafka is not started")]
    FormatFailed(Ending),
    #[error("Kafka's storage tool reported success, but {} not formatted. Kafka is not started", join(.0))]
    StillUnformatted(Vec<PathBuf>),
    #[error("Kafka's storage tool reported success, but Kafka is not started on what it left:{}", one_per_line(.0))]
    FormattedWrongly(Vec<Refusal>),
    #[error(
        "Kafka's storage tool did not give {} the directory id {expected} that the other initial controllers were told. \
         Kafka is not started: it could never join the quorum", dir.display()
    )]
    WrongDirectoryId { dir: PathBuf, expected: DirectoryId },
    #[error(
        "cannot remove {}, an old copy of the metadata log: {source}. Kafka is not started, because it refuses to run \
         beside it; check that the volume is healthy and that its owner is the user Kafka runs as", path.display()
    )]
    MovedMetadata { path: PathBuf, source: io::Error },
    #[error(
        "cannot write quorum-state in {}: {source}. Kafka is not started, because it would end again and again with what is \
         in that file; check that the volume is healthy and that its owner is the user Kafka runs as", path.display()
    )]
    Election { path: PathBuf, source: io::Error },
}

/// What became of something that takes its time.
enum Outcome<T> {
    Done(T),
    /// A signal asked to stop meanwhile.
    Stopped(Ending),
}

/// What became of the node's directories.
enum Storage {
    /// Every directory is formatted for this node: Kafka may start.
    Ready,
    /// Nothing, for the settings ask for something else by now.
    SettingsChanged,
}

/// Runs Kafka to its end.
///
/// # Errors
/// When Kafka could not, or must not, be started.
pub async fn run(options: &Options) -> Result<Ending, RunError> {
    let mut supervisor = Supervisor::install().map_err(RunError::Signals)?;
    let (phase, seen) = watch::channel(Phase::Starting);
    let listener =
        listen(options.http).map_err(|source| RunError::Listen { address: options.http, source })?;
    tokio::spawn(health::serve(listener, seen));

    let classes = &find_classes(&options.paths.kafka_home)?;
    loop {
        let config = read_config(&options.paths)?;
        let options = &put_in_place(options)?;
        let node = Node { config: &config, options, classes, phase: &phase };
        match node.prepare_storage(&mut supervisor).await? {
            Outcome::Done(Storage::Ready) => {}
            Outcome::Done(Storage::SettingsChanged) => {
                info!("the node's settings have changed; reading them again");
                continue;
            }
            Outcome::Stopped(ending) => return Ok(ending),
        }
        return match node.await_rack(&mut supervisor).await {
            Outcome::Done(rack) => node.run_kafka(&mut supervisor, rack?.as_deref()).await,
            Outcome::Stopped(ending) => Ok(ending),
        };
    }
}

fn find_classes(kafka_home: &Path) -> Result<Classes, RunError> {
    Classes::find(kafka_home)
        .map_err(|source| RunError::Classes { kafka_home: kafka_home.to_owned(), source })
}

fn read_config(paths: &Paths) -> Result<NodeConfig, RunError> {
    ConfigFiles::read(&paths.config_dir)
        .and_then(|files| NodeConfig::parse(&files))
        .map_err(|source| RunError::Config { dir: paths.config_dir.clone(), source })
}

/// Settings that ask for the node's place are written anew, with it in them.
fn put_in_place(options: &Options) -> Result<Options, RunError> {
    let mut options = options.clone();
    let mounted = options.paths.server_config();
    let settings = |path: PathBuf| move |source| RunError::Settings { path, source };
    let text = fs::read(&mounted).map_err(settings(mounted))?;
    if let Some(resolved) = place::resolve(&text, &options.place)? {
        let path = options.paths.work_dir.join(file::SERVER_CONFIG);
        fs::create_dir_all(&options.paths.work_dir).map_err(settings(path.clone()))?;
        fs::write(&path, resolved).map_err(settings(path.clone()))?;
        options.paths.resolved = Some(path);
    }
    Ok(options)
}

struct Node<'a> {
    config: &'a NodeConfig,
    options: &'a Options,
    classes: &'a Classes,
    phase: &'a watch::Sender<Phase>,
}

impl Node<'_> {
    /// Formats what needs it, and waits for what has to come before Kafka.
    async fn prepare_storage(&self, supervisor: &mut Supervisor) -> Result<Outcome<Storage>, RunError> {
        match decide(self.config, &storage::inspect_all(&self.config.log_dirs)) {
            Decision::AlreadyFormatted => {}
            Decision::Refuse(refusals) => return Err(RunError::Refused(refusals)),
            Decision::Format(formatting) => {
                let formatting = match self.check_for_lost_disk(supervisor, formatting).await {
                    Outcome::Done(Some(formatting)) => formatting,
                    Outcome::Done(None) => return Ok(Outcome::Done(Storage::SettingsChanged)),
                    Outcome::Stopped(ending) => return Ok(Outcome::Stopped(ending)),
                };
                if let Outcome::Stopped(ending) = self.await_majority(supervisor, &formatting).await {
                    return Ok(Outcome::Stopped(ending));
                }
                if let Outcome::Stopped(ending) = self.format(supervisor, &formatting).await? {
                    return Ok(Outcome::Stopped(ending));
                }
            }
        }
        self.drop_moved_metadata()?;
        self.drop_spent_vote()?;
        if let Outcome::Stopped(ending) = self.begin_after_others(supervisor).await? {
            return Ok(Outcome::Stopped(ending));
        }
        if self.meets_quorum_first()
            && let Outcome::Stopped(ending) = self.await_quorum(supervisor).await
        {
            return Ok(Outcome::Stopped(ending));
        }
        Ok(Outcome::Done(Storage::Ready))
    }

    /// A first voter whose disk is empty may have lost one: the other controllers, if there are any, know whether it did. `None`
    /// when the settings have changed meanwhile.
    async fn check_for_lost_disk(
        &self,
        supervisor: &mut Supervisor,
        formatting: Formatting,
    ) -> Outcome<Option<Formatting>> {
        let Some(directory) = formatting.doubtful else { return Outcome::Done(Some(formatting)) };
        self.phase.send_replace(Phase::AskingOthers(None));
        let check = lost_disk::Check {
            config: self.config,
            directory,
            is_lost: formatting.is_proven_loss(),
            mark: &self.first_voter_mark(),
            read_settings: || read_config(&self.options.paths).ok(),
            tell: |why| {
                self.phase.send_replace(Phase::AskingOthers(Some(why)));
            },
        };
        match self.unless_stopped(supervisor, check.run()).await {
            Outcome::Done(Verdict::SettingsChanged) => Outcome::Done(None),
            Outcome::Done(verdict) => Outcome::Done(Some(formatting.heard(verdict == Verdict::WasThere))),
            Outcome::Stopped(ending) => Outcome::Stopped(ending),
        }
    }

    /// A voter of a static quorum that lost its disk starts on an empty one only when the others can do without what it had. The
    /// settings are read again meanwhile: a person may decide.
    async fn await_majority(&self, supervisor: &mut Supervisor, formatting: &Formatting) -> Outcome<()> {
        if !is_lost_static_voter(self.config, formatting) {
            return Outcome::Done(());
        }
        self.phase.send_replace(Phase::AwaitingMajority);
        let is_let_in = || {
            let now = read_config(&self.options.paths);
            now.is_ok_and(|now| now.storage_format == StorageFormat::StaticAnew)
        };
        self.unless_stopped(supervisor, static_voter::wait_for_majority(self.config, is_let_in)).await
    }

    /// Outlives the container, and not the pod.
    fn first_voter_mark(&self) -> PathBuf {
        self.options.paths.work_dir.join("was-first-voter")
    }

    /// Does the node start without metadata, into a quorum that it did not form itself? The disks tell, however often the
    /// container starts.
    fn meets_quorum_first(&self) -> bool {
        let joins = match self.config.storage_format {
            StorageFormat::Initial(_) | StorageFormat::Restore(_) | StorageFormat::Join => true,
            StorageFormat::Static | StorageFormat::StaticAnew | StorageFormat::Adopt => false,
        };
        joins && !self.is_founder() && !storage::has_metadata(self.config.log_dirs.metadata())
    }

    /// Kafka does not start when it finds a metadata log outside its metadata directory. That of a broker is a copy, which
    /// it fetches again; that of a controller is its memory of what it voted for, and stays for Kafka to complain about.
    fn drop_moved_metadata(&self) -> Result<(), RunError> {
        let old = storage::left_behind(&self.config.log_dirs);
        if self.config.role.is_controller() {
            return Ok(());
        }
        for path in old {
            let metadata = self.config.log_dirs.metadata().display();
            info!("the metadata log is kept in {metadata} now; removing the old copy in {}", path.display());
            fs::remove_dir_all(&path).map_err(|source| RunError::MovedMetadata { path, source })?;
        }
        Ok(())
    }

    /// A broker that was a controller before may have a vote that decides nothing any more, and that Kafka does not start with.
    fn drop_spent_vote(&self) -> Result<(), RunError> {
        if self.config.role.is_controller() {
            return Ok(());
        }
        let metadata = self.config.log_dirs.metadata();
        let was_there = vote::drop_spent(metadata, self.config.node_id)
            .map_err(|source| RunError::Election { path: metadata.to_owned(), source })?;
        if was_there {
            info!(
                "this broker was a controller before and voted for itself in an election that another one won; \
                 the vote is taken out of quorum-state in {}, because Kafka does not start with it",
                metadata.display()
            );
        }
        Ok(())
    }

    /// A voter that gets its vote back knows nothing of the terms before, and the others may say that it led one of them.
    async fn begin_after_others(&self, supervisor: &mut Supervisor) -> Result<Outcome<()>, RunError> {
        let metadata = self.config.log_dirs.metadata();
        let is_restored =
            matches!(self.config.storage_format, StorageFormat::Restore(_)) && self.is_founder();
        if !is_restored || storage::has_metadata(metadata) {
            return Ok(Outcome::Done(()));
        }
        self.phase.send_replace(Phase::AskingOthers(None));
        let epoch = match self.unless_stopped(supervisor, restored::newest_epoch(self.config)).await {
            Outcome::Done(Some(epoch)) => epoch,
            Outcome::Done(None) => return Ok(Outcome::Done(())),
            Outcome::Stopped(ending) => return Ok(Outcome::Stopped(ending)),
        };
        let is_written = vote::begin_after(metadata, epoch)
            .map_err(|source| RunError::Election { path: metadata.to_owned(), source })?;
        if is_written {
            info!("the other controllers know of term {epoch}; this restored voter begins in the next one");
        }
        Ok(Outcome::Done(()))
    }

    /// Does the node's disk say that it is one of the first voters, or of those that were restored?
    fn is_founder(&self) -> bool {
        let own = storage::directory_id(self.config.log_dirs.metadata());
        own.is_some() && self.config.founder == own
    }

    async fn format(
        &self,
        supervisor: &mut Supervisor,
        formatting: &Formatting,
    ) -> Result<Outcome<()>, RunError> {
        announce(formatting);
        self.phase.send_replace(Phase::Formatting);
        let mut command =
            jvm::format_command(self.config, &self.options.paths, self.classes, &formatting.quorum);
        let mut stopped = false;
        let ending = supervisor
            .run(&mut command, || {
                stopped = true;
                self.phase.send_replace(Phase::ShuttingDown);
            })
            .await
            .map_err(|source| self.java_error(source))?;
        if stopped {
            return Ok(Outcome::Stopped(ending));
        }
        if ending != Ending::Exited(0) {
            return Err(RunError::FormatFailed(ending));
        }
        self.verify_formatted(&formatting.quorum)?;
        if matches!(formatting.quorum, QuorumOption::InitialControllers { .. }) {
            lost_disk::remember(&self.first_voter_mark());
        }
        Ok(Outcome::Done(()))
    }

    /// A node without metadata that did not form the quorum itself lets it settle before it meets it.
    async fn await_quorum(&self, supervisor: &mut Supervisor) -> Outcome<()> {
        // A node shows the same certificate everywhere inside.
        let listener = &self.config.own_listener;
        self.phase.send_replace(Phase::AwaitingQuorum);
        self.unless_stopped(supervisor, founding::wait_for_leader(&self.config.controllers, listener)).await
    }

    /// A broker whose rack is not known yet does not start: it would register without one.
    async fn await_rack(&self, supervisor: &mut Supervisor) -> Outcome<Result<Option<String>, RackError>> {
        let Some(source) = &self.options.rack else { return Outcome::Done(Ok(None)) };
        self.phase.send_replace(Phase::AwaitingRack);
        self.unless_stopped(supervisor, async { source.read().await.map(Some) }).await
    }

    /// Waits while no program runs, but not longer than until a signal asks to stop.
    async fn unless_stopped<T>(
        &self,
        supervisor: &mut Supervisor,
        awaited: impl Future<Output = T>,
    ) -> Outcome<T> {
        tokio::select! {
            done = awaited => Outcome::Done(done),
            ending = supervisor.stop_asked() => {
                self.phase.send_replace(Phase::ShuttingDown);
                Outcome::Stopped(ending)
            }
        }
    }

    /// The tool skips what it cannot read and reports success all the same; Kafka would start with fewer disks.
    fn verify_formatted(&self, quorum: &QuorumOption) -> Result<(), RunError> {
        match decide(self.config, &storage::inspect_all(&self.config.log_dirs)) {
            Decision::AlreadyFormatted => {}
            Decision::Format(rest) => return Err(RunError::StillUnformatted(rest.directories)),
            Decision::Refuse(refusals) => return Err(RunError::FormattedWrongly(refusals)),
        }
        let metadata = self.config.log_dirs.metadata();
        match quorum {
            QuorumOption::InitialControllers { own_directory, .. }
                if !has_directory_id(&storage::inspect(metadata), *own_directory) =>
            {
                Err(RunError::WrongDirectoryId { dir: metadata.to_owned(), expected: *own_directory })
            }
            _ => Ok(()),
        }
    }

    async fn run_kafka(&self, supervisor: &mut Supervisor, rack: Option<&str>) -> Result<Ending, RunError> {
        // They end with this.
        let mut attending = JoinSet::new();
        if let Some(reloader) = Reloader::new(self.config) {
            attending.spawn(reloader.keep_up());
        }
        let mut command = jvm::kafka_command(self.config, &self.options.paths, self.classes, rack);
        let recovery = recovery::Ahead::of(self.config, &mut command);
        info!("starting Kafka, {} ms after the container's start", self.options.began.elapsed().as_millis());
        let child = command.spawn().map_err(|source| self.java_error(source))?;
        drop(command);
        let (recovery, output) = recovery.map(|ahead| ahead.begun(&child)).unzip();
        let kafka = Arc::new(Kafka {
            probe: ReadinessProbe::new(self.config),
            liveness: Liveness::of(self.config, child.id(), self.options.silence_limit),
            recovery,
        });
        attending.spawn({
            let kafka = Arc::clone(&kafka);
            async move { kafka.probe.keep_asking().await }
        });
        attending.spawn({
            let kafka = Arc::clone(&kafka);
            async move { kafka.liveness.keep_looking().await }
        });
        self.phase.send_replace(Phase::Running(kafka));
        let ending = supervisor
            .see_to_the_end(&child, || {
                self.phase.send_replace(Phase::ShuttingDown);
            })
            .await
            .map_err(|source| self.java_error(source))?;
        if let Some(output) = output.flatten() {
            output.last_words().await;
        }
        info!("Kafka ended with {ending}");
        Ok(ending)
    }

    fn java_error(&self, source: io::Error) -> RunError {
        RunError::Java { java: self.options.paths.java.clone(), source }
    }
}

fn announce(formatting: &Formatting) {
    let directories = join(&formatting.directories);
    match &formatting.quorum {
        QuorumOption::Static => info!("formatting {directories} for a static quorum"),
        QuorumOption::InitialControllers { own_directory, .. } => {
            info!("formatting {directories} as an initial controller with directory id {own_directory}");
        }
        QuorumOption::NoInitialControllers(why) if why.is_loss() => {
            warn!("formatting {directories} without initial controllers: {why}");
        }
        QuorumOption::NoInitialControllers(why) => {
            info!("formatting {directories} without initial controllers: {why}");
        }
    }
}

fn join(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

fn one_per_line(items: &[impl fmt::Display]) -> String {
    items.iter().map(|item| format!("\n  {item}")).collect()
}
