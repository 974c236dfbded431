//! The connection to the API server: one that notices when nobody is at the other end any more.
//!
//! What to try again, and when, is decided by who asks. A client that retries by itself hides for minutes that the API server does
//! not answer.

use std::time::Duration;

use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::{ClientBuilder, ConfigExt};
use kube::{Client, Config};
use tower::util::MapResponseLayer;
use tower::{BoxError, ServiceBuilder};

use crate::clock;

/// After this much silence the kernel asks the other end whether it is still there, …
const KEEPALIVE: Duration = Duration::from_secs(15);
/// … this often, …
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// … and gives up after so many questions without an answer.
const KEEPALIVE_RETRIES: u32 = 3;
/// What was sent and is not acknowledged within this time is lost.
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);
/// A connection that is read from is given up when nothing arrives for this long. Longer than any watch lasts: a watch ends by itself.
pub(crate) const SILENCE: Duration = Duration::from_secs(330);

/// How every call and every watch reaches the API server.
pub(crate) fn client(config: Config) -> anyhow::Result<Client> {
    let config = with_limits(config);
    if config.proxy_url.is_some() {
        // kube says what it can do about it.
        return Ok(ClientBuilder::try_from(config)?
            .with_layer(&MapResponseLayer::new(clock::listen))
            .build());
    }
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_keepalive(Some(KEEPALIVE));
    tcp.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
    tcp.set_keepalive_retries(Some(KEEPALIVE_RETRIES));
    #[cfg(target_os = "linux")]
    tcp.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
    let mut connector = TimeoutConnector::new(config.rustls_https_connector_with_connector(tcp)?);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    connector.set_reset_reader_on_write(config.reset_reader_on_write);
    let service = ServiceBuilder::new()
        .map_response(clock::listen)
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(legacy::Client::builder(TokioExecutor::new()).build(connector));
    Ok(Client::new(service, config.default_namespace))
}

fn with_limits(mut config: Config) -> Config {
    config.default_retry = false;
    config.read_timeout = Some(SILENCE);
    config.reset_reader_on_write = true;
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_hides_nothing_and_waits_for_nothing_without_end() {
        let config = with_limits(Config::new("https://kubernetes.default.svc".parse().unwrap()));
        assert!(!config.default_retry && config.reset_reader_on_write);
        assert_eq!(config.read_timeout, Some(SILENCE));
        let longest = crate::watch::LASTS.max(crate::references::LASTS);
        assert!(SILENCE > longest + crate::watch::MARGIN, "a watch ends by itself");
    }
}
