//! Who is trusted, who is not, and what is said about it.

use std::time::Duration;

use kafka_protocol::messages::ApiKey;
use karst_kafka::{
    Admin, Bootstrap, ClientConfig, ClusterDescription, Endpoint, Error, Identity, InvalidTls, Security,
    TlsConfig, TlsFailure, Waiting,
};
use rustls::version::{TLS12, TLS13};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::node::{Node, PATIENT, Question, Reply, cluster, config, endpoint_of};
use crate::pki::{Authority, BOTH_TLS, ECDSA, Issued, RSA, acceptor};

const HERE: &[&str] = &["127.0.0.1", "localhost"];

fn good(question: &Question) -> Option<Reply> {
    (question.api == ApiKey::DescribeCluster).then(|| question.answer(&cluster(-1, &[])))
}

fn admin(endpoints: Vec<Endpoint>, tls: TlsConfig) -> Admin {
    Admin::new(
        Bootstrap::Brokers(endpoints),
        ClientConfig { security: Security::Tls(tls), ..config(PATIENT) },
    )
}

async fn ask(node: &Node, tls: TlsConfig) -> Result<ClusterDescription, Error> {
    admin(vec![node.endpoint.clone()], tls).describe_cluster().await
}

fn failure(outcome: Result<ClusterDescription, Error>) -> TlsFailure {
    match outcome {
        Err(Error::Tls { reason, .. }) => reason,
        other => panic!("expected a failure to secure, got {other:?}"),
    }
}

/// A node that shows `own`, to a client that trusts `authority`.
async fn shown(authority: &Authority, own: &Issued) -> Result<ClusterDescription, Error> {
    let node = Node::start_tls(acceptor(own, None, BOTH_TLS), good).await;
    ask(&node, authority.trusted(None)).await
}

#[tokio::test]
async fn a_node_proves_itself_by_name_and_by_address() {
    let authority = Authority::new("cluster");
    let node = Node::start_tls(acceptor(&authority.issue(HERE), None, BOTH_TLS), good).await;
    ask(&node, authority.trusted(None)).await.unwrap();
    let by_name = Endpoint::new("localhost", node.endpoint.port);
    admin(vec![by_name], authority.trusted(None)).describe_cluster().await.unwrap();
}

#[tokio::test]
async fn a_node_that_is_reached_under_another_address_still_has_to_be_the_one_that_is_expected() {
    let authority = Authority::new("cluster");
    let expecting = |host: &str| authority.trusted(None).expecting(host);
    let name = "broker-0.brokers.svc";
    let node = Node::start_tls(acceptor(&authority.issue(&[name]), None, BOTH_TLS), good).await;
    ask(&node, expecting(name)).await.unwrap();
    let failure = failure(ask(&node, expecting("broker-1.brokers.svc")).await);
    assert!(matches!(failure, TlsFailure::WrongName { .. }), "{failure}");
}

#[tokio::test]
async fn of_several_authorities_each_is_trusted() {
    let (old, new) = (Authority::new("cluster"), Authority::new("cluster"));
    let both = format!("# the old one\n{}\n# the new one\n{}", old.pem(), new.pem());
    let tls = TlsConfig::new(both.as_bytes(), None).unwrap();
    for authority in [old, new] {
        let node = Node::start_tls(acceptor(&authority.issue(HERE), None, BOTH_TLS), good).await;
        ask(&node, tls.clone()).await.unwrap();
    }
}

#[tokio::test]
async fn a_stranger_is_not_trusted() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    assert_eq!(failure(shown(&ours, &theirs.issue(HERE)).await), TlsFailure::NotTrusted);
    let namesake = Authority::new("ours");
    assert_eq!(failure(shown(&ours, &namesake.issue(HERE)).await), TlsFailure::NotTrusted);
}

#[tokio::test]
async fn a_certificate_has_its_time() {
    let authority = Authority::new("cluster");
    let past = authority.issue_for_years(HERE, 2000, 2001);
    assert_eq!(failure(shown(&authority, &past).await), TlsFailure::Expired);
    let future = authority.issue_for_years(HERE, 3000, 3001);
    assert_eq!(failure(shown(&authority, &future).await), TlsFailure::NotYetValid);
}

#[tokio::test]
async fn a_certificate_for_another_host_is_refused_and_the_message_names_that_host() {
    let authority = Authority::new("cluster");
    let error = shown(&authority, &authority.issue(&["other.example", "10.0.0.1"])).await.unwrap_err();
    let text = error.to_string();
    assert!(text.ends_with("its certificate does not name it, only other.example, 10.0.0.1"), "{text}");
    assert!(!error.is_retriable());
}

#[tokio::test]
async fn a_client_with_a_certificate_is_let_in() {
    let authority = Authority::new("cluster");
    for versions in [&[&TLS12][..], &[&TLS13]] {
        let own = authority.issue(HERE);
        let node = Node::start_tls(acceptor(&own, Some(&authority), versions), good).await;
        for kind in [ECDSA, RSA] {
            ask(&node, authority.trusted(Some(&authority.issue_of_kind(kind)))).await.unwrap();
        }
    }
}

/// What a node that wants certificates of `authority` makes of a client, in each version of TLS.
async fn refusals(authority: &Authority, client: Option<&Issued>) -> Vec<Error> {
    let mut refusals = Vec::new();
    for versions in [&[&TLS12][..], &[&TLS13]] {
        let own = authority.issue(HERE);
        let node = Node::start_tls(acceptor(&own, Some(authority), versions), good).await;
        refusals.push(ask(&node, authority.trusted(client)).await.unwrap_err());
    }
    refusals
}

#[tokio::test]
async fn a_client_whose_certificate_is_not_taken_is_told_so() {
    let authority = Authority::new("cluster");
    let stranger = Authority::new("elsewhere").issue_of_kind(ECDSA);
    for error in refusals(&authority, Some(&stranger)).await {
        let text = error.to_string();
        assert!(text.contains("does not accept this client's certificate (alert UnknownCA)"), "{text}");
        assert!(!error.is_retriable());
    }
}

#[tokio::test]
async fn a_client_without_a_certificate_is_told_that_it_needs_one() {
    let authority = Authority::new("cluster");
    let refusals = refusals(&authority, None).await;
    let text = refusals[1].to_string();
    assert!(text.contains("wants a client certificate, and this client has none"), "{text}");
    assert!(matches!(refusals[0], Error::Tls { .. }), "TLS 1.2 has no word for it: {}", refusals[0]);
}

#[tokio::test]
async fn a_node_that_hangs_up_after_the_handshake_is_suspected_of_refusing_the_client() {
    let authority = Authority::new("cluster");
    let node =
        Node::start_tls(acceptor(&authority.issue(HERE), None, BOTH_TLS), |_| Some(Reply::Close)).await;
    let error = ask(&node, authority.trusted(None)).await.unwrap_err();
    assert!(error.to_string().contains("or wants a client certificate"), "{error}");
    assert!(error.is_retriable(), "it may only have been stopping");
}

#[tokio::test]
async fn a_connection_that_breaks_later_is_only_a_lost_one() {
    let authority = Authority::new("cluster");
    let node = Node::start_tls(acceptor(&authority.issue(HERE), None, BOTH_TLS), |question| {
        (question.api != ApiKey::ApiVersions).then_some(Reply::Close)
    })
    .await;
    let error = ask(&node, authority.trusted(None)).await.unwrap_err();
    assert!(matches!(error, Error::Disconnected { .. }), "{error}");
}

/// A peer that takes the connection, reads what the client begins with, and answers with `bytes`.
async fn says(bytes: &'static [u8], hangs_up: bool) -> (Endpoint, tokio::task::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = endpoint_of(&listener);
    let task = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0);
        stream.write_all(bytes).await.unwrap();
        if !hangs_up {
            std::future::pending::<()>().await;
        }
    });
    (endpoint, task)
}

#[tokio::test]
async fn a_peer_that_does_not_speak_tls_is_recognized() {
    let tls = Authority::new("cluster").trusted(None);
    let (endpoint, _web_server) = says(b"HTTP/1.1 400 Bad Request\r\n", false).await;
    let outcome = admin(vec![endpoint], tls.clone()).describe_cluster().await;
    assert_eq!(failure(outcome), TlsFailure::NotTls);

    let (endpoint, _plain_kafka) = says(b"", true).await;
    let error = admin(vec![endpoint], tls).describe_cluster().await.unwrap_err();
    assert!(error.to_string().ends_with("is this a TLS listener?"), "{error}");
}

#[tokio::test]
async fn silence_in_the_handshake_ends_at_the_connect_timeout() {
    let short = Duration::from_millis(300);
    let (endpoint, _silent) = says(b"", false).await;
    let security = Security::Tls(Authority::new("cluster").trusted(None));
    let admin = Admin::new(
        Bootstrap::Brokers(vec![endpoint]),
        ClientConfig { connect_timeout: short, security, ..config(PATIENT) },
    );
    let error = admin.describe_cluster().await.unwrap_err();
    assert!(
        matches!(error, Error::Timeout { waiting_for: Waiting::ToConnect, after, .. } if after == short),
        "{error}"
    );
}

#[tokio::test]
async fn a_node_with_a_bad_certificate_does_not_hide_one_with_a_good_one() {
    let authority = Authority::new("cluster");
    let expired = authority.issue_for_years(HERE, 2000, 2001);
    let bad = Node::start_tls(acceptor(&expired, None, BOTH_TLS), good).await;
    let fine = Node::start_tls(acceptor(&authority.issue(HERE), None, BOTH_TLS), good).await;
    let endpoints = vec![bad.endpoint.clone(), fine.endpoint.clone()];
    admin(endpoints, authority.trusted(None)).describe_cluster().await.unwrap();
}

#[test]
fn trust_that_cannot_be_read_is_refused_as_a_whole() {
    let complaint = |pem: &str| match TlsConfig::new(pem.as_bytes(), None) {
        Err(InvalidTls::Trust(complaint)) => complaint,
        other => panic!("{other:?}"),
    };
    let authority = Authority::new("cluster");
    assert_eq!(complaint(""), "there is no certificate in the PEM");
    assert_eq!(complaint(&authority.issue(HERE).key), "there is no certificate in the PEM");
    let not_a_certificate = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let second_is_bad = complaint(&format!("{}{not_a_certificate}", authority.pem()));
    assert!(second_is_bad.starts_with("certificate 2 of them"), "{second_is_bad}");
    let cut_short = &authority.pem()[..200];
    assert!(complaint(cut_short).contains("the PEM is damaged"), "{}", complaint(cut_short));
}

#[test]
fn an_identity_must_be_a_certificate_and_its_own_key() {
    let authority = Authority::new("cluster");
    let (mine, other) = (authority.issue_of_kind(ECDSA), authority.issue_of_kind(ECDSA));
    let outcome = |chain: &str, key: &str| {
        let identity = Identity { chain_pem: chain.as_bytes(), key_pem: key.as_bytes() };
        TlsConfig::new(authority.pem().as_bytes(), Some(identity)).map(drop)
    };
    assert_eq!(outcome(&mine.chain, &mine.key), Ok(()));
    assert!(matches!(outcome("", &mine.key), Err(InvalidTls::Chain(_))));
    assert!(matches!(outcome(&mine.chain, ""), Err(InvalidTls::Key(_))));
    assert_eq!(
        outcome(&mine.chain, &other.key).unwrap_err().to_string(),
        "the client's private key cannot be used: it does not belong to the certificate"
    );
    let locked = mine.key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
    assert!(outcome(&mine.chain, &locked).unwrap_err().to_string().contains("no unencrypted private key"));
    let not_a_certificate = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    assert!(matches!(outcome(not_a_certificate, &mine.key), Err(InvalidTls::Chain(_))));
}

#[test]
fn what_is_secret_is_not_printed() {
    let authority = Authority::new("cluster");
    let issued = authority.issue_of_kind(ECDSA);
    let secret = issued.key.lines().nth(1).unwrap();
    let text = format!("{:?} {:?}", issued.identity(), authority.trusted(Some(&issued)));
    assert!(!text.contains(secret) && text.len() < 200, "{text}");
}
