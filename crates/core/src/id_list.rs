//! The lists of node ids that users write into annotations: `[3]`, `[3, 4, 5]`, `[1000-1010, 7, 20-15]`.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use crate::ids::NodeId;

/// The most numbers and ranges of a list. Each range is gone through for every new node.
const LONGEST: usize = 1000;
/// How much of a list is repeated when it cannot be read.
const REPEATED: usize = 200;

/// Ids in the order in which they are to be used. Ranges stay ranges, so that a huge one costs nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IdList(Vec<(i32, i32)>);

/// The text is not a list of ids.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{text}' is not a list of node ids ({why}); write numbers and ranges in brackets, such as [3, 10-19]"
)]
pub struct InvalidIdList {
    text: String,
    why: String,
}

impl IdList {
    /// The ids, in order, but at most so many of each range.
    pub fn iter(&self, of_each_range: usize) -> impl Iterator<Item = NodeId> + '_ {
        self.0.iter().flat_map(move |&(first, last)| {
            let rising = (first <= last).then_some(first..=last).into_iter().flatten();
            let falling = (first > last).then(|| (last..=first).rev()).into_iter().flatten();
            rising.chain(falling).take(of_each_range).map(NodeId)
        })
    }

    /// Those of the list that are in a set, in the order of the list. Costs what the set costs, however long a range is.
    pub fn among<'a>(&'a self, set: &'a BTreeSet<NodeId>) -> impl Iterator<Item = NodeId> + 'a {
        self.0.iter().flat_map(|&(first, last)| {
            let rising: Vec<_> =
                set.range(NodeId(first.min(last))..=NodeId(first.max(last))).copied().collect();
            if first <= last { rising } else { rising.into_iter().rev().collect() }
        })
    }

    /// Is the id in the list?
    pub fn contains(&self, id: NodeId) -> bool {
        self.0.iter().any(|&(first, last)| (first.min(last)..=first.max(last)).contains(&id.0))
    }
}

impl FromStr for IdList {
    type Err = InvalidIdList;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fail = |why: String| InvalidIdList { text: text.chars().take(REPEATED).collect(), why };
        let trimmed = text.trim();
        if trimmed.is_empty() {
            return Ok(Self::default());
        }
        let inner = trimmed
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
            .ok_or_else(|| fail("the brackets are missing".to_owned()))?;
        if inner.trim().is_empty() {
            return Ok(Self::default());
        }
        let entries = inner.split(',').count();
        if entries > LONGEST {
            return Err(fail(format!("it has {entries} entries, and {LONGEST} are possible")));
        }
        inner.split(',').map(|part| range(part.trim())).collect::<Result<_, _>>().map(Self).map_err(fail)
    }
}

fn range(part: &str) -> Result<(i32, i32), String> {
    match part.split_once('-') {
        Some((first, last)) if !first.is_empty() => {
            Ok((number(first.trim(), part)?, number(last.trim(), part)?))
        }
        _ => number(part, part).map(|only| (only, only)),
    }
}

fn number(text: &str, part: &str) -> Result<i32, String> {
    let digits = !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
    match text.parse::<i32>() {
        Ok(number) if digits => Ok(number),
        _ => Err(format!("'{part}' is no id from 0 to {} and no range of them", i32::MAX)),
    }
}

impl fmt::Display for IdList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (index, (first, last)) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            if first == last { write!(f, "{comma}{first}")? } else { write!(f, "{comma}{first}-{last}")? }
        }
        f.write_str("]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(text: &str) -> Vec<i32> {
        text.parse::<IdList>().unwrap().iter(100).map(|id| id.0).collect()
    }

    #[test]
    fn numbers_lists_and_ranges_in_either_direction() {
        assert_eq!(ids("[3]"), [3]);
        assert_eq!(ids(" [3, 4,5 ] "), [3, 4, 5]);
        assert_eq!(ids("[10-12, 7, 20 - 18]"), [10, 11, 12, 7, 20, 19, 18]);
        assert_eq!(ids(""), [] as [i32; 0]);
        assert_eq!(ids("[]"), [] as [i32; 0]);
    }

    #[test]
    fn a_huge_range_costs_nothing_before_it_is_used() {
        let list: IdList = "[0-2147483647]".parse().unwrap();
        assert_eq!(list.iter(4).last(), Some(NodeId(3)));
        assert!(list.contains(NodeId(i32::MAX)));
    }

    #[test]
    fn a_list_without_an_end_is_refused_in_few_words() {
        let list = |ranges: usize| format!("[{}]", vec!["0-2147483647"; ranges].join(","));
        assert!(list(1000).parse::<IdList>().is_ok());
        let error = list(1001).parse::<IdList>().unwrap_err().to_string();
        assert!(error.contains("it has 1001 entries, and 1000 are possible") && error.len() < 400, "{error}");
    }

    #[test]
    fn what_is_no_list_is_refused_with_the_part_that_is_wrong() {
        for (text, part) in [
            ("[5,7---9]", "7---9"),
            ("[-1]", "-1"),
            ("[3000000000]", "3000000000"),
            ("[a]", "a"),
            ("[1,]", "''"),
            ("3", "brackets"),
            ("[+3]", "+3"),
        ] {
            let error = text.parse::<IdList>().unwrap_err().to_string();
            assert!(error.contains(part) && error.contains("[3, 10-19]"), "{error}");
        }
    }
}
