//! A network of our own, in which the names of pods lead to us. No pod runs here; what the operator connects to is `kafka.rs`.
//!
//! The operator is the one that is shipped, and asks the system's resolver. So whatever needs names of pods is run once more, in a
//! network and a mount namespace that end with it, where `/etc/resolv.conf` names a server of ours.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result, bail};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

/// Set where names of pods lead to us.
const INSIDE: &str = "KARST_BENCH_INSIDE";
const SCRIPT: &str = r#"
ip link set lo up
target=$(readlink -m /etc/resolv.conf)
settings=$(mktemp)
printf 'nameserver 127.0.0.1\noptions ndots:1\n' >"$settings"
mount --bind "$settings" "$target"
rm "$settings"
exec "$@"
"#;
const DNS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 53);

/// Becomes the same program in a network of its own, unless it is there already.
pub(crate) fn enter() -> Result<()> {
    if std::env::var_os(INSIDE).is_some() {
        return Ok(());
    }
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command
        .args(["--net", "--mount", "--propagation", "slave", "sh", "-euc", SCRIPT, "sh"])
        .arg(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .env(INSIDE, "1");
    let failed = command.exec();
    Err(failed).context("no network of our own: unshare (of util-linux) cannot be run")
}

/// Allows as many open files as the system lets us: each connection of the operator is one of ours too. Not before the operator was
/// started, which would inherit what it should see to by itself.
pub(crate) fn allow_connections() {
    let limit = getrlimit(Resource::Nofile);
    // Where that is refused, the number of connections in the report tells.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Answers questions for names until dropped.
#[derive(Debug)]
pub(crate) struct Names(JoinHandle<()>);

impl Names {
    pub(crate) async fn serve() -> Result<Self> {
        if std::env::var_os(INSIDE).is_none() {
            bail!("names of pods lead nowhere in this network");
        }
        let socket = UdpSocket::bind(DNS).await.context("a name server cannot listen")?;
        Ok(Self(tokio::spawn(answer_all(socket))))
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn answer_all(socket: UdpSocket) {
    let mut question = [0; 512];
    loop {
        let received: io::Result<_> = socket.recv_from(&mut question).await;
        let Ok((length, from)) = received else { continue };
        if let Some(answer) = answer(&question[..length]) {
            // Whoever does not hear it asks again.
            let _ = socket.send_to(&answer, from).await;
        }
    }
}

const HEADER: usize = 12;
/// A name of a service's pod has this before the end.
const SERVICES: &[u8] = b"\x03svc\x07cluster\x05local\x00";
const TYPE_A: [u8; 2] = [0, 1];
const NO_SUCH_NAME: u8 = 3;

/// One question, answered: every name of a service or pod is that of this machine, which has no other address than one of IPv4.
fn answer(question: &[u8]) -> Option<Vec<u8>> {
    let name_ends = HEADER + question.get(HEADER..)?.iter().position(|byte| *byte == 0)? + 1;
    let (name, kind) = (&question[HEADER..name_ends], question.get(name_ends..name_ends + 2)?);
    let asked = question.get(HEADER..name_ends + 4)?;
    let is_known = name.ends_with(SERVICES);
    let is_answered = is_known && kind == TYPE_A;
    let code = if is_known { 0 } else { NO_SUCH_NAME };
    let mut answer = question[..2].to_vec();
    // An answer, with authority; one question, and perhaps one record.
    answer.extend([0x84, code, 0, 1, 0, u8::from(is_answered), 0, 0, 0, 0]);
    answer.extend(asked);
    if is_answered {
        // The name that was asked for, an address, for a minute.
        answer.extend([0xc0, 0x0c, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
        answer.extend(Ipv4Addr::LOCALHOST.octets());
    }
    Some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(labels: &[&str], kind: u8) -> Vec<u8> {
        let mut question = vec![7, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in labels {
            question.push(u8::try_from(label.len()).unwrap());
            question.extend(label.as_bytes());
        }
        question.extend([0, 0, kind, 0, 1]);
        question
    }

    #[test]
    fn pods_are_here_and_nobody_else_is_anywhere() {
        let pod = ["c-brokers-0", "c-kafka-brokers", "bench", "svc", "cluster", "local"];
        let found = answer(&question(&pod, 1)).unwrap();
        assert_eq!((found[0], found[1], found[3], found[7]), (7, 9, 0, 1));
        assert!(found.ends_with(&[127, 0, 0, 1]));
        let no_address = answer(&question(&pod, 28)).unwrap();
        assert_eq!((no_address[3], no_address[7]), (0, 0));
        let unknown = answer(&question(&["example", "com"], 1)).unwrap();
        assert_eq!((unknown[3], unknown[7]), (NO_SUCH_NAME, 0));
        assert_eq!(answer(&[0; 11]), None);
        assert_eq!(answer(&question(&pod, 1)[..40]), None);
    }
}
