//! The jars that the images of Kafka may carry, by their SHA-256. Maven checks only what the registry itself says of a file.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, bail};

use super::kafka;
use crate::hash;

/// As `sha256sum` writes them; a jar's name has its version.
const PINS: &str = include_str!("../../../local/kafka/jars.sha256");

/// Refuses a directory with a jar that is not known, or not as it is known.
pub(super) fn verify(libs: &Path) -> Result<()> {
    verify_with(&parse(PINS), libs)
}

fn verify_with(pins: &BTreeMap<&str, &str>, libs: &Path) -> Result<()> {
    let mut unknown = Vec::new();
    for jar in kafka::list(libs)? {
        let name = jar.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match pins.get(name.as_str()) {
            Some(expected) => hash::require(&jar, expected)?,
            None => unknown.push(format!("{}  {name}", hash::of_file(&jar)?)),
        }
    }
    if !unknown.is_empty() {
        bail!(
            "Maven fetched jars whose SHA-256 is not in local/kafka/jars.sha256. For a new version of Kafka, see that \
             they are what its release has, and add these lines:\n{}",
            unknown.join("\n")
        );
    }
    Ok(())
}

fn parse(pins: &str) -> BTreeMap<&str, &str> {
    pins.lines().filter_map(|line| line.split_once("  ")).map(|(hash, name)| (name, hash)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jar_is_used_only_when_it_is_known_and_as_it_is_known() {
        let directory = tempfile::tempdir().unwrap();
        let jar = directory.path().join("kafka-clients-4.3.1.jar");
        std::fs::write(&jar, "abc").unwrap();
        let text = format!("{}  kafka-clients-4.3.1.jar\n", hash::of_bytes(b"abc"));
        let pins = parse(&text);
        verify_with(&pins, directory.path()).unwrap();
        std::fs::write(&jar, "changed").unwrap();
        let error = verify_with(&pins, directory.path()).unwrap_err().to_string();
        assert!(error.contains("kafka-clients-4.3.1.jar is not the file that is expected"), "{error}");
        std::fs::write(&jar, "abc").unwrap();
        std::fs::write(directory.path().join("more-1.jar"), "abc").unwrap();
        let error = verify_with(&pins, directory.path()).unwrap_err().to_string();
        assert!(error.contains(&format!("{}  more-1.jar", hash::of_bytes(b"abc"))), "{error}");
    }

    #[test]
    fn every_version_that_has_an_image_has_its_jars_known() {
        let pins = parse(PINS);
        for version in kafka::EVERY_LINE.iter().chain(kafka::USUAL) {
            for jar in [format!("kafka_2.13-{version}.jar"), format!("kafka-clients-{version}.jar")] {
                assert!(pins.contains_key(jar.as_str()), "{jar}");
            }
        }
        assert_eq!(
            pins.len(),
            PINS.lines().count(),
            "each line is a hash, two spaces, and a name of its own"
        );
        assert!(pins.values().all(|hash| hash.len() == 64));
    }
}
