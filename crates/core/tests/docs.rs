//! What the docs say of reasons is what there is.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;

use karst_core::reason::Reason;

const CONDITIONS: &str = "## Conditions\n";
const EVENTS: &str = "### Events\n";
const END: &str = "## How much one cluster can ask for\n";

/// The reasons that the tables of a part of docs/resources.md explain: they stand in the first cells, one or several.
fn explained(from: &str, to: &str) -> BTreeSet<String> {
    let text = include_str!("../../../docs/resources.md");
    let (_, rest) = text.split_once(from).expect(from);
    let (part, _) = rest.split_once(to).expect(to);
    let tables = part.split("\n\n").filter(|paragraph| paragraph.starts_with("| reason |"));
    let rows = tables.flat_map(|table| table.lines().skip(2));
    let cells = rows.filter_map(|row| row.split('|').nth(1));
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
}

fn names(reasons: &[Reason]) -> BTreeSet<String> {
    reasons.iter().map(ToString::to_string).collect()
}

#[test]
fn every_reason_of_a_condition_is_explained_and_no_other() {
    assert_eq!(explained(CONDITIONS, EVENTS), names(Reason::OF_CONDITIONS));
}

#[test]
fn every_reason_of_an_event_is_explained_and_no_other() {
    assert_eq!(explained(EVENTS, END), names(Reason::OF_EVENTS));
}
