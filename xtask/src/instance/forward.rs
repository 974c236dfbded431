//! The way in from outside: a port on the machine's loopback that leads to the API server.
//!
//! A socket belongs to the network namespace in which it was made. So the listening socket is made
//! outside and handed, as standard input, to a process that runs inside: it accepts connections of the
//! one side and opens connections on the other.

use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use super::{Instance, configuration};

/// Listens on the port that the instance had before, or on any free one.
pub(crate) fn listen(instance: &Instance) -> Result<TcpListener> {
    let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let before = remembered_port(instance).map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    let listener = match before.map(TcpListener::bind) {
        Some(Ok(listener)) => listener,
        _ => TcpListener::bind(free).context("no port of the loopback can be opened")?,
    };
    let port = listener.local_addr()?.port();
    std::fs::write(port_file(instance), port.to_string())?;
    Ok(listener)
}

/// Writes the kubeconfig for the user of this machine: the administrator's, with the door's address.
pub(crate) fn write_kubeconfig(instance: &Instance, listener: &TcpListener) -> Result<()> {
    let inside = std::fs::read_to_string(instance.inside_kubeconfig())?;
    let outside = inside.replace(&server(configuration::API_PORT), &server(listener.local_addr()?.port()));
    let path = instance.kubeconfig();
    std::fs::write(&path, outside).with_context(|| format!("writing {}", path.display()))?;
    restrict(&path)
}

/// The API server's address, seen through the given port of a loopback.
pub(crate) fn server(port: u16) -> String {
    format!("https://127.0.0.1:{port}")
}

/// Serves the door. Runs inside the namespaces, with the listening socket as standard input.
pub(crate) fn serve() -> Result<()> {
    let listener = TcpListener::from(io::stdin().as_fd().try_clone_to_owned()?);
    let target = SocketAddr::from((Ipv4Addr::LOCALHOST, configuration::API_PORT));
    loop {
        match listener.accept() {
            Ok((outside, _)) => {
                thread::spawn(move || relay(outside, target));
            }
            // Out of file handles, or a client that left at once: neither is a reason to close the door.
            Err(_) => thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// Carries one connection. When the other side cannot be reached the client sees its connection end.
fn relay(outside: TcpStream, target: SocketAddr) {
    let Ok(inside) = TcpStream::connect(target) else { return };
    let (Ok(outside_too), Ok(inside_too)) = (outside.try_clone(), inside.try_clone()) else { return };
    let answers = thread::spawn(move || copy(inside_too, outside_too));
    copy(outside, inside);
    // The thread ends with its connection, and has nothing to tell.
    let _ = answers.join();
}

fn copy(mut from: TcpStream, mut to: TcpStream) {
    // An error ends the connection like an end of stream does; both sides notice.
    let _ = io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}

fn remembered_port(instance: &Instance) -> Option<u16> {
    std::fs::read_to_string(port_file(instance)).ok()?.trim().parse().ok()
}

fn port_file(instance: &Instance) -> PathBuf {
    instance.state().join("port")
}

/// The kubeconfig holds an administrator's key.
fn restrict(path: &std::path::Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn bytes_pass_in_both_directions_and_so_does_the_end() {
        let target = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = target.local_addr().unwrap();
        let echo = thread::spawn(move || {
            let (mut stream, _) = target.accept().unwrap();
            let mut question = String::new();
            stream.read_to_string(&mut question).unwrap();
            write!(stream, "you said {question}").unwrap();
        });

        let door = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(door.local_addr().unwrap()).unwrap();
        let (accepted, _) = door.accept().unwrap();
        let relayed = thread::spawn(move || relay(accepted, address));

        client.write_all(b"hello").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "you said hello");
        echo.join().unwrap();
        relayed.join().unwrap();
    }
}
