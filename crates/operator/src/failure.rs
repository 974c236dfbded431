//! Why something could not be done, and what that means for the next pass.

use std::time::Duration;

use crate::watch::item;

/// How long a single call to the API server may take.
pub(crate) const DEADLINE: Duration = Duration::from_secs(10);

/// Why something could not be done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The API server refused, or could not be reached.
    #[error("{what}: {}", brief(source))]
    Api {
        /// What was tried.
        what: String,
        /// What came back.
        source: Box<kube::Error>,
    },
    /// No answer in time.
    #[error("{what}: no answer from the API server within {} s", after.as_secs())]
    Deadline {
        /// What was tried.
        what: String,
        /// How long it could take.
        after: Duration,
    },
    /// What was decided cannot be written as JSON.
    #[error("could not render {what}: {source}")]
    Render {
        /// What it was.
        what: String,
        /// Why.
        source: serde_json::Error,
    },
    /// A key or a certificate could not be made.
    #[error("{what}: {source}")]
    Certificate {
        /// What was to be made.
        what: String,
        /// Why it was not.
        source: karst_certs::Error,
    },
    /// An object of somebody else has the name.
    #[error("{object} belongs to {owner}, and is left as it is")]
    Foreign {
        /// Its kind and name.
        object: String,
        /// Whose it is.
        owner: String,
    },
    /// Another replica leads.
    #[error("this replica does not lead any more")]
    NotLeader,
    /// The world changed under the decision.
    #[error("{0}")]
    Changed(String),
}

/// What the API server says, without the debug text that the client adds, and without what stands in an object.
pub(crate) fn brief(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        kube::Error::SerdeError(error) => {
            format!("the answer cannot be read: {}", item::without_content(error))
        }
        other => other.to_string(),
    }
}

impl Failure {
    /// Is the object gone?
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, Self::Api { source, .. } if matches!(&**source, kube::Error::Api(status) if status.code == 404))
    }

    /// Was it understood and not wanted? Asking the same again brings the same answer.
    pub(crate) fn is_refusal(&self) -> bool {
        let Self::Api { source, .. } = self else { return false };
        matches!(&**source, kube::Error::Api(status) if matches!(status.code, 400 | 403 | 422))
    }

    /// Is it because of an object of somebody else?
    pub(crate) fn is_foreign(&self) -> bool {
        matches!(self, Self::Foreign { .. })
    }

    /// Will it not be done now, for whatever reason but that somebody else was faster? A service may hang on what is not ours.
    pub(crate) fn is_unwillingness(&self) -> bool {
        if let Self::Foreign { .. } = self {
            return true;
        }
        let Self::Api { source, .. } = self else { return false };
        // One that is overloaded, or not there for a moment, is asked again.
        let is_absent = |code| matches!(code, 503 | 504);
        self.is_refusal()
            || matches!(&**source, kube::Error::Api(status) if status.code >= 500 && !is_absent(status.code))
    }

    /// Is it worth a word to whoever looks at the cluster? An admission webhook that is down answers with an error of the server:
    /// without a word everything would stop in silence. What is somebody else's is told otherwise.
    pub(crate) fn is_to_be_told(&self) -> bool {
        self.is_unwillingness() && !self.is_foreign() && !self.is_namespace_going()
    }

    /// Was there no answer? Once says nothing. An admission webhook that hangs takes as long as may be waited for, again and again.
    pub(crate) fn is_late(&self) -> bool {
        matches!(self, Self::Deadline { .. })
    }

    /// What was said, without what was tried.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Api { source, .. } => brief(source),
            other => other.to_string(),
        }
    }

    /// Is the namespace being deleted? Then nothing can be made in it any more, and nothing needs to be.
    pub(crate) fn is_namespace_going(&self) -> bool {
        let Self::Api { source, .. } = self else { return false };
        let kube::Error::Api(status) = &**source else { return false };
        let causes = status.details.iter().flat_map(|details| &details.causes);
        causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
    }

    /// Did the object change since it was read? Then the next look decides anew, and nothing is wrong.
    pub(crate) fn is_conflict(&self) -> bool {
        match self {
            Self::Api { source, .. } => matches!(&**source, kube::Error::Api(status) if status.code == 409),
            Self::Changed(_) => true,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn answer(code: u16) -> Failure {
        let status = Status { code, ..Status::default() };
        Failure::Api {
            what: "could not write".to_owned(),
            source: Box::new(kube::Error::Api(Box::new(status))),
        }
    }

    #[test]
    fn an_api_server_that_is_away_for_a_moment_refused_nothing() {
        let unwilling = [400, 403, 422, 500].map(|code| answer(code).is_unwillingness());
        assert_eq!(unwilling, [true; 4]);
        let absent = [409, 429, 503, 504].map(|code| answer(code).is_unwillingness());
        assert_eq!(absent, [false; 4]);
    }

    #[test]
    fn an_admission_webhook_that_is_down_is_told() {
        let told = |failure: &Failure| failure.is_to_be_told();
        assert_eq!([400, 403, 422, 500].map(|code| told(&answer(code))), [true; 4]);
        assert_eq!([404, 409, 429, 503, 504].map(|code| told(&answer(code))), [false; 5]);
        let theirs = Failure::Foreign { object: "Pod a".to_owned(), owner: "somebody".to_owned() };
        assert!(!told(&theirs) && !told(&Failure::NotLeader));
    }

    #[test]
    fn an_answer_that_cannot_be_read_is_not_repeated() {
        let error = serde_json::from_str::<Vec<u8>>("\"hunter2\"").unwrap_err();
        assert!(error.to_string().contains("hunter2"));
        let source = Box::new(kube::Error::SerdeError(error));
        let failure = Failure::Api { what: "could not look at Kafka c".to_owned(), source };
        let told = "could not look at Kafka c: the answer cannot be read: expected a sequence";
        assert_eq!((failure.to_string().as_str(), failure.words().contains("hunter2")), (told, false));
    }
}
