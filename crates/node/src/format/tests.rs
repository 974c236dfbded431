use super::*;
use crate::config::tests::{
    DIRECTORY_3, DIRECTORY_4, controller_files, initial_controllers, with_server_lines,
};

const CLUSTER: &str = "-luster-id";
const DATA: &str = "/data-0";
const METADATA: &str = "/data-1";

/// Controller 3 of a new quorum, with its metadata on the second of two disks.
fn config() -> NodeConfig {
    let lines = format!("log.dirs={DATA},{METADATA}\nmetadata.log.dir={METADATA}\n");
    NodeConfig::parse(&with_server_lines(&lines)).unwrap()
}

fn config_with(format: StorageFormat) -> NodeConfig {
    NodeConfig { storage_format: format, ..config() }
}

fn config_of(node: i32, roles: &str) -> NodeConfig {
    let lines =
        format!("node.id={node}\nprocess.roles={roles}\ninter.broker.listener.name=CONTROLPLANE-9090\n");
    NodeConfig::parse(&with_server_lines(&lines)).unwrap()
}

fn marked(cluster: &str, node: i32) -> Contents {
    let text = format!("version=1\ncluster.id={cluster}\nnode.id={node}\ndirectory.id={DIRECTORY_3}\n");
    Contents::Marked(text.into_bytes())
}

fn ours() -> Contents {
    marked(CLUSTER, 3)
}

fn disks(data: Contents, metadata: Contents) -> Vec<(PathBuf, Contents)> {
    vec![(DATA.into(), data), (METADATA.into(), metadata)]
}

fn one_disk(config: &NodeConfig, contents: Contents) -> Vec<(PathBuf, Contents)> {
    vec![(config.log_dirs.metadata().to_owned(), contents)]
}

#[track_caller]
fn formatting(config: &NodeConfig, directories: &[(PathBuf, Contents)]) -> Formatting {
    match decide(config, directories) {
        Decision::Format(formatting) => formatting,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn refusal(contents: Contents) -> String {
    match decide(&config(), &disks(ours(), contents)) {
        Decision::Refuse(refusals) => {
            let [refusal] = refusals.as_slice() else { panic!("{refusals:?}") };
            assert_eq!(refusal.path, Path::new(METADATA));
            refusal.to_string()
        }
        other => panic!("{other:?}"),
    }
}

fn as_initial() -> QuorumOption {
    initial(&initial_controllers(), DIRECTORY_3.parse().unwrap())
}

#[test]
fn a_formatted_node_is_left_alone() {
    assert_eq!(decide(&config(), &disks(ours(), ours())), Decision::AlreadyFormatted);
}

#[test]
fn empty_disks_of_a_founder_are_formatted_with_the_list() {
    let formatting = formatting(&config(), &disks(Contents::Empty, Contents::Empty));
    assert_eq!(formatting.directories, [DATA, METADATA].map(PathBuf::from));
    assert_eq!(formatting.quorum, as_initial());
}

#[test]
fn a_new_disk_of_a_running_node_is_formatted_and_nothing_else() {
    let formatting = formatting(&config(), &disks(Contents::Empty, ours()));
    assert_eq!(formatting.directories, [PathBuf::from(DATA)]);
    assert_eq!(formatting.quorum, QuorumOption::NoInitialControllers(WhyNotInitial::MetadataFormatted));
}

#[test]
fn a_founder_that_lost_its_metadata_disk_does_not_get_its_vote_back() {
    let formatting = formatting(&config(), &disks(ours(), Contents::Empty));
    assert_eq!(formatting.quorum, QuorumOption::NoInitialControllers(WhyNotInitial::MetadataLost));
}

#[test]
fn a_formatting_that_was_cut_short_is_done_again() {
    for first_voters_written in [false, true] {
        let remains = Contents::InterruptedFormat { first_voters_written };
        let again = formatting(&config(), &disks(Contents::Empty, remains));
        assert_eq!(again.directories, [DATA, METADATA].map(PathBuf::from));
        assert_eq!(again.quorum, as_initial());
    }
}

#[test]
fn a_founder_whose_data_disk_was_formatted_first_is_still_a_founder() {
    let remains = Contents::InterruptedFormat { first_voters_written: true };
    let rest = formatting(&config(), &disks(ours(), remains));
    assert_eq!(rest.directories, [PathBuf::from(METADATA)]);
    assert_eq!(rest.quorum, as_initial());
}

/// Of several volumes, when the tool was killed between the first and the one with the metadata.
#[test]
fn a_founder_whose_other_disks_were_only_formatted_has_lost_nothing_for_sure() {
    let Contents::Marked(mark) = ours() else { panic!() };
    for metadata in [Contents::Empty, Contents::InterruptedFormat { first_voters_written: false }] {
        let rest = formatting(&config(), &disks(Contents::Unused(mark.clone()), metadata));
        assert_eq!(rest.directories, [PathBuf::from(METADATA)]);
        assert_eq!(rest.quorum, as_initial());
        assert_eq!(rest.doubtful, Some(DIRECTORY_3.parse().unwrap()), "and others are asked");
    }
    let unused = || Contents::Unused(mark.clone());
    assert_eq!(decide(&config(), &disks(ours(), unused())), Decision::AlreadyFormatted);
    assert!(has_directory_id(&unused(), DIRECTORY_3.parse().unwrap()));
}

/// Its data disks prove that it was there before. That is no reason to leave it without a vote when a person gives it one.
#[test]
fn a_founder_that_lost_its_metadata_disk_votes_when_a_person_says_so() {
    let allowed = NodeConfig { empty_disk: EmptyDisk::Allowed, ..config() };
    let given = formatting(&allowed, &disks(ours(), Contents::Empty));
    assert_eq!(given.directories, [PathBuf::from(METADATA)]);
    assert_eq!(given.quorum, as_initial());
    assert!(given.doubtful.is_some(), "a leader that knows better is believed");
    let lost = formatting(&config(), &disks(ours(), Contents::Empty));
    assert!(lost.is_proven_loss());
    assert_eq!(lost.clone().heard(true), lost, "it is still known why");
}

#[test]
fn a_lost_vote_stays_lost_when_the_formatting_of_the_new_disk_is_cut_short() {
    let remains = Contents::InterruptedFormat { first_voters_written: false };
    let rest = formatting(&config(), &disks(ours(), remains));
    assert_eq!(rest.quorum, QuorumOption::NoInitialControllers(WhyNotInitial::MetadataLost));
}

#[test]
fn a_founder_that_was_there_before_does_not_get_its_vote_back() {
    let empty = formatting(&config(), &disks(Contents::Empty, Contents::Empty));
    let again = empty.clone().heard(true);
    assert_eq!(again.directories, empty.directories);
    assert_eq!(again.quorum, QuorumOption::NoInitialControllers(WhyNotInitial::SeenBefore));
    assert_eq!(empty.clone().heard(false), empty, "nobody saw it");
}

#[test]
fn others_are_asked_only_about_first_voters_that_may_have_lost_a_disk() {
    let own = Some(DIRECTORY_3.parse().unwrap());
    let doubtful = |data, metadata| formatting(&config(), &disks(data, metadata)).doubtful;
    let cut_short = |first_voters_written| Contents::InterruptedFormat { first_voters_written };
    assert_eq!(doubtful(Contents::Empty, Contents::Empty), own);
    assert_eq!(doubtful(Contents::Empty, cut_short(false)), own);
    assert_eq!(doubtful(Contents::Empty, cut_short(true)), None, "proof that no disk was lost");
    assert_eq!(doubtful(ours(), Contents::Empty), own, "one was, and nobody may lead");
    assert_eq!(doubtful(Contents::Empty, ours()), None);
    for config in [config_of(3, "broker"), config_of(9, "controller"), config_with(StorageFormat::Join)] {
        assert_eq!(formatting(&config, &one_disk(&config, Contents::Empty)).doubtful, None);
    }
}

#[test]
fn who_gives_a_vote_back_knows_that_it_was_there_before() {
    let StorageFormat::Initial(controllers) = config().storage_format else { panic!("not initial") };
    let restored = formatting(
        &config_with(StorageFormat::Restore(controllers)),
        &disks(Contents::Empty, Contents::Empty),
    );
    assert_eq!(restored.doubtful, None);
    assert_eq!(restored.quorum, formatting(&config(), &disks(Contents::Empty, Contents::Empty)).quorum);
}

#[test]
fn what_others_know_changes_nothing_where_there_was_no_doubt() {
    let remains = Contents::InterruptedFormat { first_voters_written: true };
    let proven = formatting(&config(), &disks(Contents::Empty, remains));
    assert_eq!(proven.clone().heard(true), proven);
    let joins = formatting(&config_with(StorageFormat::Join), &disks(Contents::Empty, Contents::Empty));
    assert_eq!(joins.clone().heard(true), joins);
}

#[test]
fn the_quorum_option_follows_mode_and_role() {
    let quorum = |config: &NodeConfig| formatting(config, &one_disk(config, Contents::Empty)).quorum;
    let without = QuorumOption::NoInitialControllers;
    assert_eq!(quorum(&config_of(3, "controller")), as_initial());
    assert_eq!(quorum(&config_of(3, "broker,controller")), as_initial());
    assert_eq!(quorum(&config_of(3, "broker")), without(WhyNotInitial::BrokerOnly));
    assert_eq!(quorum(&config_of(9, "controller")), without(WhyNotInitial::NotListed));
    assert_eq!(quorum(&config_with(StorageFormat::Join)), without(WhyNotInitial::QuorumExists));
    assert_eq!(quorum(&config_with(StorageFormat::Static)), QuorumOption::Static);
}

#[test]
fn a_disk_of_another_cluster_is_refused() {
    let message = refusal(marked("other", 3));
    assert!(message.contains(METADATA) && message.contains("cluster.id=other"), "{message}");
    assert!(message.contains(CLUSTER), "{message}");
}

#[test]
fn disks_that_are_adopted_are_never_formatted_and_must_belong_together() {
    let config = NodeConfig { cluster_id: None, ..config_with(StorageFormat::Adopt) };
    assert_eq!(decide(&config, &disks(marked("any", 3), marked("any", 3))), Decision::AlreadyFormatted);
    for (data, metadata) in [
        (Contents::Empty, Contents::Empty),
        (marked("any", 3), Contents::Empty),
        (marked("any", 3), marked("other", 3)),
        (marked("any", 4), marked("any", 3)),
    ] {
        let decision = decide(&config, &disks(data, metadata));
        assert!(matches!(decision, Decision::Refuse(_)), "{decision:?}");
    }
}

#[test]
fn a_disk_of_another_node_is_refused() {
    let message = refusal(marked(CLUSTER, 4));
    assert!(message.contains("node.id=4") && message.contains("node 3"), "{message}");
}

#[test]
fn a_broken_mark_is_refused() {
    let message = refusal(Contents::Marked(b"version=1".to_vec()));
    assert!(message.contains("no `cluster.id`"), "{message}");
}

#[test]
fn content_without_a_mark_is_refused() {
    let message = refusal(Contents::Unmarked(vec!["orders-0".to_owned()]));
    assert!(message.contains("orders-0") && message.contains("meta.properties"), "{message}");
}

#[test]
fn an_unreadable_disk_is_refused() {
    assert!(refusal(Contents::Unreadable("permission denied".to_owned())).contains("permission denied"));
}

#[test]
fn one_bad_directory_stops_the_formatting_of_all_and_every_bad_one_is_named() {
    let directories = disks(marked("other", 3), Contents::Unmarked(vec!["x".to_owned()]));
    let Decision::Refuse(refusals) = decide(&config(), &directories) else { panic!("not refused") };
    assert_eq!(refusals.len(), 2);
    assert!(matches!(decide(&config(), &disks(marked("other", 3), Contents::Empty)), Decision::Refuse(_)));
}

#[test]
fn ids_that_begin_with_a_dash_stay_part_of_their_option() {
    let config = NodeConfig::parse(&controller_files()).unwrap();
    let arguments = storage_tool_arguments(&config, Path::new("/c/server.config"), &as_initial());
    assert_eq!(
        arguments,
        [
            "format",
            "--cluster-id=-luster-id",
            "--release-version=4.1-IV1",
            "--config=/c/server.config",
            "--ignore-formatted",
            &format!("--initial-controllers={}", initial_controllers()),
        ]
    );
    let without = QuorumOption::NoInitialControllers(WhyNotInitial::QuorumExists);
    let last = |option| storage_tool_arguments(&config, Path::new("/c"), option).pop();
    assert_eq!(last(&without).as_deref(), Some("--no-initial-controllers"));
    assert_eq!(last(&QuorumOption::Static).as_deref(), Some("--ignore-formatted"));
}

#[test]
fn a_founder_must_carry_the_id_it_was_given() {
    assert!(has_directory_id(&ours(), DIRECTORY_3.parse().unwrap()));
    assert!(!has_directory_id(&ours(), DIRECTORY_4.parse().unwrap()));
    assert!(!has_directory_id(&Contents::Empty, DIRECTORY_3.parse().unwrap()));
}

#[test]
fn a_vote_is_given_back_to_a_node_whose_other_disks_are_formatted() {
    let files = with_server_lines(&format!("log.dirs={DATA},{METADATA}\nmetadata.log.dir={METADATA}\n"));
    let StorageFormat::Initial(voters) = NodeConfig::parse(&files).unwrap().storage_format else { panic!() };
    let config = config_with(StorageFormat::Restore(voters));
    let formatting = formatting(&config, &disks(ours(), Contents::Empty));
    assert_eq!(formatting.directories, [PathBuf::from(METADATA)], "the other one keeps its data");
    assert_eq!(formatting.quorum, as_initial());
    assert_eq!(formatting.doubtful, None);
}

#[test]
fn an_empty_disk_of_a_static_voter_is_one_in_the_place_of_a_lost_one() {
    let is_lost = |config: &NodeConfig, directories: &[(PathBuf, Contents)]| {
        is_lost_static_voter(config, &formatting(config, directories))
    };
    let own = config_with(StorageFormat::Static);
    assert!(is_lost(&own, &disks(Contents::Empty, Contents::Empty)));
    assert!(is_lost(&own, &disks(ours(), Contents::InterruptedFormat { first_voters_written: false })));
    assert!(!is_lost(&own, &disks(Contents::Empty, ours())), "a volume was added");
    let decided = config_with(StorageFormat::StaticAnew);
    assert!(!is_lost(&decided, &disks(Contents::Empty, Contents::Empty)), "a person decided");
    assert!(
        !is_lost(&config(), &disks(Contents::Empty, Contents::Empty)),
        "who forms a quorum waits for nobody"
    );
    let broker = NodeConfig { storage_format: StorageFormat::Static, ..config_of(3, "broker") };
    assert!(!is_lost(&broker, &one_disk(&broker, Contents::Empty)), "brokers come and go");
}
