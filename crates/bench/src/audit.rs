//! The operator's requests, as the API server itself wrote them down.
//!
//! The API server's metrics do not say who asked. Its audit log does, and misses nothing: an entry is written
//! before the request is over.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::json;

use crate::requests::{Request, Requests};

/// The policy that makes the API server log one user's requests, without their contents.
pub(crate) fn policy(user: &str) -> String {
    let policy = json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{"level": "Metadata", "users": [user]}, {"level": "None"}],
    });
    policy.to_string()
}

/// Reads a log that grows.
#[derive(Debug)]
pub(crate) struct AuditLog {
    file: BufReader<File>,
    /// The beginning of a line whose end was not written yet.
    unfinished: Vec<u8>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    stage: String,
    verb: String,
    #[serde(rename = "requestURI")]
    uri: String,
    object_ref: Option<ObjectRef>,
}

#[derive(Debug, Deserialize)]
struct ObjectRef {
    resource: String,
    subresource: Option<String>,
}

impl Entry {
    /// A watch counts when it starts, all else when it is over; so each request counts once.
    fn counts(&self) -> bool {
        (self.verb == "watch") == (self.stage == "ResponseStarted")
    }

    fn request(self) -> Request {
        let resource = match self.object_ref {
            Some(ObjectRef { resource, subresource: Some(part) }) => format!("{resource}/{part}"),
            Some(ObjectRef { resource, subresource: None }) => resource,
            None => self.uri,
        };
        Request { verb: self.verb, resource }
    }
}

impl AuditLog {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let file =
            File::open(path).with_context(|| format!("the audit log {} is missing", path.display()))?;
        Ok(Self { file: BufReader::new(file), unfinished: Vec::new() })
    }

    /// The requests that were logged since the last call.
    pub(crate) fn read_new(&mut self) -> Result<Requests> {
        let mut new = Vec::new();
        loop {
            let read = self.file.read_until(b'\n', &mut self.unfinished).context("reading the audit log")?;
            if read == 0 || !self.unfinished.ends_with(b"\n") {
                return Ok(new.into_iter().collect());
            }
            let entry: Entry = serde_json::from_slice(&self.unfinished)
                .context("the audit log has a line that is no entry")?;
            self.unfinished.clear();
            if entry.counts() {
                new.push(entry.request());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const CREATE: &str = r#"{"stage":"ResponseComplete","verb":"create","requestURI":"/api/v1/x","objectRef":{"resource":"pods"}}"#;

    #[test]
    fn every_request_counts_once() {
        let mut log = tempfile::NamedTempFile::new().unwrap();
        let mut reader = AuditLog::open(log.path()).unwrap();
        for (stage, verb) in
            [("ResponseStarted", "watch"), ("ResponseComplete", "watch"), ("ResponseComplete", "get")]
        {
            writeln!(log, r#"{{"stage":"{stage}","verb":"{verb}","requestURI":"/version"}}"#).unwrap();
        }
        let requests = reader.read_new().unwrap();
        assert_eq!(requests.by_verb().into_iter().collect::<Vec<_>>(), [("get", 1), ("watch", 1)]);
    }

    #[test]
    fn a_line_that_is_still_being_written_is_read_when_it_is_whole() {
        let mut log = tempfile::NamedTempFile::new().unwrap();
        let mut reader = AuditLog::open(log.path()).unwrap();
        let (first, second) = CREATE.split_at(40);
        write!(log, "{CREATE}\n{first}").unwrap();
        assert_eq!(reader.read_new().unwrap().total(), 1);
        assert_eq!(reader.read_new().unwrap().total(), 0);
        writeln!(log, "{second}").unwrap();
        assert_eq!(reader.read_new().unwrap().total(), 1);
    }

    #[test]
    fn a_subresource_is_told_apart() {
        let entry = r#"{"stage":"ResponseComplete","verb":"patch","requestURI":"/x",
            "objectRef":{"resource":"kafkas","subresource":"status"}}"#;
        let request = serde_json::from_str::<Entry>(entry).unwrap().request();
        assert_eq!(request, Request { verb: "patch".into(), resource: "kafkas/status".into() });
    }
}
