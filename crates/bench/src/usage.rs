//! What the kernel says a process uses.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

/// Memory of a process, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) resident: u64,
    /// The part of it that is data; the rest is the program itself, which the kernel may drop and read again.
    pub(crate) anonymous: u64,
    /// The most that ever was resident.
    pub(crate) peak: u64,
}

pub(crate) fn memory(pid: u32) -> Result<Memory> {
    let path = format!("/proc/{pid}/status");
    let status = fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    parse_memory(&status).with_context(|| format!("{path} does not tell the memory"))
}

fn parse_memory(status: &str) -> Option<Memory> {
    let kib = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    };
    Some(Memory {
        resident: kib("VmRSS:")? * 1024,
        anonymous: kib("RssAnon:")? * 1024,
        peak: kib("VmHWM:")? * 1024,
    })
}

/// Processor time that all threads of a process have used, ended ones included; in steps of 10 ms on most machines.
pub(crate) fn cpu(pid: u32) -> Result<Duration> {
    let path = format!("/proc/{pid}/stat");
    let stat = fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    let ticks = parse_ticks(&stat).with_context(|| format!("{path} does not tell the processor time"))?;
    Ok(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
}

/// User and system time are the fields 14 and 15. The second field is a name in parentheses, and may have spaces.
fn parse_ticks(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_in_bytes() {
        let status = "Name:\tx\nVmHWM:\t    2000 kB\nVmRSS:\t    1000 kB\nRssAnon:\t     500 kB\n";
        let expected = Memory { resident: 1_024_000, anonymous: 512_000, peak: 2_048_000 };
        assert_eq!(parse_memory(status), Some(expected));
        assert_eq!(parse_memory("Name:\tkthreadd\n"), None);
    }

    #[test]
    fn a_name_with_spaces_and_parentheses_does_not_shift_the_fields() {
        let stat = "42 (a (b) c) S 1 42 42 0 -1 4194304 100 0 0 0 31 11 0 0 20 0 1 0 9 1 2";
        assert_eq!(parse_ticks(stat), Some(42));
    }

    #[test]
    fn we_use_memory_ourselves() {
        let memory = memory(std::process::id()).unwrap();
        assert!(memory.resident > 100_000 && memory.peak >= memory.resident);
    }
}
