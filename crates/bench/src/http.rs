//! One request to the operator's own small HTTP server.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Status and body of a GET. Every request has its own connection, so a server that just started is found at once.
pub(crate) async fn get(address: SocketAddr, path: &str) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    parse(&answer).ok_or_else(|| io::Error::new(ErrorKind::InvalidData, "the answer is not HTTP"))
}

fn parse(answer: &str) -> Option<(u16, String)> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, body.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_and_body_are_told_apart() {
        let answer = "HTTP/1.0 503 Service Unavailable\r\ncontent-length: 5\r\n\r\nwait\n";
        assert_eq!(parse(answer), Some((503, "wait\n".to_owned())));
        assert_eq!(parse("HTTP/1.0 200 OK\r\n"), None);
    }
}
