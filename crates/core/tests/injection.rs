//! Can a setting of a user become a setting of Karst? Whatever keys and values somebody writes, the settings that belong to
//! Karst are the same when the file is read back.
//!
//! The readers are not the writer's: one is written here, after what `java.util.Properties` does, and the other is the launcher's.
//! `cargo xtask fuzz settings --minutes N` goes on for longer.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../node/src/properties.rs"]
#[allow(dead_code, unreachable_pub)]
mod launcher;
#[path = "plan/support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use karst_core::cluster::{Cluster, Node};
use karst_core::config;
use karst_core::listeners::address::served;
use karst_core::quorum::Kind;
use karst_core::resolve::resolve;
use karst_core::world::World;
use proptest::prelude::*;
use serde_json::Value;

type Config = BTreeMap<String, Value>;

/// How many cases are tried: more of them in `cargo xtask fuzz`.
fn cases() -> u32 {
    std::env::var("KARST_FUZZ_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(3_000)
}

/// Beginnings of keys that no user may have, written down here once more.
const KARSTS: &[&str] = &[
    "listener.",
    "listeners",
    "advertised.",
    "broker.",
    "inter.broker.listener.name",
    "sasl.",
    "ssl.",
    "security.",
    "log.dir",
    "authorizer.",
    "super.user",
    "node.id",
    "process.roles",
    "controller.",
    "metadata.log.dir",
    "config.providers",
];
/// The exceptions.
const USERS: &[&str] = &[
    "sasl.server.max.receive.size",
    "ssl.cipher.suites",
    "ssl.protocol",
    "ssl.enabled.protocols",
    "ssl.secure.random.implementation",
    "broker.session.timeout.ms",
    "broker.heartbeat.interval.ms",
    "controller.socket.timeout.ms",
    "controller.quorum.election.backoff.max.ms",
    "controller.quorum.election.timeout.ms",
    "controller.quorum.fetch.timeout.ms",
];

static QUICKSTART: LazyLock<(World, Cluster)> = LazyLock::new(|| {
    let mut world = support::quickstart();
    support::converge(&mut world);
    let cluster = resolve(&world).cluster.expect("a cluster");
    (world, cluster)
});

/// The file of a broker whose user wrote this.
fn render(user: &Config) -> String {
    let (world, cluster) = &*QUICKSTART;
    let pool = cluster.pools.iter().find(|pool| pool.roles.has_broker()).unwrap();
    let node = Node { id: pool.nodes[0], pool };
    config::render(
        cluster,
        node,
        &served(world, cluster, node),
        Kind::Dynamic,
        "a.example:9090",
        Some(user),
        None,
    )
    .render()
}

static OWNED: LazyLock<BTreeMap<String, String>> =
    LazyLock::new(|| java::load(&render(&Config::new())).unwrap());

/// Reads like `java.util.Properties`: character by character, in the states that its documentation describes.
mod java {
    use std::collections::BTreeMap;
    use std::iter::Peekable;
    use std::str::Chars;

    pub(super) fn load(text: &str) -> Result<BTreeMap<String, String>, String> {
        let mut entries = BTreeMap::new();
        let mut rest = text.chars().peekable();
        while rest.peek().is_some() {
            skip_blanks(&mut rest);
            match rest.peek() {
                None => break,
                Some('\n' | '\r') => drop(rest.next()),
                Some('#' | '!') => rest.by_ref().take_while(|c| !matches!(c, '\n' | '\r')).for_each(drop),
                Some(_) => {
                    let key = element(&mut rest, true)?;
                    skip_blanks(&mut rest);
                    if matches!(rest.peek(), Some('=' | ':')) {
                        rest.next();
                        skip_blanks(&mut rest);
                    }
                    entries.insert(key, element(&mut rest, false)?);
                }
            }
        }
        Ok(entries)
    }

    /// White space, and line ends behind a backslash, which continue a line.
    fn skip_blanks(rest: &mut Peekable<Chars<'_>>) {
        while matches!(rest.peek(), Some(' ' | '\t' | '\x0c')) {
            rest.next();
        }
    }

    fn element(rest: &mut Peekable<Chars<'_>>, is_key: bool) -> Result<String, String> {
        let mut units = Vec::new();
        while let Some(&c) = rest.peek() {
            match c {
                '\n' | '\r' => break,
                '=' | ':' | ' ' | '\t' | '\x0c' if is_key => break,
                '\\' => {
                    rest.next();
                    escape(rest, &mut units)?;
                }
                c => {
                    rest.next();
                    let latin = u16::try_from(u32::from(c)).ok().filter(|unit| *unit < 0x100);
                    units.push(latin.ok_or_else(|| format!("{c:?} is not in the file's encoding"))?);
                }
            }
        }
        Ok(String::from_utf16_lossy(&units))
    }

    fn escape(rest: &mut Peekable<Chars<'_>>, units: &mut Vec<u16>) -> Result<(), String> {
        match rest.next() {
            None => {}
            Some('u') => {
                let digits: String = rest.by_ref().take(4).collect();
                let unit = u16::from_str_radix(&digits, 16).map_err(|_| format!("\\u{digits}"))?;
                units.push(unit);
            }
            Some('t') => units.push(9),
            Some('n') => units.push(10),
            Some('r') => units.push(13),
            Some('f') => units.push(12),
            Some('\r') => {
                if rest.peek() == Some(&'\n') {
                    rest.next();
                }
                skip_blanks(rest);
            }
            Some('\n') => skip_blanks(rest),
            Some(other) => units.extend(other.encode_utf16(&mut [0; 2]).iter()),
        }
        Ok(())
    }
}

/// What could confuse a reader, or a filter.
fn trick() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            " ",
            "\t",
            "\n",
            "\r",
            "\r\n",
            "\x0c",
            "\x0b",
            "\\",
            "\\\n",
            "\\u000a",
            "\\u003d",
            "=",
            ":",
            "#",
            "!",
            "\0",
            "\u{85}",
            "\u{a0}",
            "\u{feff}",
            "\u{200b}",
            "\u{2028}",
            "é",
            "😀",
            "${env:HOME}",
            "${file:/etc/passwd:x}",
            "config.providers",
            "config.providers.env.class",
            "\u{1b}",
            "'",
            "\"",
            "\\\\",
            "\\ ",
            "\u{ffff}",
        ])
        .prop_map(str::to_owned),
        any::<char>().prop_map(String::from),
        "[a-z.=: \\\\]{0,6}",
    ]
}

/// A key of Karst, or of a user.
fn name() -> impl Strategy<Value = String> {
    let owned: Vec<_> = OWNED.keys().cloned().collect();
    prop_oneof![
        4 => prop::sample::select(owned),
        1 => prop::sample::select(USERS.to_vec()).prop_map(str::to_owned),
        1 => prop::sample::select(KARSTS.to_vec()).prop_map(str::to_owned),
        1 => prop::sample::select(vec!["log.retention.ms", "num.io.threads", "x"]).prop_map(str::to_owned),
    ]
}

/// A name as it is, with one of its characters written as an escape, or in capitals.
fn disguised() -> impl Strategy<Value = String> {
    (name(), any::<prop::sample::Index>(), 0..4).prop_map(|(name, at, how)| {
        let at = at.index(name.len());
        let (head, tail) = name.split_at(at);
        let mut tail_chars = tail.chars();
        let Some(first) = tail_chars.next() else { return name.clone() };
        let rest = tail_chars.as_str();
        match how {
            0 => format!("{head}\\u{:04x}{rest}", u32::from(first)),
            1 => format!("{head}\\{first}{rest}"),
            2 => format!("{head}{}{rest}", first.to_ascii_uppercase()),
            _ => name,
        }
    })
}

fn text() -> impl Strategy<Value = String> {
    prop::collection::vec(prop_oneof![trick(), disguised()], 0..6).prop_map(|parts| parts.concat())
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        6 => text().prop_map(Value::from),
        1 => prop::collection::vec(text(), 0..3).prop_map(Value::from),
        1 => any::<i64>().prop_map(Value::from),
        1 => Just(Value::Null),
        1 => (text(), text()).prop_map(|(key, value)| serde_json::json!({ key: value })),
    ]
}

fn user_config() -> impl Strategy<Value = Config> {
    prop::collection::btree_map(prop_oneof![text(), disguised()], value(), 0..6)
}

fn is_karsts(key: &str) -> bool {
    KARSTS.iter().any(|prefix| key.starts_with(prefix)) && !USERS.contains(&key)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn no_setting_of_a_user_becomes_one_of_karst(user in user_config()) {
        let file = render(&user);
        prop_assert!(file.is_ascii(), "{file}");
        let read = java::load(&file).map_err(TestCaseError::fail)?;
        for (key, value) in &*OWNED {
            prop_assert_eq!(read.get(key), Some(value), "{} in\n{}", key, file);
        }
        for key in read.keys().filter(|key| !OWNED.contains_key(*key)) {
            prop_assert!(!is_karsts(key), "{:?} in\n{}", key, file);
            prop_assert!(user.keys().any(|written| written.trim() == key), "nobody wrote {:?}\n{}", key, file);
        }
    }

    #[test]
    fn the_launcher_reads_what_kafka_reads(user in user_config()) {
        let file = render(&user);
        let read = java::load(&file).map_err(TestCaseError::fail)?;
        let launcher = launcher::Properties::parse(file.as_bytes()).map_err(|bad| TestCaseError::fail(bad.to_string()))?;
        for (key, value) in &read {
            prop_assert_eq!(launcher.get(key), Some(value.trim()), "{:?}", key);
        }
    }

    #[test]
    fn what_a_user_may_set_arrives_as_it_was_written(value in text()) {
        let user = Config::from([("my.plugin.text".to_owned(), Value::from(value.clone()))]);
        let read = java::load(&render(&user)).map_err(TestCaseError::fail)?;
        prop_assert_eq!(read.get("my.plugin.text"), Some(&value));
    }
}

#[test]
fn the_reader_of_these_tests_reads_like_java() {
    let read = |text: &str| java::load(text).unwrap().into_iter().collect::<Vec<_>>();
    let pair = |key: &str, value: &str| vec![(key.to_owned(), value.to_owned())];
    assert_eq!(read("a=b"), pair("a", "b"));
    assert_eq!(read("  a : b"), pair("a", "b"));
    assert_eq!(read("a b\n# c=d\n!e"), pair("a", "b"));
    assert_eq!(read("a=b\\\n   c"), pair("a", "bc"));
    assert_eq!(read(r"\u006eode.id=7"), pair("node.id", "7"));
    assert_eq!(read(r"a\=b=c\nd"), pair("a=b", "c\nd"));
    assert_eq!(read("a=b\r\n\r\n"), pair("a", "b"));
    assert_eq!(read("key"), pair("key", ""));
}
