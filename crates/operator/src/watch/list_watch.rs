//! Follows all objects of one kind: lists them, watches what changes, and says when something may have been missed.
//!
//! A watch goes on where it ended only when nothing can be missing in between: when it ended in its own time, or when the API server's
//! history demonstrably goes on. After anything else everything is listed again. What arrives is bounded: a page that is too large is
//! asked for again in smaller pieces, and an object that is too large by itself is asked for without its content.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use futures::io::{AsyncBufReadExt, AsyncReadExt};
use kube::api::{ListParams, WatchParams};
use kube::core::{Request, Status};
use kube::runtime::watcher::DefaultBackoff;
use kube::{Client, Resource};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout, timeout_at};

use super::item::{self, Nameless, Read};

/// How many objects a list asks for at once.
const PAGE: u32 = 100;
/// How large an answer with several objects may be.
const LARGEST_PAGE: usize = 8 << 20;
/// How large an answer with one object may be. What fits into etcd (1.5 MiB) can be larger as JSON.
const LARGEST_OBJECT: usize = 16 << 20;
/// How many answers may be in memory at once.
const PAGES_AT_ONCE: usize = 2;
/// How long the API server may take to answer a list, or to begin with a watch.
const ANSWER: Duration = Duration::from_secs(30);
/// How much longer than it was to last a watch is listened to.
pub(crate) const MARGIN: Duration = Duration::from_secs(10);
/// How often a watch that waits for its turn says that it does: behind others it may wait for long, and is well all the same.
const SIGN: Duration = Duration::from_secs(10);
/// A line that was longer than this is not worth keeping room for.
const USUAL_LINE: usize = 64 << 10;

/// Which state of the API server something belongs to. Zero, when it does not tell.
pub(crate) type Version = u64;

/// What is heard of a kind.
#[derive(Debug)]
pub(crate) enum Event<K> {
    /// A list begins: this is how everything was at this version.
    ListBegins(Version),
    /// One of the objects of the list.
    Listed(Read<K>),
    /// That was the list.
    ListEnds,
    /// An object is new, or changed.
    Applied(Read<K>),
    /// An object is gone.
    Deleted(Read<K>),
    /// Everything up to this version was told.
    ToldUpTo(Version),
    /// Nothing is heard for the moment.
    Failed(Error),
    /// There is nothing to tell, and whoever follows goes on.
    GoesOn,
}

/// What whoever listens wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    GoOn,
    /// Something must have been missed.
    ListAgain,
}

/// Why nothing is heard.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{}", crate::failure::brief(.0))]
    Api(#[from] kube::Error),
    #[error("the connection broke: {0}")]
    Broken(#[from] std::io::Error),
    #[error("the API server is silent")]
    Silent,
    #[error("the API server ended it early")]
    EndedEarly,
    #[error("the API server does not remember what happened since")]
    Expired,
    #[error("the API server answered with something that it did not announce")]
    Missed,
    #[error("something arrived that is not what was asked for")]
    Garbled,
    #[error("what arrived is larger than {} MiB", LARGEST_OBJECT >> 20)]
    TooLarge,
}

impl From<Nameless> for Error {
    fn from(_: Nameless) -> Self {
        Self::Garbled
    }
}

/// How a watch ended too early.
enum Ended {
    /// Something was said and not understood. Only a list can tell what it was.
    Deaf(Error),
    /// Nothing was said any more.
    Cut(Error),
}

impl<E: Into<Error>> From<E> for Ended {
    fn from(error: E) -> Self {
        Self::Cut(error.into())
    }
}

/// Answers that may be in memory at once, over all kinds.
#[derive(Debug, Clone)]
pub(crate) struct Turns(Arc<Semaphore>);

impl Turns {
    pub(crate) fn of(at_once: usize) -> Self {
        Self(Arc::new(Semaphore::new(at_once)))
    }
}

impl Default for Turns {
    fn default() -> Self {
        Self::of(PAGES_AT_ONCE)
    }
}

/// Where objects of a kind come from.
pub(crate) struct ListWatch<K> {
    pub(crate) client: Client,
    /// In all namespaces, if none is given.
    pub(crate) namespace: Option<String>,
    pub(crate) labels: Option<String>,
    pub(crate) fields: Option<String>,
    /// Larger objects are not read.
    pub(crate) largest: usize,
    /// How long a watch lasts before it is begun anew.
    pub(crate) lasts: Duration,
    pub(crate) turns: Turns,
    pub(crate) kind: PhantomData<fn() -> K>,
}

/// A page of a list, cut into objects.
#[derive(Deserialize)]
struct Page<'a> {
    metadata: PageMeta,
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
struct PageMeta {
    #[serde(rename = "resourceVersion")]
    version: String,
    #[serde(rename = "continue")]
    next: Option<String>,
}

/// A line of a watch.
#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type")]
    kind: String,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// How many objects to ask for.
struct Limit(u32);

impl Limit {
    fn largest(&self) -> usize {
        if self.0 == 1 { LARGEST_OBJECT } else { LARGEST_PAGE }
    }

    fn shrink(&mut self) {
        self.0 = (self.0 / 8).max(1);
    }

    /// After an answer of this size.
    fn grow(&mut self, size: usize) {
        if size < LARGEST_PAGE / 8 {
            self.0 = (self.0 * 2).min(PAGE);
        }
    }
}

impl<K> ListWatch<K>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    /// For how long it may be that nothing is told, whatever the API server does: every wait ends.
    pub(crate) fn longest_silence(&self) -> Duration {
        self.lasts + MARGIN + ANSWER
    }

    /// Tells what happens, for as long as it is listened to.
    pub(crate) async fn follow(self, mut hear: impl FnMut(Event<K>) -> Next + Send) {
        let mut pauses = DefaultBackoff::default();
        loop {
            let mut version = match self.list(&mut hear).await {
                Ok(version) => version,
                Err(error) => {
                    hear(Event::Failed(error));
                    pause(&mut pauses).await;
                    continue;
                }
            };
            loop {
                let is_deaf = match self.watch(&mut version, &mut hear).await {
                    Ok(()) => {
                        hear(Event::GoesOn);
                        continue;
                    }
                    Err(Ended::Deaf(error)) => {
                        hear(Event::Failed(error));
                        true
                    }
                    Err(Ended::Cut(error)) => {
                        hear(Event::Failed(error));
                        false
                    }
                };
                pause(&mut pauses).await;
                if is_deaf || !self.history_goes_on(&version, &mut pauses, &mut hear).await {
                    break;
                }
            }
        }
    }

    /// Does the API server still know what it said? One whose store was restored from a copy may be at an earlier version, and would
    /// stay silent until it reaches the later one again.
    async fn history_goes_on(
        &self,
        version: &str,
        pauses: &mut DefaultBackoff,
        hear: &mut (impl FnMut(Event<K>) -> Next + Send),
    ) -> bool {
        loop {
            match self.body(self.list_request(1, None), Content::Metadata, LARGEST_OBJECT).await {
                Ok(body) => {
                    let now = serde_json::from_slice::<Page<'_>>(&body).ok();
                    return now.is_some_and(|now| number(&now.metadata.version) >= number(version));
                }
                Err(error) => {
                    hear(Event::Failed(error));
                    pause(pauses).await;
                }
            }
        }
    }

    /// Tells of everything there is. Returns the version at which that is so.
    async fn list(&self, hear: &mut (impl FnMut(Event<K>) -> Next + Send)) -> Result<String, Error> {
        let (mut limit, mut next, mut version) = (Limit(PAGE), None, None);
        loop {
            let _turn = self.turn(hear).await?;
            let (body, content) = self.page(&mut limit, next.as_deref()).await?;
            let page: Page<'_> = serde_json::from_slice(&body).map_err(|_| Error::Garbled)?;
            if version.is_none() {
                hear(Event::ListBegins(number(&page.metadata.version)));
                version = Some(page.metadata.version);
            }
            for text in page.items.into_iter().flatten() {
                hear(Event::Listed(match content {
                    Content::All => item::read(text, self.largest)?,
                    Content::Metadata => Err(item::unreadable::<K>(text, Error::TooLarge.to_string())?),
                }));
            }
            limit.grow(body.len());
            next = page.metadata.next.filter(|next| !next.is_empty());
            if next.is_none() {
                hear(Event::ListEnds);
                return version.ok_or(Error::Garbled);
            }
        }
    }

    /// Waits until there is room for another answer.
    async fn turn(
        &self,
        hear: &mut (impl FnMut(Event<K>) -> Next + Send),
    ) -> Result<SemaphorePermit<'_>, Error> {
        let mut turn = std::pin::pin!(self.turns.0.acquire());
        loop {
            match timeout(SIGN, turn.as_mut()).await {
                Ok(turn) => return turn.map_err(|_| Error::Silent),
                Err(_) => drop(hear(Event::GoesOn)),
            }
        }
    }

    /// The next page, as large as it may be.
    async fn page(&self, limit: &mut Limit, next: Option<&str>) -> Result<(Vec<u8>, Content), Error> {
        loop {
            let request = self.list_request(limit.0, next);
            match self.body(request, Content::All, limit.largest()).await {
                Err(Error::TooLarge) if limit.0 > 1 => limit.shrink(),
                Err(Error::TooLarge) => {
                    let request = self.list_request(1, next);
                    let body = self.body(request, Content::Metadata, LARGEST_OBJECT).await?;
                    return Ok((body, Content::Metadata));
                }
                body => return Ok((body?, Content::All)),
            }
        }
    }

    fn requests(&self) -> Request {
        Request::new(K::url_path(&(), self.namespace.as_deref()))
    }

    fn list_request(&self, limit: u32, next: Option<&str>) -> ListParams {
        ListParams {
            label_selector: self.labels.clone(),
            field_selector: self.fields.clone(),
            limit: Some(limit),
            continue_token: next.map(str::to_owned),
            ..ListParams::default()
        }
    }

    async fn body(&self, list: ListParams, content: Content, largest: usize) -> Result<Vec<u8>, Error> {
        let request = match content {
            Content::All => self.requests().list(&list),
            Content::Metadata => self.requests().list_metadata(&list),
        };
        let request = request.map_err(kube::Error::BuildRequest)?;
        let answer = async {
            let reader = self.client.request_stream(request).await?;
            let (mut body, most) = (Vec::new(), u64::try_from(largest).unwrap_or(u64::MAX));
            std::pin::pin!(reader).take(most.saturating_add(1)).read_to_end(&mut body).await?;
            if body.len() > largest { Err(Error::TooLarge) } else { Ok(body) }
        };
        timeout(ANSWER, answer).await.map_err(|_| Error::Silent)?
    }

    /// Tells what changes after this version, and moves it on. Returns when the watch ended in its own time.
    async fn watch(
        &self,
        version: &mut String,
        hear: &mut (impl FnMut(Event<K>) -> Next + Send),
    ) -> Result<(), Ended> {
        let watch = WatchParams {
            label_selector: self.labels.clone(),
            field_selector: self.fields.clone(),
            timeout: u32::try_from(self.lasts.as_secs()).ok(),
            ..WatchParams::default()
        };
        let request = self.requests().watch(&watch, version).map_err(kube::Error::BuildRequest)?;
        let end = Instant::now() + self.lasts;
        let reader = timeout(ANSWER, self.client.request_stream(request)).await.map_err(|_| Error::Silent)?;
        let mut reader = std::pin::pin!(reader.map_err(gone)?);
        let most = u64::try_from(LARGEST_OBJECT).unwrap_or(u64::MAX);
        let mut line = Vec::new();
        loop {
            line.clear();
            line.shrink_to(USUAL_LINE);
            let mut next = reader.as_mut().take(most);
            let read = timeout_at(end + MARGIN, next.read_until(b'\n', &mut line));
            let outcome = read.await.map_err(|_| Error::Silent)?;
            if line.ends_with(b"\n") {
                self.take(&line, version, hear)?;
                continue;
            }
            return match outcome {
                _ if line.len() >= LARGEST_OBJECT => Err(Ended::Deaf(Error::TooLarge)),
                // The API server counts whole seconds, and so may whoever is in between.
                _ if Instant::now() + Duration::from_secs(1) >= end => Ok(()),
                Ok(_) => Err(Ended::Cut(Error::EndedEarly)),
                Err(error) => Err(Ended::Cut(error.into())),
            };
        }
    }

    fn take(
        &self,
        line: &[u8],
        version: &mut String,
        hear: &mut (impl FnMut(Event<K>) -> Next + Send),
    ) -> Result<(), Ended> {
        let deaf = |_| Ended::Deaf(Error::Garbled);
        let line: Line<'_> = serde_json::from_slice(line).map_err(|_| Ended::Deaf(Error::Garbled))?;
        let object = || item::read::<K>(line.object, self.largest).map_err(deaf);
        let event = match line.kind.as_str() {
            "ADDED" | "MODIFIED" => Event::Applied(object()?),
            "DELETED" => Event::Deleted(object()?),
            "BOOKMARK" => {
                *version = item::version(line.object).map_err(deaf)?;
                Event::ToldUpTo(number(version))
            }
            "ERROR" => {
                let status: Box<Status> =
                    serde_json::from_str(line.object.get()).map_err(|_| Ended::Deaf(Error::Garbled))?;
                return Err(gone(kube::Error::Api(status)).into_deaf());
            }
            _ => return Err(Ended::Deaf(Error::Garbled)),
        };
        if let Event::Applied(read) | Event::Deleted(read) = &event {
            let new = item::meta(read).resource_version.as_ref();
            version.clone_from(new.ok_or(Ended::Deaf(Error::Garbled))?);
        }
        match hear(event) {
            Next::GoOn => Ok(()),
            Next::ListAgain => Err(Ended::Deaf(Error::Missed)),
        }
    }
}

/// How much of each object is asked for.
#[derive(Debug, Clone, Copy)]
enum Content {
    All,
    Metadata,
}

/// A refusal to go on from where a watch ended says that only a list helps.
fn gone(error: kube::Error) -> Ended {
    match &error {
        kube::Error::Api(status) if status.code == 410 => Ended::Deaf(Error::Expired),
        _ => Ended::Cut(error.into()),
    }
}

impl Ended {
    fn into_deaf(self) -> Self {
        match self {
            Self::Cut(error) | Self::Deaf(error) => Self::Deaf(error),
        }
    }
}

pub(crate) fn number(version: &str) -> Version {
    version.parse().unwrap_or_default()
}

async fn pause(pauses: &mut DefaultBackoff) {
    tokio::time::sleep(pauses.next().unwrap_or(ANSWER)).await;
}
