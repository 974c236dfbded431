//! How much an answer may tell.
//!
//! An answer is small on the wire and large once it is understood: a name is sent once for all partitions of its topic, an empty list
//! takes one byte. So what is believed is bounded by what a cluster can have, and not by what fits into a message.

use std::sync::Arc;

use kafka_protocol::protocol::StrBytes;

use super::Context;
use crate::Endpoint;
use crate::error::Error;

/// The longest name of a topic that Kafka creates.
const TOPIC_NAME: usize = 249;
/// The longest name of a host that there is in DNS.
const HOST: usize = 255;
/// Names that Kafka chooses itself, or its administrators: of features, of listeners, of clusters.
const NAME: usize = 255;
/// The longest path of Linux.
const PATH: usize = 4096;
/// Words of Kafka are repeated up to here.
const WORDS: usize = 1000;

/// Brokers, voters or observers. A cluster has some hundred at most.
pub(super) const NODES: usize = 10_000;
pub(super) const FEATURES: usize = 1_000;
/// Settings of one node or topic. Kafka has some three hundred, and one more for each setting of each listener.
pub(super) const SETTINGS: usize = 10_000;
/// Partitions of all topics, or copies of them on one broker. Together with all that is made of them they take some hundred bytes
/// each: this many still leave room for other clusters.
pub(super) const PARTITIONS: usize = 200_000;

impl Context<'_> {
    pub(super) fn at_most(&self, what: &str, found: usize, most: usize) -> Result<(), Error> {
        if found <= most {
            return Ok(());
        }
        Err(self.malformed(format!("it lists {found} {what}, and no more than {most} are read")))
    }

    fn text<'t>(&self, what: &str, text: &'t StrBytes, most: usize) -> Result<&'t str, Error> {
        if text.len() <= most {
            return Ok(text.as_str());
        }
        // It is not repeated: it may have a megabyte.
        let bytes = text.len();
        Err(self.malformed(format!("it has a {what} of {bytes} bytes, and no more than {most} are read")))
    }

    pub(super) fn topic(&self, name: &StrBytes) -> Result<Arc<str>, Error> {
        self.text("topic name", name, TOPIC_NAME).map(Arc::from)
    }

    pub(super) fn name(&self, name: &StrBytes) -> Result<String, Error> {
        self.text("name", name, NAME).map(str::to_owned)
    }

    pub(super) fn path(&self, path: &StrBytes) -> Result<String, Error> {
        self.text("path", path, PATH).map(str::to_owned)
    }

    pub(super) fn endpoint_of(&self, host: &StrBytes, port: i32) -> Result<Endpoint, Error> {
        let host = self.text("host name", host, HOST)?;
        u16::try_from(port)
            .map(|port| Endpoint::new(host, port))
            .map_err(|_| self.malformed(format!("{host}:{port} is not an address")))
    }
}

/// What Kafka says, without the rest of what has no end.
pub(super) fn words(text: &StrBytes) -> String {
    text.chars().take(WORDS).collect()
}
