use super::*;

pub(crate) const DIRECTORY_3: &str = "r9VGTiw2QUCoDUadCt6q2g";
pub(crate) const DIRECTORY_4: &str = "-8E7BKRbR0SQxSIFro6wjg";

pub(crate) fn initial_controllers() -> String {
    format!("3@c-3.example:9090:{DIRECTORY_3},4@c-4.example:9090:{DIRECTORY_4}")
}

/// A whole set of files, as the operator would mount them for controller 3 of a new cluster.
pub(crate) fn controller_files() -> ConfigFiles {
    let server = "node.id=3\nprocess.roles=controller\n\
                  log.dirs=/var/lib/kafka/data/kafka-log3\nmetadata.log.dir=/var/lib/kafka/data/kafka-log3\n\
                  controller.listener.names=CONTROLPLANE-9090\nlisteners=CONTROLPLANE-9090://0.0.0.0:9090\n\
                  listener.security.protocol.map=CONTROLPLANE-9090:PLAINTEXT\n";
    let mut files = ConfigFiles::default();
    for (name, content) in [
        (file::SERVER_CONFIG, server),
        (file::CLUSTER_ID, "-luster-id\n"),
        (file::METADATA_VERSION, "4.1-IV1"),
        (file::STORAGE_FORMAT, "initial"),
        (file::INITIAL_CONTROLLERS, &initial_controllers()),
        (file::JVM_OPTIONS, "-Xms1g\n\n# a comment\n  -Xmx1g\n-Dx=a b\n"),
        (file::LOG4J2, "rootLogger.level=INFO"),
    ] {
        files.0.insert(name, content.into());
    }
    files
}

fn with(name: &'static str, content: &str) -> ConfigFiles {
    let mut files = controller_files();
    files.0.insert(name, content.into());
    files
}

/// The same node with lines added to its `server.config`; the last of two equal keys wins.
pub(crate) fn with_server_lines(lines: &str) -> ConfigFiles {
    let mut files = controller_files();
    if let Some(server) = files.0.get_mut(file::SERVER_CONFIG) {
        server.extend_from_slice(lines.as_bytes());
    }
    files
}

#[track_caller]
fn error_of(files: &ConfigFiles) -> String {
    NodeConfig::parse(files).unwrap_err().to_string()
}

#[test]
fn the_files_of_a_controller_are_understood() {
    let config = NodeConfig::parse(&controller_files()).unwrap();
    assert_eq!(config.node_id, NodeId(3));
    assert_eq!(config.role, Role::Controller);
    assert_eq!(config.cluster_id.as_deref(), Some("-luster-id"));
    assert_eq!(config.metadata_version, "4.1-IV1");
    assert_eq!(config.jvm_options, ["-Xms1g", "-Xmx1g", "-Dx=a b"]);
    assert_eq!(config.logging, Logging { log4j2: true, log4j: false });
    assert_eq!(config.fetch_timeout, DEFAULT_FETCH_TIMEOUT);
    let StorageFormat::Initial(controllers) = config.storage_format else { panic!("not initial") };
    assert_eq!(controllers.as_str(), initial_controllers());
    assert_eq!(controllers.directory_of(NodeId(4)), Some(DIRECTORY_4.parse().unwrap()));
    assert_eq!(controllers.directory_of(NodeId(5)), None);
}

#[test]
fn roles_are_read_in_any_order() {
    for (text, role) in [
        ("controller", Role::Controller),
        ("broker, controller", Role::Combined),
        ("controller,broker", Role::Combined),
    ] {
        let lines = format!("process.roles={text}\ninter.broker.listener.name=CONTROLPLANE-9090\n");
        assert_eq!(NodeConfig::parse(&with_server_lines(&lines)).unwrap().role, role, "{text}");
    }
    assert!(error_of(&with_server_lines("process.roles=zookeeper\n")).contains("`process.roles=zookeeper`"));
    assert!(error_of(&with_server_lines("process.roles=\n")).contains("no `process.roles`"));
}

#[test]
fn the_metadata_directory_counts_even_outside_of_log_dirs() {
    let lines = "log.dirs=/b, /a\nmetadata.log.dir=/c\n";
    let dirs = NodeConfig::parse(&with_server_lines(lines)).unwrap().log_dirs;
    assert_eq!(dirs.metadata(), Path::new("/c"));
    assert_eq!(dirs.all(), ["/a", "/b", "/c"].map(PathBuf::from));
}

#[test]
fn without_a_metadata_directory_the_first_data_directory_is_it() {
    let dirs = NodeConfig::parse(&with_server_lines("log.dirs=/b,/a\nmetadata.log.dir=\n")).unwrap().log_dirs;
    assert_eq!(dirs.metadata(), Path::new("/b"));
    assert_eq!(dirs.all(), ["/a", "/b"].map(PathBuf::from));
}

#[test]
fn a_missing_directory_is_never_defaulted() {
    assert!(error_of(&with_server_lines("log.dirs=\n")).contains("no `log.dirs`"));
}

#[test]
fn every_needed_file_is_missed_by_name() {
    for name in [
        file::SERVER_CONFIG,
        file::CLUSTER_ID,
        file::METADATA_VERSION,
        file::STORAGE_FORMAT,
        file::INITIAL_CONTROLLERS,
        file::JVM_OPTIONS,
    ] {
        let mut files = controller_files();
        files.0.remove(name);
        assert!(error_of(&files).contains(&format!("`{name}` is missing")), "{name}");
    }
}

#[test]
fn a_vote_that_is_given_back_needs_the_list_too() {
    let files = with(file::STORAGE_FORMAT, "restore");
    let StorageFormat::Restore(controllers) = NodeConfig::parse(&files).unwrap().storage_format else {
        panic!("not restore")
    };
    assert_eq!(controllers.as_str(), initial_controllers());
}

#[test]
fn the_list_of_controllers_is_needed_only_for_a_new_quorum() {
    for (text, format) in [
        ("static", StorageFormat::Static),
        ("static-anew", StorageFormat::StaticAnew),
        ("join\n", StorageFormat::Join),
        ("adopt", StorageFormat::Adopt),
    ] {
        let mut files = with(file::STORAGE_FORMAT, text);
        files.0.remove(file::INITIAL_CONTROLLERS);
        assert_eq!(NodeConfig::parse(&files).unwrap().storage_format, format);
    }
    assert!(error_of(&with(file::STORAGE_FORMAT, "dynamic")).contains("\"dynamic\""));
}

#[test]
fn a_list_that_could_not_form_a_quorum_is_refused() {
    let zero = "3@h:9090:AAAAAAAAAAAAAAAAAAAAAA";
    for list in ["", "3@h:9090", "x@h:9090:r9VGTiw2QUCoDUadCt6q2g", "3@:9090:r9VGTiw2QUCoDUadCt6q2g", zero] {
        assert!(
            error_of(&with(file::INITIAL_CONTROLLERS, list)).contains("id@host:port:directory-id"),
            "{list}"
        );
    }
    let twice = format!("3@a:9090:{DIRECTORY_3},3@b:9090:{DIRECTORY_4}");
    assert!(error_of(&with(file::INITIAL_CONTROLLERS, &twice)).contains("node 3 twice"));
}

#[test]
fn an_id_of_several_words_is_refused() {
    assert!(error_of(&with(file::CLUSTER_ID, "a b")).contains("one word"));
    assert!(error_of(&with(file::CLUSTER_ID, "")).contains("one word"));
}

#[test]
fn the_fetch_timeout_can_be_set() {
    let config = NodeConfig::parse(&with_server_lines("controller.quorum.fetch.timeout.ms=5000\n")).unwrap();
    assert_eq!(config.fetch_timeout, Duration::from_secs(5));
    assert!(
        error_of(&with_server_lines("controller.quorum.fetch.timeout.ms=soon\n")).contains("milliseconds")
    );
}

#[test]
fn a_directory_of_files_is_read() {
    let dir = tempfile::tempdir().unwrap();
    for (name, content) in controller_files().0 {
        std::fs::write(dir.path().join(name), content).unwrap();
    }
    let read = ConfigFiles::read(dir.path()).unwrap();
    assert_eq!(NodeConfig::parse(&read).unwrap(), NodeConfig::parse(&controller_files()).unwrap());
}

#[test]
fn what_is_known_of_an_empty_disk_is_read_and_nothing_is_known_without_a_word() {
    let read = |files: &ConfigFiles| NodeConfig::parse(files).unwrap().empty_disk;
    assert_eq!(read(&controller_files()), EmptyDisk::Replaced);
    for (text, disk) in [
        ("new", EmptyDisk::New),
        ("late", EmptyDisk::Late),
        ("replaced", EmptyDisk::Replaced),
        ("allowed\n", EmptyDisk::Allowed),
    ] {
        assert_eq!(read(&with(file::EMPTY_DISK, text)), disk);
    }
    assert!(error_of(&with(file::EMPTY_DISK, "old")).contains("`empty.disk` is \"old\""));
}

#[test]
fn a_first_voter_is_known_by_the_list_however_it_formats_now() {
    let founder = |files: &ConfigFiles| NodeConfig::parse(files).unwrap().founder;
    assert_eq!(founder(&controller_files()), Some(DIRECTORY_3.parse().unwrap()));
    assert_eq!(founder(&with(file::STORAGE_FORMAT, "join")), Some(DIRECTORY_3.parse().unwrap()));
    let mut without_list = with(file::STORAGE_FORMAT, "join");
    without_list.0.insert(file::INITIAL_CONTROLLERS, Vec::new());
    assert_eq!(founder(&without_list), None);
    assert_eq!(founder(&with_server_lines("node.id=7\n")), None);
}

#[test]
fn a_combined_node_is_none_of_the_other_controllers() {
    let lines = "process.roles=broker,controller\ninter.broker.listener.name=REPLICATION-9091\n\
        listeners=CONTROLPLANE-9090://0.0.0.0:9090,REPLICATION-9091://0.0.0.0:9091\n\
        advertised.listeners=CONTROLPLANE-9090://a:9090,REPLICATION-9091://a:9091\n\
        listener.security.protocol.map=CONTROLPLANE-9090:SSL,REPLICATION-9091:SSL\n\
        listener.name.replication-9091.ssl.keystore.location=/k\n\
        listener.name.replication-9091.ssl.truststore.location=/t\n\
        controller.quorum.bootstrap.servers=a:9090,b:9090\n";
    let node = NodeConfig::parse(&with_server_lines(lines)).unwrap();
    assert_eq!(node.own_listener.endpoint, Endpoint::new("a", 9091));
    assert_eq!(node.other_controllers(), [Endpoint::new("b", 9090)]);
    let alone = NodeConfig { controllers: vec![Endpoint::new("a", 9090)], ..node };
    assert_eq!(alone.other_controllers(), []);
}

#[test]
fn a_disk_that_is_adopted_is_of_this_cluster_if_its_id_is_known() {
    let id = |text: &str| {
        let mut files = with(file::STORAGE_FORMAT, "adopt");
        files.0.insert(file::CLUSTER_ID, text.into());
        NodeConfig::parse(&files).unwrap().cluster_id
    };
    assert_eq!(id(""), None);
    assert_eq!(id("-luster-id").as_deref(), Some("-luster-id"));
}
