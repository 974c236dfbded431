//! One connection to one node: which versions it speaks, and one question at a time.

use std::collections::BTreeMap;
use std::io;

use bytes::{Buf as _, Bytes};
use kafka_protocol::messages::ApiVersionsResponse;
use kafka_protocol::protocol::Request;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use crate::calls::{ApiVersionsCall, Call};
use crate::deadline::Deadline;
use crate::error::{Api, Error, Versions, Waiting};
use crate::wire::{FrameError, decode_response, encode_request, read_frame};
use crate::{ClientConfig, Endpoint, ErrorCode, Security};

const FIRST_CORRELATION_ID: i32 = 1;
/// No API has such a number.
const MOST_APIS: i16 = 1000;

/// What bytes travel over. Anything ordered and reliable will do.
pub(crate) trait Transport: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Transport for T {}

/// An open connection whose versions are agreed.
///
/// A connection is good for the next question only if the last one was answered: whoever sees an error from
/// [`Connection::ask`] must drop it, and so must whoever gives up waiting.
pub(crate) struct Connection {
    endpoint: Endpoint,
    client_id: String,
    security: Security,
    transport: Box<dyn Transport>,
    last_correlation_id: i32,
    offered: BTreeMap<i16, Versions>,
    last_used: Instant,
}

impl Connection {
    /// Connects, secures and negotiates, all before `deadline`.
    pub(crate) async fn open(
        endpoint: &Endpoint,
        config: &ClientConfig,
        deadline: Deadline,
    ) -> Result<Self, Error> {
        let transport = timeout_at(deadline.at, connect(endpoint, &config.security))
            .await
            .map_err(|_| timed_out(endpoint, Waiting::ToConnect, deadline))??;
        Self::negotiate(endpoint, transport, config, deadline).await
    }

    async fn negotiate(
        endpoint: &Endpoint,
        transport: Box<dyn Transport>,
        config: &ClientConfig,
        deadline: Deadline,
    ) -> Result<Self, Error> {
        let mut connection = Self {
            endpoint: endpoint.clone(),
            client_id: config.client_id.clone(),
            security: config.security.clone(),
            transport,
            last_correlation_id: FIRST_CORRELATION_ID - 1,
            offered: BTreeMap::new(),
            last_used: Instant::now(),
        };
        let answer = connection.ask_for_versions(ApiVersionsCall::VERSIONS.max, deadline).await?;
        if let Some(code) = ErrorCode::from_code(answer.error_code) {
            return Err(Error::Kafka {
                endpoint: endpoint.clone(),
                api: Api::ApiVersions,
                code,
                message: None,
            });
        }
        connection.offered = offered(&answer);
        tracing::debug!(%endpoint, apis = connection.offered.len(), "connected to Kafka");
        Ok(connection)
    }

    /// Asks in `version`, and once more in an older one if the node does not know that version.
    ///
    /// A node that does not know the version cannot answer in it, so it answers in version 0, and names the versions that
    /// it has (KIP-511). Very old ones do not name them.
    async fn ask_for_versions(
        &mut self,
        version: i16,
        deadline: Deadline,
    ) -> Result<ApiVersionsResponse, Error> {
        let frame = self.exchange::<ApiVersionsCall>(&ApiVersionsCall, version, deadline).await?;
        if !says_unsupported_version(&frame) {
            return self.decode::<ApiVersionsCall>(frame, version);
        }
        let refusal = self.decode_oldest_versions(&frame)?;
        let agreed = offered(&refusal)
            .get(&<<ApiVersionsCall as Call>::Request as Request>::KEY)
            .and_then(|theirs| theirs.highest_common(ApiVersionsCall::VERSIONS));
        match agreed.filter(|&agreed| agreed < version) {
            Some(agreed) => {
                let frame = self.exchange::<ApiVersionsCall>(&ApiVersionsCall, agreed, deadline).await?;
                self.decode::<ApiVersionsCall>(frame, agreed)
            }
            None => {
                let frame = self.exchange::<ApiVersionsCall>(&ApiVersionsCall, 0, deadline).await?;
                self.decode_oldest_versions(&frame)
            }
        }
    }

    /// Asks one question in the highest version that both sides have, and returns the answer with its version.
    pub(crate) async fn ask<C: Call>(
        &mut self,
        call: &C,
        deadline: Deadline,
    ) -> Result<(i16, <C::Request as Request>::Response), Error> {
        let version = self.version_for::<C>()?;
        let frame = self.exchange(call, version, deadline).await?;
        self.last_used = Instant::now();
        Ok((version, self.decode::<C>(frame, version)?))
    }

    /// When it last brought an answer.
    pub(crate) fn last_used(&self) -> Instant {
        self.last_used
    }

    /// The version in which `C` would be asked here.
    pub(crate) fn version_for<C: Call>(&self) -> Result<i16, Error> {
        let theirs = self.offered.get(&C::Request::KEY).copied();
        theirs.and_then(|theirs| theirs.highest_common(C::VERSIONS)).ok_or_else(|| Error::Unsupported {
            endpoint: self.endpoint.clone(),
            api: C::API,
            ours: C::VERSIONS,
            theirs,
        })
    }

    async fn exchange<C: Call>(
        &mut self,
        call: &C,
        version: i16,
        deadline: Deadline,
    ) -> Result<Bytes, Error> {
        self.last_correlation_id = self.last_correlation_id.wrapping_add(1);
        let request = call.request(version, deadline.left());
        let frame = encode_request(&request, version, self.last_correlation_id, &self.client_id).map_err(
            |detail| self.protocol_error(C::API, format!("the question cannot be written: {detail}")),
        )?;
        timeout_at(deadline.at, write_then_read(&mut self.transport, &frame, C::LARGEST))
            .await
            .map_err(|_| timed_out(&self.endpoint, Waiting::ForAnswer(C::API), deadline))?
            .map_err(|error| match error {
                FrameError::Lost(reason) => self.lost(C::API, reason),
                FrameError::Malformed(detail) => self.protocol_error(C::API, detail),
            })
    }

    fn decode<C: Call>(
        &self,
        frame: Bytes,
        version: i16,
    ) -> Result<<C::Request as Request>::Response, Error> {
        decode_response::<C::Request>(frame, version, self.last_correlation_id)
            .map_err(|detail| self.protocol_error(C::API, detail))
    }

    /// Version 0 of ApiVersions is the one message with fixed-size counts that is ever read: its count is checked here, as
    /// the guard in front of the decoder checks varints only.
    fn decode_oldest_versions(&self, frame: &Bytes) -> Result<ApiVersionsResponse, Error> {
        const BEFORE_ELEMENTS: usize = 10;
        const ELEMENT: usize = 6;
        let announced = frame.get(6..BEFORE_ELEMENTS).map(|mut count| count.get_i32());
        let present = frame.len().saturating_sub(BEFORE_ELEMENTS) / ELEMENT;
        match announced {
            Some(count) if usize::try_from(count) == Ok(present) => {
                self.decode::<ApiVersionsCall>(frame.clone(), 0)
            }
            _ => Err(self.protocol_error(
                Api::ApiVersions,
                format!("it announces {announced:?} APIs, there are bytes for {present}"),
            )),
        }
    }

    fn lost(&self, api: Api, reason: io::Error) -> Error {
        let endpoint = self.endpoint.clone();
        match &self.security {
            Security::Tls(tls) if self.last_correlation_id == FIRST_CORRELATION_ID => {
                Error::Tls { endpoint, reason: tls.why_no_first_answer(&reason) }
            }
            Security::Tls(_) | Security::Plaintext => Error::Disconnected { endpoint, api, reason },
        }
    }

    fn protocol_error(&self, api: Api, detail: String) -> Error {
        Error::Protocol { endpoint: self.endpoint.clone(), api, detail }
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

async fn connect(endpoint: &Endpoint, security: &Security) -> Result<Box<dyn Transport>, Error> {
    let stream = open_stream(endpoint)
        .await
        .map_err(|reason| Error::Connect { endpoint: endpoint.clone(), reason })?;
    match security {
        Security::Plaintext => Ok(Box::new(stream)),
        Security::Tls(tls) => match tls.secure(endpoint, stream).await {
            Ok(secured) => Ok(Box::new(secured)),
            Err(reason) => Err(Error::Tls { endpoint: endpoint.clone(), reason }),
        },
    }
}

async fn open_stream(endpoint: &Endpoint) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((endpoint.host.as_str(), endpoint.port)).await?;
    // One small question at a time: waiting to fill a packet would only delay it.
    stream.set_nodelay(true)?;
    Ok(stream)
}

async fn write_then_read<S: Transport>(
    stream: &mut S,
    request: &Bytes,
    largest: usize,
) -> Result<Bytes, FrameError> {
    stream.write_all(request).await.map_err(FrameError::Lost)?;
    stream.flush().await.map_err(FrameError::Lost)?;
    read_frame(stream, largest).await
}

/// The error code stands at the same place in every version, after the correlation id.
fn says_unsupported_version(frame: &Bytes) -> bool {
    frame
        .get(4..6)
        .is_some_and(|mut code| ErrorCode::from_code(code.get_i16()) == Some(ErrorCode::UnsupportedVersion))
}

fn offered(answer: &ApiVersionsResponse) -> BTreeMap<i16, Versions> {
    // They are kept for as long as the connection, and Kafka has less than a hundred.
    let known = answer.api_keys.iter().filter(|api| (0..MOST_APIS).contains(&api.api_key));
    known.map(|api| (api.api_key, Versions::new(api.min_version, api.max_version))).collect()
}

pub(crate) fn timed_out(endpoint: &Endpoint, waiting_for: Waiting, deadline: Deadline) -> Error {
    Error::Timeout { endpoint: endpoint.clone(), waiting_for, after: deadline.allowed }
}
