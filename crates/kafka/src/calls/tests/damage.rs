//! What no real node would answer is refused without harm.

use proptest::prelude::*;

use super::changes::*;
use super::*;

/// A real answer, and how it is read.
struct Sample {
    message: &'static [u8],
    read: fn(&[u8]) -> Result<(), String>,
}

macro_rules! samples {
    ($($file:literal, $read:expr;)*) => {
        &[$(Sample { message: frame!($file), read: |message| $read(message).map(drop) },)*]
    };
}

/// Every question once, so that damage can be done to the answer.
const SAMPLES: &[Sample] = samples! {
    "4.1.1/api-versions-v4.bin", |message| read(&ApiVersionsCall, 4, message);
    "4.1.1/describe-cluster-v2.bin", |message| read(&DescribeBrokers, 2, message);
    "4.1.1/describe-controllers-v2.bin", |message| read(&DescribeControllers, 2, message);
    "4.1.1/describe-quorum-v2.bin", |message| read(&DescribeQuorum, 2, message);
    "4.1.1/fetch-v17.bin", |message| read(&FollowLeader, 17, message);
    "4.1.1/fetch-v17.bin", |message| read(&QuorumEpoch, 17, message);
    "4.1.1/metadata-v13.bin", |message| read(&topics(), 13, message);
    "4.1.1/describe-configs-v4.bin", |message| read(&orders_config(), 4, message);
    "4.1.1/describe-quorum-v2.bin", |message| read(&DescribeVoterListeners, 2, message);
    "4.1.1/describe-configs-of-two-v4.bin", |message| read(&two_topics(), 4, message);
    "4.1.1/describe-log-dirs-v4.bin", |message| read(&DescribeLogDirs, 4, message);
    "4.1.1/list-partition-reassignments-v0.bin", |message| read(&ListReassignments, 0, message);
    "4.1.1/describe-topic-partitions-v0.bin", |message| read(&three_topics(None), 0, message);
    "4.1.1/describe-topic-partitions-next-v0.bin", |message| read(&three_topics(Some(1)), 0, message);
    "4.1.1/add-raft-voter-v0.bin", |message| read(&voter_3(), 0, message);
    "4.1.1/remove-raft-voter-v0.bin", |message| read(&no_voter_3(), 0, message);
    "4.1.1/update-features-v2.bin", |message| read(&metadata_version(), 2, message);
    "4.1.1/unregister-broker-v0.bin", |message| read(&UnregisterBroker(NodeId(12)), 0, message);
    "4.1.1/incremental-alter-configs-v1.bin", |message| read(&broker_defaults(), 1, message);
    "4.1.1/alter-user-scram-credentials-v0.bin", |message| read(&three_users(), 0, message);
};

/// A varint of four billion, the worst count there is.
const FOUR_BILLION: [u8; 5] = [0xff, 0xff, 0xff, 0xff, 0x0f];

#[test]
fn an_answer_cut_short_anywhere_is_refused() {
    for &Sample { message, read } in SAMPLES {
        read(message).unwrap();
        for end in 0..message.len() {
            assert!(read(&message[..end]).is_err(), "{end} of {} bytes", message.len());
        }
    }
}

#[test]
fn an_answer_with_bytes_left_over_is_refused() {
    for &Sample { message, read } in SAMPLES {
        let complaint = read(&[message, &[0]].concat()).unwrap_err();
        assert!(complaint.contains("1 bytes are left over"), "{complaint}");
    }
}

#[test]
fn a_count_of_four_billion_anywhere_does_no_harm() {
    for &Sample { message, read } in SAMPLES {
        for at in 4..message.len() {
            // Whether it is refused depends on what stood there; that the process lives is the point.
            let _ = read(&[&message[..at], &FOUR_BILLION, &message[at..]].concat());
            let _ = read(&[&message[..at], &FOUR_BILLION].concat());
        }
    }
}

/// How many cases each random test tries: more of them in `cargo xtask fuzz`.
fn cases() -> u32 {
    std::env::var("KARST_FUZZ_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(2_000)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn damaged_bytes_do_no_harm(
        which in 0..SAMPLES.len(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let Sample { message, read } = &SAMPLES[which];
        let mut message = message.to_vec();
        for (at, byte) in damage {
            let at = at.index(message.len());
            message[at] = byte;
        }
        let _ = read(&message);
    }

    #[test]
    fn noise_does_no_harm(
        which in 0..SAMPLES.len(),
        noise in prop::collection::vec(any::<u8>(), 0..512),
    ) {
        let _ = (SAMPLES[which].read)(&noise);
    }

    #[test]
    fn noise_after_a_good_beginning_does_no_harm(
        which in 0..SAMPLES.len(),
        end in any::<prop::sample::Index>(),
        noise in prop::collection::vec(any::<u8>(), 0..4096),
    ) {
        let Sample { message, read } = &SAMPLES[which];
        let _ = read(&[&message[..end.index(message.len())], &noise].concat());
    }
}
