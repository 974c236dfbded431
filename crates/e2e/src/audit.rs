//! The API server's own record of who asked for what: the only witness to silence.

use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

/// How the API server knows the operator.
const OPERATOR: &str = "system:serviceaccount:karst-system:karst-operator";

/// The record, from a point in time on.
#[derive(Debug)]
pub struct Audit {
    path: PathBuf,
    from: u64,
}

/// One request.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// What was asked for: get, list, watch, create, patch, …
    pub verb: String,
    /// The path that was asked for.
    #[serde(rename = "requestURI")]
    pub uri: String,
    user: User,
    object_ref: Option<ObjectRef>,
}

#[derive(Debug, Clone, Deserialize)]
struct User {
    username: String,
}

#[derive(Debug, Clone, Deserialize)]
struct ObjectRef {
    resource: Option<String>,
}

impl Request {
    /// Is it part of being the leader?
    pub fn is_about_the_lease(&self) -> bool {
        self.object_ref.as_ref().and_then(|object| object.resource.as_deref()) == Some("leases")
    }

    /// A watch is how silence is kept; all else that is not about the lease breaks it.
    pub fn breaks_the_silence(&self) -> bool {
        self.verb != "watch" && !self.is_about_the_lease()
    }
}

impl Audit {
    /// The record from now on.
    pub fn from_now() -> Result<Self> {
        let path = std::env::var_os("KARST_AUDIT_LOG").map(PathBuf::from);
        let path = path.context("KARST_AUDIT_LOG does not say where the API server's audit log is")?;
        let length = std::fs::metadata(&path).with_context(|| format!("reading {}", path.display()))?.len();
        Ok(Self { path, from: length })
    }

    /// What the operator has asked for since.
    pub fn of_operator(&self) -> Result<Vec<Request>> {
        let mut file = std::fs::File::open(&self.path)?;
        if file.metadata()?.len() < self.from {
            bail!("{} was rotated meanwhile, so nothing can be said about this time", self.path.display());
        }
        file.seek(SeekFrom::Start(self.from))?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        // The last line may still be being written.
        let whole = text.rfind('\n').map(|end| &text[..end]).unwrap_or_default();
        let requests: Vec<Request> = whole
            .lines()
            .map(|line| serde_json::from_str(line).with_context(|| format!("not an audit event: {line}")))
            .collect::<Result<_>>()?;
        Ok(requests.into_iter().filter(|request| request.user.username == OPERATOR).collect())
    }

    /// Waits until the operator has been silent for `calm`: what a change set off has then come to its end.
    pub async fn until_calm(calm: Duration, limit: Duration) -> Result<()> {
        let quiet = async {
            loop {
                let audit = Self::from_now()?;
                tokio::time::sleep(calm).await;
                if !audit.of_operator()?.iter().any(Request::breaks_the_silence) {
                    return anyhow::Ok(());
                }
            }
        };
        match tokio::time::timeout(limit, quiet).await {
            Ok(result) => result,
            Err(_) => bail!("the operator was never silent for {calm:?} within {limit:?}"),
        }
    }
}
