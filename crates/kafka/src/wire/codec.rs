//! Requests to bytes, bytes to responses.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use kafka_protocol::messages::{RequestHeader, ResponseHeader};
use kafka_protocol::protocol::{Decodable as _, Encodable as _, HeaderVersion as _, Request, StrBytes};

use super::guard::Guarded;

/// A complete frame, ready to be written.
pub(crate) fn encode_request<R: Request>(
    request: &R,
    version: i16,
    correlation_id: i32,
    client_id: &str,
) -> Result<Bytes, String> {
    let header = RequestHeader::default()
        .with_request_api_key(R::KEY)
        .with_request_api_version(version)
        .with_correlation_id(correlation_id)
        .with_client_id(Some(StrBytes::from_string(client_id.to_owned())));
    let mut frame = BytesMut::new();
    frame.put_i32(0);
    header.encode(&mut frame, R::header_version(version)).map_err(|error| error.to_string())?;
    request.encode(&mut frame, version).map_err(|error| error.to_string())?;
    let length =
        i32::try_from(frame.len() - 4).map_err(|_| "the request is too long for a frame".to_owned())?;
    frame[..4].copy_from_slice(&length.to_be_bytes());
    Ok(frame.freeze())
}

/// Reads one message, header included, and insists that it answers `correlation_id` and ends where it should.
///
/// `version` must be a flexible one: only there are all counts checked before memory is reserved for them.
pub(crate) fn decode_response<R: Request>(
    message: Bytes,
    version: i16,
    correlation_id: i32,
) -> Result<R::Response, String> {
    let mut message = Guarded::new(message);
    let header = ResponseHeader::decode(&mut message, R::Response::header_version(version))
        .map_err(|error| format!("its header cannot be read ({error})"))?;
    if header.correlation_id != correlation_id {
        return Err(format!("it answers request {}, asked was {correlation_id}", header.correlation_id));
    }
    let response =
        R::Response::decode(&mut message, version).map_err(|error| match message.has_too_much() {
            true => "it has millions of parts, more than any cluster has".to_owned(),
            false => format!("version {version} of it cannot be read ({error})"),
        })?;
    match message.remaining() {
        0 => Ok(response),
        left => Err(format!("{left} bytes are left over after version {version} of it")),
    }
}
