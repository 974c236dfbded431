//! Asking launchers what their nodes are doing while they do not serve.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::join_all;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, HOST};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use karst_core::ids::NodeId;
use karst_core::probes::PORT;
use karst_core::world::{Answer, LauncherView, Recovery};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::silences::{Questions, Whom};

/// How long a launcher may take for all of it. It answers from what it knows, so one that is silent for longer is not there.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest answer that is read.
const LONGEST: usize = 4 << 10;
/// How much of the head of an answer is kept in memory, at most; the least that is possible.
const BUFFER: usize = 8 << 10;
/// How a launcher begins to say that Kafka reads its logs anew.
const RECOVERING: &str = "recovering logs";

/// How it begins to say that its node waits for somebody who knows whether it lost its disk.
const LOST_DISK_CHECK: &str = "lost-disk check: ";

/// Why nothing is known of a node.
#[derive(Debug, thiserror::Error)]
enum Silent {
    #[error("cannot connect to the launcher: {0}")]
    Connect(#[from] std::io::Error),
    #[error("the launcher does not answer: {0}")]
    Http(#[from] hyper::Error),
    #[error("the launcher does not answer within {0:?}")]
    Late(Duration),
    #[error("the launcher answers {0}")]
    Status(StatusCode),
    #[error("the launcher's answer is cut off, longer than {LONGEST} bytes, or not a text")]
    Unreadable,
}

/// Asks the launchers at these hosts, all at once.
pub(super) async fn ask(
    hosts: &BTreeMap<NodeId, String>,
    silences: &Questions<'_>,
) -> BTreeMap<NodeId, Answer<LauncherView>> {
    ask_at(PORT, PATIENCE, hosts, silences).await
}

async fn ask_at(
    port: u16,
    patience: Duration,
    hosts: &BTreeMap<NodeId, String>,
    silences: &Questions<'_>,
) -> BTreeMap<NodeId, Answer<LauncherView>> {
    let asked = hosts.iter().map(async |(node, host)| {
        // It ends by itself in time, and then says more.
        let question = answer(host, port, patience);
        (*node, silences.ask(Whom::Launcher(*node), patience.saturating_mul(2), question).await)
    });
    join_all(asked).await.into_iter().collect()
}

async fn answer(host: &str, port: u16, patience: Duration) -> Answer<LauncherView> {
    match timeout(patience, readiness(host, port)).await.unwrap_or(Err(Silent::Late(patience))) {
        Ok((status, text)) => Answer::Known(view(status, &text)),
        Err(why) => {
            tracing::debug!(host, %why, "a launcher said nothing about its node");
            Answer::Silent(why.to_string())
        }
    }
}

/// What the launcher says when it is asked whether its node is ready.
async fn readiness(host: &str, port: u16) -> Result<(StatusCode, String), Silent> {
    let stream = TcpStream::connect((host, port)).await?;
    let (mut sender, connection) =
        http1::Builder::new().max_buf_size(BUFFER).handshake(TokioIo::new(stream)).await?;
    let request = Request::get("/ready").header(HOST, host).header(CONNECTION, "close");
    let exchange = async move {
        let request = request.body(Empty::<Bytes>::new()).map_err(|_| Silent::Unreadable)?;
        let (head, body) = sender.send_request(request).await?.into_parts();
        if !matches!(head.status, StatusCode::OK | StatusCode::SERVICE_UNAVAILABLE) {
            return Err(Silent::Status(head.status));
        }
        let body = Limited::new(body, LONGEST).collect().await.map_err(|_| Silent::Unreadable)?;
        let text = String::from_utf8(body.to_bytes().into()).map_err(|_| Silent::Unreadable)?;
        Ok((head.status, text))
    };
    // What goes wrong with the connection is told by the exchange, which then has no answer.
    let (told, _) = futures::join!(exchange, connection);
    told
}

/// What the node is doing.
fn view(status: StatusCode, text: &str) -> LauncherView {
    let is_unready = status == StatusCode::SERVICE_UNAVAILABLE;
    LauncherView {
        serves: !is_unready,
        recovery: is_unready.then(|| recovery(text)).flatten(),
        awaits_leader: is_unready && text.starts_with(LOST_DISK_CHECK),
    }
}

/// Whatever begins with `recovering logs` says that they are recovered: when the rest cannot be understood, only how far is not
/// known. From when Kafka has said how many there are it is `recovering logs: DONE of ALL`, and words for people may follow.
fn recovery(text: &str) -> Option<Recovery> {
    let said = text.lines().next()?.strip_prefix(RECOVERING)?;
    Some(progress(said).unwrap_or(Recovery { done: 0, all: 0 }))
}

fn progress(said: &str) -> Option<Recovery> {
    let mut words = said.strip_prefix(": ")?.split(' ');
    let (done, of, all) = (words.next()?, words.next()?, words.next()?);
    let (done, all) = (number(done)?, number(all).filter(|_| of == "of")?);
    (done <= all).then_some(Recovery { done, all })
}

/// Digits and nothing else: no sign.
fn number(digits: &str) -> Option<usize> {
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::silences::{Insistence, Silences};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::time::Instant;

    #[test]
    fn a_launcher_tells_how_far_the_recovery_of_logs_is() {
        let recovered = |done, all| Some(Recovery { done, all });
        assert_eq!(recovery("recovering logs\n"), recovered(0, 0), "Kafka has not said how many");
        assert_eq!(recovery("recovering logs"), recovered(0, 0));
        assert_eq!(recovery("recovering logs: 3 of 250\n"), recovered(3, 250));
        assert_eq!(recovery("recovering logs: 0 of 1\r\nand more\n"), recovered(0, 1));
        assert_eq!(recovery("recovering logs: 7 of 7"), recovered(7, 7));
        // As the launcher says it.
        let advice = "(Kafka was not shut down cleanly; ending it now would make it begin again)";
        assert_eq!(recovery(&format!("recovering logs: 17 of 340 {advice}\n")), recovered(17, 340));
        assert_eq!(recovery(&format!("recovering logs {advice}\n")), recovered(0, 0));
    }

    /// Whoever takes a recovery for none restarts the broker, and it begins again.
    #[test]
    fn what_cannot_be_understood_of_a_recovery_is_only_how_far_it_is() {
        for rest in [
            ":",
            ": ",
            ":3 of 4",
            ": 3",
            ": 3 of ",
            ":  of 4",
            ": 3 to 4",
            ": +3 of 4",
            ": -3 of 4",
            ": 5 of 4",
            ": 3 of 99999999999999999999999",
            ": \u{0663} of 4",
        ] {
            let text = format!("recovering logs{rest}");
            assert_eq!(recovery(&text), Some(Recovery { done: 0, all: 0 }), "{text:?}");
        }
    }

    #[test]
    fn any_other_text_is_no_recovery() {
        for text in
            ["", "ready\n", "starting\n", "\nrecovering logs\n", " recovering logs", "Recovering logs"]
        {
            assert_eq!(recovery(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_launcher_tells_that_its_node_waits_for_somebody_who_knows_its_disk() {
        // As the launcher says it.
        let text = "lost-disk check: this node was a controller before, so its empty disk stands for one that was lost\n";
        assert!(view(StatusCode::SERVICE_UNAVAILABLE, text).awaits_leader);
        assert!(!view(StatusCode::OK, text).awaits_leader);
        for text in ["", "ready", "asking the other controllers whether this node was there before"] {
            assert!(!view(StatusCode::SERVICE_UNAVAILABLE, text).awaits_leader, "{text}");
        }
    }

    #[test]
    fn a_node_that_is_ready_recovers_nothing() {
        let text = "recovering logs: 1 of 2\n";
        assert_eq!(view(StatusCode::OK, text).recovery, None);
        assert_eq!(view(StatusCode::SERVICE_UNAVAILABLE, text).recovery, Some(Recovery { done: 1, all: 2 }));
    }

    /// Asks somebody who says this, and does not hang up. Also what was asked.
    async fn ask_one_who_says(said: &[u8]) -> (Answer<LauncherView>, String) {
        wait_for_one_who_says(said, Duration::from_secs(20)).await
    }

    async fn wait_for_one_who_says(said: &[u8], patience: Duration) -> (Answer<LauncherView>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let launcher = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut asked = Vec::new();
            while !asked.ends_with(b"\r\n\r\n") {
                asked.push(stream.read_u8().await.unwrap());
            }
            // Nobody listens to the end of what is too long.
            let _ = stream.write_all(said).await;
            (stream, String::from_utf8(asked).unwrap())
        };
        let (answer, (stream, asked)) = tokio::join!(answer("127.0.0.1", port, patience), launcher);
        drop(stream);
        (answer, asked)
    }

    fn answered(status: &str, body: &str) -> String {
        format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
    }

    fn why(answer: Answer<LauncherView>) -> String {
        match answer {
            Answer::Silent(why) => why,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_launcher_is_asked_whether_its_node_is_ready() {
        let text = answered("503 Service Unavailable", "recovering logs: 12 of 40\n");
        let (told, asked) = ask_one_who_says(text.as_bytes()).await;
        assert_eq!(
            told,
            Answer::Known(LauncherView {
                recovery: Some(Recovery { done: 12, all: 40 }),
                ..LauncherView::default()
            })
        );
        assert!(asked.starts_with("GET /ready HTTP/1.1\r\n"), "{asked}");
        let (told, _) = ask_one_who_says(answered("200 OK", "ready\n").as_bytes()).await;
        assert_eq!(told, Answer::Known(LauncherView { serves: true, ..LauncherView::default() }));
    }

    #[tokio::test]
    async fn an_answer_that_no_launcher_gives_is_none() {
        let ask = async |said: String| why(ask_one_who_says(said.as_bytes()).await.0);
        assert_eq!(ask(answered("404 Not Found", "")).await, "the launcher answers 404 Not Found");
        let fits = answered("503 Unavailable", &"x".repeat(LONGEST));
        assert!(ask_one_who_says(fits.as_bytes()).await.0.known().is_some());
        let unreadable = Silent::Unreadable.to_string();
        assert_eq!(ask(answered("503 Unavailable", &"x".repeat(LONGEST + 1))).await, unreadable);
        let (told, _) = ask_one_who_says(b"HTTP/1.1 503 X\r\ncontent-length: 1\r\n\r\n\xff").await;
        assert_eq!(why(told), unreadable);
        let endless_head = format!("HTTP/1.1 503 X\r\nx: {}", "y".repeat(64 << 10));
        assert!(ask(endless_head).await.starts_with("the launcher does not answer: "));
        assert!(ask("SSH-2.0-sshd\r\n".to_owned()).await.starts_with("the launcher does not answer: "));
    }

    #[tokio::test]
    async fn a_launcher_that_says_nothing_or_only_begins_to_is_not_waited_for() {
        let patience = Duration::from_millis(300);
        for said in ["", "HTTP/1.1 503 X\r\ncontent-length: 9\r\n\r\nrecov"] {
            let (told, _) = wait_for_one_who_says(said.as_bytes(), patience).await;
            assert_eq!(why(told), "the launcher does not answer within 300ms", "{said}");
        }
    }

    #[tokio::test]
    async fn a_host_where_no_launcher_listens_is_silent() {
        let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
        let told = why(answer("127.0.0.1", port, PATIENCE).await);
        assert!(told.starts_with("cannot connect to the launcher: "), "{told}");
    }

    /// Whoever waited in every pass for a node that is late would be late for all others.
    #[tokio::test]
    async fn a_launcher_that_let_us_wait_is_not_asked_in_the_next_pass() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (port, patience) = (listener.local_addr().unwrap().port(), Duration::from_millis(700));
        let (silences, world) = (Silences::default(), crate::hands::tests::world());
        let hosts = (0..20).map(|node| (NodeId(node), "127.0.0.1".to_owned())).collect();
        let pass = async || {
            let (began, questions) = (Instant::now(), silences.questions(&world, Insistence::Patient));
            let answers = ask_at(port, patience, &hosts, &questions).await;
            assert!(answers.values().all(|answer| matches!(answer, Answer::Silent(_))), "{answers:?}");
            (answers.len(), began.elapsed())
        };
        let (first, second) = (pass().await, pass().await);
        assert!(
            first.0 == 20 && first.1 >= patience && first.1 < 4 * patience,
            "one after the other: {first:?}"
        );
        assert!(second.0 == 20 && second.1 < patience / 2, "{second:?}");
    }
}
