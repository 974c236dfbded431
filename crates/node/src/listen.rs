//! Where probes come in.
//!
//! The kubelet asks a pod at its first address, and in a cluster of IPv6 alone that is one of IPv6. So the launcher listens for
//! both, whatever the kernel would do by itself, and for IPv4 alone where there is no IPv6.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener as StdListener};

use socket2::{Domain, Socket, Type};
use tokio::net::TcpListener;
use tracing::info;

/// So many connections may wait to be accepted.
const BACKLOG: i32 = 128;

pub(crate) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = if address.ip() == Ipv6Addr::UNSPECIFIED {
        everywhere(address.port(), dual_stack)?
    } else {
        StdListener::bind(address)?
    };
    listener.set_nonblocking(true)?;
    info!("answering probes on {}", listener.local_addr()?);
    TcpListener::from_std(listener)
}

/// A kernel without IPv6 has no such socket, or no such address.
fn everywhere(port: u16, dual_stack: impl FnOnce(u16) -> io::Result<StdListener>) -> io::Result<StdListener> {
    dual_stack(port).or_else(|error| {
        info!("IPv6 cannot be listened on ({error}); listening on IPv4 alone");
        StdListener::bind((Ipv4Addr::UNSPECIFIED, port))
    })
}

fn dual_stack(port: u16) -> io::Result<StdListener> {
    let socket = Socket::new(Domain::IPV6, Type::STREAM, None)?;
    // Where the kernel is told to keep the two apart, probes over IPv4 would find nobody.
    socket.set_only_v6(false)?;
    socket.set_reuse_address(true)?;
    socket.bind(&SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)).into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::net::{IpAddr, TcpStream};

    use super::*;

    const ANYWHERE: SocketAddr = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0);

    fn reaches(listener: &TcpListener, host: IpAddr) -> bool {
        TcpStream::connect((host, listener.local_addr().unwrap().port())).is_ok()
    }

    #[tokio::test]
    async fn probes_come_in_over_ipv4_and_over_ipv6_where_it_is() {
        let listener = listen(ANYWHERE).unwrap();
        assert!(reaches(&listener, Ipv4Addr::LOCALHOST.into()));
        let has_ipv6 = StdListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok();
        assert_eq!(reaches(&listener, Ipv6Addr::LOCALHOST.into()), has_ipv6);
    }

    #[tokio::test]
    async fn a_kernel_without_ipv6_is_listened_to_over_ipv4() {
        let none = |_| Err(ErrorKind::AddrNotAvailable.into());
        let listener = everywhere(0, none).unwrap();
        assert_eq!(listener.local_addr().unwrap().ip(), Ipv4Addr::UNSPECIFIED);
        assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, listener.local_addr().unwrap().port())).is_ok());
    }

    #[tokio::test]
    async fn a_port_that_is_taken_is_an_error() {
        let first = listen(ANYWHERE).unwrap();
        let again = SocketAddr::new(ANYWHERE.ip(), first.local_addr().unwrap().port());
        assert_eq!(listen(again).unwrap_err().kind(), ErrorKind::AddrInUse);
    }
}
