//! A node in a temporary directory, run by the real launcher with a shell script in the place of Java.

pub(crate) mod controller;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};
use tempfile::TempDir;

pub(crate) const CLUSTER_ID: &str = "-luster-id";
pub(crate) const DIRECTORY_ID: &str = "r9VGTiw2QUCoDUadCt6q2g";

const FAKE_JAVA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/java");

/// Long enough for a crowded machine, short enough to fail a broken launcher.
const PATIENCE: Duration = Duration::from_secs(30);

/// Controller 3, the only initial one, with one data directory.
pub(crate) struct TestNode {
    dir: TempDir,
}

impl TestNode {
    /// `java` is what the script does. It finds the class to run in `$class`, a working directory in `$dir`, the data
    /// directory in `$data`, and can call `format_storage`.
    pub(crate) fn new(java: &str) -> Self {
        let node = Self { dir: tempfile::tempdir().unwrap() };
        fs::create_dir(node.path("config")).unwrap();
        fs::create_dir(node.path("data")).unwrap();
        fs::create_dir_all(node.path("kafka/libs")).unwrap();
        node.write("kafka/libs/kafka.jar", "");
        let server = format!(
            "node.id=3\nprocess.roles=controller\nlog.dirs={}\ncontroller.listener.names=C\n\
             listeners=C://127.0.0.1:1\nlistener.security.protocol.map=C:PLAINTEXT\n",
            node.data().display()
        );
        node.write("config/server.config", &server);
        node.write("config/cluster.id", CLUSTER_ID);
        node.write("config/metadata.version", "4.1-IV1");
        node.write("config/storage.format", "initial");
        node.write("config/empty.disk", "new");
        node.write("config/initial.controllers", &format!("3@localhost:1:{DIRECTORY_ID}"));
        node.write("config/jvm.options", "-Xmx64m\n");
        node.write("config/log4j2.properties", "");
        // A link to a script that is never written to: one that was just written cannot be run while another test, on
        // another thread, is between its fork and its exec.
        symlink(FAKE_JAVA, node.path("java")).unwrap();
        node.write("behaviour.sh", java);
        node
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.path("data/kafka-log3")
    }

    pub(crate) fn write(&self, name: &str, content: &str) {
        fs::write(self.path(name), content).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Tells the node where controllers are.
    pub(crate) fn with_controllers(self, addresses: &str) -> Self {
        let line = format!("controller.quorum.bootstrap.servers={addresses}\n");
        self.write("config/server.config", &(self.read("config/server.config") + &line));
        self
    }

    /// A second volume, with records of a topic on it. The metadata stays on the first.
    pub(crate) fn add_used_volume(&self) -> PathBuf {
        let (data, used) = (self.data(), self.path("used/kafka-log3"));
        fs::create_dir_all(used.join("orders-0")).unwrap();
        let meta =
            format!("version=1\ncluster.id={CLUSTER_ID}\nnode.id=3\ndirectory.id=Anjr8banTey_LqVZsppzYg\n");
        fs::write(used.join("meta.properties"), meta).unwrap();
        let (data, used_dir) = (data.display(), used.display());
        let lines = format!("log.dirs={data},{used_dir}\nmetadata.log.dir={data}");
        let config = self.read("config/server.config").replace(&format!("log.dirs={data}"), &lines);
        self.write("config/server.config", &config);
        used
    }

    /// Marks the data directory as formatted.
    pub(crate) fn formatted_for(self, cluster: &str, node: i32) -> Self {
        fs::create_dir(self.data()).unwrap();
        let meta = format!("version=1\ncluster.id={cluster}\nnode.id={node}\ndirectory.id={DIRECTORY_ID}\n");
        fs::write(self.data().join("meta.properties"), meta).unwrap();
        self
    }

    pub(crate) fn formatted(self) -> Self {
        self.formatted_for(CLUSTER_ID, 3)
    }

    /// A pipe on which the script can wait for [`TestNode::release`].
    pub(crate) fn with_pipe(self, name: &str) -> Self {
        mkfifo(&self.path(name), Mode::S_IRWXU).unwrap();
        self
    }

    /// Lets go a script that reads from this pipe.
    pub(crate) fn release(&self, pipe: &str) {
        File::options().write(true).open(self.path(pipe)).unwrap().write_all(b"go\n").unwrap();
    }

    /// How Java was called, one line each time.
    pub(crate) fn java_calls(&self) -> Vec<String> {
        self.read("calls").lines().map(str::to_owned).collect()
    }

    pub(crate) fn launch(&self) -> Launched<'_> {
        self.launch_with(|command| command)
    }

    /// The launcher, with more on its command line or around it.
    pub(crate) fn launch_with(&self, add: impl FnOnce(&mut Command) -> &mut Command) -> Launched<'_> {
        let output = File::create(self.path("output")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_karst-node"));
        command
            .args(["run", "--http", "127.0.0.1:0"])
            .arg("--config-dir")
            .arg(self.path("config"))
            .arg("--work-dir")
            .arg(self.path("work"))
            .arg("--java")
            .arg(self.path("java"))
            .arg("--kafka-home")
            .arg(self.path("kafka"))
            .stdout(output.try_clone().unwrap())
            .stderr(output);
        add(&mut command);
        Launched { node: self, child: command.spawn().unwrap() }
    }

    /// Runs the launcher to its end; its exit code and all that was printed.
    pub(crate) fn run(&self) -> (i32, String) {
        self.run_with(&[])
    }

    /// The same, with more arguments.
    pub(crate) fn run_with(&self, arguments: &[&str]) -> (i32, String) {
        let mut launched = self.launch_with(|command| command.args(arguments));
        (launched.exit_code(), self.read("output"))
    }
}

/// A launcher that runs.
pub(crate) struct Launched<'a> {
    node: &'a TestNode,
    child: Child,
}

impl Launched<'_> {
    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).unwrap();
    }

    pub(crate) fn exit_code(&mut self) -> i32 {
        let mut status = None;
        eventually("the launcher ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap().code().expect("the launcher exits and is not killed")
    }

    pub(crate) fn await_file(&self, name: &str) {
        eventually(&format!("{name} appears"), || self.node.path(name).exists());
    }

    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        self.request("GET", path)
    }

    /// Status and body.
    pub(crate) fn request(&self, method: &str, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.http_address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "{method} {path} HTTP/1.1\r\nHost: node\r\n\r\n").unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        let (head, body) = response.split_once("\r\n\r\n").expect("a whole response");
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
        (status, body.trim_end().to_owned())
    }

    fn http_address(&self) -> String {
        let mut address = None;
        eventually("the launcher tells its address", || {
            let output = self.node.read("output");
            address = output
                .split_once("answering probes on ")
                .and_then(|(_, rest)| rest.split_once('\n'))
                .map(|(address, _)| address.to_owned());
            address.is_some()
        });
        address.unwrap()
    }
}

impl Drop for Launched<'_> {
    fn drop(&mut self) {
        // Only a test that failed leaves a launcher behind.
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Waits for a condition, and fails by its name.
#[track_caller]
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The parent of a process, as the kernel tells it; `None` when the process is gone for good.
pub(crate) fn parent_of(pid: i32) -> Option<i32> {
    let status = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}
