//! Stories of lists and watches, told by an API server that follows a script.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use http_body_util::StreamBody;
use hyper::body::{Bytes, Frame};
use hyper::{Request, Response, StatusCode};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::service_fn;

use super::*;

/// What the API server says next.
enum Answer {
    Json(Value),
    /// Something of this size.
    Large(usize),
    Status(u16),
    /// Lines, and then the end after this long; none, if that never comes.
    Lines(Vec<String>, Option<Duration>),
}

/// What was asked, what was heard, and how long it took.
#[derive(Default)]
struct Story {
    asked: Vec<String>,
    heard: Vec<String>,
    took: Duration,
}

type Chunks = BoxStream<'static, Result<Frame<Bytes>, std::io::Error>>;

fn chunks(answer: Answer) -> (StatusCode, Chunks) {
    let whole = |text: String| stream::iter([Ok(Frame::data(Bytes::from(text)))]).boxed();
    match answer {
        Answer::Json(value) => (StatusCode::OK, whole(value.to_string())),
        Answer::Large(size) => (StatusCode::OK, whole(" ".repeat(size))),
        Answer::Status(code) => {
            let status =
                json!({"kind": "Status", "code": code, "reason": "", "message": format!("code {code}")});
            (StatusCode::from_u16(code).unwrap(), whole(status.to_string()))
        }
        Answer::Lines(lines, end) => {
            let end = stream::once(async move {
                match end {
                    Some(after) => tokio::time::sleep(after).await,
                    None => std::future::pending().await,
                }
                Ok(Frame::data(Bytes::new()))
            });
            (StatusCode::OK, whole(lines.concat()).chain(end).boxed())
        }
    }
}

/// Lets the API server give these answers, and returns what came of it.
async fn tell(answers: Vec<Answer>) -> Story {
    let (story, script) =
        (Arc::new(Mutex::new(Story::default())), Arc::new(Mutex::new(VecDeque::from(answers))));
    let over = Arc::new(Notify::new());
    let (asked, finished) = (Arc::clone(&story), Arc::clone(&over));
    let service = service_fn(move |request: Request<Body>| {
        let (asked, script, over) = (Arc::clone(&asked), Arc::clone(&script), Arc::clone(&over));
        async move {
            let next = script.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some(answer) = next else {
                over.notify_one();
                return std::future::pending().await;
            };
            let of_metadata = request
                .headers()
                .get("accept")
                .is_some_and(|accept| accept.to_str().unwrap().contains("PartialObjectMetadataList"));
            let asked_for = format!(
                "{}{}",
                request.uri().query().unwrap_or_default(),
                if of_metadata { " metadata" } else { "" }
            );
            asked.lock().unwrap().asked.push(asked_for);
            let (status, body) = chunks(answer);
            let mut response = Response::new(StreamBody::new(body));
            *response.status_mut() = status;
            Ok::<_, std::io::Error>(response)
        }
    });
    let source = ListWatch::<KafkaNodePool> {
        client: Client::new(service, "default"),
        namespace: None,
        labels: None,
        fields: None,
        largest: 1 << 20,
        lasts: LASTS,
        turns: Turns::default(),
        kind: PhantomData,
    };
    let (heard, began) = (Arc::clone(&story), Instant::now());
    let task = tokio::spawn(source.follow(move |event| {
        if !matches!(event, Event::GoesOn) {
            heard.lock().unwrap().heard.push(describe(&event));
        }
        Next::GoOn
    }));
    finished.notified().await;
    task.abort();
    let mut story = std::mem::take(&mut *story.lock().unwrap());
    story.took = began.elapsed();
    story
}

fn describe(event: &Event<KafkaNodePool>) -> String {
    let of = |what: &str, read: &Read<KafkaNodePool>| {
        let name = item::meta(read).name.clone().unwrap_or_default();
        read.as_ref().err().map_or(format!("{what} {name}"), |one| format!("{what} {name}: {}", one.why))
    };
    match event {
        Event::ListBegins(version) => format!("list {version}"),
        Event::Listed(read) => of("listed", read),
        Event::ListEnds => "end".to_owned(),
        Event::Applied(read) => of("applied", read),
        Event::Deleted(read) => of("deleted", read),
        Event::ToldUpTo(version) => format!("told {version}"),
        Event::Failed(error) => format!("failed: {error}"),
        Event::GoesOn => "goes on".to_owned(),
    }
}

fn pool(name: &str, version: u64) -> Value {
    json!({"apiVersion": "kafka.strimzi.io/v1", "kind": "KafkaNodePool",
           "metadata": {"namespace": "ns", "name": name, "resourceVersion": version.to_string()},
           "spec": {"replicas": 1, "roles": ["broker"], "storage": {"type": "ephemeral"}}})
}

/// One that somebody wrote to do harm: nested deeper than any decoder goes.
fn odd(name: &str, version: u64) -> Value {
    let mut pool = pool(name, version);
    let mut deep = json!("hunter2");
    for _ in 0..130 {
        deep = json!({"a": deep});
    }
    pool["spec"]["storage"] = deep.clone();
    pool["metadata"]["managedFields"] = json!([{"manager": "kubectl", "fieldsV1": deep}]);
    pool
}

fn list(version: u64, items: &[Value]) -> Answer {
    Answer::Json(
        json!({"kind": "List", "metadata": {"resourceVersion": version.to_string()}, "items": items}),
    )
}

fn line(kind: &str, object: &Value) -> String {
    format!("{}\n", json!({"type": kind, "object": object}))
}

/// A watch of which nothing more is heard.
fn quiet() -> Answer {
    Answer::Lines(Vec::new(), None)
}

#[tokio::test(start_paused = true)]
async fn one_object_that_cannot_be_read_hides_no_other_and_is_known_until_its_end() {
    let lines = vec![
        line("MODIFIED", &odd("odd", 6)),
        line("ADDED", &pool("b", 7)),
        line("DELETED", &odd("odd", 8)),
        line("BOOKMARK", &json!({"metadata": {"resourceVersion": "9"}})),
    ];
    let answers =
        vec![list(5, &[pool("a", 1), odd("odd", 2), pool("c", 3)]), Answer::Lines(lines, Some(LASTS))];
    let story = tell(answers).await;
    let why = |event: &str| story.heard.iter().find(|heard| heard.starts_with(event)).unwrap().clone();
    for event in ["listed odd: ", "applied odd: ", "deleted odd: "] {
        assert!(why(event).ends_with("nested too deeply"), "{}", why(event));
        assert!(!why(event).contains("hunter2"));
    }
    let names: Vec<_> = story.heard.iter().map(|heard| heard.split(':').next().unwrap()).collect();
    assert_eq!(
        names,
        [
            "list 5",
            "listed a",
            "listed odd",
            "listed c",
            "end",
            "applied odd",
            "applied b",
            "deleted odd",
            "told 9"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_list_comes_in_pages_and_a_watch_that_ends_in_its_time_goes_on_where_it_was() {
    let mut first =
        json!({"metadata": {"resourceVersion": "5", "continue": "more"}, "items": [pool("a", 1)]});
    let answers = vec![
        Answer::Json(first.take()),
        list(5, &[pool("b", 2)]),
        Answer::Lines(vec![line("ADDED", &pool("c", 7))], Some(LASTS)),
        Answer::Lines(vec![line("ADDED", &pool("d", 8))], Some(LASTS)),
    ];
    let story = tell(answers).await;
    assert_eq!(story.heard, ["list 5", "listed a", "listed b", "end", "applied c", "applied d"]);
    assert_eq!(story.asked[0], "&limit=100");
    assert_eq!(story.asked[1], "&limit=100&continue=more");
    assert!(
        story.asked[2].ends_with("timeoutSeconds=120&allowWatchBookmarks=true&resourceVersion=5"),
        "{}",
        story.asked[2]
    );
    assert!(story.asked[3].ends_with("resourceVersion=7"), "{}", story.asked[3]);
}

#[tokio::test(start_paused = true)]
async fn a_page_that_is_too_large_is_asked_for_in_smaller_pieces() {
    let page = 9 << 20;
    let answers = vec![Answer::Large(page), Answer::Large(page), list(5, &[pool("a", 1)]), quiet()];
    let story = tell(answers).await;
    assert_eq!(story.asked[..3], ["&limit=100", "&limit=12", "&limit=1"]);
    assert_eq!(story.heard[..3], ["list 5", "listed a", "end"]);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_too_large_is_listed_without_its_content() {
    let answers = vec![
        Answer::Large(9 << 20),
        Answer::Large(9 << 20),
        Answer::Large(17 << 20),
        list(5, &[pool("a", 1)]),
        quiet(),
    ];
    let story = tell(answers).await;
    assert_eq!(story.asked[2..4], ["&limit=1", "&limit=1 metadata"]);
    assert_eq!(
        story.heard[1], "listed a: what arrived is larger than 16 MiB",
        "though what arrived of it could be read"
    );
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_cut_goes_on_where_it_was_when_the_history_does() {
    let answers = vec![
        list(5, &[pool("a", 1)]),
        Answer::Lines(vec![line("ADDED", &pool("b", 7))], Some(Duration::from_secs(3))),
        list(8, &[]),
        Answer::Lines(vec![line("ADDED", &pool("c", 8))], Some(LASTS)),
    ];
    let story = tell(answers).await;
    assert_eq!(story.asked[2], "&limit=1 metadata");
    assert!(story.asked[3].ends_with("resourceVersion=7"));
    assert_eq!(story.heard[3..], ["applied b", "failed: the API server ended it early", "applied c"]);
}

/// It would be silent until the store is at the later version again.
#[tokio::test(start_paused = true)]
async fn a_store_that_was_restored_is_listed_again() {
    let answers =
        vec![list(500, &[pool("a", 1)]), Answer::Status(503), list(300, &[]), list(300, &[]), quiet()];
    let story = tell(answers).await;
    assert_eq!(story.heard[..6], ["list 500", "listed a", "end", "failed: code 503", "list 300", "end"]);
}

#[tokio::test(start_paused = true)]
async fn what_was_not_understood_is_listed() {
    let gone = line("ERROR", &json!({"kind": "Status", "code": 410, "message": "too old"}));
    let odd_lines =
        [gone, "{\"type\": \n".to_owned(), line("SURPRISE", &pool("a", 1)), line("ADDED", &json!({}))];
    for lost in odd_lines {
        let answers =
            vec![list(5, &[]), Answer::Lines(vec![lost.clone()], Some(LASTS)), list(6, &[]), quiet()];
        let story = tell(answers).await;
        assert_eq!((&*story.heard[3], &*story.heard[4]), ("list 6", "end"), "{lost} {:?}", story.heard);
    }
    let story = tell(vec![list(5, &[]), Answer::Status(410), list(6, &[]), quiet()]).await;
    assert_eq!(story.heard[3], "list 6");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_falls_silent_is_begun_anew_soon_after_it_should_have_ended() {
    let story = tell(vec![list(5, &[]), quiet(), list(6, &[]), Answer::Status(500)]).await;
    assert_eq!(story.heard[2], "failed: the API server is silent");
    assert!(story.took < LASTS + Duration::from_secs(20), "{:?}", story.took);
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_refuses_is_asked_ever_less_often() {
    let story = tell((0..12).map(|_| Answer::Status(500)).collect()).await;
    assert_eq!(story.heard.len(), 12);
    assert!(
        story.took > Duration::from_secs(100) && story.took < Duration::from_secs(600),
        "{:?}",
        story.took
    );
}

/// Watches on everything in some namespaces, and how often the parts of the process are asked whether they go on.
async fn watched_for_an_hour(answer: fn(&Request<Body>) -> Option<Answer>) -> Result<(), String> {
    let service = service_fn(move |request: Request<Body>| async move {
        let Some(answer) = answer(&request) else { return std::future::pending().await };
        let (status, body) = chunks(answer);
        let mut response = Response::new(StreamBody::new(body));
        *response.status_mut() = status;
        Ok::<_, std::io::Error>(response)
    });
    let client = Client::new(service, "default");
    let heartbeats = Arc::new(Heartbeats::default());
    let (index, queue, synced) = (Arc::default(), Arc::default(), Arc::default());
    let mut watches = Watches {
        client: &client,
        index: &index,
        queue: &queue,
        synced: &synced,
        heartbeats: &heartbeats,
        turns: Turns::default(),
        tasks: JoinSet::new(),
    };
    for namespace in 0..50 {
        watches.start::<PodWire>(Some(&format!("ns-{namespace}")), None);
    }
    let until = Instant::now() + Duration::from_secs(3600);
    while Instant::now() < until {
        tokio::time::sleep(Duration::from_secs(5)).await;
        heartbeats.check().map_err(|still| still.to_string())?;
    }
    Ok(())
}

/// To end would help nobody: the next process would hear as little.
#[tokio::test(start_paused = true)]
async fn an_api_server_that_says_nothing_is_no_reason_to_end() {
    watched_for_an_hour(|_| None).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn watches_on_what_never_changes_go_on() {
    let answer = watched_for_an_hour(|request| {
        Some(match request.uri().query().unwrap_or_default().contains("timeoutSeconds") {
            true => Answer::Lines(Vec::new(), Some(LASTS)),
            false => list(5, &[]),
        })
    });
    answer.await.unwrap();
}
