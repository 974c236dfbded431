//! Where the node stands: told by a variable of the container, or by the operator once it knows the machine.

use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

/// How often to look whether the operator has told.
const PERIOD: Duration = Duration::from_millis(100);
/// How long a wait is worth no word.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where the rack comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RackSource {
    /// From a file that is empty until the operator knows.
    File(PathBuf),
    /// From a variable of the container.
    Variable(String),
}

/// Why the rack cannot be used.
#[derive(Debug, Error)]
pub enum RackError {
    #[error(
        "the environment variable {0}, which is to tell the rack, is not set; set it in the template of the Kafka container"
    )]
    Unset(String),
    #[error(
        "the rack is {0:?}; it must have at least one character, and no '=', space at an end or control character"
    )]
    Unusable(String),
}

impl RackSource {
    /// The rack, as soon as it is known.
    ///
    /// # Errors
    /// When it cannot become known, or Kafka could not take it.
    pub async fn read(&self) -> Result<String, RackError> {
        let rack = match self {
            Self::Variable(name) => std::env::var(name).map_err(|_| RackError::Unset(name.clone()))?,
            Self::File(file) => from_file(file).await,
        };
        if is_usable(&rack) { Ok(rack) } else { Err(RackError::Unusable(rack)) }
    }
}

async fn from_file(file: &Path) -> String {
    let began = Instant::now();
    let mut was_told = false;
    loop {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let rack = text.trim_end_matches('\n');
        if !rack.is_empty() {
            info!("this is rack {rack}, known after {} ms", began.elapsed().as_millis());
            return rack.to_owned();
        }
        if began.elapsed() > PATIENCE && !was_told {
            was_told = true;
            warn!(
                "waiting for the operator to tell the rack; the status of the Kafka resource says what is in the way"
            );
        }
        sleep(PERIOD).await;
    }
}

/// Kafka takes it as `broker.rack=...` on its command line.
fn is_usable(rack: &str) -> bool {
    !rack.is_empty() && rack.trim() == rack && !rack.contains(|c: char| c == '=' || c.is_control())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rack_is_one_plain_word_or_several() {
        for rack in ["zone-a", "eu-west-1a", "Row 3"] {
            assert!(is_usable(rack), "{rack:?}");
        }
        for rack in ["", " a", "a=b", "a\nlog.dirs=/", "a\u{0}"] {
            assert!(!is_usable(rack), "{rack:?}");
        }
    }
}
