//! Why conditions and events say what they say: every reason there is, in one place.
//!
//! docs/resources.md explains each of them; a test compares it with these lists.

use std::fmt;

macro_rules! reasons {
    (conditions: $($condition:ident)* ; events: $($event:ident)*) => {
        /// The reason of a condition, or of an event.
        #[allow(missing_docs, reason = "docs/resources.md explains them, and a test sees to it")]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Reason {
            $($condition,)*
            $($event,)*
        }

        impl Reason {
            /// Those that conditions have. Warnings are told by events of the same reason, too.
            pub const OF_CONDITIONS: &[Self] = &[$(Self::$condition),*];
            /// Those that only events have.
            pub const OF_EVENTS: &[Self] = &[$(Self::$event),*];

            /// As it is written.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$condition => stringify!($condition),)*
                    $(Self::$event => stringify!($event),)*
                }
            }
        }
    };
}

reasons! {
    conditions:
        AdoptingDisks
        AsWanted
        BrokersNotTold
        CertificateAuthorityLost
        CertificateAuthorityUnknown
        CertificateAuthorityUnusable
        CertificateEnds
        ChangeHeld
        Changing
        ClocksDiffer
        ClusterIdMismatch
        ClusterNotReady
        ConfigurationKept
        ControllersStillRegistered
        Creating
        DataLossHeld
        DeletionPending
        DisksLost
        EmptyDiskHeld
        ForbiddenSettings
        ForeignAddress
        ForeignObject
        FormedAnew
        IdentityUnknown
        InternalError
        InvalidResource
        KafkaDefaultReplicationFactor
        KafkaKRaftControllerNodeCount
        KafkaMinInsyncReplicas
        KafkaMissing
        KafkaReplicationFactor
        KafkaStorage
        KeyAlgorithm
        KubernetesRefused
        ListenerAwaitsAddress
        ListenerBrokersUnknown
        ListenerCertificateEnds
        ListenerCertificateUnusable
        ListenerKept
        ListenerNotServed
        ListenerServiceRefused
        MaintenanceWindow
        MetadataVersionHeld
        MigrationHeld
        MoreWarnings
        MoveHeld
        NoLeader
        NodeAddressUnknown
        NodeIdsAwaited
        NodeIdsIgnored
        NodesNotReady
        NotOfCluster
        NotSupportedYet
        ObjectKeepsChanging
        OperatorCertificateUnknown
        OtherOperator
        PodSetNotRendered
        PoolGone
        PoolsMissing
        PoolsNotUsed
        QuorumChangeFailed
        QuorumChangeHeld
        RackUnknown
        RestartHeld
        RestorationHeld
        RollingUpdate
        RollingUpdateStopped
        ScaleDownPreventionCheck
        SettingNotTaken
        SettingsNotTold
        StaticQuorum
        UnknownSettings
        Unreadable
        UnregistrationFailed
        VersionHeld
        VotersBehind
        VotersCaughtUp
    ;
    events:
        AnnotationRemoved
        BrokerUnregistered
        CaCertHasOldGeneration
        CertificateAuthorityChanged
        ClaimDeleted
        ClusterCaCertKeyReplaced
        ClusterFormed
        FileSystemResizeNeeded
        KafkaCertificatesChanged
        KafkaNotSelected
        ManualRollingUpdate
        MetadataVersionChanged
        PartitionsUnprotected
        PodHasOldRevision
        QuorumMigrated
        QuorumMoved
        QuorumUnprotected
        Ready
        SettingChanged
        VoterAdded
        VoterRemoved
        VoterRestored
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl PartialEq<&str> for Reason {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}
